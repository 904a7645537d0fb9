"""The traits of a draft folder that engines act on, read as it is: nothing here is mended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrim.errors import InputError
from vtrim.models.checkpoint import Checkpoint
from vtrim.models.foreign_config import flat_config, read_config
from vtrim.models.mapping import FoundVocab, as_ints, as_mask, find_ids
from vtrim.vocab import Ids


@dataclass(frozen=True, kw_only=True)
class Served:
    """The target that the draft is to be served with.

    folder: where its files are, if they are here. tensor_parallel, pipeline_parallel: its ranks.
    """

    config: Mapping[str, Any]
    folder: Path | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1

    def whole(self, name: str) -> int | None:
        """A whole number of the language model's config."""
        nested = self.config.get("text_config")
        value = (nested if isinstance(nested, Mapping) else self.config).get(name)
        return value if type(value) is int else None

    @property
    def model_type(self) -> str:
        """The family, as transformers names it."""
        return str(self.config.get("model_type", ""))


@dataclass(frozen=True, kw_only=True)
class DraftFolder:
    """What is in a draft's folder.

    flat: the config with nested parts on one level. names: own name -> name in the file, where own
    is without ``model.`` and with ``midlayer`` for ``layers.0``. shapes: by own name. files: all
    files of weights. d2t, t2d: as stored. embedding: the draft's own, if it has one.
    """

    path: Path
    config: dict[str, Any]
    flat: dict[str, Any]
    names: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    files: tuple[str, ...]
    checkpoint: Checkpoint
    d2t: Ids | None
    t2d: Any
    target: Served | None

    @property
    def is_nested(self) -> bool:
        """Whether the config is speculators'."""
        return isinstance(self.config.get("transformer_layer_config"), Mapping)

    @property
    def rows(self) -> int | None:
        """Vd by the head; None without one."""
        return (self.shapes.get("lm_head.weight") or (None,))[0]

    @property
    def target_rows(self) -> int | None:
        """V: by t2d, the embedding, the target, and last the config."""
        if self.t2d is not None:
            return int(self.t2d.size)
        embedding = self.shapes.get("embed_tokens.weight")
        known = self.target.whole("vocab_size") if self.target else None
        return (embedding[0] if embedding else None) or known or self.whole("vocab_size")

    @property
    def num_layers(self) -> int | None:
        """Layers of the target, by itself or by vtrim's note."""
        known = self.target.whole("num_hidden_layers") if self.target else None
        noted = self.config.get("vtrim")
        return known or (noted.get("num_target_layers") if isinstance(noted, Mapping) else None)

    def whole(self, name: str) -> int | None:
        """A whole number of the draft's config."""
        value = self.flat.get(name)
        return value if type(value) is int else None

    def inner(self, name: str) -> Any:
        """A value inside ``eagle_config``."""
        nested = self.config.get("eagle_config")
        return nested.get(name) if isinstance(nested, Mapping) else None

    def vocabulary(self) -> FoundVocab | None:
        """The ids behind d2t and t2d; None where no reading fits."""
        try:
            return find_ids(self.d2t, self.t2d, self.target_rows, "", usual="offsets")
        except InputError:
            return None


def read_folder(folder: Path, target: Served | None = None) -> DraftFolder:
    """The traits of a draft's folder.

    Raises:
        InputError: config.json or the weights are missing, cut, or no draft's.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such draft folder.")
    config, checkpoint = read_config(folder / "config.json"), Checkpoint(folder)
    names: dict[str, str] = {}
    for name in checkpoint.names:
        own = name.removeprefix("model.")
        names[own.replace("layers.0.", "midlayer.", 1) if own.startswith("layers.0.") else own] = (
            name
        )
    origin = str(checkpoint.path)
    d2t = as_ints(checkpoint.tensor(names["d2t"]), origin, "d2t") if "d2t" in names else None
    t2d = as_mask(checkpoint.tensor(names["t2d"]), origin) if "t2d" in names else None
    found = {p.name for p in folder.iterdir() if p.suffix in (".safetensors", ".bin")}
    return DraftFolder(
        path=folder,
        config=config,
        flat=flat_config(config),
        names=names,
        shapes={own: checkpoint.shape(name) for own, name in names.items()},
        files=tuple(sorted(found)),
        checkpoint=checkpoint,
        d2t=d2t,
        t2d=t2d,
        target=target,
    )
