from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from vtrim.errors import OptionError
from vtrim.models.exporting import LAYOUTS, Verifier, export_draft, imported_config
from vtrim.models.importing import ImportedDraft, import_draft
from vtrim.models.layout import load_draft, write_draft

Foreign = Callable[..., Path]
PROJECTS = ["SpecForge", "EAGLE", "AngelSlim", "ModelOpt", "speculators"]
KEY = "eagle_aux_hidden_state_layer_ids"
VERIFIER = Verifier("org/target", ("LlamaForCausalLM",))
CARD = "A draft with random weights.\n"


def exported(source: Path, layout: str, folder: Path) -> Path:
    export_draft(import_draft(source), layout, VERIFIER).write(folder, CARD)
    return folder


def imported(source: Path, folder: Path) -> Path:
    draft = import_draft(source)
    config = imported_config(draft, draft.provenance)
    write_draft(folder, draft.tensors, draft.vocab, config, CARD)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(params=["default states", "named states", "whole vocabulary", "a shallow target"])
def draft(request: pytest.FixtureRequest, tmp_path: Path, own_draft: Path) -> ImportedDraft:
    """A draft of vtrim's: k 15 of 32, with states of its own, with all 32."""
    folder = tmp_path / "own"
    folder.mkdir()
    for path in own_draft.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    if request.param == "named states":
        config |= {KEY: [1, 3, 7], "eagle_config": {"use_aux_hidden_state": True, KEY: [0, 2, 6]}}
        (folder / "config.json").write_text(json.dumps(config))
    elif request.param == "a shallow target":
        config |= {KEY: [1, 2, 3], "eagle_config": {"use_aux_hidden_state": True, KEY: [0, 1, 2]}}
        config["vtrim"]["num_target_layers"] = 4
        (folder / "config.json").write_text(json.dumps(config))
    elif request.param == "whole vocabulary":
        tensors = load_file(folder / "model.safetensors")
        del tensors["d2t"], tensors["t2d"]
        tensors["lm_head.weight"] = torch.randn(32, 32).bfloat16()
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(config | {"draft_vocab_size": 32}))
    return import_draft(imported(folder, tmp_path / "portable"))


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_each_export_imports_to_the_same_files_and_exports_to_the_same_bytes(
    draft: ImportedDraft, tmp_path: Path, layout: str
) -> None:
    if layout == "eagle" and draft.aux_layer_ids is not None:
        with pytest.raises(OptionError, match="always reads the target's states"):
            export_draft(draft, layout)
        return
    once = exported(draft.folder, layout, tmp_path / "once")
    back = imported(once, tmp_path / "back")
    assert contents(back) == contents(draft.folder)
    again = exported(back, layout, tmp_path / "again")
    assert contents(again) == contents(once)


@pytest.mark.parametrize(
    ("project", "layout"),
    [
        (project, layout)
        for project in PROJECTS
        for layout in sorted(LAYOUTS)
        if (project, layout) != ("ModelOpt", "eagle")  # states of an unknown depth: refused below
    ],
)
def test_a_draft_of_any_project_keeps_every_tensor_in_any_layout(
    foreign: Foreign, tmp_path: Path, project: str, layout: str
) -> None:
    source = foreign(project)
    before = import_draft(source)
    after = import_draft(exported(source, layout, tmp_path / "out"))
    assert set(after.tensors) == set(before.tensors)
    for name, value in before.tensors.items():
        assert after.tensors[name].dtype == value.dtype
        assert torch.equal(after.tensors[name], value), name
    assert after.vocab.fingerprint == before.vocab.fingerprint
    assert after.aux_layer_ids == before.aux_layer_ids
    assert after.shape == before.shape


def stored(folder: Path) -> tuple[set[str], dict[str, object]]:
    names: dict[str, Tensor]
    if (folder / "pytorch_model.bin").exists():
        names = torch.load(folder / "pytorch_model.bin", weights_only=True)
    else:
        names = load_file(folder / "model.safetensors")
    return set(names), json.loads((folder / "config.json").read_text())


