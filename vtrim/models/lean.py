"""A lean forward for Llama-like targets: the same states as the Hugging Face forward, sooner.

Hugging Face's forward spends most of a decoding step around its products. This one fuses qkv and
gate/up, packs the weights on a CPU, attends over the cache in place and replays CUDA graphs on a
GPU. It is proved at load against the Hugging Face forward, which serves every other architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from itertools import chain
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrim.models.lean_attention import Sight
from vtrim.models.lean_blocks import Block, Norm, linears_of, rope_of
from vtrim.models.lean_check import TOLERANCE, difference
from vtrim.models.lean_cuda import CudaCapture, Graphs
from vtrim.models.lean_linear import cannot_pack, product
from vtrim.models.target import Target, TargetStates

_MODEL_TYPES = ("llama", "mistral", "phi3", "qwen2", "qwen3")


def fast_target(target: Target, note: Callable[[str], None]) -> Target:
    """The target with a lean forward, or itself; ``note`` is told why where it is not the former.

    The model is shared: nothing is loaded twice, and the fused layers of an unpacked forward are
    views of the same weights.
    """
    if isinstance(target, LeanTarget):
        return target
    reason = unsuited(target)
    if reason is None:
        weight = target.head_weight
        no_pack = cannot_pack(weight, _num_bytes(target))
        lean = LeanTarget(target, pack=no_pack is None)
        reason = difference(target, lean)
        if reason is None:
            if no_pack is not None and weight.device.type == "cpu":
                note(f"{target.name}: the weights are not packed, which decodes slower: {no_pack}.")
            return lean
    note(f"{target.name}: decoding through transformers' own forward: {reason}.")
    return target


def unsuited(target: Target) -> str | None:
    """Why this target has no lean forward; None: it has one."""
    model, config = target.model, target.config
    kind = str(getattr(config, "model_type", "unknown"))
    if kind not in _MODEL_TYPES or not type(model).__module__.startswith("transformers.models."):
        return f"model_type '{kind}' has no lean one"
    if _windows(config):
        return "its blocks attend through a sliding window"
    if getattr(config, "hidden_act", "silu") != "silu":
        return f"its activation is {config.hidden_act}"
    if target.dtype not in TOLERANCE:
        return f"its dtype is {target.dtype}"
    parts = [part for layer in target.layers for part in linears_of(layer)]
    linears = [*chain.from_iterable(parts), model.get_output_embeddings()]
    if not all(type(m) is nn.Linear and m.weight.dtype == target.dtype for m in linears):
        return "some of its layers are no plain linear ones (quantised or adapted)"
    if {p.device for p in model.parameters()} != {target.device}:
        return "it is spread over several devices"
    return None


class LeanTarget(Target):
    """A target with the same model, head rows and interface, and its own forward."""

    def __init__(self, target: Target, *, pack: bool) -> None:
        vars(self).update(vars(target))
        self.blocks = [Block(layer, pack=pack) for layer in target.layers]
        self.final_norm = Norm(target.decoder.norm)
        first = self.blocks[0]
        self._groups = first.num_heads // (first.num_rotated - first.num_heads)
        head = target.model.get_output_embeddings()
        bias = None if head.bias is None else head.bias.detach()
        self._product = product(head.weight.detach(), bias, pack=pack)
        self._start()

    def of_blocks(self, part: Target, kept: Sequence[int]) -> LeanTarget:
        """The lean forward of ``part``, a model of only these blocks; nothing is packed anew."""
        lean = copy(self)
        vars(lean).update(vars(part))
        lean.blocks = [self.blocks[block] for block in kept]
        lean._start()
        return lean

    def _start(self) -> None:
        self._step: Any = self._between
        if self.device.type == "cuda":
            self._step = Graphs(self._between, CudaCapture(self.device))

    def forward(
        self,
        input_ids: Tensor,
        *,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | Mapping[str, Tensor] | None = None,
        cache: Any = None,
    ) -> TargetStates:
        """Runs the blocks. input_ids: [B, T]; ``cache``: layers with transformers' ``update``.

        attention_mask: bool [B, 1, T, S], True = attends; None is causal behind the cache. Masks
        of other kinds (padding, additive) go through transformers' forward.
        """
        if not _is_pairwise(attention_mask):
            return super().forward(
                input_ids, position_ids=position_ids, attention_mask=attention_mask, cache=cache
            )
        start = 0 if cache is None else int(cache.get_seq_length())
        # Prompts come in any length: a graph of each would fill the table.
        step = self._step if start else self._between
        if position_ids is None:
            stop = start + input_ids.shape[1]
            position_ids = torch.arange(start, stop, device=input_ids.device)[None]
        x = F.embedding(input_ids, self.embedding)
        rope = rope_of(self.decoder.rotary_emb, x, position_ids)
        sight = Sight(attention_mask, self._groups)
        kept: dict[int, Tensor] = {}
        x, *heads = step(0, x, None, *rope)
        for index, block in enumerate(self.blocks):
            if index in self.aux_layer_ids:
                kept[index] = x
            queries, keys, values = heads[0], heads[1].transpose(1, 2), heads[2].transpose(1, 2)
            if cache is not None:
                keys, values = cache.layers[index].update(keys, values)
            context = sight.attend(queries, keys, values, block.scale)
            x, *heads = step(index + 1, x, context, *rope)
        aux = torch.cat([kept[index] for index in self.aux_layer_ids] or [x[..., :0]], dim=-1)
        return TargetStates(hidden=x.clone(), aux=aux)  # a replayed graph would overwrite x

    def logits(self, hidden: Tensor) -> Tensor:
        """The head's product; these models neither scale nor cap it. [..., d] -> [..., V]."""
        return self._product(hidden)

    def _between(
        self, index: int, x: Tensor, context: Tensor | None, cos: Tensor, sin: Tensor
    ) -> tuple[Tensor, ...]:
        """From one attention to the next: the stream entering block ``index``, and its q, k, v.

        x: [B, T, d] the stream that entered the block before; context: [B, T, n_h*d_h] what that
        block attended to. Behind the last block: the final states.
        """
        if context is not None:
            x = self.blocks[index - 1].leave(x, context)
        if index == len(self.blocks):
            return (self.final_norm(x),)
        return (x, *self.blocks[index].enter(x, (cos, sin)))


def _windows(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return any(kind != "full_attention" for kind in kinds)
    return getattr(config, "sliding_window", None) is not None


def _is_pairwise(mask: Tensor | Mapping[str, Tensor] | None) -> TypeGuard[Tensor | None]:
    return mask is None or (
        isinstance(mask, Tensor) and mask.dtype == torch.bool and mask.dim() == 4
    )


def _num_bytes(target: Target) -> int:
    """Size of the weights that would be packed [bytes]."""
    weights = [p for p in target.layers.parameters() if p.dim() == 2] + [target.head_weight]
    return sum(w.numel() * w.element_size() for w in weights)
