from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from vtrim.chat.conversation import Conversation, Origin, RowError, conversation_of
from vtrim.chat.render import Renderer
from vtrim.chat.rendered_text import RenderedText
from vtrim.chat.template import ChatTemplate, TemplateRefusal

NAMES = ["deepseek_v3", "gemma3", "llama3_1", "qwen3", "smollm2"]


def as_text(text: str) -> Conversation:
    return conversation_of({"text": text}, Origin("made.jsonl", 1))


def replies(tokenizer: Any, text: str, **options: Any) -> list[str]:
    found = RenderedText(ChatTemplate(tokenizer)).sample(text, **options)
    assert found.rule == "rendered text"
    return [found.text[start:end] for start, end in found.spans]


@pytest.mark.parametrize("template", ["chatml", "trimmed", "marked", "spaced", "bare", "returns"])
def test_the_replies_of_a_text_are_those_of_its_messages(
    bpe: Callable, talk: Callable, template: str
) -> None:
    tokenizer = bpe("llama3", template)
    turns = [("user", "q"), ("assistant", "one"), ("user", "r"), ("assistant", "two")]
    text = ChatTemplate(tokenizer).render(talk(*turns).messages)
    ends = {"bare": ("", ""), "returns": ("<|im_end|>", "<|return|>")}
    first, last = ends.get(template, ("<|im_end|>", "<|im_end|>"))
    assert replies(tokenizer, text) == [f"one{first}", f"two{last}"]


def test_an_empty_think_block_is_prompt_where_the_template_writes_it(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "think")
    head = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    assert replies(tokenizer, f"{head}<think>\n\n</think>\n\nyes<|im_end|>\n") == ["yes<|im_end|>"]
    thought = "<think>\nhm\n</think>\n\nyes<|im_end|>"
    assert replies(tokenizer, f"{head}{thought}\n") == [thought]
    assert replies(tokenizer, f"{head}yes<|im_end|>\n") == ["yes<|im_end|>"]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("", ["two words"]),  # cut off
        ("<|im_start|>user\nr<|im_end|>\n", ["two words"]),  # the next turn ends it
        ("\n<|im_start|>user\nr<|im_end|>\n", ["two words"]),
        ("<|im_end|>", ["two words<|im_end|>"]),
        ("<|im_end|>\n<|im_start|>assistant\n", ["two words<|im_end|>"]),  # nothing to learn yet
    ],
)
def test_a_reply_ends_at_its_end_of_turn_or_the_next_turn_or_the_end(
    bpe: Callable, end: str, expected: list[str]
) -> None:
    head = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    assert replies(bpe("llama3", "chatml"), f"{head}two words{end}") == expected


