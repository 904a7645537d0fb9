"""Values of the rules' options, refused in one line where they cannot work."""

from __future__ import annotations

import math

from vtrim.errors import OptionError


def check_range(
    option: str, value: float, least: float, most: float = math.inf, *, hint: str = ""
) -> None:
    """Refuses a value outside [least, most].

    Raises:
        OptionError: it is outside, infinite or no number.
    """
    if math.isfinite(value) and least <= value <= most:
        return
    bounds = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:.4g}"
    raise OptionError(f"{option}={value:g} must be {bounds}{hint and f' ({hint})'}.")
