from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vtrim.chat.encode import fast_backend
from vtrim.chat.words import Words, _before_space, _cut_pattern

PARTS = st.sampled_from(
    ["a", "the", "B", "12", " ", " ", " ", "  ", "\n", "\n\n", "\t", ".", ",", "'s", "<", ">", "_",
     "é", "e\u0301", "漢", "мир", "\u00a0", "\u3000", "🙂", "<|im_end|>", "<think>", "<|pad|>"]
)  # fmt: skip
TEXTS = st.one_of(st.lists(PARTS, max_size=25).map("".join), st.text(max_size=40))


def words_of(tokenizer: Any) -> Words:
    words = Words.build(fast_backend(tokenizer))
    assert words is not None
    return words


def ids_by_word(tokenizer: Any, words: Words, text: str) -> list[int]:
    first, *others = words.split(text)
    names, encoded = words.encode(dict.fromkeys(others))
    known = dict(zip(names, encoded.lists(), strict=True))
    start = tokenizer(first, add_special_tokens=False)["input_ids"]
    return [*start, *(token for word in others for token in known[word].tolist())]


def spelled_with_meta(merges: list[tuple[str, str]], *, prepend: bool = False) -> Any:
    """A BPE without pre-tokenizer, as Gemma's: each space becomes U+2581."""
    from tokenizers import Tokenizer, models, normalizers
    from transformers import PreTrainedTokenizerFast

    symbols = dict.fromkeys(["<unk>", *"abcde.,<>/\u2581", *("".join(pair) for pair in merges)])
    table = {symbol: place for place, symbol in enumerate(symbols)}
    backend = Tokenizer(models.BPE(table, merges, unk_token="<unk>"))
    steps = [normalizers.Prepend("\u2581")] if prepend else []
    backend.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", "\u2581")])
    backend.add_special_tokens(["<|end|>"])
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>")


@pytest.mark.parametrize("split", ["llama3", "gpt2", "o200k"])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(text=TEXTS)
@example(text="two  spaces   and \n lines\n\n  indented\t tab ")
@example(text="мир и 漢字 é e\u0301 x\u00a0 y \u3000 z")
def test_words_have_the_ids_they_have_in_their_text(bpe: Callable, split: str, text: str) -> None:
    tokenizer = bpe(split, "chatml")
    found = ids_by_word(tokenizer, words_of(tokenizer), text)
    assert found == tokenizer(text, add_special_tokens=False)["input_ids"]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(text=st.lists(st.sampled_from([*"abcde.,<>/ ", "  ", "> </"]), max_size=30).map("".join))
def test_a_token_that_holds_a_space_bars_the_cut_behind_its_character(text: str) -> None:
    merges = [("a", "b"), ("\u2581", "a"), ("<", "/"), ("\u2581", "</"), (">", "\u2581</")]
    tokenizer = spelled_with_meta(merges)
    words = words_of(tokenizer)
    assert words.split("a> </b c") == ["a> </b", "c"]
    found = ids_by_word(tokenizer, words, text)
    assert found == tokenizer(text, add_special_tokens=False)["input_ids"]


def test_the_characters_before_a_space_are_read_off_the_vocabulary() -> None:
    assert _before_space(["\u0120a", "\u0120b", ".\u0120", "\u010a\u0120\u0120", "ab"]) == {
        ".",
        "\n",
    }
    # U+00A0 is the bytes C2 A0, and A0 alone ends other letters too
    assert _before_space(["\u0120a", "\u00c2\u0142\u0120"]) == {"\u00a0"}
    assert _before_space(["\u0120a", "\u0142\u0120"]) == {"\ufffd"}
    assert _before_space(["\u2581a", ">\u2581</"]) == {">"}
    assert _before_space(["a", "b"]) is None


def test_a_part_of_a_character_before_a_space_bars_cuts_behind_other_scripts() -> None:
    class Backend:
        model = type("BPE", (), {"dropout": None})()

        def get_vocab(self, **_: bool) -> dict[str, int]:
            return {"\u0120a": 0, "\u0142\u0120": 1, "?\u0120": 2}

    cut = _cut_pattern(Backend())
    assert cut is not None
    assert cut.split("мир и b c? d  e f") == ["мир и b", "c? d  e", "f"]


def test_tokenizers_of_another_make_have_no_words(toy: Callable) -> None:
    for tokenizer in (toy("tok_words"), toy("tok_meta"), spelled_with_meta([], prepend=True)):
        assert Words.build(fast_backend(tokenizer)) is None


@pytest.mark.parametrize("option", ["lstrip", "rstrip", "single_word"])
def test_added_tokens_that_look_at_their_neighbours_forbid_words(option: str) -> None:
    from tokenizers import AddedToken

    tokenizer = spelled_with_meta([("a", "b")])
    assert Words.build(fast_backend(tokenizer)) is not None
    tokenizer.add_tokens([AddedToken("<x>", normalized=False, **{option: True})])
    assert Words.build(fast_backend(tokenizer)) is None


def test_cuts_that_the_tokenizer_does_not_make_are_found_out(
    bpe: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtrim.chat.words._cut_pattern", lambda _: re.compile(" "))
    assert Words.build(fast_backend(bpe("llama3", "chatml"))) is None


def test_a_pattern_that_means_something_else_to_python_is_not_used(
    bpe: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = bpe("llama3", "chatml")
    assert words_of(tokenizer)._pretokens is not None
    monkeypatch.setattr("vtrim.chat.pretokens._to_ascii", lambda _: r"\w+|\s+|[^\w\s]")
    assert words_of(tokenizer)._pretokens is None


def test_each_word_is_named_once_with_its_ids(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    given_words = ["cat", "naïve", "sat\n\n", "<|x", "a  b", "漢"]
    names, encoded = words_of(tokenizer).encode(given_words)
    assert sorted(names) == sorted(given_words)
    for name, ids in zip(names, encoded.lists(), strict=True):
        assert ids.tolist() == tokenizer(f" {name}", add_special_tokens=False)["input_ids"]
    names, encoded = words_of(tokenizer).encode([])
    assert (names, encoded.ids.size, encoded.sizes.size) == ([], 0, 0)
    assert encoded.ids.dtype == np.int64
