"""Decodes the prompts of docs/results/dropmatch.md by every rule, with one drafter a process.

    export OMP_NUM_THREADS=1
    python benchmarks/results/dropmatch_run.py --draft DIR --out eagle3.jsonl
    python benchmarks/results/dropmatch_run.py --skip-layers 10-17 --out skipped.jsonl

A line is written for each finished generation, so that a call goes on where the last one stopped.
Prompt 0 of every set is decoded by all rules, then prompt 1, and so on: whenever the run ends, all
rules have seen the same prompts. The order of the rules turns from prompt to prompt, so that a
machine that slows down favours none. bf16, greedy, one thread. Times are CPU time of the process:
with one thread that is what an idle machine takes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dropmatch_sets import SETS, Rule, prompts_of, rules_of

PROJECT = Path(__file__).resolve().parents[2]
DEFAULT_DATA = Path(os.environ.get("VTRIM_DATA", PROJECT.parent / "shared" / "data"))
SHOWN = ("positions", "p_drop", "agreement", "head_histogram", "head_probability", "js_by_verdict")
Line = dict[str, Any]


def parse() -> argparse.Namespace:
    """What was typed."""
    parser = argparse.ArgumentParser(description=__doc__)
    drafter = parser.add_mutually_exclusive_group(required=True)
    drafter.add_argument("--draft", type=Path, help="folder of an EAGLE-3 draft")
    drafter.add_argument("--skip-layers", help="the target without these blocks, e.g. 10-17")
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--out", type=Path, required=True, help="rows (JSON lines), appended to")
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA)
    parser.add_argument("--only", choices=SETS, action="append", help="a set (default: all)")
    parser.add_argument("--prompts", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--num-draft-tokens", type=int, default=3)
    parser.add_argument("--minutes", type=float, help="start no generation after that long")
    return parser.parse_args()


def main() -> None:
    """Decodes what is not in the file yet."""
    options = parse()
    started = time.monotonic()
    engine, tokenizer, settings, facts = prepare(options)
    done = read_rows(options.out, facts)
    sets = options.only or list(SETS)
    prompts = {name: prompts_of(name, options.data, tokenizer, options.prompts) for name in sets}
    for rule in (Rule("plain"), Rule("greedy")):  # memory and kernels warm up
        decode(engine, prompts[sets[0]][0], settings, rule, 0)
    plain: dict[tuple[str, int], list[int]] = {}
    with options.out.open("a", encoding="utf-8") as out:
        for name, index, rule in work(sets, options.prompts):
            key = (name, index, rule.key)
            if key in done:
                plain.update({(name, index): done[key]["reply"]} if "reply" in done[key] else {})
                continue
            if options.minutes and time.monotonic() - started > 60 * options.minutes:
                break
            row = decode(engine, prompts[name][index], settings, rule, index)
            if rule.criterion == "plain":
                plain[name, index] = row["reply"]
            else:
                row["prefix"] = common_prefix(row.pop("reply"), plain[name, index])
            line = {"set": name, "prompt": index, "rule": rule.key, **row}
            out.write(json.dumps(line) + "\n")
            out.flush()
            seconds = time.monotonic() - started
            sys.stderr.write(f"{seconds:6.0f} s  {name} {index} {rule.key}\n")


def work(sets: list[str], num_prompts: int) -> Iterator[tuple[str, int, Rule]]:
    """All generations, prompt by prompt; plain decoding first, the other rules in turns."""
    for index in range(num_prompts):
        for name in sets:
            plain, *rules = rules_of(name)
            first = index * 5 % len(rules)
            for rule in (plain, *rules[first:], *rules[:first]):
                yield name, index, rule


def prepare(options: argparse.Namespace) -> tuple[Any, Any, Any, Line]:
    """The engine, the tokenizer, the settings, and what decides the rows."""
    import torch
    import transformers

    from vtrim import __version__
    from vtrim.artifacts import Run, fingerprint_json
    from vtrim.decoding import stopwatch
    from vtrim.decoding.engine import Engine
    from vtrim.decoding.generation import GenerationSettings
    from vtrim.evaluation.pairing import TargetSource

    torch.set_num_threads(1)
    stopwatch.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
    transformers.utils.logging.set_verbosity_error()
    source = TargetSource(name=options.target, run=Run(PROJECT / "no-run"), entry={})
    target, drafter, told = load(source, options)
    settings = GenerationSettings(
        max_new_tokens=options.tokens,
        stop_ids=source.stop_ids,
        temperature=0.0,
        num_draft_tokens=options.num_draft_tokens,
        seed=0,
    )
    facts = {
        "target": options.target,
        "target_config": fingerprint_json(source.config),
        "drafter": told,
        "tokens": options.tokens,
        "num_draft_tokens": options.num_draft_tokens,
        "dtype": "bfloat16",
        "forward": "lean" if type(target).__name__ == "LeanTarget" else "transformers",
        "torch": torch.__version__,
        "vtrim": __version__,
        "processor": processor(),
    }
    return Engine(target, drafter), source.tokenizer, settings, facts


def load(source: Any, options: argparse.Namespace) -> tuple[Any, Any, Line]:
    """Target and drafter in bf16, with the lean forward, and what to say of the drafter."""
    import torch

    from vtrim.decoding.drafters import drafter_options
    from vtrim.evaluation.pairing import load_decoder

    if options.draft:
        chosen = drafter_options("eagle")
    else:
        chosen = drafter_options("model", skip_layers=tuple(blocks_of(options.skip_layers)))
    decoder = load_decoder(
        source, chosen, options.draft, dtype=torch.bfloat16, device="cpu", note=sys.stderr.write
    )
    return decoder.target, decoder.drafter, told_of(decoder, options.skip_layers)


def told_of(decoder: Any, skipped: str | None) -> Line:
    """What to say of a drafter, and its fingerprint."""
    if decoder.draft is None:
        blocks = len(blocks_of(skipped or ""))
        told = (
            f"the target itself without {blocks} of its {decoder.target.num_layers} blocks "
            f"({skipped}, counted from 0), not trained; whole vocabulary"
        )
        return {"title": "Layer-skipped", "told": told}
    rows = (decoder.draft.config.get("vtrim") or {}).get("rows")
    data = f", trained on {rows:,} conversations" if isinstance(rows, int) else ""
    return {
        "title": "EAGLE-3",
        "told": f"a chain of an EAGLE-3 draft with {decoder.vocab.size:,} tokens{data}",
        "fingerprint": decoder.facts["draft_fingerprint"],
    }


def blocks_of(text: str) -> list[int]:
    """The block numbers of ``10-17`` or ``3,5,10-12``."""
    blocks: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        blocks += range(int(first), int(last or first) + 1)
    return blocks


def processor() -> str:
    """The model of the processor, as the system names it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "unknown")