def test_each_layout_has_the_names_and_keys_of_its_readers(own_draft: Path, tmp_path: Path) -> None:
    found = {name: stored(exported(own_draft, name, tmp_path / name)) for name in LAYOUTS}
    for name, (tensors, config) in found.items():
        layer = "layers.0." if name in ("vllm", "speculators", "trtllm") else "midlayer."
        assert layer + "mlp.up_proj.weight" in tensors, name
        assert "d2t" in tensors
        assert ("t2d" in tensors) == (name != "trtllm")
        assert "embed_tokens.weight" not in tensors
        assert ("transformer_layer_config" in config) == (name == "speculators")
        assert config["tie_word_embeddings"] is False
    assert found["eagle"][1]["architectures"] == ["LlamaForCausalLM"]
    assert found["vllm"][1]["norm_before_residual"] is False
    nested = found["speculators"][1]
    assert "model_type" not in nested
    assert nested["norm_before_residual"] is False
    assert nested["speculators_config"]["verifier"] == {
        "name_or_path": "org/target",
        "architectures": ["LlamaForCausalLM"],
    }
    yaml = (tmp_path / "trtllm" / "trtllm.yaml").read_text()
    assert "eagle3_layers_to_capture" not in yaml  # the default


def test_states_stand_where_each_reader_looks_in_its_own_count(
    foreign: Foreign, tmp_path: Path
) -> None:
    source = foreign("SpecForge", config={KEY: [1, 3, 7], "eagle_config": {KEY: [0, 2, 6]}})
    found = {
        name: stored(exported(source, name, tmp_path / name))[1]
        for name in LAYOUTS
        if name != "eagle"
    }
    inner = {name: (config.get("eagle_config") or {}).get(KEY) for name, config in found.items()}
    top = {name: config.get(KEY) for name, config in found.items()}
    indices, blocks = [1, 3, 7], [0, 2, 6]
    assert (top["portable"], inner["portable"]) == (indices, blocks)
    assert (top["vllm"], inner["vllm"]) == (indices, None)
    assert (top["speculators"], inner["speculators"]) == (indices, None)
    assert (top["sglang"], inner["sglang"]) == (None, blocks)
    assert (top["trtllm"], inner["trtllm"]) == (None, blocks)
    yaml = (tmp_path / "trtllm" / "trtllm.yaml").read_text()
    assert "eagle3_layers_to_capture: [0, 2, 6]" in yaml


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({KEY: [1, 3, 7], "eagle_config": {KEY: [0, 2, 6]}}, "always reads the target's states"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4}}, "cannot read this draft's rope"),
    ],
)
def test_what_eagle_would_run_otherwise_is_refused(
    foreign: Foreign, config: dict[str, object], message: str
) -> None:
    source = import_draft(foreign("ModelOpt", config=config))
    with pytest.raises(OptionError, match=message):
        export_draft(source, "eagle")


def test_heads_wider_than_the_hidden_size_are_no_draft_for_eagle(
    foreign: Foreign, tmp_path: Path
) -> None:
    def half(rows: int, columns: int) -> Tensor:
        return torch.zeros(rows, columns).bfloat16()

    layer = "midlayer.self_attn."
    tensors = {layer + "q_proj.weight": half(16, 64), layer + "o_proj.weight": half(32, 16)}
    tensors |= {layer + f"{name}_proj.weight": half(8, 64) for name in "kv"}
    source = import_draft(foreign("SpecForge", tensors, {"head_dim": 4}))
    with pytest.raises(OptionError, match="takes hidden_size / heads for the head size"):
        export_draft(source, "eagle")
    assert exported(source.folder, "portable", tmp_path / "out").exists()


def test_unknown_layouts_and_a_speculators_draft_without_a_target_are_refused(
    own_draft: Path,
) -> None:
    draft = import_draft(own_draft)
    with pytest.raises(OptionError, match=r"--to gguf: no such layout\. Known: portable, sglang"):
        export_draft(draft, "gguf")
    with pytest.raises(OptionError, match="Name it with --target"):
        export_draft(draft, "speculators")


def test_rope_scaling_is_carried_into_each_layout_and_back(
    foreign: Foreign, tmp_path: Path
) -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0}
    source = foreign("SpecForge", config={"rope_scaling": scaling})
    for layout in sorted(set(LAYOUTS) - {"eagle"}):
        found = import_draft(exported(source, layout, tmp_path / layout))
        assert found.config["rope_scaling"] == scaling


def test_the_portable_export_is_what_vtrim_decodes_with(own_draft: Path, tmp_path: Path) -> None:
    folder = exported(own_draft, "portable", tmp_path / "out")
    assert load_draft(folder).vocab.fingerprint == load_draft(own_draft).vocab.fingerprint


def test_the_base_of_trainers_that_ignore_it_is_told(foreign: Foreign) -> None:
    found = import_draft(foreign("AngelSlim", config={"rope_theta": 1e6}))
    assert found.layout == "AngelSlim"
    assert "the trainer of AngelSlim rotates by base 10,000" in " | ".join(found.notes)
    plain = import_draft(foreign("EAGLE", config={"rope_theta": 1e4}))
    assert "rotates by base" not in " | ".join(plain.notes)
