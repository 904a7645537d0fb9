"""vLLM in a process of its own: a job, then prompts, in lines of JSON on stdin; answers on stdout.

Run by the Python that has vLLM, which need not have vtrim: nothing of it is imported here.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import vllm
from vllm import LLM, SamplingParams
from vllm.sampling_params import RequestOutputKind

_PREFIX = "vllm:spec_decode_num_"
_PER_POSITION = f"{_PREFIX}accepted_tokens_per_pos"


def load(job: dict[str, Any]) -> LLM:
    """The engine that the job asks for."""
    more: dict[str, Any] = {"enforce_eager": True}  # 0.32 never ends compiling a draft on a CPU
    if torch.cuda.is_available():
        more = {"gpu_memory_utilization": 0.9 / job["engines"]}  # they live side by side
    return LLM(
        model=job["target"],
        revision=job["revision"],
        trust_remote_code=job["trust_remote_code"],
        skip_tokenizer_init=not job["detokenize"],
        dtype=job["dtype"],
        max_model_len=job["max_model_len"],
        max_num_seqs=job["batch_size"],
        enable_prefix_caching=False,  # the prompts come again, with a draft and without
        disable_log_stats=False,  # the counts are read from them
        seed=job["seed"],
        speculative_config=job["speculative"],
        **more,
    )


def facts(llm: LLM) -> dict[str, Any]:
    """What was loaded."""
    config = llm.llm_engine.vllm_config
    return {
        "version": vllm.__version__,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "device": str(config.device_config.device),
        "settings": {
            "enforce_eager": config.model_config.enforce_eager,
            "max_model_len": config.model_config.max_model_len,
            "async_scheduling": bool(config.scheduler_config.async_scheduling),
            "torch": torch.__version__,
        },
    }


def counts(llm: LLM) -> dict[str, Any]:
    """The engine's own counters of speculative decoding since it was loaded."""
    found: dict[str, Any] = {"drafts": 0, "draft_tokens": 0, "accepted_tokens": 0, "positions": []}
    for metric in llm.get_metrics():
        if metric.name == _PER_POSITION:
            found["positions"] = list(metric.values)
        elif metric.name.removeprefix(_PREFIX) in found:
            found[metric.name.removeprefix(_PREFIX)] = metric.value
    return found


def decode(llm: LLM, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Replies to prompts that are decoded together.

    steps: tokens of each output: those of the prefill, then those of every round.
    """
    replies: dict[str, dict[str, Any]] = {}
    for i, prompt in enumerate(asked["prompts"]):
        settings = SamplingParams(
            temperature=asked["temperature"],
            top_k=asked["top_k"],
            top_p=asked["top_p"],
            seed=asked["seeds"][i],
            max_tokens=asked["limits"][i],
            ignore_eos=True,  # the stop ids are all that ends a reply
            stop_token_ids=asked["stop_ids"],
            stop=asked["stop_strings"] or None,
            detokenize=bool(asked["stop_strings"]),
            output_kind=RequestOutputKind.DELTA,
        )
        replies[str(i)] = {"tokens": [], "steps": []}
        llm.llm_engine.add_request(str(i), {"prompt_token_ids": prompt}, settings)
    while llm.llm_engine.has_unfinished_requests():
        for out in llm.llm_engine.step():
            note(replies[out.request_id], out)
    return list(replies.values())


def note(reply: dict[str, Any], out: Any) -> None:
    """Adds what one step gave to a reply."""
    (given,) = out.outputs
    if given.token_ids:
        reply["tokens"] += list(given.token_ids)
        reply["steps"].append(len(given.token_ids))
    if out.finished:
        times = out.metrics
        reply["finish_reason"] = given.finish_reason
        reply["prefill_seconds"] = times.first_token_ts - times.scheduled_ts
        reply["seconds"] = times.last_token_ts - times.first_token_ts


def main() -> None:
    """Answers until stdin ends. What vLLM prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    job = json.loads(sys.stdin.readline())
    llm = load(job)
    answers.write(json.dumps(facts(llm)) + "\n")
    answers.flush()
    for line in sys.stdin:
        answer = {"replies": decode(llm, json.loads(line)), "counts": counts(llm)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
