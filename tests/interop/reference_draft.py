"""An EAGLE-3 chain in plain torch, from a draft folder's bytes; no line of it is vtrim's or vLLM's.

Shapes: T tokens of a prompt and its reply, d hidden size, k draft vocabulary, h heads of size s.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import silu, softmax


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def turn(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """RoPE, half-split. x: [T, h, s]; positions: [T]."""
    half = x.shape[-1] // 2
    angles = positions[:, None, None] * theta ** (-torch.arange(half) / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones(()), angles)
    return torch.cat((turned.real, turned.imag), -1)


class ReferenceDraft:
    """A draft in the portable layout; post_norm: feeds back what the head reads, a wrong rule."""

    def __init__(self, folder: Path, embedding: Tensor, *, post_norm: bool = False) -> None:
        config = json.loads((folder / "config.json").read_text())
        self.w = {
            name: value.float() if value.is_floating_point() else value
            for name, value in load_file(folder / "model.safetensors").items()
        }
        self.embedding, self.post_norm = embedding.float(), post_norm
        self.eps, self.theta = config["rms_norm_eps"], config["rope_theta"]
        self.heads, self.groups = config["num_attention_heads"], config["num_key_value_heads"]

    def rows(self, tokens: Tensor, hidden: Tensor, start: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [T, h, s], keys and values [T, g, s] of rows that begin at position ``start``."""
        w = self.w
        x = torch.cat(
            (
                norm(self.embedding[tokens], w["midlayer.input_layernorm.weight"], self.eps),
                norm(hidden, w["midlayer.hidden_norm.weight"], self.eps),
            ),
            -1,
        )
        at = start + torch.arange(len(tokens))
        q, k, v = (
            (x @ w[f"midlayer.self_attn.{name}_proj.weight"].T).unflatten(-1, (count, -1))
            for name, count in (("q", self.heads), ("k", self.groups), ("v", self.groups))
        )
        return turn(q, at, self.theta), turn(k, at, self.theta), v

    def outputs(self, q: Tensor, k: Tensor, v: Tensor, hidden: Tensor) -> Tensor:
        """[R, d] before the last norm, of the last R of the rows that have keys and values."""
        w, repeat = self.w, self.heads // self.groups
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        scores = torch.einsum("rhs,ths->hrt", q, k) / q.shape[-1] ** 0.5
        first = len(k) - len(q)
        hidden_from = torch.arange(len(k)) > first + torch.arange(len(q))[:, None]
        share = softmax(scores.masked_fill(hidden_from, -torch.inf), -1)
        context = torch.einsum("hrt,ths->rhs", share, v).flatten(1)
        r = hidden + context @ w["midlayer.self_attn.o_proj.weight"].T
        y = norm(r, w["midlayer.post_attention_layernorm.weight"], self.eps)
        gate, up = (y @ w[f"midlayer.mlp.{name}_proj.weight"].T for name in ("gate", "up"))
        return r + (silu(gate) * up) @ w["midlayer.mlp.down_proj.weight"].T

    def chains(
        self, tokens: list[int], aux: Tensor, ends: list[int], length: int
    ) -> list[list[int]]:
        """The chain behind tokens[:end], for each end. aux: [T, 3d] the target's states."""
        ids = torch.tensor(tokens)
        hidden = aux[:-1].float() @ self.w["fc.weight"].T
        q, k, v = self.rows(ids[1:], hidden, 0)
        outputs = self.outputs(q, k, v, hidden)
        return [
            self.chain(outputs[end - 2 : end - 1], k[: end - 1], v[: end - 1], length)
            for end in ends
        ]

    def chain(self, output: Tensor, keys: Tensor, values: Tensor, length: int) -> list[int]:
        """The tokens drafted one by one. output: [1, d] last row's; keys and values: [T, g, s]."""
        chain: list[int] = []
        while True:
            normed = norm(output, self.w["norm.weight"], self.eps)
            best = int((normed @ self.w["lm_head.weight"].T).argmax())
            chain.append(best + int(self.w["d2t"][best]))
            if len(chain) == length:
                return chain
            hidden = normed if self.post_norm else output
            q, k, v = self.rows(torch.tensor(chain[-1:]), hidden, len(keys))
            keys, values = torch.cat((keys, k)), torch.cat((values, v))
            output = self.outputs(q, keys, values, hidden)
