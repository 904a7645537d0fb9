from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from vtrim.errors import InputError
from vtrim.models.importing import HEAD, ImportTarget, import_draft
from vtrim.models.layout import load_draft
from vtrim.models.target_head import head_rows
from vtrim.models.vocab_files import read_vocab
from vtrim.vocab import DraftVocab

Foreign = Callable[..., Path]
IDS = [2, 3, 5, 8, 9, 10, 11, 13, 14, 17, 20, 21, 22, 23, 24]
LAYOUTS = ["SpecForge", "EAGLE", "AngelSlim", "ModelOpt", "speculators"]


@pytest.fixture
def target(tiny_target: Path) -> ImportTarget:
    return ImportTarget(
        name="tiny",
        num_layers=8,
        vocab_size=32,
        hidden_size=32,
        head=lambda: head_rows(str(tiny_target)),
    )


def never() -> Tensor:
    raise AssertionError("the target's head was read without need")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read_into_the_same_draft(
    foreign: Foreign, own_draft: Path, target: ImportTarget, layout: str
) -> None:
    own = load_file(own_draft / "model.safetensors")
    found = import_draft(foreign(layout), replace(target, head=never))
    assert found.layout == layout
    assert found.vocab.ids.tolist() == IDS
    assert found.vocab.target_vocab_size == 32
    assert found.dtype == (torch.float16 if layout == "EAGLE" else torch.bfloat16)
    assert set(found.tensors) == set(own) - {"d2t", "t2d"}
    for name, value in found.tensors.items():
        assert torch.equal(value, own[name].to(value.dtype)), name
    assert found.shape.num_target_layers == 8
    assert found.aux_layer_ids == ((2, 4, 5) if layout == "ModelOpt" else None)


def test_without_a_target_all_that_a_checkpoint_tells_is_read(foreign: Foreign) -> None:
    found = import_draft(foreign("ModelOpt"))
    assert (found.shape.num_target_layers, found.aux_layer_ids) == (0, (2, 4, 5))
    assert found.vocab.target_vocab_size == 32  # by config.json alone


def test_what_was_converted_is_told(foreign: Foreign) -> None:
    assert import_draft(foreign("SpecForge")).notes == ()
    notes = " | ".join(import_draft(foreign("ModelOpt")).notes)
    assert "head rows stood in another order than their ids; permuted" in notes
    assert "auxiliary layers [1, 3, 4] name blocks: hidden_states [2, 4, 5]" in notes
    assert "embed_tokens left out" in " | ".join(import_draft(foreign("speculators")).notes)


def test_absolute_ids_in_d2t_are_read_as_such(foreign: Foreign) -> None:
    found = import_draft(foreign("SpecForge", {"d2t": torch.tensor(IDS, dtype=torch.int32)}))
    assert found.vocab.ids.tolist() == IDS
    assert found.notes == ("d2t held absolute ids, read as such",)


def test_a_draft_without_a_head_takes_the_target_s_rows(
    foreign: Foreign, target: ImportTarget, tiny_target: Path
) -> None:
    folder = foreign("SpecForge", {HEAD: None})
    with pytest.raises(InputError, match=r"no lm_head\.weight.*Name it with --target"):
        import_draft(folder)
    rows = load_file(tiny_target / "model.safetensors")["lm_head.weight"]
    found = import_draft(folder, target)
    assert torch.equal(found.tensors[HEAD], rows[IDS].bfloat16())
    assert "no head of its own: rows of tiny" in found.notes


def test_a_full_vocabulary_needs_no_mapping_and_a_trimmed_one_does(foreign: Foreign) -> None:
    whole = {"d2t": None, "t2d": None, HEAD: torch.zeros(32, 32).bfloat16()}
    assert import_draft(foreign("SpecForge", whole)).vocab.is_full
    with pytest.raises(InputError, match="15 head rows for a target of 32, but no d2t"):
        import_draft(foreign("EAGLE", {"d2t": None, "t2d": None}))


