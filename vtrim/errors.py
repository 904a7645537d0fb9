"""The errors a user can cause: each is one line that says what, where and the remedy.

The command line prints such an error as ``error: ...`` on stderr and exits with code 2.
Anything else that escapes is a bug and keeps its traceback.
"""

import difflib
from collections.abc import Iterable


class VtrimError(Exception):
    """Base of every error that the user, not vtrim, can put right."""


class InputError(VtrimError):
    """A file, row or checkpoint that cannot be used: missing, empty, cut, foreign."""


class OwnError(InputError):
    """One that a process of a group may meet alone, so each says it itself (a full disk, say)."""


class OptionError(VtrimError):
    """An option out of range, or options that contradict each other."""


class MismatchError(VtrimError):
    """Artefacts that do not belong together: other tokenizer, data, target or vocabulary."""


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`` Did you mean 'NAME'?`` with the known name that is nearest; empty where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f" Did you mean '{near[0]}'?" if near else ""
