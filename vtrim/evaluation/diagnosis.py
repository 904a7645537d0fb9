"""What DropMatch saw beside the tables of its paper (arXiv:2603.03333: a 70B, K 5, p 0.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_VOTES = {1: (0.0, 0.255), 2: (0.0014, 0.325), 3: (0.0082, 0.460), 4: (0.0054, 0.517),
          5: (0.9840, 0.939)}  # fmt: skip
"""Table 2, on HumanEval: share of positions and mean probability by size of the majority."""
_LAWS = {"js": (0.0254, 0.0313), "majority": (0.0097, 0.0014)}
"""Table 3: mean JS to the centroid of the draft and of the heads, by what accepts."""
_OVERHEAD = {"naive": 0.0017, "js": 0.0164}
"""Table 4: share of a forward at batch 1."""
_BY_HEAD = "0.787, 0.811, 0.756, 0.774, 0.799 (0.817 without)"
"""Table 1 at p 0.3: Pass@1 on HumanEval of each head by itself."""


@dataclass(frozen=True)
class Line:
    """One quantity here and in the paper; empty where the paper has none."""

    table: str
    what: str
    here: str
    paper: str = ""


def diagnosis(result: Mapping[str, Any]) -> list[Line]:
    """Every quantity that a result of ``vtrim eval --diagnose`` holds, in the paper's order."""
    lines = [*_heads(result), *_votes(result), *_laws(result), *_overhead(result)]
    return [*lines, *_reasons(result)]


def _heads(result: Mapping[str, Any]) -> Iterator[Line]:
    if result["agreement_by_head"]:
        shares = ", ".join(f"{share:.3f}" for share in result["agreement_by_head"])
        yield Line("1", "heads at the clean arg-max (paper: Pass@1)", shares, _BY_HEAD)
    if result["clean_probability_by_head"]:
        shares = ", ".join(f"{p:.3f}" for p in result["clean_probability_by_head"])
        yield Line("1", "their clean probability", shares)


def _votes(result: Mapping[str, Any]) -> Iterator[Line]:
    """The histogram of votes for the most frequent arg-max."""
    counts, means = result["head_histogram"], result["head_probability"]
    total = sum(counts.values())
    for votes in sorted(map(int, counts)):
        mean = means.get(str(votes))
        here = _share(counts[str(votes)] / total)
        here += "" if mean is None else f", mean p {mean:.3f}"
        paper = ""
        if votes in _VOTES and max(map(int, counts)) <= max(_VOTES):
            paper = f"{_share(_VOTES[votes][0])}, mean p {_VOTES[votes][1]:.3f}"
        yield Line("2", f"{votes} of the heads agree", here, paper)


def _laws(result: Mapping[str, Any]) -> Iterator[Line]:
    for verdict, sides in result["js_by_verdict"].items():
        here = (
            f"draft {sides['draft']:.4f}, heads {sides['heads']:.4f}, farthest "
            f"{sides['farthest_head']:.4f}"
        )
        known = _LAWS.get(verdict)
        paper = "" if known is None else f"draft {known[0]:.4f}, heads {known[1]:.4f}"
        yield Line("3", f"mean JS [nats], {verdict}", here, paper)


def _overhead(result: Mapping[str, Any]) -> Iterator[Line]:
    naive = set(result["criteria"]) == {"naive"}
    paper = _OVERHEAD["naive" if naive else "js"]
    here = f"{_share(result['shares']['accept'])} of a round"
    yield Line("4", "time of acceptance", here, f"{_share(paper, 2)} of a forward")


def _reasons(result: Mapping[str, Any]) -> Iterator[Line]:
    total = sum(result["verdicts"].values())
    for verdict, count in result["verdicts"].items():
        yield Line("", f"positions: {verdict}", _share(count / total))
    if result["total_variation"] is not None:
        here = f"{result['total_variation']:.3f}"
        yield Line("", "total variation from the target's law", here)


def _share(value: float, digits: int = 2) -> str:
    return f"{100 * value:.{digits}f} %"