def test_files_in_shards_are_one_checkpoint(foreign: Foreign) -> None:
    folder = foreign("SpecForge")
    whole = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(whole)
    weights = {}
    for number, part in enumerate((names[:4], names[4:])):
        file = f"model-{number}.safetensors"
        save_file({name: whole[name] for name in part}, folder / file)
        weights |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    assert import_draft(folder).vocab.ids.tolist() == IDS
    (folder / "model-1.safetensors").unlink()
    with pytest.raises(InputError, match=r"model-1\.safetensors: no such file.*incomplete"):
        import_draft(folder)


ROW = torch.ones(32).bfloat16()


@pytest.mark.parametrize(
    ("tensors", "config", "message"),
    [
        ({}, {"norm_before_residual": True}, r"residual taken after the norm"),
        ({}, {"norm_before_fc": True}, "norm_before_fc"),
        ({}, {"eagle_config": {"norm_before_fc": True}}, "norm_before_fc"),
        ({"input_norm.weight": ROW}, {}, "norm_before_fc"),
        ({"fc_norm.0.weight": ROW}, {}, "fc_norm"),
        ({"aux_norm_low.weight": ROW}, {}, "fc_norm"),
        ({}, {"norm_output": True}, r"EAGLE-3\.1"),
        ({}, {"eagle_config": {"use_aux_hidden_state": False}}, "no auxiliary states"),
        ({"mask_hidden": ROW}, {}, "P-EAGLE"),
        ({"enorm.weight": ROW}, {}, "eh_proj_before_attn"),
        ({"midlayer.self_attn.q_norm.weight": ROW}, {}, "Qwen3 draft"),
        ({"layers.1.mlp.up_proj.weight": ROW}, {}, "several layers"),
        ({}, {"num_hidden_layers": 2}, "num_hidden_layers 2"),
        ({"fc.bias": ROW}, {}, "biases"),
        ({}, {"hidden_act": "gelu"}, "activation 'gelu'"),
        ({}, {"quantization_config": {"bits": 4}}, "quantised"),
        ({"fc.weight": None}, {}, r"no fc\.weight"),
    ],
)
def test_variants_are_refused_by_name(
    foreign: Foreign, tensors: dict[str, Any], config: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=f"not the plain EAGLE-3 draft: .*{message}"):
        import_draft(foreign("SpecForge", tensors, config))


