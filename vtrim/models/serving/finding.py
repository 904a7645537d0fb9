"""One thing that an engine will do with a draft folder, and how that is known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["refuses", "silently differs", "note"]
Evidence = Literal["run", "code", "report", "unverified"]

VLLM, SGLANG, TRT, EAGLE = "vLLM", "SGLang", "TensorRT-LLM", "EAGLE"
ENGINES = (VLLM, SGLANG, TRT, EAGLE)
VERSIONS = {
    VLLM: "0.32.0",
    SGLANG: "0.5.23",
    TRT: "main of 2026-08",
    EAGLE: "cb7e0841",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What an engine does with one trait of the folder.

    verdict: "refuses" stops, at the start or at the first proposal; "silently differs" loads and
    drafts something else than the draft was trained for; "note" loads. evidence: seen in a run,
    read in its code, reported by others, or not verified.
    """

    engine: str
    verdict: Verdict
    what: str
    remedy: str
    evidence: Evidence

    def to_dict(self) -> dict[str, str]:
        """The fields of ``--json``, less the engine."""
        return {
            "verdict": self.verdict,
            "what": self.what,
            "remedy": self.remedy,
            "evidence": self.evidence,
        }


def refuses(
    engines: str | Iterable[str], what: str, remedy: str, evidence: Evidence = "code"
) -> Iterator[Finding]:
    """The same refusal for one or several engines."""
    return _each("refuses", engines, what, remedy, evidence)


def differs(
    engines: str | Iterable[str], what: str, remedy: str, evidence: Evidence = "code"
) -> Iterator[Finding]:
    """The same silent difference for one or several engines."""
    return _each("silently differs", engines, what, remedy, evidence)


def notes(
    engines: str | Iterable[str], what: str, remedy: str, evidence: Evidence = "code"
) -> Iterator[Finding]:
    """The same remark for one or several engines."""
    return _each("note", engines, what, remedy, evidence)


def _each(
    verdict: Verdict,
    engines: str | Iterable[str],
    what: str,
    remedy: str,
    evidence: Evidence,
) -> Iterator[Finding]:
    for engine in (engines,) if isinstance(engines, str) else engines:
        yield Finding(engine=engine, verdict=verdict, what=what, remedy=remedy, evidence=evidence)
