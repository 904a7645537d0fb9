"""What ``vtrim vocab show`` and ``diff`` find out, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vtrim.artifacts import Run, check_match, read_object
from vtrim.cli import common
from vtrim.cli.token_text import Texts, check_tokenizer
from vtrim.errors import InputError, MismatchError, VtrimError

if TYPE_CHECKING:
    from vtrim.models.vocab_files import VocabFile
    from vtrim.trimming.coverage import Coverage

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class VocabCall:
    """The options that the commands share."""

    run: Run
    file_format: str | None
    target_vocab_size: int | None
    target: str | None
    coverage_file: Path | None = None
    tokenizer: str | None = None
    limit: int = 0

    def read(self, source: Path | None, like: VocabFile | None = None) -> VocabFile:
        """The vocabulary named, else the run's; ``like`` tells V where nothing else does."""
        from vtrim.models.vocab_files import read_vocab

        if source is None:
            source = self.run.require(self.run.vocab, "search")
        run = self.own_run(source)
        size = (run.read().get("target") or {}).get("vocab_size")
        found = read_vocab(
            source,
            target_vocab_size=self.size,
            assumed_size=like.vocab.target_vocab_size if like else size,
            file_format=self.file_format,
        )
        if found.assumed:
            origin, rows = like.path if like else run.manifest, found.vocab.target_vocab_size
            common.note(f"{found.path}: does not tell the head's rows; V {rows:,} from {origin}")
        return found

    @cached_property
    def size(self) -> int | None:
        """Rows of the target's LM head where they were typed, or a target was."""
        if self.target is None or self.target_vocab_size is not None:
            return self.target_vocab_size
        from vtrim.cli.target_config import ModelSource
        from vtrim.shape import DraftShape

        config = ModelSource(name=self.target).config()
        return DraftShape.from_target_config(config).target_vocab_size

    def texts(self, run: Run, found: VocabFile) -> Texts:
        """How tokens are written out.

        Raises:
            MismatchError: the tokenizer named is not the vocabulary's.
        """
        if self.tokenizer is not None:
            common.hush_libraries()
            from vtrim.models.hub import load_tokenizer

            tokenizer = load_tokenizer(self.tokenizer)
            check_tokenizer(tokenizer, self.tokenizer, run, found)
            return Texts(tokenizer, {})
        known = run.read_token_texts()
        return Texts(None, known)

    def counts(self, source: Path | None, found: VocabFile) -> Coverage | None:
        """The counts to judge by: those named, the vocabulary's own run's, this run's.

        Raises:
            MismatchError: the counts that were named are another target's.
        """
        from vtrim.trimming.coverage import Coverage

        if self.coverage_file is not None:
            return _fitting(Coverage.load(self.coverage_file), found, self.coverage_file)
        path = self.own_run(source).coverage
        if not path.exists():
            return None
        try:
            return _fitting(Coverage.load(path), found, path)
        except VtrimError as error:
            common.note(f"counts of the run left out: {error}")
            return None

    def own_run(self, source: Path | None) -> Run:
        """The run a vocabulary lies in, else the one that was named."""
        return Run(source) if source is not None and (source / "run.json").exists() else self.run


def _fitting(coverage: Coverage, found: VocabFile, origin: Path) -> Coverage:
    """The counts over the vocabulary's rows; refuses those of another tokenizer."""
    known = found.metadata.get("tokenizer_fingerprint")
    if known is not None:
        remedy = "Name counts of the same tokenizer with --coverage."
        check_match(
            f"{found.path}: tokenizer", known, coverage.tokenizer_fingerprint, str(origin), remedy
        )
    return coverage.for_target(found.vocab.target_vocab_size)


