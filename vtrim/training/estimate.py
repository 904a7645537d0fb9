"""What a training run costs, counted before it starts: parameters, FLOPs, memory, disk.

Pure arithmetic. FLOPs are those of matrix products, a multiply-add as two; a backward pass costs
twice its forward pass, once where the input needs no gradient. Norms, activation functions,
softmax and padding are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from vtrim.flops.cost import DraftStep, draft_flops
from vtrim.flops.roofline import target_weights
from vtrim.shape import DraftShape
from vtrim.training.rows import row_mask, teacher_positions
from vtrim.training.settings import MaskAlignment, TrainSettings

GIB = 1024**3
SAMPLE_BYTES = 80
"""What the header of a shard says of a sample, at most, beside its states [bytes]."""
FILE_BYTES = 4096
"""Manifest, and what a shard's header has beside its samples, at most [bytes]."""
_VALUE = {"bf16": 2, "fp32": 4}


def shown(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / GIB:,.2f} GiB" if count >= GIB / 10 else f"{count / 1024**2:,.2f} MiB"


def states_bytes(tokens: int, states: int, hidden_size: int, value_bytes: int) -> int:
    """Bytes of a sample's target states: T x 3d and m x d values, best int32 and log_z fp32."""
    return (3 * tokens + states) * hidden_size * value_bytes + states * (4 + 4)


@dataclass(frozen=True, kw_only=True)
class DataCounts:
    """Sums over one pass, and the longest sample.

    rows: rows that any unroll step trains; pairs: (row, step) pairs; states: target states that
    judge them; keys: step-0 keys that the rows see.
    """

    samples: int
    tokens: int
    reply_tokens: int
    rows: int
    pairs: int
    states: int
    keys: int
    longest: int

    def to_dict(self) -> dict[str, int]:
        """The fields as a plain mapping."""
        return asdict(self)


def count_data(
    samples: Iterable[tuple[int, Any]], ttt_steps: int, alignment: MaskAlignment
) -> DataCounts:
    """Counts (T, loss mask [T]) pairs."""
    sums = np.zeros(7, dtype=np.int64)
    longest = 0
    for tokens, mask in samples:
        trained = row_mask(mask, ttt_steps, alignment)
        rows = np.flatnonzero(trained.any(axis=0))
        states = teacher_positions(mask).size
        sums += [1, tokens, mask.sum(), rows.size, trained.sum(), states, (rows + 1).sum()]
        longest = max(longest, tokens)
    names = ("samples", "tokens", "reply_tokens", "rows", "pairs", "states", "keys")
    return DataCounts(**dict(zip(names, sums.tolist(), strict=True)), longest=longest)


