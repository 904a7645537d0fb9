"""Rejections by cause and the reach of a vocabulary, on generations written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from vtrim.decoding.generation import Generation, Rejection
from vtrim.evaluation.causes import Lookup, coverage, missing, rejections
from vtrim.vocab import DraftVocab

VOCAB = DraftVocab.of([2, 4, 6, 8], 10)


def generation(*found: Rejection, tokens: tuple[int, ...] = (2, 4, 5)) -> Generation:
    values: dict[str, Any] = {"drafted": (3,) * len(found), "accepted": (0,) * len(found)}
    return Generation(
        tokens=tokens, reasons={}, off_argmax=0, seconds={}, rejections=found, **values
    )


@pytest.mark.parametrize(
    ("token", "likeliest", "cause"),
    [
        (5, False, "out_of_vocabulary"),
        (5, True, "out_of_vocabulary"),  # the draw went where the draft has no mass
        (4, False, "wrong_token"),
        (4, True, "sampling"),
        (9, False, "out_of_vocabulary"),
        (2, False, "wrong_token"),
    ],
)
def test_a_rejection_has_one_cause(token: int, likeliest: bool, cause: str) -> None:
    assert Lookup(VOCAB).cause(Rejection(0, token, likeliest)) == cause


def test_a_drafter_that_can_write_all_is_never_out_of_vocabulary() -> None:
    lookup = Lookup(None)
    assert [lookup.cause(Rejection(0, t, False)) for t in (5, 9)] == ["wrong_token"] * 2


def test_causes_add_up_to_the_rejected_rounds_at_every_depth() -> None:
    one = generation(Rejection(0, 5, False), Rejection(0, 4, False), Rejection(2, 4, True))
    found = rejections([one, generation(Rejection(2, 5, False))], VOCAB)
    assert found["rejected_rounds"] == 4
    assert found["rejections"] == {"out_of_vocabulary": 2, "wrong_token": 1, "sampling": 1}
    assert found["rejections_by_position"] == [
        {"out_of_vocabulary": 1, "wrong_token": 1, "sampling": 0},
        {"out_of_vocabulary": 0, "wrong_token": 0, "sampling": 0},
        {"out_of_vocabulary": 1, "wrong_token": 0, "sampling": 1},
    ]
    assert rejections([generation()], VOCAB)["rejections_by_position"] == []


def test_coverage_of_the_text_counts_every_token_of_the_replies() -> None:
    both = [generation(tokens=(2, 4, 5, 5)), generation(tokens=(9, 8))]
    assert coverage(both, VOCAB) == 3 / 6
    assert coverage(both, None) is None
    assert missing(both, VOCAB) == [{"id": 5, "count": 2}, {"id": 9, "count": 1}]
    assert missing(both, None) == []
