"""A result of ``bench.py`` as Markdown."""

from __future__ import annotations

from typing import Any

from peers import FLOOR, PEERS

_BASE = "SpecForge's way"


def as_markdown(result: dict[str, Any]) -> str:
    """Tokens per CPU second, their ratios, and memory."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    any_model = next(iter(result["models"].values()))
    lines = [
        f"{', '.join(result['data'])}: {any_model['conversations']:,} plain conversations. "
        f"{machine['processor']}, one core of {machine['cores']}; Python {machine['python']}, "
        f"{versions}. Least CPU seconds of {result['repeats']} alternating runs; the four "
        f"other tools' ways count every {result['peers_count_every']}th conversation.",
        "",
        "Tokens per CPU second (times SpecForge's way; times the bare encoding):",
        "",
        f"| | {' | '.join(result['models'])} |",
        f"|---|{'---|' * len(result['models'])}",
    ]
    for label in [*PEERS, FLOOR, "vtrim, tokenizers", "vtrim, gigatoken"]:
        cells = [
            _rate(model["tokens_per_cpu_second"], label) for model in result["models"].values()
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    starts = [_starts(model["start_cpu_seconds"]) for model in result["models"].values()]
    lines.append(f"| proving the encoder, once a process [CPU s] | {' | '.join(starts)} |")
    lines += [
        "",
        "| resident memory of the process [MiB] | tokenizer loaded | peak |",
        "|---|---|---|",
    ]
    for label, found in result["memory_mib"].items():
        lines.append(f"| {label} | {found['loaded']:.0f} | {found['peak']:.0f} |")
    return "\n".join(lines) + "\n"


def _rate(rates: dict[str, int], label: str) -> str:
    if label not in rates:
        return "-"
    rate = rates[label]
    return f"{rate / 1e3:,.0f} K ({rate / rates[_BASE]:.1f}; {rate / rates[FLOOR]:.2f})"


def _starts(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in seconds.items())
