from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from vtrim.chat.conversation import Origin
from vtrim.decoding.generation import Generation
from vtrim.evaluation.tasks.asking import TaskPrompt
from vtrim.evaluation.tasks.conversations import MT_BENCH
from vtrim.evaluation.tasks.gsm8k import GSM8K
from vtrim.evaluation.tasks.results import task_results
from vtrim.evaluation.tasks.task import Question, Score, Task


def prompt(line: int, task: Task = GSM8K, group: str = "", answer: str = "7") -> TaskPrompt:
    question = Question(origin=Origin("f", line), messages=(), answer=answer, group=group)
    return TaskPrompt(ids=(1,), origin=question.origin, task=task, question=question, messages=())


def generation(reply: int, rounds: int = 2, seconds: float = 1.0) -> Generation:
    """A reply of six tokens, five of them from rounds; the first token is the reply's number."""
    return Generation(
        tokens=(reply, 0, 0, 0, 0, 0), drafted=(3,) * rounds, accepted=(1,) * rounds, reasons={},
        off_argmax=0, seconds={"draft": seconds / 2, "verify": seconds / 2},
    )  # fmt: skip


def text(made: Generation) -> str:
    return str(made.tokens[0])


def test_without_plain_decoding_there_is_no_speedup_and_no_change() -> None:
    prompts = [prompt(line, group="ab"[line % 2]) for line in range(6)]
    numbers = task_results(prompts, {"chosen": [generation(7) for _ in prompts]}, text)["gsm8k"]
    assert (numbers["speedup"], numbers["speedup_interval"]) == (None, None)
    assert numbers["plain_tokens_per_second"] is None
    assert (numbers["scores"]["chosen"], numbers["scores"]["change"]) == (1.0, None)
    assert numbers["groups"]["a"] == {
        "prompts": 3, "acceptance_length": 2.5, "tokens_per_second": pytest.approx(5.0),
        "speedup": None, "score": 1.0, "plain_score": None,
    }  # fmt: skip


def test_scores_stand_beside_plain_decoding_s_with_the_interval_of_the_difference() -> None:
    prompts = [prompt(line) for line in range(10)]
    plain = [generation(7) for _ in prompts]
    chosen = [generation(7 if line % 2 else 8, seconds=0.5) for line in range(10)]
    found = task_results(prompts, {"plain": plain, "exact": plain, "chosen": chosen}, text)
    numbers = found["gsm8k"]
    scores = numbers["scores"]
    assert (scores["plain"], scores["exact"], scores["chosen"]) == (1.0, 1.0, 0.5)
    assert (scores["scored"], scores["change"]) == (10, -0.5)
    low, high = scores["change_interval"]
    assert -0.9 <= low < -0.5 < high <= -0.1
    assert scores["parts"]["chosen"] == {"numeric": 0.5}
    assert numbers["speedup"] == pytest.approx(2.0)
    assert numbers["exact"]["speedup"] == pytest.approx(1.0)
    assert numbers["acceptance_length"] == 2.5
    assert numbers["acceptance_length_interval"] == (2.5, 2.5)
    assert (numbers["questions"], numbers["prompts"], numbers["groups"]) == (10, 10, {})


def test_equal_replies_differ_by_nothing() -> None:
    prompts = [prompt(line) for line in range(6)]
    same = [generation(7 if line else 3) for line in range(6)]
    scores = task_results(prompts, {"plain": same, "chosen": same}, text)["gsm8k"]["scores"]
    assert (scores["change"], scores["change_interval"]) == (0.0, (0.0, 0.0))


def test_each_task_has_its_own_prompts_and_each_part_its_own_numbers() -> None:
    prompts = [prompt(1, MT_BENCH, "writing"), prompt(2), prompt(3, MT_BENCH, "maths"), prompt(4)]
    plain = [generation(7) for _ in prompts]
    chosen = [generation(7, rounds=1), generation(7), generation(7, rounds=5), generation(6)]
    found = task_results(prompts, {"plain": plain, "chosen": chosen}, text)
    assert list(found) == ["mt-bench", "gsm8k"]
    assert found["mt-bench"]["scores"] is None
    groups = found["mt-bench"]["groups"]
    assert {name: of["acceptance_length"] for name, of in groups.items()} == {
        "maths": 1.0, "writing": 5.0,
    }  # fmt: skip
    assert groups["maths"]["score"] is None
    assert found["gsm8k"]["scores"]["chosen"] == 0.5
    assert found["gsm8k"]["scores"]["change_interval"] is None  # two replies


def test_turns_of_one_question_are_one_witness() -> None:
    question = replace(prompt(1, MT_BENCH).question, later=("and?",))
    turns = [
        TaskPrompt(
            ids=(1,), origin=Origin("f", line), task=MT_BENCH,
            question=replace(question, origin=Origin("f", line)), messages=(), turn=turn,
        )
        for line in range(4) for turn in (0, 1)
    ]  # fmt: skip
    replies = [generation(7, rounds=1 + line % 3) for line in range(8)]
    numbers = task_results(turns, {"plain": replies, "chosen": replies}, text)["mt-bench"]
    assert (numbers["questions"], numbers["prompts"]) == (4, 8)
    assert numbers["acceptance_length_interval"] is None  # four questions


def test_a_metric_of_counts_is_summed_before_the_ratio() -> None:
    def judge(question: Question, reply: str) -> Score:
        return Score(value=0.0, counts={"hits": float(reply == "7"), "tried": question.answer})

    def total(scores: Iterable[Score]) -> float | None:
        found = list(scores)
        hits, tried = (sum(score.counts[name] for score in found) for name in ("hits", "tried"))
        return hits / tried if tried else None

    task = replace(GSM8K, score=judge, total=total, name="ratio")
    question = prompt(1).question
    prompts = [
        TaskPrompt(
            ids=(1,), origin=Origin("f", line), task=task, messages=(),
            question=replace(question, answer=float(tried)),
        )
        for line, tried in enumerate((1, 2, 3, 4, 0, 0))
    ]  # fmt: skip
    plain = [generation(7) for _ in prompts]
    chosen = [generation(7 if line < 2 else 1) for line in range(6)]
    scores = task_results(prompts, {"plain": plain, "chosen": chosen}, text)["ratio"]["scores"]
    assert (scores["plain"], scores["chosen"]) == (0.6, 0.2)
    low, high = scores["change_interval"]
    assert -1.5 < low < -0.4 < high <= 0.0
