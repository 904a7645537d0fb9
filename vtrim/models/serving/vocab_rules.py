"""What engines make of the draft vocabulary: its two sizes, the mapping, head and embedding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from vtrim.models.importing import HEAD
from vtrim.models.serving.finding import (
    EAGLE,
    ENGINES,
    SGLANG,
    TRT,
    VLLM,
    Finding,
    differs,
    notes,
    refuses,
)
from vtrim.models.serving.folder import DraftFolder
from vtrim.vocab import Ids

_IMPORT = "`vtrim import` reads and mends it"
_PADDED = 64  # rows a head is padded to, per rank


def vocab_rules(draft: DraftFolder) -> Iterator[Finding]:
    """All findings about the vocabulary."""
    yield from _sizes(draft)
    yield from _mapping(draft)
    yield from _mask(draft)
    yield from _head(draft)
    yield from _embedding(draft)
    yield from _ranks(draft)


def _sizes(draft: DraftFolder) -> Iterator[Finding]:
    """draft_vocab_size against the head, vocab_size against V."""
    rows, size = draft.rows, draft.target_rows
    named = draft.flat.get("draft_vocab_size")
    remedy = f'write "draft_vocab_size": {rows}'
    if "draft_vocab_size" not in draft.flat:
        yield from refuses(EAGLE, "needs draft_vocab_size", remedy)
        if not draft.is_nested:
            yield from refuses(SGLANG, "needs draft_vocab_size (AttributeError)", remedy, "run")
    elif named is None:
        yield from refuses(EAGLE, "draft_vocab_size is null, not a number", remedy)
        yield from differs(
            SGLANG, "draft_vocab_size is null: the target's head serves, not this one", remedy
        )
    if named is None and rows is not None and size is not None and rows != size:
        yield from refuses(
            (VLLM, TRT), f"takes V = {size:,} for the head, which has {rows:,} rows", remedy
        )
    if named is not None and rows is not None and named != rows:
        yield from refuses(
            ENGINES, f"draft_vocab_size {named} does not fit {rows:,} head rows", remedy
        )
    known = draft.target.whole("vocab_size") if draft.target else size
    written = draft.whole("vocab_size")
    if known is not None and written != known:
        mend = f'write "vocab_size": {known}'
        what = f"vocab_size is {written}, the target's head has {known:,} rows"
        yield from refuses(VLLM, f"{what}: its logits do not fit", mend)
        yield from differs((SGLANG, TRT), what, mend, "unverified")
        yield from refuses(EAGLE, f"{what}: t2d and embedding do not fit", mend)


def _mapping(draft: DraftFolder) -> Iterator[Finding]:
    """d2t: absent, of another length, absolute, or there though nothing is trimmed."""
    rows, size, d2t = draft.rows, draft.target_rows, draft.d2t
    if rows is None or size is None:
        return
    if d2t is None:
        if rows != size:
            what = f"no d2t: draft ids are taken for target ids 0 to {rows - 1:,}"
            yield from differs((VLLM, SGLANG), what, _IMPORT, "run")
            yield from differs(EAGLE, what, _IMPORT)
            yield from differs(TRT, "no d2t: its mapping is never filled", _IMPORT, "unverified")
        return
    if rows == size:
        yield from refuses(
            VLLM, "d2t is there though every row is kept (draft_id_to_target_id)", _IMPORT, "run"
        )
    if d2t.size != rows:
        what = f"d2t has {d2t.size:,} entries, the head {rows:,} rows"
        yield from refuses((VLLM, TRT, EAGLE), what, "get the whole checkpoint")
        yield from differs(SGLANG, f"{what}: ids beyond it are read at random", "", "unverified")
        return
    yield from _absolute(draft, d2t, size)


def _absolute(draft: DraftFolder, d2t: Ids, size: int) -> Iterator[Finding]:
    """d2t that holds ids, or nothing that could be a mapping."""
    found = draft.vocabulary()
    if found is not None and found.meaning != "absolute":
        return
    ids = d2t + np.arange(d2t.size)
    top = int(ids.max())
    whose = "absolute ids" if found is not None else "neither offsets nor ids"
    what = f"d2t holds {whose}, which engines add to the draft id"
    if top >= size or int(ids.min()) < 0:
        past = f"{what}: up to {top:,} of {size:,} tokens"
        yield from refuses(VLLM, f"{past}; IndexError at the first proposal", _IMPORT, "run")
        yield from differs(SGLANG, f"{past}; reads outside its tables", _IMPORT, "run")
        yield from differs(TRT, past, _IMPORT, "unverified")
        yield from refuses(EAGLE, f"{past}; outside its embedding", _IMPORT)
    else:
        yield from differs((VLLM, SGLANG), f"{what}: other tokens are proposed", _IMPORT, "run")
        yield from differs((TRT, EAGLE), f"{what}: other tokens are proposed", _IMPORT)


def _mask(draft: DraftFolder) -> Iterator[Finding]:
    """t2d, which only EAGLE holds, and only training uses."""
    size = draft.whole("vocab_size")
    if draft.t2d is None:
        return
    if size is not None and draft.t2d.size != size:
        yield from refuses(
            EAGLE, f"t2d has {draft.t2d.size:,} entries, vocab_size is {size:,}", _IMPORT
        )
    if draft.d2t is not None and draft.vocabulary() is None and draft.d2t.size == draft.rows:
        yield from notes(ENGINES, "t2d and d2t name other ids; the engine follows d2t", _IMPORT)


def _head(draft: DraftFolder) -> Iterator[Finding]:
    if HEAD in draft.names:
        return
    remedy = "`vtrim import --target` writes the head's rows"
    trimmed = draft.flat.get("draft_vocab_size") not in (None, draft.target_rows)
    yield from differs(EAGLE, "no lm_head: a random head runs", remedy)
    if draft.flat.get("draft_vocab_size") is not None:
        yield from differs(
            SGLANG, "no lm_head but draft_vocab_size: a random head runs", remedy, "report"
        )
    if trimmed:
        yield from differs(
            VLLM, "no lm_head: the first rows of the target's head serve, whatever d2t says", remedy
        )
        yield from refuses(TRT, "no lm_head: the target's does not fit", remedy, "unverified")
    else:
        yield from notes((VLLM, TRT), "no lm_head: the target's serves", remedy)


def _embedding(draft: DraftFolder) -> Iterator[Finding]:
    """An embedding of the draft's own, and who reads it."""
    stored = draft.names.get("embed_tokens.weight")
    ranks = draft.target.pipeline_parallel if draft.target else 1
    if stored is None:
        if ranks > 1:
            yield from refuses(
                VLLM,
                f"shares no embedding across {ranks} pipeline stages, and the draft has none",
                "serve it without pipeline parallelism, or add embed_tokens.weight",
            )
        return
    rows = draft.checkpoint.tensor(stored)
    same = None if draft.target is None else _equals_target(draft, rows)
    leave = "leave it out: `vtrim export` does"
    if same is False or not bool(torch.isfinite(rows.float()).all()):
        what = "embed_tokens is not the target's"
        yield from differs((VLLM, EAGLE), f"{what}, and is used instead of it", leave, "report")
        yield from notes((SGLANG, TRT), f"{what}; the target's is used", leave)
    elif same is None:
        yield from notes((VLLM, EAGLE), "uses embed_tokens of the draft, whatever it holds", leave)


