"""Each measured rule of each result as one record, and numbers as a person reads them."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNKNOWN = "-"


@dataclass(frozen=True)
class Measured:
    """One rule of one ``vtrim eval`` run. numbers: its fields as ``--json`` prints them."""

    run: str
    rule: str
    lossless: bool
    settings: Mapping[str, Any]
    numbers: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Name for a legend."""
        return self.name(self.rule)

    @property
    def text(self) -> str:
        """Name for a table."""
        return self._named(self.rule)

    def name(self, rule: str) -> str:
        """Run and rule, once where they are the same, for a figure."""
        return escaped(self._named(rule))

    def _named(self, rule: str) -> str:
        return rule if rule.split()[0].rstrip(",") == self.run else f"{self.run}: {rule}"


def escaped(text: str) -> str:
    """Text of the run for plotly.js, which reads a little HTML in its texts."""
    return html.escape(text, quote=False)


def measured_rules(evals: Mapping[str, Mapping[str, Any]]) -> list[Measured]:
    """All rules, in the order of the runs; an exact one before the lossy one beside it."""
    found = []
    for name, result in evals.items():
        settings = settings_of(result)
        exact, drafter = result.get("exact"), _drafter(result)
        if exact and not result.get("lossless"):
            found.append(Measured(name, f"exact{drafter}", True, settings, exact))
        lossless = result.get("lossless", False)
        kind = "exact" if lossless else "not said" if lossless is None else "lossy"
        rule = f"{_rule_name(result, settings)}{drafter} ({kind})"
        found.append(Measured(name, rule, bool(lossless), settings, result))
    return found


def _drafter(result: Mapping[str, Any]) -> str:
    """What drafted, unless it was the EAGLE chain, and the engine, unless it was vtrim's own."""
    drafter, engine = result.get("drafter", "eagle"), (result.get("engine") or {}).get("name")
    names = ("" if drafter == "eagle" else drafter, "" if engine == "local" else engine)
    return "".join(f", {name}" for name in names if name)


def _rule_name(result: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """The acceptor, with what it was set to: noise and criterion of dropmatch, else its number."""
    acceptor, name = settings.get("acceptor"), str(result.get("acceptor", "?"))
    if not isinstance(acceptor, Mapping):
        noise = settings.get("p_drop")
        return name if noise is None else f"{name} p {noise}"
    if acceptor.get("p_drop") is not None:
        criterion = acceptor.get("criterion")
        chosen = acceptor.get("p_drop_chosen")
        found = "" if chosen is None else f" ({chosen:.3g})"
        noise = f"{name} p {acceptor['p_drop']}{found}"
        return noise if criterion in (None, "full") else f"{noise} {criterion}"
    knobs = [f"{key} {value:g}" for key, value in acceptor.items() if _is_knob(key, value)]
    return " ".join([name, *knobs])


def _is_knob(key: str, value: Any) -> bool:
    return key != "seed" and isinstance(value, int | float) and not isinstance(value, bool)


def settings_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a result, those it keeps at its top included."""
    top = ("num_draft_tokens", "temperature", "dtype", "device")
    return {**{key: result[key] for key in top if key in result}, **(result.get("settings") or {})}


def percent(share: float | None, digits: int = 1) -> str:
    """0.951 -> 95.1 %."""
    return UNKNOWN if share is None else f"{100 * share:.{digits}f} %"


def decimal(value: float | None, digits: int = 2) -> str:
    """1234.5 -> 1,234.50."""
    return UNKNOWN if value is None else f"{value:,.{digits}f}"


def signed(value: float | None, digits: int = 3) -> str:
    """-0.1234 -> -0.123."""
    return UNKNOWN if value is None else f"{value:+.{digits}f}"


def interval(bounds: Any, digits: int = 2) -> str:
    """[1.02, 1.10], or nothing when it was not measured."""
    if not bounds:
        return ""
    low, high = bounds
    return f"{low:.{digits}f} to {high:.{digits}f}"


def with_interval(
    numbers: Mapping[str, Any], key: str, digits: int = 2, factor: float = 1.0
) -> str:
    """A number with its interval in brackets, both times a factor."""
    value, bounds = numbers.get(key), numbers.get(f"{key}_interval")
    shown = decimal(None if value is None else factor * value, digits)
    ends = bounds and [factor * bound for bound in bounds]
    return f"{shown} ({interval(ends, digits)})" if ends else shown
