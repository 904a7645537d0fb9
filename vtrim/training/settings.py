"""Everything that decides what a training run computes; stored with it and compared on resume."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vtrim.errors import MismatchError, OptionError

MaskAlignment = Literal["exact", "eagle"]
HeadInit = Literal["target", "random"]


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of a run. Counts are per process unless said; times are minutes.

    micro_batch: sequences a forward. grad_accum: forwards an optimiser step. epochs None with
    max_minutes set: passes over the data until the time is up.
    """

    ttt_steps: int = 7
    decay: float = 0.8
    mask_alignment: MaskAlignment = "exact"
    head_init: HeadInit = "target"
    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: float = 1e-4
    muon_lr: float = 0.02
    warmup: float = 0.015
    min_lr_ratio: float = 0.0
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.95
    clip: float = 0.5
    micro_batch: int = 4
    grad_accum: int = 1
    max_length: int = 2048
    epochs: int | None = None
    max_steps: int | None = None
    max_minutes: float | None = None
    eval_every: int = 200
    eval_samples: int = 32
    save_every: int = 200
    keep_checkpoints: int = 2
    dtype: Literal["bf16", "fp32"] = "bf16"
    zero_stage: int = 1
    seed: int = 42
    cache_gib: float = 2.0

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is None:
                continue
            if not math.isfinite(value) or not low <= value <= high:
                option = option_of(name)
                raise OptionError(f"{option} {value}: must lie between {low:g} and {high:g}.")
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                option = option_of(name)
                raise OptionError(f"{option} {value}: unknown. Known: {', '.join(known)}.")

    def to_dict(self) -> dict[str, Any]:
        """The settings as a plain mapping."""
        return asdict(self)

    def check_resume(self, earlier: dict[str, Any], origin: str) -> None:
        """Refuses to continue a run under other settings.

        Raises:
            MismatchError: names the first setting that differs, with both values.
        """
        for name, value in self.to_dict().items():
            if name in earlier and earlier[name] != value and name not in _FREE_ON_RESUME:
                raise MismatchError(
                    f"{option_of(name)} differs: {value} now, {earlier[name]} in the "
                    f"run to resume ({origin}). Give the same value, or --restart to begin anew."
                )


RENAMED = {"learning_rate": "lr", "head_init": "head"}
"""Settings whose option has another name on the command line."""


def option_of(name: str) -> str:
    """The command-line option that sets ``name``."""
    return "--" + RENAMED.get(name, name).replace("_", "-")


_CHOICES: dict[str, tuple[str, ...]] = {
    "mask_alignment": ("exact", "eagle"),
    "head_init": ("target", "random"),
    "dtype": ("bf16", "fp32"),
    "optimizer": ("adamw", "muon"),
}
_FREE_ON_RESUME = {"save_every", "keep_checkpoints", "cache_gib"}
_RANGES: tuple[tuple[str, float, float], ...] = (
    ("ttt_steps", 1, 9),
    ("decay", 1e-6, 1.0),
    ("learning_rate", 1e-12, 10.0),
    ("muon_lr", 1e-12, 10.0),
    ("warmup", 0.0, 1.0),
    ("min_lr_ratio", 0.0, 1.0),
    ("weight_decay", 0.0, 10.0),
    ("beta1", 0.0, 0.9999),
    ("beta2", 0.0, 0.99999),
    ("clip", 1e-9, 1e9),
    ("micro_batch", 1, 4096),
    ("grad_accum", 1, 4096),
    ("max_length", 4, 10_000_000),
    ("epochs", 1, 100_000),
    ("max_steps", 1, 100_000_000),
    ("max_minutes", 0.01, 1_000_000),
    ("eval_every", 1, 100_000_000),
    ("eval_samples", 1, 1_000_000),
    ("save_every", 1, 100_000_000),
    ("keep_checkpoints", 1, 1000),
    ("zero_stage", 0, 3),
    ("cache_gib", 0.0, 100_000.0),
)
