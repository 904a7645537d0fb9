from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vtrim.chat.conversation import Conversation, Origin, conversation_of
from vtrim.chat.render import Renderer
from vtrim.cli.coverage_preview import show_preview

NASTY = "[bold] [/] <b>&amp;</b> \x1b[31m"


def row(reply: str, line: int = 1, user: str = "the cat") -> Conversation:
    turns = [{"role": "user", "content": user}, {"role": "assistant", "content": reply}]
    origin = Origin("chat.jsonl", line)
    return conversation_of({"messages": turns, "source": "s[red]"}, origin)


@pytest.fixture
def renderer(tiny_target: Path) -> Renderer:
    from transformers import AutoTokenizer

    return Renderer(AutoTokenizer.from_pretrained(tiny_target))


def shown(renderer: Renderer, rows: list[Conversation], limit: int = 9, **console: Any) -> str:
    out = io.StringIO()
    show_preview(renderer, rows, limit, console=Console(file=out, highlight=False, **console))
    return out.getvalue()


def test_without_colour_counted_text_stands_between_brackets(renderer: Renderer) -> None:
    text = shown(renderer, [row("red blue")])
    assert "<|turn|>assistant↵\n⟦red blue<|done|>⟧↵\n" in text
    assert "chat.jsonl:1 · form messages · source s[red]" in text
    assert "3 of 10 tokens counted · mask by render boundary" in text
    assert "\x1b" not in text


def test_on_a_terminal_counted_text_is_coloured(renderer: Renderer) -> None:
    terminal = {"force_terminal": True, "color_system": "standard"}
    text = shown(renderer, [row("red blue")], **terminal)
    assert re.search(r"\x1b\[30;42mred blue\x1b\[0m", text)
    assert "⟦" not in text


def test_no_colour_on_a_terminal_that_wants_none(
    renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "⟦red<|done|>⟧" in shown(renderer, [row("red")], force_terminal=True)


def test_texts_are_shown_as_they_are_and_control_no_terminal(renderer: Renderer) -> None:
    text = shown(renderer, [row(NASTY, user=NASTY)])
    assert text.count("[bold] [/] <b>&amp;</b> ␛[31m") == 2
    assert "\x1b" not in text


def test_only_the_first_conversations_are_read(renderer: Renderer) -> None:
    def rows() -> Any:
        yield row("red", 1)
        yield row("blue", 2)
        raise AssertionError("one too many")

    text = shown(renderer, rows(), limit=2)
    assert "chat.jsonl:1" in text
    assert "chat.jsonl:2" in text


def test_a_skipped_row_says_why(renderer: Renderer) -> None:
    alone = conversation_of({"messages": [{"role": "user", "content": "x"}]}, Origin("c.jsonl", 7))
    assert "c.jsonl:7 · form messages\nskipped: no reply token\n" in shown(renderer, [alone])


def test_a_huge_piece_is_shortened(renderer: Renderer) -> None:
    text = shown(renderer, [row("red " * 20_000)])
    assert len(text) < 10_000
    assert "characters ...]" in text


def test_the_page_is_whole_and_escaped(renderer: Renderer, tmp_path: Path) -> None:
    page = tmp_path / "preview.html"
    show_preview(renderer, [row("red blue"), row(NASTY, 2, NASTY)], 5, page)
    text = page.read_text(encoding="utf-8")
    assert '<span class="counted">red blue</span><span class="counted special">&lt;' in text
    assert "<b>" not in text
    assert "[bold] [/] &lt;b&gt;&amp;amp;&lt;/b&gt; ␛[31m" in text
    assert "3 of 10 tokens counted · mask by render boundary" in text
    assert "chat.jsonl:2 · form messages · source s[red]" in text
    assert not re.search(r"(src|href)=", text)
    assert "prefers-color-scheme: dark" in text
    assert not list(tmp_path.glob(".*"))


def test_each_sample_of_a_rewritten_history_is_shown(
    big_tokenizers: Callable[[str], Any],
) -> None:
    turns = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "r"},
        {"role": "assistant", "content": "two"},
    ]
    conversation = conversation_of({"messages": turns}, Origin("c.jsonl", 1))
    text = shown(Renderer(big_tokenizers("qwen3")), [conversation])
    assert "sample 1 of 2: 2 of " in text
    assert "sample 2 of 2: 2 of " in text
