"""Tokens as text that a terminal and a reader can bear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run, check_match
from vtrim.cli import common

if TYPE_CHECKING:
    from vtrim.models.vocab_files import VocabFile


BEYOND = "(no token of the tokenizer)"


@dataclass(frozen=True)
class Texts:
    """Tokens as text: from a tokenizer, else from the texts a run keeps."""

    tokenizer: Any
    known: Mapping[str, str]

    def of(self, token: int) -> str | None:
        """The token's text, quoted, with what cannot be printed escaped; None where unknown.

        Rows of a head that are no token of the tokenizer (padding) give BEYOND, unquoted.
        """
        if self.tokenizer is not None:
            if token >= len(self.tokenizer):
                return BEYOND
            text: str | None = self.tokenizer.decode([token])
        else:
            text = self.known.get(str(token))
        return None if text is None else quoted(text)


def check_tokenizer(tokenizer: Any, name: str, run: Run, found: VocabFile) -> None:
    """Holds a tokenizer against what the file, else the run of the same V, says of its own.

    Raises:
        MismatchError: it is another one.
    """
    known, length, origin = found.metadata.get("tokenizer_fingerprint"), None, found.path
    entry = run.read().get("target") or {}
    if known is None and entry.get("vocab_size") == found.vocab.target_vocab_size:
        known, length = entry.get("tokenizer_fingerprint"), entry.get("tokenizer_length")
        origin = run.manifest
    remedy = "Its ids are other tokens: name the tokenizer of the vocabulary's target."
    if known is not None:
        if known not in (here := fingerprints(tokenizer, entry)):
            check_match(f"--tokenizer {name}", here[0], known, str(origin), remedy)
    elif length is not None:
        check_match(f"--tokenizer {name}: length", len(tokenizer), length, str(origin), remedy)
    else:
        common.note(f"{found.path}: does not tell its tokenizer; texts are those of {name}")


def fingerprints(tokenizer: Any, entry: Mapping[str, Any]) -> list[str]:
    """Fingerprints of a tokenizer: as it is, and with the template that a run counted with.

    The template is part of a fingerprint, as it decides what is counted; ids mean the same.
    """
    from vtrim.models.hub import tokenizer_fingerprint

    found, own = [tokenizer_fingerprint(tokenizer)], tokenizer.chat_template
    template = entry.get("chat_template")
    if template is not None and Path(template).is_file():
        tokenizer.chat_template = common.read_template(Path(template))
        found.append(tokenizer_fingerprint(tokenizer))
        tokenizer.chat_template = own
    return found


def quoted(text: str) -> str:
    """The text in quotes; letters of all scripts stay, controls become escapes."""
    inner = "".join(c if c.isprintable() else _escape(c) for c in text.replace("\\", "\\\\"))
    return '"' + inner.replace('"', '\\"') + '"'


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
