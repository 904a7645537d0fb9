"""Any OpenAI-compatible server: completions of token ids, streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from vtrim.decoding.chat_server import PLAIN_LAW
from vtrim.errors import OptionError
from vtrim.evaluation.engines.http_lines import LineServer
from vtrim.evaluation.engines.reply import Batch, EngineInfo, EngineReply, longest
from vtrim.evaluation.engines.stream import Piece, collect

if TYPE_CHECKING:
    from vtrim.decoding.generation import GenerationSettings

Ids = Sequence[int]

TENSORRT = "tensorrt_llm"
"""What TensorRT-LLM names itself in its list of models."""


class CompletionServer:
    """A server that is asked through ``/v1/completions``, and counts nothing itself.

    TensorRT-LLM tells the mean tokens of an iteration with each reply; others tell nothing.
    """

    path = "/v1/completions"

    def __init__(self, http: LineServer, model: str, info: EngineInfo) -> None:
        self.info = info
        self.http = http
        self.model = model

    def decode(self, prompts: Sequence[Ids], settings: GenerationSettings, first: int) -> Batch:
        """Replies to prompts that are sent at once.

        Raises:
            InputError: the server fails, or its answer cannot be used.
        """
        seeds = [settings.seed + first + i for i in range(len(prompts))]
        requests = [self._request(*one, settings) for one in zip(prompts, seeds, strict=True)]
        with ThreadPoolExecutor(len(prompts), thread_name_prefix="reply") as pool:
            try:
                return Batch(tuple(pool.map(self._reply, prompts, requests)))
            except BaseException:
                self.http.abort()  # replies in flight, on the way out, are not waited for
                raise

    def _reply(self, prompt: Ids, request: dict[str, Any]) -> EngineReply:
        events = self.http.events(self.path, request)
        return collect(self._pieces(events), len(prompt), self.http.base)

    def _request(self, prompt: Ids, seed: int, settings: GenerationSettings) -> dict[str, Any]:
        """The request, in words that all servers know, and those of the engine that is asked."""
        return {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": longest(prompt, settings, self.info),
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "seed": seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **({"stop": list(settings.stop_strings)} if settings.stop_strings else {}),
            **PLAIN_LAW.get(self.info.name, {}),
            **self._own_words(settings),
        }

    def _own_words(self, settings: GenerationSettings) -> dict[str, Any]:
        """What this engine is told besides: the run's stop ids are all that ends a reply."""
        if self.info.name != TENSORRT:
            if settings.top_k:
                raise OptionError(
                    f"--top-k {settings.top_k}: {self.info.name} knows no such thing."
                )
            return {}
        ids = sorted(settings.stop_ids)
        top_k = {"top_k": settings.top_k} if settings.top_k else {}
        return {"ignore_eos": True, "stop_token_ids": ids, **top_k}

    def _pieces(self, events: Iterator[dict[str, Any]]) -> Iterator[Piece]:
        """What the events say."""
        for event in events:
            choice: dict[str, Any] = next(iter(event.get("choices") or []), {})
            usage = event.get("usage") or {}
            ids = choice.get("token_ids")
            yield Piece(
                ids=None if ids is None else tuple(ids),
                text=choice.get("text") or "",
                num_tokens=usage.get("completion_tokens"),
                prompt_tokens=usage.get("prompt_tokens"),
                tokens_per_round=choice.get("avg_decoded_tokens_per_iter"),
                finish_reason=choice.get("finish_reason"),
            )
