"""The target of ``vtrim coverage``: its tokenizer, its config, and what run.json says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run, fingerprint_json
from vtrim.cli import common
from vtrim.cli.coverage_part import TokenizerSpec
from vtrim.errors import InputError, OptionError

if TYPE_CHECKING:
    from vtrim.trimming.coverage import Coverage

DEFAULT_TARGET = "smollm2"


@dataclass(frozen=True, kw_only=True)
class Model:
    """The target, or a tokenizer alone (name None), and what run.json says of it.

    spec: how another process gets the same tokenizer.
    """

    tokenizer: Any
    spec: TokenizerSpec
    entry: dict[str, Any]
    config: dict[str, Any] | None

    @property
    def template(self) -> str | None:
        """The chat template of the user's own."""
        return self.spec.template

    @property
    def blank(self) -> Coverage:
        """The artefact without counts."""
        import numpy as np

        from vtrim.trimming.coverage import Coverage

        return Coverage(
            counts=np.zeros(self.entry["vocab_size"], dtype=np.int64),
            heldout_counts=np.zeros(self.entry["vocab_size"], dtype=np.int64),
            target_vocab_size=self.entry["vocab_size"],
            tokenizer_length=self.entry["tokenizer_length"],
            tokenizer_fingerprint=self.entry["tokenizer_fingerprint"],
            data_fingerprint="",
            stop_ids=tuple(self.entry["stop_ids"]),
        )


def load_model(
    run: Run,
    target: str | None,
    tokenizer_name: str | None,
    template: Path | None,
    revision: str | None,
    trust_remote_code: bool,
    offline: bool,
) -> Model:
    """The tokenizer, and the config of the target unless ``tokenizer_name`` stands alone.

    Raises:
        InputError: one of them cannot be loaded.
    """
    from vtrim.chat.stops import stop_ids
    from vtrim.models import hub

    name = None if tokenizer_name is not None else _target_name(run, target)
    source = name or str(tokenizer_name)
    if not needs_torch(source, trust_remote_code=trust_remote_code):
        common.keep_torch_out()
    common.hush_libraries()
    spec = TokenizerSpec(
        source=source,
        revision=revision,
        trust_remote_code=trust_remote_code,
        offline=offline,
        template=common.read_template(template) if template is not None else None,
    )
    tokenizer, config = spec.load(), None
    if name is not None:
        config = hub.load_config(
            name, revision=revision, trust_remote_code=trust_remote_code, offline=offline
        )
    generation = hub.load_generation_config(source, revision=revision, offline=offline)
    rows = _head_rows(config) if config is not None else len(tokenizer)
    stops = [token for token in stop_ids(tokenizer, generation, config or {}) if token < rows]
    entry = {
        "name": name,
        "tokenizer": tokenizer_name,
        "revision": revision,
        "tokenizer_fingerprint": hub.tokenizer_fingerprint(tokenizer),
        "config_fingerprint": fingerprint_json(config) if config is not None else None,
        "vocab_size": rows,
        "tokenizer_length": len(tokenizer),
        "stop_ids": stops,
        "trust_remote_code": trust_remote_code,
        "chat_template": str(template) if template is not None else None,
    }
    return Model(tokenizer=tokenizer, spec=spec, entry=entry, config=config)


def needs_torch(source: str, *, trust_remote_code: bool) -> bool:
    """Whether loading a tokenizer may run code that uses torch: others', or a conversion."""
    from vtrim.models.smollm2 import SMOLLM2, is_converted

    return trust_remote_code or (source == SMOLLM2 and not is_converted())


def _target_name(run: Run, target: str | None) -> str:
    """The target that was typed, else the run's, else the built-in one; says which."""
    from vtrim.models.hub import is_local

    if target is not None:
        return str(Path(target).resolve()) if is_local(target) else target
    known: str | None = run.read().get("target", {}).get("name")
    if known is not None:
        common.note(f"target {known} (from {run.manifest}; --target names another).")
        return known
    common.note(f"no --target given: counting for the built-in {DEFAULT_TARGET}.")
    return DEFAULT_TARGET


def _head_rows(config: dict[str, Any]) -> int:
    size = (config.get("text_config") or config).get("vocab_size")
    if not isinstance(size, int) or size < 1:
        raise InputError("the target's config.json names no vocab_size.")
    return size


def check_keep(model: Model, keep: Sequence[int]) -> None:
    """Refuses ids that no draft vocabulary can hold, before any row is read.

    Raises:
        OptionError: an id beyond the tokenizer or the target's head.
    """
    limit = min(model.entry["tokenizer_length"], model.entry["vocab_size"])
    for token in keep:
        if not 0 <= token < limit:
            raise OptionError(f"--keep {token}: not a token id; ids run from 0 to {limit - 1}.")
