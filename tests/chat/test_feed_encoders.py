"""The feed with gigatoken, by source, and with a sample of the held-out conversations."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vtrim.chat.conversation import (
    Conversation,
    Origin,
    conversation_key,
    conversation_of,
    is_heldout,
)
from vtrim.chat.feed import CHECK_FIRST, FastPathDiffers, ReplyFeed
from vtrim.chat.gigatoken import GigatokenEncoder, NotProved
from vtrim.chat.read import read_conversations
from vtrim.chat.render import Renderer
from vtrim.chat.skips import SkipLog
from vtrim.trimming.count import Tally

needs_gigatoken = pytest.mark.skipif(
    importlib.util.find_spec("gigatoken") is None, reason="gigatoken is not installed"
)
TEXTS = ["yes", "no, naïve\n\n", "12,345  words; I'm", "<think>x</think>\n\ny", "漢字 かな", " \n"]


def rows_of(number: int, source: Callable[[int], str | None] = lambda _: None) -> list[Any]:
    rows = []
    for n in range(number):
        turns = [("user", f"q{n}"), ("assistant", f"{TEXTS[n % 6]} {n}")] * (1 + n % 2)
        row: dict[str, Any] = {"messages": [{"role": r, "content": c} for r, c in turns]}
        rows.append(conversation_of({**row, "source": source(n)}, Origin("made", n + 1)))
    return rows


class Kept:
    """Keeps the ids of every held-out conversation whose key is even."""

    def __init__(self) -> None:
        self.ids: dict[int, list[int]] = {}

    def wants(self, key: int) -> bool:
        return key % 2 == 0

    def add(self, key: int, ids: Any) -> None:
        self.ids[key] = ids.tolist()


@needs_gigatoken
@pytest.mark.parametrize("template", ["chatml", "trimmed", "think", "spaced", "bare"])
@pytest.mark.parametrize("split", ["llama3", "gpt2"])
def test_every_encoder_gives_the_counts_of_full_renders(
    bpe: Callable, tally: Callable, split: str, template: str
) -> None:
    rows, tokenizer = rows_of(300), bpe(split, template)
    full = tally(rows, tokenizer, full=True)
    for encoder in ("tokenizers", "gigatoken"):
        found = tally(rows, tokenizer, encoder=encoder)
        assert found.feed.encoder == encoder
        assert found.feed.rows_fast == (0 if template == "bare" else found.feed.rows_fast)
        assert all(np.array_equal(*pair) for pair in zip(found.arrays, full.arrays, strict=True))
        assert found.feed.renderer.straddling == full.feed.renderer.straddling


@needs_gigatoken
def test_long_data_go_on_with_gigatoken_and_are_checked_again(
    bpe: Callable, tally: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, tokenizer = rows_of(400), bpe("llama3", "chatml")
    short = tally(rows, tokenizer)
    assert (short.feed.encoder, short.feed.rows_checked) == ("tokenizers", CHECK_FIRST)
    monkeypatch.setattr("vtrim.chat.feed._GIGATOKEN_FROM", 2000)
    long = tally(rows, tokenizer)
    assert (long.feed.encoder, long.feed.encoder_note) == ("gigatoken", None)
    assert long.feed.rows_checked > short.feed.rows_checked
    assert all(np.array_equal(*pair) for pair in zip(long.arrays, short.arrays, strict=True))


@needs_gigatoken
def test_a_tokenizer_that_gigatoken_gets_wrong_stays_with_tokenizers(
    bpe: Callable, tally: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtrim.chat.feed._GIGATOKEN_FROM", 100)
    monkeypatch.setattr("vtrim.chat.gigatoken.equal", lambda *_: False)
    rows, tokenizer = rows_of(90), bpe("llama3", "chatml")
    found = tally(rows, tokenizer)
    assert found.feed.encoder == "tokenizers"
    assert "other ids" in found.feed.encoder_note
    assert found.tokens == tally(rows, tokenizer, full=True).tokens
    with pytest.raises(NotProved, match="other ids"):
        tally(rows, tokenizer, encoder="gigatoken")


@needs_gigatoken
@pytest.mark.parametrize("fails", [False, True])
def test_a_difference_in_the_run_names_gigatoken(
    bpe: Callable, tally: Callable, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    encode = GigatokenEncoder.encode

    def wrong(self: GigatokenEncoder, texts: Any) -> Any:
        found = encode(self, texts)
        if any("naïve" in text and "I'm" not in text for text in texts) and len(texts) < 10:
            if fails:
                raise NotProved("gigatoken fails.")
            return found._replace(ids=np.append(found.ids[:-1], 0))
        return found

    monkeypatch.setattr(GigatokenEncoder, "encode", wrong)
    with pytest.raises(FastPathDiffers) as caught:
        tally(rows_of(90), bpe("llama3", "chatml"), encoder="gigatoken")
    assert caught.value.encoder == "gigatoken"
    assert str(caught.value) == ("gigatoken fails." if fails else "made:2")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own; workers send it
    assert (str(again), again.encoder) == (str(caught.value), "gigatoken")


@pytest.mark.parametrize(
    "encoder", ["tokenizers", pytest.param("gigatoken", marks=needs_gigatoken)]
)
@pytest.mark.parametrize("full", [False, True])
def test_the_sample_gets_the_reply_ids_of_wanted_heldout_rows_in_order(
    bpe: Callable, plain_reply_ids: Callable, encoder: Any, full: bool
) -> None:
    tokenizer = bpe("llama3", "chatml")
    rows = rows_of(900)
    kept = Kept()
    feed = ReplyFeed(Renderer(tokenizer), full=full, encoder=encoder, sample=kept)
    counted = Tally(len(tokenizer)).update(feed.feed(rows))
    wanted = [row for row in rows if is_heldout(row) and conversation_key(row) % 2 == 0]
    assert len(wanted) > 10
    assert kept.ids == {
        conversation_key(row): plain_reply_ids(tokenizer, list(row.messages)) for row in wanted
    }
    alone = Tally(len(tokenizer)).update(ReplyFeed(Renderer(tokenizer), full=True).feed(rows))
    assert np.array_equal(counted.counts, alone.counts)
    assert np.array_equal(counted.heldout_counts, alone.heldout_counts)


@pytest.mark.parametrize("full", [False, True])
def test_each_source_has_the_counts_of_its_rows(bpe: Callable, full: bool) -> None:
    tokenizer = bpe("llama3", "chatml")
    rows = rows_of(120, lambda n: ["code", "math", None][n % 3])
    counted = Tally(len(tokenizer)).update(ReplyFeed(Renderer(tokenizer), full=full).feed(rows))
    assert counted.by_source is not None
    for name in ("code", "math"):
        part = [row for row in rows if row.source == name]
        alone = Tally(len(tokenizer)).update(ReplyFeed(Renderer(tokenizer)).feed(part))
        assert np.array_equal(counted.by_source[name], alone.counts)


def test_as_many_sources_as_rows_cost_nothing_but_their_names(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    rows = rows_of(500, lambda n: f"row {n}")
    feed = ReplyFeed(Renderer(tokenizer))
    seen: set[str | None] = set()

    def watched() -> Iterator[Any]:
        for counted in feed.feed(rows):
            seen.add(counted[3])
            yield counted

    counted = Tally(len(tokenizer)).update(watched())
    assert len(seen) < 70
    assert counted.by_source is None
    whole = Tally(len(tokenizer)).update(ReplyFeed(Renderer(tokenizer), full=True).feed(rows))
    assert np.array_equal(counted.counts, whole.counts)


NAMES = ["llama3_1", "qwen3", "gemma3", "deepseek_v3", "smollm2"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_segments_words_and_gigatoken_equal_full_renders_with_real_tokenizers(
    big_tokenizers: Callable, data: Path, tally: Callable, name: str
) -> None:
    tokenizer = big_tokenizers(name)
    rows: list[Conversation] = []
    for part, step in (("chat", 60), ("function_calling", 10), ("ner", 60)):
        path = data / f"{part}_messages.jsonl"
        rows += islice(read_conversations([path], skipped=SkipLog()), 0, None, step)
    full = tally(rows, tokenizer, full=True)
    encoders = ["tokenizers"]
    if importlib.util.find_spec("gigatoken") is not None and name != "smollm2":
        encoders.append("gigatoken")
    for encoder in encoders:
        found = tally(rows, tokenizer, encoder=encoder)
        assert found.feed.rows_fast > 0.9 * found.feed.rows_used
        assert all(np.array_equal(*pair) for pair in zip(found.arrays, full.arrays, strict=True))
        assert found.skipped.counts == full.skipped.counts
