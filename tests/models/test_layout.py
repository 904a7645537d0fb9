from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from vtrim.errors import InputError
from vtrim.models.importing import import_draft
from vtrim.models.layout import draft_config, load_draft, write_draft

KEY = "eagle_aux_hidden_state_layer_ids"
Foreign = Callable[..., Path]


def test_a_draft_that_names_no_states_reads_the_engines_default(foreign: Foreign) -> None:
    folder = foreign("SpecForge")
    assert load_draft(folder, num_target_layers=lambda: 8).aux_layer_ids == (2, 4, 5)
    with pytest.raises(InputError, match="names neither the target's layer count"):
        load_draft(folder)


def test_states_named_inside_eagle_config_are_blocks(foreign: Foreign) -> None:
    folder = foreign("SpecForge", config={"eagle_config": {KEY: [0, 2, 5]}})
    assert load_draft(folder, num_target_layers=lambda: 8).aux_layer_ids == (1, 3, 6)


def test_a_draft_of_vtrim_does_not_ask_for_its_target(own_draft: Path) -> None:
    def never() -> int:
        raise AssertionError("asked without need")

    assert load_draft(own_draft, num_target_layers=never).aux_layer_ids == (2, 4, 5)


def test_what_the_decoder_cannot_compute_is_refused(foreign: Foreign) -> None:
    scaled = foreign("SpecForge", config={"rope_scaling": {"rope_type": "llama3"}})
    with pytest.raises(InputError, match=r"rope scaling 'llama3'.*vtrim trim --rope-theta"):
        load_draft(scaled, num_target_layers=lambda: 8)
    other = foreign("EAGLE", config={"norm_output": True})
    state = torch.load(other / "pytorch_model.bin", weights_only=True)
    save_file(state, other / "model.safetensors")
    with pytest.raises(InputError, match=r"EAGLE-3\.1"):
        load_draft(other, num_target_layers=lambda: 8)


def test_weights_are_written_in_their_own_dtype_and_a_full_vocabulary_without_a_mapping(
    foreign: Foreign, tmp_path: Path
) -> None:
    whole = {"d2t": None, "t2d": None, "lm_head.weight": torch.ones(32, 32).half()}
    draft = import_draft(foreign("EAGLE", whole))
    config = draft_config(draft.shape, draft.vocab, None, draft.config, {})
    write_draft(tmp_path / "out", draft.tensors, draft.vocab, config, "card")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert {"d2t", "t2d"}.isdisjoint(stored)
    assert {value.dtype for value in stored.values()} == {torch.float16}
    assert KEY not in config
    assert "num_target_layers" not in config["vtrim"]
    assert load_draft(tmp_path / "out", num_target_layers=lambda: 8).vocab.is_full


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"d2t": torch.zeros(15) + 0.4}, "d2t is .*float32, not a list of whole numbers"),
        ({"d2t": torch.zeros(15).bfloat16()}, "d2t is .*bfloat16, not a list of whole numbers"),
        ({"t2d": torch.zeros(32, dtype=torch.int64) + 2}, "t2d is .*int64, not a mask"),
        ({"t2d": torch.zeros(2, 16, dtype=torch.bool)}, "t2d is .*not a mask"),
        ({"fc.weight": torch.zeros(32 * 96)}, "a matrix is expected"),
    ],
)
def test_a_mapping_that_is_none_is_refused_not_rounded(
    foreign: Foreign, tensors: dict[str, torch.Tensor], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load_draft(foreign("SpecForge", tensors), num_target_layers=lambda: 8)


def test_a_folder_that_cannot_be_made_or_read_is_refused(
    foreign: Foreign, own_draft: Path, tmp_path: Path
) -> None:
    draft = import_draft(own_draft)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be made"):
        write_draft(tmp_path / "file" / "x", draft.tensors, draft.vocab, {}, "card")
    folder = foreign("SpecForge")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        load_draft(folder, num_target_layers=lambda: 8)
    with pytest.raises(InputError, match=r"holds no model\.safetensors"):
        import_draft(folder)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("fc.weight", lambda w: w.fill_(float("nan")), "not finite"),
        (
            "lm_head.weight",
            lambda w: w.index_fill_(0, torch.tensor([3]), float("inf")),
            "not finite",
        ),
        ("norm.weight", lambda w: w.to(torch.int8), "holds int8 numbers, not plain weights"),
        ("midlayer.mlp.up_proj.weight", lambda w: w.to(torch.float8_e4m3fn), "float8_e4m3fn"),
    ],
)
def test_weights_that_no_draft_can_hold_are_refused_by_name(
    own_draft: Path,
    foreign: Foreign,
    name: str,
    change: Callable[[torch.Tensor], torch.Tensor],
    words: str,
) -> None:
    weight = load_file(own_draft / "model.safetensors")[name]
    folder = foreign("SpecForge", {name: change(weight)})
    with pytest.raises(InputError, match=rf"model\.safetensors: {name} .*{words}"):
        load_draft(folder, num_target_layers=lambda: 8)
