"""A draft goes with the target it was trained for; every drafter with its target's ids."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from vtrim.artifacts import Run, fingerprint_json
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.drafters import (
    DrafterOptions,
    EagleOptions,
    ModelOptions,
    NgramOptions,
    TreeOptions,
)
from vtrim.decoding.ngram import NgramDrafter
from vtrim.decoding.second_model import ModelDrafter
from vtrim.decoding.tree import TreeDrafter
from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.evaluation.pairing import TargetSource, check_draft_model, load_decoder, load_pair
from vtrim.models.hub import load_config, load_tokenizer, tokenizer_fingerprint
from vtrim.models.lean import LeanTarget
from vtrim.vocab import DraftVocab


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


def test_a_draft_vocabulary_beyond_the_target_s_is_refused_with_both_names(
    inputs: Path,
    source: Callable[..., TargetSource],
    random_draft: Callable[..., Path],
    tmp_path: Path,
) -> None:
    larger = tmp_path / "larger"
    shutil.copytree(inputs / "target_chain", larger)
    config = json.loads((larger / "config.json").read_text())
    (larger / "config.json").write_text(json.dumps(config | {"vocab_size": 80}))
    folder = random_draft(larger, ids=[3, 70], provenance={"target": "acme/larger"})
    said = r"acme/larger, not for .*target_chain: its target vocabulary is 80, the target's 64"
    with pytest.raises(MismatchError, match=said):
        load(source("target_chain"), folder)


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


def tokenizer_of(folder: Path, out: Path, change: Callable[[Any], None]) -> str:
    """A copy of a model's folder whose tokenizer file went through ``change``; its path."""
    shutil.copytree(folder, out)
    path = out / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(out)


def swap(content: Any) -> None:
    """Two words change their ids."""
    table = content["model"]["vocab"]
    one, other = sorted(table, key=table.__getitem__)[7:9]
    table[one], table[other] = table[other], table[one]


def test_a_draft_model_of_another_tokenizer_is_refused_with_both_names(
    inputs: Path, source: Callable[..., TargetSource], tmp_path: Path
) -> None:
    other = tokenizer_of(inputs / "target_chain", tmp_path / "other", swap)
    with pytest.raises(MismatchError, match="2 ids differ, the first is 7") as caught:
        load_decoder(
            source("target_chain"),
            ModelOptions(draft_model=other),
            None,
            dtype="auto",
            device="cpu",
        )
    assert other in str(caught.value)
    assert str(inputs / "target_chain") in str(caught.value)


def test_a_draft_model_may_have_another_template_and_other_padding(
    inputs: Path, source: Callable[..., TargetSource], tmp_path: Path
) -> None:
    other = tokenizer_of(inputs / "target_headdim", tmp_path / "other", lambda _: None)
    (tmp_path / "other" / "chat_template.jinja").write_text("{{ messages }}")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    config["vocab_size"] = 60
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    check_draft_model(other, source("target_headdim"))
    config["vocab_size"] = 53
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))
    with pytest.raises(MismatchError, match="53 rows for the 54 tokens"):
        check_draft_model(other, source("target_headdim"))


@pytest.mark.parametrize("rows", [63, 65])
def test_a_draft_vocabulary_of_another_target_is_refused(
    rows: int, source: Callable[..., TargetSource], tmp_path: Path
) -> None:
    path = tmp_path / "vocab.safetensors"
    DraftVocab.of([1, 2, 60], rows).save(path)
    options = ModelOptions(skip_layers=(1,), draft_vocab=path)
    with pytest.raises(MismatchError, match=f"among {rows} ids, and .*target_chain has 64"):
        load_decoder(source("target_chain"), options, None, dtype="auto", device="cpu")


def test_a_trained_drafter_needs_the_name_of_a_draft(
    source: Callable[..., TargetSource],
) -> None:
    with pytest.raises(OptionError, match="--drafter tree: name a trained draft with --draft"):
        load_decoder(source("target_chain"), TreeOptions(), None, dtype="auto", device="cpu")


@pytest.mark.parametrize("lean", [False, True])
def test_each_drafter_is_loaded_with_what_it_drafts_by(
    lean: bool,
    inputs: Path,
    source: Callable[..., TargetSource],
    random_draft: Callable[..., Path],
    tmp_path: Path,
) -> None:
    draft = random_draft(inputs / "target_headdim", ids=range(20))
    path = tmp_path / "vocab.safetensors"
    DraftVocab.of([3, 4], 64).save(path)
    told: list[str] = []
    cases: list[tuple[DrafterOptions, type, int | None]] = [
        (EagleOptions(), ChainDrafter, 20),
        (TreeOptions(total_token=8, depth=2, top_k=3), TreeDrafter, 20),
        (NgramOptions(), NgramDrafter, None),
        (ModelOptions(skip_layers=(1, 2), draft_vocab=path), ModelDrafter, 2),
        (ModelOptions(draft_model=str(inputs / "target_chain")), ModelDrafter, None),
    ]
    for options, kind, size in cases:
        loaded = load_decoder(
            source("target_headdim"),
            options,
            draft if options.needs_draft else None,
            dtype=torch.float32,
            device="cpu",
            note=told.append if lean else None,
        )
        assert type(loaded.drafter) is kind
        assert isinstance(loaded.target, LeanTarget) == lean, told
        assert loaded.facts["drafter"] == options.name
        assert loaded.facts["draft_vocab_size"] == size
        assert (loaded.draft is not None) == options.needs_draft
        assert (loaded.facts["draft_fingerprint"] is not None) == options.needs_draft
