"""The tables of docs/results/dropmatch.md as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import dropmatch_paper as paper
from dropmatch_rows import Measured, Row
from dropmatch_sets import CRITERIA, HEADS, P_DROPS, SETS, Rule, rules_of
from tabular import number, percent, table

ENGLISH = ("mt_bench", "gsm8k", "humaneval")
FOREIGN = ("mgsm_de", "mgsm_zh", "mgsm_ja")
COLUMNS = ("rule", "p", "K", "prompts", "tokens/round", "tokens/s", "speed-up", "over greedy")
COLUMNS += ("off arg-max", "log p change", "same as plain", "acceptance")

PRINTED = (
    ("paper: 8B for 70B, L 5", "js, p 0.3", paper.STANDARD),
    ("paper: EAGLE-3 tree, L 5", "naive, p 0.3", paper.EAGLE3),
)


def rule_table(measured: Measured, sets: Sequence[str], rules: Sequence[Rule]) -> str:
    """All rules on these sets together."""
    return table(COLUMNS, rule_rows(measured, sets, rules))


def rule_rows(
    measured: Measured, sets: Sequence[str], rules: Sequence[Rule]
) -> Iterable[list[str]]:
    """A row a rule that was measured on all of these sets."""
    greedy = measured.row("greedy", *sets)
    for rule in rules:
        row = measured.row(rule.key, *sets)
        if row is not None:
            yield [*named(rule, row), *numbers(row, greedy)]


def named(rule: Rule, row: Row) -> list[str]:
    """What was done: rule, p and heads."""
    if rule.p_drop is None:
        return [rule.criterion, "", ""]
    p = f"auto ({number(row.p_drop, 3)})" if rule.p_drop == "auto" else f"{rule.p_drop}"
    return [rule.criterion, p, str(rule.heads)]


def numbers(row: Row, greedy: Row | None) -> list[str]:
    """What came of it."""
    over = row.over(greedy)
    return [
        str(row.prompts),
        number(row.length),
        number(row.speed, 1),
        number(row.speedup),
        number(over),
        percent(row.off_argmax),
        number(row.log_prob_change, 3),
        percent(row.prefix, 0),
        percent(row.share("accept")),
    ]


def set_tables(measured: Measured) -> str:
    """Every set by itself."""
    parts = [
        f"### {SETS[name].title}\n\n{rule_table(measured, [name], timed(rules_of(name)))}"
        for name in measured.sets
    ]
    return "\n\n".join(parts)


def timed(rules: Sequence[Rule]) -> list[Rule]:
    """Those whose rows tell a speed."""
    return [rule for rule in rules if not rule.diagnose]


def votes_table(measured: Sequence[Measured]) -> str:
    """How many heads agree, beside the paper's Table 2."""
    head = ["drafter", "p", "positions", *(f"{n} of {HEADS}" for n in paper.VOTES)]
    head += ["mean probability, 1 to 5 heads", "heads at the clean arg-max"]
    shares = [f"{share:.2f} %" for share, _ in paper.VOTES.values()]
    means = ", ".join(f"{p:.2f}" for _, p in paper.VOTES.values())
    rows = [["paper, 70B", "0.3", "-", *shares, means, "-"]]
    for one in measured:
        for p in P_DROPS:
            row = one.row(Rule("full", p, HEADS, diagnose=True).key, "humaneval")
            if row is not None:
                shares = [percent(row.votes.get(n, 0.0), 2) for n in paper.VOTES]
                means = ", ".join(number(row.vote_probability(n)) for n in paper.VOTES)
                noise = named(Rule("full", p, HEADS), row)[1]
                judged = [one.title, noise, f"{row.positions:,}", *shares, means]
                rows.append([*judged, percent(row.agreement)])
    return table(head, rows)