def draft_parameters(shape: DraftShape, draft_vocab_size: int) -> dict[str, int]:
    """Trained parameters by part, with their total. The embedding is the target's."""
    weights = draft_flops(shape, draft_vocab_size, DraftStep())  # 2 FLOPs a weight and token
    parts = {name: flops // 2 for name, flops in weights.components.items()}
    parts["norms"] = 4 * shape.hidden_size
    return {**parts, "total": sum(parts.values())}


def draft_flops_of_pass(
    shape: DraftShape, draft_vocab_size: int, counts: DataCounts, ttt_steps: int
) -> dict[str, int]:
    """FLOPs of the draft's training in one pass over the data, by part [FLOPs].

    Step 0 takes keys and values of every token; the rest goes over trained rows, all of them at
    every unroll step. ``teacher`` is the target's head over D.
    """
    cost = draft_flops(shape, draft_vocab_size, DraftStep())
    query = 2 * shape.num_attention_heads * shape.head_dim
    key_values = 2 * 2 * shape.hidden_size * 2 * shape.num_key_value_heads * shape.head_dim
    row_steps = counts.rows * ttt_steps
    return {
        "teacher": cost.lm_head * counts.states,
        "fc": 2 * cost.fc * counts.tokens,
        "attention": 3 * (cost.attention * row_steps + key_values * (counts.tokens - counts.rows)),
        "attention_scores": 3 * 2 * query * counts.keys * ttt_steps,
        "mlp": 3 * cost.mlp * row_steps,
        "lm_head": 3 * cost.lm_head * counts.pairs,
    }


def target_flops_of_pass(target_shape: DraftShape, counts: DataCounts) -> dict[str, int]:
    """FLOPs of the forwards of a dense target of that shape over one pass [FLOPs].

    Attention scores are left out. ``target_head`` is the arg-max over the full vocabulary.
    """
    head = target_shape.hidden_size * target_shape.target_vocab_size
    blocks = target_weights(target_shape) - head
    return {"target": 2 * blocks * counts.tokens, "target_head": 2 * head * counts.states}


def draft_memory(
    parameters: int, trained: int, settings: TrainSettings, world_size: int
) -> dict[str, int]:
    """Bytes a process holds of the draft under the ZeRO stage, beside activations.

    The optimiser keeps fp32 master weights wherever the trained ones are not its own (bf16, or a
    ZeRO stage above 0), and two fp32 moments for each trained parameter (Muon: one, but for heads).
    """
    value, stage = _VALUE[settings.dtype], settings.zero_stage
    shared = {at: world_size if stage >= at else 1 for at in (1, 2, 3)}
    master = 0 if settings.dtype == "fp32" and stage == 0 else 4 * trained
    return {
        "weights": value * parameters // shared[3],
        "gradients": (4 if stage or settings.dtype == "fp32" else 2) * trained // shared[2],
        "master": master // shared[1],
        "optimizer": 8 * trained // shared[1],
    }


def batch_memory(
    shape: DraftShape,
    draft_vocab_size: int,
    counts: DataCounts,
    settings: TrainSettings,
    chunk_elements: int,
) -> dict[str, int]:
    """Bytes of a micro-batch of the longest samples: features, activations kept, one chunk.

    Activations are those that autograd keeps of the unrolled layer, about; rows and states in the
    data's own proportion. chunk_elements: logits formed at a time, of draft, target and gradient.
    """
    value, d = _VALUE[settings.dtype], shape.hidden_size
    tokens = settings.micro_batch * (settings.max_length if settings.packing else counts.longest)
    rows, states, pairs = (
        int(tokens * part / max(1, counts.tokens))
        for part in (counts.rows, counts.states, counts.pairs)
    )
    query = shape.num_attention_heads * shape.head_dim
    key = shape.num_key_value_heads * shape.head_dim
    a_token = shape.target_hidden_size * 3 + 5 * d + 2 * key
    a_row = 8 * d + 3 * query + 2 * key + 4 * shape.intermediate_size
    return {
        "features": states_bytes(tokens, states, shape.target_hidden_size, value)
        + tokens * d * value,
        "activations": (tokens * a_token + rows * settings.ttt_steps * a_row) * value,
        "logits_chunk": 3 * 4 * min(chunk_elements, pairs * draft_vocab_size),
    }


def forward_memory(
    target_shape: DraftShape, counts: DataCounts, settings: TrainSettings, columns: int
) -> int:
    """Bytes a forward of the target takes, about: one block, and ``columns`` of its logits."""
    tokens = settings.micro_batch * (settings.max_length if settings.packing else counts.longest)
    states = int(tokens * counts.states / max(1, counts.tokens))
    wide = 6 * target_shape.hidden_size + 3 * target_shape.intermediate_size
    logits = states * min(columns, target_shape.target_vocab_size)
    return tokens * wide * _VALUE[settings.dtype] + logits * (_VALUE[settings.dtype] + 2 * 4)


def disk_bytes(parameters: int, trained: int, settings: TrainSettings) -> dict[str, int]:
    """Bytes on disk at the most: kept checkpoints and one in writing, best weights, the draft."""
    weights = _VALUE[settings.dtype] * parameters
    parts = draft_memory(parameters, trained, settings, 1)
    checkpoint = parts["weights"] + parts["master"] + parts["optimizer"]
    files = settings.keep_checkpoints + 1
    draft = 2 * parameters  # bf16 always
    return {"checkpoints": files * checkpoint, "best_weights": files * weights, "draft": draft}
