"""arXiv:2603.03333, DropMatch, beside our rows."""

from __future__ import annotations

from collections.abc import Iterator

import dropmatch_paper as paper
import dropmatch_tables
import numpy as np
from dropmatch import recorded
from dropmatch_rows import Measured, Row, seconds
from dropmatch_sets import HEADS, SETS, Rule
from tabular import DIFFERS, between, number, percent, table

from vtrim.evaluation.bootstrap import interval_between

MODEL = "a 135 M target"


def parts() -> list[str]:
    """The sections of the page."""
    measured = recorded()
    return [
        "## DropMatch (2603.03333)",
        introduction(measured),
        heads_table(measured),
        votes_table(measured),
        divergence_table(measured),
        cost_table(measured),
        standard_table(measured),
        eagle_table(measured),
        foreign_table(measured),
        NOT_REPEATED,
    ]


def introduction(measured: list[Measured]) -> str:
    """What decodes here."""
    drafters = "\n".join(f"- *{one.title}*: {one.facts['drafter']['told']}." for one in measured)
    return f"""
The target here is {measured[0].facts["target"]} (135 M parameters). Drafters
([all rules and sets](dropmatch.md)):

{drafters}

Under p 0.3 this target's heads scatter, so rows at `auto` stand beside: the most noise at which the
heads keep the clean arg-max at 90 % of a prompt's last positions; in brackets its mean."""


def loop(measured: list[Measured]) -> str:
    """How decoding differs from the paper's."""
    facts = measured[0].facts
    return (
        f"chains of {facts['num_draft_tokens']}, {facts['tokens']} tokens a reply, "
        f"{facts['dtype']}, one CPU core; drift in place of a score"
    )


def heads_table(measured: list[Measured]) -> str:
    """What single heads are worth (Table 1)."""
    rows = [["paper, 70B", "0", f"pass@1 {paper.NO_DROPOUT}", "-"]]
    for p, scores in paper.HEADS.items():
        rows.append(["paper, 70B", f"{p}", f"pass@1 {min(scores)} to {max(scores)}", "-"])
    differs = f"no pass@1: share of heads at the clean arg-max; {MODEL}"
    for one, p, row in _judged(measured):
        rows.append([f"here, {one.title}", p, percent(row.agreement), differs])
    return f"""### Table 1: single dropout heads on HumanEval

{table(["", "p", "five heads", DIFFERS], rows)}"""


def votes_table(measured: list[Measured]) -> str:
    """How many of five heads agree (Table 2)."""
    columns = ["", "p", *(f"{n} of {HEADS}" for n in paper.VOTES), DIFFERS]
    shares = [f"{share:.2f} %" for share, _ in paper.VOTES.values()]
    rows = [["paper, 70B", "0.3", *shares, "-"]]
    for one, p, row in _judged(measured):
        cells = [percent(row.votes.get(n, 0.0), 2) for n in paper.VOTES]
        rows.append([f"here, {one.title}", p, *cells, f"{MODEL}; {row.positions} positions"])
    return f"""### Table 2: size of the majority

{table(columns, rows)}"""


def divergence_table(measured: list[Measured]) -> str:
    """Distances to the centroid (Table 3)."""
    columns = ["", "p", "accepted by", "JS(centroid, draft)", "JS(centroid, heads)", DIFFERS]
    rows = [
        ["paper, 70B", "0.3", verdict, f"{draft:.4f}", f"{heads:.4f}", "-"]
        for verdict, (draft, heads) in paper.DIVERGENCE.items()
    ]
    for one, p, row in _judged(measured):
        for verdict in paper.DIVERGENCE:
            found = row.divergence(verdict)
            if found is not None:
                cells = [number(found[1], 4), number(found[2], 4)]
                rows.append([f"here, {one.title}", p, verdict, *cells, DIVERGENCE_DIFFERS])
    return f"""### Table 3: how far the laws lie

{table(columns, rows, words=3)}"""


DIVERGENCE_DIFFERS = "a far weaker draft, a trimmed one for EAGLE-3; mean over the heads"


def cost_table(measured: list[Measured]) -> str:
    """Share of a cycle that acceptance takes (Table 4)."""
    rows = [
        ["paper, 70B", rule, f"{share} % ({told})", "-"]
        for rule, (share, told) in paper.CYCLE.items()
    ]
    differs = "a 135 M forward on one CPU core: the head is a far larger part of it"
    for one in measured:
        for rule in paper.CYCLE:
            row = one.row(Rule(rule, 0.3, HEADS).key, *one.sets)
            if row is not None:
                rows.append([f"here, {one.title}", rule, percent(row.share("accept")), differs])
    return f"""### Table 4: what acceptance costs of a cycle (p 0.3, K 5)

{table(["", "rule", "share", DIFFERS], rows, words=2)}"""


