"""What a run folder holds, finished or not, as the report reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vtrim.artifacts import Run, read_object
from vtrim.errors import InputError, MismatchError
from vtrim.evaluation.report.sweeps import Sweep, read_sweeps
from vtrim.trimming.coverage import Coverage
from vtrim.vocab import DraftVocab

STEPS = {
    "coverage": "vtrim coverage DATA.jsonl",
    "search": "vtrim search --alpha 0.6 --cmin 0.95",
    "train-draft": "vtrim train-draft",
    "eval": "vtrim eval --acceptor dropmatch",
}
"""The steps of the chain and what to type for each."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The content of a run folder; None and empty where a step has not been run.

    curve: sizes k with coverage and held-out coverage at each; coverage: the counts, over the rows
    of the target's head; token_texts: text of counted ids; step_times: what ``vtrim flops
    --measure`` left; metrics: lines of training, in order; evals: results by name, oldest first;
    sweeps: those that were begun; vocab: the run's vocabulary; draft_size: rows of its draft's
    head; notes: what a reader has to know about what is shown.
    """

    root: Path
    manifest: dict[str, Any]
    curve: dict[str, list[Any]] | None
    search: dict[str, Any] | None
    metrics: list[dict[str, Any]]
    evals: dict[str, dict[str, Any]]
    coverage: Coverage | None = None
    token_texts: dict[str, str] = field(default_factory=dict)
    step_times: dict[str, Any] | None = None
    sweeps: list[Sweep] = field(default_factory=list)
    vocab: DraftVocab | None = None
    draft_size: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def steps(self) -> dict[str, Any]:
        """The manifest's entries of finished steps."""
        found: dict[str, Any] = self.manifest.get("steps", {})
        return found

    @property
    def target(self) -> dict[str, Any]:
        """The manifest's entry of the target; empty for a bare tokenizer's run."""
        found: dict[str, Any] = self.manifest.get("target") or {}
        return found

    def is_own(self, result: Mapping[str, Any]) -> bool:
        """Whether a result was measured with the run's own target and draft, told by its weights.

        Without a trained draft the vocabulary tells; a result that names neither counts as own.
        """
        measured = result.get("provenance") or {}
        its, own = measured.get("target_config_fingerprint"), self.target.get("config_fingerprint")
        if None not in (its, own) and its != own:
            return False
        trained = self.steps.get("train-draft") or {}
        searched = (self.search or {}).get("vocab_fingerprint")
        known = {"draft_fingerprint": trained.get("draft_fingerprint")}
        for key, own in {**known, "vocab_fingerprint": searched}.items():
            if own and measured.get(key):
                return bool(measured[key] == own)
        return True

    @property
    def missing(self) -> list[tuple[str, str]]:
        """(what is missing, what to type), in the order of the chain."""
        done = {
            "coverage": self.curve is not None,
            "search": self.search is not None,
            "train-draft": "train-draft" in self.steps,
            "eval": bool(self.evals),
        }
        gaps = [(name, STEPS[name]) for name, is_done in done.items() if not is_done]
        training = [line for line in self.metrics if line.get("kind") == "train"]
        if training and not done["train-draft"]:
            label = f"train-draft (stopped or running, at step {training[-1].get('step')})"
            gaps = [(label if name == "train-draft" else name, typed) for name, typed in gaps]
        return gaps


def read_facts(run: Run) -> Facts:
    """Everything the report shows.

    Raises:
        InputError: nothing has been run here, or a file of the run is not whole.
    """
    if not run.manifest.exists():
        raise InputError(
            f"{run.root}: no run here (no run.json). Run `{STEPS['coverage']}` first, or name "
            "another run folder with --run."
        )
    search = _read_if_there(run.search)
    coverage, notes = _counts(run, search)
    vocab, vocab_notes = _vocab(run, search)
    manifest, draft_size = run.read(), _draft_size(run)
    notes += vocab_notes + _draft_notes(manifest, search, draft_size)
    evals, foreign = _read_evals(run.eval)
    notes += [f"eval/{name}.json is no result of vtrim eval and is left out." for name in foreign]
    metrics, cut = _read_lines(run.train / "metrics.jsonl")
    if cut:
        notes.append(f"{cut} line(s) of train/metrics.jsonl could not be read and are left out.")
    facts = Facts(
        root=run.root,
        manifest=manifest,
        curve=_curve(coverage, search),
        search=search,
        metrics=metrics,
        evals=evals,
        coverage=coverage,
        token_texts=_read_if_there(run.token_texts) or {},
        step_times=_read_if_there(run.step_times),
        sweeps=read_sweeps(run.sweep),
        vocab=vocab,
        draft_size=draft_size,
    )
    return replace(facts, notes=(*notes, *_other_drafts(facts)))


