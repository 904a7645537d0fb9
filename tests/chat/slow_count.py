"""An independent count of reply tokens, slow and plain; shares no code with vtrim.

The texts come from rules written out by hand for each template, not from the template, and every
conversation is encoded whole by transformers' own tokenizer call. A token is a reply token if it
starts at or after the reply's first character and before the end of its end of turn.

As a script: python tests/chat/slow_count.py FILE... --tokenizer DIR --grammar qwen3
    [--map user=question,assistant=answer] [--compare vtrim-run/coverage.npz]
"""

# ruff: noqa: RUF001 - DeepSeek's own marks
from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Turn = dict[str, Any]
Piece = tuple[str, bool]  # a text, and whether the target writes it

NAMES = {
    "user": ("user", "human", "prompter"),
    "assistant": ("assistant", "gpt", "chatgpt", "bing", "bard", "model", "function_call"),
    "system": ("system", "developer"),
    "tool": ("tool", "observation", "function", "function_response", "tool_response", "ipython"),
}
ROLE = {name: role for role, names in NAMES.items() for name in names}


class Unusable(Exception):  # noqa: N818 - an outcome
    """A row that gives nothing."""


def llama3(turns: list[Turn]) -> Iterator[list[Piece]]:
    """Header, blank line, stripped text, <|eot_id|>; the package's template has no tool calls."""
    yield from _stable(turns, _llama3_turn, "<|begin_of_text|>")


def _llama3_turn(turn: Turn) -> list[Piece]:
    if turn.get("tool_calls"):
        raise Unusable("tool calls")
    learned = turn["role"] == "assistant"
    head = f"<|start_header_id|>{turn['role']}<|end_header_id|>\n\n"
    return [(head, False), (turn["content"].strip() + "<|eot_id|>", learned)]


def smollm2(turns: list[Turn]) -> Iterator[list[Piece]]:
    """ChatML with a system turn of its own where the conversation has none."""
    name = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    own = "" if turns[0]["role"] == "system" else f"<|im_start|>system\n{name}<|im_end|>\n"
    yield from _stable(turns, _chatml_turn, own)


def _chatml_turn(turn: Turn) -> list[Piece]:
    if turn.get("tool_calls"):
        raise Unusable("tool calls")
    reply = turn["content"] + "<|im_end|>"
    learned = turn["role"] == "assistant"
    return [(f"<|im_start|>{turn['role']}\n", False), (reply, learned), ("\n", False)]


def gemma3(turns: list[Turn]) -> Iterator[list[Piece]]:
    """Users and models take turns; a system text stands at the head of the first turn."""
    ahead = ""
    if turns[0]["role"] == "system":
        ahead, turns = turns[0]["content"] + "\n\n", turns[1:]
    pieces: list[Piece] = [("<bos>", False)]
    for number, turn in enumerate(turns):
        learned = turn["role"] == "assistant"
        if (turn["role"] == "user") != (number % 2 == 0) or turn.get("tool_calls"):
            raise Unusable("roles do not alternate")
        head = f"<start_of_turn>{'model' if learned else turn['role']}\n"
        pieces.append((head + (ahead if number == 0 else ""), False))
        pieces.append((turn["content"].strip() + "<end_of_turn>", learned))
        pieces.append(("\n", False))
    yield pieces


def deepseek_v3(turns: list[Turn]) -> Iterator[list[Piece]]:
    """System texts first, joined; no line breaks; a reply to tools follows their last mark."""
    texts = [turn["content"] for turn in turns if turn["role"] == "system"]
    pieces: list[Piece] = [("<｜begin▁of▁sentence｜>" + "\n\n".join(texts), False)]
    after_tool, outputs = False, 0
    for turn in turns:
        text = turn["content"]
        if turn["role"] == "user":
            pieces.append(("<｜User｜>" + text, False))
            after_tool = False
        elif turn["role"] == "tool":
            begin = "\n" if outputs else "<｜tool▁outputs▁begin｜>"
            pieces.append((f"{begin}<｜tool▁output▁begin｜>{text}<｜tool▁output▁end｜>", False))
            after_tool, outputs = True, outputs + 1
        elif turn["role"] == "assistant":
            if turn.get("tool_calls"):
                raise Unusable("tool calls: written out in the tests")
            pieces.append(("<｜tool▁outputs▁end｜>" if after_tool else "<｜Assistant｜>", False))
            pieces.append((text + "<｜end▁of▁sentence｜>", True))
            after_tool = False
    yield pieces


