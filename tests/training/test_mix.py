"""Mixing weights: how often the samples of each source come in a pass."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from vtrim.errors import InputError, OptionError
from vtrim.training.batch import TrainSample
from vtrim.training.data import Split
from vtrim.training.mix import check_sources, mixed, parse_mix, source_name


def split_of(**counts: int) -> Split:
    """Samples of 4 tokens, 3 of them reply, so many of each source, in turn."""
    names = [name for name, count in counts.items() for _ in range(count)]
    mask = np.array([False, True, True, True])
    train = [TrainSample(np.full(4, index), mask, index, name) for index, name in enumerate(names)]
    return Split(train, [TrainSample(np.arange(4), mask, 0, "code")], 5)


def indices(split: Split) -> list[int]:
    return [sample.index for sample in split.train]


def test_without_weights_the_split_stays_as_it_is() -> None:
    split = split_of(code=3)
    assert mixed(split, {}, 0) == (split, {})


def test_a_whole_weight_gives_so_many_copies_that_share_their_index() -> None:
    after, _ = mixed(split_of(code=2, math=2), {"code": 3}, 7)
    assert indices(after) == [0, 0, 0, 1, 1, 1, 2, 3]


def test_weight_0_leaves_a_source_out_and_the_held_out_samples_alone() -> None:
    split = split_of(code=2, math=2)
    after, _ = mixed(split, {"code": 0}, 7)
    assert indices(after) == [2, 3]
    assert (after.heldout, after.untrained) == (split.heldout, 5)


@pytest.mark.parametrize(("weight", "whole"), [(0.25, 0), (0.5, 0), (1.75, 1), (2.5, 2)])
def test_a_fraction_is_the_share_of_samples_with_one_copy_more(weight: float, whole: int) -> None:
    n = 20_000
    after, _ = mixed(split_of(code=n), {"code": weight}, 3)
    copies = Counter(indices(after))
    assert {copies[index] for index in range(n)} == {whole, whole + 1}
    deviation = (len(after.train) / n - weight) * n**0.5
    assert abs(deviation) < 4 * (0.25**0.5)  # four standard deviations of a coin, at most


def test_the_copies_depend_on_seed_and_sample_and_not_on_the_other_sources() -> None:
    alone = indices(mixed(split_of(code=400), {"code": 0.5}, 3)[0])
    among = mixed(split_of(code=400, math=50), {"code": 0.5, "math": 2}, 3)[0]
    assert [index for index in indices(among) if index < 400] == alone
    assert indices(mixed(split_of(code=400), {"code": 0.5}, 4)[0]) != alone


def test_a_larger_weight_keeps_what_a_smaller_one_kept() -> None:
    small, large = (set(indices(mixed(split_of(a=300), {"a": w}, 1)[0])) for w in (0.3, 0.6))
    assert small < large


def test_the_shares_count_samples_and_reply_tokens_before_and_after() -> None:
    _, shares = mixed(split_of(code=2, math=4, talk=1), {"code": 2, "math": 0}, 0)
    assert list(shares) == ["code", "math", "talk"]
    assert shares["code"].to_dict() == {
        "weight": 2,
        "samples": 2,
        "mixed_samples": 4,
        "tokens": 6,
        "mixed_tokens": 12,
    }
    assert (shares["math"].mixed_samples, shares["math"].mixed_tokens) == (0, 0)
    assert (shares["talk"].weight, shares["talk"].mixed_samples) == (1.0, 1)


def test_weights_that_leave_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="--mix leaves none of 2 training samples"):
        mixed(split_of(code=2), {"code": 0}, 0)


def test_an_unknown_source_is_refused_with_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"--mix chat: no such source\. Known: code, math\.$"):
        mixed(split_of(code=1, math=1), {"chat": 1}, 0)
    with pytest.raises(OptionError, match="Known: b"):
        check_sources({"a": 1.0}, ["b"])


def test_weights_are_parsed_in_name_order_and_a_name_may_hold_an_equals_sign() -> None:
    assert parse_mix(["math=0.5", "a=b=2", "code=0"]) == {"a=b": 2.0, "code": 0.0, "math": 0.5}
    assert list(parse_mix(["b=1", "a=2"])) == ["a", "b"]
    assert parse_mix([]) == {}


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["code"], "SOURCE=WEIGHT"),
        (["=2"], "SOURCE=WEIGHT"),
        (["code="], "not a number"),
        (["code=two"], "not a number"),
        (["code=-1"], "between 0 and 1000"),
        (["code=nan"], "between 0 and 1000"),
        (["code=inf"], "between 0 and 1000"),
        (["code=1e9"], "between 0 and 1000"),
        (["code=1", "code=2"], r"code has a weight already \(1\)"),
    ],
)
def test_a_weight_that_is_none_is_refused_with_the_text_typed(typed: list[str], words: str) -> None:
    with pytest.raises(OptionError, match=f"--mix {typed[-1]}: .*{words}"):
        parse_mix(typed)


@pytest.mark.parametrize(
    ("source", "file", "name"),
    [
        ("code", "/data/a.jsonl", "code"),
        (None, "/data/chat.jsonl.gz", "chat"),
        ("", "/data/v2.5-chat.parquet", "v2.5-chat"),
        (None, "org/set[train]", "set[train]"),
        (None, "/data/.jsonl", "/data/.jsonl"),
    ],
)
def test_a_row_without_a_source_bears_its_files_name(
    source: str | None, file: str, name: str
) -> None:
    assert source_name(source, file) == name
