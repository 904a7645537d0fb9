"""The draft of CONTRACT.md 3.2 in plain loops: float64, one row at a time, no batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from vtrim.models.draft import Eagle3Draft
from vtrim.models.target import Target
from vtrim.shape import DraftShape


def rms(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean() + eps) * weight.double()


def turn(x: Tensor, position: int, theta: float) -> Tensor:
    """RoPE of one head's vector as a rotation of complex numbers (x_i, x_{i + half})."""
    half = x.shape[0] // 2
    angles = torch.tensor([position * theta ** (-i / half) for i in range(half)]).double()
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat((turned.real, turned.imag))


class SlowDraft:
    """One sequence's rows, each seeing every row before it; keeps every key it has made."""

    def __init__(self, draft: Eagle3Draft, *, feedback: str = "pre-norm") -> None:
        self.w = {name: value.double() for name, value in draft.state_dict().items()}
        self.shape, self.feedback = draft.shape, feedback
        self.keys: list[list[Tensor]] = []
        self.values: list[list[Tensor]] = []

    def heads(self, name: str, x: Tensor) -> list[Tensor]:
        return list((self.w[f"midlayer.self_attn.{name}.weight"] @ x).split(self.shape.head_dim))

    def row(self, embed: Tensor, hidden: Tensor, position: int) -> tuple[Tensor, Tensor]:
        """What is fed back, and the draft logits, of the row at ``position``."""
        s, w = self.shape, self.w
        x = torch.cat(
            (
                rms(embed.double(), w["midlayer.input_layernorm.weight"], s.rms_norm_eps),
                rms(hidden, w["midlayer.hidden_norm.weight"], s.rms_norm_eps),
            )
        )
        self.keys.append([turn(k, position, s.rope_theta) for k in self.heads("k_proj", x)])
        self.values.append(self.heads("v_proj", x))
        context = []
        for head, q in enumerate(self.heads("q_proj", x)):
            group = head // (s.num_attention_heads // s.num_key_value_heads)
            q = turn(q, position, s.rope_theta)
            scores = torch.stack([q @ k[group] for k in self.keys]) / math.sqrt(s.head_dim)
            share = torch.softmax(scores, dim=0)
            context.append(sum(p * v[group] for p, v in zip(share, self.values, strict=True)))
        r = hidden + w["midlayer.self_attn.o_proj.weight"] @ torch.cat(context)
        y = rms(r, w["midlayer.post_attention_layernorm.weight"], s.rms_norm_eps)
        gate, up = w["midlayer.mlp.gate_proj.weight"] @ y, w["midlayer.mlp.up_proj.weight"] @ y
        g = r + w["midlayer.mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * up)
        normed = rms(g, w["norm.weight"], s.rms_norm_eps)
        return (normed if self.feedback == "post-norm" else g), w["lm_head.weight"] @ normed


def states(target: Target, tokens: list[int], layer_ids: tuple[int, ...] | None = None) -> Tensor:
    """[T - 1, 3d] the target's states of all tokens but the last."""
    ids = torch.tensor([tokens[:-1]])
    whole = target.model(input_ids=ids, output_hidden_states=True, use_cache=False)
    return torch.cat([whole.hidden_states[j][0] for j in layer_ids or target.aux_layer_ids], dim=-1)


def committed(
    draft: Eagle3Draft,
    embedding: Tensor,
    tokens: list[int],
    aux: Tensor,
    *,
    feedback: str = "pre-norm",
    first_position: int = 0,
) -> tuple[SlowDraft, Tensor, Tensor]:
    """The rows of ``tokens``, then what the last one feeds back and its logits."""
    slow = SlowDraft(draft, feedback=feedback)
    for i in range(len(tokens) - 1):
        fused = draft.fc.weight.double() @ aux[i].double()
        hidden, logits = slow.row(embedding[tokens[i + 1]], fused, i + first_position)
    return slow, hidden, logits


def slow_chain(
    draft: Eagle3Draft,
    embedding: Tensor,
    tokens: list[int],
    aux: Tensor,
    length: int,
    *,
    feedback: str = "pre-norm",
    first_position: int = 0,
) -> tuple[list[int], Tensor]:
    """The chain after ``tokens`` and its log-probabilities [L, k]."""
    slow, hidden, logits = committed(
        draft, embedding, tokens, aux, feedback=feedback, first_position=first_position
    )
    chain, laws = [], []
    for j in range(length):
        laws.append(torch.log_softmax(logits, dim=0))
        chain.append(int(draft.vocab_ids[int(logits.argmax())]))
        position = len(tokens) - 1 + j + first_position
        hidden, logits = slow.row(embedding[chain[-1]], hidden, position)
    return chain, torch.stack(laws)


@dataclass(frozen=True)
class Node:
    """A drafted token: those on its path, the node before it, its worth and its parent's law."""

    path: tuple[int, ...]
    parent: int
    score: float
    law: Tensor


def slow_tree(
    draft: Eagle3Draft,
    embedding: Tensor,
    tokens: list[int],
    aux: Tensor,
    *,
    total_token: int,
    levels: int,
    top_k: int,
) -> tuple[list[int], list[int], Tensor]:
    """Tokens, parents and parents' laws of the tree after ``tokens``, each path run anew."""

    def law_behind(path: tuple[int, ...]) -> Tensor:
        slow, hidden, logits = committed(draft, embedding, tokens, aux)
        for depth, token in enumerate(path):
            hidden, logits = slow.row(embedding[token], hidden, len(tokens) - 1 + depth)
        return torch.log_softmax(logits, dim=0)

    def children(node: int) -> list[Node]:
        path = nodes[node].path if node >= 0 else ()
        score = nodes[node].score if node >= 0 else 0.0
        law = law_behind(path)
        best = sorted(range(len(law)), key=lambda i: -float(law[i]))[:top_k]
        return [
            Node((*path, int(draft.vocab_ids[i])), node, score + float(law[i]), law) for i in best
        ]

    nodes: list[Node] = []
    nodes += children(-1)
    beam = list(range(top_k))
    for _ in range(levels - 1):
        first = len(nodes)
        for node in beam:
            nodes += children(node)
        beam = sorted(range(first, len(nodes)), key=lambda n: -nodes[n].score)[:top_k]
    kept = sorted(sorted(range(len(nodes)), key=lambda n: -nodes[n].score)[: total_token - 1])
    place = {-1: -1} | {node: index for index, node in enumerate(kept)}
    return (
        [nodes[node].path[-1] for node in kept],
        [place[nodes[node].parent] for node in kept],
        torch.stack([nodes[node].law for node in kept]),
    )


def toy_draft(seed: int = 0, *, sharpness: float = 8.0) -> tuple[Eagle3Draft, Tensor]:
    """A small draft with a random law far from uniform, and an embedding table [40, 24]."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        shape = DraftShape(
            hidden_size=24,
            target_hidden_size=24,
            intermediate_size=32,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            target_vocab_size=40,
            num_target_layers=4,
            rms_norm_eps=1e-5,
            rope_theta=1e4,
            max_position_embeddings=256,
        )
        draft = Eagle3Draft(shape, torch.arange(0, 40, 2)).requires_grad_(False)
        draft.lm_head.weight.mul_(sharpness)
        return draft, torch.randn(40, 24)
