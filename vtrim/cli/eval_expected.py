"""What the run's search, training and step times say of the draft that ``vtrim eval`` measures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run, read_object

if TYPE_CHECKING:
    from vtrim.evaluation.expected import Evidence
    from vtrim.evaluation.pairing import Decoder


def expectations(run: Run, decoder: Decoder, result: Mapping[str, Any]) -> dict[str, Any] | None:
    """``expected`` of a result; None where no trained draft decoded."""
    if decoder.draft is None:
        return None
    from vtrim.evaluation.expected import expected

    return expected(_evidence(run, decoder), result)


def _evidence(run: Run, decoder: Decoder) -> Evidence:
    """What the run holds, where it is of this very draft."""
    from vtrim.evaluation.expected import Evidence

    draft, facts = decoder.draft, decoder.facts
    assert draft is not None  # noqa: S101  (told by the caller)
    search = read_object(run.search) if run.search.exists() else {}
    if search.get("vocab_fingerprint") != facts["vocab_fingerprint"]:
        search = {}
    times = read_object(run.step_times) if run.step_times.exists() else {}
    return Evidence(
        shape=draft.model.shape,
        size=draft.vocab.size,
        search=search,
        prefixes=_prefixes(run, facts["draft_fingerprint"]),
        step_times=times,
        times_origin=str(run.step_times),
    )


def _prefixes(run: Run, draft_fingerprint: str) -> list[float]:
    """The held-out prefixes of the step that the draft is of; empty where training kept none."""
    trained = run.read()["steps"].get("train-draft", {})
    path = run.train / "metrics.jsonl"
    if trained.get("draft_fingerprint") != draft_fingerprint or not path.exists():
        return []
    step, found = trained.get("best_step"), []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            line = json.loads(text)
        except ValueError:  # cut: training was killed here, and went on in the next line
            continue
        if line.get("kind") == "heldout" and line.get("step") == step:
            found = line.get("prefix", [])
    return list(found)
