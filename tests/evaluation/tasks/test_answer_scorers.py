"""Replies written for these tests, each checked by hand against the published scorers' rules."""

from __future__ import annotations

import pytest

from vtrim.chat.conversation import Origin
from vtrim.evaluation.tasks.competition import AIME24, MATH500
from vtrim.evaluation.tasks.gsm8k import GSM8K, MGSM
from vtrim.evaluation.tasks.latex import equivalent, final_answer, spelling
from vtrim.evaluation.tasks.mmlu import MMLU, chosen
from vtrim.evaluation.tasks.own_rows import JSONL, is_right
from vtrim.evaluation.tasks.task import Question, Score, Task

HERE = Origin("rows.jsonl", 1)


def question(answer: object) -> Question:
    return Question(origin=HERE, messages=({"role": "user", "content": "?"},), answer=answer)


def scored(task: Task, answer: object, reply: str) -> Score:
    found = task.score(question(answer), reply)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("answer", "reply", "right"),
    [
        ("18", "Sixteen less seven is nine. 9 * 2 = 18", 1),
        ("18", "She earns $18.", 1),
        ("18", "She earns **18** dollars a day.", 1),
        ("18", "It is 18, not 17", 0),
        ("18", "18 eggs less 7 are 11 eggs", 0),
        ("18", "The result is 18.00", 0),
        ("18", "The result is 1,8", 1),
        ("70000", "So the gain is $70,000.", 1),
        ("70000", "So the gain is 70 000", 0),
        ("70000", "So the gain is 70.000", 0),
        ("1,450", "1450", 1),
        ("-4", "It changes by -4 degrees.", 1),
        ("-4", "It changes by 4 degrees.", 0),
        ("4", "It falls by -4 degrees.", 0),
        ("0.5", "Each gets 0.5", 1),
        ("0.5", "Each gets .5", 0),
        ("3", "I cannot tell.", 0),
        ("3", "", 0),
        ("3", "#### 3", 1),
        ("3", "The answer is 3. That is all...", 0),
        ("3", "The answer is 3! Really, 3 it is", 1),
        ("5", "1) a 2) b 3) five", 0),
    ],
)
def test_gsm8k_the_last_number_reads_like_the_answer(answer: str, reply: str, right: int) -> None:
    assert scored(GSM8K, answer, reply).value == right


@pytest.mark.parametrize(
    ("answer", "reply", "numeric"),
    [("18", "It is 18.00", 1), ("3", "It is 3. Yes...", 1), ("18", "It is 17.", 0), ("3", "", 0)],
)
def test_gsm8k_the_part_numeric_compares_values(answer: str, reply: str, numeric: int) -> None:
    assert scored(GSM8K, answer, reply).parts == {"numeric": numeric}


@pytest.mark.parametrize(
    ("answer", "reply", "right"),
    [
        ("18", "Sie verdient 18 Dollar am Tag.", 1),
        ("18", "Elle gagne 18 $ par jour.", 1),
        ("18", "彼女は毎日18ドルを手に入れます。", 1),
        ("18", "她每天赚18美元。", 1),
        ("18", "Она получает 18 долларов.", 1),
        ("18", "Gana 17 dólares.", 0),
        ("70000", "Der Gewinn beträgt 70.000 US-Dollar.", 1),
        ("70000", "La ganancia es de 70,000 dólares.", 1),
        ("70000", "La ganancia es de $70000.", 1),
        ("70000", "Le gain est de 70 000 $.", 0),
        ("70000", "7万ドルです。", 0),
        ("540", "3 mal 3 mal 60 sind 540", 1),
        ("540", "540 Meter, also 0,54 km", 0),
        ("3", "2 + 1 = 3", 1),
        ("3", "3.0", 0),
        ("3", "3.", 1),
        ("3", "三", 0),
        ("3", "", 0),
        ("20", "Ответ: 20", 1),
        ("20", "Ответ: 20, не 21", 0),
        ("-5", "Es sind 5 Grad.", 1),
    ],
)
def test_mgsm_the_last_number_has_the_answers_digits(answer: str, reply: str, right: int) -> None:
    assert scored(MGSM, answer, reply).value == right


CHOICES = ("iron", "gold", "light blue", "None of these.")


@pytest.mark.parametrize(
    ("right", "reply", "value"),
    [
        ("(B)", "Gold does not rust. The answer is (B).", 1),
        ("(B)", "(A) is wrong. (B)", 1),
        ("(A)", "(A) is right, (B) is not", 0),
        ("(A)", "(a)", 0),
        ("(C)", "The answer is (C) light blue", 1),
        ("(C)", "It must be light blue.", 1),
        ("(C)", "It must be Light Blue", 1),
        ("(C)", "It must be light-blue.", 0),
        ("(B)", "Neither iron nor light blue, but GOLD!", 1),
        ("(A)", "Not gold but iron", 1),
        ("(A)", "Not iron but gold", 0),
        ("(D)", "None of these", 1),
        ("(D)", "None of these fits", 1),
        ("(B)", "Answer: B", 1),
        ("(B)", "Answer:\nB", 1),
        ("(B)", "Answer B", 0),
        ("(B)", "B", 0),
        ("(B)", "", 0),
        ("(B)", "The answer is (E).", 0),
        ("(A)", "Environs matter", 1),
        ("(D)", "(D) None of these. (D)", 1),
        ("(C)", "Options: A or B? I say: C", 1),
    ],
)
def test_mmlu_a_letter_in_brackets_then_a_choice_spelled_out_then_a_letter_behind_a_colon(
    right: str, reply: str, value: int
) -> None:
    assert scored(MMLU, (right, CHOICES), reply).value == value


