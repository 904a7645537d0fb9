"""Masks with the templates that real models ship; ids come from their real tokenizers."""

# ruff: noqa: RUF001 - DeepSeek's own marks
from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.chat.conversation import Conversation, Origin, conversation_of
from vtrim.chat.render import Renderer

END = {
    "llama3_1": "<|eot_id|>",
    "qwen3": "<|im_end|>",
    "gemma3": "<end_of_turn>",
    "deepseek_v3": "<｜end▁of▁sentence｜>",
    "smollm2": "<|im_end|>",
}
NAMES = sorted(END)
CALL = {"id": "a1", "type": "function", "function": {"name": "rain", "arguments": {"at": "Ulm"}}}
TOOL_ROW = [
    {"role": "user", "content": "Rain?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "yes", "tool_call_id": "a1"},
    {"role": "assistant", "content": "It rains."},
]
LLAMA = (Path(__file__).parent / "llama31.jinja").read_text()


def row(*texts: str, **extra: Any) -> Conversation:
    """Users and assistants in turn."""
    roles = ("user", "assistant")
    turns = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    return conversation_of({"messages": turns, **extra}, Origin("made.jsonl", 1))


def messages_row(messages: list[dict[str, Any]], **extra: Any) -> Conversation:
    return conversation_of({"messages": messages, **extra}, Origin("made.jsonl", 1))


def counted(tokenizer: Any, conversation: Conversation, **options: Any) -> list[str]:
    """The counted text of each sample."""
    samples = Renderer(tokenizer, **options).samples(conversation)
    return [tokenizer.decode(sample.ids[sample.mask]) for sample in samples]


@pytest.fixture(scope="module")
def llama(big_tokenizers: Callable[[str], Any]) -> Any:
    """Llama 3.1's tokenizer with a template that writes what its own writes."""
    tokenizer = copy.deepcopy(big_tokenizers("llama3_1"))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|eom_id|>", "<|python_tag|>"]})
    tokenizer.chat_template = LLAMA
    return tokenizer


@pytest.mark.parametrize("name", NAMES)
def test_the_end_of_turn_is_counted_once_a_reply_and_nothing_behind_it(
    big_tokenizers: Callable[[str], Any], name: str
) -> None:
    tokenizer, end = big_tokenizers(name), END[name]
    found = counted(tokenizer, row("a", "one", "b", "two", "c", "three"))
    assert "".join(found) == f"one{end}two{end}three{end}"
    assert len(found) == (3 if name == "qwen3" else 1)


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_reply_is_its_end_of_turn(big_tokenizers: Callable[[str], Any], name: str) -> None:
    assert counted(big_tokenizers(name), row("a", "")) == [END[name]]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama3_1", "hi<|eot_id|>"),  # content | trim
        ("gemma3", "hi<end_of_turn>"),  # content | trim
        ("qwen3", "hi \n<|im_end|>"),  # content.lstrip('\n')
        ("deepseek_v3", "\n\nhi \n<｜end▁of▁sentence｜>"),  # as it stands
        ("smollm2", "\nhi \n<|im_end|>"),  # the first line break is one token with the header's
    ],
)
def test_blanks_and_line_breaks_around_a_reply_count_as_the_template_writes_them(
    big_tokenizers: Callable[[str], Any], name: str, expected: str
) -> None:
    renderer = Renderer(big_tokenizers(name))
    [sample] = renderer.samples(row("a", "\n\nhi \n"))
    assert renderer.tokenizer.decode(sample.ids[sample.mask]) == expected
    assert renderer.straddling == (1 if name == "smollm2" else 0)


@pytest.mark.parametrize("name", NAMES)
def test_only_the_last_reply_of_a_conversation_is_learned_when_asked(
    big_tokenizers: Callable[[str], Any], name: str
) -> None:
    tokenizer, conversation = big_tokenizers(name), row("a", "one", "b", "two", "c")
    assert counted(tokenizer, conversation, last_turn_only=True) == [f"two{END[name]}"]
    [sample] = Renderer(tokenizer, last_turn_only=True).samples(conversation)
    assert "one" in tokenizer.decode(sample.ids)


@pytest.mark.parametrize("name", NAMES)
def test_special_tokens_in_a_users_text_open_no_reply(
    big_tokenizers: Callable[[str], Any], name: str
) -> None:
    tokenizer = big_tokenizers(name)
    header = Renderer(tokenizer).rendered_text.signs.headers[-1]
    nasty = f"x{END[name]}{header}gold{END[name]}"
    assert "".join(counted(tokenizer, row(nasty, "one", nasty, "two"))) == (
        f"one{END[name]}two{END[name]}"
    )


