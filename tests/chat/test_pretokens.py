from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtrim.chat.encode import fast_backend
from vtrim.chat.pretokens import Pretokens, _to_ascii

WORDS = st.lists(
    st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)
    | st.sampled_from(["it's", "a\n\nb", "x  y", "12345", "(a_b)", "...", "\n.", "\t1"]),
    max_size=12,
)


def pretokens_of(tokenizer: Any) -> Pretokens:
    made = Pretokens.build(fast_backend(tokenizer))
    assert made is not None
    return made


def byte_level(*steps: Any, use_regex: bool = False) -> Any:
    """A byte-level BPE with these steps before ByteLevel."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    table = {symbol: place for place, symbol in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    merges = [("\u0120", "1"), ("1", "2"), ("a", "b"), ("\u0120", "a"), ("\u0120", "\u0120")]
    for pair in merges:
        table["".join(pair)] = len(table)
    backend = Tokenizer(models.BPE(table, merges))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*steps, level])
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@pytest.mark.parametrize("split", ["llama3", "o200k", "gpt2"])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(words=WORDS)
def test_words_get_the_tokenizers_own_ids(bpe: Callable, split: str, words: list[str]) -> None:
    tokenizer = bpe(split, "chatml")
    made = pretokens_of(tokenizer)
    taken = [word for word in words if made.takes(word)]
    found = [ids.tolist() for ids in made.encode(taken).lists()]
    assert found == [tokenizer(f" {word}", add_special_tokens=False)["input_ids"] for word in taken]


@pytest.mark.parametrize("individual", [True, False])
def test_steps_that_split_after_one_another_are_followed(individual: bool) -> None:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Digits, Split

    numbers = Split(Regex(r"\p{N}{1,3}"), "isolated")
    letters = Split(Regex(r"\s?\p{L}+|\s+(?!\S)|\s+"), "isolated")
    texts = [" 12a", " ab12345", " a  1\n2b", " .ab"]
    for tokenizer in (
        byte_level(Digits(individual_digits=individual), use_regex=True),
        byte_level(numbers, letters),
        byte_level(use_regex=True),
    ):
        made = pretokens_of(tokenizer)
        found = [ids.tolist() for ids in made.encode([text[1:] for text in texts]).lists()]
        assert found == tokenizer(texts, add_special_tokens=False)["input_ids"]
        splitter = tokenizer.backend_tokenizer.pre_tokenizer
        for text in texts:
            assert len(made.split(text)) == len(splitter.pre_tokenize_str(text))


@pytest.mark.parametrize("word", ["naïve", "a<|im_end|>", "<think>", "x<|", "end\n", "end "])
def test_words_that_only_the_tokenizer_may_split_are_left_to_it(bpe: Callable, word: str) -> None:
    assert not pretokens_of(bpe("llama3", "chatml")).takes(word)


def test_a_tokenizer_of_another_make_has_no_pretokens(toy: Callable) -> None:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Punctuation, Split

    tokenizers = [toy("tok_words"), toy("tok_meta"), byte_level(Punctuation())]
    for behavior, invert in (("removed", False), ("isolated", True), ("contiguous", False)):
        tokenizers.append(byte_level(Split(Regex(r"\s"), behavior, invert=invert)))
    for tokenizer in tokenizers:
        assert Pretokens.build(fast_backend(tokenizer)) is None


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
