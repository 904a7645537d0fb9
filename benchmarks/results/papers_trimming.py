"""arXiv:2603.05210, balancing coverage and draft latency, beside our rows."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from tabular import DIFFERS, change, change_between, percent, table

from vtrim.flops.cost import draft_flops
from vtrim.shape import DraftShape

HERE = Path(__file__).resolve().parent
VLLM = HERE.parent / "vllm"
sys.path.append(str(HERE.parent / "domains"))  # domain_measured, domain_tables
SMOLLM2 = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "vocab_size": 49152,
    "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64, "rms_norm_eps": 1e-5,
    "rope_theta": 100000.0, "max_position_embeddings": 8192, "model_type": "llama",
}  # fmt: skip
PAPER_K = 13_264
DOMAINS = {"general chat": "general", "function calling": "tools", "NER": "ner"}


def parts() -> list[str]:
    """The sections of the page."""
    counted = json.loads((HERE / "coverage.json").read_text(encoding="utf-8"))
    return [
        "## Balancing coverage and draft latency in vocabulary trimming (2603.05210)",
        cost_table(),
        size_table(counted),
        coverage_table(counted),
        stability_table(counted),
        speed_table(),
        engine_table(),
        NOT_REPEATED,
    ]


def cost_table() -> str:
    """FLOPs of a draft token (Table 1)."""
    llama = json.loads((HERE / "llama31_8b.json").read_text(encoding="utf-8"))
    columns = ["", "fc", "attention", "MLP", "LM head", "total", "LM head's share"]
    rows = [["paper, LLaMA-3-8B", "-", "-", "-", "1,050.7 M", "-", "64.2 %", "-"]]
    differs = ("nothing: same shape, same count (64.15 %)", "another shape")
    for title, config, note in zip(("Llama-3.1-8B", "SmolLM2-135M"), (llama, SMOLLM2), differs,
                                   strict=True):  # fmt: skip
        cost = draft_flops(DraftShape.from_target_config(config))
        counts = (cost.fc, cost.attention, cost.mlp, cost.lm_head, cost.total)
        cells = [f"{count / 1e6:,.1f} M" for count in counts]
        rows.append([f"here, {title}", *cells, percent(cost.lm_head_share, 2), note])
    return f"""### Table 1: what a draft token costs

{table([*columns, DIFFERS], rows)}

Of Table 1 we could read the LM head's row alone; the others follow from the authors' script."""


def size_table(counted: dict[str, Any]) -> str:
    """k* of each domain."""
    columns = ["data", "paper's k", "here, its settings (0.5, no floor)", "here, 0.6 and 0.95"]
    unknown = "the paper's data and settings are not known"
    notes = {
        "general chat": "other chat data; the paper's script counts the first 50,000 conversations "
        "of Open-PerfectBlend",
        "function calling": f"so few that k tells how much was counted; {unknown}",
        "NER": f"other corpora; the reply is a JSON list; {unknown}",
    }
    rows = []
    for name, study in counted["studies"].items():
        sizes = [study["presets"][preset]["k"] for preset in ("paper", "default")]
        cells = [f"{size:,}" for size in (study["paper_k"], *sizes)]
        tokens = f"{study['tokens'] / 1e6:.1f} M reply tokens"
        rows.append([name, *cells, f"{tokens}; {notes[name]}"])
    return f"""### Chosen sizes

Llama 3.1's tokenizer and Llama-3.1-8B's draft, as in the paper ([more](coverage.md)).

{table([*columns, DIFFERS], rows)}"""


def coverage_table(counted: dict[str, Any]) -> str:
    """Share of text that the vocabulary covers."""
    chat = counted["studies"]["general chat"]["presets"]
    columns = ["vocabulary", "text", "C", DIFFERS]
    rows = [["paper, 13,264", "written by the target on five benchmarks, mean", "97.1 %", "-"]]
    for preset, at in chat.items():
        share, text = percent(at["heldout_coverage"]), "held-out conversations of the same data"
        note = f"in domain; replies of many authors, not of one target; preset {preset}"
        rows.append([f"here, {at['k']:,}", text, share, note])
    return f"""### Coverage of new text

