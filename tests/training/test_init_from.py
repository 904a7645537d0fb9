"""The draft that training goes on from: its weights at step 0, and what it must fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from vtrim.artifacts import fingerprint_json
from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.models.hub import load_config
from vtrim.models.importing import ImportTarget
from vtrim.models.layout import draft_config, load_draft, write_draft
from vtrim.models.resize import change_vocabulary
from vtrim.models.target_head import head_rows
from vtrim.training.init_from import StartDraft, check_choices, read_start, start_facts, start_lines
from vtrim.vocab import DraftVocab

IDS = [2, 3, 5, 8, 9, 10, 11, 13, 14, 17, 20, 21, 22, 23, 24]
KEY = "eagle_aux_hidden_state_layer_ids"


@pytest.fixture
def config(tiny_target: Path) -> dict[str, Any]:
    return load_config(str(tiny_target))


@pytest.fixture
def head(tiny_target: Path) -> Callable[[], Tensor]:
    return lambda: head_rows(str(tiny_target))


@pytest.fixture
def start_of(
    tiny_target: Path, config: dict[str, Any], head: Callable[[], Tensor]
) -> Callable[..., StartDraft]:
    def read(folder: Path, **facts: int) -> StartDraft:
        known = {"num_layers": 8, "vocab_size": 32, "hidden_size": 32, **facts}
        return read_start(folder, ImportTarget(name=str(tiny_target), head=head, **known), config)

    return read


@pytest.fixture
def own(
    tiny_target: Path, config: dict[str, Any], random_draft: Callable[..., Path]
) -> Callable[..., Path]:
    def write(**provenance: Any) -> Path:
        known = {"target_config_fingerprint": fingerprint_json(config), "target": "tiny"}
        return random_draft(tiny_target, ids=IDS, provenance={**known, **provenance})

    return write


def never() -> Tensor:
    raise AssertionError("the target's head is not needed")


def changed(folder: Path, to: Path, **config: Any) -> Path:
    """A copy of a draft's folder with other entries in its config.json."""
    to.mkdir()
    (to / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    values = json.loads((folder / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**values, **config}))
    return to


def test_the_weights_of_step_0_are_the_drafts(own: Any, start_of: Any) -> None:
    folder = own()
    start = start_of(folder)
    draft, resized = start.weights(DraftVocab.of(IDS, 32), never)
    known = load_draft(folder)
    assert (resized.kept, resized.added, resized.dropped) == (15, 0, 0)
    assert torch.equal(draft.vocab_ids, known.model.vocab_ids)
    assert draft.shape == known.model.shape == start.shape
    for name, value in known.model.state_dict().items():
        assert draft.state_dict()[name].dtype == torch.float32
        assert torch.equal(draft.state_dict()[name], value), name
    assert all(parameter.requires_grad for parameter in draft.parameters())
    assert len(start_lines(start, resized)) == 1, "nothing to say of rows that stay"


def test_another_vocabulary_gives_the_head_that_trim_gives(
    own: Any, start_of: Any, head: Callable[[], Tensor], tmp_path: Path
) -> None:
    start = start_of(own())
    wanted = DraftVocab.of([0, 1, *IDS[2:], 31], 32)
    counts = torch.arange(32).numpy()
    draft, resized = start.weights(wanted, head, counts)
    assert (resized.kept, resized.added, resized.dropped) == (13, 3, 2)
    line = start_lines(start, resized)[1]
    assert "13 head rows kept, 2 cut, 3 made from the target's head (fit on 15" in line
    assert "--vocab draft keeps its own 15" in line

    trimmed = change_vocabulary(start.source, wanted, head, counts).draft
    written = draft_config(start.shape, wanted, None, start.source.config, {})
    write_draft(tmp_path / "trimmed", trimmed.tensors, wanted, written, "card\n")
    after = start_of(tmp_path / "trimmed")
    for name, value in after.weights(wanted, never)[0].state_dict().items():
        assert torch.equal(draft.state_dict()[name], value), name


