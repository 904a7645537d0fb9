"""Mixing weights: how often the samples of each data source come in one pass over the data.

Weight w gives every sample of a source floor(w) copies and one more with the share w - floor(w),
drawn by a hash of seed and sample: any number of processes draws the same.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from vtrim.errors import InputError, OptionError

if TYPE_CHECKING:
    from vtrim.training.batch import TrainSample
    from vtrim.training.data import Split

Mix = Mapping[str, float]

MAX_WEIGHT = 1000.0
_SUFFIXES = (".gz", ".zst", ".jsonl", ".json", ".parquet", ".arrow")


def source_name(source: str | None, file: str) -> str:
    """The source of a row: what its source column says, else its file's name without endings."""
    if source:
        return source
    name = PurePath(file).name
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name or file


def parse_mix(typed: Iterable[str]) -> dict[str, float]:
    """The weights that ``SOURCE=WEIGHT`` texts give, in name order.

    Raises:
        OptionError: a text is not of that form, names a source again, or has a weight out of range.
    """
    weights: dict[str, float] = {}
    for text in typed:
        name, equals, number = text.rpartition("=")
        if not (equals and name):
            raise OptionError(f"--mix {text}: write it as SOURCE=WEIGHT, e.g. code=2.")
        try:
            weight = float(number)
        except ValueError as error:
            raise OptionError(f"--mix {text}: {number!r} is not a number.") from error
        if not 0 <= weight <= MAX_WEIGHT:
            raise OptionError(f"--mix {text}: must lie between 0 and {MAX_WEIGHT:g}.")
        if name in weights:
            raise OptionError(f"--mix {text}: {name} has a weight already ({weights[name]:g}).")
        weights[name] = weight
    return dict(sorted(weights.items()))


def check_sources(mix: Mix, known: Iterable[str]) -> None:
    """Refuses a weight for a source that is not there.

    Raises:
        OptionError: names it and those that are there.
    """
    there = sorted(set(known))
    for name in mix:
        if name not in there:
            raise OptionError(f"--mix {name}: no such source. Known: {', '.join(there)}.")


@dataclass(frozen=True)
class SourceShare:
    """One source before and after mixing. Samples, and their reply tokens, of one pass."""

    weight: float
    samples: int
    mixed_samples: int
    tokens: int
    mixed_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """For the result and run.json."""
        return dict(vars(self))


def mixed(split: Split, mix: Mix, seed: int) -> tuple[Split, dict[str, SourceShare]]:
    """The split whose training samples come as often as the weights say, and what that changed.

    Copies keep their sample's ``index``, so that they share its target states. Held-out samples
    stay as they are. Nothing is said without weights.

    Raises:
        OptionError: a source is unknown. InputError: no sample is left.
    """
    if not mix:
        return split, {}
    by_source: dict[str, list[TrainSample]] = {}
    for sample in split.train:
        by_source.setdefault(sample.source or "", []).append(sample)
    check_sources(mix, by_source)
    train = [one for one in split.train for _ in range(_copies(one, mix, seed))]
    if not train:
        raise InputError(
            f"--mix leaves none of {len(split.train)} training samples: give a source a larger "
            "weight (sources that are not named have weight 1)."
        )
    shares = {
        name: SourceShare(
            weight=mix.get(name, 1.0),
            samples=len(samples),
            mixed_samples=len(kept := [s for s in train if (s.source or "") == name]),
            tokens=_reply_tokens(samples),
            mixed_tokens=_reply_tokens(kept),
        )
        for name, samples in sorted(by_source.items())
    }
    return replace(split, train=train), shares


def _copies(sample: TrainSample, mix: Mix, seed: int) -> int:
    """How often the sample comes in one pass."""
    weight = mix.get(sample.source or "", 1.0)
    whole = math.floor(weight)
    return whole + (_uniform(seed, sample.index) < weight - whole)


def _uniform(seed: int, index: int) -> float:
    """A number in [0, 1) that depends on seed and sample only."""
    digest = hashlib.sha256(f"{seed} {index}".encode()).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _reply_tokens(samples: Sequence[TrainSample]) -> int:
    return sum(int(one.loss_mask.sum()) for one in samples)