def test_mmlu_choices_of_punctuation_alone_are_never_spelled_out() -> None:
    assert chosen("nothing at all", ["+", "?!", "--", "."]) is None
    assert chosen("say: C", ["?", "!", "--", "."]) == "(C)"


@pytest.mark.parametrize(
    ("answer", "reply", "right"),
    [
        ("42", r"Thus \boxed{42}.", 1),
        ("42", r"Thus $\boxed{42}$.", 1),
        ("42", r"First \boxed{41}, then \boxed{42}", 1),
        ("42", r"First \boxed{42}, then \boxed{41}", 0),
        ("42", "The answer is $42$.", 1),
        ("42", "Since $x = 7$, we get $42$", 0),
        ("42", "42", 1),
        ("42", "The answer is 42", 0),
        ("42", r"\boxed{42", 0),
        ("42", r"$\boxed 42$", 1),
        (r"\frac{1}{2}", r"\boxed{\dfrac{1}{2}}", 1),
        (r"\frac{1}{2}", r"\boxed{\frac12}", 1),
        (r"\frac{1}{2}", r"\boxed{1/2}", 1),
        (r"\frac{1}{2}", r"\boxed{0.5}", 1),
        (r"\frac{1}{4}", r"\boxed{0.25}", 0),
        (r"3\sqrt{2}", r"\boxed{3\sqrt2}", 1),
        (r"\left( 3, \frac{\pi}{2} \right)", r"\boxed{(3,\frac{\pi}{2})}", 1),
        (r"\left( 3, \frac{\pi}{2} \right)", r"\boxed{(3, \pi/2)}", 0),
        ("90", r"\boxed{90^\circ}", 1),
        ("90", r"\boxed{90^{\circ}}", 1),
        ("5", r"\boxed{x=5}", 1),
        ("5", r"\boxed{5 \text{ cm}}", 1),
        (r"\text{Evelyn}", r"\boxed{Evelyn}", 0),
        ("50", r"\boxed{50\%}", 1),
        ("8000", r"\boxed{8,000}", 0),
        (".35625", r"\boxed{0.35625}", 1),
        ("p - q", r"\boxed{p-q}", 1),
        ("p - q", r"\boxed{-q+p}", 0),
        ("6 - 5i", r"\boxed{6-5i}", 1),
        ("3", "", 0),
    ],
)
def test_math500_and_aime_the_boxed_answer_has_the_same_spelling(
    answer: str, reply: str, right: int
) -> None:
    assert scored(MATH500, answer, reply).value == right
    assert scored(AIME24, answer, reply).value == right


def test_answers_that_cannot_be_read_are_compared_as_they_stand() -> None:
    for odd in (r"\sqrt", r"a/b", r"2\text{ m}\text{ s}", r"\frac"):
        with pytest.raises(ValueError, match=r".*"):
            spelling(odd)
        assert equivalent(odd, odd)
        assert not equivalent(odd, "1")


def test_an_unclosed_box_leaves_what_stands_between_dollars() -> None:
    assert final_answer(r"$7$ and \boxed{8") == "7"
    assert final_answer(r"\boxed{a{b}c} and more") == "a{b}c"
    assert final_answer(r"\fbox{8}") == r"\fbox{8}"


@pytest.mark.parametrize(
    ("answer", "reply", "right"),
    [
        ("18", "So she has 18.00 dollars.", 1),
        ("18", "18 or 19", 0),
        ("1,000", "It is 1000 in all", 1),
        ("1000", "It is 1,000 in all", 1),
        ("-4", "It fell by -4", 1),
        ("-4", "It fell by 4", 0),
        ("2.50", "2.5 euros", 1),
        ("7", "seven", 0),
        ("7", "", 0),
        ("Paris", "It is Paris.", 1),
        ("Paris", "it is PARIS", 1),
        ("Paris", "A Parisian café", 0),
        ("Paris", "Lyon", 0),
        ("New York", "in New\n  York, of course", 1),
        ("New York", "in York, the new one", 0),
        ("C++", "I would use C++ here", 1),
        ("no", "I know", 0),
        ("no", "No, never", 1),
        ("Paris in 1900", "That was Paris in 1900!", 1),
        ("Straße", "in der STRASSE", 1),
    ],
)
def test_own_rows_numbers_by_value_and_texts_as_whole_words(
    answer: str, reply: str, right: int
) -> None:
    assert is_right(reply, answer) is bool(right)
    assert scored(JSONL, (answer,), reply).value == right


def test_own_rows_any_of_several_answers_is_right_and_without_one_nothing_is_scored() -> None:
    assert scored(JSONL, ("Rome", "Roma"), "Siamo a Roma").value == 1
    assert JSONL.score(question(None), "Siamo a Roma") is None
