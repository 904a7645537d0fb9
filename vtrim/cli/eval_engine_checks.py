"""What cannot be asked of a serving engine, told before anything is loaded or reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtrim.cli.eval_values import AUTO, LOCAL, OPENAI, VLLM, exact_rule
from vtrim.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from vtrim.cli.eval_call import EvalCall

ENGINES = (LOCAL, VLLM, OPENAI)
_EXACT = {"greedy": "at temperature 0", "rejection": "above temperature 0"}
_OF_ENGINES = ("server", "plain_server", "server_model", "engine_python")
_DRAFTERS = ("tree", "fallback_chain", "draft_model", "skip_layers", "draft_vocab", "max_ngram")
_OURS = (*_DRAFTERS, "min_confidence", "diagnose", "device")
"""Options of vtrim's own decoding."""
_SERVERS_OWN = ("draft", "num_draft_tokens", "engine_python")
"""Options whose value a running server has settled."""


def check_engine(call: EvalCall) -> None:
    """Refuses an unknown engine, and options that do not go with the one that is asked for.

    Raises:
        OptionError: says which option, and what goes instead.
    """
    if call.engine not in ENGINES:
        raise OptionError(
            f"--engine {call.engine}: unknown. Known: {', '.join(ENGINES)}."
            f"{did_you_mean(call.engine, ENGINES)} "
            "SGLang and TensorRT-LLM are measured by --engine openai --server URL."
        )
    if not call.request_timeout > 0:
        raise OptionError(f"--request-timeout {call.request_timeout:g}: give seconds above 0.")
    if call.engine == LOCAL:
        _refuse(call, _OF_ENGINES, "only with --engine vllm or openai")
        return
    _refuse(call, _OURS, f"only with --engine local; {call.engine} decodes in its own way")
    _check_rule(call)
    if call.engine == OPENAI and call.server is None:
        raise OptionError("--engine openai: give the server's address with --server.")
    if call.server is None:
        _refuse(call, ("plain_server", "server_model"), "only with --server")
        if call.num_draft_tokens == AUTO:
            raise OptionError("--num-draft-tokens auto: only with --engine local; give a number.")
        return
    _refuse(call, _SERVERS_OWN, "not with --server, which has its own")
    if call.dtype != "auto":
        raise OptionError(f"--dtype {call.dtype}: not with --server, which has its own.")


def _check_rule(call: EvalCall) -> None:
    """Serving engines verify exactly, by chains that EAGLE drafts."""
    if call.acceptor not in (None, *_EXACT):
        raise OptionError(
            f"--acceptor {call.acceptor}: only with --engine local; {call.engine} accepts exactly."
        )
    if call.acceptor is not None and call.acceptor != exact_rule(call.temperature):
        raise OptionError(
            f"--acceptor {call.acceptor}: {call.engine} uses it {_EXACT[call.acceptor]} only."
        )
    if call.drafter_name != "eagle":
        raise OptionError(
            f"--drafter {call.drafter_name}: only with --engine local; {call.engine} is measured "
            "with EAGLE drafts."
        )


def _refuse(call: EvalCall, keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if getattr(call, key) not in (None, False):
            raise OptionError(f"--{key.replace('_', '-')}: {why}.")
