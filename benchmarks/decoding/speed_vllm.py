"""vLLM on a CPU as an engine of speed.py, in vLLM's own environment. The job is JSON on stdin."""

from __future__ import annotations

import os

os.environ |= {  # before vLLM is imported: one process, one core, little memory
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}

from timing import Job, Reply, answer, read_job
from vllm import LLM, SamplingParams

PROMPT_LOOKUP_MAX = 4


def vllm_reply(job: Job) -> Reply:
    """The offline engine of vLLM, by itself or with n-grams of the text as drafts."""
    ngram = {
        "method": "ngram",
        "num_speculative_tokens": job.num_draft_tokens,
        "prompt_lookup_max": PROMPT_LOOKUP_MAX,
    }
    llm = LLM(
        model=job.target,
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=max(map(len, job.prompts)) + job.max_new_tokens + 16,
        max_num_seqs=1,
        enable_prefix_caching=False,
        speculative_config=ngram if job.engine == "vllm-ngram" else None,
    )

    def reply(prompt: list[int], count: int) -> list[int]:
        settings = SamplingParams(
            temperature=0.0,
            max_tokens=count,
            ignore_eos=True,  # the stop ids below are all that ends a reply
            stop_token_ids=job.stop_ids,
            detokenize=False,
        )
        (out,) = llm.generate([{"prompt_token_ids": prompt}], settings, use_tqdm=False)
        return list(out.outputs[0].token_ids)

    return reply


if __name__ == "__main__":
    job = read_job()
    answer(job, vllm_reply(job))
