"""``vtrim demo``: the whole chain on a real 135M model, from one command."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from vtrim.artifacts import Run, read_json
from vtrim.cli import common
from vtrim.config import find_recipe, load_recipe


def demo(
    run: Annotated[
        Path, typer.Option("--run", help="Run folder of the demo.", show_default=True)
    ] = Path("vtrim-run-demo"),
    as_json: common.JsonOption = False,
) -> None:
    """Show vocabulary trimming and DropMatch at work on SmolLM2-135M, in minutes on a CPU.

    Counts the replies that ship with vtrim, chooses the vocabulary, trains a draft, decodes with
    it, writes report.html and prints one table. Each step is printed as you would type it.

    Example: vtrim demo --run my-demo
    """
    from vtrim.cli.chain import chain_steps
    from vtrim.cli.chain_run import run_chain
    from vtrim.models.hub import resolve_model

    common.hush_libraries()
    common.hush_deepspeed()
    recipe, folder = load_recipe(find_recipe("demo/smollm2")), Run(run)
    begun = time.monotonic()
    common.note("preparing the built-in target smollm2 (SmolLM2-135M-Instruct)")
    resolve_model(recipe.target)
    seconds = {"prepare": round(time.monotonic() - begun, 1)}
    steps = chain_steps(recipe, folder)
    done = run_chain(steps, steps, folder, results_on_stderr=True)
    seconds |= {step["step"].replace("-draft", ""): step["seconds"] for step in done}
    summary = _summary(folder, seconds)
    common.emit_json(summary) if as_json else _show(summary)


def _summary(run: Run, seconds: dict[str, float]) -> dict[str, Any]:
    search = read_json(run.search)
    evals = [name.partition(" ")[2] for name in seconds if name.startswith("eval ")]
    return {
        "target": run.read()["target"]["name"],
        "target_vocab_size": run.read()["target"]["vocab_size"],
        "k": search["k"],
        "coverage": search["coverage"],
        "flops_reduction": search["flops_reduction"],
        "train": run.step("train-draft"),
        "evals": [read_json(run.eval / f"{name}.json") for name in evals],
        "seconds": seconds,
        "report": str(run.report),
    }


def _show(summary: dict[str, Any]) -> None:
    """One table that a person understands."""
    from rich.table import Table

    k, size = summary["k"], summary["target_vocab_size"]
    common.results.print(
        f"\n{summary['target']}: the draft keeps {k:,} of {size:,} tokens "
        f"({100 * k / size:.0f} %), which cover {100 * summary['coverage']:.1f} % of what the "
        f"target says and cut {100 * summary['flops_reduction']:.0f} % of the draft's FLOPs.",
        markup=False,
    )
    table = Table(title="Decoding on held-out prompts")
    table.add_column("", no_wrap=True)
    for name in ("tokens/s", "speed-up", "tokens a round", "not the target's"):
        table.add_column(name, justify="right")
    rows = [row for entry in summary["evals"] for row in _rows(entry)]
    first = summary["evals"][0]
    speed, off = first["plain_tokens_per_second"], first["plain"]["off_argmax_share"]
    table.add_row("plain decoding", f"{speed:.1f}", "1.00", "1.00", f"{100 * off:.1f} %")
    for row in rows:
        table.add_row(*row)
    common.results.print(table)
    total = sum(summary["seconds"].values())
    common.results.print(f"report: {summary['report']}   total {total / 60:.1f} min", markup=False)


def _rows(entry: dict[str, Any]) -> list[tuple[str, ...]]:
    """The exact rule and, where the entry measured one, the lossy rule."""
    exact = entry.get("exact") or entry
    rows = [_row("trimmed draft, exact", exact)]
    if entry.get("exact"):
        settings = entry["settings"]["acceptor"]
        name = f"{entry['acceptor']} (p {settings['p_drop']}), lossy"
        rows.append(_row(name, entry))
    return rows


def _row(name: str, numbers: dict[str, Any]) -> tuple[str, ...]:
    return (
        name,
        f"{numbers['tokens_per_second']:.1f}",
        f"{numbers['speedup']:.2f}",
        f"{numbers['acceptance_length']:.2f}",
        f"{100 * numbers['off_argmax_share']:.1f} %",
    )
