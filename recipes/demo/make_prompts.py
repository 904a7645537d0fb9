"""Write the demo's chat prompts as JSONL, the same bytes for the same seed and count."""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, TypeVar

from prompt_parts import DOMAINS, OPENERS, SLOTS, Domain

DEFAULT_COUNT = 2400
DEFAULT_SEED = 20240611
MIN_WORDS, MAX_WORDS = 5, 80
CHAT_EVERY = 20  # one row in twenty carries two earlier turns
TAIL_SHARE = 0.5
OPENER_SHARE = 0.06
CASUAL_SHARE = 0.08
MAX_TRIES = 200

# "{name}" and "{name2}" draw two different names; "[20-90/5]" is a number in steps of five.
PLACEHOLDER = re.compile(
    r"\{(?P<slot>[a-z_]+\d?)\}|\[(?P<low>\d+)-(?P<high>\d+)(?:/(?P<step>\d+))?\]"
)

T = TypeVar("T")
Messages = list[dict[str, str]]


class Deck(Generic[T]):
    """Deal items in random order, each one once before any of them repeats."""

    def __init__(self, rng: random.Random, items: Sequence[T]) -> None:
        """Keep the items to deal."""
        self._rng = rng
        self._items = items
        self._left: list[T] = []

    def draw(self) -> T:
        """Return the next item, reshuffling when all were dealt."""
        if not self._left:
            self._left = list(self._items)
            self._rng.shuffle(self._left)
        return self._left.pop()


class Filler:
    """Replace the slots and number ranges in a template."""

    def __init__(self, rng: random.Random) -> None:
        """Make one deck per slot."""
        self._rng = rng
        self._decks = {name: Deck(rng, items) for name, items in SLOTS.items()}

    def fill(self, template: str, bound: dict[str, str]) -> str:
        """Fill a template; a slot already in `bound` keeps its value."""

        def replace(match: re.Match[str]) -> str:
            if match["slot"]:
                return self._value(match["slot"], bound)
            step = int(match["step"] or 1)
            return str(self._rng.randrange(int(match["low"]), int(match["high"]) + 1, step))

        return PLACEHOLDER.sub(replace, template)

    def _value(self, token: str, bound: dict[str, str]) -> str:
        while token not in bound:
            value = self.fill(self._decks[token.rstrip("0123456789")].draw(), bound)
            if value not in bound.values():
                bound[token] = value
        return bound[token]


class Writer:
    """Compose the rows of one domain."""

    def __init__(self, rng: random.Random, filler: Filler, domain: Domain) -> None:
        """Make the domain's decks."""
        self._rng = rng
        self._filler = filler
        self._frames = Deck(rng, domain.frames)
        self._tails = Deck(rng, domain.tails)
        self._chats = Deck(rng, domain.chats)

    def single(self) -> Messages:
        """Return one user turn."""
        frame = self._frames.draw()
        if "~" in frame:
            tail = " " + self._tails.draw() if self._rng.random() < TAIL_SHARE else ""
            frame = frame.replace("~", tail)
        return [turn("user", self._restyle(self._filler.fill(frame, {})))]

    def chat(self) -> Messages:
        """Return a user turn, a short answer and a second user turn."""
        bound: dict[str, str] = {}
        roles = ("user", "assistant", "user")
        parts = zip(roles, self._chats.draw(), strict=True)
        return [turn(role, self._filler.fill(text, bound)) for role, text in parts]

    def _restyle(self, text: str) -> str:
        roll = self._rng.random()
        if roll < OPENER_SHARE:
            return f"{self._rng.choice(OPENERS)} {text}"
        if roll < OPENER_SHARE + CASUAL_SHARE:
            return casual(text)
        return text


def turn(role: str, content: str) -> dict[str, str]:
    """Return one chat message."""
    return {"role": role, "content": content}


def casual(text: str) -> str:
    """Drop the first capital and the last full stop, as people do when typing fast."""
    if "\n" in text or '"' in text or text.startswith(("I ", "I'")):
        return text
    return (text[0].lower() + text[1:]).removesuffix(".")


def well_sized(messages: Messages) -> bool:
    """Tell whether every user turn has a usable number of words."""
    counts = [len(m["content"].split()) for m in messages if m["role"] == "user"]
    return all(MIN_WORDS <= count <= MAX_WORDS for count in counts)


def domain_rows(writer: Writer, source: str, count: int) -> list[dict]:
    """Return `count` distinct rows of one domain."""
    rows: dict[str, dict] = {}
    chats = count // CHAT_EVERY
    for _ in range(count * MAX_TRIES):
        if len(rows) == count:
            return list(rows.values())
        messages = writer.chat() if len(rows) < chats else writer.single()
        if well_sized(messages):
            rows.setdefault(json.dumps(messages), {"messages": messages, "source": source})
    raise SystemExit(f"{source}: cannot make {count} distinct prompts; lower --count")


def make_rows(count: int, seed: int) -> list[dict]:
    """Return `count` shuffled rows, shared evenly among the domains."""
    rng = random.Random(seed)  # noqa: S311 - sampling text, not secrets
    filler = Filler(rng)
    share, extra = divmod(count, len(DOMAINS))
    rows: list[dict] = []
    for index, domain in enumerate(DOMAINS):
        writer = Writer(rng, filler, domain)
        rows += domain_rows(writer, domain.name, share + (index < extra))
    rng.shuffle(rows)
    return rows


def parse_args(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file to write (default: standard output)")
    parser.add_argument("--count", type=int, default=DEFAULT_COUNT, help="number of prompts")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED, help="random seed")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Write the prompts, and the number per domain to standard error."""
    args = parse_args(argv)
    rows = make_rows(args.count, args.seed)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if args.out:
        args.out.write_text(text, encoding="utf-8", newline="\n")
    else:
        sys.stdout.buffer.write(text.encode())
    for source, number in sorted(Counter(row["source"] for row in rows).items()):
        sys.stderr.write(f"{source}: {number}\n")


if __name__ == "__main__":
    main()
