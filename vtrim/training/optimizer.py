"""The DeepSpeed engine around the draft: AdamW, Muon, or what the user's config names.

Muon (orthogonalised momentum for the matrices inside the network, AdamW for head and norms) is
DeepSpeed's own. It is offered where DeepSpeed clips the gradient and not the orthogonalised update:
bf16 under ZeRO-1 and fp32 under ZeRO-0; under ZeRO-2 the clipped update would hardly move.
Parameters that are not trained (a frozen head) are in no optimizer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vtrim.errors import OptionError
from vtrim.training.ds_sections import ADAM, complete_scheduler, optimizer_kind, section
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


def make_engine(
    model: TTTModel, settings: TrainSettings, config: dict[str, Any], total_steps: int | None = None
) -> Any:
    """The engine; its parameter groups start at their peak learning rates.

    total_steps: length of the run, for a scheduler of the user's config. Where the config has one,
    ``engine.lr_scheduler`` sets the rates and nobody else may.
    """
    import deepspeed

    config = complete_scheduler(config, settings, total_steps)
    trained = [p for p in model.parameters() if p.requires_grad]
    kind = optimizer_kind(config)
    if settings.optimizer == "muon":
        config = {**config, "optimizer": _muon(model, settings, config)}
    elif kind in ("", *ADAM):
        plain = {key: value for key, value in config.items() if key != "optimizer"}
        optimizer = adam_of(trained, settings, section(config, "optimizer"))
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=plain)
        return engine
    else:
        params = {"lr": settings.learning_rate, **section(config["optimizer"], "params")}
        config = {**config, "optimizer": {**config["optimizer"], "params": params}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=trained, config=config)
    return engine


class Rates:
    """The learning rates: shares of the peak, or what a scheduler of the user's config says."""

    def __init__(self, engine: Any) -> None:
        self._optimizer = engine.optimizer
        self.own = engine.lr_scheduler is None
        self._peaks = [group["lr"] for group in self.groups]

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups: loading a checkpoint may put others in their place."""
        groups: list[dict[str, Any]] = self._optimizer.param_groups
        return groups

    def set(self, factor: float) -> dict[str, float]:
        """Sets the rates of the next step to ``factor`` of the peak -> ``lr`` (and ``muon_lr``)."""
        if self.own:
            for group, peak in zip(self.groups, self._peaks, strict=True):
                group["lr"] = peak * factor
        return {"muon_lr" if g.get("use_muon") else "lr": float(g["lr"]) for g in self.groups}


def adam_of(trained: list[Any], settings: TrainSettings, written: dict[str, Any]) -> Any:
    """AdamW, or Adam where the user's config says that decay belongs to the gradient.

    torch's own: DeepSpeed's needs a compiler where the run starts, and computes the same.
    """
    import torch

    params = section(written, "params")
    coupled = optimizer_kind({"optimizer": written}) == "adam" and not params.get(
        "adam_w_mode", True
    )
    kind = torch.optim.Adam if coupled else torch.optim.AdamW
    return kind(
        trained,
        lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2),
        eps=float(params.get("eps", 1e-8)),
        weight_decay=settings.weight_decay,
    )


def _muon(model: TTTModel, settings: TrainSettings, config: dict[str, Any]) -> dict[str, Any]:
    """DeepSpeed's optimizer section; tags the matrices that Muon takes."""
    import torch._dynamo

    torch._dynamo.config.disable = True  # compiling five small products takes a minute on a CPU
    for name, parameter in model.named_parameters():
        parameter.use_muon = parameter.ndim == 2 and "lm_head" not in name  # type: ignore[attr-defined]
    return {
        "type": "Muon",
        "params": {
            "momentum": 0.95,
            "ns_method": "standard",
            "torch_adam": True,
            **section(section(config, "optimizer"), "params"),
            "lr": settings.learning_rate,
            "muon_lr": settings.muon_lr,
            "adam_lr": settings.learning_rate,
            "betas": [settings.beta1, settings.beta2],
            "weight_decay": settings.weight_decay,
        },
    }
