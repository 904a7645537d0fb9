"""What ``vtrim train-draft`` does between parsing and printing: launch, train, record."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vtrim.artifacts import read_json, write_json
from vtrim.cli import common
from vtrim.cli.train_call import TrainCall, check, draft_overrides
from vtrim.errors import OptionError
from vtrim.training.launch import (
    RESULT_ENV,
    check_processes,
    is_launched,
    join_group,
    relaunch,
)

if TYPE_CHECKING:
    from vtrim.training.loop import Progress
    from vtrim.training.run import TrainRequest


def train_through_launcher(call: TrainCall, processes: int) -> dict[str, Any]:
    """Starts ``processes`` ranks with the same command line and returns the first one's result."""
    from vtrim.models.hub import resolve_model

    check(call, processes)
    device = _device(call.device)
    check_processes(device, processes)
    resolve_model(call.target_name)  # unpack the built-in target once, not in every rank
    if call.restart:
        shutil.rmtree(call.run.train, ignore_errors=True)
    arguments = [a for a in sys.argv[1:] if a != "--restart"]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        code = relaunch(arguments, processes, device, result)
        if code != 0 or not result.exists():
            raise typer.Exit(code or 1)
        value: dict[str, Any] = read_json(result)
        return value


def train_in_group(call: TrainCall) -> dict[str, Any] | None:
    """Trains in this process (one of a group, or alone); the first process gets the result."""
    world_size = int(os.environ.get("WORLD_SIZE", "1")) if is_launched() else 1
    check(call, world_size)
    common.hush_libraries()
    common.hush_deepspeed()
    import torch

    from vtrim.models.target import load_target
    from vtrim.training.checkpoint import barrier, is_rank_zero
    from vtrim.training.run import TrainRequest, prepare_folder, train

    device = join_group(_device(call.device))
    if device == "cpu":
        torch.set_num_threads(_threads())
    settings = call.resolved
    target = load_target(
        call.target_name,
        dtype=torch.bfloat16 if settings.dtype == "bf16" else torch.float32,
        device=device,
        aux_layer_ids=call.aux_layer_ids,
        trust_remote_code=bool(call.manifest["target"].get("trust_remote_code")),
        revision=call.manifest["target"].get("revision"),
        offline=call.offline,
    )
    request = TrainRequest(
        settings=settings,
        vocab=call.draft_vocab(),
        folder=call.run.train,
        draft_folder=call.run.draft,
        target_config=read_json(call.run.target_config),
        shape_overrides=draft_overrides(call.draft_config) if call.draft_config else {},
        aux_layers=list(target.aux_layer_ids),
        user_ds_config=call.user_config,
        ds_origin=str(call.deepspeed_config),
        facts=_facts(call),
    )
    if is_rank_zero():
        prepare_folder(request, world_size, call.restart)
    barrier()
    note = common.note if is_rank_zero() else _silent
    note(f"{world_size} process(es) on {device}, {torch.get_num_threads()} thread(s) each")
    with common.progress("training", total=100, shown=is_rank_zero()) as advance:
        follow = _follow(advance, note)
        result = train(request, target, _samples(call, note), follow, note)
    if result is None:
        raise KeyboardInterrupt
    return _record(call, request, result) if is_rank_zero() else None


def _device(asked: str | None) -> str:
    """The device asked for, else CUDA where there is one; each process tries its own later."""
    import torch

    if asked is not None:
        return common.pick_device(asked)
    return "cuda" if torch.cuda.is_available() else "cpu"


def _threads() -> int:
    """Threads of a CPU process: $OMP_NUM_THREADS, else one (two collapse on a busy machine)."""
    typed = os.environ.get("OMP_NUM_THREADS", "1").split(",")[0]
    if not typed.isdigit() or int(typed) < 1:
        raise OptionError(f"OMP_NUM_THREADS={typed}: give a whole number from 1.")
    return int(typed)


def _follow(advance: Any, note: Callable[[str], None]) -> Progress:
    """Moves the bar by per cent of the run; without a terminal, a line now and then."""
    done = 0

    def report(step: int, fraction: float, line: str) -> None:
        nonlocal done
        percent = int(100 * fraction)
        if not common.notes.is_terminal and percent // 10 > done // 10:
            note(f"{percent} %, step {step:,}: {line}")
        advance(percent - done, text=line)
        done = percent

    return report


def _silent(_message: str) -> None:
    return None


def _facts(call: TrainCall) -> dict[str, Any]:
    """Provenance that goes into the draft's config and card."""
    manifest = call.manifest
    search = manifest["steps"].get("search", {})
    chosen = search.get("vocab_fingerprint") == call.draft_vocab().fingerprint
    share = search.get("coverage") if chosen else None
    return {
        "target": call.target_name,
        "tokenizer_fingerprint": manifest["target"]["tokenizer_fingerprint"],
        "data_fingerprint": manifest["steps"]["coverage"]["data_fingerprint"],
        "rows": manifest["data"]["rows_used"],
        "coverage": "not measured" if share is None else f"{100 * share:.2f} %",
    }


def _samples(call: TrainCall, note: Callable[[str], None]) -> Iterator[Any]:
    """The run's conversations, rendered as coverage rendered them; says what was skipped."""
    from vtrim.chat.render import Renderer
    from vtrim.chat.run_data import run_conversations
    from vtrim.chat.skips import SkipLog
    from vtrim.evaluation.pairing import TargetSource

    entry = call.manifest["target"]
    source = TargetSource(
        name=call.target_name,
        run=call.run,
        entry=entry,
        revision=entry.get("revision"),
        trust_remote_code=bool(entry.get("trust_remote_code")),
        offline=call.offline,
    )
    skipped = SkipLog()
    data = call.manifest["data"]
    limit = call.resolved.max_length
    if data.get("max_length") not in (None, limit):
        note(f"coverage counted with --max-length {data['max_length']}, training cuts at {limit}")
    renderer = Renderer(
        source.tokenizer,
        max_length=limit,
        skipped=skipped,
        last_turn_only=bool(data.get("last_turn_only")),
    )
    for conversation in run_conversations(call.run, skipped):
        yield from renderer.samples(conversation)
    for line in skipped.lines():
        note(f"skipped rows: {line}")


def _record(
    call: TrainCall, request: TrainRequest, result: dict[str, Any]
) -> dict[str, Any] | None:
    """Notes the step in run.json; the numbers to print, or None under a launcher."""
    entry = {
        **result,
        "settings": request.settings.to_dict(),
        "vocab_fingerprint": request.vocab.fingerprint,
        "artifact": str(call.run.draft),
    }
    call.run.record("train-draft", entry)
    public = {**result, "artifact": str(call.run.draft)}
    if RESULT_ENV in os.environ:
        write_json(Path(os.environ[RESULT_ENV]), public)  # the launching process prints it
        return None
    return public
