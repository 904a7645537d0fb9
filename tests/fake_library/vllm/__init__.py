"""What the worker uses of vLLM: a reply is the prompt's last id, counted on; two ids a round."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace as Plain
from typing import Any

__version__ = "0.32.0"
ROWS = 50


class SamplingParams:
    def __init__(self, **settings: Any) -> None:
        vars(self).update(settings)


class LLM:
    def __init__(self, **options: Any) -> None:
        print("vLLM says hello on stdout")  # noqa: T201 - as libraries do
        if options["dtype"] == "float16":
            raise ValueError("float16 is not supported\nhere")
        self.speculative = options["speculative_config"]
        self.llm_engine = _Engine(self, options)
        self.rounds = 0

    def get_metrics(self) -> list[Any]:
        name = "vllm:spec_decode_num_"
        if self.speculative is None:
            return []
        return [
            Plain(name=f"{name}drafts", value=self.rounds),
            Plain(name=f"{name}draft_tokens", value=3 * self.rounds),
            Plain(name=f"{name}accepted_tokens", value=self.rounds),
            Plain(name=f"{name}accepted_tokens_per_pos", values=[self.rounds, 0, 0]),
            Plain(name="vllm:generation_tokens", value=1),
        ]


class _Engine:
    def __init__(self, llm: LLM, options: dict[str, Any]) -> None:
        self.llm = llm
        self.waiting: dict[str, Any] = {}
        self.vllm_config = Plain(
            model_config=Plain(
                dtype=f"torch.{options['dtype']}",
                enforce_eager=options.get("enforce_eager", False),
                max_model_len=options["max_model_len"],
            ),
            device_config=Plain(device="cpu"),
            scheduler_config=Plain(async_scheduling=None),
        )

    def add_request(self, name: str, prompt: dict[str, Any], settings: Any) -> None:
        ids = prompt["prompt_token_ids"]
        if ids[-1] == 13:
            print("an error line\nRuntimeError: unlucky", file=sys.stderr, flush=True)  # noqa: T201
            os._exit(1)
        reply = [(ids[-1] + 1 + i) % ROWS for i in range(settings.max_tokens)]
        each = 1 if self.llm.speculative is None else 2
        rounds = [reply[i : i + each] for i in range(1, len(reply), each)]
        self.waiting[name] = [reply[:1], *rounds]

    def has_unfinished_requests(self) -> bool:
        return bool(self.waiting)

    def step(self) -> list[Any]:
        done = []
        for name, steps in list(self.waiting.items()):
            given = Plain(token_ids=steps.pop(0), finish_reason=None if steps else "length")
            self.llm.rounds += given.token_ids[0] >= 0 and bool(steps)
            times = Plain(scheduled_ts=1.0, first_token_ts=1.5, last_token_ts=3.5)
            done.append(Plain(request_id=name, outputs=[given], finished=not steps, metrics=times))
            if not steps:
                del self.waiting[name]
        return done