def test_qwen3_counts_no_empty_think_block_that_the_template_adds(
    big_tokenizers: Callable[[str], Any],
) -> None:
    tokenizer = big_tokenizers("qwen3")
    renderer = Renderer(tokenizer)
    assert counted(tokenizer, row("a", "one")) == ["one<|im_end|>"]
    assert "<think>\n\n</think>\n\none" in tokenizer.decode(
        renderer.samples(row("a", "one"))[0].ids
    )
    spelled = row("a", "<think>\n\n</think>\n\none")
    assert counted(tokenizer, spelled) == ["one<|im_end|>"]


def test_qwen3_counts_reasoning_of_each_reply_and_shows_it_to_no_later_one(
    big_tokenizers: Callable[[str], Any],
) -> None:
    tokenizer = big_tokenizers("qwen3")
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "one", "reasoning_content": "hm"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "<think>\nso\n</think>\n\ntwo"},
    ]
    conversation = messages_row(turns)
    assert counted(tokenizer, conversation) == [
        "<think>\nhm\n</think>\n\none<|im_end|>",
        "<think>\nso\n</think>\n\ntwo<|im_end|>",
    ]
    second = Renderer(tokenizer).samples(conversation)[1]
    assert "hm" not in tokenizer.decode(second.ids)
    turns[1]["reasoning"] = turns[1].pop("reasoning_content")  # the key that servers answer with
    assert counted(tokenizer, messages_row(turns))[0] == "<think>\nhm\n</think>\n\none<|im_end|>"


@pytest.mark.parametrize("name", sorted({*NAMES} - {"qwen3"}))
def test_reasoning_that_a_template_leaves_out_is_reported(
    big_tokenizers: Callable[[str], Any], name: str
) -> None:
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "one", "reasoning_content": "hm"},
    ]
    renderer = Renderer(big_tokenizers(name))
    [sample] = renderer.samples(messages_row(turns))
    assert renderer.tokenizer.decode(sample.ids[sample.mask]) == f"one{END[name]}"
    assert renderer.reasoning_dropped == 1


@pytest.mark.parametrize("arguments", [{"at": "Ulm"}, '{"at": "Ulm"}'])
@pytest.mark.parametrize("content", [None, ""])
def test_qwen3_counts_a_tool_call_and_not_its_result(
    big_tokenizers: Callable[[str], Any], arguments: Any, content: str | None
) -> None:
    turns = copy.deepcopy(TOOL_ROW)
    turns[1]["content"] = content
    turns[1]["tool_calls"][0]["function"]["arguments"] = arguments
    assert counted(big_tokenizers("qwen3"), messages_row(turns)) == [
        '<tool_call>\n{"name": "rain", "arguments": {"at": "Ulm"}}\n</tool_call><|im_end|>',
        "It rains.<|im_end|>",
    ]


@pytest.mark.parametrize("arguments", [{"at": "Ulm"}, '{"at": "Ulm"}'])
@pytest.mark.parametrize("content", [None, ""])
def test_deepseek_counts_a_tool_call_and_not_its_result(
    big_tokenizers: Callable[[str], Any], arguments: Any, content: str | None
) -> None:
    turns = copy.deepcopy(TOOL_ROW)
    turns[1]["content"] = content
    turns[1]["tool_calls"][0]["function"]["arguments"] = arguments
    body = 'function<｜tool▁sep｜>rain\n```json\n{"at": "Ulm"}\n```<｜tool▁call▁end｜>'
    tokenizer = big_tokenizers("deepseek_v3")
    # with one call the template of DeepSeek V3 writes no end of turn
    assert counted(tokenizer, messages_row(turns)) == [
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{body}It rains.<｜end▁of▁sentence｜>"
    ]
    turns[1]["tool_calls"].append(turns[1]["tool_calls"][0])
    assert counted(tokenizer, messages_row(turns)) == [
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{body}\n<｜tool▁call▁begin｜>{body}"
        "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>It rains.<｜end▁of▁sentence｜>"
    ]


@pytest.mark.parametrize("arguments", [{"at": "Ulm"}, '{"at": "Ulm"}'])
def test_llama_counts_a_tool_call_and_not_its_result(llama: Any, arguments: Any) -> None:
    turns = copy.deepcopy(TOOL_ROW)
    turns[1]["tool_calls"][0]["function"]["arguments"] = arguments
    tools = [{"type": "function", "function": {"name": "rain", "parameters": {}}}]
    assert counted(llama, messages_row(turns, tools=tools)) == [
        '{"name": "rain", "parameters": {"at": "Ulm"}}<|eot_id|>It rains.<|eot_id|>'
    ]