def _equals_target(draft: DraftFolder, rows: torch.Tensor) -> bool | None:
    """Whether the embedding is the target's; None where its files are not here."""
    from vtrim.errors import InputError
    from vtrim.models.checkpoint import Checkpoint

    folder = draft.target.folder if draft.target else None
    if folder is None:
        return None
    try:
        checkpoint = Checkpoint(folder)
    except InputError:
        return None
    names = [name for name in checkpoint.names if name.endswith("embed_tokens.weight")]
    if len(names) != 1:
        return None
    theirs = checkpoint.tensor(names[0])
    return theirs.shape == rows.shape and bool(torch.equal(theirs.to(rows.dtype), rows))


def _ranks(draft: DraftFolder) -> Iterator[Finding]:
    """Heads and rows that must be shared evenly among tensor-parallel ranks."""
    ranks, rows = (draft.target.tensor_parallel if draft.target else 1), draft.rows
    if ranks == 1 or rows is None:
        return
    heads = draft.whole("num_key_value_heads") or draft.whole("num_attention_heads") or 1
    if heads % ranks:
        yield from refuses(
            (VLLM, SGLANG, TRT),
            f"{heads} key/value heads cannot be shared by {ranks} tensor-parallel ranks",
            "serve the draft on one rank (vLLM: draft_tensor_parallel_size 1)",
            "unverified",
        )
    padded = -(-rows // _PADDED) * _PADDED
    if padded % ranks:
        yield from refuses(
            (VLLM, SGLANG),
            f"{rows:,} head rows, padded to {padded:,}, cannot be shared by {ranks} ranks",
            f"choose a multiple of {_PADDED * ranks} for K: `vtrim trim -k`",
        )
    elif rows % (_PADDED * ranks):
        yield from notes(
            (VLLM, SGLANG),
            f"{rows:,} head rows are padded for {ranks} ranks",
            f"a multiple of {_PADDED * ranks} needs no padding",
        )
