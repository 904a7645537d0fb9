from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from vtrim.chat.stops import stop_ids


@pytest.fixture
def tokenizer(bpe: Callable) -> Any:
    return bpe("llama3", "returns")


def test_stops_are_the_eos_and_the_token_that_closes_a_reply(tokenizer: Any) -> None:
    names = ["<|im_end|>", "<|return|>"]
    expected = sorted(tokenizer.convert_tokens_to_ids(names))
    assert list(stop_ids(tokenizer, {}, {})) == expected


def test_stops_of_both_configs_join_as_one_or_as_many(tokenizer: Any) -> None:
    base = set(stop_ids(tokenizer, {}, {}))
    found = stop_ids(tokenizer, {"eos_token_id": [3, 5, 3]}, {"eos_token_id": 4})
    assert set(found) == base | {3, 4, 5}
    assert list(found) == sorted(set(found))


def test_a_nested_text_config_is_read(tokenizer: Any) -> None:
    assert 6 in stop_ids(tokenizer, {}, {"text_config": {"eos_token_id": 6}})


def test_ids_beyond_the_tokenizer_are_left_out(tokenizer: Any) -> None:
    size = len(tokenizer)
    assert size not in stop_ids(tokenizer, {"eos_token_id": [size, -1]}, {"eos_token_id": None})


@pytest.mark.parametrize(
    "name", ["tok_words", "tok_words_nogen", "tok_words_think", "target_chain"]
)
def test_the_toy_tokenizers_stop_at_done(toy: Callable, name: str) -> None:
    assert stop_ids(toy(name), {"eos_token_id": 51}, {}) == (51,)
