"""What the user asks of a search, checked before any file is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from vtrim.errors import OptionError
from vtrim.trimming.curve import exact_share

SAMPLERS = ("tpe", "exact")
PRESETS = {"default": ("0.6", "0.95"), "paper": ("0.5", "0")}  # name: alpha, cmin as typed
MAX_SEED = 2**32 - 1  # of numpy's legacy generator, which Optuna uses


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The options of one search; kmin and kmax None where the coverage decides.

    alpha: weight of coverage against saved FLOPs. cmin: the least coverage allowed. sampler:
    whose best size becomes the vocabulary. keep: ids forced besides the stop ids.
    """

    alpha: Fraction
    cmin: Fraction
    kmin: int | None
    kmax: int | None
    num_trials: int
    seed: int
    sampler: str
    preset: str
    keep: tuple[int, ...]


def parse_settings(
    *,
    alpha: str | float | Fraction | None = None,
    cmin: str | float | Fraction | None = None,
    kmin: int | None = None,
    kmax: int | None = None,
    num_trials: int = 100,
    seed: int = 42,
    sampler: str = "tpe",
    preset: str = "default",
    keep: Iterable[int] = (),
) -> SearchSettings:
    """The settings of a search; an alpha or cmin that is not given comes from the preset.

    Raises:
        OptionError: a value out of range or unknown, or a range of sizes that is empty.
    """
    _one_of("--sampler", sampler, SAMPLERS)
    _one_of("--preset", preset, tuple(PRESETS))
    preset_alpha, preset_cmin = PRESETS[preset]
    if num_trials < 1:
        raise OptionError(f"--trials {num_trials}: must be at least 1.")
    if not 0 <= seed <= MAX_SEED:
        raise OptionError(f"--seed {seed}: must lie between 0 and {MAX_SEED}.")
    if kmin is not None and kmin < 1:
        raise OptionError(f"--kmin {kmin}: must be at least 1.")
    if kmax is not None and kmax < 1:
        raise OptionError(f"--kmax {kmax}: must be at least 1.")
    if kmin is not None and kmax is not None and kmin > kmax:
        raise OptionError(f"--kmin {kmin} is above --kmax {kmax}: the range is empty.")
    return SearchSettings(
        alpha=_share("--alpha", preset_alpha if alpha is None else alpha),
        cmin=_share("--cmin", preset_cmin if cmin is None else cmin),
        kmin=kmin,
        kmax=kmax,
        num_trials=num_trials,
        seed=seed,
        sampler=sampler,
        preset=preset,
        keep=tuple(keep),
    )


def _share(option: str, value: str | float | Fraction) -> Fraction:
    """The share that was typed, exactly.

    Raises:
        OptionError: not a number in [0, 1].
    """
    try:
        share = exact_share(value)
    except ValueError as error:
        raise OptionError(f"{option} {value}: not a number; it must lie in [0, 1].") from error
    if 1 < share <= 100 and option == "--cmin":
        meant = f"{float(share / 100):g}"
        raise OptionError(
            f"{option} {value}: must lie in [0, 1]; a share between 0 and 1 is meant, not a "
            f"percentage. For {value} % type {option} {meant}."
        )
    if not 0 <= share <= 1:
        raise OptionError(f"{option} {value}: must lie in [0, 1].")
    return share


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise OptionError(f"{option} {value}: unknown. Known: {', '.join(known)}.")
