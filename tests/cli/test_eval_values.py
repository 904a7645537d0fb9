"""Values that are typed as text."""

from __future__ import annotations

from typing import Any

import pytest

from vtrim.cli.eval_values import blocks, draft_tokens, knobs, noise, tree_shape, under_knob
from vtrim.errors import OptionError


@pytest.mark.parametrize(("typed", "read"), [(None, None), ("auto", "auto"), (" 7 ", 7)])
def test_a_number_of_draft_tokens_or_auto(typed: str | None, read: int | str | None) -> None:
    assert draft_tokens(typed) == read


@pytest.mark.parametrize("typed", ["0", "-1", "3.5", "many", "", "1,2", "²"])
def test_other_numbers_of_draft_tokens_are_refused(typed: str) -> None:
    with pytest.raises(OptionError, match=r"--num-draft-tokens .*: give a whole number"):
        draft_tokens(typed)


def test_noise_is_a_number_or_auto() -> None:
    assert (noise("0.02"), noise("auto")) == (0.02, "auto")
    with pytest.raises(OptionError, match=r"--p-drop some: give a share"):
        noise("some")


def test_a_tree_is_three_numbers() -> None:
    assert tree_shape("60, 5,10") == (60, 5, 10)
    for typed in ("60", "60,5", "60,5,10,1", "60,x,10", "60,-5,10", ",,"):
        with pytest.raises(OptionError, match=r"--tree .*: give TOTAL,DEPTH,TOPK"):
            tree_shape(typed)


def test_blocks_are_numbers_and_ranges() -> None:
    assert blocks("3,5,10-12") == (3, 5, 10, 11, 12)
    assert blocks(" 0 - 2 ") == (0, 1, 2)
    for typed in ("", "3,", "5-3", "a", "1-2-3", "-3"):
        with pytest.raises(OptionError, match=r"--skip-layers .*: give blocks"):
            blocks(typed)


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("delta=0.3", {"delta": 0.3}),
        ("heads=5", {"heads": 5}),
        ("accept-clean-argmax=false", {"accept_clean_argmax": False}),
        ("criterion=full", {"criterion": "full"}),
        ('criterion="full"', {"criterion": "full"}),
        ("text=a=b", {"text": "a=b"}),
        ("limit=null", {"limit": None}),
    ],
)
def test_a_knob_s_value_is_a_json_scalar_or_text(typed: str, read: dict[str, Any]) -> None:
    found = knobs([typed])
    assert found == read
    assert type(next(iter(found.values()))) is type(next(iter(read.values())))


@pytest.mark.parametrize("typed", ["delta", "=3", "a b=3", "delta=[1]", 'delta={"a": 1}'])
def test_a_knob_that_is_none_is_refused(typed: str) -> None:
    with pytest.raises(OptionError, match="--knob"):
        knobs([typed])


@pytest.mark.parametrize(
    ("refusal", "typed", "named"),
    [
        ("theta=2 must be between 0 and 1.", "theta=2", "--knob theta=2: must be between 0 and 1."),
        ("delta='a b' must be a number.", "delta=a b", "--knob delta=a b: must be a number."),
        ("--p-drop 1: give less.", "p-drop=1", "--knob p-drop=1: give less."),
        ("acceptor x: unknown option 'theta'.", "theta=1",
         "--knob theta=1: acceptor x: unknown option 'theta'."),
        ("acceptor x works at temperature 0 only.", "theta=1",
         "acceptor x works at temperature 0 only."),
    ],
)  # fmt: skip
def test_a_refused_knob_is_named_as_it_was_typed(refusal: str, typed: str, named: str) -> None:
    assert under_knob(refusal, ["other=3", typed]) == named


def test_a_knob_given_twice_is_refused() -> None:
    assert knobs(["a=1", "b=2"]) == {"a": 1, "b": 2}
    with pytest.raises(OptionError, match="a is given twice"):
        knobs(["a=1", "a=2"])
