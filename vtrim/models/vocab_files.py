"""Draft vocabularies in the files of other projects: read by content, written as each expects.

=================  =============================================================  ==============
format             what it is                                                     made for
=================  =============================================================  ==============
``vtrim``          safetensors with d2t (int64 offsets) and t2d (bool)            vtrim, engines
``specforge``      torch.save of {"d2t": int64 offsets, "t2d": bool}              SpecForge
``speculators``    folder with d2t.npy (int64 offsets) and t2d.npy (bool)         speculators
``modelopt``       torch.save of int64 offsets, in any order of the ids           ModelOpt
``fr-spec``        torch.save of a list of absolute ids                           FR-Spec
``hot-token-ids``  torch.save of an int64 tensor of absolute ids                  SGLang (EAGLE-2)
``json``           a list of absolute ids                                         anyone
``text``           absolute ids, one a line                                       anyone
=================  =============================================================  ==============
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vtrim.artifacts import atomic_path, write_text
from vtrim.errors import InputError
from vtrim.models.checkpoint import (
    INDEXES,
    WEIGHTS,
    Checkpoint,
    kind_of,
    read_pickle,
    refuse_counts,
)
from vtrim.models.draft_vocab import draft_mapping
from vtrim.models.foreign_config import read_config
from vtrim.models.mapping import FoundVocab, Meaning, as_ints, as_mask, find_ids
from vtrim.models.vocab_formats import known_format
from vtrim.vocab import DraftVocab

MAPPING = "vocab_mapping.pt"
EAGLE_CACHE = "cache.pt"  # the same content as EAGLE's trainer writes it
RUN_VOCAB = "vocab.safetensors"
OFFSETS = "d2t.pt"
_ARRAYS = ("d2t.npy", "t2d.npy")
_MEANINGS: dict[str, Meaning] = {
    **dict.fromkeys(("vtrim", "specforge", "speculators", "modelopt"), "offsets"),
    **dict.fromkeys(("fr-spec", "hot-token-ids", "json", "text"), "absolute"),
}


_Sizes = tuple[int | None, int | None]  # V that must hold, V where the file tells none


@dataclass(frozen=True, kw_only=True, eq=False)
class VocabFile:
    """A vocabulary read from somewhere.

    path: the file its ids came from. format: one of FORMATS, or ``draft`` for a checkpoint.
    moved: rows that stood elsewhere in the file than in ascending order of their ids. assumed:
    whether nothing told V, so that it is what the caller assumed.
    """

    vocab: DraftVocab
    path: Path
    format: str
    moved: int
    meaning: Meaning
    metadata: Mapping[str, str]
    assumed: bool = False


def read_vocab(
    path: Path,
    *,
    target_vocab_size: int | None = None,
    assumed_size: int | None = None,
    file_format: str | None = None,
) -> VocabFile:
    """The vocabulary in a file, a run folder, a draft folder or a folder of speculators.

    target_vocab_size: V, which must be the file's. assumed_size: V for files that do not tell it.
    file_format: how to read it, where its content does not decide.

    Raises:
        InputError: it is missing, incomplete, of no known kind, ambiguous, or another target's.
    """
    file_format = known_format(file_format)
    file = _inside(path) if path.is_dir() else path
    if not file.exists():
        raise InputError(f"{file}: no such file.")
    meaning = _MEANINGS[file_format] if file_format else None
    found, name, metadata = _read(file, (target_vocab_size, assumed_size), meaning)
    sizes = (target_vocab_size, found.target_vocab_size)
    if None not in sizes and len(set(sizes)) == 2:
        raise InputError(
            f"{file}: made for a head of {found.target_vocab_size:,} rows, "
            f"not for one of {target_vocab_size:,}."
        )
    if found.target_vocab_size is None:
        found = replace(found, target_vocab_size=target_vocab_size or assumed_size)
    vocab = found.vocab(str(file))
    return VocabFile(
        vocab=vocab,
        path=file,
        format=name,
        moved=int(np.count_nonzero(found.order != np.arange(found.ids.size))),
        meaning=found.meaning,
        metadata=metadata,
        assumed=target_vocab_size is None and not found.told,
    )


def write_vocab(
    vocab: DraftVocab, path: Path, file_format: str, metadata: Mapping[str, str] | None = None
) -> list[Path]:
    """Writes a vocabulary in one of FORMATS, ids ascending; equal vocabularies give equal bytes.

    path: the file; the folder of both files for ``speculators``. Returns the files written.

    Raises:
        OptionError: there is no such format.
    """
    file_format = known_format(file_format) or "vtrim"
    if file_format == "vtrim":
        vocab.save(path, dict(metadata or {}))
    elif file_format == "speculators":
        for name, array in (("d2t", vocab.d2t), ("t2d", vocab.t2d)):
            with atomic_path(path / f"{name}.npy") as temporary, temporary.open("wb") as handle:
                np.save(handle, array, allow_pickle=False)
    elif file_format == "json":
        write_text(path, json.dumps(vocab.ids.tolist()) + "\n")
    elif file_format == "text":
        write_text(path, "".join(f"{token}\n" for token in vocab.ids.tolist()))
    else:
        _write_pickle(path, _content(vocab, file_format))
    return files_of(path, file_format)


def files_of(path: Path, file_format: str) -> list[Path]:
    """The files that ``write_vocab`` writes."""
    return [path / name for name in _ARRAYS] if file_format == "speculators" else [path]


def _inside(folder: Path) -> Path:
    """The file of a folder that holds its vocabulary."""
    for name in (RUN_VOCAB, MAPPING, *_ARRAYS, *WEIGHTS, *INDEXES, OFFSETS, EAGLE_CACHE):
        if (folder / name).is_file():
            return folder / name
    raise InputError(
        f"{folder}: holds no vocabulary: no {RUN_VOCAB} (run `vtrim search`), no draft, "
        f"no {MAPPING}, no d2t.npy."
    )


def _read(
    file: Path, sizes: _Sizes, meaning: Meaning | None
) -> tuple[FoundVocab, str, Mapping[str, str]]:
    """Ids, the name of the format and the file's own metadata, by the file's first bytes."""
    size, kind = sizes[0] or sizes[1], kind_of(file)
    if kind == "array":
        return _read_arrays(file, size, meaning), "speculators", {}
    if kind == "tensors":
        return _read_tensors(file, sizes[0])
    if kind == "saved":
        refuse_counts(file)
        return (*_read_saved(file, sizes, meaning), {})
    return (*_read_list(file, size), {})


def _read_arrays(file: Path, size: int | None, meaning: Meaning | None) -> FoundVocab:
    """speculators: d2t.npy and t2d.npy, either of them named, the other beside it."""
    arrays = {}
    for name in ("d2t", "t2d"):
        beside = file.with_name(f"{name}.npy")
        if (beside == file or file.stem in ("d2t", "t2d")) and beside.exists():
            arrays[name] = _load_array(beside)
    if not arrays:
        return find_ids(as_ints(_load_array(file), str(file), "it"), None, size, str(file), meaning)
    d2t, t2d = arrays.get("d2t"), arrays.get("t2d")
    return find_ids(
        None if d2t is None else as_ints(d2t, str(file), "d2t"),
        None if t2d is None else as_mask(t2d, str(file)),
        size,
        str(file),
        meaning,
    )


def _load_array(file: Path) -> Any:
    try:
        return np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{file}: incomplete or not a numpy array ({error}).") from error


def _read_tensors(file: Path, size: int | None) -> tuple[FoundVocab, str, Mapping[str, str]]:
    """A safetensors file: vtrim's own, or the weights of a draft."""
    checkpoint = Checkpoint(file)
    if set(checkpoint.names) == {"d2t", "t2d"}:
        vocab = DraftVocab.load(file)
        return FoundVocab(vocab.ids, vocab.target_vocab_size, "offsets"), "vtrim", _metadata(file)
    return draft_mapping(checkpoint, _config(file), size), "draft", {}


