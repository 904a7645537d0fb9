"""vLLM as a library: in a process of its own, by the Python that has it."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from vtrim.chat.visible import one_line, short
from vtrim.errors import InputError
from vtrim.evaluation.engines.reply import Batch, EngineCounts, EngineInfo, EngineReply, longest
from vtrim.evaluation.engines.vllm_server import OWN_LENGTH, VLLM

if TYPE_CHECKING:
    from vtrim.decoding.generation import GenerationSettings

_WORKER = Path(__file__).with_name("vllm_worker.py")
_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)\b")  # the end of a traceback
_LONGEST_REASON = 300
_BLOCK = 1 << 16


@dataclass(frozen=True, kw_only=True)
class LibraryJob:
    """What vLLM is to load.

    speculative: its own configuration of a draft, None decodes without; engines: how many such
    processes share the machine; threads: of a CPU.
    """

    target: str
    revision: str | None
    trust_remote_code: bool
    detokenize: bool
    dtype: str
    max_model_len: int
    batch_size: int
    seed: int
    speculative: Mapping[str, Any] | None
    engines: int
    threads: int
    offline: bool


class VllmLibrary:
    """vLLM's offline engine, started at once. log: where all that it prints goes.

    Raises:
        InputError: the Python cannot be run or has no vLLM, or vLLM does not take the job.
    """

    def __init__(self, python: Path, job: LibraryJob, log: Path, timeout: float) -> None:
        self._python, self._log, self._timeout = python, log, timeout
        log.parent.mkdir(parents=True, exist_ok=True)
        self._process = self._start(job)
        self._input = cast("IO[bytes]", self._process.stdin)
        self._output = cast("IO[bytes]", self._process.stdout)
        self._buffer = b""
        self._drafts = job.speculative is not None
        self._counted = EngineCounts(rounds=0, drafted=0, accepted=0, by_position=())
        try:
            self._send(asdict(job))
            self.info = self._info(self._receive("while loading"), job)
        except BaseException:
            self.close()
            raise

    def decode(
        self, prompts: Sequence[Sequence[int]], settings: GenerationSettings, first: int
    ) -> Batch:
        """Replies to prompts that are decoded together.

        Raises:
            InputError: vLLM stopped, or says nothing for too long.
        """
        self._send(
            {
                "prompts": [list(prompt) for prompt in prompts],
                "limits": [longest(prompt, settings, self.info) for prompt in prompts],
                "seeds": [settings.seed + first + i for i in range(len(prompts))],
                "temperature": settings.temperature,
                "top_k": settings.top_k,
                "top_p": settings.top_p,
                "stop_ids": sorted(settings.stop_ids),
                "stop_strings": list(settings.stop_strings),
            }
        )
        answer = self._receive("while decoding")
        return Batch(tuple(map(_reply, answer["replies"])), self._counts(answer["counts"]))

    def close(self) -> None:
        """Ends the process and all that it has started."""
        for stream in (self._input, self._output):
            with suppress(OSError):
                stream.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _start(self, job: LibraryJob) -> subprocess.Popen[bytes]:
        try:
            with self._log.open("wb") as log:
                return subprocess.Popen(  # noqa: S603 - the user's own Python
                    [str(self._python), str(_WORKER)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=_environment(job),
                    start_new_session=True,  # it may start processes of its own
                )
        except OSError as error:
            raise InputError(
                f"--engine-python {self._python}: cannot be run ({error.strerror or error})."
            ) from error

    def _send(self, value: Mapping[str, Any]) -> None:
        with suppress(BrokenPipeError):  # it has stopped: the answer that does not come says why
            self._input.write(json.dumps(value).encode() + b"\n")
            self._input.flush()

    def _receive(self, when: str) -> dict[str, Any]:
        """The next line of its answers.

        Raises:
            InputError: it stopped, or the line does not come in time.
        """
        while b"\n" not in self._buffer:
            block = self._block(when)
            if not block:
                raise InputError(self._stopped(when))
            self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\n")
        value: dict[str, Any] = json.loads(line)
        return value

    def _block(self, when: str) -> bytes:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._output, selectors.EVENT_READ)
            if not waiting.select(self._timeout):
                raise InputError(
                    f"vLLM: nothing came for {self._timeout:g} s {when} (--request-timeout). What "
                    f"it printed: {self._log}."
                )
        return os.read(self._output.fileno(), _BLOCK)

    def _stopped(self, when: str) -> str:
        """Why vLLM has ended, in one line: what it said last."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        said = [line for line in lines if line.strip()]
        errors = [line for line in said if _ERROR.match(line)]
        reason = (
            short(one_line([*said, *errors][-1]), _LONGEST_REASON) if said else "no word of why"
        )
        if "No module named 'vllm'" in reason:
            return (
                f"{self._python}: no vLLM there. Name the Python of an environment that has it "
                "with --engine-python, or a running server with --server."
            )
        return f"vLLM stopped {when}: {reason}. All that it printed: {self._log}."

    def _info(self, said: Mapping[str, Any], job: LibraryJob) -> EngineInfo:
        own = {"dtype": said["dtype"], "device": said["device"], **said["settings"]}
        return EngineInfo(
            name=VLLM,
            version=said["version"],
            settings={"through": "library", **own, "speculative": job.speculative},
            drafts=self._drafts,
            lossless=True,
            own_length=OWN_LENGTH,
            context_length=job.max_model_len,
        )

    def _counts(self, so_far: Mapping[str, Any]) -> EngineCounts | None:
        """What was counted since the last answer."""
        if not self._drafts:
            return None
        before = self._counted
        self._counted = now = EngineCounts(
            rounds=int(so_far["drafts"]),
            drafted=int(so_far["draft_tokens"]),
            accepted=int(so_far["accepted_tokens"]),
            by_position=tuple(map(int, so_far["positions"])),
        )
        return now.since(before)


def _reply(told: Mapping[str, Any]) -> EngineReply:
    """A reply as the worker tells it; its steps are the prefill and the rounds."""
    return EngineReply(
        tokens=tuple(told["tokens"]),
        text=None,
        num_tokens=len(told["tokens"]),
        with_first=told["steps"][0],
        rounds=len(told["steps"]) - 1,
        prefill_seconds=told["prefill_seconds"],
        seconds=told["seconds"],
        finish_reason=told["finish_reason"],
    )


def _environment(job: LibraryJob) -> dict[str, str]:
    """One process, no more threads than asked, the network left alone where it must be."""
    offline = job.offline or Path(job.target).is_dir()
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",  # [GiB]; more is the user's to give
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_LOGGING_LEVEL": "WARNING",
        **os.environ,
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": str(job.threads),
        "PYTHONSAFEPATH": "1",  # this folder's modules are no modules of that Python
        **({"HF_HUB_OFFLINE": "1"} if offline else {}),
    }