def divergence_table(measured: Sequence[Measured]) -> str:
    """Mean JS to the centroid by verdict, beside the paper's Table 3."""
    columns = ["drafter", "p", "accepted by", "positions", "JS(centroid, draft)"]
    columns += ["JS(centroid, heads), mean head", "farthest head"]
    rows = [
        ["paper, 70B", "0.3", verdict, "-", f"{draft:.4f}", f"{heads:.4f}", "-"]
        for verdict, (draft, heads) in paper.DIVERGENCE.items()
    ]
    for one in measured:
        for p in P_DROPS:
            row = one.row(Rule("full", p, HEADS, diagnose=True).key, "humaneval")
            if row is None:
                continue
            noise = named(Rule("full", p, HEADS), row)[1]
            for verdict in ("js", "majority", "clean", "rejected"):
                found = row.divergence(verdict)
                if found is not None:
                    count, *means = found
                    cells = [number(value, 4) for value in means]
                    rows.append([one.title, noise, verdict, f"{count:,.0f}", *cells])
    return table(columns, rows)


def cycle_table(measured: Sequence[Measured]) -> str:
    """What acceptance takes of a round, beside the paper's Table 4."""
    columns = ["drafter", "rule", "draft", "verify", "accept", "other", "paper, accept"]
    rows = []
    for one in measured:
        rules = [Rule("greedy"), *(Rule(criterion, 0.3, HEADS) for criterion in CRITERIA)]
        for rule in rules:
            row = one.row(rule.key, *one.sets)
            if row is not None:
                shares = [percent(row.share(name)) for name in ("draft", "verify", "accept")]
                shares.append(percent(row.share("other")))
                its = paper.CYCLE.get(rule.criterion)
                printed = "-" if its is None else f"{its[0]} % ({its[1]})"
                rows.append([one.title, rule.criterion, *shares, printed])
    return table(columns, rows)


def gain_table(measured: Sequence[Measured]) -> str:
    """What DropMatch adds to greedy matching with the same draft, beside Tables 6 and 7."""
    columns = ["data", "drafter", "rule", "tokens/round, greedy", "with DropMatch", "ratio"]
    columns += ["time ratio", "off arg-max"]
    rows = []
    for title, rule, printed in PRINTED:
        for name, (own, its, speed) in printed.items():
            cells = [number(own), number(its), number(its / own), number(speed), "not told"]
            rows.append([SETS[name].title, title, rule, *cells])
    for one in measured:
        for name in (name for name in ENGLISH if name in one.sets):
            for rule in (Rule(c, p, HEADS) for p in ("auto", 0.3) for c in ("naive", "full")):
                row, greedy = one.row(rule.key, name), one.row("greedy", name)
                if row is not None and greedy is not None:
                    rows.append([SETS[name].title, one.title, *_gain(rule, row, greedy)])
    return table(columns, rows)


def foreign_table(measured: Sequence[Measured]) -> str:
    """Out-of-domain text, beside the paper's Table 10."""
    columns = ["drafter", "text", "tokens/round, greedy", "naive, p auto", "full, p auto"]
    columns += ["naive, p 0.3", "full, p 0.3", "off arg-max there"]
    told = {name: number(value) for name, value in paper.FOREIGN.items()}
    with_dm = f"{told['standard+DM']} (rule not told)"
    rows = [
        ["paper: 8B for 70B, L 7", "KoMT-Bench", told["standard"], "-", "-", "-", with_dm, "-"],
        ["paper: EAGLE-3, L 7", "KoMT-Bench", told["EAGLE3"], "-", "-", "-", "-", "-"],
    ]
    for one in measured:
        for name in (name for name in (*ENGLISH, *FOREIGN) if name in one.sets):
            keys = [Rule(c, p, HEADS).key for p in ("auto", 0.3) for c in ("naive", "full")]
            found = [one.row(key, name) for key in ("greedy", *keys)]
            lengths = [number(None if row is None else row.length) for row in found]
            off = [percent(None if row is None else row.off_argmax) for row in found[3:]]
            rows.append([one.title, SETS[name].title, *lengths, ", ".join(off)])
    return table(columns, rows)


def _gain(rule: Rule, row: Row, greedy: Row) -> list[str]:
    more = None if row.length is None or greedy.length is None else row.length / greedy.length
    noise = f"auto ({number(row.p_drop, 3)})" if rule.p_drop == "auto" else f"{rule.p_drop}"
    return [
        f"{rule.criterion}, p {noise}",
        number(greedy.length),
        number(row.length),
        number(more),
        number(row.over(greedy)),
        percent(row.off_argmax),
    ]
