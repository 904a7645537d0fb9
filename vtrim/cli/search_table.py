"""How a search is shown: a table and a few lines that put it into proportion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from vtrim.cli import common
from vtrim.cli.token_text import Texts
from vtrim.trimming.analysis import TokenCount
from vtrim.trimming.search import SearchResult
from vtrim.trimming.throughput import PLATEAU as SPEED_PLATEAU
from vtrim.trimming.throughput import ThroughputObjective

_EDGE = 3  # tokens shown on each side of the edge
_FORCED = 6


def print_search(result: SearchResult, artifact: Path, texts: Texts) -> None:
    """Prints the table on stdout and where the vocabulary went on stderr."""
    common.results.print(_table(result))
    for line in (*_lines(result), *_token_lines(result, texts)):
        common.results.print(line, markup=False, soft_wrap=True)
    how = f"sampler {result.settings.sampler}"
    if result.settings.align:
        how += f", aligned to {result.settings.align}"
    common.note(f"{artifact} written: {result.chosen.k:,} ids ({how}).")


def _title(result: SearchResult) -> str:
    settings, objective = result.settings, result.objective
    floor = f"cmin {float(settings.cmin):g}"
    if isinstance(objective, ThroughputObjective):
        drafted, batch = objective.times.num_draft_tokens, objective.times.batch
        together = f", batch {batch}" if batch > 1 else ""
        return (
            f"Draft vocabulary: most tokens/s, L {drafted}, a0 {objective.a0:g}, {floor}{together}"
        )
    if objective.name == "budget":
        return f"Draft vocabulary: fewest rows, {floor}"
    return f"Draft vocabulary: alpha {float(settings.alpha):g}, {floor}"


def _columns(result: SearchResult) -> tuple[str, ...]:
    """What is shown of a size besides its coverage; a budget weighs nothing, so no utility."""
    if isinstance(result.objective, ThroughputObjective):
        return ("tau", "tokens/s", "x full", "x plain")
    return ("FLOPs saved",) if result.objective.name == "budget" else ("FLOPs saved", "utility")


def _table(result: SearchResult) -> Table:
    """What the samplers found, and below it other sizes on the front of coverage and cost."""
    speed = isinstance(result.objective, ThroughputObjective)
    last = _columns(result)
    table = Table(
        title=_title(result),
        title_justify="left",
        caption_justify="left",
        pad_edge=not speed,  # eight columns just fit into 80 characters
    )
    table.add_column("size")
    for name in ("k", "coverage", "held-out", *last):
        table.add_column(name, justify="right")
    found = {"tpe": result.tpe, "exact": result.exact}
    written = result.settings.sampler
    if result.settings.align is not None:
        written = "aligned"
        found[written] = result.chosen
    for name, point in found.items():
        if point is not None:
            table.add_row(name + (" *" if name == written else ""), *_cells(result, point.k))
    table.add_section()
    below = False
    for point in result.pareto["points"]:
        if point["name"] not in ("exact", "chosen"):
            below |= not point["feasible"]
            mark = "" if point["feasible"] else " -"
            table.add_row(point["name"] + mark, *_cells(result, point["k"]))
    caption = ["* written"]
    if below:
        caption.append("- outside the floor or the range")
    table.caption = "; ".join(caption)
    if speed:
        table.caption += "\nx full: speed against all rows in the head; x plain: against no draft"
    return table


def _cells(result: SearchResult, k: int) -> Iterator[str]:
    objective = result.objective
    yield f"{k:,}"
    yield f"{float(objective.coverage(k)):.2%}"
    heldout = result.curve.heldout_coverage(k)
    yield "-" if heldout is None else f"{heldout:.2%}"
    if isinstance(objective, ThroughputObjective):
        expected = objective.prediction(k)
        speed = expected["tokens_per_second"]
        yield f"{expected['acceptance_length']:.3f}"
        yield _rate(speed)
        yield f"{expected['speedup_over_full']:.3f}"
        yield f"{expected['speedup_over_plain']:.3f}"
    else:
        yield f"{float(objective.flops_reduction(k)):.2%}"
        if objective.name != "budget":
            yield f"{float(objective.utility(k)):.6f}"


def _rate(tokens_per_second: float) -> str:
    """Four digits, and never in powers of ten."""
    whole = tokens_per_second >= 1000
    return f"{tokens_per_second:,.0f}" if whole else f"{tokens_per_second:.4g}"


def _lines(result: SearchResult) -> Iterator[str]:
    objective, curve = result.objective, result.curve
    if result.log is None:
        yield "no trials: the smallest size of a coverage is read off the counts, exactly"
    else:
        yield _regret(result)
    yield _plateau(result)
    yield f"FLOPs a draft token: {objective.flops_full:,} -> {objective.flops(result.chosen.k):,}"
    if isinstance(objective, ThroughputObjective):
        yield from _speed_lines(objective, result.chosen.k)
    if objective.name == "utility":
        yield from _alpha_lines(result.alpha_curve, result.chosen.k)
    if result.floor_binds and objective.name != "budget":
        free = objective.optimum(floor=False)
        line = f"the floor cmin decides: by {objective.name} alone the best k is {free:,}"
        if isinstance(objective, ThroughputObjective):
            line += f" ({_rate(objective.value(free))} tokens/s)"
        yield line
    if result.aligned_from is not None:
        yield _alignment(result)
    if frequency := result.marginal_frequency:
        yield f"rarest kept token: 1 in {round(1 / frequency):,} reply tokens"
    if curve.forced:
        yield f"forced: {curve.num_forced} (ids {', '.join(map(str, curve.forced))})"
    if result.num_filled:
        yield f"filled: {result.num_filled:,} ids that no reply uses, the lowest ones"


def _token_lines(result: SearchResult, texts: Texts) -> Iterator[str]:
    """The tokens next to the edge, and those that forcing let in and pushed out."""
    edge, effect = result.boundary, result.forced_effect
    kept = _tokens(edge.inside[-_EDGE:], texts)
    left_out = _tokens(edge.outside[:_EDGE], texts)
    yield f"at the edge: kept {kept or 'none'} | left out {left_out or 'none'}"
    if effect.admitted:
        yield (
            f"forced in: {_tokens(effect.admitted, texts)}; pushed out: "
            f"{_tokens(effect.pushed_out, texts)} ({100 * effect.lost:.1g} % of the tokens)"
        )


def _tokens(tokens: Sequence[TokenCount], texts: Texts) -> str:
    """Each token's text (its id where that is unknown) and count."""
    names = [f"{texts.of(one.token) or one.token} ({one.count:,})" for one in tokens[:_FORCED]]
    return ", ".join(names) + (", ..." if len(tokens) > _FORCED else "")


