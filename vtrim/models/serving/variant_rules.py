"""What engines make of variants of EAGLE-3: who computes them, who runs the plain draft instead."""

from __future__ import annotations

import re
from collections.abc import Iterator

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

_ELSEWHERE = "serve it with an engine that reads it"


def variant_rules(draft: DraftFolder) -> Iterator[Finding]:
    """All findings about variants."""
    yield from _residual(draft)
    yield from _norms(draft)
    yield from _states(draft)
    yield from _layers(draft)
    yield from _attention(draft)
    yield from _biases(draft)


def _residual(draft: DraftFolder) -> Iterator[Finding]:
    if draft.flat.get("norm_before_residual") is True:
        what = "norm_before_residual is not read: the residual is taken before the norm"
        yield from differs((SGLANG, TRT, EAGLE), what, "serve it with vLLM")


def _norms(draft: DraftFolder) -> Iterator[Finding]:
    """A norm before fc, norms of each state, the normed state fed back."""
    top, inner = draft.config.get("norm_before_fc"), draft.inner("norm_before_fc")
    stored = _has(draft, r"input_norm\.")
    if draft.flat.get("norm_before_fc"):
        yield from differs(EAGLE, "norm_before_fc is not read", _ELSEWHERE)
        if top and not inner:
            what = "norm_before_fc is read inside eagle_config only"
            yield from differs(TRT, what, "write it in eagle_config too", "report")
        yield from notes(SGLANG, "norm_before_fc is read since #32334", "update", "report")
    elif stored:
        what = "input_norm is left out: norm_before_fc is not set"
        mend = "write norm_before_fc into eagle_config"
        yield from differs((VLLM, SGLANG, EAGLE), what, mend)
        yield from differs(TRT, what, mend, "unverified")
    if draft.flat.get("fc_norm"):
        yield from differs(EAGLE, "fc_norm is not read", _ELSEWHERE)
    elif _has(draft, r"fc_norm\.|aux_norm_(low|mid|high)"):
        what = "norms of each state are there, fc_norm is not set"
        yield from refuses(VLLM, what, "set fc_norm", "code")
        yield from differs((SGLANG, EAGLE), what, "set fc_norm")
        yield from differs(TRT, what, "set fc_norm", "unverified")
    if draft.flat.get("norm_output") or draft.flat.get("return_hidden_post_norm"):
        yield from differs(EAGLE, "feeds the un-normed state back (EAGLE-3.1)", _ELSEWHERE)
    if draft.flat.get("return_hidden_post_norm") and not draft.flat.get("norm_output"):
        what = "return_hidden_post_norm is not read: the un-normed state is fed back"
        yield from differs((VLLM, SGLANG), what, "write norm_output too")


def _states(draft: DraftFolder) -> Iterator[Finding]:
    """Another number of states, none at all, parallel drafting."""
    if draft.inner("use_aux_hidden_state") is False:
        yield from refuses(EAGLE, "a draft without fc is EAGLE-1's", _ELSEWHERE)
        yield from differs(
            TRT, "use_aux_hidden_state is not read: three states go in", _ELSEWHERE, "unverified"
        )
    elif "fc.weight" not in draft.names:
        what = "no fc, and eagle_config does not say use_aux_hidden_state false"
        yield from differs((VLLM, SGLANG, EAGLE), f"{what}: a random one runs", _ELSEWHERE)
    count = draft.flat.get("num_aux_hidden_states")
    if count not in (None, 3):
        yield from refuses(EAGLE, f"reads 3 states, not {count}", _ELSEWHERE)
        yield from refuses(TRT, f"reads 3 states unless its YAML names {count}", "", "unverified")
    if "mask_hidden" in draft.names:
        what = "made for parallel drafting (P-EAGLE): drafts one token after the other"
        yield from differs(VLLM, what, 'say "parallel_drafting": true')
        yield from differs((SGLANG, EAGLE), what, "serve it with vLLM")
        yield from differs(TRT, what, "serve it with vLLM", "unverified")


def _layers(draft: DraftFolder) -> Iterator[Finding]:
    """Several layers, which no two engines read alike."""
    count = draft.whole("num_hidden_layers") or 1
    if count > 1 or _has(draft, r"(layers|midlayer)\.[1-9]\d*\."):
        what = f"{max(count, 2)} layers: engines read the second one each in their own way"
        yield from differs((VLLM, SGLANG, TRT), what, "serve it with its trainer's engine")
        yield from differs(EAGLE, "runs one layer of several", "serve it elsewhere")


def _attention(draft: DraftFolder) -> Iterator[Finding]:
    """Norms of queries and keys; projections before attention."""
    if _has(draft, r".*self_attn\.[qk]_norm\."):
        what = "norms of queries and keys (a Qwen3 draft) are left out"
        yield from differs((SGLANG, EAGLE), what, "serve it with vLLM")
        yield from differs(TRT, what, "serve it with vLLM", "unverified")
        names = draft.config.get("architectures") or []
        nested = draft.is_nested and draft.flat.get("model_type") == "qwen3"
        if "Eagle3Qwen3ForCausalLM" not in names and not nested:
            yield from refuses(
                VLLM, "q_norm belongs to Eagle3Qwen3ForCausalLM", "write that architecture"
            )
    if _has(draft, r"enorm\.|eh_proj\."):
        yield from refuses(VLLM, "eh_proj is no tensor of its draft", "serve it with TensorRT-LLM")
        yield from differs((SGLANG, EAGLE), "eh_proj is left out", "serve it with TensorRT-LLM")
        if not draft.inner("eh_proj_before_attn"):
            what = "eh_proj is there, eh_proj_before_attn is not set in eagle_config"
            yield from differs(TRT, what, "set it", "unverified")


def _biases(draft: DraftFolder) -> Iterator[Finding]:
    """Biases of projections and of fc."""
    if _has(draft, r".*self_attn\.[qkv]_proj\.bias$"):
        yield from differs(
            (SGLANG, EAGLE), "biases of q, k and v are left out", "serve it with vLLM"
        )
        if not draft.flat.get("attention_bias"):
            what = "biases of q, k and v, but attention_bias is not set"
            yield from refuses(VLLM, what, "write attention_bias true")
            yield from differs(TRT, what, "write attention_bias true", "unverified")
    if "fc.bias" in draft.names:
        yield from refuses(VLLM, "fc has a bias, which its draft has not", "")
        yield from differs(EAGLE, "the bias of fc is left out", _ELSEWHERE)
        if not draft.flat.get("bias"):
            what = "the bias of fc is left out: 'bias' is not set"
            yield from differs((SGLANG, TRT), what, "write bias true")
    if _has(draft, r".*mlp\.\w+_proj\.bias$"):
        yield from differs((SGLANG, EAGLE), "biases of the MLP are left out", _ELSEWHERE)
        yield from notes((VLLM, TRT), "biases of the MLP: not verified", "", "unverified")


def _has(draft: DraftFolder, pattern: str) -> bool:
    return any(re.match(pattern, name) for name in draft.names)
