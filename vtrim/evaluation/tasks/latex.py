r"""Answers in LaTeX: the one a reply ends in, and whether two are spelled the same.

The rule of the MATH data set as lm-evaluation-harness 0.4.13 uses it: texts are brought to one
spelling, nothing is computed, so ``0.25`` is not ``\frac{1}{4}``.
"""

from __future__ import annotations

_BOXED = "\\boxed"
_BOXED_BARE = "\\boxed "
_SPELLINGS = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
)
_UNIT = "\\text{ "  # in the data only units begin like that
_LATE_SPELLINGS = (("\\%", ""), (" .", " 0."), ("{.", "{0."))


def final_answer(reply: str) -> str:
    r"""The last ``\boxed{...}``; without one, what stands between the first and the last dollar.

    Without either it is the whole reply.
    """
    boxed = _boxed(reply)
    if boxed is not None:
        return boxed
    first, last = reply.find("$"), reply.rfind("$")
    return reply[first + 1 : last] if first < last else reply


def _boxed(reply: str) -> str | None:
    """The content of the last box that is closed, or that stands without braces."""
    if _BOXED_BARE in reply:
        return reply.rpartition(_BOXED_BARE)[2].partition("$")[0]
    start = reply.rfind(_BOXED)
    if start < 0 or not reply.startswith(_BOXED + "{", start):
        return None
    depth = 0
    for end in range(start, len(reply)):
        depth += {"{": 1, "}": -1}.get(reply[end], 0)
        if reply[end] == "}" and depth == 0:
            return reply[start + len(_BOXED) + 1 : end]
    return None


def equivalent(one: str, other: str) -> bool:
    """Whether two answers have the same spelling; unread ones must be equal as they stand."""
    try:
        return spelling(one) == spelling(other)
    except ValueError:
        return one == other


def spelling(answer: str) -> str:
    """An answer in its one spelling.

    Raises:
        ValueError: a root, a fraction or a unit in it cannot be read.
    """
    for old, new in _SPELLINGS:
        answer = answer.replace(old, new)
    answer = _without_unit(answer)
    for old, new in _LATE_SPELLINGS:
        answer = answer.replace(old, new)
    if not answer:
        return answer
    if answer.startswith("."):
        answer = "0" + answer
    name, equals, value = answer.partition("=")
    if equals and "=" not in value and len(name) <= 2:  # x = 5
        answer = value
    answer = _with_fractions(_with_roots(answer).replace(" ", ""))
    return _with_quotient("\\frac{1}{2}" if answer == "0.5" else answer)


def _without_unit(answer: str) -> str:
    value, unit, rest = answer.partition(_UNIT)
    if unit and _UNIT in rest:
        raise ValueError(answer)
    return value


def _with_roots(answer: str) -> str:
    r"""With ``\sqrt3`` as ``\sqrt{3}``."""
    first, *parts = answer.split("\\sqrt")
    if not all(parts):
        raise ValueError(answer)
    return first + "".join(
        f"\\sqrt{part}" if part[0] == "{" else f"\\sqrt{{{part[0]}}}{part[1:]}" for part in parts
    )


def _with_fractions(answer: str) -> str:
    r"""With ``\frac12`` and ``\frac1{2}`` as ``\frac{1}{2}``."""
    first, *parts = answer.split("\\frac")
    spelled = first
    for part in parts:
        if not part:
            raise ValueError(answer)
        if part[0] == "{":
            spelled += f"\\frac{part}"
        elif len(part) < 2:
            return answer
        elif part[1] == "{":
            spelled += f"\\frac{{{part[0]}}}{part[1:]}"
        else:
            spelled += f"\\frac{{{part[0]}}}{{{part[1]}}}{part[2:]}"
    return spelled


def _with_quotient(answer: str) -> str:
    r"""With ``1/2`` as ``\frac{1}{2}``."""
    if answer.count("/") != 1:
        return answer
    above, below = map(int, answer.split("/"))  # letters in it: the caller compares as it stands
    if answer != f"{above}/{below}":
        return answer
    return f"\\frac{{{above}}}{{{below}}}"
