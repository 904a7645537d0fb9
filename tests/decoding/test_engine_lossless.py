"""Whole decoding keeps the target's law: replies of a tiny model against an exact enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.acceptors.rejection import Rejection, accept_probability
from vtrim.decoding.acceptors.rule import Chances, Spot
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.draft_size import TreeShape
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.decoding.ngram import NgramDrafter
from vtrim.decoding.protocol import Acceptor, Drafter
from vtrim.decoding.sampling import law
from vtrim.decoding.second_model import ModelDrafter
from vtrim.decoding.tree import TreeDrafter
from vtrim.models.layout import load_draft
from vtrim.models.skipping import without_layers
from vtrim.models.target import Target, load_target
from vtrim.vocab import DraftVocab

V = 4
PROMPT = [1, 2, 3, 1, 2]
LENGTH = 4  # tokens of a reply: the prefill's, and three from rounds
REPLIES = 6_800  # so that rounds give over 20,000 tokens
FILTERS = {"temperature": 0.8, "top_k": 3, "top_p": 0.95}


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """A random Llama over four tokens, its laws far from flat."""
    folder = tmp_path_factory.mktemp("four")
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=V,
                hidden_size=16,
                intermediate_size=24,
                num_hidden_layers=4,
                num_attention_heads=2,
                num_key_value_heads=1,
                max_position_embeddings=32,
                bos_token_id=None,
                eos_token_id=None,
                pad_token_id=None,
            )
        )
        for parameter in model.parameters():
            parameter.data.mul_(4)
    model.save_pretrained(folder)
    return load_target(str(folder), dtype=torch.float32)


@pytest.fixture(scope="module")
def make_drafter(target: Target, random_draft: Callable[..., Path]) -> Callable[[str], Drafter]:
    """A chain, a tree, a second model (all without token 1 in the draft's head) or n-grams."""
    draft = load_draft(random_draft(Path(target.name), ids=[0, 2, 3])).model

    def make(kind: str) -> Drafter:
        if kind == "chain":
            return ChainDrafter(draft, target.embedding)
        if kind == "tree":
            return TreeDrafter(draft, target.embedding, TreeShape(6, 1, 2))
        if kind == "second model":
            vocab = DraftVocab.of([0, 2, 3], V)
            return ModelDrafter(without_layers(target, [1]), target, vocab)
        return NgramDrafter(target.device)

    return make


@torch.inference_mode()
def exact(target: Target, filters: dict[str, float]) -> Tensor:
    """[V ** LENGTH] law of a reply, from plain forwards; in the order of ``product``."""
    runs = torch.tensor(list(itertools.product(range(V), repeat=LENGTH)))
    ids = torch.cat((torch.tensor([PROMPT]).expand(len(runs), -1), runs[:, :-1]), 1)
    logits = target.logits(target.forward(ids).hidden[:, -LENGTH:])
    p = law(logits, **{"temperature": 1.0, **filters}).exp().double()  # type: ignore[arg-type]
    return p.gather(2, runs[..., None])[..., 0].prod(1)


def chi_square(
    target: Target,
    drafter: Drafter,
    acceptor: Acceptor,
    filters: dict[str, float],
    replies: int = REPLIES,
) -> tuple[float, float]:
    """Chi-square of whole replies over its 99.99 % quantile; and the tokens a round."""
    settings = GenerationSettings(
        max_new_tokens=LENGTH,
        stop_ids=frozenset(),
        num_draft_tokens=2,
        seed=8,
        **{"temperature": 1.0, **filters},
    )  # type: ignore[arg-type]
    found = Engine(target, drafter).decode_many(
        [PROMPT] * replies, settings, acceptor, batch_size=256
    )
    place = V ** torch.arange(LENGTH - 1, -1, -1)
    runs = torch.tensor([reply.tokens for reply in found]) @ place
    counts = torch.bincount(runs, minlength=V**LENGTH).double()
    wanted = exact(target, filters) * replies
    assert wanted.sum() == pytest.approx(replies)
    rare = wanted < 5  # one cell together
    assert counts[wanted == 0].sum() == 0
    rest = (counts[rare].sum() - wanted[rare].sum()) ** 2 / wanted[rare].sum().clamp(min=1)
    value = ((counts - wanted)[~rare] ** 2 / wanted[~rare]).sum() + rest
    drawn, rounds = (sum(getattr(r, name) for r in found) for name in ("emitted", "rounds"))
    assert drawn == replies * (LENGTH - 1)
    return float(value) / quantile(int((~rare).sum())), drawn / rounds


def quantile(degrees: int) -> float:
    """99.99 % of chi-square, to three digits (Wilson and Hilferty)."""
    spread = 2 / (9 * degrees)
    return degrees * float(1 - spread + 3.719 * spread**0.5) ** 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "filters"),
    [
        ("chain", "rejection", FILTERS),
        ("chain", "cactus", {}),
        ("tree", "rejection", FILTERS),
        ("ngram", "rejection", {}),
        ("second model", "rejection", FILTERS),
    ],
)
def test_replies_follow_the_targets_law(
    kind: str,
    name: str,
    filters: dict[str, float],
    target: Target,
    make_drafter: Callable[[str], Drafter],
) -> None:
    options = {"delta": 0.0} if name == "cactus" else {}
    acceptor = make_acceptor(name, temperature=1.0, seed=8, **options)
    value, tau = chi_square(target, make_drafter(kind), acceptor, filters)
    assert value < 1
    assert tau > 1.05  # drafted tokens were kept, so the rule was at work


class WithoutResidual(Rejection):
    """Draws from the whole law after a rejection."""

    def chances(self, spot: Spot) -> Chances:
        for node, _ in spot.drafted:
            yield node, accept_probability(spot.p, spot.proposal, node), "ratio"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["chain", "tree"])
def test_the_same_test_finds_a_planted_bias(
    kind: str, target: Target, make_drafter: Callable[[str], Drafter]
) -> None:
    rule = WithoutResidual(seed=8)
    value, _ = chi_square(target, make_drafter(kind), rule, {}, replies=1000)
    assert value > 1.2
