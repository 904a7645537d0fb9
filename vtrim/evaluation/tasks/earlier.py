"""Replies that stand before a later turn, kept so that all rules and engines see the same ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vtrim.artifacts import fingerprint_json, read_object, write_json
from vtrim.errors import InputError
from vtrim.evaluation.tasks.asking import TaskPrompt

FILE = "earlier_replies.json"
_LIKE = "delete it, and the replies are written anew"


@dataclass(frozen=True, kw_only=True)
class EarlierReplies:
    """Replies by what asked for them, in a file of the run folder.

    target: whose replies they are, by name and content. The dtype, the draft and the engine are
    not asked after: whatever wrote a reply first, it is a part of the prompt from then on.
    longest: tokens of a reply to a prompt without a limit of its own.
    """

    path: Path
    target: tuple[str, str]
    longest: int

    def reply(self, prompt: TaskPrompt, write: Callable[[TaskPrompt], str]) -> str:
        """The reply that is known, else the one that ``write`` gives, which is kept.

        Raises:
            InputError: the file is damaged.
        """
        known = read_object(self.path) if self.path.exists() else {}
        limit = prompt.max_new_tokens or self.longest
        key = fingerprint_json([*self.target, list(prompt.ids), limit, list(prompt.stop)])
        found = known.get(key)
        if found is None:
            found = prompt.reply_text(write(prompt)).strip()
            write_json(self.path, {**known, key: found})
        if not isinstance(found, str):
            raise InputError(f"{self.path}: damaged: a reply is no text; {_LIKE}.")
        return found
