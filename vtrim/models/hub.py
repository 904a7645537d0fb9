"""Names to model folders, tokenizers and configs; nothing here needs torch."""

from __future__ import annotations

import json
import ssl
from functools import cache
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from vtrim.artifacts import fingerprint_bytes
from vtrim.errors import InputError
from vtrim.models.smollm2 import SMOLLM2, ensure_smollm2

_PATIENCE = 5.0  # [s] until a hub that does not answer is not asked again


def resolve_model(name: str) -> str:
    """The folder or hub id to load: the built-in target is unpacked on first use.

    Raises:
        InputError: it is a folder's name, and there is none.
    """
    if is_missing(name):
        raise InputError(f"{name}: no such folder.")
    return str(ensure_smollm2()) if name == SMOLLM2 else name


def load_tokenizer(
    name: str,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    offline: bool = False,
) -> Any:
    """The tokenizer of a hub id, a local folder or ``smollm2``.

    Raises:
        InputError: none can be loaded from there.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            resolve_model(name),
            revision=revision,
            trust_remote_code=trust_remote_code,
            local_files_only=here_only(name, offline=offline),
        )
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{name}: no tokenizer can be loaded ({_first_line(error)})") from error


def load_config(
    name: str,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    offline: bool = False,
) -> dict[str, Any]:
    """The target's ``config.json`` as a mapping, with the defaults its model class fills in.

    Raises:
        InputError: there is none, or it is not a model's config.
    """
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            resolve_model(name),
            revision=revision,
            trust_remote_code=trust_remote_code,
            local_files_only=here_only(name, offline=offline),
        )
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{name}: no model config can be loaded ({_first_line(error)})") from error
    values: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    # Where it lay and who read it are no part of a model: its fingerprint must not depend on them.
    return {k: v for k, v in values.items() if k not in ("_name_or_path", "transformers_version")}


def load_generation_config(
    name: str, *, revision: str | None = None, offline: bool = False
) -> dict[str, Any]:
    """The target's ``generation_config.json``; empty when it ships none."""
    from transformers import GenerationConfig

    try:
        config = GenerationConfig.from_pretrained(
            resolve_model(name),
            revision=revision or "main",
            local_files_only=here_only(name, offline=offline),
        )
    except OSError:
        return {}
    values: dict[str, Any] = config.to_dict()
    return values


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Fingerprint of what decides ids and masks: vocabulary, merges, added tokens, template."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        body = json.dumps(tokenizer.get_vocab(), sort_keys=True, ensure_ascii=False)
    else:
        backend.no_truncation()  # left there by whoever encoded last; part of the text form
        backend.no_padding()
        body = backend.to_str()
    return fingerprint_bytes(f"{body}\0{tokenizer.chat_template or ''}".encode())


def is_missing(name: str) -> bool:
    """Whether ``name`` can only be a folder, as it begins with / or ., and is not there."""
    return name.startswith(("/", ".")) and not Path(name).exists()


def is_local(name: str) -> bool:
    """Whether ``name`` is a folder on this machine."""
    return Path(name).is_dir()


def here_only(name: str, *, offline: bool) -> bool:
    """Whether a model is looked for on this machine alone: as asked, or as no hub answers.

    transformers asks a hub that is not there six times for each file, for minutes in all.
    """
    return offline or not (name == SMOLLM2 or is_local(name) or _hub_answers())


@cache
def _hub_answers() -> bool:
    """Whether the hub can be reached; a certificate that is not trusted is its clients' matter."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        with urlopen(Request(constants.ENDPOINT, method="HEAD"), timeout=_PATIENCE):  # noqa: S310
            return True
    except (HTTPError, HTTPException):
        return True
    except OSError as error:
        reason = error.reason if isinstance(error, URLError) else error
        return isinstance(reason, ssl.SSLError)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
