from __future__ import annotations

import pytest

from vtrim.chat.conversation import Origin, RowError
from vtrim.errors import OptionError
from vtrim.evaluation.tasks.table import TASKS, find_task, parse_task

HERE = Origin("rows.jsonl", 1)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_found_under_its_name_and_says_what_it_is(name: str) -> None:
    task = find_task(name)
    assert task.name == name
    assert task.title
    assert task.licence
    assert task.metric is None or task.metric
    assert task.max_new_tokens > 0
    assert task.total([]) is None


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("row", [{}, [], "text", None, 3, {"question": ""}, {"turns": [1]}])
def test_a_row_without_a_question_has_a_reason_and_is_no_traceback(name: str, row: object) -> None:
    for _, question in find_task(name).questions([(HERE, row)]):
        assert isinstance(question, RowError), (name, row)
        assert question.reason
        assert question.detail


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("gsm8k", {"question": "1 + 1?"}),
        ("gsm8k", {"question": "1 + 1?", "answer": "two"}),
        ("gsm8k", {"question": "1 + 1?", "answer": "it is\n####"}),
        ("gsm8k", {"question": "1 + 1?", "answer": True}),
        ("mgsm", ["1 + 1?"]),
        ("mgsm", {"question": "1 + 1?", "answer_number": None}),
        ("mmlu", {"question": "?", "choices": ["a", "b"]}),
        ("mmlu", {"question": "?", "choices": ["a", "b"], "answer": 2}),
        ("mmlu", ["?", "a", "b", "c", "d", "E"]),
        ("math500", {"problem": "?"}),
        ("aime24", {"Problem": "?", "Answer": ""}),
    ],
)
def test_a_row_without_an_answer_is_told_so(name: str, row: object) -> None:
    ((_, found),) = find_task(name).questions([(HERE, row)])
    assert isinstance(found, RowError)
    assert found.reason == "no answer"


@pytest.mark.parametrize(
    ("name", "file", "row", "content", "answer", "group"),
    [
        ("gsm8k", "a.jsonl", {"question": "1 + 1?", "answer": "1+1\n#### 2"},
         "Q: 1 + 1?\nA: Let's think step by step.", "2", ""),
        ("mgsm", "x/mgsm_de.tsv", ["1 + 1?", "2"],
         "Frage: 1 + 1?\nSchritt-für-Schritt-Antwort:", "2", "de"),
        ("mgsm", "org/mgsm:es[test]", {"question": "1 + 1?", "answer_number": 2},
         "Pregunta: 1 + 1?\nRespuesta paso a paso:", "2", "es"),
        ("mmlu", "world_religions_test.csv", ["Which?", "x", "y", "z", "w", "C"],
         "Q: Which?\n(A) x (B) y (C) z (D) w\nA: Let's think step by step.",
         ("(C)", ("x", "y", "z", "w")), "world_religions"),
        ("mmlu", "a.parquet",
         {"question": "Which? ", "choices": ["x", "y"], "answer": 1, "subject": "law"},
         "Q: Which?\n(A) x (B) y\nA: Let's think step by step.", ("(B)", ("x", "y")), "law"),
        ("math500", "a.jsonl", {"problem": "1 + 1?", "answer": " 2 ", "subject": "Algebra"},
         "1 + 1?\nPlease reason step by step, and put your final answer within \\boxed{}.",
         "2", "Algebra"),
        ("aime25", "a.jsonl", {"problem": "1 + 1?", "answer": 2},
         "1 + 1?\nPlease reason step by step, and put your final answer within \\boxed{}.",
         "2", ""),
        ("jsonl", "a.jsonl", {"prompt": "1 + 1?", "answer": [2, "two"], "category": "sums"},
         "1 + 1?", ("2", "two"), "sums"),
        ("jsonl", "a.jsonl",
         {"messages": [{"role": "user", "content": "1 + 1?"}, {"role": "assistant",
                                                               "content": "2"}]},
         "1 + 1?", None, ""),
        ("jsonl", "a.jsonl", {"question": "1 + 1?", "answer": "1 + 1\n#### 2"},
         "1 + 1?", ("2",), ""),
    ],
)  # fmt: skip
def test_rows_become_questions(
    name: str, file: str, row: object, content: str, answer: object, group: str
) -> None:
    ((_, question),) = find_task(name).questions([(Origin(file, 1), row)])
    assert not isinstance(question, RowError)
    assert question.messages[-1] == {"role": "user", "content": content}
    assert (question.answer, question.group) == (answer, group)


def test_spec_bench_s_share_of_mt_bench_is_one_part() -> None:
    rows = [
        (HERE, {"turns": ["a", "b"], "category": "writing"}),
        (HERE, {"turns": ["c"], "category": "rag"}),
    ]
    groups = [q.group for _, q in find_task("spec-bench").questions(rows) if hasattr(q, "group")]
    assert groups == ["multi-turn", "rag"]


def test_half_a_surrogate_pair_is_told_of() -> None:
    row = {"question": "\ud83d", "answer": "2"}
    ((_, found),) = find_task("gsm8k").questions([(HERE, row)])
    assert isinstance(found, RowError)
    assert found.reason == "unreadable content"


def test_an_unknown_task_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(OptionError, match=r"--task gsm8: no such task. Did you mean 'gsm8k'\?"):
        find_task("gsm8")


def test_a_number_of_questions_stands_behind_a_colon() -> None:
    assert parse_task("gsm8k") == ("gsm8k", None)
    assert parse_task("gsm8k:40") == ("gsm8k", 40)


@pytest.mark.parametrize("typed", ["gsm8k:", "gsm8k:0", "gsm8k:-1", "gsm8k:x", "gsm8k:1e3", "a:²"])
def test_a_number_that_is_none_is_refused(typed: str) -> None:
    with pytest.raises(OptionError, match=r"give NAME or NAME:N, e.g. gsm8k:40"):
        parse_task(typed)
