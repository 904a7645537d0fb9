"""Every real file and every hard input: how many conversations, counted apart by plain json."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from vtrim.chat.columns import parse_columns
from vtrim.chat.conversation import Conversation
from vtrim.chat.read import ReadOptions, read_conversations
from vtrim.chat.skips import SkipLog
from vtrim.errors import InputError

# file: (kind of its rows, what --map says)
CHAT = {
    "raw/chat/arena_hard_gpt-4-0314.jsonl": ("mapped", "assistant=choices.0.turns.0.content"),
    "raw/chat/fastchat_dummy_conversation.json": ("sharegpt", ""),
    "raw/chat/gpteacher_codegen.json": ("alpaca", ""),
    "raw/chat/gpteacher_roleplay.json": ("alpaca", ""),
    "raw/chat/gsm8k_train.jsonl": ("mapped", "user=question,assistant=answer"),
    "raw/chat/halueval_general_data.jsonl": (
        "mapped",
        "user=user_query,assistant=chatgpt_response",
    ),
    "raw/tools/glaive_toolcall_en_demo.json": ("sharegpt", ""),
    "chat_messages.jsonl": ("messages", ""),
    "ner_messages.jsonl": ("messages", ""),
    "eval/gsm8k_test.jsonl": ("mapped", "user=question,assistant=answer"),
    "eval/math500_test.jsonl": ("mapped", "user=problem,assistant=solution"),
    "eval/mt_bench_reference_gpt-4.jsonl": ("mapped", "assistant=choices.0.turns"),
    "nonenglish/belle_eval_set_zh.json": ("mapped", "user=question,assistant=std_answer"),
    "nonenglish/komt_bench_reference_ko.jsonl": ("mapped", "assistant=choices.0.turns"),
}
REPLY_ROLES = {"assistant", "gpt", "function_call"}


def read(path: Path, mapping: str = "", **options: Any) -> tuple[list[Conversation], SkipLog]:
    skipped = SkipLog()
    columns = parse_columns(mapping) if mapping else {}
    given = ReadOptions(columns=columns, **options)
    return list(read_conversations([path], options=given, skipped=skipped)), skipped


def plain(path: Path) -> list[Any]:
    """The rows, by the json module alone."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    if text.lstrip().startswith("["):
        return list(json.loads(text))
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def reply_texts(row: dict[str, Any]) -> list[str]:
    """The replies in a row of the files above, straight from what each file looks like."""
    turns = row.get("messages") or row.get("conversations")
    if turns:
        return [
            turn.get("value", turn.get("content"))
            for turn in turns
            if turn.get("from", turn.get("role")) in REPLY_ROLES
        ]
    if "choices" in row:
        given = row["choices"][0]["turns"]
        return [turn if isinstance(turn, str) else turn["content"] for turn in given]
    names = ("response", "solution", "chatgpt_response", "std_answer", "answer")
    return [row[next(name for name in names if name in row)]]


@pytest.mark.parametrize("name", sorted(CHAT))
def test_every_chat_file_gives_all_its_rows_and_replies(data: Path, name: str) -> None:
    kind, mapping = CHAT[name]
    rows = plain(data / name)
    found, skipped = read(data / name, mapping)
    assert Counter(c.kind for c in found) == {kind: len(rows)}
    assert skipped.total == 0
    assert [c.replies for c in found] == [reply_texts(row) for row in rows]


def test_function_calling_rows_are_of_two_forms(data: Path) -> None:
    path = data / "function_calling_messages.jsonl"
    rows = plain(path)
    found, skipped = read(path)
    assert Counter(c.kind for c in found) == {"messages": 2501, "sharegpt": 300}
    assert skipped.total == 0
    assert [c.replies for c in found] == [reply_texts(row) for row in rows]
    assert Counter(c.source for c in found) == Counter(row["source"] for row in rows)
    assert sum(c.tools is not None for c in found) == sum(
        row.get("tools", "[]") not in ("[]", "") for row in rows
    )


def test_every_reply_of_the_message_trees_is_learned_exactly_once(data: Path) -> None:
    path = data / "raw/chat/oasst_en_100_tree.jsonl"

    def assistants(node: dict[str, Any]) -> list[str]:
        mine = [node["text"]] if node["role"] == "assistant" else []
        return mine + [text for reply in node["replies"] for text in assistants(reply)]

    expected = [text for row in plain(path) for text in assistants(row["prompt"])]
    found, skipped = read(path)
    learned = [
        turn["content"]
        for c in found
        for turn in c.messages[c.context :]
        if turn["role"] == "assistant"
    ]
    assert sorted(learned) == sorted(expected)
    assert (len(expected), len(found), skipped.total) == (687, 555, 0)
    assert {c.origin.line for c in found} == set(range(1, 101))


def test_instruction_and_input_are_joined_as_the_shared_chat_file_joins_them(data: Path) -> None:
    (shared_rows, _), (raw, _) = (
        read(data / "chat_messages.jsonl"),
        read(data / "raw/chat/gpteacher_roleplay.json"),
    )
    joined = {c.messages[0]["content"] for c in shared_rows if c.source == "roleplay"}
    assert {c.messages[0]["content"] for c in raw} == joined


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("raw/ner/*.*", r":1: not a whole JSON row .* vtrim reads JSONL"),
        ("raw/ner/crossner/*.txt", r":1: not a whole JSON row"),
        (
            "raw/tools/bfcl/BFCL*.json",
            r"no row can be used \(no messages .*columns id, question, f",
        ),
        ("raw/tools/bfcl/possible*.json", r"no row can be used \(no messages .*id, ground_truth"),
        ("nonenglish/*.tsv", r":1: not a whole JSON row"),
        ("nonenglish/komt_bench_question*", r"no messages 80, .*question_id, category, turns"),
        ("eval/*question.jsonl", r"no row can be used \(no messages "),
        (
            "eval/HumanEval.jsonl.gz",
            r"no messages 164, first .*:1: a `prompt` without `completion`",
        ),
        ("eval/ifeval*", r"no messages 541, first .*:1: a `prompt` without `completion`"),
    ],
)
def test_a_file_without_chat_ends_in_one_line_that_says_what_it_holds(
    data: Path, pattern: str, message: str
) -> None:
    paths = sorted(data.glob(pattern))
    assert paths
    for path in paths:
        with pytest.raises(InputError, match=message) as caught:
            read(path)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def test_no_file_of_the_shared_data_was_forgotten(data: Path) -> None:
    known = {*CHAT, "function_calling_messages.jsonl", "raw/chat/oasst_en_100_tree.jsonl"}
    for pattern in ("raw/ner/**/*.*", "raw/tools/bfcl/*", "nonenglish/*", "eval/*"):
        known |= {str(path.relative_to(data)) for path in data.glob(pattern)}
    here = {
        str(path.relative_to(data))
        for path in data.rglob("*")
        if path.is_file() and path.parts[len(data.parts)] != "model"
    }
    assert here - known == {"DATA.md"}


