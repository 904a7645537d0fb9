"""What is counted in a conversation, as pieces of text that end where tokens end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from vtrim.chat.conversation import Conversation, RowError
from vtrim.chat.encode import Encoded
from vtrim.chat.render import Masked, Renderer
from vtrim.chat.template import Rule, TemplateRefusal
from vtrim.chat.visible import visible

__all__ = ["Piece", "PieceKind", "Preview", "PreviewSample", "preview_of", "visible"]

PieceKind = Literal["prompt", "counted", "straddling", "cut"]

_WINDOW = 6  # tokens decoded before one: what a decoder may look back at


@dataclass(frozen=True, slots=True)
class Piece:
    """A text of neighbouring tokens. special: an added token; cut: beyond the length limit."""

    text: str
    kind: PieceKind
    special: bool


@dataclass(frozen=True, slots=True)
class PreviewSample:
    """One sample: its pieces, its tokens [tokens] and what made its mask."""

    pieces: tuple[Piece, ...]
    num_counted: int
    num_tokens: int
    rule: Rule


@dataclass(frozen=True, slots=True)
class Preview:
    """A conversation's samples, or why it has none."""

    conversation: Conversation
    samples: tuple[PreviewSample, ...]
    skipped: str | None


def preview_of(renderer: Renderer, conversation: Conversation) -> Preview:
    """The samples that ``renderer`` makes of a conversation; nothing is noted in its tallies."""
    try:
        found = renderer.masked(conversation)
    except (TemplateRefusal, RowError) as error:
        return Preview(conversation, (), str(error))
    samples = tuple(_sample(renderer, masked) for masked in found)
    if any(sample.num_counted for sample in samples):
        return Preview(conversation, samples, None)
    limit = "" if renderer.max_length is None else f" within --max-length {renderer.max_length}"
    return Preview(conversation, samples, f"no reply token{limit}")


def _sample(renderer: Renderer, masked: Masked) -> PreviewSample:
    limit = len(masked.ids) if renderer.max_length is None else renderer.max_length
    kept = masked.mask[:limit]
    return PreviewSample(
        pieces=tuple(_pieces(renderer.tokenizer, masked, limit)),
        num_counted=int(kept.sum()),
        num_tokens=kept.size,
        rule=masked.rule,
    )


def _pieces(tokenizer: Any, masked: Masked, limit: int) -> Iterator[Piece]:
    """The pieces of a sequence: neighbouring tokens of one kind are one piece."""
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    special = {token for token, entry in added.items() if entry.content.strip()}
    if masked.encoded is None:
        parts = _decoded_parts(tokenizer, masked, special, limit)
    else:
        parts = _offset_parts(masked, masked.encoded, special, limit)
    shown = (part for part in parts if part.text)
    for (kind, is_special), group in groupby(shown, lambda part: (part.kind, part.special)):
        yield Piece("".join(part.text for part in group), kind, is_special)


def _decoded_parts(
    tokenizer: Any, masked: Masked, special: set[int], limit: int
) -> Iterator[Piece]:
    for place, text in enumerate(_texts_by_decoding(tokenizer, masked)):
        yield Piece(text, _kind(masked, place, limit), int(masked.ids[place]) in special)


def _offset_parts(
    masked: Masked, encoded: Encoded, special: set[int], limit: int
) -> Iterator[Piece]:
    """Each token's part of the text; a character of several tokens goes to the first of them.

    Spaces between two tokens go to the second (byte-level tokenizers leave them out of their
    offsets); other text that no token holds is what stands around it.
    """
    text = masked.text or ""
    done = 0
    for place, (start, end) in enumerate(encoded.offsets.tolist()):
        if text[done:start].strip(" "):
            yield Piece(text[done:start], _kind_at(encoded, done, place >= limit), False)
            done = start
        is_special = int(masked.ids[place]) in special
        yield Piece(text[done:end], _kind(masked, place, limit), is_special)
        done = max(done, end)
    yield Piece(text[done:], _kind_at(encoded, done, len(masked.ids) > limit), False)


def _kind(masked: Masked, place: int, limit: int) -> PieceKind:
    if place >= limit:
        return "cut"
    if masked.mask[place]:
        return "counted"
    crossing = masked.encoded is not None and masked.encoded.crossing[place]
    return "straddling" if crossing else "prompt"


def _kind_at(encoded: Encoded, character: int, cut: bool) -> PieceKind:
    """The kind of text that no token holds."""
    if cut:
        return "cut"
    inside = any(start <= character < end for start, end in encoded.spans)
    return "counted" if inside else "prompt"


def _texts_by_decoding(tokenizer: Any, masked: Masked) -> Iterator[str]:
    """Each token's text; tokens that are part of a character give it with the last of them."""
    ids = masked.ids.tolist()

    def decode(tokens: list[int]) -> str:
        text: str = tokenizer.decode(
            tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return text

    waiting = 0  # first token whose text is not out yet
    for place in range(len(ids)):
        begin = max(0, waiting - _WINDOW)
        before, after = decode(ids[begin:waiting]), decode(ids[begin : place + 1])
        unfinished = after.endswith("\ufffd") and place - waiting < _WINDOW
        if unfinished and place + 1 < len(ids):
            yield ""
            continue
        yield after[len(before) :]
        waiting = place + 1
