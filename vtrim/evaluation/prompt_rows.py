"""A row a prompt: what a result holds of each, and what two results are compared by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtrim.artifacts import fingerprint_json
from vtrim.decoding.generation import Generation
from vtrim.evaluation.causes import Lookup
from vtrim.evaluation.drift import common_prefix
from vtrim.evaluation.metrics import ratio
from vtrim.evaluation.prompts import Prompt
from vtrim.vocab import DraftVocab


def prompt_fingerprint(ids: Sequence[int]) -> str:
    """What tells a prompt by its token ids."""
    return fingerprint_json(list(ids))[:23]  # 64 bits of it: prompts are few


def prompt_rows(
    prompts: Sequence[Prompt],
    rule: Sequence[Generation],
    plain: Sequence[Generation],
    vocab: DraftVocab | None,
) -> list[dict[str, Any]]:
    """A rule's row of every prompt, with plain decoding's numbers beside it.

    tokens: of the reply; emitted: those of the rounds, the prefill token left out.
    """
    lookup = Lookup(vocab)
    return [
        {
            "origin": str(prompt.origin),
            "prompt": prompt_fingerprint(prompt.ids),
            "prompt_tokens": len(prompt.ids),
            "tokens": len(one.tokens),
            "emitted": one.emitted,
            "rounds": one.rounds,
            "acceptance_length": ratio(one.emitted, one.rounds),
            "rejections": lookup.causes([one]),
            "seconds": one.decode_seconds,
            "plain_tokens": len(base.tokens),
            "plain_emitted": base.emitted,
            "plain_seconds": base.decode_seconds,
            "identical_to_plain": one.tokens == base.tokens,
            "common_prefix": common_prefix(one.tokens, base.tokens),
            "log_prob": one.log_prob,
            "plain_log_prob": base.log_prob,
            "finish_reason": one.finish_reason,
        }
        for prompt, one, base in zip(prompts, rule, plain, strict=True)
    ]
