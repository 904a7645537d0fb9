"""Named entities listed as JSON: micro-averaged F1 over entities with type and text.

An entity counts where both are equal to a recorded one; each recorded one counts once. That is the
strict entity F1 of CoNLL-2003, but for where in the sentence an entity stands, which a list does
not say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from vtrim.chat.conversation import Origin, RowError
from vtrim.chat.turns import messages_of
from vtrim.evaluation.tasks.rows import NO_ANSWER, NO_QUESTION
from vtrim.evaluation.tasks.task import Question, Score, Task

Entity = tuple[str, str]
"""Type and text."""

_LEARNED = ("train", "dev", "valid")
_FOUND, _WRONG, _MISSED, _UNREAD = "found", "wrong", "missed", "unreadable_replies"


def _judge(question: Question, reply: str) -> Score:
    """F1 of one reply, with what the micro average is made of."""
    wanted: Counter[Entity] = question.answer
    listed = entities_of(reply)
    said = Counter(listed or ())
    found = (said & wanted).total()
    counts = {
        _FOUND: float(found),
        _WRONG: float(said.total() - found),
        _MISSED: float(wanted.total() - found),
        _UNREAD: float(listed is None),
    }
    return Score(value=_f1(counts), counts=counts)


def _micro_f1(scores: Iterable[Score]) -> float | None:
    """F1 over all replies together; None of nothing."""
    totals: Counter[str] = Counter()
    replies = 0
    for score in scores:
        replies += 1
        totals.update(score.counts)
    return _f1(totals) if replies else None


def entities_of(reply: str) -> list[Entity] | None:
    """The entities of the first JSON list in a reply; None where there is none.

    An item that is no object with ``type`` and ``text`` is an entity that is never right.
    """
    reader = json.JSONDecoder()
    start = reply.find("[")
    while start >= 0:
        try:
            items, _ = reader.raw_decode(reply, start)
            return [_entity(one) for one in items]
        except RecursionError:
            return None
        except ValueError:
            start = reply.find("[", start + 1)
    return None


def _entity(item: Any) -> Entity:
    kind = item.get("type") if isinstance(item, Mapping) else None
    text = item.get("text") if isinstance(item, Mapping) else None
    if not isinstance(kind, str) or not isinstance(text, str):
        return ("", json.dumps(item))
    return (kind.strip(), " ".join(text.split()))


def _f1(counts: Mapping[str, float]) -> float:
    """2 found / (listed + recorded); 1 where there was nothing to list and nothing was."""
    both = 2 * counts[_FOUND] + counts[_WRONG] + counts[_MISSED]
    if not both:
        return float(not counts[_UNREAD])
    return 2 * counts[_FOUND] / both


def _ask(row: Any, origin: Origin) -> Question:
    """The conversation in a row; rows of training splits are left out."""
    if not isinstance(row, Mapping) or "messages" not in row:
        raise RowError(NO_QUESTION, "the row needs `messages` that end in a JSON list of entities")
    split = str(row.get("split", ""))
    if any(word in split.lower() for word in _LEARNED):
        raise RowError("of a training split", f"split {split}")
    messages = messages_of(row["messages"], "messages")
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise RowError(NO_ANSWER, "no reply ends the conversation")
    recorded = entities_of(messages[-1]["content"])
    if recorded is None:
        raise RowError(NO_ANSWER, "the last reply is no JSON list of entities")
    return Question(
        origin=origin,
        messages=tuple(messages[:-1]),
        answer=Counter(recorded),
        group=str(row.get("source", "")),
    )


NER = Task(
    name="ner",
    title="Named entities as a JSON list (entity micro-F1)",
    licence="that of the data",
    metric="f1",
    max_new_tokens=256,
    ask=_ask,
    score=_judge,
    total=_micro_f1,
)
