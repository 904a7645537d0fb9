"""The run folder, content fingerprints and atomic writes.

Every artefact is written under a temporary name in the same folder, synced to disk and renamed:
a half-written file never bears a final name.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from vtrim import __version__
from vtrim.errors import InputError, MismatchError, VtrimError

RUN_ENV = "VTRIM_RUN"
DEFAULT_RUN = "vtrim-run"


@contextmanager
def atomic_path(final: Path) -> Iterator[Path]:
    """A temporary path beside ``final`` that takes its name when the block ends without an error.

    Raises:
        InputError: the disk is full or the folder cannot be written; no file is left behind.
    """
    # process numbers repeat across the machines that share a folder
    temporary = final.with_name(f".{final.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb+") as handle:
            os.fsync(handle.fileno())
        temporary.replace(final)
        sync_folder(final.parent)
    except OSError as error:
        raise InputError(
            f"{final}: cannot be written ({error.strerror or error}). "
            "Nothing was left under that name; free some space or choose another folder."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Makes the names in ``folder`` outlast a loss of power, where the system can."""
    with suppress(OSError):  # some file systems sync no folders
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Writes ``text`` as UTF-8, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def lock_file(file: IO[Any], taken: VtrimError) -> None:
    """Locks an open file until it is closed, by whatever way the process ends.

    Systems and file systems without locks go on without.

    Raises:
        VtrimError: ``taken``, when another process holds it.
    """
    try:
        import fcntl
    except ImportError:  # not a POSIX system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise taken from error
    except OSError:  # Lustre without flock, say
        return


def write_json(path: Path, value: Any) -> None:
    """Writes ``value`` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The parsed content of a JSON file.

    Raises:
        InputError: the file is missing or is not whole JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file.") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except (ValueError, RecursionError) as error:  # cut, no text, a number too long, too deep
        raise InputError(f"{path}: not a whole JSON file ({error}).") from error


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        InputError: the file is missing, is not whole JSON, or holds something else.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: damaged: a JSON object is expected, not {_short(value)}.")
    return value


def _short(value: Any) -> str:
    """A JSON value as an error shows it."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def fingerprint_bytes(data: bytes) -> str:
    """``sha256:`` and the hexadecimal digest of ``data``."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def fingerprint_json(value: Any) -> str:
    """Fingerprint of a JSON value, independent of key order."""
    return fingerprint_bytes(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())


def fingerprint_file(path: Path) -> str:
    """Fingerprint of a file's content, read in blocks."""
    with path.open("rb") as handle:
        return "sha256:" + hashlib.file_digest(handle, "sha256").hexdigest()


def fingerprint_path(path: Path) -> str:
    """Fingerprint of a file, or of all files of a folder and their names.

    Large files of a folder (a model's weights) are told by size and time, not read.
    """
    if not path.is_dir():
        return fingerprint_file(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    told: dict[str, Any] = {}
    for file in files:
        status = file.stat()
        large = status.st_size > _LARGE
        name = file.relative_to(path).as_posix()
        told[name] = [status.st_size, status.st_mtime_ns] if large else fingerprint_file(file)
    return fingerprint_json(told)


_LARGE = 64 * 2**20  # [bytes]


def stable_safetensors(data: bytes) -> bytes:
    """The same safetensors file with its header in key order: equal content, equal bytes.

    The library writes metadata in the order of a hash map, which differs from call to call.
    """
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format aligns the tensors to 8 bytes
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


_typed: list[str] = []


def note_command(arguments: Sequence[str] | None) -> None:
    """Remembers what was typed after ``vtrim`` while a command runs; None when it has ended."""
    words = [word for word in arguments or () if not word.startswith("--local_rank")]
    _typed[:] = [] if arguments is None else ["vtrim", *words]


def typed_command() -> dict[str, str]:
    """``command``: the running command line, quoted for a shell; empty outside a command."""
    return {"command": shlex.join(_typed)} if _typed else {}


class Run:
    """A run folder: where each step of the chain leaves what the next one reads.

    ``run.json`` holds the target, the data and one entry for each finished step.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.root = Path(path or os.environ.get(RUN_ENV) or DEFAULT_RUN)
        self.manifest = self.root / "run.json"
        self.target_config = self.root / "target" / "config.json"
        self.token_texts = self.root / "target" / "tokens.json"
        self.coverage = self.root / "coverage.npz"
        self.vocab = self.root / "vocab.safetensors"
        self.search = self.root / "search.json"
        self.search_journal = self.root / "search.journal"
        self.step_times = self.root / "step_times.json"
        self.train = self.root / "train"
        self.draft = self.root / "draft"
        self.eval = self.root / "eval"
        self.sweep = self.root / "sweep"
        self.report = self.root / "report.html"

    def read(self) -> dict[str, Any]:
        """The manifest; empty for a new run folder.

        Raises:
            InputError: it is no JSON object, or a part of it that should be one is none.
        """
        if not self.manifest.exists():
            return {"vtrim": __version__, "steps": {}}
        manifest = {"steps": {}, **read_object(self.manifest)}
        parts = {name: manifest.get(name, {}) for name in ("target", "data", "steps", "chain")}
        for table in ("steps", "chain"):
            if isinstance(parts[table], dict):
                parts |= {f"{table}.{name}": entry for name, entry in parts[table].items()}
        for name, part in parts.items():
            if not isinstance(part, dict):
                raise InputError(
                    f"{self.manifest}: damaged: '{name}' must be a JSON object, not "
                    f"{_short(part)}. Mend it, or run `vtrim coverage` again in another folder."
                )
        return manifest

    def read_token_texts(self) -> dict[str, str]:
        """Token id to text of the counted tokens; empty where the run keeps none.

        Raises:
            InputError: the file holds something else.
        """
        if not self.token_texts.exists():
            return {}
        texts = read_object(self.token_texts)
        for token, text in texts.items():
            if not isinstance(text, str):
                raise InputError(
                    f"{self.token_texts}: damaged: the text of token {token} is {_short(text)}. "
                    "Run `vtrim coverage` again."
                )
        return texts

    def update(self, **entries: Any) -> None:
        """Sets top-level entries of the manifest, e.g. ``target`` and ``data``."""
        write_json(self.manifest, {**self.read(), **entries})

    def record(self, step: str, entry: Mapping[str, Any]) -> None:
        """Notes a finished step with its settings and the fingerprints of its inputs."""
        made = {"vtrim": __version__, **typed_command()}
        steps = {**self.read()["steps"], step: {**made, **entry}}
        self.update(steps=steps)

    def step(self, name: str) -> dict[str, Any]:
        """The entry of a finished step.

        Raises:
            InputError: the step has not been run in this folder.
        """
        entry: dict[str, Any] | None = self.read()["steps"].get(name)
        if entry is None:
            raise InputError(
                f"{self.root}: no finished '{name}' step here. "
                f"Run `vtrim {name}` first, or name another run folder with --run."
            )
        return entry

    def require(self, path: Path, made_by: str) -> Path:
        """``path`` if it exists.

        Raises:
            InputError: it does not; names the command that makes it.
        """
        if not path.exists():
            raise InputError(
                f"{path}: no such file. Run `vtrim {made_by}` first, or name another run "
                "folder with --run."
            )
        return path


def check_match(what: str, here: Any, there: Any, origin: str, remedy: str) -> None:
    """Refuses artefacts that do not belong together.

    Raises:
        MismatchError: ``here`` differs from ``there``; names both, where and the remedy.
    """
    if here != there:
        raise MismatchError(f"{what} differs: {here} here, {there} in {origin}. {remedy}")
