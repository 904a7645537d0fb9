"""Training that goes on from a trained draft: what is read of it, and what it must fit.

Any layout is read, and what `vtrim trim` wrote. Dimensions and auxiliary layers are the draft's.
Under another vocabulary its head is resized as `vtrim trim` does: kept rows are its own bit for
bit, new ones are made from the target's head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vtrim.artifacts import check_match, fingerprint_json
from vtrim.errors import InputError, OptionError
from vtrim.models.aux_layers import default_aux_layers
from vtrim.models.draft import Eagle3Draft
from vtrim.models.foreign_config import rope_scaling
from vtrim.models.importing import ImportedDraft, ImportTarget, import_draft
from vtrim.models.resize import Resized, change_vocabulary
from vtrim.shape import DraftShape
from vtrim.vocab import DraftVocab, Ids


@dataclass(frozen=True, kw_only=True, eq=False)
class StartDraft:
    """A trained draft that fits the target.

    shape: its own dimensions, with the target's number of layers and positions. aux_layer_ids:
    hidden_states indices. fingerprint: of weights and vocabulary, whatever the layout.
    """

    source: ImportedDraft
    shape: DraftShape
    aux_layer_ids: tuple[int, int, int]
    fingerprint: str

    def weights(
        self, vocab: DraftVocab, head: Callable[[], Tensor], counts: Ids | None = None
    ) -> tuple[Eagle3Draft, Resized]:
        """The fp32 draft that training begins with, on the CPU, and what became of its rows.

        head: gives the target's LM head rows [V, d]; called only for tokens that are new.
        counts: [V] of the tokens, which weigh the rows that new ones are fitted on.

        Raises:
            InputError: new rows cannot be made.
        """
        resized = change_vocabulary(self.source, vocab, head, counts)
        draft = Eagle3Draft(self.shape, torch.from_numpy(vocab.ids))
        draft.load_state_dict(resized.draft.tensors)  # copied into fp32
        return draft, resized


def read_start(folder: Path, target: ImportTarget, target_config: dict[str, Any]) -> StartDraft:
    """Reads the draft of ``--init-from`` and checks it against the target's config.

    Raises:
        VtrimError: it is no draft, another target's, or computes what vtrim cannot train.
    """
    draft = import_draft(folder, target)
    known = draft.provenance.get("target_config_fingerprint")
    if known is not None:
        check_match(
            f"{target.name}: config",
            fingerprint_json(target_config),
            known,
            str(folder / "config.json"),
            f"The draft was trained for {draft.provenance.get('target', 'another target')}.",
        )
    scaling = rope_scaling(draft.config)
    if scaling is not None:
        raise InputError(
            f"{folder}: its config asks for rope scaling '{scaling}', which vtrim does not train "
            "with. `vtrim trim --rope-theta BASE` writes it with the plain base it was trained on."
        )
    positions = DraftShape.from_target_config(target_config).max_position_embeddings
    return StartDraft(
        source=draft,
        shape=replace(draft.shape, max_position_embeddings=positions),
        aux_layer_ids=draft.aux_layer_ids or default_aux_layers(target.num_layers),
        fingerprint=_fingerprint(draft),
    )


def check_choices(
    start: StartDraft,
    *,
    head: str | None,
    aux_layers: tuple[int, int, int] | None,
    dimensions: Mapping[str, Any],
) -> None:
    """Refuses options that say of the draft what it is not; each is None or empty if not typed.

    Raises:
        OptionError: names the option, what it asks for and what the draft has.
    """
    name = start.source.folder
    if head is not None and head != "frozen":
        raise OptionError(
            f"--head {head}: with --init-from the head starts as the draft's; only --head frozen "
            "(not trained) goes with it."
        )
    if aux_layers is not None and aux_layers != start.aux_layer_ids:
        raise OptionError(
            f"--aux-layers {_listed(aux_layers)}: the draft {name} was trained on "
            f"{_listed(start.aux_layer_ids)}; leave the option out."
        )
    own = start.shape.to_dict()
    for key, value in dimensions.items():
        if value != own[key]:
            raise OptionError(
                f"--draft-config: '{key}' is {value}, the draft {name} has {own[key]}. Leave the "
                "option out: --init-from takes the draft's dimensions."
            )


def start_facts(start: StartDraft, resized: Resized) -> dict[str, Any]:
    """What config.json, card and run.json say of the draft that training went on from."""
    draft = start.source
    kept = ("version", "target", "data_fingerprint", "result", "written")
    return {
        "draft": str(draft.folder),
        "layout": draft.layout,
        "fingerprint": start.fingerprint,
        "vocab_fingerprint": draft.vocab.fingerprint,
        "k": draft.vocab.size,
        "kept": resized.kept,
        "dropped": resized.dropped,
        "added": resized.added,
        "new_rows": resized.fit.to_dict() if resized.fit else None,
        "trained": {key: draft.provenance[key] for key in kept if key in draft.provenance},
    }


def start_lines(start: StartDraft, resized: Resized) -> list[str]:
    """What is told before training: where it begins, and what became of the head's rows."""
    draft = start.source
    lines = [f"goes on from {draft.folder} ({draft.layout} layout, k {draft.vocab.size:,})"]
    lines += [f"{draft.folder}: {note}" for note in draft.notes]
    if resized.added or resized.dropped:
        fit = resized.fit
        quality = f" (fit on {fit.common:,}, cosine {fit.cosine:.3f})" if fit else ""
        lines.append(
            f"the vocabulary differs from the draft's: {resized.kept:,} head rows kept, "
            f"{resized.dropped:,} cut, {resized.added:,} made from the target's head{quality}; "
            f"--vocab draft keeps its own {draft.vocab.size:,}"
        )
    return lines


def _listed(layers: tuple[int, int, int]) -> str:
    return ",".join(map(str, layers))


def _fingerprint(draft: ImportedDraft) -> str:
    digest = hashlib.sha256(draft.vocab.fingerprint.encode())
    digest.update(repr(sorted(draft.shape.to_dict().items())).encode())
    for name, tensor in sorted(draft.tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().data)
    return "sha256:" + digest.hexdigest()
