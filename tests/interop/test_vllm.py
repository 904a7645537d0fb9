"""A trained draft in vLLM on a CPU: fp32, greedy, replies of 128 tokens (``make test-interop``).

CONTRACT.md section 8: what must load and draft as vtrim does, and the wrong folders that must not.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))
from reference_draft import ReferenceDraft
from vllm_runs import DRAFT_TOKENS, Job, Run, Vllm, VllmError

pytestmark = pytest.mark.interop_vllm

LAYOUTS = ("portable", "vllm", "speculators")
SHORT = {"prompts": 2, "tokens": 32}
Exported = Callable[[str], Path]
Ours = Callable[[Path], Run]
Change = Callable[[dict[str, Any], dict[str, Tensor]], None]


@pytest.fixture(scope="session")
def changed(
    exported: Exported, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Change], Path]:
    """The portable export with its config and tensors changed in place."""

    def write(change: Change) -> Path:
        folder = tmp_path_factory.mktemp("changed") / "eagle3"
        folder.mkdir()
        config = json.loads((exported("portable") / "config.json").read_text())
        tensors = load_file(exported("portable") / "model.safetensors")
        change(config, tensors)
        (folder / "config.json").write_text(json.dumps(config))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return write


class States:
    """What the target sees in its own greedy replies."""

    def __init__(self, target: Path, prompts: list[list[int]], replies: list[list[int]]) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32).model.eval()
        self.embedding = self.model.embed_tokens.weight.detach()
        self.tokens = [a + b for a, b in zip(prompts, replies, strict=True)]

    @torch.inference_mode()
    def aux(self, prompt: int, layers: tuple[int, int, int]) -> Tensor:
        """[T, 3d] hidden states of a prompt and its reply."""
        ids = torch.tensor([self.tokens[prompt]])
        found = self.model(ids, output_hidden_states=True).hidden_states
        return torch.cat([found[layer][0] for layer in layers], -1)


@pytest.fixture(scope="session")
def states(vllm: Vllm, target_folder: Path, prompt_ids: list[list[int]]) -> States:
    return States(target_folder, prompt_ids, vllm(Job(draft=None)).replies)


def test_the_draft_is_trained_well_enough_to_tell_right_from_wrong(
    exported: Exported, ours: Ours
) -> None:
    assert ours(exported("portable")).acceptance_length > 1.4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_greedy_replies_with_a_draft_are_those_without(
    layout: str, vllm: Vllm, exported: Exported
) -> None:
    assert vllm(Job(draft=exported(layout))).replies == vllm(Job(draft=None)).replies


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_acceptance_length_is_that_of_vtrim_within_3_percent(
    layout: str, vllm: Vllm, exported: Exported, ours: Ours
) -> None:
    own = ours(exported("portable")).acceptance_length
    assert vllm(Job(draft=exported(layout))).acceptance_length == pytest.approx(own, rel=0.03)


def test_vllm_counts_the_rounds_that_its_chains_and_replies_show(
    vllm: Vllm, exported: Exported
) -> None:
    run = vllm(Job(draft=exported("portable")))
    steps = [kept for prompt in range(len(run.replies)) for _, kept in run.steps(prompt)]
    assert len(steps) == run.rounds
    assert 0 <= run.accepted - sum(steps) <= DRAFT_TOKENS * len(run.replies)  # behind the ends


def test_replies_and_rounds_are_those_of_vtrim(vllm: Vllm, exported: Exported, ours: Ours) -> None:
    run, own = vllm(Job(draft=exported("portable"))), ours(exported("portable"))
    assert run.replies == own.replies
    assert run.rounds == pytest.approx(
        own.rounds, abs=len(run.replies)
    )  # vtrim ends without a draft


def equal_chains(
    run: Run, states: States, folder: Path, layers: tuple[int, int, int], **options: bool
) -> float:
    """Share of vLLM's chains that a reference draft of the same bytes draws too."""
    reference = ReferenceDraft(folder, states.embedding, **options)
    same = []
    for prompt, reply in enumerate(run.replies):
        tokens = states.tokens[prompt]
        ends = [len(tokens) - len(reply) + place for place, _ in run.steps(prompt)]
        drawn = reference.chains(tokens, states.aux(prompt, layers), ends, DRAFT_TOKENS)
        same += [a == b for a, b in zip(drawn, run.chains[prompt], strict=False)]
    return sum(same) / len(same)


LAYERS = (2, 15, 27)  # of 30: 2, n//2, n-3


def test_every_chain_of_vllm_is_the_references(
    vllm: Vllm, exported: Exported, states: States
) -> None:
    run = vllm(Job(draft=exported("portable")))
    assert equal_chains(run, states, exported("portable"), LAYERS) > 0.99  # ties, by rounding


