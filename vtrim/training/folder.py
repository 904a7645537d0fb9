"""The folder of a training run: begun, thrown away, or found to hold the same run."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path
from typing import Any

import torch.distributed as dist

from vtrim.artifacts import read_object, write_json, write_text
from vtrim.errors import InputError, MismatchError
from vtrim.training.checkpoint import from_first, is_rank_zero, list_checkpoints
from vtrim.training.restart import Earlier
from vtrim.training.settings import TrainSettings, option_of

_OPTIONS = {
    "vocab_fingerprint": "the draft vocabulary (--vocab, or `vtrim search` anew)",
    "draft_shape": "--draft-config",
    "aux_layers": "--aux-layers",
    "target_config": "--target (its config.json)",
    "target_weights": "--target (the weights of {target})",
    "deepspeed_config": "--deepspeed-config",
    "data_fingerprint": "the data that `vtrim coverage` counted",
}
_ORIGIN = "settings.json"
_BOUNDS = ("max_steps", "epochs", "max_minutes")


def check_shared(folder: Path) -> None:
    """Makes sure that all processes have one and the same folder. All call.

    Raises:
        InputError: the first process cannot write there, or others do not see what it has written;
            names the folder and their machines.
    """

    def leave_sign() -> str:
        name = f".group-{secrets.token_hex(8)}"
        write_text(folder / name, "")
        return name

    sign = from_first(leave_sign)
    own = (socket.gethostname(), str(folder.resolve()), (folder / sign).exists())
    everyone = [own] * dist.get_world_size()
    if len(everyone) > 1:
        dist.all_gather_object(everyone, own)
    if is_rank_zero():
        (folder / sign).unlink(missing_ok=True)
    blind = sorted({f"{place} on {host}" for host, place, sees in everyone if not sees})
    if blind:
        first_host, first_place, _ = everyone[0]
        raise InputError(
            f"{', '.join(blind)}: not the run folder of process 0 ({first_place} on {first_host}). "
            "All processes write the checkpoints together: put the run folder on storage that all "
            "machines share, under one path."
        )


def prepare_folder(
    folder: Path,
    settings: TrainSettings,
    identity: dict[str, Any],
    *,
    processes: int,
    restart: bool,
) -> None:
    """Begins a run's folder, or checks that it holds the same run.

    identity: what must not change beside the settings; processes: of this run.

    Raises:
        MismatchError: it holds a run with other settings; names the option that differs.
    """
    if restart:
        Earlier(folder).set_aside()
    check_begun(folder, settings, identity, processes=processes)
    entry = {"settings": settings.to_dict(), "identity": identity, "processes": processes}
    write_json(folder / _ORIGIN, entry)


def check_begun(
    folder: Path, settings: TrainSettings, identity: dict[str, Any], *, processes: int
) -> None:
    """Refuses a folder with checkpoints of another run; ``target_weights`` "": not known yet.

    Raises:
        MismatchError: names the option that differs.
    """
    origin = folder / _ORIGIN
    if not list_checkpoints(folder / "checkpoints"):
        return
    if not origin.exists():
        raise InputError(f"{origin}: missing beside checkpoints; --restart trains anew.")
    earlier = read_object(origin)
    if not identity.get("target_weights"):
        identity = {**identity, "target_weights": earlier["identity"].get("target_weights")}
    _check_same(earlier, settings, identity, processes, origin)


def _check_same(
    earlier: dict[str, Any],
    settings: TrainSettings,
    identity: dict[str, Any],
    processes: int,
    origin: Path,
) -> None:
    then = earlier["settings"]
    for name in _BOUNDS:
        now, before = getattr(settings, name), then.get(name)
        if now != before:
            raise MismatchError(
                f"{option_of(name)} differs: {now} now, {before} in the run to resume ({origin}). "
                "The learning rate follows the length of a run, which cannot change on the way: "
                "give the same value, or train on from the draft with --restart --init-from DRAFT."
            )
    slots = processes * settings.grad_accum
    slots_then = earlier["processes"] * then["grad_accum"]
    if slots != slots_then:
        raise MismatchError(
            f"--num-gpus {processes} x --grad-accum {settings.grad_accum} makes {slots} "
            f"micro-batches a step; the run to resume ({origin}) has {slots_then}. Give "
            f"{_splits(slots_then, processes)}, or --restart to begin anew."
        )
    settings.check_resume({**then, "grad_accum": settings.grad_accum}, str(origin))
    for name in {**earlier["identity"], **identity}:
        now, before = identity.get(name), earlier["identity"].get(name)
        if now != before:
            said = _OPTIONS.get(name, option_of(name)).format(target=identity.get("target"))
            raise MismatchError(
                f"{said} differs: {now} now, {before} in the run to resume ({origin}). "
                "Give the same, or --restart to begin anew."
            )


def _splits(slots: int, processes: int) -> str:
    """How the same number of micro-batches a step is had with these processes, or with others."""
    if slots % processes == 0:
        return f"--grad-accum {slots // processes}"
    return f"--num-gpus {slots} --grad-accum 1 (or another product of {slots})"
