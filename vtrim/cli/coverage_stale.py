"""What a run folder holds that was made from other counts than those just written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtrim.artifacts import Run
from vtrim.cli import common
from vtrim.errors import MismatchError

if TYPE_CHECKING:
    from vtrim.trimming.coverage import Coverage


def warn_stale(run: Run, coverage: Coverage) -> None:
    """Names the run's vocabulary and draft where they were made from other counts."""
    known = _counts_behind(run)
    if known is None or known in _fingerprints(run, coverage):
        return
    made = {f"{run.vocab.name}": run.vocab.exists(), f"{run.draft.name}/": run.draft.exists()}
    names = [name for name, there in made.items() if there]
    if names:
        then = ", then `vtrim train-draft`" if run.draft.exists() else ""
        were = "were" if len(names) > 1 else "was"
        common.warn(
            f"{' and '.join(names)} {were} made from other counts: run `vtrim search` again{then}."
        )


def _counts_behind(run: Run) -> str | None:
    """Fingerprint of the counts that the vocabulary was made from; None where nothing tells."""
    if run.vocab.exists():
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(run.vocab, framework="numpy") as file:
                found: str | None = (file.metadata() or {}).get("coverage_fingerprint")
        except (OSError, SafetensorError):
            return None
        return found
    searched: str | None = run.read()["steps"].get("search", {}).get("coverage_fingerprint")
    return searched


def _fingerprints(run: Run, coverage: Coverage) -> set[str]:
    """Of the counts, and of the same over the rows of the head that the search was told of."""
    rows = run.read()["steps"].get("search", {}).get("shape", {}).get("target_vocab_size")
    found = {coverage.fingerprint}
    try:
        return found | ({coverage.for_target(rows).fingerprint} if rows else set())
    except MismatchError:
        return found
