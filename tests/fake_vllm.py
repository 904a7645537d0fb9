"""Servers and a library that count as vLLM does: a reply is the prompt's last id, counted on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fake_server import Answer, FakeServer, events, serving

ROWS = 50
"""Ids are below it."""
DRAFTED = 3


def counted_on(prompt: list[int], count: int) -> list[int]:
    """The reply to a prompt."""
    return [(prompt[-1] + 1 + i) % ROWS for i in range(count)]


def steps_of(ids: list[int], kept: int) -> list[list[int]]:
    """The reply as it comes: the prefill's token, then each round's, ``kept`` drafts accepted."""
    rounds = [ids[i : i + kept + 1] for i in range(1, len(ids), kept + 1)]
    return [ids[:1], *rounds]


class Counters:
    """vLLM's counters of everything it has served. kept: drafts accepted a round."""

    def __init__(self, *, drafts: bool, kept: int = 1) -> None:
        self.drafts, self.kept = drafts, kept if drafts else 0
        self.tokens = self.rounds = self.foreign = 0

    def page(self) -> str:
        """/metrics."""
        label = 'engine="0",model_name="tiny"'
        lines = [
            "# HELP vllm:generation_tokens_total Number of tokens.",
            f"vllm:generation_tokens_total{{{label}}} {float(self.tokens + self.foreign)}",
            'vllm:request_success_total{finished_reason="stop"} nan',
        ]
        if self.drafts:
            name = "vllm:spec_decode_num_"
            lines += [
                f"{name}drafts_total{{{label}}} {float(self.rounds)}",
                f"{name}draft_tokens_total{{{label}}} {float(self.rounds * DRAFTED)}",
                f"{name}accepted_tokens_total{{{label}}} {float(self.rounds * self.kept)}",
                *(
                    f'{name}accepted_tokens_per_pos_total{{{label},position="{j}"}} '
                    f"{float(self.rounds) if j < self.kept else 0.0}"
                    for j in range(DRAFTED)
                ),
            ]
        return "\n".join(lines) + "\n"

    def answer(self, body: dict[str, Any], _count: int) -> Answer:
        """A streamed completion."""
        steps = steps_of(counted_on(body["prompt"], body["max_tokens"]), self.kept)
        self.tokens += body["max_tokens"]
        self.rounds += len(steps) - 1
        chunks = [
            {"choices": [{"text": "", "token_ids": ids, "finish_reason": None}]} for ids in steps
        ]
        chunks[-1]["choices"][0]["finish_reason"] = "length"
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
        return Answer(body=events(*chunks, {"choices": [], "usage": usage}))


@contextmanager
def vllm_server(*, drafts: bool = True, kept: int = 1, **entry: Any) -> Iterator[FakeServer]:
    """A server that looks like vLLM; ``counters`` is its record."""
    counters = Counters(drafts=drafts, kept=kept)
    known = {"owned_by": "vllm", "max_model_len": 64, **entry}
    with serving(counters.answer, **known) as server:
        server.pages["/metrics"] = lambda: Answer(body=counters.page().encode())
        server.pages["/version"] = lambda: Answer(body={"version": "0.32.0"})
        server.counters = counters
        yield server
