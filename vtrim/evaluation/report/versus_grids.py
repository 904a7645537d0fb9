"""Tables of several runs side by side, and why some of their numbers cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vtrim.errors import InputError, MismatchError
from vtrim.evaluation.report.document import target_name
from vtrim.evaluation.report.facts import Facts
from vtrim.evaluation.report.parts import Grid
from vtrim.evaluation.report.rules import (
    UNKNOWN,
    Measured,
    decimal,
    percent,
    settings_of,
    with_interval,
)
from vtrim.evaluation.report.tables import flat, headline_rules

Named = Mapping[str, Facts]
_SEARCH = ("objective", "sampler", "alpha", "cmin", "kmin", "kmax", "align", "trials", "seed",
           "forced")  # fmt: skip
_DECODING = ("temperature", "num_draft_tokens", "max_new_tokens", "dtype", "device", "threads",
             "batch_size")  # fmt: skip
"""Settings of a result that lengths or speeds hang on, whatever the rule."""


def side_by_side(named: Named) -> Grid:
    """What each run came to, a column a run."""
    columns = [dict(_summary(facts)) for facts in named.values()]
    return Grid(
        name="runs",
        title="What each run came to",
        text="Lengths and speeds are of each run's own draft, in its newest result over the most "
        "prompts. In brackets: 95 % interval, prompts drawn anew.",
        columns=("", *named),
        rows=_joined(columns),
        wraps=True,
    )


def compared_grid(named: Named) -> Grid | None:
    """The runs' main results against the first one's, in words; None of fewer than two."""
    # torch, which takes seconds, comes with it
    from vtrim.evaluation.compare_results import compare_results, read_result

    files = {
        label: facts.root / "eval" / f"{name}.json"
        for label, facts in named.items()
        if (name := main_name(facts)) is not None
    }
    first, *others = files or [""]
    rows = []
    for other in others:
        try:
            sides = [read_result(files[label], label) for label in (first, other)]
            found = compare_results(*sides)
        except (MismatchError, InputError) as error:
            rows.append([other, f"Not compared: {error}"])
            continue
        said = [one["sentence"] for one in found["comparisons"]]
        rows += [[other, text] for text in (*said, *found["notes"])]
    return Grid(
        name="compared",
        title=f"Compared with {first}, prompt by prompt",
        text="Main results of the runs, by their chosen rules. 95 % intervals by bootstrap over "
        "prompts, p by a permutation test; `vtrim compare` compares any two results.",
        columns=("run", "what was found"),
        rows=rows,
        names=2,
        wraps=True,
    )


def crossed_grid(named: Named) -> Grid | None:
    """Each run's vocabulary on each run's text; None where their tokens are not the same."""
    texts = {label: one.coverage for label, one in named.items() if one.coverage is not None}
    vocabs = {label: one.vocab for label, one in named.items() if one.vocab is not None}
    tokenizers = {counts.tokenizer_fingerprint for counts in texts.values()}
    rows = {counts.target_vocab_size for counts in texts.values()}
    rows |= {vocab.target_vocab_size for vocab in vocabs.values()}
    if len(tokenizers) != 1 or len(rows) != 1:
        return None
    return Grid(
        name="crossed",
        title="Each vocabulary on each text",
        text="Share of the reply tokens counted in a run (column) that the vocabulary of a run "
        "(row) holds. The text that a vocabulary was chosen on flatters it.",
        columns=("vocabulary", "k", *(f"text of {label}" for label in texts)),
        rows=[
            [
                label,
                f"{vocab.size:,}",
                *(
                    percent(int(counts.counts[vocab.ids].sum()) / max(1, counts.total))
                    for counts in texts.values()
                ),
            ]
            for label, vocab in vocabs.items()
        ],
    )


def differing_grid(named: Named) -> Grid:
    """Settings that are not the same in all runs."""
    rows = _joined([dict(_settings(facts)) for facts in named.values()])
    return Grid(
        name="differing",
        title="Settings that differ",
        text="Of the target, the data, the search, the training and each run's main result.",
        columns=("setting", *named),
        rows=[row for row in rows if len(set(row[1:])) > 1],
        names=len(named) + 1,
        wraps=True,
    )


def mismatches(named: Named) -> list[str]:
    """What makes lengths and speeds of these runs incomparable."""
    measured = {label: one for label, facts in named.items() if (one := main_result(facts))}
    found = []
    for what, of in (("targets", _target), ("prompts", _prompts)):
        if len({of(result) for result in measured.values()}) > 1:
            found.append(f"Lengths and speeds were measured with different {what}.")
    for name in _DECODING:
        values = {label: str(settings_of(one).get(name, 1)) for label, one in measured.items()}
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{label} {value}" for label, value in values.items())
            found.append(f"Lengths and speeds were measured with different {name}: {shown}.")
    return found


def main_result(facts: Facts) -> Mapping[str, Any] | None:
    """The result that stands for a run; None where nothing of its own was measured."""
    name = main_name(facts)
    return None if name is None else facts.evals[name]


def main_name(facts: Facts) -> str | None:
    """The name of that result."""
    exact, lossy = headline_rules(facts)
    rule = exact or lossy
    return None if rule is None else rule.run


def _joined(columns: list[dict[str, str]]) -> list[list[str]]:
    """A row for each key of any column, in their order."""
    keys = dict.fromkeys(key for column in columns for key in column)
    return [[key, *(column.get(key, UNKNOWN) for column in columns)] for key in keys]


def _summary(facts: Facts) -> Iterator[tuple[str, str]]:
    files = (facts.manifest.get("data") or {}).get("files") or []
    yield "target", target_name(facts)
    yield "data", ", ".join(Path(str(file.get("path"))).name for file in files) or UNKNOWN
    yield "reply tokens counted", UNKNOWN if not facts.coverage else f"{facts.coverage.total:,}"
    search = facts.search
    if search is not None:
        yield "vocabulary k*", f"{search['k']:,} of {search['shape']['target_vocab_size']:,}"
        yield "coverage C(k*)", percent(search["coverage"], 2)
        yield "held-out C(k*)", percent(search.get("heldout_coverage"), 2)
        yield "FLOPs saved R(k*)", percent(search["flops_reduction"])
    trained = facts.steps.get("train-draft")
    if trained:
        yield "draft: tokens trained on", decimal(trained.get("tokens"), 0)
        yield "draft: held-out joint prefix", decimal(trained.get("heldout_joint_prefix"), 3)
    yield from _measured(facts)


def _measured(facts: Facts) -> Iterator[tuple[str, str]]:
    exact, lossy = headline_rules(facts)
    result = main_result(facts)
    if result is None:
        return
    size = (result.get("provenance") or {}).get("draft_vocab_size")
    yield "measured draft: rows of its head", decimal(size, 0)
    yield "prompts", decimal(result.get("prompts"), 0)
    yield "plain tokens/s", decimal(result.get("plain_tokens_per_second"), 1)
    for kind, rule in (("exact", exact), ("lossy", lossy)):
        if rule is not None:
            yield from _rule(kind, rule)


def _rule(kind: str, rule: Measured) -> Iterator[tuple[str, str]]:
    numbers = rule.numbers
    if not rule.lossless:
        yield f"{kind} rule", rule.rule
    yield f"{kind} tokens/round", with_interval(numbers, "acceptance_length")
    yield f"{kind} tokens/s", with_interval(numbers, "tokens_per_second", 1)
    yield f"{kind} speed-up", with_interval(numbers, "speedup")
    if not rule.lossless:
        yield f"{kind} off the arg-max", percent(numbers.get("off_argmax_share"))


def _settings(facts: Facts) -> Iterator[tuple[str, str]]:
    """Everything that was set, by dotted names; nothing that came out."""
    target, data = facts.target, facts.manifest.get("data") or {}
    for key in ("name", "revision", "tokenizer_fingerprint", "config_fingerprint"):
        yield f"target.{key}", str(target.get(key))
    files = data.get("files") or []
    yield "data.files", ", ".join(str(file.get("path")) for file in files)
    yield "data.max_length", str(data.get("max_length"))
    for key in _SEARCH if facts.search else ():
        yield f"search.{key}", str((facts.search or {}).get(key))
    yield from flat((facts.steps.get("train-draft") or {}).get("settings") or {}, "train-draft")
    result = main_result(facts)
    if result is not None:
        yield from flat(settings_of(result), "eval")
        yield "eval.prompts", str((result.get("provenance") or {}).get("prompts"))
        yield "eval.machine", str((result.get("provenance") or {}).get("machine"))


def _target(result: Mapping[str, Any]) -> str:
    provenance = result.get("provenance") or {}
    return str(provenance.get("target_config_fingerprint") or provenance.get("target"))


def _prompts(result: Mapping[str, Any]) -> str:
    """The prompts by content where it was kept, else by where each stood."""
    rows = result.get("per_prompt") or []
    asked = [(row.get("prompt"), row.get("origin"), row.get("prompt_tokens")) for row in rows]
    return str(asked or (result.get("provenance") or {}).get("prompts_fingerprint"))
