"""vtrim against a count that shares no code with it (slow_count.py, also a script)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from vtrim.chat.conversation import Origin, conversation_of
from vtrim.chat.render import Renderer

sys.path.insert(0, str(Path(__file__).parent))
import slow_count

NAMES = sorted(slow_count.GRAMMARS)


@pytest.mark.parametrize("name", NAMES)
def test_real_rows_give_the_ids_of_the_slow_count(
    big_tokenizers: Callable[[str], Any], data: Path, name: str
) -> None:
    tokenizer = big_tokenizers(name)
    renderer = Renderer(tokenizer)
    for file in ("chat", "function_calling", "ner"):
        path = data / f"{file}_messages.jsonl"
        for line, entry in islice(enumerate(slow_count.rows_of(path), 1), 0, None, 97):
            try:
                [(turns, _)] = slow_count.conversations_of(entry, {})
                expected = slow_count.conversation_ids(tokenizer, name, turns)
            except slow_count.Unusable:
                expected = []
            samples = renderer.samples(conversation_of(entry, Origin(file, line)))
            found = [token for s in samples for token in s.ids[s.mask].tolist()]
            assert found == expected, (file, line)


@pytest.mark.parametrize("name", NAMES)
def test_the_slow_counts_texts_are_those_of_the_template(
    big_tokenizers: Callable[[str], Any], name: str
) -> None:
    tokenizer = big_tokenizers(name)
    plain = [
        {"role": "system", "content": "S "},
        {"role": "user", "content": " a\n"},
        {"role": "assistant", "content": "\n one "},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "two"},
    ]
    tools = [*plain[1:], {"role": "tool", "content": "t"}, {"role": "tool", "content": "u"}]
    tools += [{"role": "assistant", "content": "three"}]
    for turns in (plain, plain[1:], [] if name == "gemma3" else tools):
        if turns:
            pieces = list(slow_count.GRAMMARS[name](turns))[-1]
            whole = tokenizer.apply_chat_template(turns, tokenize=False)
            assert "".join(text for text, _ in pieces) == whole
