"""vLLM on a CPU for bench.py, without vtrim: a job in JSON on stdin, a line of JSON on stdout."""

from __future__ import annotations

import os

os.environ |= {  # before vLLM is imported: one process, one thread, the network left alone
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}

import json
import sys
import time
from typing import Any

import torch
import vllm
from vllm import LLM, SamplingParams

KV_BYTES = 2**28  # tens of KiB a token; the default is half of the machine's memory
COUNTERS = {
    "vllm:spec_decode_num_drafts": "drafts",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
}


def load(job: dict[str, Any]) -> LLM:
    """The target, with the draft where the job names one."""
    drafting = {
        "model": job["draft"],
        "method": "eagle3",
        "num_speculative_tokens": job["num_draft_tokens"],
    }
    return LLM(
        model=job["target"],
        skip_tokenizer_init=True,
        dtype=job["dtype"],
        enforce_eager=True,
        max_model_len=max(map(len, job["prompts"])) + job["max_new_tokens"] + 16,
        max_num_seqs=1,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=KV_BYTES,
        disable_log_stats=False,
        speculative_config=drafting if job["draft"] else None,
    )


def counts(llm: LLM) -> dict[str, int]:
    """Counts by vLLM so far."""
    found = {COUNTERS[m.name]: int(m.value) for m in llm.get_metrics() if m.name in COUNTERS}
    return {"drafts": 0, "accepted": 0, **found}


def decode(llm: LLM, name: str, prompt: list[int], settings: SamplingParams) -> dict[str, Any]:
    """One reply: its ids, and the steps behind the prefill with their seconds on two clocks."""
    llm.llm_engine.add_request(name, {"prompt_token_ids": prompt}, settings)
    ids: list[int] = []
    first, steps, started = 0, 0, (0.0, 0.0)
    while llm.llm_engine.has_unfinished_requests():
        for out in llm.llm_engine.step():
            ids = list(out.outputs[0].token_ids)
        if not first and ids:  # the prefill has given the first token
            first, started = len(ids), (time.perf_counter(), time.process_time())
        else:
            steps += 1
    wall, cpu = time.perf_counter() - started[0], time.process_time() - started[1]
    return {
        "reply": ids,
        "emitted": len(ids) - first,
        "steps": steps,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
    }


def main() -> None:
    """Decodes all prompts, after two short ones that are not counted."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what vLLM prints is no answer
    job = json.load(sys.stdin)
    torch.set_num_threads(1)
    llm = load(job)

    def settings(most: int) -> SamplingParams:
        return SamplingParams(
            temperature=0.0,
            max_tokens=most,
            ignore_eos=True,  # the stop ids are all that ends a reply
            stop_token_ids=job["stop_ids"],
            detokenize=False,
        )

    for i, prompt in enumerate(job["prompts"][:2]):
        decode(llm, f"warm-up {i}", prompt, settings(8))
    rows = []
    for i, prompt in enumerate(job["prompts"]):
        before = counts(llm)
        row = decode(llm, str(i), prompt, settings(job["max_new_tokens"]))
        after = counts(llm)
        rows.append(row | {key: after[key] - before[key] for key in after})
    facts = {"vllm": vllm.__version__, "torch": torch.__version__}
    answers.write(json.dumps({"rows": rows, **facts}) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
