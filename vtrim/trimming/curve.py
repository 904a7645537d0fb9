"""The coverage curve: what share of the counted tokens a vocabulary of each size covers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from vtrim.errors import OptionError

Counts = npt.NDArray[np.int64]

_MAX_EXPONENT = 400  # of any double; a fraction of 1e-99999999 takes minutes to write out


def exact_share(value: str | float | Fraction) -> Fraction:
    """The share that was typed, as an exact decimal fraction: 0.95 is 19/20.

    Raises:
        ValueError: not a finite number, or one with an exponent that no share has.
    """
    if isinstance(value, Fraction):
        return value
    text = repr(value) if isinstance(value, float) else str(value)
    try:
        exponent = int(text.lower().partition("e")[2] or 0)
        if abs(exponent) > _MAX_EXPONENT:
            raise ValueError(f"the exponent {exponent} is out of range")
        return Fraction(text)
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{text} is not a number") from error


@dataclass(frozen=True, kw_only=True, eq=False)
class CoverageCurve:
    """Coverage C(k) of the first k seats: forced ids, then by count, then by id.

    counts, heldout_counts: [V] tokens counted in all rows and in the held-out ones.
    usable_ids: ids from here on are padding and get no seat. forced_ids: seated first.
    """

    counts: Counts
    heldout_counts: Counts
    usable_ids: int
    forced_ids: tuple[int, ...]

    @cached_property
    def order(self) -> Counts:
        """[max_k] target ids in seat order."""
        return _seat_order(self.counts, self.forced_ids, self.usable_ids)

    @cached_property
    def seat_counts(self) -> Counts:
        """[max_k] how often the id of each seat was counted; never rising after the forced ones."""
        return self.counts[self.order]

    @cached_property
    def running_covered(self) -> Counts:
        """[max_k + 1] tokens covered by the first k seats, for every k."""
        return _running_sum(self.seat_counts)

    @cached_property
    def heldout_covered(self) -> Counts:
        """[max_k + 1] held-out tokens covered by k seats when the *other* rows alone order them.

        So it tells what to expect on text that was never counted.
        """
        order = _seat_order(self.counts - self.heldout_counts, self.forced_ids, self.usable_ids)
        return _running_sum(self.heldout_counts[order])

    @cached_property
    def total(self) -> int:
        """Number of counted tokens, those without a seat included."""
        return int(self.counts.sum())

    @cached_property
    def heldout_total(self) -> int:
        """Number of held-out tokens."""
        return int(self.heldout_counts.sum())

    @property
    def max_k(self) -> int:
        """The largest vocabulary: every id that is not padding."""
        return int(self.order.size)

    @property
    def num_forced(self) -> int:
        """Seats that forced ids take."""
        return len(self.forced_ids)

    @property
    def forced(self) -> list[int]:
        """The ids seated first, whatever their counts, as a list for JSON."""
        return list(self.forced_ids)

    def covered(self, k: int) -> int:
        """Counted tokens that the first k seats cover: the numerator of C(k)."""
        return int(self.running_covered[min(k, self.max_k)])

    def coverage(self, k: int) -> float:
        """C(k), the share of counted tokens that the first k seats cover; 0 when none was."""
        return self.covered(k) / self.total if self.total else 0.0

    def heldout_coverage(self, k: int) -> float | None:
        """Share of the held-out tokens covered by k seats chosen without them; None if none."""
        if not self.heldout_total:
            return None
        return int(self.heldout_covered[min(k, self.max_k)]) / self.heldout_total

    def smallest_k(self, share: str | float | Fraction) -> int | None:
        """The smallest k with C(k) >= ``share``; None when no size reaches it."""
        needed = math.ceil(exact_share(share) * self.total)
        k = int(np.searchsorted(self.running_covered, needed))
        return k if k <= self.max_k else None

    def smallest_heldout_k(self, share: str | float | Fraction) -> int | None:
        """The smallest k that covers ``share`` of the held-out tokens, chosen without them.

        None when no size does, or nothing was held out.
        """
        if not self.heldout_total:
            return None
        needed = math.ceil(exact_share(share) * self.heldout_total)
        k = int(np.searchsorted(self.heldout_covered, needed))
        return k if k <= self.max_k else None

    def ids(self, k: int) -> list[int]:
        """The k kept target ids, ascending.

        Raises:
            OptionError: there are not that many ids.
        """
        if not 0 < k <= self.max_k:
            raise OptionError(f"k {k}: a draft vocabulary here holds 1 to {self.max_k} ids.")
        return [int(token) for token in np.sort(self.order[:k])]

    def num_filled(self, k: int) -> int:
        """How many of the k seats hold an id that was neither counted nor forced."""
        return int(np.count_nonzero(self.seat_counts[self.num_forced : k] == 0))


def _seat_order(counts: Counts, forced: tuple[int, ...], limit: int) -> Counts:
    """Forced ids, then counted ids below ``limit`` by (count desc, id asc), then the others."""
    first = np.array(forced, dtype=np.int64)
    free = np.ones(limit, dtype=np.bool_)
    free[first[first < limit]] = False
    usable = counts[:limit]
    seen = np.flatnonzero(free & (usable > 0))
    ranked = _by_count(seen, usable[seen])
    return np.concatenate([first, ranked, np.flatnonzero(free & (usable == 0))])


def _by_count(ids: Counts, counts: Counts) -> Counts:
    """The ascending ``ids`` by count, descending; equal counts keep the lower id first."""
    bits = int(ids.max(initial=0)).bit_length()
    if int(counts.max(initial=0)).bit_length() + bits > 62:
        return ids[np.argsort(-counts, kind="stable")]
    keys = (-counts << bits) | ids  # count above id in one integer: values sort faster than indices
    keys.sort()
    return keys & ((1 << bits) - 1)


def _running_sum(values: Counts) -> Counts:
    """[n + 1] sums of the first 0 .. n values."""
    sums = np.zeros(values.size + 1, dtype=np.int64)
    np.cumsum(values, out=sums[1:])
    return sums
