"""Counts of reply tokens: the artefact that `vtrim coverage` writes and `vtrim search` reads.

All counts are integers: shares are quotients of two exact sums, files of equal content are equal
byte for byte, and artefacts of several machines add up to the artefact of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vtrim.artifacts import atomic_path, check_match, fingerprint_bytes
from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.trimming.curve import Counts, CoverageCurve
from vtrim.trimming.parts import merge_parts
from vtrim.trimming.sample import HeldoutSample, sample_arrays, sample_of
from vtrim.trimming.sources import BySource, merge_sources, source_arrays, sources_of
from vtrim.trimming.storage import pack, unpack

__all__ = ["Coverage", "CoverageCurve"]

_NUMBERS = (
    "target_vocab_size",
    "tokenizer_length",
    "rows_used",
    "rows_heldout",
    "straddling",
    "generated_rows",
)
_ADDED = ("counts", "heldout_counts", "rows_used", "rows_heldout", "straddling", "generated_rows")
_TEXTS = ("tokenizer_fingerprint", "data_fingerprint", "generated_fingerprint")
_TALLIES = ("rows_skipped", "rows_by_kind")


@dataclass(frozen=True, kw_only=True, eq=False)
class Coverage:
    """How often each target id stands in the replies of the counted conversations.

    counts: [V] all counted rows. heldout_counts: [V] the part of them in the held-out split.
    target_vocab_size: V, rows of the target's LM head (ids of the tokenizer where no model was
    named). data_fingerprint: see ``parts``. stop_ids: forced into every draft vocabulary.
    by_source: [V] counts by source column, empty without one, None with too many. sample: some
    held-out conversations, whole. generated_counts: [V] counts of text that the target wrote, in
    no other count; None if none was given. straddling: tokens that cross the start of a reply.
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
    rows_by_kind: Mapping[str, int] = field(default_factory=dict)
    straddling: int = 0
    by_source: BySource = field(default_factory=dict)
    sample: HeldoutSample = field(default_factory=HeldoutSample.empty)
    generated_counts: Counts | None = None
    generated_rows: int = 0
    generated_fingerprint: str = ""

    def __post_init__(self) -> None:
        """Refuses counts that cannot belong to this target.

        Raises:
            InputError: arrays of another length, negative counts, more held-out tokens than
                tokens, or a stop or sampled id without a row.
        """
        size = self.target_vocab_size
        for name, counts in self._dense().items():
            if counts.shape != (size,) or np.any(counts < 0):
                raise InputError(f"coverage: {name} are not counts for a target of {size} rows.")
        if np.any(self.heldout_counts > self.counts):
            raise InputError("coverage: more held-out tokens than tokens.")
        for token in self.stop_ids:
            if not 0 <= token < size:
                raise InputError(f"coverage: stop token id {token} is outside the {size} rows.")
        sampled = self.sample.ids
        if sampled.size and not 0 <= sampled.min() <= sampled.max() < size:
            raise InputError(f"coverage: the held-out sample has ids outside the {size} rows.")

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
        for counts in self._dense().values():
            beyond = np.flatnonzero(counts[target_vocab_size:])
            if beyond.size:
                raise MismatchError(
                    f"the target's LM head has {target_vocab_size} rows, but token id "
                    f"{target_vocab_size + int(beyond[-1])} was counted. "
                    "Name the model whose tokenizer `vtrim coverage` used."
                )
        by_source = self.by_source and {
            name: _resized(counts, target_vocab_size) for name, counts in self.by_source.items()
        }
        resized: dict[str, Any] = {
            name: _resized(counts, target_vocab_size) for name, counts in self._dense().items()
        }
        return replace(self, target_vocab_size=target_vocab_size, by_source=by_source, **resized)

    def merge(self, other: Coverage) -> Coverage:
        """The counts of both, as if one run had read the data of both.

        Raises:
            MismatchError: the two were counted with different tokenizers or targets, or on the
                same data.
        """
        remedy = "Only counts of one tokenizer and one target add up."
        for name in ("tokenizer_fingerprint", "tokenizer_length", "target_vocab_size"):
            check_match(name, getattr(self, name), getattr(other, name), "the other one", remedy)
        generated = [
            part.generated_counts for part in (self, other) if part.generated_counts is not None
        ]
        added: dict[str, Any] = {
            name: getattr(self, name) + getattr(other, name) for name in _ADDED
        }
        return replace(
            self,
            **added,
            data_fingerprint=merge_parts(self.data_fingerprint, other.data_fingerprint),
            stop_ids=tuple(sorted({*self.stop_ids, *other.stop_ids})),
            rows_skipped=_added(self.rows_skipped, other.rows_skipped),
            rows_by_kind=_added(self.rows_by_kind, other.rows_by_kind),
            by_source=merge_sources(self.by_source, other.by_source, (self.counts, other.counts)),
            sample=self.sample.merge(other.sample),
            generated_counts=np.sum(generated, axis=0) if generated else None,
            generated_fingerprint=merge_parts(
                self.generated_fingerprint, other.generated_fingerprint
            ),
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
            return cls._of(arrays, meta)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InputError(
                f"{path}: incomplete or not a vtrim coverage (bad or missing {error}). "
                "Run `vtrim coverage` again."
            ) from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def _of(cls, arrays: Mapping[str, Counts], meta: Mapping[str, Any]) -> Coverage:
        """The coverage in an artefact's arrays and meta data."""
        numbers = {name: int(meta[name]) for name in _NUMBERS}
        rest: dict[str, Any] = {
            **numbers,
            **{name: str(meta[name]) for name in _TEXTS},
            **{name: {str(key): int(n) for key, n in meta[name].items()} for name in _TALLIES},
        }
        return cls(
            counts=arrays["counts"],
            heldout_counts=arrays["heldout_counts"],
            generated_counts=arrays.get("generated_counts"),
            stop_ids=tuple(int(token) for token in meta["stop_ids"]),
            by_source=sources_of(arrays, meta["sources"], numbers["target_vocab_size"]),
            sample=sample_of(arrays),
            **rest,
        )

    def _to_bytes(self) -> bytes:
        names = (*_NUMBERS, *_TEXTS, *_TALLIES)
        meta = {
            **{name: getattr(self, name) for name in names},
            "stop_ids": list(self.stop_ids),
            "sources": None if self.by_source is None else list(self.by_source),
        }
        arrays = {**self._dense(), **sample_arrays(self.sample), **source_arrays(self.by_source)}
        return pack(arrays, meta)

    def _dense(self) -> dict[str, Counts]:
        """The arrays of one count a row of the head."""
        arrays = {"counts": self.counts, "heldout_counts": self.heldout_counts}
        if self.generated_counts is not None:
            arrays["generated_counts"] = self.generated_counts
        return arrays


def _added(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """The sums of two tallies."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in sorted({*one, *other})}


def _resized(values: Counts, size: int) -> Counts:
    """The first ``size`` values, with zeros where there are fewer."""
    resized = np.zeros(size, dtype=np.int64)
    kept = min(size, values.size)
    resized[:kept] = values[:kept]
    return resized
