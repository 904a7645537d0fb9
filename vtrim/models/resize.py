"""Another vocabulary for a trained draft, without training: rows kept, dropped and made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vtrim.errors import InputError, OptionError
from vtrim.models.importing import HEAD, ImportedDraft
from vtrim.models.new_rows import RowFit, fit_new_rows
from vtrim.vocab import DraftVocab, Ids


@dataclass(frozen=True)
class Resized:
    """A draft with another vocabulary.

    kept: rows taken over bit for bit. added: rows made from the target's head. dropped: rows of
    the old head that are gone. fit: how new rows were made; None where there are none.
    """

    draft: ImportedDraft
    kept: int
    added: int
    dropped: int
    fit: RowFit | None


def change_vocabulary(
    draft: ImportedDraft,
    vocab: DraftVocab,
    head: Callable[[], Tensor] | None,
    counts: Ids | None = None,
) -> Resized:
    """The draft with ``vocab``: kept rows are the old ones bit for bit, new ones are fitted.

    head: gives the target's LM head rows [V, d]; called only when the vocabulary has tokens that
    the draft lacks. counts: [V] of the tokens, which weigh the rows that new ones are fitted on.

    Raises:
        OptionError: new tokens, and no target was named. InputError: another target's vocabulary,
            or another target's head.
    """
    old = draft.vocab
    if vocab.target_vocab_size != old.target_vocab_size:
        raise InputError(
            f"the vocabulary is made for a head of {vocab.target_vocab_size:,} rows, the draft "
            f"{draft.folder} for one of {old.target_vocab_size:,}."
        )
    where = np.searchsorted(old.ids, vocab.ids).clip(max=old.size - 1)
    known = old.ids[where] == vocab.ids
    kept, rows = int(known.sum()), draft.tensors[HEAD]
    changed = torch.empty(vocab.size, rows.shape[1], dtype=rows.dtype)
    mask = torch.from_numpy(known)
    changed[mask] = rows[torch.from_numpy(where[known])]
    fit = None
    if kept < vocab.size:
        if head is None:
            raise OptionError(
                f"{vocab.size - kept:,} of {vocab.size:,} tokens are new to the draft; their rows "
                "come from the target's head. Name it with --target."
            )
        made, fit = _new_rows(draft, vocab.ids[~known], head(), counts)
        changed[~mask] = made.to(rows.dtype)
        if not bool(torch.isfinite(changed).all()):
            kind = str(rows.dtype).removeprefix("torch.")
            raise InputError(f"{draft.folder}: rows of new tokens are too large for {kind}.")
    return Resized(
        draft=replace(draft, vocab=vocab, tensors={**draft.tensors, HEAD: changed}),
        kept=kept,
        added=vocab.size - kept,
        dropped=old.size - kept,
        fit=fit,
    )


def _new_rows(
    draft: ImportedDraft, ids: Ids, head: Tensor, counts: Ids | None
) -> tuple[Tensor, RowFit]:
    """Rows for new target ids, fitted on all rows of the draft."""
    if head.shape[0] != draft.vocab.target_vocab_size:
        raise InputError(
            f"the target's LM head has {head.shape[0]:,} rows, the draft {draft.folder} is made "
            f"for one of {draft.vocab.target_vocab_size:,}."
        )
    own = torch.from_numpy(draft.vocab.ids)
    weights = None if counts is None else torch.from_numpy(counts)[own]
    return fit_new_rows(draft.tensors[HEAD], head[own], head[torch.from_numpy(ids)], weights)