def _read_saved(file: Path, sizes: _Sizes, meaning: Meaning | None) -> tuple[FoundVocab, str]:
    """A file of torch.save: SpecForge's mapping, ids, ModelOpt's offsets, or a draft."""
    found, origin, size = read_pickle(file), str(file), sizes[0] or sizes[1]
    if isinstance(found, Mapping):
        if any(str(name).endswith("fc.weight") for name in found):
            return draft_mapping(Checkpoint(file), _config(file), sizes[0]), "draft"
        if not {"d2t", "t2d"} & set(found):
            names = ", ".join(sorted(map(str, found))[:5]) or "nothing"
            raise InputError(f"{origin}: holds {names}, but no d2t or t2d; no draft vocabulary.")
        d2t = as_ints(found["d2t"], origin, "d2t") if "d2t" in found else None
        t2d = as_mask(found["t2d"], origin) if "t2d" in found else None
        return find_ids(d2t, t2d, size, origin, meaning), "specforge"
    if isinstance(found, list | tuple):
        listed = as_ints(list(found), origin, "it")
        return find_ids(listed, None, size, origin, meaning or "absolute"), "fr-spec"
    if isinstance(found, torch.Tensor) and found.dtype == torch.bool:
        return find_ids(None, as_mask(found, origin, "it"), size, origin), "specforge"
    ids = find_ids(as_ints(found, origin, "it"), None, size, origin, meaning)
    return ids, "modelopt" if ids.meaning == "offsets" else "hot-token-ids"


