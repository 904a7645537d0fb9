from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtrim.chat.conversation import Conversation, Origin, conversation_of
from vtrim.chat.fast import FastReplies
from vtrim.chat.feed import CHECK_FIRST, FastPathDiffers
from vtrim.chat.read import read_conversations
from vtrim.chat.skips import SkipLog

PIECES = [
    "yes", "no ", " maybe", "\n", "\n\n", " ", "  ", "\t", "'s", "I'm", "12,345", ".", "?!", "é",
    "漢", "🙂", "\u00a0", "\u2028", "<|im_end|>", "<|im_start|>assistant\n", "<think>",
    "</think>\n\n", "<|",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
ROLES = st.sampled_from(["system", "user", "assistant", "assistant", "tool"])
TALKS = st.lists(st.lists(st.tuples(ROLES, TEXTS), max_size=5), min_size=1, max_size=8)


def talks_of(made: list[list[tuple[str, str]]]) -> list[Conversation]:
    return [
        conversation_of(
            {"messages": [{"role": role, "content": text} for role, text in turns]},
            Origin("made", number),
        )
        for number, turns in enumerate(made, 1)
    ]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize(
    "template", ["chatml", "trimmed", "marked", "think", "returns", "spaced", "bare", "alternating"]
)
@pytest.mark.parametrize("split", ["llama3", "gpt2"])
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(made=TALKS)
def test_the_fast_path_counts_what_full_renders_count(
    bpe: Callable, tally: Callable, split: str, template: str, last: bool, made: Any
) -> None:
    rows = talks_of(made)
    fast, full = (
        tally(rows, bpe(split, template), full=full, last_turn_only=last) for full in (False, True)
    )
    assert fast.tokens == full.tokens
    assert np.array_equal(fast.arrays[1], full.arrays[1])
    assert (fast.feed.rows_used, fast.feed.rows_heldout) == (
        full.feed.rows_used,
        full.feed.rows_heldout,
    )
    assert fast.skipped.counts == full.skipped.counts
    assert fast.feed.renderer.straddling == full.feed.renderer.straddling


def test_plain_rows_take_the_fast_path_and_some_of_them_are_checked(
    bpe: Callable, tally: Callable, talk: Callable
) -> None:
    rows = [talk(("user", f"q{n}"), ("assistant", f"answer {n}")) for n in range(700)]
    feed = tally(rows, bpe("llama3", "chatml")).feed
    assert (feed.rows_used, feed.rows_fast, feed.rows_checked) == (700, 700, CHECK_FIRST + 1)


def test_a_length_limit_takes_the_full_path(bpe: Callable, tally: Callable, talk: Callable) -> None:
    rows = [talk(("user", "q"), ("assistant", "a"))]
    assert tally(rows, bpe("llama3", "chatml"), max_length=50).feed.rows_fast == 0


def test_the_held_out_counts_are_those_of_the_held_out_rows(
    bpe: Callable, tally: Callable, talk: Callable
) -> None:
    from vtrim.chat.conversation import is_heldout

    rows = [talk(("user", f"q{n}"), ("assistant", f"word{n} yes")) for n in range(300)]
    apart = [row for row in rows if is_heldout(row)]
    whole, part = tally(rows, bpe("llama3", "chatml")), tally(apart, bpe("llama3", "chatml"))
    assert whole.feed.rows_heldout == len(apart) > 0
    assert np.array_equal(whole.arrays[1], part.arrays[0])


def test_parts_counted_apart_add_up_to_the_whole(
    bpe: Callable, tally: Callable, talk: Callable
) -> None:
    rows = [talk(("user", "q"), ("assistant", f"{n} é words\n" * 3)) for n in range(90)]
    tokenizer = bpe("llama3", "chatml")
    first, second, whole = (
        tally(part, tokenizer).arrays for part in (rows[:41], rows[41:], rows[::-1])
    )
    assert np.array_equal(first[0] + second[0], whole[0])
    assert np.array_equal(first[1] + second[1], whole[1])


def test_a_template_that_treats_long_texts_otherwise_is_caught_in_the_act(
    bpe: Callable, tally: Callable, talk: Callable
) -> None:
    tokenizer = copy.deepcopy(bpe("llama3", "chatml"))
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "m['content']", "(m['content'] if m['content'] | length < 50 else m['content'][:9])"
    )
    rows = [talk(("user", "q"), ("assistant", text)) for text in ("short", "long " * 20)]
    with pytest.raises(FastPathDiffers, match=r"made\.jsonl:1"):
        tally(rows, tokenizer)
    assert tally(rows, tokenizer, full=True).total > 0


