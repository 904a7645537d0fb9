from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from vtrim.chat.conversation import Origin, conversation_of
from vtrim.chat.encode import fast_backend
from vtrim.chat.frames import Frame, Frames, texts_looked_for
from vtrim.chat.template import ChatTemplate


def frames_of(tokenizer: Any, conversation: Any) -> list[Frame] | None:
    return Frames(ChatTemplate(tokenizer), fast_backend(tokenizer)).of(conversation)


@pytest.mark.parametrize(
    ("template", "lead", "after"),
    [
        ("chatml", "<|im_start|>assistant\n", "<|im_end|>"),
        ("trimmed", "<|im_start|>assistant\n\n", "<|im_end|>"),
        ("marked", "<|im_start|>assistant\n", "<|im_end|>"),
        ("returns", "<|im_start|>assistant\n", "<|return|>"),
        ("spaced", "<|im_start|>assistant: ", "<|im_end|>"),
    ],
)
def test_a_frame_holds_what_the_template_writes_around_a_reply(
    bpe: Callable, talk: Callable, template: str, lead: str, after: str
) -> None:
    row = talk(("user", "q"), ("assistant", "a"), ("user", "r"), ("assistant", "b"))
    frames = frames_of(bpe("llama3", template), row)
    assert frames is not None
    assert [(frame.lead, frame.before, frame.after) for frame in frames] == [(lead, "", after)] * 2


def test_replies_that_are_written_alike_share_a_frame(bpe: Callable, talk: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    frames = Frames(ChatTemplate(tokenizer), fast_backend(tokenizer))
    short = frames.of(talk(("user", "q"), ("assistant", "a")))
    long = frames.of(talk(("system", "s"), *[("user", "q"), ("assistant", "a")] * 2))
    assert short is not None
    assert long is not None
    assert {id(frame) for frame in long} == {id(short[0])}


def test_only_the_last_reply_has_a_frame_when_only_that_is_learned(
    bpe: Callable, talk: Callable
) -> None:
    tokenizer = bpe("llama3", "returns")
    frames = Frames(ChatTemplate(tokenizer), fast_backend(tokenizer), last_only=True)
    for tail in ((), (("user", "unanswered"),)):
        (frame,) = frames.of(talk(*[("user", "q"), ("assistant", "a")] * 2, *tail)) or ()
        assert frame.after == "<|return|>"


def test_a_frame_learns_whether_the_template_trims(bpe: Callable, talk: Callable) -> None:
    row = talk(("user", "q"), ("assistant", "a"))
    for template, trimmed in (("chatml", " \n a\n "), ("trimmed", "a")):
        (frame,) = frames_of(bpe("llama3", template), row) or ()
        assert frame.trim(" \n a\n ") == trimmed


def test_the_empty_think_block_is_in_the_lead(bpe: Callable, talk: Callable) -> None:
    (frame,) = frames_of(bpe("llama3", "think"), talk(("user", "q"), ("assistant", "a"))) or ()
    assert (frame.lead, frame.before) == ("</think>\n\n", "")


@pytest.mark.parametrize("text", ["</think>", "x <think> y </think>"])
def test_texts_that_the_template_looks_for_need_the_full_render(
    bpe: Callable, talk: Callable, text: str
) -> None:
    assert frames_of(bpe("llama3", "think"), talk(("user", text), ("assistant", "a"))) is None


def test_a_template_without_special_tokens_has_no_frames(bpe: Callable, talk: Callable) -> None:
    assert frames_of(bpe("llama3", "bare"), talk(("user", "q"), ("assistant", "a"))) is None


def test_an_order_of_roles_that_the_template_refuses_has_no_frames(
    bpe: Callable, talk: Callable
) -> None:
    tokenizer = bpe("llama3", "alternating")
    assert frames_of(tokenizer, talk(("user", "q"), ("user", "r"), ("assistant", "a"))) is None


def test_tools_calls_and_recorded_ids_need_the_full_render(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    for row in (
        {"messages": turns, "tools": [{"name": "f"}]},
        {"messages": [turns[0], {**turns[1], "tool_calls": [{}]}]},
        {"messages": turns, "input_ids": [1], "loss_mask": [1]},
    ):
        assert frames_of(tokenizer, conversation_of(row, Origin("f", 1))) is None


def test_a_reply_that_is_cut_short_by_the_template_has_no_frame(
    bpe: Callable, talk: Callable
) -> None:
    tokenizer = copy.deepcopy(bpe("llama3", "chatml"))
    tokenizer.chat_template = tokenizer.chat_template.replace("m['content']", "m['content'][:4]")
    assert frames_of(tokenizer, talk(("user", "q"), ("assistant", "a"))) is None


def test_the_texts_a_template_looks_for_are_found_in_its_source() -> None:
    source = (
        "{% generation %}{% if '</a>' in m.content and 'role' == x %}{{ c.split('|b|')[0] }}"
        "{{ c | replace('cc', 'd') }}{{ c.strip('\n') }}{{ c.startswith('<e>') }}"
        "{{ 'not this' + y | trim }}{% endif %}{% endgeneration %}"
    )
    assert texts_looked_for(source) == ["</a>", "<e>", "cc", "d", "|b|"]
    assert texts_looked_for("{% if %}") is None