def _read_list(file: Path, size: int | None) -> tuple[FoundVocab, str]:
    """Absolute ids in a JSON list, or in a text that separates them by blanks or commas."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"{file}: no vocabulary of a known kind.") from error
    if text.lstrip().startswith(("[", "{")):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:  # cut, a number of 5,000 digits, too deep
            raise InputError(f"{file}: not whole JSON, or no list of ids ({error}).") from error
        if isinstance(values, dict):
            values = values.get("ids")
        if not isinstance(values, list):
            raise InputError(f"{file}: no list of token ids (nor an object with `ids`).")
        kind = "json"
    else:
        values, kind = _numbers(file, text), "text"
    ids = as_ints(values, str(file), "it")
    return find_ids(ids, None, size, str(file), "absolute"), kind


def _numbers(file: Path, text: str) -> list[int]:
    values = []
    for number, line in enumerate(text.splitlines(), start=1):
        for word in line.split("#")[0].replace(",", " ").split():
            try:
                values.append(int(word))
            except ValueError as error:
                raise InputError(f"{file}:{number}: '{word[:40]}' is not a token id.") from error
    return values


def _config(file: Path) -> Mapping[str, Any]:
    """The config.json beside a draft's weights; empty where there is none."""
    path = file.with_name("config.json")
    if not path.exists():
        return {}
    return read_config(path)


def _metadata(file: Path) -> Mapping[str, str]:
    from safetensors import safe_open

    with safe_open(file, framework="numpy") as opened:
        return dict(opened.metadata() or {})


def _content(vocab: DraftVocab, file_format: str) -> Any:
    """What torch.save gets."""
    offsets, mask = torch.from_numpy(vocab.d2t), torch.from_numpy(vocab.t2d)
    if file_format == "specforge":
        return {"d2t": offsets, "t2d": mask}
    if file_format == "modelopt":
        return offsets
    ids = torch.from_numpy(vocab.ids)
    return ids.tolist() if file_format == "fr-spec" else ids


def _write_pickle(path: Path, value: Any) -> None:
    buffer = io.BytesIO()  # its archive is named "archive": a path would put its name in the bytes
    torch.save(value, buffer)
    with atomic_path(path) as temporary:
        temporary.write_bytes(buffer.getvalue())