def test_feeding_back_the_normed_output_draws_other_chains(
    vllm: Vllm, exported: Exported, states: States
) -> None:
    run = vllm(Job(draft=exported("portable")))
    assert equal_chains(run, states, exported("portable"), LAYERS, post_norm=True) < 0.5


def test_states_one_layer_off_draw_other_chains(
    vllm: Vllm, exported: Exported, states: States
) -> None:
    run = vllm(Job(draft=exported("portable")))
    assert equal_chains(run, states, exported("portable"), (3, 16, 28)) < 0.5


def says(**entries: Any) -> Change:
    """A change of the config only."""
    return lambda config, _tensors: config.update(entries)


def without_d2t(_config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    del tensors["d2t"], tensors["t2d"]


WRONG: dict[str, Change] = {
    "the normed output is fed back": says(norm_output=True),
    "the residual is normed": says(norm_before_residual=True),
    "layers one off": says(eagle_aux_hidden_state_layer_ids=[3, 16, 28]),
    "no d2t": without_d2t,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_folder_that_says_another_draft_loads_but_is_accepted_less(
    name: str, vllm: Vllm, changed: Callable[[Change], Path], exported: Exported, ours: Ours
) -> None:
    run = vllm(Job(draft=changed(WRONG[name])))
    assert run.replies == vllm(Job(draft=None)).replies  # never wrong, only slow
    assert run.acceptance_length < 0.97 * ours(exported("portable")).acceptance_length


def absolute(_config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    tensors["d2t"] += torch.arange(len(tensors["d2t"]))


def test_absolute_ids_in_d2t_stop_vllm(vllm: Vllm, changed: Callable[[Change], Path]) -> None:
    with pytest.raises(VllmError, match="IndexError"):
        vllm(Job(draft=changed(absolute), **SHORT))


def widened(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """The draft over the target's whole vocabulary, by its kept rows and zeros between."""
    head = torch.zeros(config["vocab_size"], config["hidden_size"], dtype=torch.bfloat16)
    head[tensors["t2d"]] = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = head
    tensors["d2t"] = torch.zeros(config["vocab_size"], dtype=torch.int64)
    tensors["t2d"] = torch.ones(config["vocab_size"], dtype=torch.bool)
    config["draft_vocab_size"] = config["vocab_size"]


def test_a_mapping_beside_a_full_vocabulary_stops_vllm(
    vllm: Vllm, changed: Callable[[Change], Path]
) -> None:
    with pytest.raises(VllmError, match=r"ValueError[^\n]*draft_id_to_target_id"):
        vllm(Job(draft=changed(widened), **SHORT))


def test_a_full_vocabulary_without_a_mapping_loads_and_is_accepted_alike(
    vllm: Vllm, changed: Callable[[Change], Path], ours: Ours
) -> None:
    def full(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        widened(config, tensors)
        del tensors["d2t"], tensors["t2d"]

    folder = changed(full)
    run = vllm(Job(draft=folder))
    assert run.replies == vllm(Job(draft=None)).replies
    assert run.acceptance_length == pytest.approx(ours(folder).acceptance_length, rel=0.03)


def test_a_full_vocabulary_without_a_head_drafts_with_the_targets(
    vllm: Vllm, changed: Callable[[Change], Path], states: States
) -> None:
    def named(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        widened(config, tensors)
        del tensors["d2t"], tensors["t2d"]
        tensors["lm_head.weight"] = states.embedding.clone()  # tied: also the target's head

    def shared(config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        named(config, tensors)
        del tensors["lm_head.weight"], config["draft_vocab_size"]

    its, targets = (vllm(Job(draft=changed(change), **SHORT)) for change in (named, shared))
    assert its.rounds > 0
    assert its.chains == targets.chains


def test_the_speculators_folder_alone_starts_target_and_draft(
    vllm: Vllm, exported: Exported
) -> None:
    run = vllm(Job(draft=exported("speculators"), target=False, **SHORT))
    assert run.replies == vllm(Job(draft=exported("speculators"), **SHORT)).replies
    assert run.rounds > 0


def test_a_pickle_and_a_plain_llamas_name_load_the_same(
    vllm: Vllm, exported: Exported, tmp_path: Path
) -> None:
    folder = shutil.copytree(exported("eagle"), tmp_path / "draft-eagle3")
    right = vllm(Job(draft=exported("portable")))
    run = vllm(Job(draft=folder, **SHORT))
    assert run.rounds > 0
    for prompt, reply in enumerate(run.replies):
        assert reply == right.replies[prompt][: len(reply)]
        drawn = [chain for chain, _ in zip(run.chains[prompt], run.steps(prompt), strict=False)]
        assert drawn == right.chains[prompt][: len(drawn)]
