"""The folder of a training run: begun, thrown away, or found to hold the same run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vtrim.artifacts import read_object, write_json
from vtrim.errors import InputError, MismatchError
from vtrim.training.checkpoint import list_checkpoints, remove_tree
from vtrim.training.settings import TrainSettings, option_of

_OPTIONS = {
    "vocab_fingerprint": "the draft vocabulary (--vocab, or `vtrim search` anew)",
    "draft_shape": "--draft-config",
    "aux_layers": "--aux-layers",
    "target_config": "--target (its config.json)",
    "deepspeed_config": "--deepspeed-config",
    "data_fingerprint": "the data that `vtrim coverage` counted",
}
_BOUNDS = ("max_steps", "epochs", "max_minutes")


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
    origin = folder / "settings.json"
    if restart:
        remove_tree(folder)
    if list_checkpoints(folder / "checkpoints"):
        if not origin.exists():
            raise InputError(f"{origin}: missing beside checkpoints; --restart trains anew.")
        _check_same(read_object(origin), settings, identity, processes, origin)
    entry = {"settings": settings.to_dict(), "identity": identity, "processes": processes}
    write_json(origin, entry)


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
            said = _OPTIONS.get(name, option_of(name))
            raise MismatchError(
                f"{said} differs: {now} now, {before} in the run to resume ({origin}). "
                "Give the same, or --restart to begin anew."
            )


def _splits(slots: int, processes: int) -> str:
    """How the same number of micro-batches a step is had with these processes, or with others."""
    if slots % processes == 0:
        return f"--grad-accum {slots // processes}"
    return f"--num-gpus {slots} --grad-accum 1 (or another product of {slots})"
