"""An SGLang server: its own ``/generate``, which counts the verifications of each reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from vtrim.decoding.chat_server import PLAIN_LAW
from vtrim.evaluation.engines.completions import CompletionServer, Ids
from vtrim.evaluation.engines.http_lines import LineServer
from vtrim.evaluation.engines.reply import EngineInfo, longest
from vtrim.evaluation.engines.stream import Piece

if TYPE_CHECKING:
    from vtrim.decoding.generation import GenerationSettings

SGLANG = "sglang"
"""What SGLang names itself in its list of models."""
OWN_LENGTH = "reply tokens, the prefill token included, / verifications"

_INFO_PATHS = ("/server_info", "/get_server_info")  # newer releases, older ones
_SHOWN = (
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "dtype",
    "attention_backend",
)
_THRESHOLDS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")


class SglangServer(CompletionServer):
    """An SGLang server. It joins tokens of several rounds in one event when it is busy."""

    path = "/generate"

    def _request(self, prompt: Ids, seed: int, settings: GenerationSettings) -> dict[str, Any]:
        return {
            "input_ids": list(prompt),
            "sampling_params": {
                **PLAIN_LAW[SGLANG],
                "max_new_tokens": longest(prompt, settings, self.info),
                "temperature": settings.temperature,
                "top_k": settings.top_k or -1,
                "top_p": settings.top_p,
                "stop_token_ids": sorted(settings.stop_ids),
                "ignore_eos": True,  # the run's stop ids are all that ends a reply
                "skip_special_tokens": False,
                **({"sampling_seed": seed} if settings.temperature > 0 else {}),
                **({"stop": list(settings.stop_strings)} if settings.stop_strings else {}),
            },
            "stream": True,
        }

    def _pieces(self, events: Iterator[dict[str, Any]]) -> Iterator[Piece]:
        """What the events say. Text and ids may be those so far, or (an option) the new ones."""
        seen, text = 0, ""
        for event in events:
            meta = event.get("meta_info") or {}
            told, count = event.get("output_ids"), meta.get("completion_tokens")
            ids = None
            if told is not None:
                ids = tuple(told[seen:] if len(told) == count else told)
                seen += len(ids)
            whole = event.get("text") or ""
            new = whole.removeprefix(text)
            text = whole if whole.startswith(text) else text + whole
            reason = meta.get("finish_reason")
            yield Piece(
                ids=ids,
                text=new,
                num_tokens=count,
                prompt_tokens=meta.get("prompt_tokens"),
                rounds=meta.get("spec_verify_ct"),
                finish_reason=reason.get("type") if isinstance(reason, dict) else reason,
            )


def sglang_info(http: LineServer) -> EngineInfo:
    """What the server says of itself.

    Raises:
        InputError: it fails.
    """
    found = next(filter(None, (http.facts(path) for path in _INFO_PATHS)), {})
    thresholds = [found.get(name) for name in _THRESHOLDS]
    known = [value for value in thresholds if isinstance(value, int | float)]
    return EngineInfo(
        name=SGLANG,
        version=found.get("version"),
        settings={name: found[name] for name in _SHOWN if found.get(name) is not None},
        drafts=bool(found.get("speculative_algorithm")) if found else None,
        lossless=all(value == 1 for value in known) if known else None,
        own_length=OWN_LENGTH,
        context_length=found.get("context_length"),
    )
