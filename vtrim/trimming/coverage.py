"""Counts of reply tokens: the artefact that `vtrim coverage` writes and `vtrim search` reads.

All counts are integers: shares are quotients of two exact sums, files of equal content are equal
byte for byte, and artefacts of several machines add up to the artefact of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from vtrim.artifacts import atomic_path, check_match, fingerprint_bytes
from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.trimming.curve import Counts, CoverageCurve
from vtrim.trimming.storage import pack, unpack

__all__ = ["Coverage", "CoverageCurve"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Coverage:
    """How often each target id stands in the replies of the counted conversations.

    counts: [V] all counted rows. heldout_counts: [V] the part of them in the held-out split.
    target_vocab_size: V, rows of the target's LM head (ids of the tokenizer where no model was
    named). stop_ids: forced into every draft vocabulary.
    """

    counts: Counts
    heldout_counts: Counts
    target_vocab_size: int
    tokenizer_length: int
    tokenizer_fingerprint: str
    data_fingerprint: str
    stop_ids: tuple[int, ...] = ()
    rows_used: int = 0
    rows_skipped: Mapping[str, int] = field(default_factory=dict)
    rows_heldout: int = 0

    def __post_init__(self) -> None:
        """Refuses counts that cannot belong to this target.

        Raises:
            InputError: arrays of another length, negative counts, more held-out tokens than
                tokens, or a stop id without a row.
        """
        size = self.target_vocab_size
        if self.counts.shape != (size,) or self.heldout_counts.shape != (size,):
            raise InputError(
                f"coverage: {self.counts.shape} counts and {self.heldout_counts.shape} held-out "
                f"counts for a target of {size} rows."
            )
        if np.any(self.heldout_counts < 0) or np.any(self.heldout_counts > self.counts):
            raise InputError("coverage: held-out counts must lie between 0 and the counts.")
        for token in self.stop_ids:
            if not 0 <= token < size:
                raise InputError(f"coverage: stop token id {token} is outside the {size} rows.")

    @property
    def total(self) -> int:
        """Number of counted reply tokens."""
        return int(self.counts.sum())

    @property
    def distinct(self) -> int:
        """Number of different ids among them."""
        return int(np.count_nonzero(self.counts))

    @property
    def usable_ids(self) -> int:
        """Number of ids a draft vocabulary may hold; rows from here on are padding."""
        return min(self.tokenizer_length, self.target_vocab_size)

    @cached_property
    def fingerprint(self) -> str:
        """Fingerprint of the whole content: that of the saved file."""
        return fingerprint_bytes(self._to_bytes())

    def curve(self, keep: Iterable[int] = ()) -> CoverageCurve:
        """Coverage at every size, with the stop ids and ``keep`` seated first.

        Raises:
            OptionError: an id of ``keep`` is not an id of the tokenizer.
        """
        keep = list(keep)
        for token in keep:
            if not 0 <= token < self.usable_ids:
                raise OptionError(
                    f"--keep {token}: not a token id; the tokenizer has ids 0 to "
                    f"{self.usable_ids - 1}."
                )
        return CoverageCurve(
            counts=self.counts,
            heldout_counts=self.heldout_counts,
            usable_ids=self.usable_ids,
            forced_ids=tuple(dict.fromkeys((*self.stop_ids, *keep))),
        )

    def for_target(self, target_vocab_size: int) -> Coverage:
        """The same counts over the rows of a target's head (counts made with a tokenizer alone).

        Raises:
            MismatchError: tokens were counted that have no row there.
        """
        if target_vocab_size == self.target_vocab_size:
            return self
        beyond = np.flatnonzero(self.counts[target_vocab_size:])
        if beyond.size:
            raise MismatchError(
                f"the target's LM head has {target_vocab_size} rows, but token id "
                f"{target_vocab_size + int(beyond[-1])} was counted. "
                "Name the model whose tokenizer `vtrim coverage` used."
            )
        return replace(
            self,
            counts=_resized(self.counts, target_vocab_size),
            heldout_counts=_resized(self.heldout_counts, target_vocab_size),
            target_vocab_size=target_vocab_size,
        )

    def merge(self, other: Coverage) -> Coverage:
        """The counts of both, as if one run had read the data of both.

        Raises:
            MismatchError: the two were counted with different tokenizers or targets.
        """
        remedy = "Only counts of one tokenizer and one target add up."
        for name in ("tokenizer_fingerprint", "tokenizer_length", "target_vocab_size"):
            check_match(name, getattr(self, name), getattr(other, name), "the other one", remedy)
        reasons = sorted({*self.rows_skipped, *other.rows_skipped})
        parts = [*self.data_fingerprint.split("+"), *other.data_fingerprint.split("+")]
        return replace(
            self,
            counts=self.counts + other.counts,
            heldout_counts=self.heldout_counts + other.heldout_counts,
            data_fingerprint="+".join(sorted(parts)),
            stop_ids=tuple(sorted({*self.stop_ids, *other.stop_ids})),
            rows_used=self.rows_used + other.rows_used,
            rows_skipped={
                reason: self.rows_skipped.get(reason, 0) + other.rows_skipped.get(reason, 0)
                for reason in reasons
            },
            rows_heldout=self.rows_heldout + other.rows_heldout,
        )

    def save(self, path: Path) -> None:
        """Writes the artefact, atomically; equal content gives equal bytes."""
        with atomic_path(path) as temporary:
            temporary.write_bytes(self._to_bytes())

    @classmethod
    def load(cls, path: Path) -> Coverage:
        """The coverage saved in ``path``.

        Raises:
            InputError: the file is missing, incomplete or something else.
        """
        arrays, meta = unpack(path)
        try:
            return cls(
                counts=arrays["counts"],
                heldout_counts=arrays["heldout_counts"],
                target_vocab_size=int(meta["target_vocab_size"]),
                tokenizer_length=int(meta["tokenizer_length"]),
                tokenizer_fingerprint=str(meta["tokenizer_fingerprint"]),
                data_fingerprint=str(meta["data_fingerprint"]),
                stop_ids=tuple(int(token) for token in meta["stop_ids"]),
                rows_used=int(meta["rows_used"]),
                rows_skipped={str(key): int(n) for key, n in meta["rows_skipped"].items()},
                rows_heldout=int(meta["rows_heldout"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"{path}: incomplete or not a vtrim coverage (bad or missing {error}). "
                "Run `vtrim coverage` again."
            ) from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def _to_bytes(self) -> bytes:
        meta = {
            "target_vocab_size": self.target_vocab_size,
            "tokenizer_length": self.tokenizer_length,
            "tokenizer_fingerprint": self.tokenizer_fingerprint,
            "data_fingerprint": self.data_fingerprint,
            "stop_ids": list(self.stop_ids),
            "rows_used": self.rows_used,
            "rows_skipped": dict(self.rows_skipped),
            "rows_heldout": self.rows_heldout,
        }
        return pack({"counts": self.counts, "heldout_counts": self.heldout_counts}, meta)


def _resized(values: Counts, size: int) -> Counts:
    """The first ``size`` values, with zeros where there are fewer."""
    resized = np.zeros(size, dtype=np.int64)
    kept = min(size, values.size)
    resized[:kept] = values[:kept]
    return resized
