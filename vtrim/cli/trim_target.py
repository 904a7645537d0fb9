"""Which target a command on a draft may ask: the one named, else the run's where it fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run, fingerprint_json, read_object
from vtrim.cli import common

if TYPE_CHECKING:
    from vtrim.models.importing import ImportTarget


@dataclass(frozen=True, kw_only=True)
class DraftCall:
    """The options of a command that reads a draft and may ask its target.

    say_target: whether a target that is the run's is named, as nobody typed it.
    """

    draft: Path
    run: Run
    target: str | None
    revision: str | None
    trust_remote_code: bool
    offline: bool
    say_target: bool = True


@dataclass(frozen=True, kw_only=True)
class TrimTarget:
    """A target by its config; its head is read only where new tokens need rows.

    known: whether it was named, or the draft says that it is its own.
    """

    name: str
    revision: str | None
    trust_remote_code: bool
    offline: bool
    config: dict[str, Any]
    known: bool

    def to_import(self) -> ImportTarget:
        """What the import and the new rows may ask of it."""
        from vtrim.models.importing import ImportTarget
        from vtrim.models.target_head import head_rows
        from vtrim.shape import DraftShape

        shape = DraftShape.from_target_config(self.config)
        head = partial(
            head_rows,
            self.name,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            offline=self.offline,
        )
        return ImportTarget(
            name=self.name,
            num_layers=shape.num_target_layers,
            vocab_size=shape.target_vocab_size,
            hidden_size=shape.hidden_size,
            head=head,
        )


def find_target(call: DraftCall) -> TrimTarget | None:
    """The target that was named, else the run's where draft and target fit; None without one."""
    if call.target is None:
        return _of_run(call)
    common.hush_libraries()
    from vtrim.models.hub import load_config

    config = load_config(
        call.target,
        revision=call.revision,
        trust_remote_code=call.trust_remote_code,
        offline=call.offline,
    )
    return TrimTarget(
        name=call.target,
        revision=call.revision,
        trust_remote_code=call.trust_remote_code,
        offline=call.offline,
        config=config,
        known=True,
    )


def _of_run(call: DraftCall) -> TrimTarget | None:
    """The run's target with the run's copy of its config: nothing is loaded for it here."""
    entry, path = call.run.read().get("target") or {}, call.draft / "config.json"
    if not entry.get("name") or not call.run.target_config.exists() or not path.is_file():
        return None
    from vtrim.models.foreign_config import flat_config, read_config

    config, draft = read_object(call.run.target_config), flat_config(read_config(path))
    noted = draft.get("vtrim")
    known = _is_noted(noted if isinstance(noted, Mapping) else {}, entry, config)
    if known is False or not _fits(draft, config):
        return None
    if call.say_target:
        common.note(
            f"target: {entry['name']}, the run's"
            f"{'' if known else ', as its sizes fit the draft'}; another is named with --target"
        )
    return TrimTarget(
        name=str(entry["name"]),
        revision=call.revision or entry.get("revision"),
        trust_remote_code=call.trust_remote_code or bool(entry.get("trust_remote_code")),
        offline=call.offline,
        config=config,
        known=bool(known),
    )


def _is_noted(
    noted: Mapping[str, Any], entry: Mapping[str, Any], config: Mapping[str, Any]
) -> bool | None:
    """Whether a draft says that the run's target is its own; None where it says nothing."""
    if "target_config_fingerprint" in noted:
        return bool(noted["target_config_fingerprint"] == fingerprint_json(config))
    if "tokenizer_fingerprint" in noted:
        return bool(noted["tokenizer_fingerprint"] == entry.get("tokenizer_fingerprint"))
    return None


def _fits(draft: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether the draft's config has the target's rows and width."""
    from vtrim.errors import VtrimError
    from vtrim.shape import DraftShape

    try:
        shape = DraftShape.from_target_config(config)
    except VtrimError:
        return False
    width = draft.get("target_hidden_size") or draft.get("hidden_size")
    return (draft.get("vocab_size"), width) == (shape.target_vocab_size, shape.hidden_size)