@pytest.mark.parametrize(
    ("name", "rows", "replies"),
    [
        ("g01_bom_crlf_blank.jsonl", 3, 3),
        ("g01_array.json", 3, 3),
        ("g01_array_named.jsonl", 3, 3),
        ("g02_plain.jsonl.gz", 3, 3),
        ("g02_two_members.jsonl.gz", 6, 6),
        ("g04_order.jsonl", 7, 6),
        ("g04_nothing_to_count.jsonl", 5, 2),
        ("g05_parts.jsonl", 4, 4),
        ("g06_no_generation_marks.jsonl", 2, 3),
        ("g07_think_two_turns.jsonl", 3, 4),
        ("g08_long_rows.jsonl", 3, 3),
        ("g09_markers_in_user.jsonl", 2, 2),
        ("g10_prefix_space.jsonl", 3, 3),
        ("g11_ties.jsonl", 2, 2),
        ("g11_ties_reversed.jsonl", 2, 2),
        ("g11_bulk.jsonl", 300, 626),
        ("g20_chat_prompts.jsonl", 3, 0),
        ("g24_brackets.jsonl", 2, 2),
    ],
)
def test_every_hard_input_of_chat_goes_through(
    inputs: Path, name: str, rows: int, replies: int
) -> None:
    found, skipped = read(inputs / name)
    assert (len(found), sum(len(c.replies) for c in found)) == (rows, replies)
    assert skipped.total == 0


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("empty.jsonl", r"empty\.jsonl: no rows"),
        ("g02_cut_last.jsonl", r"g02_cut_last\.jsonl:3: .*--skip-bad-rows"),
        ("g02_trailing_comma.jsonl", r"g02_trailing_comma\.jsonl:1: .*--skip-bad-rows"),
        ("g18_expect.json", r"g18_expect\.json:1: .*each row has to be on one line"),
        ("g14_options.tsv", r"g14_options\.tsv:1: not a whole JSON row"),
        ("g12_mapping_cases.json", r"no messages 6, first .*columns name, target_vocab"),
        ("tok_words", r"tok_words: a folder, and not one that save_to_disk"),
        ("g19_draft_cut_body.safetensors", r":1: not a whole JSON row"),
    ],
)
def test_every_hard_input_that_is_no_chat_ends_in_one_line(
    inputs: Path, name: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read(inputs / name)


def test_a_row_of_a_million_words_is_read(tmp_path: Path) -> None:
    words = " ".join(["red blue"] * 500_000)
    path = tmp_path / "huge.jsonl"
    path.write_text(json.dumps({"messages": [{"role": "assistant", "content": words}]}) + "\n")
    (found,) = read(path)[0]
    assert len(found.replies[0]) == len(words)
