"""A target and what drafts for it, found, checked and loaded together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from vtrim.artifacts import Run, check_match, fingerprint_file, fingerprint_json
from vtrim.chat.stops import stop_ids
from vtrim.decoding.drafters import DrafterOptions, ModelOptions, make_drafter
from vtrim.decoding.protocol import Drafter
from vtrim.errors import MismatchError, OptionError
from vtrim.models import hub
from vtrim.models.aux_layers import AuxLayers
from vtrim.models.layout import WEIGHTS, LoadedDraft, load_draft
from vtrim.models.lean import fast_target
from vtrim.models.lean_draft import fast_draft
from vtrim.models.target import Target, load_target
from vtrim.shape import DraftShape
from vtrim.vocab import DraftVocab


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

    @property
    def positions(self) -> int:
        """Positions, prompt and reply together, as its config says before it is loaded."""
        return int(self.config.get("max_position_embeddings") or sys.maxsize)

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """The ids that end a reply: those coverage forced, else those the model names."""
        if self.entry:
            return frozenset(self.entry["stop_ids"])
        generation = hub.load_generation_config(
            self.name, revision=self.revision, offline=self.offline
        )
        return frozenset(stop_ids(self.tokenizer, generation, self.config))

    def load(self, dtype: torch.dtype | str, device: str, aux_layer_ids: AuxLayers) -> Target:
        """The target itself.

        Raises:
            InputError: it cannot be found or read.
        """
        return load_target(
            self.name,
            dtype=dtype,
            device=device,
            aux_layer_ids=aux_layer_ids,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            offline=self.offline,
        )


@dataclass(frozen=True)
class Decoder:
    """A loaded target and its drafter. vocab: what the drafter may draft, where that is fixed.

    draft: of the drafters that are trained. facts: what drafts, by content, for the provenance.
    """

    target: Target
    drafter: Drafter
    draft: LoadedDraft | None
    vocab: DraftVocab | None
    facts: dict[str, Any]


def load_decoder(
    source: TargetSource,
    options: DrafterOptions,
    folder: Path | None,
    *,
    dtype: torch.dtype | str,
    device: str,
    note: Callable[[str], None] | None = None,
) -> Decoder:
    """The target and the drafter with these options on one device.

    folder: of the trained draft, where one is needed. note: told where a model has no lean forward;
    None decodes through transformers' own.

    Raises:
        OptionError: a draft is needed and none was named, or a block to skip does not exist.
        InputError: something cannot be read. MismatchError: it belongs to another target.
    """
    draft, vocab, model = None, None, None
    if options.needs_draft:
        if folder is None:
            raise OptionError(f"--drafter {options.name}: name a trained draft with --draft.")
        target, draft = load_pair(source, folder, dtype=dtype, device=device)
        vocab = draft.vocab
    elif isinstance(options, ModelOptions):
        vocab = _draft_vocab(options.draft_vocab, source)
        if options.draft_model is not None:
            check_draft_model(options.draft_model, source)
        target = source.load(dtype, device, ())
        model = _draft_model(options.draft_model, source, target)
    else:
        target = source.load(dtype, device, ())
    trained = None if draft is None else draft.model
    if note is not None:
        trained = None if trained is None else fast_draft(trained, note)
        target = fast_target(target, note)
        model = None if model is None else fast_target(model, note)
    drafter = make_drafter(options, target, draft=trained, model=model, vocab=vocab)
    return Decoder(target, drafter, draft, vocab, _facts(options, folder, vocab, target))


def load_pair(
    source: TargetSource, folder: Path, *, dtype: torch.dtype | str, device: str
) -> tuple[Target, LoadedDraft]:
    """The target and its draft on one device, the draft in the target's dtype.

    The draft is read and checked first: a wrong one is refused before the target is loaded.

    Raises:
        InputError: one of them cannot be read. MismatchError: the draft is another target's.
    """
    draft = read_draft(source, folder)
    target = source.load(dtype, device, draft.aux_layer_ids)
    # Auxiliary states reach 24,700 on a small target (MEASURED.md): fp16 would overflow in fc.
    kept = torch.bfloat16 if target.dtype == torch.float16 else target.dtype
    draft.model.to(device=target.device, dtype=kept)
    return target, draft


def read_draft(source: TargetSource, folder: Path) -> LoadedDraft:
    """The target's draft, on the CPU in its own dtype.

    Raises:
        InputError: it cannot be read. MismatchError: it is another target's.
    """
    draft = load_draft(
        folder,
        num_target_layers=lambda: DraftShape.from_target_config(source.config).num_target_layers,
    )
    _check_draft(draft, folder, source)
    return draft


def _check_draft(draft: LoadedDraft, folder: Path, source: TargetSource) -> None:
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


def check_draft_model(name: str, source: TargetSource) -> None:
    """Refuses a draft model whose ids do not mean what the target's mean.

    The same text for each id is enough: merges and chat template decide nothing once a text is
    tokens, and rows behind the last token are padding.

    Raises:
        InputError: its tokenizer or config cannot be loaded.
        MismatchError: names both models and the first id they differ in.
    """
    trust, offline = source.trust_remote_code, source.offline
    tokenizer = hub.load_tokenizer(name, trust_remote_code=trust, offline=offline)
    if hub.tokenizer_fingerprint(tokenizer) != hub.tokenizer_fingerprint(source.tokenizer):
        its, wanted = (_words(one) for one in (tokenizer, source.tokenizer))
        differing = sorted(i for i in its.keys() | wanted.keys() if its.get(i) != wanted.get(i))
        if differing:
            first = differing[0]
            raise MismatchError(
                f"--draft-model {name}: its tokenizer is not that of {source.name}: "
                f"{len(differing):,} ids differ, the first is {first} ({its.get(first)!r} against "
                f"{wanted.get(first)!r}). Name a model with the target's own tokenizer."
            )
    config = hub.load_config(name, trust_remote_code=trust, offline=offline)
    rows = DraftShape.from_target_config(config).target_vocab_size
    if rows < len(tokenizer):
        raise MismatchError(
            f"--draft-model {name}: it has {rows:,} rows for the {len(tokenizer):,} tokens of its "
            f"tokenizer and of {source.name}. Name a model with a row for each token."
        )


def _words(tokenizer: Any) -> dict[int, str]:
    """The token of each id."""
    return {index: token for token, index in tokenizer.get_vocab().items()}


def _draft_vocab(path: Path | None, source: TargetSource) -> DraftVocab | None:
    """The vocabulary in a file.

    Raises:
        InputError: it cannot be read. MismatchError: it is that of a larger or smaller target.
    """
    if path is None:
        return None
    vocab = DraftVocab.load(path)
    rows = DraftShape.from_target_config(source.config).target_vocab_size
    if vocab.target_vocab_size != rows:
        raise MismatchError(
            f"{path}: this vocabulary was chosen among {vocab.target_vocab_size:,} ids, and "
            f"{source.name} has {rows:,}. Name one that was chosen for this target."
        )
    return vocab


def _draft_model(name: str | None, source: TargetSource, target: Target) -> Target | None:
    """The second model, in the target's dtype; None: the target itself drafts."""
    if name is None:
        return None
    return load_target(
        name,
        dtype=target.dtype,
        device=str(target.device),
        aux_layer_ids=(),
        trust_remote_code=source.trust_remote_code,
        offline=source.offline,
    )


def _facts(
    options: DrafterOptions, folder: Path | None, vocab: DraftVocab | None, target: Target
) -> dict[str, Any]:
    """What drafts: names, sizes and fingerprints; None where the drafter has no such thing."""
    draft = str(folder) if options.needs_draft else getattr(options, "draft_model", None)
    trained = folder if options.needs_draft else None
    return {
        "drafter": options.name,
        "draft": draft,
        "draft_fingerprint": None if trained is None else fingerprint_file(trained / WEIGHTS),
        "draft_vocab_size": None if vocab is None else vocab.size,
        "target_vocab_size": target.vocab_size,
        "vocab_fingerprint": None if vocab is None else vocab.fingerprint,
    }
