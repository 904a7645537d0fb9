"""What one EAGLE-3 draft token costs, counted from the draft's shape.

Matrix products only, a multiply-add as two FLOPs: norms, rotary embedding, activation functions,
softmax and the embedding look-up are left out. Source: arXiv:2603.05210, Table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from vtrim.shape import DraftShape


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStep:
    """Which draft step is counted.

    recursive: not the first step after a verification, so the fc fusion does not run.
    context: tokens in the draft's KV cache; 0 leaves the attention scores out.
    num_tokens: tokens of one sequence that go through the draft together.
    """

    recursive: bool = False
    context: int = 0
    num_tokens: int = 1


FIRST_STEP = DraftStep()  # what Table 1 counts: one token, fc included, no attention scores


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCost:
    """Cost of one draft step by component, in FLOPs or bytes."""

    fc: int
    attention: int
    attention_scores: int
    mlp: int
    lm_head: int

    @property
    def components(self) -> dict[str, int]:
        """The counted components by name; attention scores only where a context was named."""
        parts = {"fc": self.fc, "attention": self.attention}
        if self.attention_scores:
            parts["attention_scores"] = self.attention_scores
        return {**parts, "mlp": self.mlp, "lm_head": self.lm_head}

    @property
    def total(self) -> int:
        """Sum over the components."""
        return self.fc + self.attention + self.attention_scores + self.mlp + self.lm_head

    @property
    def lm_head_share(self) -> float:
        """Share of the LM head in the total."""
        return self.lm_head / self.total


def lm_head_flops(hidden_size: int, draft_vocab_size: int) -> int:
    """FLOPs of one LM-head row [FLOPs]: 2 * hidden_size * draft_vocab_size."""
    return 2 * hidden_size * draft_vocab_size


def draft_flops(
    shape: DraftShape, draft_vocab_size: int | None = None, step: DraftStep = FIRST_STEP
) -> DraftCost:
    """Cost of one draft step [FLOPs]; of the full target vocabulary unless a size is given."""
    vocab = shape.target_vocab_size if draft_vocab_size is None else draft_vocab_size
    tokens = step.num_tokens
    query_width = shape.num_attention_heads * shape.head_dim
    return DraftCost(
        fc=0 if step.recursive else 2 * tokens * _fc_weights(shape),
        attention=2 * tokens * _attention_weights(shape),
        # q.k and the weighted sum of v: two products of query_width for each cached token
        attention_scores=2 * tokens * 2 * query_width * step.context,
        mlp=2 * tokens * _mlp_weights(shape),
        lm_head=tokens * lm_head_flops(shape.hidden_size, vocab),
    )


def draft_bytes(
    shape: DraftShape,
    draft_vocab_size: int | None = None,
    step: DraftStep = FIRST_STEP,
    bytes_per_value: int = 2,
) -> DraftCost:
    """Memory read by one draft step [bytes]: every weight once, and the cached keys and values.

    Activations and what is written are left out: next to the weights they are small.
    """
    vocab = shape.target_vocab_size if draft_vocab_size is None else draft_vocab_size
    cached = 2 * shape.num_key_value_heads * shape.head_dim * step.context
    return DraftCost(
        fc=0 if step.recursive else bytes_per_value * _fc_weights(shape),
        attention=bytes_per_value * _attention_weights(shape),
        attention_scores=bytes_per_value * cached,
        mlp=bytes_per_value * _mlp_weights(shape),
        lm_head=bytes_per_value * shape.hidden_size * vocab,
    )


def _fc_weights(shape: DraftShape) -> int:
    """Weights of the fusion of three auxiliary states."""
    return 3 * shape.target_hidden_size * shape.hidden_size


def _attention_weights(shape: DraftShape) -> int:
    """Weights of q, k, v, whose input is [embedding; hidden], and of o."""
    query_width = shape.num_attention_heads * shape.head_dim
    key_width = shape.num_key_value_heads * shape.head_dim
    return 2 * shape.hidden_size * (query_width + 2 * key_width) + query_width * shape.hidden_size


def _mlp_weights(shape: DraftShape) -> int:
    """Weights of gate, up and down."""
    return 3 * shape.hidden_size * shape.intermediate_size
