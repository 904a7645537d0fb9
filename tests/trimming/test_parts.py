from __future__ import annotations

import random

import pytest

from vtrim.errors import MismatchError
from vtrim.trimming.parts import join_parts, merge_parts, missing_shards, shard_part


def test_a_shard_is_named_from_one() -> None:
    assert shard_part("sha256:a", None) == "sha256:a"
    assert shard_part("sha256:a", (1, 4)) == "sha256:a#2/4"


def test_all_shards_of_a_file_are_the_file_in_any_order() -> None:
    parts = [f"{file}#{n}/12" for file in ("a", "b") for n in range(1, 13)]
    random.Random(0).shuffle(parts)
    assert join_parts(parts) == "a+b"
    assert join_parts([part for part in parts if part != "a#3/12"]).count("#") == 11


def test_a_file_named_twice_in_one_run_stays_twice() -> None:
    assert join_parts(["a", "a"]) == "a+a"
    assert merge_parts("a#1/2+a#1/2", "a#2/2+a#2/2") == "a+a"


def test_merging_is_joining() -> None:
    assert merge_parts("b", "a") == "a+b"
    assert merge_parts(merge_parts("a#1/3", "a#3/3"), "a#2/3") == "a"
    assert merge_parts("", "a") == merge_parts("a", "") == "a"


@pytest.mark.parametrize(
    ("one", "other"), [("a", "a"), ("a", "a#1/2"), ("a#1/2", "a#1/2"), ("a#1/2+b", "c+a#1/3")]
)
def test_rows_that_would_count_twice_are_refused(one: str, other: str) -> None:
    with pytest.raises(MismatchError, match="count twice"):
        merge_parts(one, other)


def test_missing_shards_are_named() -> None:
    assert list(missing_shards("a+b#1/3+b#3/3")) == ["2/3 of b"]
    assert list(missing_shards("a")) == list(missing_shards("")) == []


def test_a_number_of_shards_beyond_all_reason_costs_nothing() -> None:
    parts = f"a#1/{10**18}"
    assert join_parts([parts]) == parts
    assert next(missing_shards(parts)) == f"2/{10**18} of a"
