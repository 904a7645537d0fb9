"""The table of drafters: names, options, and what is made of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.drafters import (
    DRAFTERS,
    EagleOptions,
    ModelOptions,
    NgramOptions,
    TreeOptions,
    drafter_options,
    make_drafter,
)
from vtrim.decoding.ngram import NgramDrafter
from vtrim.decoding.second_model import ModelDrafter
from vtrim.decoding.tree import TreeDrafter
from vtrim.errors import OptionError
from vtrim.models.layout import load_draft
from vtrim.models.target import Target, load_target
from vtrim.vocab import DraftVocab

BARE: dict[str, dict[str, Any]] = {"model": {"skip_layers": (1,)}}
"""What a drafter cannot do without."""


@pytest.fixture(scope="module")
def target(inputs: Path) -> Target:
    return load_target(str(inputs / "target_chain"), dtype=torch.float32)


@pytest.mark.parametrize("name", sorted(DRAFTERS))
def test_each_drafter_has_defaults_and_refuses_options_of_others(name: str) -> None:
    options = drafter_options(name, **BARE.get(name, {}))
    assert options.name == name
    assert options.needs_draft == (name in ("eagle", "tree"))
    with pytest.raises(OptionError, match=f"drafter {name}: unknown option 'beam'") as caught:
        drafter_options(name, beam=3)
    assert all(option in str(caught.value) for option in asdict(options))


def test_an_option_that_was_not_typed_keeps_its_default() -> None:
    assert drafter_options("ngram", max_ngram=None, min_ngram=2) == NgramOptions(min_ngram=2)


def test_a_wrong_name_is_met_with_the_nearest_one() -> None:
    with pytest.raises(OptionError, match=r"unknown drafter 'ngrams'\. Did you mean 'ngram'"):
        drafter_options("ngrams")
    with pytest.raises(OptionError, match="Known: eagle, tree, model, ngram"):
        drafter_options("medusa")
    with pytest.raises(OptionError, match="Did you mean 'max_ngram'"):
        drafter_options("ngram", max_ngrams=2)


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("eagle", {"min_confidence": 1.0}, "--min-confidence 1"),
        ("eagle", {"min_confidence": -0.1}, "--min-confidence -0.1"),
        ("model", {"skip_layers": (1,), "min_confidence": float("nan")}, "--min-confidence nan"),
        ("tree", {"total_token": 1}, "total_token=1"),
        ("tree", {"depth": -1}, "depth=-1"),
        ("tree", {"top_k": 0}, "top_k=0"),
        ("tree", {"total_token": 99, "depth": 1, "top_k": 2}, "a tree has 6"),
        ("model", {}, "--draft-model, or leave blocks of the target out with --skip-layers"),
        ("model", {"skip_layers": (3, 3)}, "--skip-layers 3, 3"),
        ("model", {"skip_layers": (-1,)}, "--skip-layers -1"),
        ("ngram", {"min_ngram": 0}, "--min-ngram 0"),
        ("ngram", {"max_ngram": 1, "min_ngram": 2}, "--max-ngram 1"),
    ],
)
def test_a_value_out_of_range_is_one_line(name: str, typed: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        drafter_options(name, **typed)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_drafters_are_made_of_their_options(
    target: Target, inputs: Path, random_draft: Callable[..., Path]
) -> None:
    draft = load_draft(random_draft(inputs / "target_chain")).model
    eagle = make_drafter(EagleOptions(min_confidence=0.2), target, draft=draft)
    assert isinstance(eagle, ChainDrafter)
    assert eagle.min_confidence == 0.2
    tree = make_drafter(TreeOptions(total_token=9, depth=2, top_k=3), target, draft=draft)
    assert isinstance(tree, TreeDrafter)
    assert (tree.shape.total_token, tree.shape.depth, tree.shape.top_k) == (9, 2, 3)
    ngram = make_drafter(NgramOptions(max_ngram=4, min_ngram=2), target)
    assert isinstance(ngram, NgramDrafter)
    assert list(ngram.lengths) == [4, 3, 2]
    vocab = DraftVocab.of([4, 5, 6], 64)
    model = make_drafter(ModelOptions(skip_layers=(2, 3)), target, vocab=vocab)
    assert isinstance(model, ModelDrafter)
    assert model.model.num_layers == target.num_layers - 2
    assert model.vocab_ids.tolist() == [4, 5, 6]
    other = make_drafter(ModelOptions(draft_model="other"), target, model=target)
    assert isinstance(other, ModelDrafter)
    assert other.model.num_layers == target.num_layers


@pytest.mark.parametrize("options", [EagleOptions(), TreeOptions()])
def test_a_trained_drafter_without_a_draft_is_refused(
    options: EagleOptions | TreeOptions, target: Target
) -> None:
    with pytest.raises(OptionError, match="needs a trained draft; name one with --draft"):
        make_drafter(options, target)


def test_a_block_that_the_target_lacks_is_refused(target: Target) -> None:
    with pytest.raises(OptionError, match="there is no block 99"):
        make_drafter(ModelOptions(skip_layers=(99,)), target)


def test_options_are_checked_without_torch() -> None:
    lines = (
        "import sys; from vtrim.decoding.drafters import drafter_options",
        "made = [drafter_options(name, **typed) for name, typed in CASES]",
        "assert 'torch' not in sys.modules and len(made) == 4",
    )
    cases = [(name, BARE.get(name, {})) for name in DRAFTERS]
    subprocess.run([sys.executable, "-c", "; ".join((f"CASES = {cases!r}", *lines))], check=True)
