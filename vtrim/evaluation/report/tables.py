"""Headline numbers, the speed table and the provenance, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vtrim.evaluation.report.facts import Facts
from vtrim.evaluation.report.parts import Tile
from vtrim.evaluation.report.rules import (
    UNKNOWN,
    Measured,
    decimal,
    interval,
    measured_rules,
    percent,
    settings_of,
    signed,
)

SPEED_COLUMNS = (
    "run",
    "rule",
    "draft",
    "its k",
    "T",
    "L",
    "dtype",
    "batch",
    "prompts",
    "tokens/round",
    "tokens/s",
    "speed-up",
    "95 % interval",
    "identical to plain",
    "off the arg-max",
    "log p",
)


def tiles(facts: Facts) -> list[Tile]:
    """The headline: vocabulary, coverage, saved FLOPs, acceptance and speed, as far as known.

    Acceptance and speed are those of the run's own draft: other drafts stand in the table only.
    """
    found = list(_search_tiles(facts.search)) if facts.search else []
    exact, lossy = headline_rules(facts)
    if exact is not None:
        result = facts.evals[exact.run]
        found.append(_acceptance(exact, _other_size(facts, result)))
        plain = decimal(result.get("plain_tokens_per_second"), 1)
        found.append(Tile("plain decoding", plain, "the target alone, same run", "tok/s"))
        found.append(_speed("exact acceptance", exact, _other_size(facts, result)))
    if lossy is not None:
        label = f"lossy: {lossy.numbers.get('acceptor', '?')}"
        found.append(_speed(label, lossy, _other_size(facts, facts.evals[lossy.run])))
    return found


def headline_rules(facts: Facts) -> tuple[Measured | None, Measured | None]:
    """The exact and the lossy rule of one result: the newest over the most prompts of its draft.

    vtrim's own decoding comes before other engines', a trained draft before none.
    """
    evals = {name: result for name, result in facts.evals.items() if facts.is_own(result)}
    evals = {name: result for name, result in evals.items() if not result.get("engine")} or evals
    evals = {name: result for name, result in evals.items() if not _untrained(result)} or evals
    if not evals:
        return None, None
    main = max(reversed(list(evals)), key=lambda name: int(evals[name].get("prompts") or 0))
    rules = measured_rules({main: evals[main]})
    exact = [rule for rule in rules if rule.lossless]
    lossy = [rule for rule in rules if not rule.lossless]
    return exact[-1] if exact else None, lossy[-1] if lossy else None


def _search_tiles(search: Mapping[str, Any]) -> Iterator[Tile]:
    full = search["shape"]["target_vocab_size"]
    yield Tile("vocabulary k*", f"{search['k']:,}", f"of {full:,} target tokens")
    heldout = percent(search.get("heldout_coverage"))
    yield Tile("coverage C(k*)", percent(search["coverage"]), f"{heldout} on held-out rows")
    yield Tile("FLOPs saved R(k*)", percent(search["flops_reduction"]), "of a draft token, model")


def _other_size(facts: Facts, result: Mapping[str, Any]) -> str:
    """Names the size of the measured draft where it is not the k* of the headline."""
    size = (result.get("provenance") or {}).get("draft_vocab_size")
    if facts.search is None or size in (None, facts.search["k"]):
        return ""
    return f"; by a draft of k = {size:,}, not k*"


def _acceptance(rule: Measured, of_size: str) -> Tile:
    length = decimal(rule.numbers.get("acceptance_length"))
    most = "at most " if rule.settings.get("adaptive") else ""
    drafted = f"{most}{rule.settings.get('num_draft_tokens', '?')}"
    return Tile("acceptance length", length, f"tokens a round, exact, {drafted} drafted{of_size}")


def _speed(label: str, rule: Measured, of_size: str) -> Tile:
    numbers = rule.numbers
    speed = decimal(numbers.get("tokens_per_second"), 1)
    note = f"{decimal(numbers.get('speedup'))} x plain"
    if not rule.lossless:
        note += f"; {percent(numbers.get('off_argmax_share'))} off the target's choice"
    return Tile(label, speed, note + of_size, "tok/s")


def speed_rows(facts: Facts) -> list[list[str]]:
    """One row a rule, plain decoding first in each run; columns as SPEED_COLUMNS."""
    rows: list[list[str]] = []
    seen = ""
    for rule in measured_rules(facts.evals):
        result = facts.evals[rule.run]
        heat = _known(rule.settings, "temperature")
        drafted = _known(rule.settings, "num_draft_tokens")
        length = "auto" if rule.settings.get("adaptive") else drafted
        where = [
            _known(rule.settings, "dtype"),
            str(rule.settings.get("batch_size", 1)),
            decimal(result.get("prompts"), 0),
        ]
        draft = _draft_cells(facts, result)
        if rule.run != seen:
            speed = decimal(result.get("plain_tokens_per_second"), 1)
            plain = ["1.00", speed, "1.00", "", "", "", ""]
            rows.append([rule.run, "plain", "", "", heat, "", *where, *plain])
            seen = rule.run
        rows.append(
            [rule.run, rule.rule, *draft, heat, length, *where, *_speed_cells(rule.numbers)]
        )
    return rows


def _known(settings: Mapping[str, Any], name: str) -> str:
    """A setting; some engines do not tell all of theirs."""
    value = settings.get(name)
    return "?" if value is None else str(value)


def _draft_cells(facts: Facts, result: Mapping[str, Any]) -> list[str]:
    """Which draft was measured, and the size of its vocabulary."""
    measured = result.get("provenance") or {}
    name = _untrained(result)
    if not name:
        name = "the run's own" if facts.is_own(result) else str(measured.get("draft", "another"))
        if not measured.get("draft_fingerprint"):
            name = str(measured.get("draft") or UNKNOWN)
        name = name.rstrip("/").rpartition("/")[2]  # the whole path stands in the provenance
    return [name, decimal(measured.get("draft_vocab_size"), 0)]


def _untrained(result: Mapping[str, Any]) -> str:
    """What drafted without a trained draft; empty where one did."""
    options = settings_of(result).get("drafter") or {}
    if options.get("name") == "ngram":
        return "n-grams"
    if options.get("name") != "model":
        return ""
    skipped = options.get("skip_layers")
    skips = f"skips {_ranges(skipped)}" if skipped else ""
    return ", ".join(filter(None, (options.get("draft_model"), skips)))


def _ranges(blocks: Sequence[int]) -> str:
    """[3, 10, 11, 12] -> 3, 10-12."""
    runs: list[list[int]] = []
    for block in sorted(blocks):
        if runs and block == runs[-1][-1] + 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _speed_cells(numbers: Mapping[str, Any]) -> list[str]:
    return [
        decimal(numbers.get("acceptance_length")),
        decimal(numbers.get("tokens_per_second"), 1),
        decimal(numbers.get("speedup")),
        interval(numbers.get("speedup_interval")),
        percent(numbers.get("identical_to_plain")) if "identical_to_plain" in numbers else "",
        percent(numbers.get("off_argmax_share")),
        signed(numbers.get("log_prob_change")) if "log_prob_change" in numbers else "",
    ]


def plain_speeds(facts: Facts) -> dict[str, float]:
    """Tokens per second of plain decoding by run, where it was measured."""
    return {
        name: float(result["plain_tokens_per_second"])
        for name, result in facts.evals.items()
        if result.get("plain_tokens_per_second") is not None
    }


def provenance(facts: Facts) -> list[tuple[str, list[tuple[str, str]]]]:
    """(heading, (key, value) pairs): target, data, each step, the search and each result."""
    groups: list[tuple[str, Any]] = [("run", {"folder": str(facts.root), **_top(facts.manifest)})]
    groups += [("target", facts.target), ("data", facts.manifest.get("data") or {})]
    groups += [(f"step {name}", entry) for name, entry in facts.steps.items()]
    if facts.search is not None:
        left_out = {"trial_log", "curve", "shape", "pareto", "alpha_curve", "boundary"}
        groups.append(("search.json", {k: v for k, v in facts.search.items() if k not in left_out}))
        groups.append(("draft shape", facts.search["shape"]))
    for name, result in facts.evals.items():
        kept = {key: result[key] for key in ("settings", "provenance") if result.get(key)}
        groups.append((f"eval/{name}.json", {**_top(result), **kept}))
    return [(heading, list(flat(entry))) for heading, entry in groups if entry]


def _top(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if not isinstance(value, dict | list)}


def flat(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of a nested value with their dotted paths; lists of plain values stay on one line."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, Sequence) and any(isinstance(inner, Mapping) for inner in value):
        for index, inner in enumerate(value):
            yield from flat(inner, f"{path}[{index}]")
    elif isinstance(value, list | tuple):
        yield path, ", ".join(str(inner) for inner in value)
    else:
        yield path, str(value)