def qwen3(turns: list[Turn]) -> Iterator[list[Piece]]:
    """One text a reply: a last reply has a think block, which an earlier one has lost."""
    for place, turn in enumerate(turns):
        if turn["role"] == "assistant":
            yield _qwen3_text(turns[: place + 1])


def _qwen3_text(turns: list[Turn]) -> list[Piece]:
    asked = [
        place
        for place, turn in enumerate(turns)
        if turn["role"] == "user"
        and not (
            turn["content"].startswith("<tool_response>")
            and turn["content"].endswith("</tool_response>")
        )
    ]
    last_question = asked[-1] if asked else len(turns) - 1
    pieces: list[Piece] = []
    for place, turn in enumerate(turns):
        role, last = turn["role"], place == len(turns) - 1
        if role == "tool":
            opens = place == 0 or turns[place - 1]["role"] != "tool"
            pieces.append(("<|im_start|>user" if opens else "", False))
            pieces.append((f"\n<tool_response>\n{turn['content']}\n</tool_response>", False))
            if last or turns[place + 1]["role"] != "tool":
                pieces.append(("<|im_end|>\n", False))
        elif role != "assistant":
            pieces.append((f"<|im_start|>{role}\n{turn['content']}<|im_end|>\n", False))
        else:
            thought, text = _qwen3_parts(turn)
            pieces.append(("<|im_start|>assistant\n", False))
            if place > last_question and (last or thought):
                block = "<think>\n" + thought.strip("\n") + "\n</think>\n\n"
                pieces.append((block, last and bool(thought.strip("\n"))))
                text = text.lstrip("\n")
            pieces.append((text + _qwen3_calls(turn, text) + "<|im_end|>", last))
            pieces.append(("\n", False))
    return pieces


def _qwen3_parts(turn: Turn) -> tuple[str, str]:
    if turn.get("reasoning_content") is not None:
        return turn["reasoning_content"], turn["content"]
    before, mark, _ = turn["content"].partition("</think>")
    if not mark:
        return "", turn["content"]
    thought = before.rstrip("\n").split("<think>")[-1].lstrip("\n")
    return thought, turn["content"].split("</think>")[-1].lstrip("\n")


def _qwen3_calls(turn: Turn, text: str) -> str:
    written = ""
    for number, call in enumerate(turn.get("tool_calls") or []):
        function = call.get("function", call)
        arguments = function["arguments"]
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        else:
            arguments = json.dumps(json.loads(arguments), ensure_ascii=False)
        written += "\n" if number or text else ""
        written += f'<tool_call>\n{{"name": "{function["name"]}", "arguments": {arguments}}}'
        written += "\n</tool_call>"
    return written


def _stable(
    turns: list[Turn], write: Callable[[Turn], list[Piece]], ahead: str
) -> Iterator[list[Piece]]:
    yield [(ahead, False), *(piece for turn in turns for piece in write(turn))]


GRAMMARS: dict[str, Callable[[list[Turn]], Iterator[list[Piece]]]] = {
    "llama3_1": llama3,
    "qwen3": qwen3,
    "gemma3": gemma3,
    "deepseek_v3": deepseek_v3,
    "smollm2": smollm2,
}


