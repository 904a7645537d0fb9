"""The DeepSpeed engine around the draft, with AdamW or Muon.

Muon (orthogonalised momentum for the matrices inside the network, AdamW for head and norms) is
DeepSpeed's own. It is offered where DeepSpeed clips the gradient and not the orthogonalised update:
bf16 under ZeRO-1 and fp32 under ZeRO-0; under ZeRO-2 the clipped update would hardly move.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrim.errors import OptionError
from vtrim.training.settings import TrainSettings

if TYPE_CHECKING:
    from vtrim.training.ttt import TTTModel

_MUON_WORKS = {("bf16", 1), ("fp32", 0)}


def check_optimizer(settings: TrainSettings) -> None:
    """Refuses a combination that DeepSpeed's Muon does not train in.

    Raises:
        OptionError: names the stage and the dtype that go together.
    """
    if settings.optimizer == "muon" and (settings.dtype, settings.zero_stage) not in _MUON_WORKS:
        raise OptionError(
            f"--optimizer muon with --dtype {settings.dtype} and --zero-stage "
            f"{settings.zero_stage}: use bf16 with stage 1, or fp32 with stage 0."
        )


def make_engine(model: TTTModel, settings: TrainSettings, config: dict[str, Any]) -> Any:
    """The engine; its parameter groups start at their peak learning rates."""
    import deepspeed
    import torch

    if settings.optimizer == "muon":
        engine, *_ = deepspeed.initialize(
            model=model,
            model_parameters=list(model.parameters()),
            config={**config, "optimizer": _muon(model, settings)},
        )
        return engine
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
    )
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def _muon(model: TTTModel, settings: TrainSettings) -> dict[str, Any]:
    """DeepSpeed's optimizer section; tags the matrices that Muon takes."""
    import torch._dynamo

    torch._dynamo.config.disable = True  # compiling five small products takes a minute on a CPU
    for name, parameter in model.named_parameters():
        parameter.use_muon = parameter.ndim == 2 and "lm_head" not in name  # type: ignore[attr-defined]
    return {
        "type": "Muon",
        "params": {
            "lr": settings.learning_rate,
            "muon_lr": settings.muon_lr,
            "adam_lr": settings.learning_rate,
            "momentum": 0.95,
            "betas": [settings.beta1, settings.beta2],
            "weight_decay": settings.weight_decay,
            "ns_method": "standard",
            "torch_adam": True,
        },
    }
