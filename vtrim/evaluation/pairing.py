"""A target and the draft that was trained for it, found, checked and loaded together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from vtrim.artifacts import Run, check_match, fingerprint_json
from vtrim.chat.stops import stop_ids
from vtrim.errors import MismatchError
from vtrim.models import hub
from vtrim.models.layout import LoadedDraft, load_draft
from vtrim.models.target import Target, load_target
from vtrim.shape import DraftShape


@dataclass(frozen=True)
class TargetSource:
    """A target as the command line names it.

    entry: what run.json says of it, empty for another target than the run's.
    """

    name: str
    run: Run
    entry: Mapping[str, Any]
    revision: str | None = None
    trust_remote_code: bool = False
    offline: bool = False

    @cached_property
    def tokenizer(self) -> Any:
        """Its tokenizer, with the chat template that coverage used.

        Raises:
            InputError: none can be loaded. MismatchError: it is not the one that was counted with.
        """
        tokenizer = hub.load_tokenizer(
            self.name,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            offline=self.offline,
        )
        if self.entry.get("chat_template"):
            copy = self.run.target_config.with_name("chat_template.jinja")
            tokenizer.chat_template = copy.read_text(encoding="utf-8")
        if self.entry:
            check_match(
                f"{self.name}: tokenizer",
                hub.tokenizer_fingerprint(tokenizer),
                self.entry["tokenizer_fingerprint"],
                str(self.run.manifest),
                "Run `vtrim coverage` again, or name the tokenizer's own target.",
            )
        return tokenizer

    @cached_property
    def config(self) -> dict[str, Any]:
        """Its config as a plain mapping.

        Raises:
            InputError: none can be loaded.
        """
        return hub.load_config(
            self.name,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            offline=self.offline,
        )

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end a reply: those coverage forced, else those the model names."""
        if self.entry:
            return frozenset(self.entry["stop_ids"])
        generation = hub.load_generation_config(
            self.name, revision=self.revision, offline=self.offline
        )
        return frozenset(stop_ids(self.tokenizer, generation, self.config))


def load_pair(
    source: TargetSource, folder: Path, *, dtype: torch.dtype | str, device: str
) -> tuple[Target, LoadedDraft]:
    """The target and its draft on one device, the draft in the target's dtype.

    The draft is read and checked first: a wrong one is refused before the target is loaded.

    Raises:
        InputError: one of them cannot be read. MismatchError: the draft is another target's.
    """
    draft = load_draft(
        folder,
        num_target_layers=lambda: DraftShape.from_target_config(source.config).num_target_layers,
    )
    check_draft(draft, folder, source)
    target = load_target(
        source.name,
        dtype=dtype,
        device=device,
        aux_layer_ids=draft.aux_layer_ids,
        revision=source.revision,
        trust_remote_code=source.trust_remote_code,
        offline=source.offline,
    )
    # Auxiliary states reach 24,700 on a small target (MEASURED.md): fp16 would overflow in fc.
    kept = torch.bfloat16 if target.dtype == torch.float16 else target.dtype
    draft.model.to(device=target.device, dtype=kept)
    return target, draft


def check_draft(draft: LoadedDraft, folder: Path, source: TargetSource) -> None:
    """Refuses a draft that another target was meant for.

    Raises:
        MismatchError: names both targets and what differs.
    """
    provenance = draft.config.get("vtrim") or {}
    shape = DraftShape.from_target_config(source.config)
    facts = {
        "target vocabulary": (draft.vocab.target_vocab_size, shape.target_vocab_size),
        "hidden size": (draft.model.shape.target_hidden_size, shape.hidden_size),
        "config fingerprint": (
            provenance.get("target_config_fingerprint"),
            fingerprint_json(source.config),
        ),
        "tokenizer fingerprint": (
            provenance.get("tokenizer_fingerprint"),
            hub.tokenizer_fingerprint(source.tokenizer),
        ),
    }
    for what, (its, wanted) in facts.items():
        if its is not None and its != wanted:
            trained_for = provenance.get("target", "another target")
            raise MismatchError(
                f"{folder}: this draft was trained for {trained_for}, not for {source.name}: its "
                f"{what} is {its}, the target's {wanted}. Name the draft's own target with "
                "--target, or train a draft for this one."
            )