{table(columns, rows, words=2)}"""


def stability_table(counted: dict[str, Any]) -> str:
    """k* of 10,000 conversations."""
    study, parts = counted["studies"]["general chat"], counted["stability"]["general chat"]
    columns = ["", "k* of 10,000 conversations", "k* of all", DIFFERS]
    rows = [["paper", "about 13,000", f"{PAPER_K:,}", "-"]]
    part = next(part for part in parts if part["rows"] == 10_000)
    _, least, most = part["paper"]
    note = "shorter conversations: 1.0 M reply tokens in 10,000"
    whole = f"{study['presets']['paper']['k']:,} ({study['rows']:,})"
    rows.append(["here, general chat", f"{least:,} to {most:,} (5 draws)", whole, note])
    return f"""### How much data k* needs

{table(columns, rows)}"""


def speed_table() -> str:
    """Latency, throughput and accepted length against the whole vocabulary."""
    from domain_measured import LATENCY, LENGTH, THROUGHPUT, Measured
    from domain_tables import PAPER

    columns = ["domain", "", "k", "latency", "throughput", "accepted length", DIFFERS]
    record = HERE / "domains.json"
    measured = Measured(json.loads(record.read_text("utf-8"))) if record.exists() else None
    rows = []
    for title, domain in DOMAINS.items():
        rows.append([title, "paper", *PAPER[domain]])
        found = measured.compared(domain, "own") if measured else None
        if measured and found:
            size = f"{measured.size(domain, 'own'):,} of {measured.total(domain):,}"
            cells = [
                f"{change(found.change(of))} ({change_between(found.bounds(of))})"
                for of in (LATENCY, THROUGHPUT, LENGTH)
            ]
            rows.append([title, "here", size, *cells, SPEED_DIFFERS])
    ours = "not measured here yet (no `benchmarks/results/domains.json`)"
    if measured:
        ours = "ours with 95 % intervals over prompts ([more](domains.md))"
    return f"""### What trimming gains

Change against the whole-vocabulary draft; {ours}.

{table(columns, rows, words=2)}"""


SPEED_DIFFERS = (
    "SmolLM2-135M on one CPU core in vtrim's own loop; drafts trained for minutes; prompts of the "
    "domain, held out (the paper's general row is out of domain)"
)


def engine_table() -> str:
    """The same in an engine that serves; nothing where it was not measured."""
    record = VLLM / "last_result.json"
    if not record.exists():
        return ""
    spec = importlib.util.spec_from_file_location("vllm_page", VLLM / "page.py")
    assert spec is not None  # noqa: S101 - a file of ours
    assert spec.loader is not None  # noqa: S101
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    measured = json.loads(record.read_text(encoding="utf-8"))
    its, rounds = measured["settings"], measured["rounds"]
    found = [
        page.lead(*(page.speeds(rounds, name, "cpu_seconds") for name in ("trimmed", "full"))),
        page.lead(*(page.lengths(rounds, name) for name in ("trimmed", "full"))),
    ]
    cells = [f"{change(share)} ({change_between(bounds)})" for share, bounds, _ in found]
    size = f"{its['drafts']['trimmed']['k']:,} of {its['target_vocab_size']:,}"
    rows = [
        ["paper, SGLang on an A100", "13,264 of 128,256", "+2.2 to +6.7 %", "not known", "-"],
        [f"here, vLLM {measured['versions']['vllm']} on a CPU", size, *cells, ENGINE_DIFFERS],
    ]
    columns = ["", "k", "throughput", "accepted length", DIFFERS]
    return f"""### In an engine that serves

Trimmed against whole vocabulary ([more](vllm.md)).

{table(columns, rows)}"""


ENGINE_DIFFERS = "SmolLM2-135M on one CPU core; tokens per CPU second; drafts trained for minutes"

NOT_REPEATED = """
Not repeated: throughput by benchmark (MT-Bench, GSM8K, HumanEval, MATH500, AIME) with an 8B target
and the training of its drafts need GPUs; the paper's own numbers by benchmark could not be read
either.
"""