@pytest.mark.parametrize("kind", ["renamed", "half", "reordered"])
def test_a_draft_of_another_project_starts_with_its_own_weights(
    own: Any, start_of: Any, tmp_path: Path, kind: str
) -> None:
    folder = own()
    state = load_file(folder / "model.safetensors")
    expected = {n: t for n, t in state.items() if n not in ("d2t", "t2d")}
    values = json.loads((folder / "config.json").read_text())
    values = {k: v for k, v in values.items() if k != "vtrim"}
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    if kind == "renamed":
        state = {name.replace("midlayer.", "model.layers.0."): t for name, t in state.items()}
    if kind == "half":
        state = {n: t.half() if t.is_floating_point() else t for n, t in state.items()}
        expected = {n: t.half() for n, t in expected.items()}
        torch.save(state, foreign / "pytorch_model.bin")
    else:
        if kind == "reordered":
            ids = state["d2t"] + torch.arange(15)
            state["d2t"] = ids.flip(0) - torch.arange(15)
            state["lm_head.weight"] = state["lm_head.weight"].flip(0).contiguous()
        save_file(state, foreign / "model.safetensors")
    (foreign / "config.json").write_text(json.dumps(values))
    start = start_of(foreign)
    draft, _ = start.weights(DraftVocab.of(IDS, 32), never)
    for name, value in expected.items():
        assert torch.equal(draft.state_dict()[name], value.float()), name
    assert (start.fingerprint == start_of(folder).fingerprint) == (kind != "half")


def test_the_fingerprint_tells_every_weight_and_dimension_apart(
    own: Any, start_of: Any, tmp_path: Path
) -> None:
    folder = own()
    known = start_of(folder).fingerprint
    assert start_of(changed(folder, tmp_path / "copy", torch_dtype="x")).fingerprint == known
    assert start_of(changed(folder, tmp_path / "theta", rope_theta=5e5)).fingerprint != known
    state = load_file(folder / "model.safetensors")
    state["norm.weight"][7] += 0.5
    save_file(state, folder / "model.safetensors")
    assert start_of(folder).fingerprint != known


def test_layers_and_dimensions_are_the_drafts_and_positions_the_targets(
    own: Any, start_of: Any, tmp_path: Path
) -> None:
    folder = own()
    assert start_of(folder).aux_layer_ids == (2, 4, 5)
    other = {KEY: [1, 3, 6], "rope_theta": 5e5, "max_position_embeddings": 16}
    start = start_of(changed(folder, tmp_path / "other", **other))
    assert start.aux_layer_ids == (1, 3, 6)
    assert (start.shape.rope_theta, start.shape.max_position_embeddings) == (5e5, 128)


def test_another_targets_draft_is_refused_by_what_differs(
    own: Any, start_of: Any, tmp_path: Path
) -> None:
    with pytest.raises(MismatchError, match=r"config differs: .* sha256:0 .*trained for cat"):
        start_of(own(target_config_fingerprint="sha256:0", target="cat"))
    with pytest.raises(InputError, match=r"another target: 32 LM head rows, .* has 64"):
        start_of(own(), vocab_size=64)
    with pytest.raises(InputError, match=r"another target: 32 hidden size, .* has 48"):
        start_of(own(), hidden_size=48)
    scaled = changed(own(), tmp_path / "x", rope_scaling={"rope_type": "yarn", "factor": 4.0})
    with pytest.raises(InputError, match=r"rope scaling 'yarn'.*vtrim trim --rope-theta"):
        start_of(scaled)
    with pytest.raises(InputError, match="no such draft folder"):
        start_of(tmp_path / "nowhere")
    folder = own()
    state = load_file(folder / "model.safetensors")
    state["norm.weight"][3] = float("nan")
    save_file(state, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"norm\.weight holds numbers that are not finite"):
        start_of(folder)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"head": "random"}, "--head random: with --init-from the head starts as the draft's"),
        ({"head": "target"}, "--head target"),
        ({"aux_layers": (1, 2, 3)}, r"--aux-layers 1,2,3: .* was trained on 2,4,5"),
        ({"dimensions": {"intermediate_size": 64}}, "'intermediate_size' is 64, .* has 48"),
    ],
)
def test_an_option_that_says_otherwise_of_the_draft_is_refused(
    own: Any, start_of: Any, choice: dict[str, Any], words: str
) -> None:
    start = start_of(own())
    same: dict[str, Any] = {"head": None, "aux_layers": None, "dimensions": {}}
    check_choices(start, **same)
    agreeing = {"head": "frozen", "aux_layers": (2, 4, 5), "dimensions": {"head_dim": 8}}
    check_choices(start, **agreeing)
    with pytest.raises(OptionError, match=words):
        check_choices(start, **{**same, **choice})


def test_the_facts_say_where_the_draft_came_from(own: Any, start_of: Any) -> None:
    start = start_of(own(result={"steps": 9}, settings={"seed": 1}))
    _, resized = start.weights(DraftVocab.of(IDS[:4], 32), never)
    facts = json.loads(json.dumps(start_facts(start, resized)))
    assert facts["trained"] == {"target": "tiny", "result": {"steps": 9}}
    assert (facts["k"], facts["kept"], facts["dropped"], facts["added"]) == (15, 4, 11, 0)
    assert (facts["layout"], facts["fingerprint"]) == ("vtrim", start.fingerprint)
