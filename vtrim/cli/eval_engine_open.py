"""The engines of ``vtrim eval --engine``: vLLM started as a library, or servers that run."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.eval_call import EvalCall
from vtrim.cli.eval_prompts import Found

if TYPE_CHECKING:
    from vtrim.decoding.generation import GenerationSettings
    from vtrim.evaluation.engines.reply import ServingEngine
    from vtrim.evaluation.pairing import TargetSource
    from vtrim.vocab import DraftVocab

KEY_ENV = "OPENAI_API_KEY"
RULES = PLAIN, CHOSEN = "plain", "chosen"


@dataclass(frozen=True, kw_only=True)
class Pairing:
    """What is measured: a target, and the draft in the library (the server has its own)."""

    call: EvalCall
    source: TargetSource
    settings: GenerationSettings
    draft: tuple[Path, DraftVocab] | None

    @property
    def folder(self) -> Path | None:
        """Where the library's draft lies."""
        return None if self.draft is None else self.draft[0]

    @property
    def vocab(self) -> DraftVocab | None:
        """What the library's draft can write."""
        return None if self.draft is None else self.draft[1]


def running_servers(call: EvalCall) -> dict[str, ServingEngine]:
    """The running servers.

    Raises:
        InputError: one cannot be used. MismatchError: they do not belong together.
    """
    from vtrim.evaluation.engines.opening import ServerAddress, check_roles, open_server

    def opened(url: str, option: str) -> Any:
        address = ServerAddress(
            url=url,
            option=option,
            model=call.server_model,
            key=os.environ.get(KEY_ENV),
            timeout=call.request_timeout,
        )
        return open_server(address, only_vllm=call.engine == "vllm")

    chosen = opened(str(call.server), "--server")
    plain = opened(call.plain_server, "--plain-server") if call.plain_server else None
    check_roles(chosen, plain)
    for engine in filter(None, (chosen, plain)):
        version = f" {engine.info.version}" if engine.info.version else ""
        common.note(f"{engine.info.name}{version}, {engine.model} at {engine.http.base}")
    return {CHOSEN: chosen} if plain is None else {PLAIN: plain, CHOSEN: chosen}


def started_libraries(pairing: Pairing, found: Found, stack: ExitStack) -> dict[str, ServingEngine]:
    """The library with the draft and without it, each in a process of its own.

    Raises:
        InputError: it cannot be started.
    """
    from vtrim.evaluation.engines.vllm_library import LibraryJob, VllmLibrary
    from vtrim.models.hub import resolve_model

    call, settings = pairing.call, pairing.settings
    stops = bool(settings.stop_strings) or any(prompt.stop for prompt in found.prompts)
    drafting = {
        "method": "eagle3",
        "model": str(pairing.folder),
        "num_speculative_tokens": settings.num_draft_tokens,
    }
    engines: dict[str, ServingEngine] = {}
    for name, speculative in ((PLAIN, None), (CHOSEN, drafting)):
        job = LibraryJob(
            target=resolve_model(pairing.source.name),
            revision=pairing.source.revision,
            trust_remote_code=pairing.source.trust_remote_code,
            detokenize=stops,
            dtype=_DTYPES.get(call.dtype, call.dtype),
            max_model_len=_positions_needed(pairing, found),
            batch_size=call.batch_size,
            seed=call.seed,
            speculative=speculative,
            engines=2,
            threads=call.threads,
            offline=call.offline,
        )
        common.note(f"starting vLLM {'without a draft' if speculative is None else 'with it'}")
        log = log_path(call, name)
        python = call.engine_python or Path(sys.executable)
        engine = VllmLibrary(python, job, log, call.request_timeout)
        stack.callback(engine.close)
        engines[name] = engine
    return engines


_DTYPES = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}
_SLACK = 16  # positions that a draft may look beyond a reply's end


def _positions_needed(pairing: Pairing, found: Found) -> int:
    """Positions for the longest prompt, its reply and what is drafted beyond; of turns, all."""
    if any(one.question.later for _, first in found.askers for one in first):
        return pairing.source.positions
    longest = max(
        len(prompt.ids) + (prompt.max_new_tokens or pairing.settings.max_new_tokens)
        for prompt in found.prompts
    )
    return min(longest + _SLACK, pairing.source.positions)


def log_path(call: EvalCall, name: str) -> Path:
    """Where what the library prints lies until all is measured."""
    return call.artifact.with_suffix(f".{name}.log")
