"""What ends a reply besides its length: stop tokens, and texts that stop it where they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vtrim.errors import OptionError

_SPARE_TOKENS = 8  # read before the longest text: tokens may hold part of a character, or nothing


class Stops:
    """Stop ids and stop strings.

    Raises:
        OptionError: stop strings without a tokenizer, or an empty one.
    """

    def __init__(self, ids: frozenset[int], strings: Sequence[str], tokenizer: Any) -> None:
        if strings and tokenizer is None:
            raise OptionError("stop strings need the target's tokenizer: Engine(..., tokenizer=).")
        if "" in strings:
            raise OptionError("an empty stop string would end every reply at once.")
        self.ids = ids
        self.strings = tuple(strings)
        self.tokenizer = tokenizer
        longest = max((len(string.encode()) for string in strings), default=0)
        self._span = longest + _SPARE_TOKENS  # a token that counts holds a byte at least

    def first(self, tokens: Sequence[int], start: int, new: Sequence[int]) -> int | None:
        """Index in ``new`` of the token that ends the reply; None if none does.

        tokens: all before them; the reply, which holds no stop yet, starts at ``start``.
        """
        window = list(tokens[max(start, len(tokens) - self._span) :]) if self.strings else []
        for index, token in enumerate(new):
            if token in self.ids:
                return index
            if self.strings:
                window.append(token)
                text = self.tokenizer.decode(
                    window[-self._span :],
                    skip_special_tokens=False,
                    clean_up_tokenization_spaces=False,
                )
                if any(string in text for string in self.strings):
                    return index
        return None