def test_memory_is_bounded_by_draining_early(
    bpe: Callable, tally: Callable, talk: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [talk(("user", "q"), ("assistant", f"a{n} b{n} é{n % 2}")) for n in range(200)]
    rows += [talk(("user", "q"), ("assistant", f"naïve {n}")) for n in range(200)]
    expected = tally(rows, bpe("llama3", "chatml")).tokens
    held: list[int] = []
    drain = FastReplies.drain

    def watch(self: FastReplies, sample: Any) -> Any:
        held.append(sum(group.settle() for group in self._groups.values()))
        return drain(self, sample)

    monkeypatch.setattr(FastReplies, "drain", watch)
    for limit, size in (("_MAX_CHARACTERS_SPLIT", 300), ("_MAX_WORDS", 20)):
        held.clear()
        with monkeypatch.context() as patch:
            patch.setattr("vtrim.chat.fast._MAX_WAITING", 10)
            patch.setattr(f"vtrim.chat.fast.{limit}", size)
            assert tally(rows, bpe("llama3", "chatml")).tokens == expected
        assert len(held) > 5 + CHECK_FIRST
        assert max(held) < 100


@pytest.mark.parametrize("name", ["chat", "function_calling", "ner"])
@pytest.mark.parametrize("model", ["smollm2", "stories260k"])
def test_real_conversations_are_counted_alike_on_both_paths(
    data: Path, tally: Callable, plain_reply_ids: Callable, name: str, model: str
) -> None:
    from transformers import AutoTokenizer

    from vtrim.models.smollm2 import smollm2_folder

    folder = smollm2_folder() if model == "smollm2" else data / "model" / model
    if not (folder / "tokenizer.json").exists():
        pytest.skip("smollm2 has not been converted on this machine")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    path = data / f"{name}_messages.jsonl"
    rows = list(islice(read_conversations([path], skipped=SkipLog()), 0, 2800, 14))
    fast, full = tally(rows, tokenizer), tally(rows, tokenizer, full=True)
    assert fast.feed.rows_fast > 150
    assert all(np.array_equal(*pair) for pair in zip(fast.arrays, full.arrays, strict=True))
    plain: Counter[int] = Counter()
    for row in rows:
        if row.tools is None:
            plain.update(plain_reply_ids(tokenizer, list(row.messages), tokenizer.eos_token))
    without = tally([row for row in rows if row.tools is None], tokenizer)
    assert dict(plain) == {
        int(n): int(without.arrays[0][n]) for n in np.flatnonzero(without.arrays[0])
    }


def test_a_template_that_refuses_long_texts_skips_them_by_full_renders(
    bpe: Callable, tally: Callable, talk: Callable
) -> None:
    tokenizer = copy.deepcopy(bpe("llama3", "chatml"))
    tokenizer.chat_template = "{{ 1 / 0 if messages[-1]['content'] | length > 50 }}" + (
        tokenizer.chat_template
    )
    rows = [talk(("user", "q"), ("assistant", text)) for text in ("long " * 20, "short")]
    with pytest.raises(FastPathDiffers, match=r"made\.jsonl:1"):
        tally(rows, tokenizer)
    found = tally(rows, tokenizer, full=True)
    assert (found.feed.rows_used, found.skipped.counts) == (1, {"template refusal": 1})
