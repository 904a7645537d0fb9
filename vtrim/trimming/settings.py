"""What the user asks of a search, checked before any file is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from vtrim.errors import OptionError
from vtrim.trimming.curve import exact_share
from vtrim.trimming.throughput import DEFAULT_A0

OBJECTIVES = ("utility", "throughput", "budget")
SAMPLERS = ("tpe", "exact")
PRESETS = {"default": ("0.6", "0.95"), "paper": ("0.5", "0")}  # name: alpha, cmin as typed
MAX_SEED = 2**32 - 1  # of numpy's legacy generator, which Optuna uses
DEFAULT_NUM_DRAFT_TOKENS = 3


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The options of one search; kmin and kmax None where the coverage decides.

    alpha: weight of coverage against saved FLOPs. cmin: the least coverage allowed. sampler:
    whose best size becomes the vocabulary. preset: custom where another alpha or cmin was typed
    than its own. keep: ids forced besides the stop ids. align: the size
    is rounded up to a multiple of it; None: it is not. a0, num_draft_tokens, batch: of the
    throughput objective.
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
    objective: str = "utility"
    align: int | None = None
    a0: float = DEFAULT_A0
    num_draft_tokens: int = DEFAULT_NUM_DRAFT_TOKENS
    batch: int = 1


def parse_settings(
    *,
    objective: str = "utility",
    alpha: str | float | Fraction | None = None,
    cmin: str | float | Fraction | None = None,
    kmin: int | None = None,
    kmax: int | None = None,
    num_trials: int = 100,
    seed: int = 42,
    sampler: str | None = None,
    preset: str = "default",
    keep: Iterable[int] = (),
    align: int | None = None,
    a0: str | float | Fraction | None = None,
    num_draft_tokens: int | None = None,
    batch: int | None = None,
) -> SearchSettings:
    """The settings of a search; an alpha or cmin that is not given comes from the preset.

    Raises:
        OptionError: a value out of range or unknown, a range of sizes that is empty, or an option
            that the objective does not use.
    """
    _one_of("--objective", objective, OBJECTIVES)
    _one_of("--preset", preset, tuple(PRESETS))
    speed = {"--a0": a0, "--num-draft-tokens": num_draft_tokens, "--batch": batch}
    _unused(objective, {"--alpha": alpha}, ("utility",))
    _unused(objective, {"--preset paper": preset if preset == "paper" else None}, ("utility",))
    _unused(objective, speed, ("throughput",))
    preset_alpha, preset_cmin = PRESETS[preset]
    if not 0 <= seed <= MAX_SEED:
        raise OptionError(f"--seed {seed}: must lie between 0 and {MAX_SEED}.")
    counts = {"--trials": num_trials, "--kmin": kmin, "--kmax": kmax, "--align": align}
    for option, value in {
        **counts,
        "--num-draft-tokens": num_draft_tokens,
        "--batch": batch,
    }.items():
        if value is not None and value < 1:
            raise OptionError(f"{option} {value}: must be at least 1.")
    if kmin is not None and kmax is not None and kmin > kmax:
        raise OptionError(f"--kmin {kmin} is above --kmax {kmax}: the range is empty.")
    weight = _share("--alpha", preset_alpha if alpha is None else alpha)
    floor = _share("--cmin", preset_cmin if cmin is None else cmin)
    own = (weight, floor) != (Fraction(preset_alpha), Fraction(preset_cmin))
    return SearchSettings(
        objective=objective,
        alpha=weight,
        cmin=floor,
        kmin=kmin,
        kmax=kmax,
        num_trials=num_trials,
        seed=seed,
        sampler=_sampler(objective, sampler),
        preset="custom" if own else preset,
        keep=tuple(keep),
        align=align,
        a0=DEFAULT_A0 if a0 is None else _acceptance(a0),
        num_draft_tokens=num_draft_tokens or DEFAULT_NUM_DRAFT_TOKENS,
        batch=batch or 1,
    )


def _sampler(objective: str, sampler: str | None) -> str:
    """Whose size is written: TPE's unless told otherwise, or unless there is nothing to sample.

    Raises:
        OptionError: an unknown one, or TPE for the budget.
    """
    if sampler is not None:
        _one_of("--sampler", sampler, SAMPLERS)
    if objective == "budget":
        if sampler == "tpe":
            raise OptionError(
                "--sampler tpe: the smallest size of a coverage is read off the counts, so "
                "--objective budget has nothing to sample. Leave --sampler out."
            )
        return "exact"
    return sampler or "tpe"


def _acceptance(value: str | float | Fraction) -> float:
    """The chance of acceptance that was typed.

    Raises:
        OptionError: not a number above 0 and at most 1.
    """
    a0 = float(_share("--a0", value))
    if a0 == 0:
        raise OptionError("--a0 0: a draft of which nothing is accepted needs no vocabulary.")
    return a0


def _unused(objective: str, options: Mapping[str, object], used_by: tuple[str, ...]) -> None:
    """Refuses options that were typed but would change nothing.

    Raises:
        OptionError: one was.
    """
    if objective in used_by:
        return
    for option, value in options.items():
        if value is not None:
            raise OptionError(
                f"{option}: --objective {objective} does not use it (only "
                f"{', '.join(used_by)} does). Leave it out."
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
    if 2 <= share <= 100:
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
