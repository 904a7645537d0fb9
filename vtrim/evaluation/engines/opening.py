"""Running servers: which engine answers at an address, and with which model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.evaluation.engines.completions import CompletionServer
from vtrim.evaluation.engines.http_lines import LineServer
from vtrim.evaluation.engines.reply import EngineInfo
from vtrim.evaluation.engines.sglang_server import SGLANG, SglangServer, sglang_info
from vtrim.evaluation.engines.vllm_server import OWN_LENGTH, VLLM, VllmServer, drafts, read_counters

_UNKNOWN = "openai"
_TOKENS_OVER_ROUNDS = "reply tokens / iterations, the prefill's counted as the engine does"


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """An address as it was typed. option: with which option; key: sent, never shown.

    model: one of the server's, None where it has only one; timeout: [s] without a byte.
    """

    url: str
    option: str
    model: str | None
    key: str | None
    timeout: float


def open_server(address: ServerAddress, *, only_vllm: bool) -> CompletionServer:
    """The engine at an address, ready to be asked. only_vllm: no other will do.

    Raises:
        OptionError: the address is none, or the model is not the server's.
        InputError: the server cannot be reached, or is no such server.
    """
    http = LineServer(address.url, address.option, key=address.key, timeout=address.timeout)
    entry = _model(http, address)
    name, model = str(entry.get("owned_by") or _UNKNOWN), str(entry["id"])
    shown = {"through": "server", "server": http.base, "model": model}
    if name == VLLM or only_vllm:
        return _open_vllm(http, model, entry, shown)
    if name == SGLANG:
        info = sglang_info(http)
        return SglangServer(http, model, replace(info, settings={**shown, **info.settings}))
    version = (http.facts("/version") or {}).get("version")
    info = EngineInfo(name=name, version=version, settings=shown, own_length=_TOKENS_OVER_ROUNDS)
    return CompletionServer(http, model, info)


def _open_vllm(
    http: LineServer, model: str, entry: Mapping[str, Any], shown: Mapping[str, Any]
) -> CompletionServer:
    """Raises: InputError when its counters cannot be read."""
    found = read_counters(http)
    info = EngineInfo(
        name=VLLM,
        version=(http.facts("/version") or {}).get("version"),
        settings=shown,
        drafts=drafts(found),
        lossless=True,  # unless it was started with a rule for tests of its own
        own_length=OWN_LENGTH,
        context_length=entry.get("max_model_len"),
    )
    return VllmServer(http, model, info)


def check_roles(server: CompletionServer, plain: CompletionServer | None) -> None:
    """Refuses a server with the draft that has none, and a plain one that has one.

    Raises:
        MismatchError: says which, as far as the servers say it.
    """
    if server.info.drafts is False:
        raise MismatchError(
            f"--server {server.http.base}: decodes without a draft. Start it with one: "
            "`vtrim export --show-launch` prints how."
        )
    if plain is None:
        return
    if plain.info.drafts:
        raise MismatchError(
            f"--plain-server {plain.http.base}: decodes with a draft; start one without."
        )
    if plain.info.name != server.info.name or plain.info.version != server.info.version:
        its, other = (f"{i.name} {i.version or ''}".strip() for i in (server.info, plain.info))
        raise MismatchError(
            f"--plain-server {plain.http.base}: is {other}, not {its}: the speed-up would be that "
            "of another engine."
        )


def _model(http: LineServer, address: ServerAddress) -> Mapping[str, Any]:
    """The server's entry of the model that is meant."""
    listed = (http.facts("/v1/models") or {}).get("data")
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise InputError(
            f"{address.option} {http.base}: no OpenAI-compatible server: it lists no models at "
            "/v1/models."
        )
    names = [str(one.get("id")) for one in listed]
    if address.model is not None and address.model not in names:
        raise OptionError(
            f"--server-model {address.model}: {http.base} serves {', '.join(names) or 'nothing'}."
        )
    if address.model is None and len(names) != 1:
        raise OptionError(
            f"{http.base} serves {', '.join(names) or 'nothing'}: choose one with --server-model."
        )
    return next(one for one in listed if address.model in (None, str(one.get("id"))))
