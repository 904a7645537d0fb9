"""Where the CPU time of a step goes, by part, from torch's own profiler."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def parts(step: Callable[[], Tensor], draft: nn.Module) -> dict[str, float]:
    """CPU seconds of each part of one step; forward and backward together."""
    optimizer = torch.optim.AdamW(draft.parameters(), lr=1e-5)

    def once() -> None:
        step().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    once()
    with torch.profiler.profile(record_shapes=True) as profile:
        once()
    seconds: defaultdict[str, float] = defaultdict(float)
    for event in profile.events() or []:
        seconds[_part(event)] += event.self_cpu_time_total / 1e6
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return {name: round(value, 3) for name, value in [*ordered, ("all", sum(seconds.values()))]}


def _part(event: Any) -> str:
    """The part an operator belongs to, by what called it, its name and its shapes."""
    names = [event.name]
    parent = event.cpu_parent
    while parent is not None:
        names.append(parent.name)
        parent = parent.cpu_parent
    called = " ".join(names)
    for mark, part in MARKS.items():
        if mark in called:
            return part
    sizes = {size for shape in event.input_shapes or [] for size in shape if isinstance(size, int)}
    return next((part for width, part in WIDTHS.items() if width in sizes), REST)


MARKS = {
    "teacher": "teacher",
    "HeadLoss": "head and loss",
    "_Blocked": "attention",
    "Optimizer": "optimiser",
}
WIDTHS = {1536: "MLP", 1728: "fc", 1152: "projections"}
REST = "norms, rotary, gathers, output projection"
