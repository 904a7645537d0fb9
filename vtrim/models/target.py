"""Any Hugging Face causal LM as a target: final states, auxiliary states, and its own head path.

Index convention (hidden_states indices): ``aux_layer_ids`` j is the un-normed residual stream
*entering* decoder block j. Checked at load time against the model's own outputs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vtrim.errors import InputError
from vtrim.models.aux_layers import AuxLayers, check_chosen_layers, default_aux_layers

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_FINAL_NORMS = ("norm", "final_layernorm", "final_layer_norm", "ln_f")


@dataclass(frozen=True)
class TargetStates:
    """Outputs of a target forward.

    hidden: [B, T, d] final states after the last norm; aux: [B, T, 3d] low, mid and high states.
    """

    hidden: Tensor
    aux: Tensor


class Target:
    """A causal LM in evaluation mode, with hooks on the blocks whose inputs the draft reads."""

    def __init__(self, model: Any, name: str, aux_layer_ids: AuxLayers | None = None) -> None:
        """aux_layer_ids: None for EAGLE-3's, () for none: ``aux`` is then empty."""
        model.eval()
        model.requires_grad_(False)
        self.model: Any = model
        self.name = name
        self.config: Any = _text_config(self.model.config)
        self.decoder: Any = self.model.get_decoder()
        self.layers = _decoder_layers(self.decoder, int(self.config.num_hidden_layers))
        self.aux_layer_ids: AuxLayers = (
            default_aux_layers(self.num_layers) if aux_layer_ids is None else aux_layer_ids
        )
        check_chosen_layers(self.aux_layer_ids, self.num_layers)
        accepted = inspect.signature(self.decoder.forward).parameters
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"
        self._captured: dict[int, Tensor] = {}
        for index in set(self.aux_layer_ids):
            self.layers[index].register_forward_pre_hook(self._hook(index), with_kwargs=True)
        self._head = _head_path(self.model, self.config)
        _refuse_quantised(self.model, name)

    def _hook(self, index: int) -> Callable[..., None]:
        def keep(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._captured[index] = args[0] if args else kwargs["hidden_states"]

        return keep

    @property
    def num_layers(self) -> int:
        """Number of decoder blocks."""
        return len(self.layers)

    @property
    def device(self) -> torch.device:
        """Where the embedding lives: inputs go there."""
        device: torch.device = self.embedding.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the weights."""
        dtype: torch.dtype = self.embedding.dtype
        return dtype

    @property
    def embedding(self) -> Tensor:
        """[V, d] rows of the input embedding, without any scale the model applies."""
        weight: Tensor = self.model.get_input_embeddings().weight
        return weight

    @property
    def head_weight(self) -> Tensor:
        """[V, d] rows of the LM head."""
        weight: Tensor = self.model.get_output_embeddings().weight
        return weight

    @property
    def vocab_size(self) -> int:
        """Rows of the LM head, V (may exceed the tokenizer's length)."""
        return int(self.head_weight.shape[0])

    @property
    def final_norm_scale(self) -> Tensor | None:
        """[d] factor of the norm before the head, times the scale that the head's logits get.

        Gemma stores the former minus one; Granite and Cohere apply the latter. None: no norm.
        """
        norm = next((m for n, m in self.decoder.named_children() if n in _FINAL_NORMS), None)
        if norm is None:
            return None
        probe = torch.ones(1, self.embedding.shape[1], device=self.device, dtype=self.dtype)
        probe[:, 1::2] = -1  # of mean 0 and size 1: a LayerNorm and an RMSNorm both only scale it
        small = torch.tensor(1e-3)  # below any soft cap
        with torch.no_grad():
            scale: Tensor = ((norm(probe) - norm(-probe)) / 2 * probe)[0]  # a bias cancels
        return scale * float(_finish(self.config, small) / small)

    def forward(
        self,
        input_ids: Tensor,
        *,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | Mapping[str, Tensor] | None = None,
        cache: Any = None,
    ) -> TargetStates:
        """Runs the decoder. input_ids: [B, T]; ``cache`` is a transformers Cache, grown in place.

        attention_mask: [B, T_total] padding mask, or [B, 1, T, T_total] bool (True attends) or
        additive mask; the latter also by layer type, where a model's layers differ.
        """
        output = self.decoder(
            input_ids=input_ids,
            position_ids=position_ids,
            attention_mask=self._mask(attention_mask),
            use_cache=cache is not None,
            **({} if cache is None else {self._cache_argument: cache}),
        )
        hidden = output.last_hidden_state
        aux = [self._captured[index] for index in self.aux_layer_ids] or [hidden[..., :0]]
        self._captured.clear()
        return TargetStates(hidden=hidden, aux=torch.cat(aux, dim=-1))

    def _mask(self, mask: Tensor | Mapping[str, Tensor] | None) -> Any:
        """The mask as this model's attention reads it: eager attention adds it to its scores."""
        if isinstance(mask, Mapping):
            return {kind: self._mask(one) for kind, one in mask.items()}
        attention = getattr(self.config, "_attn_implementation", None)
        if mask is None or mask.dtype != torch.bool or mask.ndim != 4 or attention != "eager":
            return mask
        hidden = torch.zeros(mask.shape, dtype=self.dtype, device=mask.device)
        return hidden.masked_fill_(~mask, torch.finfo(self.dtype).min)

    def logits(self, hidden: Tensor) -> Tensor:
        """The model's own head path: bias, scale and soft cap included. [..., d] -> [..., V]."""
        return self._head(hidden)

    def head_of(self, ids: Tensor) -> Callable[[Tensor], Tensor]:
        """The head path for the rows ids [k], copied once: a function [..., d] -> [..., k]."""
        head = self.model.get_output_embeddings()
        weight = head.weight[ids]
        bias = None if getattr(head, "bias", None) is None else head.bias[ids]
        return lambda hidden: _finish(self.config, F.linear(hidden, weight, bias))

    def logits_of(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """The same head path for some rows only. hidden: [..., d]; ids: [k] -> [..., k]."""
        return self.head_of(ids)(hidden)

    def logits_between(self, hidden: Tensor, start: int, stop: int) -> Tensor:
        """The head path for rows start..stop-1, without copying them. -> [..., stop - start]."""
        head = self.model.get_output_embeddings()
        bias = None if getattr(head, "bias", None) is None else head.bias[start:stop]
        return _finish(self.config, F.linear(hidden, head.weight[start:stop], bias))

    @torch.no_grad()
    def check(self) -> None:
        """Proves on a few tokens that head path and auxiliary states are the model's own.

        Raises:
            InputError: they are not, so drafts and acceptance would be wrong in silence.
        """
        ids = torch.arange(1, 9, device=self.device)[None] % self.vocab_size
        states = self.forward(ids)
        whole = self.model(input_ids=ids, output_hidden_states=True, use_cache=False)
        self._captured.clear()
        kind = getattr(self.config, "model_type", "unknown")
        some = self.logits_between(states.hidden, 1, 5)
        if not (
            torch.allclose(self.logits(states.hidden), whole.logits, rtol=1e-3, atol=1e-3)
            and torch.allclose(some, whole.logits[..., 1:5], rtol=1e-2, atol=1e-2)
        ):
            raise InputError(
                f"{self.name}: head(final norm(h)) does not give the model's own logits "
                f"(model_type '{kind}'). vtrim does not know this model's head path."
            )
        own = [whole.hidden_states[j] for j in self.aux_layer_ids] or [states.aux]
        expected = torch.cat(own, dim=-1)
        if not torch.allclose(states.aux, expected, rtol=1e-3, atol=1e-3):
            raise InputError(
                f"{self.name}: the inputs of blocks {list(self.aux_layer_ids)} differ from the "
                f"model's hidden_states (model_type '{kind}')."
            )


def load_target(
    name: str,
    *,
    dtype: torch.dtype | str = "auto",
    device: str = "cpu",
    aux_layer_ids: AuxLayers | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
    offline: bool = False,
) -> Target:
    """Loads and checks a target: a hub id, a local folder or the built-in ``smollm2``.

    Raises:
        InputError: it cannot be found or read, or its head path is unknown.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    from vtrim.models.hub import here_only, resolve_model

    path = resolve_model(name)
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            revision=revision,
            trust_remote_code=trust_remote_code,
            local_files_only=here_only(name, offline=offline),
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise InputError(f"{name}: the target cannot be loaded ({reason})") from error
    target = Target(model.to(device), name, aux_layer_ids)
    target.check()
    return target


def _text_config(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _decoder_layers(decoder: nn.Module, num_layers: int) -> nn.ModuleList:
    """The list of decoder blocks, whatever its attribute is called."""
    for child in decoder.children():
        if isinstance(child, nn.ModuleList) and len(child) == num_layers:
            return child
    raise InputError(
        f"{type(decoder).__name__}: no list of {num_layers} decoder blocks found; "
        "vtrim cannot read this model's hidden states."
    )


def _head_path(model: Any, config: Any) -> Callable[[Tensor], Tensor]:
    head = model.get_output_embeddings()
    if head is None:
        raise InputError(f"{type(model).__name__} has no LM head; a target must be a causal LM.")
    return lambda hidden: _finish(config, head(hidden))


def _refuse_quantised(model: Any, name: str) -> None:
    """Refuses rows that are no plain numbers: drafts read the embedding, training the head."""
    parts = {"embedding": model.get_input_embeddings(), "LM head": model.get_output_embeddings()}
    for part, module in parts.items():
        weight = getattr(module, "weight", None)
        if isinstance(weight, Tensor) and type(weight.data) is Tensor and weight.dtype in FLOATS:
            continue
        kind = str(weight.dtype) if isinstance(weight, Tensor) else type(module).__name__
        raise InputError(
            f"{name}: its {part} is quantised ({kind.removeprefix('torch.')}), and vtrim reads its "
            "rows as they are. Name a target that keeps embedding and head in plain weights."
        )


def _finish(config: Any, logits: Tensor) -> Tensor:
    """Scale and soft cap as the model's config states them; ``Target.check`` proves it."""
    values: Mapping[str, Any] = config.to_dict() if hasattr(config, "to_dict") else vars(config)
    if divisor := values.get("logits_scaling"):  # Granite
        logits = logits / divisor
    if factor := values.get("logit_scale"):  # Cohere
        logits = logits * factor
    if cap := values.get("final_logit_softcapping"):  # Gemma 2 and 3
        logits = torch.tanh(logits / cap) * cap
    return logits
