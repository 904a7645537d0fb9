"""A draft goes with the target it was trained for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vtrim.artifacts import Run, fingerprint_json
from vtrim.errors import InputError, MismatchError
from vtrim.evaluation.pairing import TargetSource, load_pair
from vtrim.models.hub import load_config, load_tokenizer, tokenizer_fingerprint


@pytest.fixture
def source(inputs: Path, tmp_path: Path) -> Callable[..., TargetSource]:
    def make(name: str, entry: dict[str, Any] | None = None) -> TargetSource:
        return TargetSource(str(inputs / name), Run(tmp_path / "run"), entry or {})

    return make


def load(source: TargetSource, folder: Path) -> Any:
    return load_pair(source, folder, dtype=torch.float32, device="cpu")


def test_a_draft_and_its_own_target_are_loaded_together(
    inputs: Path, source: Callable[..., TargetSource], random_draft: Callable[..., Path]
) -> None:
    folder = inputs / "target_chain"
    provenance = {
        "target": "target_chain",
        "target_config_fingerprint": fingerprint_json(load_config(str(folder))),
        "tokenizer_fingerprint": tokenizer_fingerprint(load_tokenizer(str(folder))),
    }
    draft_folder = random_draft(folder, ids=range(54), provenance=provenance)
    target, draft = load(source("target_chain"), draft_folder)
    assert target.aux_layer_ids == draft.aux_layer_ids
    assert draft.model.fc.weight.dtype == target.dtype


@pytest.mark.parametrize("key", ["target_config_fingerprint", "tokenizer_fingerprint"])
def test_a_draft_of_another_target_is_refused_with_both_names(
    key: str,
    inputs: Path,
    source: Callable[..., TargetSource],
    random_draft: Callable[..., Path],
) -> None:
    provenance = {"target": "acme/other-8b", key: "sha256:0"}
    folder = random_draft(inputs / "target_chain", provenance=provenance)
    with pytest.raises(MismatchError, match=r"acme/other-8b, not for .*target_chain"):
        load(source("target_chain"), folder)


def test_a_draft_of_another_vocabulary_or_width_is_refused(
    inputs: Path, source: Callable[..., TargetSource], random_draft: Callable[..., Path]
) -> None:
    with pytest.raises(MismatchError, match="hidden size is 64, the target's 32"):
        load(source("target_headdim"), random_draft(inputs / "target_chain"))


def test_another_tokenizer_than_the_run_was_counted_with_is_refused(
    inputs: Path, source: Callable[..., TargetSource], random_draft: Callable[..., Path]
) -> None:
    entry = {"tokenizer_fingerprint": "sha256:0", "stop_ids": [51]}
    with pytest.raises(MismatchError, match="tokenizer differs"):
        load(source("target_chain", entry), random_draft(inputs / "target_chain"))


@pytest.mark.parametrize("cut", ["cut_body", "cut_header", "empty"])
def test_g19_a_cut_draft_is_one_line_that_names_the_file(
    cut: str,
    inputs: Path,
    source: Callable[..., TargetSource],
    random_draft: Callable[..., Path],
) -> None:
    folder = random_draft(inputs / "target_chain")
    bad = (inputs / f"g19_draft_{cut}.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(bad)
    with pytest.raises(InputError, match="incomplete") as caught:
        load(source("target_chain"), folder)
    assert str(folder / "model.safetensors") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_stop_ids_are_those_coverage_forced_else_the_model_s(
    source: Callable[..., TargetSource],
) -> None:
    assert source("target_chain").stop_ids == {51}
    assert source("target_chain", {"stop_ids": [51, 52]}).stop_ids == {51, 52}