def _regret(result: SearchResult) -> str:
    objective = result.objective
    feasible = sum(trial.feasible for trial in result.trials)
    if objective.name == "throughput":
        lost = _small(100 * result.regret / result.exact.value, 3, " % of the speed")
    else:
        lost = _small(result.regret, 6)
    return (
        f"regret of TPE: {lost} after {len(result.trials)} trials ({feasible} hold the floor), "
        f"k {objective.kmin:,} to {objective.kmax:,}"
    )


def _small(value: float, digits: int, unit: str = "") -> str:
    """A number that is often 0, in plain digits."""
    if value == 0:
        return "none"
    least = 10.0**-digits
    return f"{value:.{digits}f}{unit}" if value >= least else f"below {least:.{digits}f}{unit}"


def _plateau(result: SearchResult) -> str:
    low, high = result.plateau
    within = {
        "utility": "0.001 of the best utility",
        "budget": "0.001 of the FLOPs saved by the smallest",
        "throughput": f"{SPEED_PLATEAU:.0%} of the best speed",
    }
    return f"plateau: every k from {low:,} to {high:,} is within {within[result.objective.name]}"


def _speed_lines(objective: ThroughputObjective, k: int) -> Iterator[str]:
    times = objective.times
    full = times.draft_s(objective.target_vocab_size)
    yield (
        f"L {times.num_draft_tokens}: tokens drafted a round; a0 {objective.a0:g}: chance that one "
        "is accepted with all rows in the head; tau: tokens expected a round, the target's own one "
        "among them"
    )
    yield (
        f"times: verify {1e3 * times.verify_s:.3g} ms, plain step {1e3 * times.plain_s:.3g} ms, "
        f"draft step {1e3 * times.draft_s(k):.3g} ms at k, {1e3 * full:.3g} ms at "
        f"{objective.target_vocab_size:,} ({times.source})"
    )
    unseen = objective.prediction(k)["heldout_tokens_per_second"]
    if unseen is not None:
        yield f"with the coverage of held-out conversations: {_rate(unseen)} tokens/s"
    yield _sizes_by("a0", objective.a0_curve())
    yield (
        "an expectation, not a measurement: a0 is assumed the same for every size and place in "
        "the chain"
    )


def _alpha_lines(alphas: dict[str, Any], k: int) -> Iterator[str]:
    rows = alphas["rows"]
    yield _sizes_by("alpha", rows)
    if alphas["interval"] is not None:
        low, high = alphas["interval"]
        yield (
            f"k {k:,} is within 0.001 of the best utility at every alpha from {low:.3f} to "
            f"{high:.3f}"
        )


def _sizes_by(name: str, rows: Sequence[dict[str, Any]]) -> str:
    """The best size for other values of one setting."""
    sizes = ", ".join(
        f"{row[name]:g}: {row['k']:,}{'*' if row['floor_binds'] else ''}" for row in rows
    )
    mark = " (* the floor decides)" if any(row["floor_binds"] for row in rows) else ""
    return f"k by {name}: {sizes}{mark}"


def _alignment(result: SearchResult) -> str:
    before, k = result.aligned_from or 0, result.chosen.k
    line = f"aligned to {result.settings.align}: {before:,} -> {k:,}"
    if k < before:
        line += f" (down: the next multiple is above the largest size, {result.objective.kmax:,})"
    return line
