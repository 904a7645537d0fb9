from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrim.chat.encode import fast_backend
from vtrim.chat.encoders import Ragged, TokenizersEncoder, equal
from vtrim.chat.gigatoken import GigatokenEncoder, NotProved
from vtrim.errors import VtrimError

needs_it = pytest.mark.skipif(
    "not __import__('importlib').util.find_spec('gigatoken')", reason="gigatoken is not installed"
)


@needs_it
@pytest.mark.parametrize("split", ["llama3", "gpt2", "o200k"])
def test_gigatoken_gives_the_ids_of_tokenizers(bpe: Callable, split: str) -> None:
    backend = fast_backend(bpe(split, "chatml"))
    encoder, reference = GigatokenEncoder(backend), TokenizersEncoder(backend)

    @settings(max_examples=100, deadline=None, derandomize=True)
    @given(texts=st.lists(st.text(max_size=40), max_size=6))
    def check(texts: list[str]) -> None:
        assert equal(encoder.encode(texts), reference.encode(texts))

    check()
    assert encoder.name == "gigatoken"


@needs_it
def test_it_encodes_on_the_calling_thread_alone(bpe: Callable) -> None:
    import threading
    import time

    encoder = GigatokenEncoder(fast_backend(bpe("llama3", "chatml")))
    texts = [f"the cat sat on mat {number} " * 50 for number in range(2000)]
    before = threading.active_count(), time.thread_time(), time.process_time()
    encoder.encode(texts)
    mine, all_of_them = time.thread_time() - before[1], time.process_time() - before[2]
    assert threading.active_count() == before[0]
    assert all_of_them < mine * 1.5


@needs_it
def test_the_cache_is_dropped_after_so_much_text(
    bpe: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []
    start = GigatokenEncoder._start

    def count(self: GigatokenEncoder) -> Any:
        started.append(1)
        return start(self)

    monkeypatch.setattr(GigatokenEncoder, "_start", count)
    backend = fast_backend(bpe("llama3", "chatml"))
    encoder = GigatokenEncoder(backend)
    encoder.encode(["cat"])
    assert len(started) == 1
    monkeypatch.setattr("vtrim.chat.gigatoken._MAX_CHARACTERS", 100)
    found = encoder.encode(["the cat"])  # what was seen so far is beyond the limit
    assert len(started) == 2
    assert equal(found, TokenizersEncoder(backend).encode(["the cat"]))
    encoder.encode(["the cat"])
    assert len(started) == 2
    monkeypatch.setattr("vtrim.chat.gigatoken._MAX_GROWTH", -1_000_000_000)
    encoder.encode(["the cat"])
    assert len(started) == 3


@needs_it
def test_other_ids_on_a_single_text_are_found_out(
    bpe: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = GigatokenEncoder._fast

    def differ(self: GigatokenEncoder, texts: Sequence[str]) -> Ragged:
        ids, sizes = fast(self, texts)
        ids = ids.copy()
        ids[-1] += 1
        return Ragged(ids, sizes)

    monkeypatch.setattr(GigatokenEncoder, "_fast", differ)
    with pytest.raises(NotProved, match="other ids"):
        GigatokenEncoder(fast_backend(bpe("llama3", "chatml")))


@needs_it
def test_texts_with_a_character_it_takes_otherwise_go_the_slow_way(
    bpe: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = GigatokenEncoder._fast
    seen: list[str] = []

    def differ(self: GigatokenEncoder, texts: Sequence[str]) -> Ragged:
        seen.extend(texts)
        return fast(self, [text.replace("\u0907", "a") for text in texts])

    backend = fast_backend(bpe("llama3", "chatml"))
    encoder = GigatokenEncoder(backend)
    monkeypatch.setattr(GigatokenEncoder, "_fast", differ)
    texts = ["the cat", "\u0907 \u0928", "naïve", "x\u0907", ""]
    for _ in range(2):
        assert equal(encoder.encode(texts), TokenizersEncoder(backend).encode(texts))
        assert "x\u0907" not in seen
        assert {"the cat", "naïve", ""} <= set(seen)


@needs_it
@pytest.mark.parametrize("split", ["llama3", "gpt2", "o200k"])
def test_characters_of_a_young_unicode_are_encoded_alike(bpe: Callable, split: str) -> None:
    backend = fast_backend(bpe(split, "chatml"))
    symbols = ["\u088f", "\u1ad8", "\u1ad5", "\u1c89", "\ua7f1", "\U000113b4", "\U00016121"]
    texts = [f"a{one}b {one}{other}\n1{other}" for one in symbols for other in symbols]
    assert equal(GigatokenEncoder(backend).encode(texts), TokenizersEncoder(backend).encode(texts))


@needs_it
def test_a_tokenizer_that_gigatoken_refuses_is_named_with_a_remedy(toy: Callable) -> None:
    with pytest.raises(NotProved, match=r"does not take this tokenizer.*--encoder tokenizers"):
        GigatokenEncoder(fast_backend(toy("tok_words")))


@needs_it
def test_a_panic_of_its_native_code_is_no_bug_of_vtrim(
    bpe: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Panic(BaseException):
        """What a panic in Rust becomes in Python."""

    class Engine:
        def encode(self, _text: str) -> Any:
            raise Panic("index out of bounds\nLocation: x.rs")

    monkeypatch.setattr(GigatokenEncoder, "_start", lambda _: Engine())
    with pytest.raises(NotProved, match=r"gigatoken fails \(index out of bounds\)"):
        GigatokenEncoder(fast_backend(bpe("llama3", "chatml")))


def test_without_the_package_the_user_is_told_how_to_install_it(
    bpe: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gigatoken", None)
    with pytest.raises(VtrimError, match=r"not installed.*pip install 'vtrim\[fast\]'"):
        GigatokenEncoder(fast_backend(bpe("llama3", "chatml")))


@needs_it
def test_no_text_gives_no_ids(bpe: Callable) -> None:
    found = GigatokenEncoder(fast_backend(bpe("llama3", "chatml"))).encode([])
    assert found.ids.size == found.sizes.size == 0
    assert found.ids.dtype == found.sizes.dtype == np.int64
