"""What ``vtrim train-draft`` does between parsing and printing: launch, train, record."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import write_json
from vtrim.cli import common
from vtrim.cli.train_call import TrainCall
from vtrim.cli.train_data import training_samples
from vtrim.cli.train_launch import RESULT, train_device
from vtrim.cli.train_request import check, make_request
from vtrim.errors import OptionError
from vtrim.training.launch import LAUNCHED_ENV, join_group, leave_group

if TYPE_CHECKING:
    from vtrim.training.loop import Progress
    from vtrim.training.run import TrainRequest


def train_in_group(call: TrainCall) -> dict[str, Any] | None:
    """Trains in this process (one of a group, or alone); the first process gets the result."""
    from vtrim.training.restart import training_lock

    first = os.environ.get("RANK", "0") == "0"
    check(call, call.processes)
    with training_lock(call.run.root) if first else nullcontext():
        common.hush_libraries()
        common.hush_deepspeed()
        device = join_group(train_device(call.device))
        from vtrim.training.watch import watched

        with watched(call.run.train):
            request, result = _train(call, device)
        leave_group()
        if result is None:
            raise KeyboardInterrupt
        return _record(call, request, result) if first else None


def _train(call: TrainCall, device: str) -> tuple[TrainRequest, dict[str, Any] | None]:
    """What every process of the group does; the result is None when a signal stopped it."""
    import torch

    from vtrim.models.target import load_target
    from vtrim.training.checkpoint import barrier, is_rank_zero
    from vtrim.training.folder import check_shared, prepare_folder
    from vtrim.training.restart import Earlier
    from vtrim.training.run import train

    check_shared(call.run.train)
    if device == "cpu":
        torch.set_num_threads(_threads())
    note = common.note if is_rank_zero() else _silent
    note(f"{call.processes} process(es) on {device}, {torch.get_num_threads()} thread(s) each")
    samples = training_samples(call, note)
    settings = call.resolved
    target = load_target(
        call.target_name,
        dtype=torch.bfloat16 if settings.dtype == "bf16" else torch.float32,
        device="cpu" if settings.shard_target else device,
        aux_layer_ids=call.aux_layer_ids,
        trust_remote_code=bool(call.manifest["target"].get("trust_remote_code")),
        revision=call.manifest["target"].get("revision"),
        offline=call.offline,
    )
    request = replace(make_request(call), target_weights=_target_weights(call))
    first, earlier = is_rank_zero(), Earlier(request.folder)
    with (
        earlier.back_on_error() if first else nullcontext(),
        common.progress("training", total=100, shown=first) as advance,
    ):
        if first:
            prepare_folder(
                request.folder,
                settings,
                request.identity,
                processes=call.processes,
                restart=call.restart,
            )
        barrier()
        follow = _follow(advance, note, earlier.drop if first else _nothing)
        result = train(request, target, samples, follow, note)
    return request, result


def _threads() -> int:
    """Threads of a CPU process: $OMP_NUM_THREADS, else one (two collapse on a busy machine)."""
    typed = os.environ.get("OMP_NUM_THREADS", "1").split(",")[0]
    if not typed.isdigit() or int(typed) < 1:
        raise OptionError(f"OMP_NUM_THREADS={typed}: give a whole number from 1.")
    return int(typed)


def _follow(advance: Any, note: Callable[[str], None], stepped: Callable[[], None]) -> Progress:
    """Moves the bar by per cent of the run; without a terminal, a line now and then.

    stepped: called after each step.
    """
    done = 0

    def report(step: int, fraction: float, line: str) -> None:
        nonlocal done
        stepped()
        percent = int(100 * fraction)
        if not common.notes.is_terminal and percent // 10 > done // 10:
            note(f"{percent} %, step {step:,}: {line}")
        advance(percent - done, text=line)
        done = percent

    return report


def _silent(_message: str) -> None:
    return None


def _nothing() -> None:
    return None


def _target_weights(call: TrainCall) -> str:
    """Fingerprint of the target's weights: a run goes on, and cached states serve, with these."""
    from vtrim.training.checkpoint import from_first
    from vtrim.training.target_weights import weights_fingerprint

    revision = call.manifest["target"].get("revision")
    return from_first(lambda: weights_fingerprint(call.target_name, revision=revision))


def _record(
    call: TrainCall, request: TrainRequest, result: dict[str, Any]
) -> dict[str, Any] | None:
    """Notes the step in run.json; the numbers to print, or None under a launcher."""
    if "init_from" in request.facts:
        result = {**result, "init_from": request.facts["init_from"]}
    entry = {
        **result,
        "settings": request.settings.to_dict(),
        "vocab_fingerprint": request.vocab.fingerprint,
        "artifact": str(call.run.draft),
    }
    call.run.record("train-draft", entry)
    public = {**result, "artifact": str(call.run.draft)}
    write_json(call.run.train / RESULT, public)
    return None if LAUNCHED_ENV in os.environ else public  # the launching process prints it
