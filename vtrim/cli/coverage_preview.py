"""``vtrim coverage --preview``: what is counted, on the terminal or as a page."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from vtrim.artifacts import write_text
from vtrim.cli import common

if TYPE_CHECKING:
    from rich.console import Console

    from vtrim.chat.conversation import Conversation
    from vtrim.chat.preview import Piece, Preview, PreviewSample
    from vtrim.chat.render import Renderer

_STYLES = {
    "prompt": "dim",
    "counted": "black on green",
    "straddling": "black on yellow",
    "cut": "dim strike",
}
_MARKS = {
    "prompt": ("", ""),
    "counted": ("\u27e6", "\u27e7"),
    "straddling": ("\u2af6", "\u2af6"),
    "cut": ("\u2702", "\u2702"),
}
_TERMINAL_PIECE = 4_000  # characters shown of one piece
_PAGE_PIECE = 40_000


def show_preview(
    renderer: Renderer,
    conversations: Iterable[Conversation],
    limit: int,
    html: Path | None = None,
    console: Console | None = None,
) -> None:
    """Shows the first ``limit`` conversations, on the terminal or in the page ``html``."""
    from vtrim.chat.preview import preview_of

    previews = [preview_of(renderer, one) for one in islice(conversations, limit)]
    if html is not None:
        write_preview_html(previews, html)
        common.note(f"preview of {len(previews):,} conversations: {html}")
        return
    screen = console or common.results
    coloured = screen.is_terminal and screen.color_system is not None and not screen.no_color
    screen.print(_legend(coloured), soft_wrap=True)
    for preview in previews:
        screen.print(_on_terminal(preview, coloured), soft_wrap=True, end="")


def write_preview_html(previews: Iterable[Preview], path: Path) -> None:
    """One self-contained page of the previews, written atomically."""
    from jinja2 import Environment

    source = Path(__file__).with_name("preview.html.j2").read_text(encoding="utf-8")
    shown = list(previews)
    page = (
        Environment(autoescape=True)
        .from_string(source)
        .render(
            heading=f"The first {len(shown):,} conversations.",
            previews=[
                {
                    "title": _title(preview),
                    "skipped": preview.skipped,
                    "samples": [
                        {
                            "title": _counts(preview, number),
                            "pieces": [_page_piece(piece) for piece in sample.pieces],
                        }
                        for number, sample in enumerate(preview.samples)
                    ],
                }
                for preview in shown
            ],
        )
    )
    write_text(path, page)


def _page_piece(piece: Piece) -> dict[str, Any]:
    from vtrim.chat.preview import visible

    text = visible(_shortened(piece.text, _PAGE_PIECE), newline="\n")
    return {"kind": piece.kind, "special": piece.special, "lines": text.split("\n")}


def _legend(coloured: bool) -> Text:
    words = {
        "counted": "counted",
        "prompt": "prompt",
        "straddling": "straddling (not counted)",
        "cut": "beyond --max-length",
    }
    legend = Text()
    for kind, word in words.items():
        _append(legend, word, kind, special=False, coloured=coloured)
        legend.append("  ")
    return legend


def _on_terminal(preview: Preview, coloured: bool) -> Text:
    from vtrim.chat.preview import visible

    text = Text(f"\n{_title(preview)}\n", style="bold" if coloured else "")
    shown = Text()
    shown.append_text(text)
    if preview.skipped:
        shown.append(f"skipped: {visible(preview.skipped)}\n", "red" if coloured else "")
    for number, sample in enumerate(preview.samples):
        shown.append(f"{_counts(preview, number)}\n")
        shown.append_text(_body(sample, coloured))
    return shown


def _body(sample: PreviewSample, coloured: bool) -> Text:
    """The pieces; where there is no colour, counted text stands between brackets."""
    from vtrim.chat.preview import visible

    body = Text()
    for number, piece in enumerate(sample.pieces):
        text = visible(_shortened(piece.text, _TERMINAL_PIECE))
        before = sample.pieces[number - 1].kind if number else None
        after = sample.pieces[number + 1].kind if number + 1 < len(sample.pieces) else None
        if coloured:
            _append(body, text, piece.kind, special=piece.special, coloured=True)
            continue
        opens, closes = _MARKS[piece.kind]
        body.append(opens if before != piece.kind else "")
        body.append(text)
        body.append(closes if after != piece.kind else "")
    body.append("" if body.plain.endswith("\n") else "\n")
    return body


def _append(into: Text, text: str, kind: str, *, special: bool, coloured: bool) -> None:
    if coloured:
        into.append(text, _STYLES[kind] + (" italic" if special else ""))
    else:
        opens, closes = _MARKS[kind]
        into.append(f"{opens}{text}{closes}")


def _title(preview: Preview) -> str:
    """Where the conversation stands and what it is."""
    from vtrim.chat.conversation import is_heldout
    from vtrim.chat.preview import visible

    conversation = preview.conversation
    parts = [str(conversation.origin), f"form {conversation.kind}"]
    if conversation.source is not None:
        parts.append(f"source {conversation.source}")
    if is_heldout(conversation):
        parts.append("held out")
    return visible(" \u00b7 ".join(parts), newline=" ")


def _counts(preview: Preview, number: int) -> str:
    """What is counted of a sample, and by which rule."""
    sample = preview.samples[number]
    which = f"sample {number + 1} of {len(preview.samples)}: " if len(preview.samples) > 1 else ""
    counted = f"{sample.num_counted:,} of {sample.num_tokens:,} tokens counted"
    left_out = "" if sample.num_counted or preview.skipped else " \u00b7 left out"
    return f"{which}{counted} \u00b7 mask by {sample.rule}{left_out}"


def _shortened(text: str, limit: int) -> str:
    """The text, its middle left out where it is long."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} [... {len(text) - 2 * half:,} characters ...] {text[-half:]}"
