from __future__ import annotations

from collections.abc import Callable

import numpy as np

from vtrim.chat.encode import fast_backend
from vtrim.chat.encoders import Ragged, TokenizersEncoder, equal, hard_texts, ragged


def test_the_reference_gives_the_tokenizers_own_ids_text_by_text(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    texts = ["a cat", "", "naïve\n\n", "<|im_end|>x"] * 600  # more than one chunk
    found = TokenizersEncoder(fast_backend(tokenizer)).encode(texts)
    expected = tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert [ids.tolist() for ids in found.lists()] == expected


def test_no_text_gives_no_ids(bpe: Callable) -> None:
    found = TokenizersEncoder(fast_backend(bpe("llama3", "chatml"))).encode([])
    assert found.ids.size == found.sizes.size == 0
    assert list(found.lists()) == []


def test_equal_ids_in_other_texts_are_not_equal() -> None:
    one, other = ragged([[1, 2], [3]]), ragged([[1], [2, 3]])
    assert np.array_equal(one.ids, other.ids)
    assert not equal(one, other)
    assert equal(one, Ragged(one.ids.copy(), one.sizes.copy()))


def test_hard_texts_are_the_same_every_time_and_spell_added_tokens(bpe: Callable) -> None:
    backend = fast_backend(bpe("llama3", "chatml"))
    texts = hard_texts(backend)
    assert texts == hard_texts(backend)
    whole = "".join(texts)
    for token in ("<|im_end|>", "<think>"):
        assert token in whole
        assert f"{token[:-1]} " in whole
    assert sum(text.isascii() for text in texts) > 300
    assert {"\u00a0", "e\u0301", "漢", "🙂", "\u2581", "\x00"} <= set(whole) | {"e\u0301"}
