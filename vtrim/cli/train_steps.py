"""What ``vtrim train-draft`` does between parsing and printing: check, launch, train, record."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from vtrim.artifacts import Run, check_match, fingerprint_json, read_json, write_json
from vtrim.cli import common
from vtrim.errors import InputError, OptionError
from vtrim.training.ds_config import deepspeed_config, read_user_config, settings_from
from vtrim.training.launch import (
    RESULT_ENV,
    check_processes,
    is_launched,
    join_group,
    relaunch,
)
from vtrim.training.optimizer import check_optimizer
from vtrim.training.settings import TrainSettings
from vtrim.vocab import DraftVocab

if TYPE_CHECKING:
    from vtrim.training.loop import Progress
    from vtrim.training.run import TrainRequest


_FREE_DIMENSIONS = (
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "rope_theta",
)


@dataclass(frozen=True, kw_only=True)
class TrainCall:
    """The options of one call; ``settings`` holds only those that were typed."""

    settings: dict[str, Any]
    run: Run
    target: str | None
    vocab: str | None
    aux_layers: str | None
    draft_config: Path | None
    deepspeed_config: Path | None
    restart: bool
    device: str | None
    offline: bool

    @cached_property
    def user_config(self) -> dict[str, Any] | None:
        """The user's DeepSpeed config, if one was named."""
        return read_user_config(self.deepspeed_config) if self.deepspeed_config else None

    @cached_property
    def resolved(self) -> TrainSettings:
        """Defaults, then the DeepSpeed config's numbers, then what was typed."""
        return TrainSettings(**{**settings_from(self.user_config or {}), **self.settings})

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """run.json, which coverage wrote."""
        self.run.step("coverage")
        return self.run.read()

    @property
    def aux_layer_ids(self) -> tuple[int, int, int] | None:
        """The three hidden_states indices that were typed."""
        if self.aux_layers is None:
            return None
        try:
            low, mid, high = (int(part) for part in self.aux_layers.split(","))
        except ValueError as error:
            raise OptionError(
                f"--aux-layers {self.aux_layers}: give three numbers, e.g. 2,15,27."
            ) from error
        return low, mid, high

    @property
    def target_name(self) -> str:
        """The target: the one typed, else the run's."""
        known: str | None = self.manifest["target"]["name"]
        if self.target is None and known is None:
            raise OptionError(
                "the run was counted with --tokenizer only; name the model with --target."
            )
        return self.target or str(known)

    def draft_vocab(self) -> DraftVocab:
        """The vocabulary to train for; refuses one made for other counts."""
        size = int(self.manifest["target"]["vocab_size"])
        if self.vocab == "full":
            return DraftVocab.full(size)
        path = Path(self.vocab) if self.vocab else self.run.require(self.run.vocab, "search")
        found = DraftVocab.load(path)
        if self.vocab is None and self.run.coverage.exists():
            from vtrim.trimming.coverage import Coverage

            check_match(
                "coverage behind the vocabulary",
                _metadata(path).get("coverage_fingerprint"),
                Coverage.load(self.run.coverage).for_target(size).fingerprint,
                str(self.run.coverage),
                "Run `vtrim search` again: the counts have changed since.",
            )
        check_match(
            "target vocabulary",
            size,
            found.target_vocab_size,
            str(path),
            "Run `vtrim search` again for this run.",
        )
        return found


def check(call: TrainCall, world_size: int) -> None:
    """Refuses in seconds what could not work, before any model is loaded."""
    check_optimizer(call.resolved)
    deepspeed_config(call.resolved, world_size, call.user_config, str(call.deepspeed_config))
    call.draft_vocab()
    _ = call.aux_layer_ids
    _check_target(call)
    if call.draft_config is not None:
        _overrides(call.draft_config)


def _metadata(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return dict(file.metadata() or {})


def _check_target(call: TrainCall) -> None:
    """Refuses another model than the run's under the run's name and shape."""
    if call.target_name == call.manifest["target"]["name"]:
        return
    from vtrim.models.hub import load_config

    check_match(
        f"{call.target_name}: config",
        fingerprint_json(load_config(call.target_name, offline=call.offline)),
        fingerprint_json(read_json(call.run.target_config)),
        str(call.run.target_config),
        "Run `vtrim coverage --target` for that model in another run folder.",
    )


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
        shape_overrides=_overrides(call.draft_config) if call.draft_config else {},
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


def _overrides(path: Path) -> dict[str, Any]:
    """The draft's own dimensions from a JSON file.

    Raises:
        InputError: it is not an object, or names what the draft shares with its target.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: a draft config is one JSON object.")
    for key in value:
        if key not in _FREE_DIMENSIONS:
            raise InputError(
                f"{path}: '{key}' cannot differ from the target's (the draft shares its embedding "
                f"and head). Free: {', '.join(_FREE_DIMENSIONS)}."
            )
    heads, groups = value.get("num_attention_heads"), value.get("num_key_value_heads")
    if heads and groups and heads % groups:
        raise InputError(f"{path}: {heads} heads do not share {groups} key/value heads evenly.")
    return value


def _facts(call: TrainCall) -> dict[str, Any]:
    """Provenance that goes into the draft's config and card."""
    manifest = call.manifest
    search = manifest["steps"].get("search", {})
    share = search.get("coverage") if call.vocab is None else None
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
    renderer = Renderer(source.tokenizer, max_length=call.resolved.max_length, skipped=skipped)
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
