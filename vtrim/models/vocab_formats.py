"""Names of the vocabulary files that ``vtrim vocab`` reads and writes."""

from __future__ import annotations

from vtrim.errors import OptionError

FORMATS = (
    *("vtrim", "specforge", "speculators", "modelopt"),
    *("fr-spec", "hot-token-ids", "json", "text"),
)
ALIASES = {"sglang": "hot-token-ids", "eagle": "specforge"}  # who reads it: what it is called here


def known_format(file_format: str | None) -> str | None:
    """The format by its own name; refuses one that does not exist.

    Raises:
        OptionError: names those that do.
    """
    name = ALIASES.get(file_format or "", file_format)
    if name is not None and name not in FORMATS:
        known = ", ".join((*FORMATS, *(f"{alias} (= {own})" for alias, own in ALIASES.items())))
        raise OptionError(f"--format {file_format}: unknown. Known: {known}.")
    return name