@pytest.mark.parametrize(
    ("tensors", "config", "message"),
    [
        ({"midlayer.hidden_norm.weight": None}, {}, r"has no midlayer\.hidden_norm\.weight;"),
        ({"extra.weight": ROW}, {}, r"holds extra\.weight, which a plain EAGLE-3"),
        ({"layers.0.input_layernorm.weight": ROW}, {}, "holds both"),
        ({"fc.weight": torch.zeros(32, 64)}, {}, r"fc\.weight is \[32, 64\]"),
        ({"d2t": torch.arange(3)}, {}, "d2t .3 entries. and t2d .15 of 32. name other ids"),
        ({HEAD: torch.zeros(14, 32)}, {}, "15 ids in its mapping, 14 head rows"),
        (
            {},
            {"num_attention_heads": 8},
            r"q_proj\.weight is \[32, 64\], config\.json and vocabulary mean \[64, 64\]",
        ),
        ({}, {"eagle_aux_hidden_state_layer_ids": [1, 2]}, "not three numbers"),
        ({}, {"eagle_aux_hidden_state_layer_ids": [4, 6, 8]}, "are not three of 1 to 7"),
        ({}, {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [4, 6, 7]}}, "not three of"),
        ({}, {"hidden_size": None}, "has no 'hidden_size'"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    foreign: Foreign,
    target: ImportTarget,
    tensors: dict[str, Any],
    config: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(InputError, match=message):
        import_draft(foreign("SpecForge", tensors, config), target)


def test_a_nested_config_must_say_where_the_residual_is_taken(foreign: Foreign) -> None:
    with pytest.raises(InputError, match="does not say norm_before_residual"):
        import_draft(foreign("speculators", config={"norm_before_residual": None}))


def test_another_target_s_draft_is_refused(foreign: Foreign, target: ImportTarget) -> None:
    folder = foreign("SpecForge")
    with pytest.raises(InputError, match="32 LM head rows, tiny has 64"):
        import_draft(folder, replace(target, vocab_size=64))
    with pytest.raises(InputError, match="32 hidden size, tiny has 16"):
        import_draft(folder, replace(target, hidden_size=16))


def test_the_layers_at_the_top_level_win_and_contradictions_are_told(
    foreign: Foreign, target: ImportTarget
) -> None:
    key = "eagle_aux_hidden_state_layer_ids"
    found = import_draft(
        foreign("SpecForge", config={key: [1, 3, 4], "eagle_config": {key: [1, 3, 4]}}), target
    )
    assert found.aux_layer_ids == (1, 3, 4)
    assert "name other states; the first are taken" in found.notes[0]
    assert "they look like blocks: if so, --aux-layers 2,4,5" in found.notes[1]


def test_typed_layers_and_base_win(foreign: Foreign) -> None:
    folder = foreign("SpecForge", config={"rope_scaling": {"rope_type": "yarn", "factor": 4}})
    carried = import_draft(folder)
    assert "rope scaling 'yarn' is carried along" in carried.notes[0]
    assert carried.config["rope_scaling"]["factor"] == 4
    found = import_draft(folder, rope_theta=5e5, aux_layer_ids=(1, 2, 3))
    assert (found.shape.rope_theta, found.aux_layer_ids) == (5e5, (1, 2, 3))
    assert found.config["rope_scaling"] is None
    assert found.notes == ("--aux-layers: taken as typed, the target's layers are not known",)


@pytest.mark.parametrize("size", [0, 7, 300, -1])
def test_a_cut_file_is_incomplete(foreign: Foreign, size: int) -> None:
    for layout, name in (("SpecForge", "model.safetensors"), ("EAGLE", "pytorch_model.bin")):
        path = foreign(layout) / name
        path.write_bytes(path.read_bytes()[:size])
        with pytest.raises(InputError, match=f"{name}: incomplete"):
            import_draft(path.parent)


def test_what_is_no_draft_folder_is_refused(tmp_path: Path, tiny_target: Path) -> None:
    with pytest.raises(InputError, match="no such draft folder"):
        import_draft(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"config\.json: no such file"):
        import_draft(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(InputError, match="an object is expected"):
        import_draft(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"holds no model\.safetensors and no pytorch_model\.bin"):
        import_draft(tmp_path)
    with pytest.raises(InputError, match="not the plain EAGLE-3 draft"):
        import_draft(tiny_target)


def test_the_head_of_a_target_is_read_without_the_target(tiny_target: Path) -> None:
    from vtrim.models.target import load_target

    assert torch.equal(head_rows(str(tiny_target)), load_target(str(tiny_target)).head_weight)


def test_a_tied_target_s_head_is_its_embedding(tmp_path: Path) -> None:
    rows = torch.arange(6.0).reshape(3, 2)
    save_file({"model.embed_tokens.weight": rows}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": true}')
    assert torch.equal(head_rows(str(tmp_path)), rows)


def test_the_ids_of_a_draft_of_any_layout_are_read_from_its_folder(foreign: Foreign) -> None:
    from vtrim.models.vocab_files import read_vocab

    for layout in LAYOUTS:
        found = read_vocab(foreign(layout))
        assert found.format == "draft"
        assert found.vocab.fingerprint == DraftVocab.of(IDS, 32).fingerprint


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"fc.weight": torch.zeros(32 * 96)}, r"fc\.weight is \[3072\]"),
        ({"norm.weight": torch.zeros(31)}, r"norm\.weight is \[31\], .* mean \[32\]"),
        ({"midlayer.mlp.down_proj.weight": torch.zeros(31, 48)}, r"down_proj.*\[31, 48\]"),
        ({"midlayer.hidden_norm.weight": torch.zeros(1, 32)}, r"hidden_norm.*\[1, 32\]"),
        ({HEAD: torch.zeros(15, 31)}, r"lm_head\.weight is \[15, 31\]"),
        ({HEAD: torch.zeros(15 * 32)}, "15 ids in its mapping, 480 head rows"),
        ({HEAD: torch.tensor(1.0)}, r"lm_head\.weight is one number"),
        ({"norm.weight": torch.ones(32, dtype=torch.int8)}, "holds int8 numbers"),
        ({"norm.weight": torch.full((32,), torch.nan)}, r"norm\.weight holds .* not finite"),
        ({HEAD: torch.full((15, 32), torch.inf)}, r"lm_head\.weight holds .* not finite"),
        ({"t2d": torch.zeros(32, dtype=torch.int64) + 2}, "t2d is .*not a mask"),
    ],
)
def test_tensors_that_no_draft_of_this_shape_has_are_refused(
    foreign: Foreign, tensors: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        import_draft(foreign("SpecForge", tensors))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"vtrim": [1]}, "'vtrim' is .*, not an object"),
        ({"vtrim": {"num_target_layers": "x"}}, "'num_target_layers' is 'x', not a whole number"),
        ({"architectures": 5}, "'architectures' is 5, not a list of names"),
        ({"eos_token_id": {}}, "'eos_token_id' is {}, not a token id"),
        ({"eos_token_id": [[1]]}, "'eos_token_id' is .*, not a token id"),
        ({"vocab_size": "abc"}, "'vocab_size' is 'abc', not a whole number"),
        ({"eagle_config": [1]}, "'eagle_config' is .*, not an object"),
    ],
)
def test_a_config_of_other_types_is_refused_in_one_line(
    foreign: Foreign, config: dict[str, Any], message: str
) -> None:
    folder = foreign("SpecForge", config=config)
    with pytest.raises(InputError, match=rf"config\.json: {message}"):
        import_draft(folder)
    with pytest.raises(InputError, match=rf"config\.json: {message}"):
        load_draft(folder)
    with pytest.raises(InputError, match=rf"config\.json: {message}"):
        read_vocab(folder)