def test_only_the_last_reply_of_a_text_is_learned_when_asked(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    text = "".join(
        f"<|im_start|>{role}\n{words}<|im_end|>\n"
        for role, words in (("user", "q"), ("assistant", "one"), ("user", "r"))
    )
    found = RenderedText(ChatTemplate(tokenizer)).sample(text, last_only=True)
    assert found.text == "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\none<|im_end|>"
    assert replies(tokenizer, f"{text}<|im_start|>assistant\ntwo<|im_end|>\n", last_only=True) == [
        "two<|im_end|>"
    ]


@pytest.mark.parametrize("text", ["", "just prose", "<|im_start|>user\nq<|im_end|>\n"])
def test_a_text_without_a_header_is_skipped_with_the_reason(bpe: Callable, text: str) -> None:
    tokenizer = bpe("llama3", "chatml")
    with pytest.raises(RowError, match=r"opens replies with '<\|im_start\|>assistant"):
        RenderedText(ChatTemplate(tokenizer)).sample(text)
    renderer = Renderer(tokenizer)
    assert renderer.samples(as_text(text)) == []
    assert renderer.skipped.counts == {"no reply header in text": 1}


def test_what_closes_the_users_turn_opens_a_reply_that_has_no_header(
    bpe: Callable, talk: Callable
) -> None:
    tokenizer = copy.deepcopy(bpe("llama3", "chatml"))
    tokenizer.chat_template = (
        "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}"
        "{{ '[INST] ' + m['content'] + '[/INST]' }}{% else %}"
        "{{ ' ' + m['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
    )
    two = talk(("user", "q"), ("assistant", "one"), ("user", "r"), ("assistant", "two"))
    text = ChatTemplate(tokenizer).render(two.messages)
    assert replies(tokenizer, text) == [" one<|im_end|>", " two<|im_end|>"]
    renderer = Renderer(tokenizer)
    [sample], [expected] = renderer.samples(as_text(text)), renderer.samples(two)
    assert sample.mask.tolist() == expected.mask.tolist()


def test_a_template_that_refuses_the_probes_knows_no_header(bpe: Callable) -> None:
    tokenizer = copy.deepcopy(bpe("llama3", "chatml"))
    tokenizer.chat_template = "{{ raise_exception('never') }}"
    with pytest.raises(RowError, match="none known"):
        RenderedText(ChatTemplate(tokenizer)).sample("<|im_start|>assistant\nhi<|im_end|>")


def test_the_prompt_of_a_text_ends_where_its_last_reply_begins(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    head = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
    ids = Renderer(tokenizer).text_prompt_ids(f"{head}one<|im_end|>\n{head}two<|im_end|>\n")
    assert tokenizer.decode(ids) == f"{head}one<|im_end|>\n{head}"


@pytest.mark.parametrize("name", NAMES)
def test_a_real_text_opens_with_one_bos_at_most(
    big_tokenizers: Callable[[str], Any], name: str
) -> None:
    tokenizer = big_tokenizers(name)
    turns = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "one"}]
    [sample] = Renderer(tokenizer).samples(as_text(ChatTemplate(tokenizer).render(turns)))
    given = {"llama3_1": 1, "gemma3": 1, "deepseek_v3": 1, "qwen3": 0}
    if name in given:
        bos = tokenizer.convert_tokens_to_ids(tokenizer.bos_token or "<|endoftext|>")
        assert sample.ids.tolist().count(bos) == given[name]


@pytest.mark.parametrize("name", NAMES)
def test_real_conversations_give_the_same_ids_and_mask_as_their_texts(
    big_tokenizers: Callable[[str], Any], data: Path, name: str
) -> None:
    tokenizer = big_tokenizers(name)
    renderer = Renderer(tokenizer)
    compared = 0
    for file in ("chat", "function_calling", "ner"):
        lines = (data / f"{file}_messages.jsonl").open(encoding="utf-8")
        with lines:
            for line in islice(lines, 0, None, 211):
                conversation = conversation_of(json.loads(line), Origin(file, 1))
                try:
                    text = renderer.template.render(conversation.messages)
                except TemplateRefusal:
                    continue
                samples = renderer.samples(conversation)
                if len(samples) != 1:
                    continue  # the template rewrites earlier turns
                [sample] = renderer.samples(as_text(text))
                assert sample.ids.tolist() == samples[0].ids.tolist()
                assert sample.mask.tolist() == samples[0].mask.tolist()
                compared += 1
    assert compared > 150


def test_a_real_reply_to_tools_is_found_behind_their_results(
    big_tokenizers: Callable[[str], Any],
) -> None:
    tokenizer = big_tokenizers("deepseek_v3")
    call = {"name": "rain", "arguments": {}}
    turns = [
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "yes"},
        {"role": "tool", "content": "no"},
        {"role": "assistant", "content": "It rains."},
    ]
    conversation = conversation_of({"messages": turns}, Origin("made.jsonl", 1))
    renderer = Renderer(tokenizer)
    text = renderer.template.render(conversation.messages)
    [sample], [expected] = renderer.samples(as_text(text)), renderer.samples(conversation)
    assert sample.mask.tolist() == expected.mask.tolist()


def test_a_real_reasoning_text_counts_as_its_messages_do(
    big_tokenizers: Callable[[str], Any],
) -> None:
    tokenizer = big_tokenizers("qwen3")
    turns = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "one", "reasoning_content": "hm"},
    ]
    conversation = conversation_of({"messages": turns}, Origin("made.jsonl", 1))
    renderer = Renderer(tokenizer)
    text = renderer.template.render(conversation.messages)
    [sample], [expected] = renderer.samples(as_text(text)), renderer.samples(conversation)
    assert sample.mask.tolist() == expected.mask.tolist()
    assert tokenizer.decode(sample.ids[sample.mask]).startswith("<think>\nhm\n</think>\n\none")
