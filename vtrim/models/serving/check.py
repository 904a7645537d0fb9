"""The check of ``vtrim export --check``: for each engine, what it will do with a draft folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtrim.errors import VtrimError
from vtrim.models.importing import ImportTarget, import_draft
from vtrim.models.serving.config_rules import config_rules
from vtrim.models.serving.finding import ENGINES, VERSIONS, Finding
from vtrim.models.serving.folder import DraftFolder, Served, read_folder
from vtrim.models.serving.state_rules import state_rules
from vtrim.models.serving.tensor_rules import tensor_rules
from vtrim.models.serving.variant_rules import variant_rules
from vtrim.models.serving.vocab_rules import vocab_rules

LOADS, DIFFERS, REFUSES = "loads", "silently differs", "refuses"
_ORDER = (REFUSES, DIFFERS, "note")


def check_folder(folder: Path, target: Served | None = None) -> dict[str, Any]:
    """Each engine's verdict with its findings, the gravest first.

    target: what the draft is to be served with; without it, findings that need it are left out.

    Raises:
        InputError: there is no config or no weights to judge.
    """
    draft = read_folder(folder, target)
    found = findings(draft)
    return {
        engine: {
            "verdict": _verdict([f for f in found if f.engine == engine]),
            "version": VERSIONS[engine],
            "findings": [
                f.to_dict()
                for f in sorted(found, key=lambda f: _ORDER.index(f.verdict))
                if f.engine == engine
            ],
        }
        for engine in ENGINES
    }


def findings(draft: DraftFolder) -> list[Finding]:
    """All findings, in the order of the rules."""
    rules = (tensor_rules, config_rules, vocab_rules, state_rules, variant_rules)
    return [finding for rule in rules for finding in rule(draft)]


def own_verdict(folder: Path, target: ImportTarget | None) -> Mapping[str, Any]:
    """What vtrim itself makes of the folder: it reads a draft or refuses it by name."""
    try:
        draft = import_draft(folder, target)
    except VtrimError as error:
        return {"verdict": REFUSES, "findings": [{"verdict": REFUSES, "what": str(error)}]}
    notes = [{"verdict": "note", "what": note} for note in draft.notes]
    return {"verdict": LOADS, "layout": draft.layout, "findings": notes}


def _verdict(found: list[Finding]) -> str:
    kinds = {finding.verdict for finding in found}
    return next((kind for kind in (REFUSES, DIFFERS) if kind in kinds), LOADS)