def standard_table(measured: list[Measured]) -> str:
    """A standalone draft with and without DropMatch (Table 6)."""
    rows = [
        _printed(f"paper, {pair}, L {length}", name, own, its)
        for (pair, length), sets in paper.STANDARD_PAIRS.items()
        for name, (own, its) in sets.items()
    ]
    skipped = [one for one in measured if one.title != "EAGLE-3"]
    rows += _gains(
        skipped, "js", ("gsm8k", "humaneval"), f"a draft without training; {loop(measured)}"
    )
    return f"""### Table 6: a standalone draft, JS rule

{table(GAIN_COLUMNS, rows, words=2)}

*Time*: tokens per second with DropMatch over without, same draft. Ours: 95 % interval over the
prompts of the set, ten each. The paper's MMLU and IFEval rows have none of ours beside them."""


def eagle_table(measured: list[Measured]) -> str:
    """An EAGLE-3 draft with and without DropMatch (Table 7)."""
    rows = [
        _printed(f"paper, EAGLE-3 tree, L {length}", name, own, its)
        for length, sets in paper.EAGLE3_TREES.items()
        for name, (own, its) in sets.items()
    ]
    eagle = [one for one in measured if one.title == "EAGLE-3"]
    rows += _gains(
        eagle, "naive", ("gsm8k", "mt_bench"), f"a small trimmed draft; {loop(measured)}"
    )
    return f"""### Table 7: an EAGLE-3 draft, naive rule

{table(GAIN_COLUMNS, rows, words=2)}"""


def foreign_table(measured: list[Measured]) -> str:
    """Text that the draft does not know (Table 10)."""
    dm = paper.FOREIGN
    rows = [
        ["paper, 8B for 70B", "KoMT-Bench", number(dm["standard"]), number(dm["standard+DM"]), "-"],
        ["paper, EAGLE-3", "KoMT-Bench", number(dm["EAGLE3"]), "-", "-"],
    ]
    for one in measured:
        for name in (name for name in dropmatch_tables.FOREIGN if name in one.sets):
            lengths = [one.row(key, name) for key in ("greedy", Rule("full", "auto", HEADS).key)]
            cells = [number(None if row is None else row.length) for row in lengths]
            rows.append([f"here, {one.title}", SETS[name].title, *cells, FOREIGN_DIFFERS])
    columns = ["", "text", "tokens/round", "with DropMatch", DIFFERS]
    return f"""### Table 10: out of the draft's domain

{table(columns, rows, words=2)}"""


FOREIGN_DIFFERS = (
    "MGSM for KoMT-Bench; the draft saw English text mostly; L 3, Algorithm 1 at p auto"
)
GAIN_COLUMNS = ["", "data", "tokens/round", "with DropMatch", "time", "score or drift"]
GAIN_COLUMNS += [DIFFERS]
NOT_REPEATED = """
Not repeated: Table 5 (throughput by batch size on four A100), Tables 8 and 9 (Auto-Judge has a
learned judge, which vtrim has not), and task scores: replies are cut here, so a score would tell
nothing; the share of tokens off the clean arg-max stands for it. `benchmarks/gpu` holds a session
for one GPU.
"""


def _judged(measured: list[Measured]) -> Iterator[tuple[Measured, str, Row]]:
    """Drafter, noise and row of Algorithm 1 on HumanEval, at auto and at the paper's p."""
    for one in measured:
        for p in ("auto", 0.3):
            row = one.row(Rule("full", p, HEADS, diagnose=True).key, "humaneval")
            if row is not None:
                yield one, dropmatch_tables.named(Rule("full", p, HEADS), row)[1], row


def _printed(title: str, name: str, own: paper.Cell, its: paper.Cell) -> list[str]:
    """A row of the paper: lengths, time over the same draft, scores."""
    data = {"mmlu": "MMLU", "ifeval": "IFEval", "alpaca": "Alpaca"}.get(name) or SETS[name].title
    score = f"{own[2]:g} to {its[2]:g}"
    return [title, data, number(own[1]), number(its[1]), number(its[0] / own[0]), score, "-"]


def _gains(
    measured: list[Measured], rule: str, sets: tuple[str, ...], differs: str
) -> list[list[str]]:
    rows = []
    for one in measured:
        for name in sets:
            for p in ("auto", 0.3):
                row, greedy = one.row(Rule(rule, p, HEADS).key, name), one.row("greedy", name)
                if row is None or greedy is None:
                    continue
                noise = dropmatch_tables.named(Rule(rule, p, HEADS), row)[1]
                time = f"{number(row.over(greedy))} ({between(_bounds(row, greedy))})"
                drift = f"{percent(row.off_argmax)} off the clean arg-max"
                lengths = [number(greedy.length), number(row.length)]
                title = f"here, {one.title}, {rule}, p {noise}"
                rows.append([title, SETS[name].title, *lengths, time, drift, differs])
    return rows


def _bounds(row: Row, other: Row) -> tuple[float, float] | None:
    """95 % interval of a rule's speed over another's, prompts drawn in pairs."""
    sides = [
        {(line["set"], line["prompt"]): (line["emitted"], seconds([line])) for line in one.lines}
        for one in (row, other)
    ]
    its, own = ([side[place] for place in sides[0]] for side in sides)
    return interval_between(own, its, np.divide, np.divide)