def rows_of(path: Path) -> Iterator[Any]:
    """The JSON rows of a file: lines, or one array; plain or gzip."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    if text.lstrip().startswith("["):
        yield from json.loads(text)
    else:
        yield from (json.loads(line) for line in text.split("\n") if line.strip())


def conversations_of(row: Any, columns: dict[str, str]) -> Iterator[tuple[list[Turn], bool]]:
    """(turns, only the last reply is new) of a row."""
    if columns:
        # an empty answer is an empty reply, whose end of turn counts; an empty prompt is none
        filled = {role: row.get(column) for role, column in columns.items()}
        names = [
            role
            for role in ("system", "user", "assistant")
            if filled.get(role) or (role == "assistant" and filled.get(role) == "")
        ]
        yield [{"role": role, "content": row[columns[role]]} for role in names], False
    elif "messages" in row or "conversations" in row:
        turns = row.get("messages") or row.get("conversations") or []
        yield [_turn(turn) for turn in turns], False
    elif isinstance(row.get("prompt"), dict) and "replies" in row["prompt"]:
        yield from ((path, True) for path in _replies(row["prompt"], []))
    elif "instruction" in row:
        asked = "\n\n".join(text for text in (row["instruction"], row.get("input")) if text)
        answer = row["response"] if "response" in row else row["output"]
        yield [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}], False
    else:
        raise Unusable("no messages")


def _replies(node: dict[str, Any], above: list[Turn]) -> Iterator[list[Turn]]:
    path = [*above, {"role": ROLE[node["role"]], "content": node["text"]}]
    if path[-1]["role"] == "assistant":
        yield path
    for child in node["replies"]:
        yield from _replies(child, path)


def _turn(turn: dict[str, Any]) -> Turn:
    name = str(turn.get("role", turn.get("from"))).lower()
    if name not in ROLE:
        raise Unusable("unknown role")
    content = turn.get("content", turn.get("value"))
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    more = {key: turn[key] for key in ("tool_calls", "reasoning_content") if turn.get(key)}
    return {"role": ROLE[name], "content": content or "", **more}


def reply_ids(tokenizer: Any, pieces: Iterable[Piece]) -> list[int]:
    """The ids of the learned pieces within the ids of the whole text."""
    text, learned = "", []
    for piece, is_reply in pieces:
        learned += [is_reply] * len(piece)
        text += piece
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    reply = []
    for token, (start, _) in zip(found["input_ids"], found["offset_mapping"], strict=True):
        if learned[min(start, len(text) - 1)]:
            reply.append(token)
    return reply


def count(
    files: Iterable[Path], tokenizer: Any, grammar: str, columns: dict[str, str] | None = None
) -> tuple[Counter[int], Counter[str]]:
    """How often each token id stands in the replies of the files, and how many rows gave what."""
    counts: Counter[int] = Counter()
    rows: Counter[str] = Counter()
    for path in files:
        for row in rows_of(path):
            try:
                for turns, only_last in conversations_of(row, columns or {}):
                    ids = conversation_ids(tokenizer, grammar, turns, only_last=only_last)
                    counts.update(ids)
                    rows["used" if ids else "no reply"] += 1
            except Unusable as error:
                rows[str(error)] += 1
    return counts, rows


def conversation_ids(
    tokenizer: Any, grammar: str, turns: list[Turn], *, only_last: bool = False
) -> list[int]:
    """All reply ids of a conversation, or those of its last reply."""
    if not any(turn["role"] == "assistant" for turn in turns):
        return []
    samples = list(GRAMMARS[grammar](turns))
    if only_last:
        samples = samples[-1:]
        learned = [place for place, piece in enumerate(samples[0]) if piece[1]]
        if grammar != "qwen3":  # whose texts hold one reply each, thought and answer
            samples = [[(text, n == learned[-1]) for n, (text, _) in enumerate(samples[0])]]
    return [token for pieces in samples for token in reply_ids(tokenizer, pieces)]


def main() -> int:
    """Counts, and compares with an artefact of ``vtrim coverage`` where one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--grammar", required=True, choices=sorted(GRAMMARS))
    parser.add_argument("--map", default="")
    parser.add_argument("--compare", type=Path)
    options = parser.parse_args()
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    columns = dict(pair.split("=") for pair in options.map.split(",") if pair)
    counts, rows = count(options.files, tokenizer, options.grammar, columns)
    result: dict[str, Any] = {
        "tokens": counts.total(),
        "distinct": len(counts),
        "rows": dict(rows),
    }
    if options.compare is not None:
        import numpy as np

        found = np.load(options.compare)["counts"]
        theirs = Counter({int(token): int(found[token]) for token in found.nonzero()[0]})
        result["equal"] = theirs == counts
        result["different_ids"] = sum(counts[i] != theirs[i] for i in {*counts, *theirs})
    sys.stdout.write(json.dumps(result) + "\n")
    return 0 if result.get("equal", True) else 1


if __name__ == "__main__":
    sys.exit(main())
