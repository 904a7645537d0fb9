"""The parts of a content: text, reasoning, tool calls, and what holds no text at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_TEXT = ("text", "input_text", "output_text")
_REASONING = ("thinking", "reasoning")
# Where a part of each kind keeps its text.
_KEYS = {
    **dict.fromkeys(_TEXT, ("text", "content")),
    **dict.fromkeys(_REASONING, ("thinking", "reasoning", "text", "content")),
}
_MEDIA = frozenset(("image", "audio", "video", "file", "document"))
_RESULT = "tool_result"


@dataclass(slots=True)
class Parts:
    """What a content's parts hold.

    calls: as ``tool_calls``; media: number of images and the like; others: the kinds of all the
    rest.
    """

    text: str = ""
    reasoning: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)
    media: int = 0
    others: list[str] = field(default_factory=list)

    @property
    def num_without_text(self) -> int:
        """Parts that add nothing to a prompt."""
        return self.media + len(self.others) + len(self.calls) + bool(self.reasoning)


def parts_of(content: list[str | dict[str, Any]]) -> Parts:
    """The parts of a content in the spellings of OpenAI and Anthropic, those of a kind joined."""
    found = Parts()
    for part in content:
        if isinstance(part, str):
            found.text += part
            continue
        kind = _kind(part)
        text = _text(part, _KEYS[kind]) if kind in _KEYS else None
        if kind == "tool_use":
            found.calls.append(_call(part))
        elif kind.removeprefix("input_").removesuffix("_url") in _MEDIA:
            found.media += 1
        elif text is None:
            found.others.append(kind)
        elif kind in _TEXT:
            found.text += text
        else:
            found.reasoning += text
    return found


def turns_in(turn: Any) -> list[Any]:
    """A turn, with each tool result among a user's parts as a turn before it.

    Anthropic writes the results of tools as parts of the user's next turn.
    """
    content = turn.get("content") if isinstance(turn, dict) else None
    if content.__class__ is not list or turn.get("role") != "user":
        return [turn]
    results = [part for part in content if _is_result(part)]
    rest = [part for part in content if not _is_result(part)]
    turns: list[Any] = [
        {"role": "tool", "tool_call_id": part.get("tool_use_id"), "content": part.get("content")}
        for part in results
    ]
    return [*turns, {**turn, "content": rest}] if rest or not turns else turns


def _is_result(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == _RESULT


def _kind(part: dict[str, Any]) -> str:
    """The type a part names; a part with nothing but a text may leave it out."""
    return str(part.get("type") or ("text" if "text" in part else "unknown"))


def _text(part: dict[str, Any], names: tuple[str, ...]) -> str | None:
    """The first value there is, empty where there is none; None where it is no text."""
    value = next((part[name] for name in names if part.get(name) is not None), "")
    return value if isinstance(value, str) else None


def _call(part: dict[str, Any]) -> dict[str, Any]:
    function = {"name": part.get("name"), "arguments": part.get("input")}
    return {"type": "function", "id": part.get("id"), "function": function}
