"""What engines make of the files and tensor names in a draft folder."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vtrim.models.importing import HEAD, TRUNK
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

_EXPORT = "`vtrim export --to portable` writes a folder that all engines read"
_KNOWN = {*TRUNK, HEAD, "d2t", "t2d", "embed_tokens.weight"}
_LLAMA_WIDTH = 4096  # where the config says none
# tensors of variants, which have rules of their own
_VARIANT = re.compile(
    r"input_norm\.|fc_norm\.|aux_norm_|mask_hidden|enorm\.|eh_proj\.|.*self_attn\.[qk]_norm\."
    r"|(layers|midlayer)\.[1-9]\d*\.|.*\.bias$|.*inv_freq$"
)


def tensor_rules(draft: DraftFolder) -> Iterator[Finding]:
    """All findings about files and tensor names."""
    yield from _files(draft)
    yield from _prefixes(draft)
    yield from _missing(draft)
    yield from _unknown(draft)
    yield from _shapes(draft)
    yield from _numbers(draft)


def _files(draft: DraftFolder) -> Iterator[Finding]:
    pickle, whole = "pytorch_model.bin" in draft.files, "model.safetensors" in draft.files
    if pickle and whole:
        yield from differs(
            EAGLE,
            "reads pytorch_model.bin; the other engines read model.safetensors beside it",
            "leave one file of weights in the folder",
        )
    if not pickle and not whole:
        yield from refuses(
            EAGLE,
            f"looks for one pytorch_model.bin or model.safetensors; here is {draft.files[0]}",
            _EXPORT,
        )
    indexed = draft.checkpoint.path.suffix == ".json"
    more = [f for f in draft.files if f.endswith(".safetensors") and f != "model.safetensors"]
    if more and whole and not indexed:
        yield from differs(
            (VLLM, SGLANG),
            f"reads every .safetensors of the folder, {more[0]} too",
            "move other files away",
        )


def _prefixes(draft: DraftFolder) -> Iterator[Finding]:
    stored = draft.names.values()
    if any(re.match(r"(model\.)?layers\.0\.", name) for name in stored):
        yield from differs(
            EAGLE,
            "drops the layer, which is named layers.0 and not midlayer, and runs a random one",
            "`vtrim export --to eagle` renames it",
            "run",
        )
    if any(name.startswith("model.") for name in stored):
        yield from refuses(
            VLLM, "puts model. before each name, which model.* has already: unknown", _EXPORT
        )
        yield from differs(EAGLE, "drops tensors named model.*, random ones run instead", _EXPORT)
        yield from differs(
            TRT, "puts model. before each name, which model.* has already", _EXPORT, "unverified"
        )


def _missing(draft: DraftFolder) -> Iterator[Finding]:
    missing = [name for name in TRUNK if name not in draft.names]
    if not missing:
        return
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    what = f"{missing[0]}{more} missing: runs as it was before loading"
    remedy = "get the whole checkpoint"
    yield from differs((VLLM, SGLANG, EAGLE), what, remedy, "run")
    yield from refuses(TRT, f"{missing[0]}{more} missing", remedy, "unverified")


def _unknown(draft: DraftFolder) -> Iterator[Finding]:
    unknown = sorted(n for n in draft.names if n not in _KNOWN and not _VARIANT.match(n))
    if unknown:
        what = f"{unknown[0]} is no tensor of an EAGLE-3 draft"
        yield from refuses(VLLM, f"{what}: names it and stops", "remove it", "run")
        yield from differs((SGLANG, EAGLE), f"{what}: left out in silence", "remove it", "run")
        yield from notes(TRT, f"{what}", "remove it", "unverified")


def _shapes(draft: DraftFolder) -> Iterator[Finding]:
    """The first weight that is not as wide as config.json means."""
    wide = draft.whole("hidden_size") or _LLAMA_WIDTH
    states = draft.whole("num_aux_hidden_states") or 3
    wanted = {
        "fc.weight": (wide, states * (draft.whole("target_hidden_size") or wide)),
        "norm.weight": (wide,),
        HEAD: (draft.rows, wide),
    }
    for name, shape in () if draft.flat.get("quantization_config") else wanted.items():
        found = draft.shapes.get(name)
        if found is not None and found != shape:
            yield from refuses(
                ENGINES,
                f"{name} is {list(found)}, config.json means {list(shape)}",
                "get the whole checkpoint, with its own config.json",
            )
            return


def _numbers(draft: DraftFolder) -> Iterator[Finding]:
    """The first weight that no engine can compute with, and none looks at."""
    for name in (*TRUNK, HEAD):
        stored = draft.names.get(name)
        if stored is not None and not bool(draft.checkpoint.tensor(stored).isfinite().all()):
            what = f"{name} holds numbers that are not finite: nothing that it drafts is accepted"
            yield from differs(ENGINES, what, "get the checkpoint anew")
            return
