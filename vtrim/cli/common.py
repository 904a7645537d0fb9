"""What all commands share: option types, consoles, JSON output, progress, quiet libraries."""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from vtrim.artifacts import Run
from vtrim.errors import InputError, OptionError

RunOption = Annotated[
    Path | None,
    typer.Option(
        "--run", help="Run folder shared by the steps (default: $VTRIM_RUN or vtrim-run)."
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")
]
TargetOption = Annotated[
    str | None,
    typer.Option("--target", help="Target LLM: hub id, local folder, or smollm2 (built in)."),
]
RevisionOption = Annotated[
    str | None, typer.Option("--revision", help="Branch, tag or commit of a hub model.")
]
TrustOption = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that ships with a hub model.")
]
OfflineOption = Annotated[bool, typer.Option("--offline", help="Use only files already here.")]
DeviceOption = Annotated[
    str | None,
    typer.Option("--device", help="cpu, cuda, cuda:1 ... (default: cuda if there is one)."),
]

TemplateOption = Annotated[
    Path | None,
    typer.Option("--template", help="Jinja chat template in place of the tokenizer's own."),
]

notes = Console(stderr=True, highlight=False)
results = Console(highlight=False)
_settings = dict.fromkeys(("quiet", "verbose", "own_process", "diverted", "every_rank"), False)


def own_process() -> None:
    """Tells that this process runs one command and nothing else."""
    _settings["own_process"] = True


def speak_for_itself() -> None:
    """Tells that each process of a group does its own work, and so has its own errors."""
    _settings["every_rank"] = True


def speaks() -> bool:
    """Whether this process shows errors: of a group that works as one, the first does."""
    return _settings["every_rank"] or os.environ.get("RANK", "0") == "0"


def set_verbosity(*, quiet: bool, verbose: bool) -> None:
    """Remembers -q and -v for this process."""
    _settings.update(quiet=quiet, verbose=verbose, every_rank=False)


def verbosity() -> list[str]:
    """-q and -v, as a command of its own is to get them."""
    return [f"--{name}" for name in ("quiet", "verbose") if _settings[name]]


def note(message: str) -> None:
    """One line on stderr, printed as it is (data is never taken for markup); silent under -q."""
    if not _settings["quiet"]:
        notes.print(message, markup=False, soft_wrap=True)


def warn(message: str) -> None:
    """A warning on stderr; shown under -q too."""
    notes.print(f"warning: {message}", markup=False, soft_wrap=True)


def emit_json(value: dict[str, Any]) -> None:
    """The one JSON object of ``--json``.

    Raises:
        InputError: a number in it is not finite, which JSON cannot say.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise InputError("a result is not finite (NaN or infinity); JSON has no such.") from error
    results.file.write(text + "\n")
    results.file.flush()


def divert_stdout() -> None:
    """Sends what libraries print on stdout to stderr; results keep the real stdout.

    Done only in a process of our own: DeepSpeed logs to stdout, from C++ code too.
    """
    if not _settings["own_process"]:
        return
    sys.stdout.flush()
    results.file = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _settings.update(own_process=False, diverted=True)


def open_run(path: Path | None) -> Run:
    """The run folder of this command."""
    return Run(path)


def pick_device(device: str | None) -> str:
    """The device asked for, else CUDA where there is one.

    Raises:
        OptionError: the device is unknown or not on this machine.
    """
    import torch

    name = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise OptionError(f"--device {name}: not usable here ({reason}).") from error
    return name


def check_device(device: str | None) -> None:
    """Refuses a name that is no device's anywhere, e.g. in a recipe for another machine.

    Raises:
        OptionError: it is none.
    """
    import torch

    try:
        torch.device(device or "cpu")
    except RuntimeError as error:
        raise OptionError(
            f"--device {device}: no such device. Known: cpu, cuda, cuda:1 ..."
        ) from error


def pick_dtype(dtype: str) -> Any:
    """The torch dtype of ``auto``, ``bf16``, ``fp32`` or ``fp16``.

    Raises:
        OptionError: another name.
    """
    known = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}
    if dtype not in ("auto", *known, *known.values()):
        raise OptionError(f"--dtype {dtype}: unknown. Known: auto, {', '.join(known)}.")
    if dtype == "auto":
        return dtype
    import torch

    return getattr(torch, known.get(dtype, dtype))


def parse_aux_layers(typed: str | None) -> tuple[int, int, int] | None:
    """The three hidden_states indices of ``--aux-layers``.

    Raises:
        OptionError: it is not three numbers.
    """
    if typed is None:
        return None
    try:
        low, mid, high = (int(part) for part in typed.split(","))
    except ValueError as error:
        raise OptionError(f"--aux-layers {typed}: give three numbers, e.g. 2,15,27.") from error
    return low, mid, high


def read_template(path: Path) -> str:
    """The text of a chat template.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--template {path}: cannot be read ({error}).") from error


def hush_libraries() -> None:
    """Keeps the notices of transformers and DeepSpeed out of the results, and their bars away."""
    divert_stdout()
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


@contextmanager
def loading() -> Iterator[None]:
    """Loads what lives as long as the process without searching it for garbage.

    Importing transformers makes a million objects; looking through them, during the import and at
    every later collection, costs half a second.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if _settings["diverted"]:  # the process is ours
            gc.freeze()


def keep_torch_out() -> None:
    """Makes transformers load without torch: 1.5 s less, and 230 MB.

    Tokenizers and configs, which are all that counting needs, are the same. Done only in a process
    of our own, and not for code of others, which may want torch. None in ``sys.modules`` is
    Python's own way to say that there is no such module.
    """
    if (_settings["own_process"] or _settings["diverted"]) and "torch" not in sys.modules:
        sys.modules["torch"] = None  # type: ignore[assignment]
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")


def hush_deepspeed() -> None:
    """Keeps to itself what DeepSpeed reports of its own workings; -v shows it."""
    import torch

    if _settings["diverted"] and not _settings["verbose"]:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  (it prints; for the process's life)

    # the deprecations inside DeepSpeed are not the user's to mend
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else it warns that it guessed


@contextmanager
def progress(description: str, total: int | None = None, *, shown: bool = True) -> Iterator[Any]:
    """A rich progress bar on stderr, on a terminal only; yields ``advance(n, text=None)``."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=notes,
        disable=_settings["quiet"] or not notes.is_terminal or not shown,
        transient=True,
    )
    with bar:
        task = bar.add_task(description, total=total)

        def advance(count: int = 1, text: str | None = None) -> None:
            bar.update(task, advance=count, description=text or description)

        yield advance