def read_rows(path: Path, facts: Line) -> dict[tuple[str, int, str], Line]:
    """The generations that the file holds; a new file gets its first line, a cut one its end off.

    The process stops where the file was made with other inputs.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    whole, newline, cut = text.rpartition("\n")
    if not newline:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(facts) + "\n", encoding="utf-8")
        return {}
    if cut:
        path.write_text(whole + "\n", encoding="utf-8")
    first, *rows = [json.loads(line) for line in whole.splitlines()]
    for name, value in facts.items():
        if first.get(name) != value:
            raise SystemExit(f"{path}: made with {name} {first.get(name)!r}, now {value!r}.")
    return {(row["set"], row["prompt"], row["rule"]): row for row in rows}


def decode(engine: Any, ids: list[int], settings: Any, rule: Rule, prompt: int) -> Line:
    """One generation and its counts; plain decoding keeps its reply for the others."""
    acceptor = rule.acceptor()
    if acceptor is None:
        got = engine.decode_plain(ids, settings, prompt=prompt)
    else:
        got = engine.decode(ids, settings, acceptor, prompt=prompt)
    row: Line = {
        "tokens": len(got.tokens),
        "emitted": got.emitted,
        "rounds": got.rounds,
        "drafted": sum(got.drafted),
        "accepted": sum(got.accepted),
        "reasons": got.reasons,
        "off_argmax": got.off_argmax,
        "log_prob": round(got.log_prob, 3),
        "seconds": {phase: round(value, 4) for phase, value in got.seconds.items()},
        "reply": list(got.tokens),
    }
    return {**row, **seen(acceptor)}


def seen(acceptor: Any) -> Line:
    """What DropMatch noted of its heads, of what the page shows; nothing for other rules."""
    diagnostics = getattr(acceptor, "diagnostics", None)
    if diagnostics is None:
        return {}
    summary = diagnostics.summary()
    names = SHOWN if acceptor.diagnose else ("p_drop",)
    return {"heads": {name: rounded(summary[name]) for name in names}}


def rounded(value: Any) -> Any:
    """Numbers to six digits: a row stays short."""
    if isinstance(value, dict):
        return {name: rounded(one) for name, one in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def common_prefix(a: list[int], b: list[int]) -> float:
    """Share of the longer reply before the first token that differs."""
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
    return (min(len(a), len(b)) if same is None else same) / max(len(a), len(b))


if __name__ == "__main__":
    main()