def _other_drafts(facts: Facts) -> list[str]:
    """Which results are of drafts that are not the run's."""
    evals = facts.evals.items()
    others = [f"eval/{name}.json" for name, result in evals if not facts.is_own(result)]
    if not others:
        return []
    return [
        "Not measured with the run's own draft and target, so in the tables and figures but not in "
        f"the headline: {', '.join(others)}."
    ]


def _read_if_there(path: Path) -> Any:
    return read_object(path) if path.exists() else None


def _counts(run: Run, search: dict[str, Any] | None) -> tuple[Coverage | None, list[str]]:
    """The counts, if they can be read, and what is wrong with them beside a finished search.

    Raises:
        InputError: they cannot be read and there is nothing else to show.
    """
    if not run.coverage.exists():
        return None, []
    try:
        coverage = Coverage.load(run.coverage)
        if search is None:
            return coverage, []
        counts = coverage.for_target(search["shape"]["target_vocab_size"])
    except (InputError, MismatchError) as error:
        if search is None:
            raise
        return None, [f"Left out is what needs the counts: {error}"]
    if coverage.fingerprint == search["coverage_fingerprint"]:
        return counts, []
    notes = ["The search is of other counts than those shown here: run `vtrim search` again."]
    beyond = [token for token in search["forced"] if token >= coverage.tokenizer_length]
    if beyond:
        names = ", ".join(map(str, beyond))
        notes.append(f"Forced ids {names} are left out: the tokenizer of these counts lacks them.")
    return counts, notes


def _vocab(run: Run, search: dict[str, Any] | None) -> tuple[DraftVocab | None, list[str]]:
    """The run's vocabulary, and a note where it is not the one the search chose."""
    if not run.vocab.exists():
        return None, []
    try:
        vocab = DraftVocab.load(run.vocab)
    except InputError as error:
        return None, [f"The run's vocabulary cannot be read: {error}"]
    if search is None or vocab.fingerprint == search["vocab_fingerprint"]:
        return vocab, []
    return vocab, [
        f"The run's vocabulary of {vocab.size:,} ids is not the one that the search chose (k = "
        f"{search['k']:,}): what this page says of size and coverage is the search's own choice."
    ]


def _draft_size(run: Run) -> int | None:
    """Rows of the head of the run's draft; None without one that tells."""
    config = _read_if_there(run.draft / "config.json") or {}
    size = config.get("draft_vocab_size")
    return size if isinstance(size, int) else None


def _draft_notes(
    manifest: Mapping[str, Any], search: dict[str, Any] | None, size: int | None
) -> list[str]:
    """What to know where the run's draft was trained for another vocabulary than the search's."""
    trained = (manifest["steps"].get("train-draft") or {}).get("vocab_fingerprint")
    if search is None or trained in (None, search.get("vocab_fingerprint")):
        return []
    its = "another vocabulary" if size is None else f"another vocabulary (k = {size:,})"
    return [
        f"The run's draft was trained for {its} than the one that the search chose (k = "
        f"{search['k']:,}): acceptance and speeds here are that draft's. `vtrim train-draft` "
        "makes one for the search's."
    ]


def _curve(coverage: Coverage | None, search: dict[str, Any] | None) -> dict[str, list[Any]] | None:
    """The curve of the search, else one drawn from the counts."""
    if search is not None:
        curve: dict[str, list[Any]] = search["curve"]
        return curve
    if coverage is None:
        return None
    found = coverage.curve()
    sizes = np.unique(np.geomspace(1, max(1, found.max_k), 400).round().astype(int)).tolist()
    return {
        "k": sizes,
        "coverage": [found.coverage(k) for k in sizes],
        "heldout_coverage": [found.heldout_coverage(k) for k in sizes],
    }


def _read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of a JSONL file that may still be growing, and how many lines were cut."""
    if not path.exists():
        return [], 0
    lines, cut = [], 0
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            cut += 1
    return [line for line in lines if isinstance(line, dict)], cut


def _read_evals(folder: Path) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Results by file name, the newest last, and the names of files that hold something else."""
    files = sorted(folder.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name))
    found = {path.stem: read_object(path) for path in files}
    foreign = [name for name, result in found.items() if "acceptor" not in result]
    return {name: found[name] for name in found if name not in foreign}, foreign
