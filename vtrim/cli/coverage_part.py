"""The unit of work of ``vtrim coverage``: some rows of some sources, counted.

One process, several, ray and shards on many machines all run ``count_part`` and add the results up,
so the bytes of the artefact cannot depend on who counted which row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import check_match

if TYPE_CHECKING:
    from vtrim.chat.feed import EncoderChoice, ReplyFeed
    from vtrim.chat.read import ReadOptions
    from vtrim.chat.skips import SkipLog
    from vtrim.chat.sources import Source
    from vtrim.trimming.count import Tally
    from vtrim.trimming.coverage import Coverage

# told while a part is counted: bytes read since the last time, rows since then
Tell = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class TokenizerSpec:
    """How any process gets the tokenizer. template: replaces the tokenizer's own."""

    source: str
    revision: str | None
    trust_remote_code: bool
    offline: bool
    template: str | None

    def load(self) -> Any:
        """The tokenizer.

        Raises:
            InputError: it cannot be loaded.
        """
        from vtrim.models import hub

        tokenizer = hub.load_tokenizer(
            self.source,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            offline=self.offline,
        )
        if self.template is not None:
            tokenizer.chat_template = self.template
        return tokenizer


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What decides which rows count and which of their tokens; run.json keeps it for training."""

    options: ReadOptions
    max_length: int | None = None
    last_turn_only: bool = False
    encoder: EncoderChoice = "auto"

    def entry(self) -> dict[str, Any]:
        """What run.json says of it. A shard is no property of the data."""
        return {
            "max_length": self.max_length,
            "last_turn_only": self.last_turn_only,
            "skip_bad_rows": self.options.skip_bad_rows,
            "read": replace(self.options, shard=None).to_dict(),
        }


@dataclass(frozen=True, kw_only=True)
class PartSpec:
    """What to count; picklable.

    blank: the artefact without counts. generated: the sources hold text that the target wrote.
    full: render every conversation.
    """

    tokenizer: TokenizerSpec
    blank: Coverage
    sources: tuple[Source, ...]
    reading: Reading
    generated: bool = False
    full: bool = False


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is said about counting and is no part of the artefact."""

    skipped: SkipLog
    generated_skipped: SkipLog
    rows_fast: int = 0
    rows_checked: int = 0
    cut_replies: int = 0
    reasoning_dropped: int = 0
    empty_replies: int = 0
    parts_left_out: int = 0
    encoders: frozenset[str] = frozenset()
    encoder_notes: frozenset[str] = frozenset()

    def merge(self, other: Facts) -> Facts:
        """The facts of both parts."""
        return Facts(
            skipped=self.skipped.merge(other.skipped),
            generated_skipped=self.generated_skipped.merge(other.generated_skipped),
            rows_fast=self.rows_fast + other.rows_fast,
            rows_checked=self.rows_checked + other.rows_checked,
            cut_replies=self.cut_replies + other.cut_replies,
            reasoning_dropped=self.reasoning_dropped + other.reasoning_dropped,
            empty_replies=self.empty_replies + other.empty_replies,
            parts_left_out=self.parts_left_out + other.parts_left_out,
            encoders=self.encoders | other.encoders,
            encoder_notes=self.encoder_notes | other.encoder_notes,
        )


@dataclass(frozen=True, kw_only=True)
class Part:
    """The counts of a part, without the name of its data, and what there is to say about it."""

    coverage: Coverage
    facts: Facts

    def merge(self, other: Part) -> Part:
        """Both parts together."""
        return Part(
            coverage=self.coverage.merge(other.coverage), facts=self.facts.merge(other.facts)
        )


def count_part(spec: PartSpec, *, tokenizer: Any = None, tell: Tell | None = None) -> Part:
    """Counts what ``spec`` names. tokenizer: one that is loaded already.

    Raises:
        InputError: a source cannot be read.
        FastPathDiffers: counted by segments, a conversation gives other counts than rendered.
    """
    from vtrim.chat.feed import ReplyFeed
    from vtrim.chat.read import read_conversations
    from vtrim.chat.render import Renderer
    from vtrim.chat.skips import SkipLog
    from vtrim.trimming.count import Tally

    reading, skipped = spec.reading, SkipLog()
    renderer = Renderer(
        tokenizer if tokenizer is not None else _loaded(spec.tokenizer, _fingerprint(spec)),
        max_length=reading.max_length,
        last_turn_only=reading.last_turn_only,
        skipped=skipped,
    )
    tally = Tally(spec.blank.target_vocab_size)
    sample = None if spec.generated else tally.sample
    feed = ReplyFeed(renderer, full=spec.full, encoder=reading.encoder, sample=sample)
    rows = read_conversations(
        spec.sources, options=reading.options, skipped=skipped, advance=_advance(feed, tell)
    )
    tally.update(feed.feed(rows))
    return _part(spec, feed, tally)


def _fingerprint(spec: PartSpec) -> str:
    return spec.blank.tokenizer_fingerprint


@lru_cache(maxsize=1)
def _loaded(spec: TokenizerSpec, fingerprint: str) -> Any:
    """The tokenizer of a worker process, once, after proving it is the one that was asked for."""
    from vtrim.cli import common
    from vtrim.models import hub

    common.own_process()
    if not spec.trust_remote_code:
        common.keep_torch_out()
    with common.loading():
        common.hush_libraries()
        tokenizer = spec.load()
    check_match(
        f"tokenizer of {spec.source}",
        hub.tokenizer_fingerprint(tokenizer),
        fingerprint,
        "the process that asked",
        "All machines need the same tokenizer; name a --revision or a shared folder.",
    )
    return tokenizer


def _advance(feed: ReplyFeed, tell: Tell | None) -> Callable[[int], None] | None:
    """Tells bytes and rows whenever the reader tells bytes."""
    if tell is None:
        return None
    rows = 0

    def advance(size: int) -> None:
        nonlocal rows
        now = feed.kinds.total()
        tell(size, now - rows)
        rows = now

    return advance


def _part(spec: PartSpec, feed: ReplyFeed, tally: Tally) -> Part:
    """The part that a feed has told and a tally has counted."""
    from vtrim.chat.skips import SkipLog

    skipped, nothing = feed.renderer.skipped, SkipLog()
    if spec.generated:
        coverage = replace(spec.blank, generated_counts=tally.counts, generated_rows=feed.rows_used)
        return Part(coverage=coverage, facts=Facts(skipped=nothing, generated_skipped=skipped))
    coverage = replace(
        spec.blank,
        counts=tally.counts,
        heldout_counts=tally.heldout_counts,
        by_source=tally.by_source,
        sample=tally.sample.build(),
        rows_used=feed.rows_used,
        rows_heldout=feed.rows_heldout,
        rows_skipped=dict(skipped.counts),
        rows_by_kind=dict(feed.kinds),
        straddling=feed.renderer.straddling,
    )
    facts = Facts(
        skipped=skipped,
        generated_skipped=nothing,
        rows_fast=feed.rows_fast,
        rows_checked=feed.rows_checked,
        cut_replies=feed.renderer.cut_replies,
        reasoning_dropped=feed.renderer.reasoning_dropped,
        empty_replies=feed.renderer.empty_replies,
        parts_left_out=feed.renderer.parts_left_out,
        encoders=frozenset({feed.encoder}),
        encoder_notes=frozenset({feed.encoder_note} if feed.encoder_note else ()),
    )
    return Part(coverage=coverage, facts=facts)
