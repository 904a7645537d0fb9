"""What stands beside the counts: target, data and settings, in a run folder or beside a shard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run, read_object, write_json, write_text
from vtrim.errors import InputError

if TYPE_CHECKING:
    from vtrim.trimming.coverage import Coverage

TEMPLATE = "chat_template.jinja"
_AT_ONCE = 500  # so few lists live at a time that the garbage collector has no reason to run


@dataclass(frozen=True, kw_only=True)
class Record:
    """What a run folder says about its coverage.

    target, data, step: entries of run.json. config: of the target, None without one. template: a
    chat template of the user's own. texts: decoded text of the counted and the forced ids.
    """

    target: dict[str, Any]
    data: dict[str, Any]
    step: dict[str, Any]
    config: dict[str, Any] | None = None
    template: str | None = None
    texts: Mapping[str, str] = field(default_factory=dict)

    def save(self, run: Run, coverage: Coverage) -> None:
        """Writes the artefact first, then what it was made from."""
        coverage.save(run.coverage)
        if self.config is not None:
            write_json(run.target_config, self.config)
        template = run.target_config.with_name(TEMPLATE)
        if self.template is not None:
            write_text(template, self.template)
        else:
            template.unlink(missing_ok=True)
        write_json(run.token_texts, dict(self.texts))
        run.update(target=self.target, data=self.data)
        run.record("coverage", self.step)

    def save_beside(self, path: Path, coverage: Coverage) -> None:
        """Writes a shard's artefact, and a JSON file of the same name with everything else.

        The JSON file comes first: a shard that can be seen is whole.
        """
        write_json(path.with_suffix(".json"), asdict(self))
        coverage.save(path)


def record_of(path: Path, coverage: Coverage) -> Record | None:
    """What is known about the artefact in ``path``; None where nothing beside it fits it."""
    beside = path.with_suffix(".json")
    if beside.exists():
        found = _from_json(beside)
    elif (path.parent / "run.json").exists():
        found = _from_run(Run(path.parent))
    else:
        return None
    fits = found is not None and found.step.get("coverage_fingerprint") == coverage.fingerprint
    return found if fits else None


def step_entry(coverage: Coverage, artifact: Path, **more: Any) -> dict[str, Any]:
    """The entry of the coverage step in run.json."""
    return {
        "tokens": coverage.total,
        "distinct": coverage.distinct,
        "rows_used": coverage.rows_used,
        "rows_heldout": coverage.rows_heldout,
        "rows_skipped": dict(coverage.rows_skipped),
        "straddling": coverage.straddling,
        "generated_rows": coverage.generated_rows,
        "data_fingerprint": coverage.data_fingerprint,
        "coverage_fingerprint": coverage.fingerprint,
        **more,
        "artifact": str(artifact),
    }


def token_texts(tokenizer: Any, ids: Iterable[int]) -> dict[str, str]:
    """The text of each token by its id in decimals, in the order of ids.

    A decoder may drop the space that a piece at the start of a text begins with; it is put back.
    """
    backend = tokenizer.backend_tokenizer
    ordered, found = sorted(set(ids)), {}
    for start in range(0, len(ordered), _AT_ONCE):
        part = ordered[start : start + _AT_ONCE]
        texts = backend.decode_batch([[token] for token in part], skip_special_tokens=False)
        for token, text in zip(part, texts, strict=True):
            spaced = (backend.id_to_token(token) or "").startswith("\u2581")
            found[str(token)] = f" {text}" if spaced and not text.startswith(" ") else text
    return found


def _from_json(path: Path) -> Record | None:
    try:
        return Record(**read_object(path))
    except (InputError, TypeError):
        return None


def _from_run(run: Run) -> Record | None:
    """The record in a run folder."""
    manifest = run.read()
    step = manifest.get("steps", {}).get("coverage")
    if step is None or "target" not in manifest or "data" not in manifest:
        return None
    template = run.target_config.with_name(TEMPLATE)
    return Record(
        target=manifest["target"],
        data=manifest["data"],
        step=step,
        config=read_object(run.target_config) if run.target_config.exists() else None,
        template=template.read_text(encoding="utf-8") if template.exists() else None,
        texts=run.read_token_texts(),
    )
