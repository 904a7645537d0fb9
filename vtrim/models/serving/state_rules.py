"""Which states of the target each engine feeds a draft with; one key means two things."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vtrim.models.aux_layers import KEY
from vtrim.models.serving.finding import (
    EAGLE,
    SGLANG,
    TRT,
    VLLM,
    Finding,
    differs,
    notes,
    refuses,
)
from vtrim.models.serving.folder import DraftFolder

_PORTABLE = "`vtrim export --to portable` names them for vLLM and SGLang alike"
_BOUNDARY = ("deepseek_v2", "deepseek_v3", "glm4_moe_lite")  # SGLang adds 1 if the first is 1
_EAGLE_TARGETS = ("llama", "qwen3")
_FEWEST = 7  # layers: below, two of the default states coincide


def state_rules(draft: DraftFolder) -> Iterator[Finding]:
    """All findings about auxiliary states."""
    if draft.inner("use_aux_hidden_state") is False:
        return
    yield from _targets(draft)
    top, blocks = _ids(draft.config.get(KEY)), _ids(draft.inner(KEY))
    second = _ids(draft.inner("layer_ids"))
    if second is not None and top is None:
        yield from differs(
            VLLM,
            f"eagle_config.layer_ids {second} is read by its second runner only",
            f"write {KEY} at the top level",
        )
    if top is None and blocks is None:
        yield from _defaults(draft)
        return
    found = list(_broken(draft, top, blocks))
    yield from found
    if min(top or blocks or []) < 0:
        return
    stopped = {one.engine for one in found if one.verdict == "refuses"}
    for one in _readings(draft, top and sorted(top), blocks and sorted(blocks)):
        if one.engine not in stopped:
            yield one


def _ids(value: Any) -> list[int] | None:
    whole = isinstance(value, list) and value and all(type(j) is int for j in value)
    return list(value) if whole else None


def _targets(draft: DraftFolder) -> Iterator[Finding]:
    """Targets whose states an engine cannot capture."""
    if draft.target is None or not draft.target.model_type:
        return
    kind = draft.target.model_type
    if kind not in _EAGLE_TARGETS:
        yield from refuses(
            EAGLE, f"captures states of Llama and Qwen3 targets, not of {kind}", "another engine"
        )
    folder = draft.target.folder
    shared = "embed_tokens.weight" not in draft.names
    if shared and folder is not None and not any(folder.glob("*.index.json")):
        yield from refuses(
            EAGLE,
            "finds the target's embedding by its *.index.json, and this target is one file",
            "save the target in shards",
        )


def _defaults(draft: DraftFolder) -> Iterator[Finding]:
    """No ids: all engines take states 2, n//2, n-3, which shallow targets do not have."""
    n = draft.num_layers
    if n is None or n >= _FEWEST:
        return
    what = f"the default states 2, n//2, n-3 coincide for a target of {n} layers"
    yield from refuses((VLLM, EAGLE), f"{what}: fc does not fit", _PORTABLE)
    yield from refuses(SGLANG, f"{what}: fc does not fit", _PORTABLE, "unverified")
    if n <= 5:
        yield from refuses(
            TRT,
            f"has no default for a target of {n} layers",
            "name eagle3_layers_to_capture in its YAML",
        )
    else:
        yield from differs(TRT, what, "name eagle3_layers_to_capture in its YAML", "unverified")


def _broken(
    draft: DraftFolder, top: list[int] | None, blocks: list[int] | None
) -> Iterator[Finding]:
    """Ids that are no three ascending states of the target.

    SGLang captures before a block, so never the last state, but for gpt-oss.
    """
    n, inner = draft.num_layers, f"eagle_config.{KEY}"
    wanted = draft.flat.get("num_aux_hidden_states") or 3
    for engine, ids, where, last in (
        (VLLM, top or blocks, KEY if top else inner, n),
        (SGLANG, blocks, inner, n if _kind(draft) == "gpt_oss" else n and n - 2),
    ):
        if ids is None:
            continue
        what = f"{where} is {ids}"
        if len(set(ids)) != wanted:
            yield from refuses(
                engine, f"{what}: {len(set(ids))} states for an fc of {wanted}", "name three"
            )
        elif ids != sorted(ids):
            yield from notes(
                engine, f"{what}: read in the order of the layers", "write them ascending"
            )
        if min(ids) < 0:
            makes = refuses if engine == VLLM else differs
            yield from makes(
                engine, f"{what}: only TensorRT-LLM's YAML knows -1", "count from the first layer"
            )
        if last is not None and max(ids) > last:
            yield from refuses(
                engine, f"{what}, the target has {n} layers", "name the draft's own target"
            )


def _readings(
    draft: DraftFolder, top: list[int] | None, blocks: list[int] | None
) -> Iterator[Finding]:
    """Each engine's states against those the draft is made for."""
    n = draft.num_layers
    meant = top if top is not None else [j + 1 for j in blocks or []]
    default = [2, n // 2, n - 3] if n else None
    sglang = default if blocks is None else _sglang(blocks, draft)
    say = f"{meant} (hidden_states)"
    if top is None:
        yield from differs(
            VLLM,
            f"takes the blocks in eagle_config for hidden_states: reads {blocks}, not {say}; its "
            "second runner does not read them at all",
            f"write {KEY} {meant} at the top level",
            "run",
        )
    if sglang is None:
        yield from notes(SGLANG, f"reads its default, not {KEY} at the top level: {say}", _PORTABLE)
    elif sglang != meant:
        yield from differs(SGLANG, f"reads {sglang}, the draft is made for {say}", _PORTABLE)
    if default == meant:
        return
    mend = _yaml([j - 1 for j in meant])
    if default is None:
        yield from notes((TRT, EAGLE), f"reads its default; the draft is made for {say}", mend)
        return
    yield from differs(TRT, f"reads {default} unless its YAML says otherwise, not {say}", mend)
    yield from differs(EAGLE, f"always reads {default}, not {say}", "serve it with another engine")


def _sglang(blocks: list[int], draft: DraftFolder) -> list[int]:
    """The states SGLang takes blocks for, which hangs on the target's family."""
    kind, n = _kind(draft), draft.num_layers
    verbatim = (kind in _BOUNDARY and blocks[0] != 1) or (kind == "gpt_oss" and max(blocks) == n)
    return list(blocks) if verbatim else [j + 1 for j in blocks]


def _kind(draft: DraftFolder) -> str:
    return draft.target.model_type if draft.target else ""


def _yaml(blocks: list[int]) -> str:
    return f"eagle3_layers_to_capture: {blocks} in its YAML"
