from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrim.chat.encode import fast_backend
from vtrim.chat.pretokens import PretokenCounter, _to_ascii


def counter_of(tokenizer: Any) -> PretokenCounter:
    counter = PretokenCounter.build(fast_backend(tokenizer))
    assert counter is not None
    return counter


def expand(counted: tuple[Any, Any]) -> Counter[int]:
    found: Counter[int] = Counter()
    for token, weight in zip(*(array.tolist() for array in counted), strict=True):
        found[token] += weight
    return found


@pytest.mark.parametrize("split", ["llama3", "o200k"])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(text=st.text(st.characters(max_codepoint=127), max_size=60))
def test_counted_pretokens_give_the_tokenizers_own_ids(
    bpe: Callable, split: str, text: str
) -> None:
    tokenizer = bpe(split, "chatml")
    counter = counter_of(tokenizer)
    pieces = counter.split(text)
    if pieces is None:
        assert "<" in text
        return
    assert "".join(pieces) == text
    expected = Counter(tokenizer(text, add_special_tokens=False)["input_ids"])
    assert expand(counter.ids(Counter(pieces))) == expected


def test_each_pretoken_counts_as_often_as_it_stands(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    texts = ["the cat", "the cat sat", "cat the\n\n"] * 50
    counter = counter_of(tokenizer)
    pieces = Counter(chain.from_iterable(counter.split(text) or [] for text in texts))
    expected = Counter(chain.from_iterable(tokenizer(texts, add_special_tokens=False)["input_ids"]))
    assert expand(counter.ids(pieces)) == expected


@pytest.mark.parametrize("text", ["naïve", "a<|im_end|>", "<think>", "x <|"])
def test_texts_that_only_the_tokenizer_may_split_are_left_to_it(bpe: Callable, text: str) -> None:
    assert counter_of(bpe("llama3", "chatml")).split(text) is None


def test_a_tokenizer_of_another_make_has_no_counter(bpe: Callable, toy: Callable) -> None:
    for tokenizer in (bpe("gpt2", "chatml"), toy("tok_words"), toy("tok_meta")):
        assert PretokenCounter.build(fast_backend(tokenizer)) is None


def test_a_pattern_that_means_something_else_to_python_is_found_out(
    bpe: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = fast_backend(bpe("llama3", "chatml"))
    monkeypatch.setattr("vtrim.chat.pretokens._to_ascii", lambda _: r"\w+|\s+|[^\w\s]")
    assert PretokenCounter.build(backend) is None


@pytest.mark.parametrize(
    ("pattern", "rewritten"),
    [
        (r"\p{L}+", "[A-Za-z]+"),
        (r"[^\r\n\p{L}\p{N}]?\p{Lu}", r"[^\r\nA-Za-z0-9]?[A-Z]"),
        (r"\[\p{N}\]", r"\[[0-9]\]"),
        (r"[\p{Lm}a]", r"[\x80a]"),
        (r"[a[^b]]", None),
    ],
)
def test_unicode_classes_are_cut_down_to_ascii(pattern: str, rewritten: str | None) -> None:
    assert _to_ascii(pattern) == rewritten
    if rewritten is not None:
        re.compile(rewritten, re.ASCII)
