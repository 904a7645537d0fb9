"""Replies whose last number is the answer: GSM8K's and MGSM's rule, and a freer one."""

from __future__ import annotations

import re
import string
from decimal import Decimal

from vtrim.evaluation.tasks.task import Score

MARK = "####"  # GSM8K's, before the answer
_PUBLISHED = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
"""lm-evaluation-harness 0.4.13, gsm8k, ``flexible-extract``: its last match is the answer."""
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")


def number_score(reply: str, answer: str) -> Score:
    """1 where the reply's last number reads like the answer, as lm-evaluation-harness reads it.

    Commas, dollar signs and a full stop behind it count for nothing; 18.00 is not 18. The part
    ``numeric`` compares values instead: there it is.
    """
    matches = _PUBLISHED.findall(reply)
    same = bool(matches) and _bare(matches[-1]) == _bare(answer)
    found = last_number(reply)
    numeric = found is not None and found == last_number(answer)
    return Score(value=float(same), parts={"numeric": float(numeric)})


def digits_score(reply: str, answer: str) -> Score:
    """1 where the reply's last number has the answer's digits: 70.000 and 70,000 are 70000.

    So lm-evaluation-harness reads MGSM, whose languages part thousands in several ways.
    """
    matches = _PUBLISHED.findall(reply)
    return Score(value=float(bool(matches) and _digits(matches[-1]) == _digits(answer)))


def last_number(text: str) -> Decimal | None:
    """The last number in a text, thousands separated by commas or not; None without one."""
    found = _NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None


def is_number(text: str) -> bool:
    """Whether a text is one number and nothing else."""
    return _NUMBER.fullmatch(text.strip()) is not None


def _digits(text: str) -> str:
    return text.translate(_NO_PUNCTUATION)


def _bare(text: str) -> str:
    kept = text.rpartition(MARK)[2].strip().replace(",", "").replace("$", "")
    return kept.removesuffix(".").lower()