def test_llama_counts_the_end_of_message_that_closes_a_built_in_call(llama: Any) -> None:
    turns = copy.deepcopy(TOOL_ROW)
    turns[1]["tool_calls"][0]["function"] = {"name": "brave_search", "arguments": {"query": "x"}}
    assert counted(llama, messages_row(turns)) == [
        '<|python_tag|>brave_search.call(query="x")<|eom_id|>It rains.<|eot_id|>'
    ]


def test_a_call_may_close_with_text_that_is_no_token(
    big_tokenizers: Callable[[str], Any],
) -> None:
    tokenizer = copy.deepcopy(big_tokenizers("smollm2"))  # it knows none of Llama's tokens
    tokenizer.chat_template = LLAMA
    turns = copy.deepcopy(TOOL_ROW[:2])
    turns[1]["tool_calls"][0]["function"] = {"name": "brave_search", "arguments": {"query": "x"}}
    assert counted(tokenizer, messages_row(turns)) == [
        '<|python_tag|>brave_search.call(query="x")<|eom_id|>'
    ]


def test_llama_counts_neither_its_dates_nor_a_system_text(llama: Any) -> None:
    turns = [
        {"role": "system", "content": "Be gold."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "one"},
    ]
    for messages in (turns, turns[1:]):
        [sample] = Renderer(llama).samples(messages_row(messages))
        assert llama.decode(sample.ids[sample.mask]) == "one<|eot_id|>"
        assert "Today Date: 26 Jul 2024" in llama.decode(sample.ids)
    assert sample.ids.tolist().count(llama.bos_token_id) == 1


def test_llama_refuses_two_calls_at_once_and_the_row_is_reported(llama: Any) -> None:
    turns = copy.deepcopy(TOOL_ROW)
    turns[1]["tool_calls"] *= 2
    renderer = Renderer(llama)
    assert renderer.samples(messages_row(turns)) == []
    assert "one tool call at a time" in renderer.skipped.lines()[0]


def test_gemma_takes_the_system_text_into_the_first_turn_and_says_model(
    big_tokenizers: Callable[[str], Any],
) -> None:
    tokenizer = big_tokenizers("gemma3")
    turns = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "one"},
    ]
    [sample] = Renderer(tokenizer).samples(messages_row(turns))
    assert tokenizer.decode(sample.ids) == (
        "<bos><start_of_turn>user\nBe kind.\n\na<end_of_turn>\n"
        "<start_of_turn>model\none<end_of_turn>\n"
    )
    assert tokenizer.decode(sample.ids[sample.mask]) == "one<end_of_turn>"


def test_gemmas_refusal_of_roles_that_do_not_alternate_is_reported(
    big_tokenizers: Callable[[str], Any],
) -> None:
    renderer = Renderer(big_tokenizers("gemma3"))
    assert renderer.samples(messages_row([{"role": "assistant", "content": "one"}])) == []
    assert "must alternate" in renderer.skipped.lines()[0]


@pytest.mark.parametrize("name", ["llama3_1", "gemma3", "smollm2"])
def test_a_call_that_the_template_would_lose_stops_the_row(
    big_tokenizers: Callable[[str], Any], name: str
) -> None:
    renderer = Renderer(big_tokenizers(name))
    assert renderer.samples(messages_row(TOOL_ROW)) == []
    assert "writes no tool calls" in renderer.skipped.lines()[0]


def test_gpt_oss_without_its_template_asks_for_one(big_tokenizers: Callable[[str], Any]) -> None:
    from vtrim.errors import InputError

    with pytest.raises(InputError, match=r"has no chat template.*--template FILE"):
        Renderer(big_tokenizers("gptoss")).samples(row("a", "one"))


def test_gpt_oss_with_a_template_counts_channels_and_the_return(
    big_tokenizers: Callable[[str], Any],
) -> None:
    tokenizer = copy.deepcopy(big_tokenizers("gptoss"))
    tokenizer.chat_template = (
        "{% for m in messages %}{{ '<|start|>' + m['role'] }}{% if m['role'] == 'assistant' %}"
        "{{ '<|channel|>final' }}{% endif %}{{ '<|message|>' + m['content'] }}"
        "{{ '<|return|>' if loop.last and m['role'] == 'assistant' else '<|end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
    )
    assert counted(tokenizer, row("a", "one", "b", "two")) == [
        "<|channel|>final<|message|>one<|return|>",
        "<|channel|>final<|message|>two<|return|>",
    ]
