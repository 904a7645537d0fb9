"""One engine of speed.py in this process: transformers or vtrim. The job is JSON on stdin."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from timing import Job, Reply, answer, read_job

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.drafters import drafter_options, make_drafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.models.layout import load_draft
from vtrim.models.lean import fast_target
from vtrim.models.lean_draft import fast_draft
from vtrim.models.target import load_target

# name -> (drafter, acceptor, its options)
VTRIM: dict[str, tuple[str | None, str, dict[str, Any]]] = {
    "vtrim-plain": (None, "greedy", {}),
    "vtrim-ngram": ("ngram", "greedy", {}),
    "vtrim-eagle": ("eagle", "greedy", {}),
    "vtrim-tree": ("tree", "greedy", {}),
    "vtrim-dropmatch": ("eagle", "dropmatch", {"p_drop": "auto"}),
    "vtrim-dropmatch-naive": ("eagle", "dropmatch", {"p_drop": "auto", "criterion": "naive"}),
}
CPU_TREE = {"total_token": 8, "depth": 2, "top_k": 4}  # rows are not free on a CPU
TRANSFORMERS = ("transformers", "prompt-lookup")


def note(text: str) -> None:
    """A remark of the engine, on stderr."""
    print(text, file=sys.stderr)  # noqa: T201


def transformers_reply(job: Job) -> Reply:
    """``generate`` with a dynamic cache, by itself or with n-grams of the text as drafts."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model: Any = AutoModelForCausalLM.from_pretrained(job.target, dtype=torch.bfloat16).eval()
    lookup = {"prompt_lookup_num_tokens": job.num_draft_tokens}
    options: dict[str, Any] = lookup if job.engine == "prompt-lookup" else {}

    def reply(prompt: list[int], count: int) -> list[int]:
        ids = torch.tensor([prompt])
        out = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=count,
            eos_token_id=job.stop_ids,
            pad_token_id=job.stop_ids[0],
            **options,
        )
        new: list[int] = out[0, len(prompt) :].tolist()
        return new

    return reply


def vtrim_reply(job: Job) -> Reply:
    """The engine of vtrim with the lean forward and, where the name says so, a drafter."""
    drafter_name, rule, options = VTRIM[job.engine]
    loaded = load_draft(Path(job.draft)) if job.draft else None
    aux = {} if loaded is None else {"aux_layer_ids": loaded.aux_layer_ids}
    target = fast_target(load_target(job.target, dtype=torch.bfloat16, **aux), note)
    drafter = None
    if drafter_name is not None:
        draft = None if loaded is None else fast_draft(loaded.model.to(torch.bfloat16), note)
        shape = CPU_TREE if drafter_name == "tree" else {}
        drafter = make_drafter(drafter_options(drafter_name, **shape), target, draft=draft)
    engine = Engine(target, drafter)
    acceptor = make_acceptor(rule, **options)

    def reply(prompt: list[int], count: int) -> list[int]:
        settings = GenerationSettings(
            max_new_tokens=count,
            stop_ids=frozenset(job.stop_ids),
            temperature=0.0,
            num_draft_tokens=job.num_draft_tokens,
            seed=0,
        )
        if drafter is None:
            return list(engine.decode_plain(prompt, settings).tokens)
        return list(engine.decode(prompt, settings, acceptor).tokens)

    return reply


def main() -> None:
    """Answers the job on stdin."""
    torch.set_num_threads(1)
    job = read_job()
    with torch.inference_mode():
        answer(job, (transformers_reply if job.engine in TRANSFORMERS else vtrim_reply)(job))


if __name__ == "__main__":
    main()
