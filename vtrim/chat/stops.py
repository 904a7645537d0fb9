"""The tokens that end a reply: every draft vocabulary has to hold them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vtrim.chat.template import ChatTemplate


def stop_ids(
    tokenizer: Any, generation_config: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[int, ...]:
    """Ids that end generation, ascending, each once.

    They are the tokenizer's EOS, the ``eos_token_id`` of generation_config.json and config.json
    (one or several), and the token that closes a reply in the chat template. Ids beyond the
    tokenizer (padding rows of the head) are left out.
    """
    text_config = config.get("text_config")
    found = _ids(tokenizer.eos_token_id) | _ids(generation_config.get("eos_token_id"))
    found |= _ids(config.get("eos_token_id"))
    if isinstance(text_config, Mapping):
        found |= _ids(text_config.get("eos_token_id"))
    if tokenizer.chat_template:
        found |= _ids(ChatTemplate(tokenizer).end_of_turn_id)
    return tuple(sorted(token for token in found if 0 <= token < len(tokenizer)))


def _ids(value: Any) -> set[int]:
    """The ids in an int, a list of ints or nothing."""
    if value is None:
        return set()
    return {int(token) for token in (value if isinstance(value, list | tuple) else [value])}
