"""What engines make of config.json: whose class runs, sizes, rotation, length, dtype."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vtrim.models.foreign_config import ignored_base, layout_name, rope_scaling
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

_ARCHITECTURE = "LlamaForCausalLMEagle3"
# plain LlamaForCausalLM gets an "Eagle3" in front
_VLLM_CLASSES = {
    _ARCHITECTURE,
    "LlamaForCausalLM",
    "Eagle3LlamaForCausalLM",
    "Eagle3Qwen3ForCausalLM",
    "Eagle3Qwen2_5vlForCausalLM",
    "Eagle3Qwen3vlForCausalLM",
    "Eagle3MiniMaxM2ForCausalLM",
    "PEagleDraftModel",
    "PeagleLlamaForCausalLM",
    "PeagleQwen3ForCausalLM",
}
_PLAIN_BASE = 10000.0


def config_rules(draft: DraftFolder) -> Iterator[Finding]:
    """All findings about config.json."""
    if draft.is_nested:
        yield from _nested(draft)
    else:
        yield from _classes(draft)
    yield from _widths(draft)
    yield from _rotation(draft)
    yield from _length(draft)
    yield from _dtype(draft)
    yield from _others(draft)


def _nested(draft: DraftFolder) -> Iterator[Finding]:
    """The config of speculators: what vLLM needs of it, and who cannot read it."""
    yield from refuses(
        (SGLANG, TRT, EAGLE),
        "cannot read the config of speculators",
        "`vtrim export --to portable` writes a flat one",
    )
    config = draft.config
    remedy = "`vtrim import`, then `vtrim export --to speculators`"
    if config.get("speculators_model_type") != "eagle3":
        kind = config.get("speculators_model_type")
        yield from refuses(VLLM, f"speculators_model_type is {kind!r}, not 'eagle3'", remedy)
    if "model_type" in config:
        yield from notes(VLLM, "model_type stands at the top level of a speculators config", remedy)
    layer = config["transformer_layer_config"].get("model_type", "llama")
    if layer not in ("llama", "qwen3"):
        yield from refuses(VLLM, f"knows no speculators layer of model_type {layer!r}", remedy)
    for path in (("proposal_methods", 0, "speculative_tokens"), ("verifier", "name_or_path")):
        if _inside(config.get("speculators_config"), path) is None:
            where = ".".join(map(str, ("speculators_config", *path)))
            yield from refuses(VLLM, f"{where} is missing", remedy)
    if config.get("norm_before_residual") is None:
        yield from differs(
            VLLM,
            "norm_before_residual is not said: vLLM takes true, speculators false",
            "write the value it was trained with",
        )


def _inside(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        if isinstance(step, int):
            value = value[step] if isinstance(value, list) and len(value) > step else None
        else:
            value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _classes(draft: DraftFolder) -> Iterator[Finding]:
    """The class that runs, and the model_type."""
    names = draft.config.get("architectures") or []
    write = f'write "architectures": ["{_ARCHITECTURE}"]'
    if names == ["LlamaForCausalLM"]:
        yield from differs(
            SGLANG, "architectures is LlamaForCausalLM: a plain Llama is run as the draft", write
        )
    elif names != [_ARCHITECTURE]:
        yield from refuses(SGLANG, f"architectures is {names}; one class is registered", write)
    if not set(names) & _VLLM_CLASSES:
        yield from refuses(VLLM, f"architectures is {names}; no class of that name", write)
    kind = draft.config.get("model_type")
    if kind is None:
        yield from refuses(
            (VLLM, SGLANG, TRT), "config.json has no model_type", 'write "model_type": "llama"'
        )
    elif kind != "llama":
        yield from notes(
            (VLLM, SGLANG, TRT), f"model_type is {kind!r}; 'llama' is what engines are tested with",
            'write "model_type": "llama"', "unverified",
        )  # fmt: skip
    if "eagle3" not in draft.path.resolve().name.lower():
        yield from notes(
            VLLM, 'finds the method by "eagle3" in the folder\'s name', 'say "method": "eagle3"'
        )


def _widths(draft: DraftFolder) -> Iterator[Finding]:
    """Hidden sizes of draft and target, and the head size that EAGLE derives."""
    hidden, heads, size = (
        draft.whole(n) for n in ("hidden_size", "num_attention_heads", "head_dim")
    )
    if hidden and heads and size and hidden != heads * size:
        yield from refuses(
            EAGLE,
            f"takes hidden_size // heads = {hidden // heads} for head_dim {size}",
            "serve it with another engine",
        )
    wide = draft.whole("target_hidden_size")
    whole = "embed_tokens.weight" in draft.names
    if wide is not None and wide == hidden and not whole and not draft.is_nested:
        yield from differs(
            EAGLE,
            "target_hidden_size is there: the target's embedding is not loaded, a random one runs",
            "remove target_hidden_size, which equals hidden_size",
        )
    known = draft.target.whole("hidden_size") if draft.target else None
    if known is not None and hidden is not None and known != (wide or hidden):
        yield from refuses(
            (VLLM, SGLANG, TRT, EAGLE),
            f"the target's states are {known} wide, the draft is made for {wide or hidden}",
            "name the draft's own target",
        )
    if wide is not None and wide != hidden and not whole:
        yield from refuses(
            (VLLM, SGLANG, TRT, EAGLE),
            f"a draft {hidden} wide for a target {wide} wide needs an embedding of its own",
            "get the whole checkpoint",
        )


def _rotation(draft: DraftFolder) -> Iterator[Finding]:
    """RoPE: a base that is not said where EAGLE looks, a scaling, a base never trained with."""
    flat = draft.flat
    nested = flat.get("rope_parameters")
    inner = nested.get("rope_theta") if isinstance(nested, Mapping) else None
    base = inner if flat.get("rope_theta") is None else flat["rope_theta"]
    if base is inner and isinstance(inner, int | float) and inner != _PLAIN_BASE:
        yield from differs(
            EAGLE,
            f"reads rope_theta at the top level only, so 10,000 for {inner:g}",
            f'write "rope_theta": {inner}',
        )
    if base is None:
        yield from notes(
            (VLLM, SGLANG, TRT, EAGLE),
            "rope_theta is not said: 10,000 is taken",
            "write the base the draft was trained with",
        )
    kind = rope_scaling(flat)
    if kind is not None and kind not in ("linear", "dynamic"):
        yield from refuses(
            EAGLE, f"rope scaling {kind!r} is unknown to it (KeyError)", "train without scaling"
        )
    trained = layout_name(draft.config, draft.names.values())
    if ignored_base(trained, flat) is not None:
        yield from notes(
            (VLLM, SGLANG, TRT, EAGLE),
            f"uses rope_theta {base}; {trained}'s trainer takes 10,000 whatever the config says",
            "compare acceptance after `vtrim import --rope-theta 10000`",
            "report",
        )


def _length(draft: DraftFolder) -> Iterator[Finding]:
    """Positions of the draft against the target's context."""
    positions = draft.whole("max_position_embeddings")
    context = draft.target.whole("max_position_embeddings") if draft.target else None
    if positions is None or context is None or positions >= context:
        return
    what = f"max_position_embeddings is {positions:,}, the target's context {context:,}"
    remedy = f'write "max_position_embeddings": {context}'
    yield from refuses(
        SGLANG,
        f"{what} (unless SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1)",
        remedy,
    )
    yield from notes(
        VLLM, f"{what}: raised by itself since 2026-07, read past its end before", remedy, "run"
    )
    yield from differs(TRT, f"{what}: sizes its rotation by it", remedy)
    yield from notes(EAGLE, f"{what}: grows on demand", remedy)