@pytest.mark.parametrize("theta", [float("inf"), float("nan"), -5.0])
def test_a_base_that_is_none_is_refused_unless_another_is_named(
    foreign: Foreign, theta: float
) -> None:
    folder = foreign("SpecForge", config={"rope_theta": theta})
    with pytest.raises(InputError, match="rope_theta"):
        import_draft(folder)
    assert import_draft(folder, rope_theta=1e4).shape.rope_theta == 1e4


@pytest.mark.parametrize("layers", [(0, 2, 3), (1, 2, 8), (1, 2, 900), (3, 2, 1), (2, 2, 3)])
def test_typed_layers_must_be_three_of_the_target_s(
    foreign: Foreign, target: ImportTarget, layers: tuple[int, int, int]
) -> None:
    folder = foreign("SpecForge")
    with pytest.raises(
        InputError, match=r"--aux-layers: auxiliary layers .* are not three of 1 to"
    ):
        import_draft(folder, target, aux_layer_ids=layers)
    if layers[2] < 8:
        with pytest.raises(InputError, match="not three of 1 and above, ascending"):
            import_draft(folder, aux_layer_ids=layers)


def test_the_length_of_t2d_decides_v_and_a_config_that_says_otherwise_is_told(
    foreign: Foreign,
) -> None:
    mask = torch.zeros(40, dtype=torch.bool)
    mask[IDS] = True
    folder = foreign("SpecForge", {"t2d": mask})
    found = import_draft(folder)
    assert found.vocab.target_vocab_size == found.shape.target_vocab_size == 40
    assert "config.json says vocab_size 32; V is 40" in found.notes[0]
    with pytest.raises(InputError, match=r"t2d has 40 entries, config\.json says vocab_size 32"):
        load_draft(folder, num_target_layers=lambda: 8)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"vocab_size": ' + "1" * 5000 + "}", None])
def test_a_config_too_deep_or_too_long_or_a_folder_is_refused(
    foreign: Foreign, text: str | None
) -> None:
    path = foreign("SpecForge") / "config.json"
    path.unlink()
    path.mkdir() if text is None else path.write_text(text)
    for read in (import_draft, load_draft, read_vocab):
        with pytest.raises(InputError, match=r"config\.json: (cannot be read|not a whole JSON)"):
            read(path.parent)
