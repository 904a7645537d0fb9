"""Replies from an OpenAI-compatible server: vLLM, SGLang, llama.cpp, TGI and others."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from vtrim.chat.tool_calls import CallForm
from vtrim.chat.turns import LEFT_OUT
from vtrim.decoding.http_json import JsonServer, RequestRefused, TryAgain, message_of
from vtrim.decoding.regenerate import Request
from vtrim.errors import OptionError

# what makes a server tell token ids; vLLM and SGLang since 2026-07 know the first
ASK_IDS: dict[str, Any] = {"return_token_ids": True}
ASK_IDS_SGLANG: dict[str, Any] = {
    **ASK_IDS,
    "return_prompt_token_ids": True,
    "return_meta_info": True,
    "logprobs": True,  # the meta information tells ids beside their log probabilities only
}
# by owned_by of /models: what undoes a server's own defaults (of generation_config.json, or built
# in), so that temperature and top_p alone make the law, as they do in this process
_NO_LIMITS: dict[str, Any] = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
PLAIN_LAW: dict[str, dict[str, Any]] = {
    "vllm": _NO_LIMITS,
    "sglang": _NO_LIMITS,
    "llamacpp": {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0},
}
ENDED = {"stop": "stop", "tool_calls": "stop", "function_call": "stop", "length": "length"}
_OPENAI_CALLS = CallForm(null_content=True, as_text=True)
_PATH = "/chat/completions"
_REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True)
class ServedReply:
    """A reply as the server gave it; ``ids`` of prompt and reply where it told them.

    finish_reason: ``stop`` or ``length``; tokens: of the reply, 0 where the server does not say.
    """

    message: dict[str, Any]
    finish_reason: str
    ids: tuple[list[int], list[int]] | None
    tokens: int


class ChatServer:
    """One model behind a server. law: max_new_tokens, temperature, top_p, seed.

    Raises:
        OptionError: the model is not served, or none is named and not exactly one is served.
        InputError: the server cannot be reached.
    """

    def __init__(self, server: JsonServer, model: str | None, law: dict[str, Any]) -> None:
        self._server = server
        entries = server.get("/models").get("data")
        served = {
            str(entry["id"]): entry
            for entry in (entries if isinstance(entries, list) else [])
            if isinstance(entry, dict) and "id" in entry
        }
        self.model = _pick(model, list(served), server.base)
        self._law = law
        owner = str(served[self.model].get("owned_by"))
        self._plain = PLAIN_LAW.get(owner, {})
        self._ask_ids = ASK_IDS_SGLANG if owner == "sglang" else ASK_IDS
        self._lock = threading.Lock()

    @property
    def base(self) -> str:
        """The server's address."""
        return self._server.base

    def abort(self) -> None:
        """Ends all requests in flight."""
        self._server.abort()

    def reply(self, request: Request) -> ServedReply:
        """The reply to one request.

        Raises:
            RequestRefused: the server does not take this row.
            InputError: it fails for good.
        """
        asked = self._ask_ids
        body = self._body(request)
        try:
            return self._server.post(_PATH, {**body, **asked}, parse_reply)
        except RequestRefused as refusal:
            if not any(name in str(refusal) for name in asked):
                raise
            with self._lock:
                self._ask_ids = {}  # it does not know the option: no row gets ids
            return self._server.post(_PATH, body, parse_reply)

    def _body(self, request: Request) -> dict[str, Any]:
        law = self._law
        body: dict[str, Any] = {
            "model": self.model,
            "messages": wire_messages(request.messages),
            "max_tokens": law["max_new_tokens"],
            "temperature": law["temperature"],
            "top_p": law["top_p"],
            **self._plain,
        }
        if law["temperature"] > 0:
            body["seed"] = row_seed(law["seed"], request.row)
        if request.extras.get("tools"):
            body["tools"] = [_tool(tool) for tool in request.extras["tools"]]
        return body


def parse_reply(answer: dict[str, Any]) -> ServedReply:
    """The reply in an answer to a chat completion.

    Raises:
        RequestRefused: the server withheld the reply. TryAgain: it is none, or not a whole one.
    """
    try:
        choice = answer["choices"][0]
        said, reason = choice["message"], choice["finish_reason"]
        content = said.get("content") or ""
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        shown = message_of(json.dumps(answer).encode())
        raise TryAgain(f"the answer is no chat completion: {shown}") from error
    if reason == "content_filter":
        raise RequestRefused("finish_reason content_filter")
    if reason not in ENDED:
        raise TryAgain(f"the reply ended with finish_reason {reason!r}")
    message = {"role": "assistant", "content": content}
    if thought := next((said[key] for key in _REASONING if said.get(key)), None):
        message["reasoning_content"] = thought
    if said.get("tool_calls"):
        message["tool_calls"] = said["tool_calls"]
    ids = _ids(answer, choice)
    usage = answer.get("usage")
    counted = usage.get("completion_tokens") if isinstance(usage, dict) else None
    tokens = len(ids[1]) if ids else int(counted or 0)
    return ServedReply(message, ENDED[reason], ids, tokens)


def wire_messages(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as the API takes them: calls with ids, their results with the id they answer."""
    wired, waiting, count = [], list[str](), 0
    for message in messages:
        sent = _OPENAI_CALLS.apply(message)
        sent = {key: sent[key] for key in sent if key not in (LEFT_OUT, "weight")}
        if sent["role"] == "assistant" and sent.get("tool_calls"):
            calls = []
            for call in sent["tool_calls"]:
                count += 1
                calls.append({"id": f"call{count:05d}", **call})
            sent["tool_calls"] = calls
            waiting = [call["id"] for call in calls]
        elif sent["role"] == "tool":
            answered = sent.get("tool_call_id") or (waiting[0] if waiting else "call00000")
            sent["tool_call_id"] = answered
            waiting = [one for one in waiting if one != answered]
        wired.append(sent)
    return wired


def row_seed(seed: int, row: int) -> int:
    """A seed below 2^31 that differs from row to row: equal prompts get replies of their own."""
    digest = hashlib.sha256(f"{seed} {row}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _pick(model: str | None, served: list[str], base: str) -> str:
    """The model to ask for: the one named, else the only one."""
    names = ", ".join(served) or "none"
    if model is None:
        if len(served) == 1:
            return served[0]
        raise OptionError(f"{base} serves {names}: name one model with --model.")
    if model not in served:
        raise OptionError(f"--model {model}: {base} does not serve it. It serves: {names}.")
    return model


def _tool(tool: Any) -> Any:
    """A tool in the API's form."""
    bare = isinstance(tool, dict) and "function" not in tool and "name" in tool
    return {"type": "function", "function": tool} if bare else tool


def _ids(answer: dict[str, Any], choice: dict[str, Any]) -> tuple[list[int], list[int]] | None:
    """Ids of prompt and reply; None unless the server tells both."""
    prompt = answer.get("prompt_token_ids") or choice.get("prompt_token_ids")
    reply = choice.get("token_ids")
    meta = choice.get("meta_info")
    if reply is None and isinstance(meta, dict):
        pairs = meta.get("output_token_logprobs")
        reply = [pair[1] for pair in pairs] if isinstance(pairs, list) else None
    return (prompt, reply) if _are_ids(prompt) and _are_ids(reply) else None


def _are_ids(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and bool(value) and all(type(one) is int for one in value)
