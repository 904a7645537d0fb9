"""``vtrim demo``: the whole chain on a real 135M model, from one command."""

from __future__ import annotations

import shlex
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from vtrim.artifacts import Run, read_json
from vtrim.cli import common
from vtrim.config import Recipe, load_recipe, python_command, recipes_folder


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
    from vtrim.models.hub import resolve_model

    common.hush_libraries()
    common.hush_deepspeed()
    recipe = load_recipe(recipes_folder() / "demo" / "smollm2.yaml")
    begun = time.monotonic()
    common.note("preparing the built-in target smollm2 (SmolLM2-135M-Instruct)")
    resolve_model(recipe.target)
    seconds = {"prepare": time.monotonic() - begun}
    for name, arguments in _steps(recipe, run):
        begun = time.monotonic()
        _run_step(arguments)
        seconds[name] = time.monotonic() - begun
    summary = _summary(recipe, Run(run), seconds)
    common.emit_json(summary) if as_json else _show(summary)


def _steps(recipe: Recipe, run: Path) -> list[tuple[str, list[str]]]:
    """Each step's name and command line."""
    where = ["--run", str(run)]
    target = ["--target", recipe.target]
    steps = [
        ("coverage", ["coverage", *recipe.data, *target, *recipe.coverage.arguments(), *where]),
        ("search", ["search", *recipe.search.arguments(), *where]),
        ("train", ["train-draft", *recipe.train.arguments(), *where]),
    ]
    for section in recipe.eval:
        steps.append((f"eval {section.name}", ["eval", *section.arguments(), *where]))
    return [*steps, ("report", ["report", *where])]


def _run_step(arguments: list[str]) -> None:
    """Runs one step in a process of its own, as a user would; its tables go to stderr."""
    import sys

    common.note(f"\n$ vtrim {shlex.join(arguments)}")
    done = subprocess.run([*python_command(), *arguments], stdout=sys.stderr, check=False)  # noqa: S603
    if done.returncode != 0:
        raise typer.Exit(done.returncode)


def _summary(recipe: Recipe, run: Run, seconds: dict[str, float]) -> dict[str, Any]:
    search = read_json(run.search)
    return {
        "target": run.read()["target"]["name"],
        "target_vocab_size": run.read()["target"]["vocab_size"],
        "k": search["k"],
        "coverage": search["coverage"],
        "flops_reduction": search["flops_reduction"],
        "train": run.step("train-draft"),
        "evals": [read_json(run.eval / f"{section.name}.json") for section in recipe.eval],
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
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
