"""The model card of a draft that ``vtrim trim`` wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CARD = """\
---
{base}library_name: vtrim
{licence}
tags: [speculative-decoding, eagle3, vtrim]
---
# EAGLE-3 draft{whose} with {k:,} tokens

Another vocabulary for a trained draft ({layout} layout, {k_before:,} tokens), made by `vtrim trim`
without training: {kept:,} head rows are the old ones bit for bit, {dropped:,} are gone, {added:,}
are new. Everything else is unchanged.
{rows}
Licence: that of the draft it was made from.
"""
_ROWS = """
Rows of new tokens come from the target's head through a linear map, fitted on {common:,} tokens
that both heads have; trained rows left out of the fit come back with a relative error of
{relative_error:.3f} (cosine {cosine:.3f}).
"""


_FRONT_MATTER = re.compile(r"\A---\s*?\n(.*?)\n---\s*?(?:\n|\Z)", re.DOTALL)
_ENTRY = re.compile(
    r"^(base_model|license(?:_name|_link)?)[ \t]*:.*(?:\n(?:[ \t-].*))*", re.MULTILINE
)


def origin_lines(folder: Path) -> dict[str, str]:
    """Base model and licence in the card of the draft that was trimmed, as they stand there."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    front = _FRONT_MATTER.match(text)
    found = _ENTRY.finditer(front[1]) if front else ()
    return {entry[1]: entry[0].rstrip() for entry in found}


def trim_card(facts: dict[str, Any], target: str | None, origin: Mapping[str, str]) -> str:
    """Markdown with a front matter that model hubs read; ``origin`` is of the draft before."""
    base = origin.get("base_model") or (f"base_model: {target}" if target else "")
    licence = [line for name, line in origin.items() if name.startswith("license")]
    fit = facts["new_rows"]
    return _CARD.format(
        **{name: facts[name] for name in ("k", "layout", "k_before", "kept", "dropped", "added")},
        base=f"{base}\n" if base else "",
        licence="\n".join(licence) or "license: other",
        whose=f" for {target}" if target else "",
        rows=_ROWS.format(**fit) if fit else "",
    )
