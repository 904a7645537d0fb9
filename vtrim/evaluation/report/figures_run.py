"""Figures of training and decoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vtrim.evaluation.report.figures import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    RED,
    Figure,
    line,
    shares,
    stacked,
)
from vtrim.evaluation.report.rules import Measured

MAX_POINTS = 400  # of a curve; longer ones are averaged in equal bins
PHASES = {"draft": BLUE, "verify": GREEN, "accept": ORANGE, "other": GREY}

Lines = Sequence[dict[str, Any]]


def of_kind(metrics: Lines, kind: str) -> list[dict[str, Any]]:
    """The lines of training, or of the held-out checks."""
    return [entry for entry in metrics if entry.get("kind") == kind]


def loss_figure(metrics: Lines) -> Figure | None:
    """Training loss and held-out loss over steps."""
    train = [entry for entry in of_kind(metrics, "train") if entry.get("loss") is not None]
    heldout = [entry for entry in of_kind(metrics, "heldout") if entry.get("loss") is not None]
    if not train and not heldout:
        return None
    data = []
    if train:
        steps, losses = binned(_steps(train), [entry["loss"] for entry in train])
        data.append(line(steps, losses, "training", BLUE))
    if heldout:
        data.append(_points(_steps(heldout), [e["loss"] for e in heldout], "held-out", ORANGE))
    return {"data": data, "layout": _over_steps({"title": {"text": "loss"}})}


def accuracy_figure(metrics: Lines) -> Figure | None:
    """Accuracy at each unrolled step: training as faint lines, held-out as points."""
    train = [entry for entry in of_kind(metrics, "train") if entry.get("accuracy")]
    heldout = [entry for entry in of_kind(metrics, "heldout") if entry.get("accuracy")]
    if not train and not heldout:
        return None
    num_steps = max(len(entry["accuracy"]) for entry in [*train, *heldout])
    data = []
    for index in range(num_steps):
        colour, name = _shade(index, num_steps), f"step {index + 1}"
        faint, bold = _at(train, "accuracy", index), _at(heldout, "accuracy", index)
        if faint[0]:
            trace = line(*binned(*faint), name, colour, legendgroup=name)
            quiet = {"opacity": 0.35, "showlegend": False} if bold[0] else {}
            data.append({**trace, **quiet})
        if bold[0]:
            data.append(_points(*bold, name, colour, legendgroup=name))
    return {"data": data, "layout": _over_steps(shares("accuracy"))}


def prefix_figure(metrics: Lines) -> Figure | None:
    """The held-out joint prefix over steps."""
    heldout = [e for e in of_kind(metrics, "heldout") if e.get("joint_prefix") is not None]
    if not heldout:
        return None
    values = [entry["joint_prefix"] for entry in heldout]
    data = [_points(_steps(heldout), values, "held-out joint prefix", PURPLE)]
    layout = {**_over_steps({"title": {"text": "joint prefix [tokens]"}}), "showlegend": False}
    return {"data": data, "layout": layout}


def position_figure(rules: Sequence[Measured]) -> Figure | None:
    """Share of rounds in which the first j drafted tokens were all accepted."""
    data = []
    for index, rule in enumerate(rules):
        passed = rule.numbers.get("acceptance_by_position") or []
        if passed:
            positions = list(range(1, len(passed) + 1))
            trace = _points(positions, passed, rule.label, COLOURS[index % len(COLOURS)])
            if index >= len(COLOURS):  # the colours begin again
                trace["line"]["dash"], trace["marker"]["symbol"] = "dot", "square"
            data.append(trace)
    axis = {"title": {"text": "drafted token"}, "dtick": 1}
    layout = {"xaxis": axis, "yaxis": {**shares("accepted up to here"), "rangemode": "tozero"}}
    return {"data": data, "layout": layout} if data else None


def cycle_figure(rules: Sequence[Measured]) -> Figure | None:
    """Where the time of a round goes."""
    timed = [rule for rule in rules if rule.numbers.get("shares")]
    if not timed:
        return None
    parts = (
        (phase, colour, [rule.numbers["shares"].get(phase) for rule in timed])
        for phase, colour in PHASES.items()
    )
    return stacked([rule.label for rule in timed], parts, "share of a round's time")


def heads_figure(rules: Sequence[Measured]) -> Figure | None:
    """Positions by how many dropout heads share the most frequent arg-max."""
    data = []
    for index, rule in enumerate(rules):
        votes = rule.numbers.get("head_histogram") or {}
        total = sum(votes.values())
        if total:
            sizes = sorted(votes, key=int)
            data.append(
                {
                    "type": "bar",
                    "name": rule.label,
                    "x": sizes,
                    "y": [votes[size] / total for size in sizes],
                    "marker": {"color": COLOURS[index % len(COLOURS)]},
                    "hovertemplate": "%{x} heads: %{y:.1%}<extra>%{fullData.name}</extra>",
                }
            )
    axis = {"title": {"text": "heads with the most frequent choice"}, "type": "category"}
    layout = {"xaxis": axis, "yaxis": shares("share of positions"), "barmode": "group"}
    return {"data": data, "layout": layout} if data else None


def speed_figure(rules: Sequence[Measured], plain: Mapping[str, float]) -> Figure | None:
    """Tokens per second of every rule beside plain decoding in the same run."""
    bars: list[tuple[str, float, str]] = []
    seen: set[str] = set()
    for rule in rules:
        if rule.run in plain and rule.run not in seen:
            bars.append((rule.name("plain"), plain[rule.run], GREY))
            seen.add(rule.run)
        speed = rule.numbers.get("tokens_per_second")
        if speed is not None:
            bars.append((rule.label, speed, GREEN if rule.lossless else RED))
    if not bars:
        return None
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [label for label, _, _ in bars],
            "x": [speed for _, speed, _ in bars],
            "text": [f"{speed:.1f}" for _, speed, _ in bars],
            "textangle": 0,
            "marker": {"color": [colour for _, _, colour in bars]},
            "hovertemplate": "%{x:.2f} tokens/s<extra></extra>",
        }
    ]
    layout = {
        "xaxis": {"title": {"text": "tokens per second"}},
        "yaxis": {"autorange": "reversed"},
        "height": 110 + 38 * len(bars),
        "showlegend": False,
    }
    return {"data": data, "layout": layout}


def drift_figure(rules: Sequence[Measured]) -> Figure | None:
    """Speed-up of greedy decoding against the share of tokens off the target's arg-max."""
    points = [
        (rule, rule.numbers["off_argmax_share"], rule.numbers["speedup"])
        for rule in rules
        if rule.settings.get("temperature") == 0
        and None not in (rule.numbers.get("off_argmax_share"), rule.numbers.get("speedup"))
    ]
    if all(rule.lossless for rule, _, _ in points):
        return None  # nothing was paid for speed
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": rule.label,
            "x": [off],
            "y": [speedup],
            "marker": {
                "color": COLOURS[index % len(COLOURS)],
                "size": 11,
                "symbol": "circle" if rule.lossless else "diamond",
            },
            "hovertemplate": "%{x:.1%} off, %{y:.2f} x<extra>%{fullData.name}</extra>",
        }
        for index, (rule, off, speedup) in enumerate(points)
    ]
    xaxis = {**shares("emitted tokens off the target's arg-max"), "rangemode": "tozero"}
    yaxis = {"title": {"text": "speed-up over plain"}, "rangemode": "tozero"}
    return {"data": data, "layout": {"xaxis": xaxis, "yaxis": yaxis}}