def _dtype(draft: DraftFolder) -> Iterator[Finding]:
    named = draft.flat.get("torch_dtype") or draft.flat.get("dtype")
    if named is None:
        yield from refuses(TRT, "needs torch_dtype", 'write "torch_dtype": "bfloat16"')
    served = draft.target.config if draft.target else {}
    theirs = served.get("torch_dtype") or served.get("dtype")
    if named and theirs and str(named).split(".")[-1] != str(theirs).split(".")[-1]:
        yield from notes(
            SGLANG,
            f"--dtype auto keeps the draft in {named} under a target in {theirs}",
            "say --dtype",
        )


def _others(draft: DraftFolder) -> Iterator[Finding]:
    """Tied heads, quantised weights, padding."""
    flat = draft.flat
    if flat.get("tie_word_embeddings"):
        yield from differs(
            SGLANG,
            "tie_word_embeddings is true: the embedding replaces the draft's head",
            'write "tie_word_embeddings": false',
            "run",
        )
    if flat.get("quantization_config"):
        yield from refuses(EAGLE, "knows no quantised draft", "serve it with another engine")
    if draft.target is not None and draft.target.config.get("quantization_config"):
        yield from notes(
            SGLANG,
            "a quantised target hands its scheme to the draft",
            "say --speculative-draft-model-quantization unquant",
        )
    pad, size = flat.get("pad_token_id"), draft.whole("vocab_size")
    if isinstance(pad, int) and size is not None and pad >= size:
        yield from refuses(EAGLE, f"pad_token_id {pad} is outside the vocabulary", "write 0")
