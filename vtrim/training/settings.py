"""Everything that decides what a training run computes; stored with it and compared on resume."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from vtrim.errors import MismatchError, OptionError

MaskAlignment = Literal["exact", "eagle"]
HeadInit = Literal["target", "random", "frozen"]
Loss = Literal["soft-ce", "kl", "lk-alpha", "lk-lambda"]
Divisor = Literal["rows", "bt"]
OovPolicy = Literal["drop", "keep"]


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of a run. Counts are per process unless said; times are minutes.

    micro_batch: sequences a forward (with packing: rows of max_length tokens). grad_accum: forwards
    an optimiser step. epochs None with max_minutes set: passes over the data until the time is up.
    noise: half width of the uniform noise added to the auxiliary states, in their own root mean
    square. decode_eval: held-out prompts decoded at each check, 0 for none. early_stop: checks
    without a better draft before the run ends, None for never. max_bad_steps: steps skipped for a
    loss or gradient that is not finite before the run stops.
    """

    ttt_steps: int = 7
    decay: float = 0.8
    mask_alignment: MaskAlignment = "exact"
    loss: Loss = "soft-ce"
    divisor: Divisor = "rows"
    oov: OovPolicy = "drop"
    noise: float = 0.0
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
    packing: bool = False
    epochs: int | None = None
    max_steps: int | None = None
    max_minutes: float | None = None
    eval_every: int = 200
    eval_samples: int = 32
    decode_eval: int = 0
    early_stop: int | None = None
    save_every: int = 200
    save_minutes: float | None = None
    keep_checkpoints: int = 2
    max_bad_steps: int = 10
    dtype: Literal["bf16", "fp32"] = "bf16"
    zero_stage: int = 1
    seed: int = 42
    cache_gib: float = 2.0
    shard_target: bool = False

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
            if name in earlier and earlier[name] != value and name not in FREE_ON_RESUME:
                raise MismatchError(
                    f"{option_of(name)} differs: {value} now, {earlier[name]} in the "
                    f"run to resume ({origin}). Give the same value, or --restart to begin anew."
                )


RENAMED = {"learning_rate": "lr", "head_init": "head"}
"""Settings whose option has another name on the command line."""


HELP: dict[str, str] = {
    "max_steps": "Stop after so many steps.",
    "max_minutes": "Stop after so many minutes.",
    "epochs": "Passes over the data (none: 1, or until the time is up).",
    "zero_stage": "ZeRO stage, 0 to 3.",
    "micro_batch": "Sequences a forward.",
    "grad_accum": "Forwards a step.",
    "packing": "Fill each sequence of --max-length tokens with whole conversations.",
    "optimizer": "adamw or muon.",
    "learning_rate": "Peak learning rate.",
    "muon_lr": "Peak rate of Muon's matrices.",
    "warmup": "Warm-up, share of the run.",
    "min_lr_ratio": "Rate at the end, share of the peak.",
    "weight_decay": "AdamW weight decay.",
    "beta1": "Adam's first moment decay.",
    "beta2": "Adam's second moment decay.",
    "clip": "Gradient norm limit, 0 for none.",
    "ttt_steps": "Unrolled steps, 1 to 9.",
    "decay": "Loss weight from step to step.",
    "mask_alignment": "exact, or eagle (one row early).",
    "loss": "soft-ce, kl, lk-alpha or lk-lambda.",
    "divisor": "Loss per trained row (rows) or per token (bt).",
    "oov": "Rows whose target token is not in the vocabulary: drop or keep in the loss.",
    "noise": "Uniform noise on the target states, in their own size.",
    "head_init": "Head start: target, random, or frozen (the target's rows, not trained).",
    "max_length": "Tokens a sample.",
    "dtype": "bf16 or fp32.",
    "seed": "Data order and first weights.",
    "eval_every": "Steps between checks.",
    "eval_samples": "Held-out samples a check.",
    "decode_eval": "Held-out prompts decoded at each check; the best draft is then chosen by them.",
    "early_stop": "End after so many checks without a better draft.",
    "save_every": "Steps between checkpoints.",
    "save_minutes": "Minutes between checkpoints, beside --save-every.",
    "keep_checkpoints": "Newest checkpoints kept.",
    "max_bad_steps": "Steps that may be skipped because loss or gradient is not finite.",
    "cache_gib": "Target states kept in memory, GiB a process.",
    "shard_target": "Spread the target's weights over the processes (ZeRO-3).",
}
"""What each setting does, for ``vtrim train-draft --help``; the order is the help page's."""


def option_of(name: str) -> str:
    """The command-line option that sets ``name``."""
    return "--" + RENAMED.get(name, name).replace("_", "-")


_CHOICES: dict[str, tuple[str, ...]] = {
    "mask_alignment": ("exact", "eagle"),
    "loss": ("soft-ce", "kl", "lk-alpha", "lk-lambda"),
    "divisor": ("rows", "bt"),
    "oov": ("drop", "keep"),
    "head_init": ("target", "random", "frozen"),
    "dtype": ("bf16", "fp32"),
    "optimizer": ("adamw", "muon"),
}
FREE_ON_RESUME = {
    "save_every",
    "save_minutes",
    "keep_checkpoints",
    "max_bad_steps",
    "cache_gib",
    "shard_target",
}
"""Settings that decide how a run goes and not what it computes."""

_RANGES: tuple[tuple[str, float, float], ...] = (
    ("ttt_steps", 1, 9),
    ("decay", 1e-3, 1.0),
    ("noise", 0.0, 10.0),
    ("learning_rate", 1e-12, 10.0),
    ("muon_lr", 1e-12, 10.0),
    ("warmup", 0.0, 1.0),
    ("min_lr_ratio", 0.0, 1.0),
    ("weight_decay", 0.0, 10.0),
    ("beta1", 0.0, 0.9999),
    ("beta2", 0.0, 0.99999),
    ("clip", 0.0, 1e9),
    ("micro_batch", 1, 4096),
    ("grad_accum", 1, 4096),
    ("max_length", 4, 10_000_000),
    ("epochs", 1, 100_000),
    ("max_steps", 1, 100_000_000),
    ("max_minutes", 0.01, 1_000_000),
    ("eval_every", 1, 100_000_000),
    ("eval_samples", 1, 1_000_000),
    ("decode_eval", 0, 10_000),
    ("early_stop", 1, 1_000_000),
    ("save_every", 1, 100_000_000),
    ("save_minutes", 0.01, 1_000_000),
    ("max_bad_steps", 0, 1_000_000),
    ("keep_checkpoints", 1, 1000),
    ("zero_stage", 0, 3),
    ("cache_gib", 0.0, 100_000.0),
)
