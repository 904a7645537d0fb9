"""The model card of a draft that ``vtrim trim`` wrote."""

from __future__ import annotations

from typing import Any

_CARD = """\
---
{base}library_name: vtrim
license: other
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


def trim_card(facts: dict[str, Any], target: str | None) -> str:
    """Markdown with a front matter that model hubs read."""
    fit = facts["new_rows"]
    return _CARD.format(
        **{name: facts[name] for name in ("k", "layout", "k_before", "kept", "dropped", "added")},
        base=f"base_model: {target}\n" if target else "",
        whose=f" for {target}" if target else "",
        rows=_ROWS.format(**fit) if fit else "",
    )
