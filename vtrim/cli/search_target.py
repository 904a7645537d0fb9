"""Which target a search is for: the run's, or another one of the same tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run, check_match, fingerprint_json, read_object, write_json
from vtrim.cli.target_config import ModelSource
from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.shape import DraftShape

if TYPE_CHECKING:
    from vtrim.trimming.coverage import Coverage


@dataclass(frozen=True, kw_only=True)
class SearchTarget:
    """The draft's shape and what else the target brings.

    stop_ids: to force besides the coverage's. config, entry: what the run is to remember of a
    target that it did not know; None for its own.
    """

    shape: DraftShape
    stop_ids: tuple[int, ...] = ()
    config: dict[str, Any] | None = None
    entry: dict[str, Any] | None = None

    def record(self, run: Run) -> None:
        """Makes a target that was named here the run's target, for the steps that follow."""
        if self.config is not None and self.entry is not None:
            write_json(run.target_config, self.config)
            run.update(target={**run.read().get("target", {}), **self.entry})


def own_target(run: Run, coverage: Coverage) -> SearchTarget:
    """The run's own target; needs no model library.

    Raises:
        OptionError: the run names no model.
        MismatchError: the coverage was counted with another tokenizer.
        InputError: the run's manifest or its copy of the config is damaged.
    """
    recorded = run.read().get("target", {})
    if not run.target_config.exists() or ("name" in recorded and recorded["name"] is None):
        raise OptionError(
            f"{run.root}: counted with a tokenizer alone, so no model's dimensions are known. "
            "Name the model with --target."
        )
    if "tokenizer_fingerprint" in recorded:
        _check_tokenizer(coverage, recorded["tokenizer_fingerprint"], str(run.manifest))
    shape = DraftShape.from_target_config(read_object(run.target_config))
    rows = min(coverage.usable_ids, shape.target_vocab_size)
    stops = tuple(token for token in _stop_ids(run, recorded) if token < rows)
    return SearchTarget(shape=shape, stop_ids=stops)


def _stop_ids(run: Run, recorded: Mapping[str, Any]) -> list[int]:
    """The stop ids that the manifest names.

    Raises:
        InputError: they are no list of token ids.
    """
    ids = recorded.get("stop_ids", [])
    if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
        raise InputError(
            f"{run.manifest}: damaged: 'target.stop_ids' must be a list of token ids, not {ids!r}. "
            "Run `vtrim coverage` again."
        )
    return ids


def other_target(run: Run, coverage: Coverage, source: ModelSource) -> SearchTarget:
    """The target that was named.

    Raises:
        MismatchError: its tokenizer is not the one that counted.
    """
    from vtrim.chat.stops import stop_ids
    from vtrim.models.hub import load_config, load_generation_config, tokenizer_fingerprint

    config = load_config(
        source.name,
        revision=source.revision,
        trust_remote_code=source.trust_remote_code,
        offline=source.offline,
    )
    shape = DraftShape.from_target_config(config)
    tokenizer = _tokenizer(run, source)
    _check_tokenizer(coverage, tokenizer_fingerprint(tokenizer), source.name)
    generation = load_generation_config(
        source.name, revision=source.revision, offline=source.offline
    )
    rows = min(coverage.usable_ids, shape.target_vocab_size)
    stops = tuple(token for token in stop_ids(tokenizer, generation, config) if token < rows)
    entry = {
        "name": source.name,
        "revision": source.revision,
        "trust_remote_code": source.trust_remote_code,
        "tokenizer_fingerprint": coverage.tokenizer_fingerprint,
        "tokenizer_length": coverage.tokenizer_length,
        "config_fingerprint": fingerprint_json(config),
        "vocab_size": shape.target_vocab_size,
        "stop_ids": sorted({*coverage.stop_ids, *stops}),
    }
    return SearchTarget(shape=shape, stop_ids=stops, config=config, entry=entry)


def _tokenizer(run: Run, source: ModelSource) -> Any:
    """The target's tokenizer, with the chat template of the run where coverage was given one."""
    from vtrim.models.hub import load_tokenizer

    tokenizer = load_tokenizer(
        source.name,
        revision=source.revision,
        trust_remote_code=source.trust_remote_code,
        offline=source.offline,
    )
    if run.read().get("target", {}).get("chat_template"):
        template = run.target_config.with_name("chat_template.jinja")
        tokenizer.chat_template = template.read_text(encoding="utf-8")
    return tokenizer


def _check_tokenizer(coverage: Coverage, fingerprint: str, origin: str) -> None:
    try:
        check_match(
            "tokenizer",
            coverage.tokenizer_fingerprint,
            fingerprint,
            origin,
            "Name the model that was counted, or run `vtrim coverage` again for this one.",
        )
    except MismatchError as error:
        raise MismatchError(f"tokenizer of another model than the coverage's: {error}") from error
