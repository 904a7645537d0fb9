"""A vLLM server: completions of token ids, and its own counters before and after."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vtrim.errors import InputError
from vtrim.evaluation.engines.completions import CompletionServer, Ids
from vtrim.evaluation.engines.counters import Counters, counters
from vtrim.evaluation.engines.http_lines import LineServer
from vtrim.evaluation.engines.reply import Batch, EngineCounts, EngineInfo

if TYPE_CHECKING:
    from vtrim.decoding.generation import GenerationSettings

VLLM = "vllm"
"""What vLLM names itself in its list of models."""
OWN_LENGTH = "1 + accepted draft tokens / verifications of a draft"

_PREFIX = "vllm:spec_decode_num_"
_DRAFTS, _DRAFTED = f"{_PREFIX}drafts", f"{_PREFIX}draft_tokens"
_ACCEPTED, _POSITIONS = f"{_PREFIX}accepted_tokens", f"{_PREFIX}accepted_tokens_per_pos"
_GENERATED = "vllm:generation_tokens"
_NAMES = (_DRAFTS, _DRAFTED, _ACCEPTED, _POSITIONS, _GENERATED)
_METRICS = "/metrics"
_PATIENCE, _PAUSE = 10.0, 0.02  # [s] until counters follow the answer they belong to


class VllmServer(CompletionServer):
    """A vLLM server that nobody else may use meanwhile: its counters are all requests'.

    other_tokens: tokens that it has generated for others since this was made.
    """

    def __init__(self, http: LineServer, model: str, info: EngineInfo) -> None:
        super().__init__(http, model, info)
        self.other_tokens = 0

    def decode(self, prompts: Sequence[Ids], settings: GenerationSettings, first: int) -> Batch:
        """Replies to prompts that are sent at once, and what was counted for them.

        Raises:
            InputError: the server fails, or its answer or its counters cannot be used.
        """
        before = read_counters(self.http)
        replies = super().decode(prompts, settings, first).replies
        after = self._settled(before, sum(reply.num_tokens for reply in replies))
        return Batch(replies, _counts(before, after) if self.info.drafts else None)

    def _settled(self, before: Counters, num_tokens: int) -> Counters:
        """The counters once they hold all tokens of the replies: they are kept up to date apart."""
        give_up = time.monotonic() + _PATIENCE
        while True:
            after = read_counters(self.http)
            generated = round(_gain(before, after, _GENERATED))
            if generated >= num_tokens:
                self.other_tokens += generated - num_tokens
                return after
            if time.monotonic() > give_up:
                raise InputError(
                    f"{self.http.base}{_METRICS}: {_GENERATED}_total grew by {generated} for "
                    f"{num_tokens} tokens: it is not the page of this server."
                )
            time.sleep(_PAUSE)

    def _own_words(self, settings: GenerationSettings) -> dict[str, Any]:
        return {
            "top_k": settings.top_k or -1,
            "ignore_eos": True,  # the run's stop ids are all that ends a reply
            "stop_token_ids": sorted(settings.stop_ids),
            "return_token_ids": True,
            "skip_special_tokens": False,
        }


def read_counters(http: LineServer) -> Counters:
    """The counters that are compared before and after.

    Raises:
        InputError: the server has none, or one is not a number.
    """
    where = f"{http.base}{_METRICS}"
    text = http.text(_METRICS)
    found = {} if text is None else counters(text, _NAMES, where)
    if _GENERATED not in found:
        raise InputError(
            f"{where}: no counters of vLLM there. Start the server without --disable-log-stats; "
            "with --engine openai they are not needed."
        )
    return found


def drafts(found: Counters) -> bool:
    """Whether the server with these counters decodes with a draft."""
    return _DRAFTS in found


def _gain(before: Counters, after: Counters, name: str) -> float:
    return sum(after.get(name, {}).values()) - sum(before.get(name, {}).values())


def _counts(before: Counters, after: Counters) -> EngineCounts:
    """What was counted between the two."""
    places = sorted(after.get(_POSITIONS, {}), key=int)
    first = before.get(_POSITIONS, {})
    return EngineCounts(
        rounds=round(_gain(before, after, _DRAFTS)),
        drafted=round(_gain(before, after, _DRAFTED)),
        accepted=round(_gain(before, after, _ACCEPTED)),
        by_position=tuple(
            round(after[_POSITIONS][place] - first.get(place, 0.0)) for place in places
        ),
    )
