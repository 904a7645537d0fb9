"""``vtrim eval --task`` and ``vtrim tasks``, on tiny targets and self-written questions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def target(data: Path) -> Path:
    return data / "model" / "stories260k"


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """A folder with the files of three tasks."""
    folder = tmp_path / "data"
    folder.mkdir()
    sums = [{"question": f"{n} and 1?", "answer": f"#### {n + 1}"} for n in range(6)]
    lines(folder / "gsm8k_test.jsonl", *sums)
    talks = [
        {"turns": ["A red cat?", "And a dog?"], "category": "writing"},
        {"turns": ["A blue fox?", "Why?"], "category": "writing"},
        {"turns": ["An owl?", "When?"], "category": "stem"},
    ]
    lines(folder / "mt_bench_question.jsonl", *talks)
    (folder / "mgsm_de.tsv").write_text("Eins und eins?\t2\n", encoding="utf-8")
    return folder


@pytest.fixture
def where(tmp_path: Path, target: Path, questions: Path) -> list[object]:
    drafting = ["--drafter", "ngram", "--dtype", "fp32"]
    named = ["--run", tmp_path / "run", "--target", target, "--task-data", questions]
    return [*named, *drafting, "--max-new-tokens", 6]


def lines(path: Path, *rows: object) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def measured(vtrim: Vtrim, *arguments: object) -> dict[str, Any]:
    code, out, err = vtrim("eval", *arguments, "--json")
    assert code == 0, err
    assert out.count("\n") == 1
    result: dict[str, Any] = json.loads(out)
    return result


def refused(vtrim: Vtrim, *arguments: object) -> str:
    code, out, err = vtrim("eval", *arguments)
    assert (code, out) == (2, ""), err
    line = err.splitlines()[-1]
    assert line.startswith("error: ")
    return line


def test_several_tasks_in_one_run_each_have_speed_and_scores(
    vtrim: Vtrim, where: list[object], questions: Path
) -> None:
    tasks = ["--task", "gsm8k:5", "--task", "mgsm", "--acceptor", "typical", "--temperature", 0.7]
    result = measured(vtrim, *where, *tasks)
    assert list(result["tasks"]) == ["gsm8k", "mgsm"]
    assert Path(result["artifact"]).name == "typical-ngram-gsm8k-mgsm.json"
    sums = result["tasks"]["gsm8k"]
    assert (sums["questions"], sums["prompts"], sums["metric"]) == (5, 5, "accuracy")
    assert sums["tokens"] == 30
    assert sums["tokens_per_second"] > 0
    assert sums["exact"]["acceptance_length"] >= 1
    scores = sums["scores"]
    assert set(scores) >= {"plain", "exact", "chosen", "change", "change_interval", "scored"}
    assert scores["scored"] == 5
    assert scores["change"] == scores["chosen"] - scores["plain"]
    assert result["prompts"] == 6
    assert [Path(row["origin"]).name for row in result["per_prompt"]] == [
        *(f"gsm8k_test.jsonl:{line}" for line in range(1, 6)), "mgsm_de.tsv:1",
    ]  # fmt: skip
    made = result["provenance"]
    assert made["prompts"] == "--task gsm8k:5 --task mgsm"
    assert [one["task"] for one in made["tasks"]] == ["gsm8k", "mgsm"]
    assert made["tasks"][0]["data"][0]["path"] == str(questions / "gsm8k_test.jsonl")


def test_later_turns_stand_behind_plain_greedy_replies_that_the_run_keeps(
    vtrim: Vtrim, where: list[object], tmp_path: Path
) -> None:
    first = measured(vtrim, *where, "--task", "mt-bench:2")
    rows = first["per_prompt"]
    assert [Path(row["origin"]).name for row in rows] == [
        f"mt_bench_question.jsonl:{line}" for line in (1, 1, 3, 3)
    ]
    lengths = [row["prompt_tokens"] for row in rows]
    assert lengths[0] < lengths[1]
    assert lengths[2] < lengths[3]
    task = first["tasks"]["mt-bench"]
    assert (task["questions"], task["prompts"], task["scores"]) == (2, 4, None)
    assert list(task["groups"]) == ["stem", "writing"]
    kept = (tmp_path / "run" / "earlier_replies.json").read_bytes()
    hot = ["--task", "mt-bench:2", "--temperature", 0.9, "--batch-size", 2]
    again = measured(vtrim, *where, *hot)
    assert [row["prompt_tokens"] for row in again["per_prompt"]] == lengths
    assert (tmp_path / "run" / "earlier_replies.json").read_bytes() == kept


def test_a_task_s_own_length_and_stops_hold_where_none_is_typed(
    vtrim: Vtrim, where: list[object]
) -> None:
    typed = where[: where.index("--max-new-tokens")]
    result = measured(vtrim, *typed, "--task", "gsm8k:1", "--stop", "the")
    assert result["settings"]["max_new_tokens"] == 512
    assert 1 < result["tokens"] < 512
    assert result["per_prompt"][0]["finish_reason"] in ("stop", "length")


def test_a_file_of_questions_is_scored_where_it_has_answers(
    vtrim: Vtrim, where: list[object], tmp_path: Path
) -> None:
    file = tmp_path / "mine.jsonl"
    rows = [{"question": "Who?", "answer": "zebra"}, {"question": "Why?"}, {"nothing": 1}]
    lines(file, *rows)
    at = where.index("--task-data") + 1
    result = measured(vtrim, *where[:at], file, *where[at + 1 :], "--task", "jsonl")
    scores = result["tasks"]["jsonl"]["scores"]
    assert (scores["scored"], scores["plain"], scores["chosen"]) == (1, 0.0, 0.0)
    assert result["prompts_skipped"] == {"no messages": 1}


def test_questions_without_answers_are_counted_and_none_left_stops(
    vtrim: Vtrim, where: list[object], questions: Path
) -> None:
    lines(questions / "gsm8k_test.jsonl", {"question": "1?"}, {"question": "2?", "answer": "3"})
    assert measured(vtrim, *where, "--task", "gsm8k")["prompts_skipped"] == {"no answer": 1}
    lines(questions / "gsm8k_test.jsonl", {"question": "1?"})
    line = refused(vtrim, *where, "--task", "gsm8k")
    assert "no prompt can be answered (no answer: 1 (" in line
    assert "gsm8k_test.jsonl:1" in line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--task", "gsm8"], "--task gsm8: no such task. Did you mean 'gsm8k'?"),
        (["--task", "gsm8k:0"], "--task gsm8k:0: give NAME or NAME:N"),
        (["--task", "gsm8k", "--task", "gsm8k:3"], "--task gsm8k: is given twice"),
        (["--task", "gsm8k", "--prompts", "x.jsonl"], "stands beside --prompts; give one"),
        (["--task-data", "x.jsonl"], "--task-data x.jsonl: only with --task"),
        (["--task", "gsm8k", "--task-data", "none"], "none: no such file or folder"),
        (["--task", "jsonl"], "--task jsonl: needs --task-data FILE"),
        (["--task", "humaneval"], "allow that with --allow-code-execution"),
        (["--allow-code-execution"], "only with a task that runs code"),
        (["--task", "gsm8k", "--allow-code-execution"], "only with a task that runs code"),
        (["--task", "gsm8k", "--offline"], "--offline keeps from the hub: name its file"),
    ],
)
def test_tasks_that_cannot_be_asked_are_refused_in_one_line(
    vtrim: Vtrim, tmp_path: Path, target: Path, options: list[object], said: str
) -> None:
    where = ["--run", tmp_path / "run", "--target", target, "--drafter", "ngram"]
    assert said in refused(vtrim, *where, *options)
    assert not (tmp_path / "run" / "eval").exists()


def test_a_sweep_sets_speed_against_a_task_s_score(vtrim: Vtrim, where: list[object]) -> None:
    vary = ["--task", "gsm8k:2", "--acceptor", "typical", "--temperature", 0.7]
    code, out, err = vtrim("sweep", *where, *vary, "--vary", "epsilon=0.1", "--json")
    assert code == 0, err
    (point,) = json.loads(out)["points"]
    assert point["tokens"] == 12
    assert point["score"] is not None
    assert point["plain_score"] is not None


def test_a_result_of_other_prompts_is_not_replaced_without_a_word(
    vtrim: Vtrim, where: list[object]
) -> None:
    def ran(*asked: object) -> str:
        code, out, err = vtrim("eval", *where, *asked, "--name", "same")
        assert code == 0, err
        assert "decoding 2 prompts, 4 replies in all." in err
        assert ("accuracy" in out) == ("gsm8k:2" in asked)
        return err

    warning = "is a result of other prompts and will be replaced"
    assert warning not in ran("--task", "gsm8k:2")
    assert warning not in ran("--task", "gsm8k:2")
    assert warning in ran("--task", "mt-bench:1")


def test_the_tasks_are_listed_with_metric_licence_and_source(vtrim: Vtrim) -> None:
    code, out, _ = vtrim("tasks", "--json")
    assert code == 0
    listed = {task["name"]: task for task in json.loads(out)["tasks"]}
    assert {"mt-bench", "gsm8k", "mmlu", "math500", "mgsm", "komt", "jsonl"} <= set(listed)
    assert listed["gsm8k"] == {
        **listed["gsm8k"],
        "metric": "accuracy", "licence": "MIT", "max_new_tokens": 512, "hub": ["openai/gsm8k"],
    }  # fmt: skip
    assert listed["mt-bench"]["metric"] is None
    assert listed["humaneval"]["runs_code"] is True
    code, out, _ = vtrim("tasks")
    assert code == 0
    assert all(name in out for name in listed)