def describe(call: VocabCall, source: Path | None) -> dict[str, Any]:
    """The fields of ``vtrim vocab show``."""
    found = call.read(source)
    coverage = call.counts(source, found)
    vocab = found.vocab
    ids, size = vocab.ids, vocab.target_vocab_size
    eighths = np.bincount(ids * 8 // size, minlength=8)
    result: dict[str, Any] = {
        "source": str(found.path),
        "format": found.format,
        "k": vocab.size,
        "target_vocab_size": size,
        "share": vocab.size / size,
        "first_id": int(ids[0]),
        "last_id": int(ids[-1]),
        "ranges": int(np.count_nonzero(np.diff(ids) > 1)) + 1,
        "by_eighth": [int(n) for n in eighths],
        "moved": found.moved,
        "stop_ids": _stop_ids(call.own_run(source), coverage, found),
        "forced": _forced(call.own_run(source), vocab.fingerprint),
        "fingerprint": vocab.fingerprint,
        "metadata": dict(found.metadata),
        **dict.fromkeys(("counted_tokens", "coverage", "heldout_coverage")),
        "chosen_from_counts": "coverage_fingerprint" in found.metadata
        and "imported_from" not in found.metadata,
        **{name: [] for name in ("rarest_kept", "missed_most", "first_kept", "last_kept")},
    }
    if coverage is None and call.tokenizer is not None:
        result |= _ends(ids, call.texts(call.own_run(source), found), call.limit)
    if coverage is not None:
        result |= _judged(coverage, ids, call.texts(call.own_run(source), found), call.limit)
    return result


def _forced(run: Run, fingerprint: str) -> list[int] | None:
    """Ids that `vtrim search` seated first; None for vocabularies it did not choose."""
    chosen = read_object(run.search) if run.search.exists() else {}
    return chosen.get("forced") if chosen.get("vocab_fingerprint") == fingerprint else None


def _ends(ids: Counts, texts: Texts, limit: int) -> dict[str, Any]:
    """The lowest and highest ids, for vocabularies that no counts rank; none listed twice."""
    first = ids[: (limit + 1) // 2]
    last = ids[first.size :][-(limit // 2) :] if limit > 1 else ids[:0]
    return {"first_kept": listed(None, first, texts), "last_kept": listed(None, last, texts)}


def _stop_ids(run: Run, coverage: Coverage | None, found: VocabFile) -> dict[str, Any] | None:
    """Which stop tokens are inside and which are missing; None where none are known."""
    entry = run.read().get("target") or {}
    if coverage is not None:
        stops = list(coverage.stop_ids)
    elif entry.get("vocab_size") == found.vocab.target_vocab_size:
        stops = list(entry.get("stop_ids", ()))
    else:
        return None
    mask = found.vocab.t2d
    return {
        "inside": [token for token in stops if mask[token]],
        "missing": [token for token in stops if not mask[token]],
    }


def missing_stop_ids(call: VocabCall, source: Path | None, found: VocabFile) -> list[int]:
    """Stop tokens of the run that a vocabulary lacks."""
    known = _stop_ids(call.own_run(source), None, found)
    return [] if known is None else list(known["missing"])


def _judged(coverage: Coverage, ids: Counts, texts: Texts, limit: int) -> dict[str, Any]:
    """What the counts say of a vocabulary, with the tokens on both sides of its edge."""
    from vtrim.trimming.analysis import covered_share

    outside = np.ones(coverage.counts.size, dtype=np.bool_)
    outside[ids] = False
    forced = np.isin(ids, coverage.stop_ids)
    kept = ids[~forced]
    rarest = kept[np.lexsort((-kept, coverage.counts[kept]))][:limit]
    return {
        "counted_tokens": coverage.total,
        "coverage": covered_share(ids.tolist(), coverage.counts),
        "heldout_coverage": covered_share(ids.tolist(), coverage.heldout_counts),
        "rarest_kept": listed(coverage.counts, rarest, texts),
        "missed_most": listed(
            coverage.counts, most_frequent(coverage.counts, np.flatnonzero(outside), limit), texts
        ),
    }


def most_frequent(counts: Counts, ids: Counts, limit: int) -> Counts:
    """The counted ones among ``ids``, by count, descending, then by id."""
    seen = ids[counts[ids] > 0]
    return seen[np.lexsort((seen, -counts[seen]))][:limit]


def listed(counts: Counts | None, ids: Counts, texts: Texts) -> list[dict[str, Any]]:
    """Tokens as objects of id, count and text."""
    return [
        {
            "id": int(token),
            "count": None if counts is None else int(counts[token]),
            "text": texts.of(int(token)),
        }
        for token in ids
    ]


def compare(call: VocabCall, a: Path, b: Path) -> dict[str, Any]:
    """The fields of ``vtrim vocab diff``.

    Raises:
        MismatchError: the two are made for heads of other sizes or other tokenizers.
    """
    files = _both(call, a, b)
    one, other = files["a"].vocab, files["b"].vocab
    if one.target_vocab_size != other.target_vocab_size:
        raise MismatchError(
            f"{a} is made for a head of {one.target_vocab_size:,} rows, {b} for one of "
            f"{other.target_vocab_size:,}: their ids are not the same tokens."
        )
    _same_tokenizer(files["a"], files["b"])
    coverage = call.counts(a, files["a"])
    counts = None if coverage is None else coverage.counts
    texts = call.texts(call.own_run(a), files["a"])
    common_ids = np.intersect1d(one.ids, other.ids, assume_unique=True)
    union = one.size + other.size - common_ids.size
    return {
        **{name: _side(file, counts) for name, file in files.items()},
        "target_vocab_size": one.target_vocab_size,
        "counted_tokens": None if coverage is None else coverage.total,
        "common": int(common_ids.size),
        "jaccard": common_ids.size / union,
        "only_a": _only(counts, np.setdiff1d(one.ids, other.ids), texts, call.limit),
        "only_b": _only(counts, np.setdiff1d(other.ids, one.ids), texts, call.limit),
    }


def _both(call: VocabCall, a: Path, b: Path) -> dict[str, VocabFile]:
    """The two files; one that does not tell V is read with that of the other."""
    try:
        first = call.read(a)
    except InputError:
        second = call.read(b)
        return {"a": call.read(a, like=second), "b": second}
    return {"a": first, "b": call.read(b, like=first)}


def _same_tokenizer(one: VocabFile, other: VocabFile) -> None:
    name = "tokenizer_fingerprint"
    if name in one.metadata and name in other.metadata:
        remedy = "Their ids are not the same tokens."
        what = f"{one.path}: tokenizer"
        check_match(what, one.metadata[name], other.metadata[name], str(other.path), remedy)


def _side(file: VocabFile, counts: Counts | None) -> dict[str, Any]:
    from vtrim.trimming.analysis import covered_share

    ids = file.vocab.ids.tolist()
    return {
        "source": str(file.path),
        "format": file.format,
        "k": file.vocab.size,
        "coverage": None if counts is None else covered_share(ids, counts),
        "fingerprint": file.vocab.fingerprint,
    }


def _only(counts: Counts | None, ids: Counts, texts: Texts, limit: int) -> dict[str, Any]:
    """What stands on one side alone, the most frequent listed first (ids where nothing counts)."""
    if counts is None:
        first = listed(None, ids[:limit], texts)
        return {"size": int(ids.size), "tokens": None, "share": None, "listed": first}
    total, tokens = int(counts.sum()), int(counts[ids].sum())
    return {
        "size": int(ids.size),
        "tokens": tokens,
        "share": tokens / total if total else None,
        "listed": listed(counts, ids[np.lexsort((ids, -counts[ids]))][:limit], texts),
    }