def binned(x: Sequence[float], y: Sequence[float]) -> tuple[list[float], list[float]]:
    """At most MAX_POINTS points: the last x and the mean y of equal bins."""
    size = -(-len(x) // MAX_POINTS)
    if size <= 1:
        return list(x), list(y)
    starts = range(0, len(x), size)
    means = [sum(y[i : i + size]) / len(y[i : i + size]) for i in starts]
    return [x[min(i + size, len(x)) - 1] for i in starts], means


def _steps(entries: Lines) -> list[Any]:
    return [entry.get("step") for entry in entries]


def _at(entries: Lines, key: str, index: int) -> tuple[list[Any], list[Any]]:
    """Steps and values of one position of a list-valued entry, where it was measured."""
    found = [e for e in entries if index < len(e[key]) and e[key][index] is not None]
    return _steps(found), [entry[key][index] for entry in found]


def _points(x: list[Any], y: list[Any], name: str, colour: str, **more: Any) -> dict[str, Any]:
    trace = line(x, y, name, colour, line={"width": 1.5}, **more)
    return {**trace, "mode": "lines+markers", "marker": {"color": colour, "size": 7}}


def _shade(index: int, count: int) -> str:
    """A colour between blue and red: later steps are redder."""
    share = index / max(1, count - 1)
    ends = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (BLUE, RED)]
    mixed = [round(a + (b - a) * share) for a, b in zip(*ends, strict=True)]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _over_steps(yaxis: dict[str, Any]) -> dict[str, Any]:
    axis = {"title": {"text": "optimiser step"}, "rangemode": "tozero"}
    return {"xaxis": axis, "yaxis": yaxis}
