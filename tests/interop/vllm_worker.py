"""Runs of vLLM in vLLM's own environment: a job a line of JSON on stdin, its exit status on stdout.

vLLM is imported once; each job is a fork, which writes ``out`` and, where it fails, ``log``. The
chains that the drafter proposes are noted on the way.
"""

from __future__ import annotations

import os

os.environ |= {  # before vLLM is imported: one process, the network left alone
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}

import json
import sys
import traceback
from pathlib import Path
from typing import Any

from vllm import LLM, SamplingParams
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

KV_BYTES = 2**28  # tens of KiB a token; the default is half of the machine's memory
COUNTERS = {
    "vllm:spec_decode_num_drafts": "rounds",
    "vllm:spec_decode_num_accepted_tokens": "accepted",
}

Chains = dict[str, list[list[int]]]
"""Request id -> what was drafted for it, in order."""


def note_chains(chains: Chains) -> None:
    """Makes vLLM's runner (a CPU's too) note what its drafter proposes."""
    propose = GPUModelRunner.propose_draft_token_ids

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        drafted = propose(self, *args, **kwargs)
        for request, chain in zip(self.input_batch.req_ids, drafted.tolist(), strict=True):
            chains.setdefault(request.partition("-")[0], []).append(chain)
        return drafted

    GPUModelRunner.propose_draft_token_ids = noting


def load(job: dict[str, Any]) -> LLM:
    """The target, with the draft where the job names one; ``target`` null: the draft names it."""
    drafting = {
        "model": job["draft"],
        "method": "eagle3",
        "num_speculative_tokens": job["num_draft_tokens"],
    }
    alone = job["target"] is None
    return LLM(
        model=job["draft"] if alone else job["target"],
        skip_tokenizer_init=True,
        dtype="float32",
        enforce_eager=True,
        max_model_len=max(map(len, job["prompts"])) + job["max_new_tokens"] + 16,
        max_num_seqs=len(job["prompts"]),
        enable_prefix_caching=False,
        kv_cache_memory_bytes=KV_BYTES,
        disable_log_stats=False,
        speculative_config=drafting if job["draft"] and not alone else None,
    )


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Replies, chains and vLLM's own counts of the job's prompts, decoded greedily together."""
    chains: Chains = {}
    note_chains(chains)
    llm = load(job)
    chains.clear()  # those of the profiling run
    settings = SamplingParams(
        temperature=0.0, max_tokens=job["max_new_tokens"], ignore_eos=True, detokenize=False
    )
    prompts = [{"prompt_token_ids": ids} for ids in job["prompts"]]
    replies = llm.generate(prompts, settings, use_tqdm=False)
    return {
        "replies": [list(reply.outputs[0].token_ids) for reply in replies],
        "chains": [chains.get(reply.request_id, []) for reply in replies],
        **{COUNTERS[m.name]: m.value for m in llm.get_metrics() if m.name in COUNTERS},
    }


def fork(job: dict[str, Any]) -> int:
    """Runs a job in a child process; its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        Path(job["out"]).write_text(json.dumps(run(job)), encoding="utf-8")
        status = 0
    except BaseException:  # noqa: BLE001 - a child tells why and ends, whatever it is
        Path(job["log"]).write_text(traceback.format_exc(), encoding="utf-8")
    os._exit(status)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM prints is no answer
    for line in sys.stdin:
        answers.write(f"{fork(json.loads(line))}\n")
        answers.flush()
