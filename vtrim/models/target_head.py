"""The LM head rows of a target, without loading the target where its files allow."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from vtrim.artifacts import read_json
from vtrim.models.checkpoint import INDEXES, WEIGHTS, Checkpoint
from vtrim.models.hub import resolve_model
from vtrim.models.target import FLOATS, load_target

_HEAD, _EMBEDDING = "lm_head.weight", "embed_tokens.weight"


def head_rows(
    name: str,
    *,
    revision: str | None = None,
    trust_remote_code: bool = False,
    offline: bool = False,
) -> Tensor:
    """[V, d] rows of a target's LM head, on the CPU.

    A local folder gives the one tensor; any other target is loaded whole.

    Raises:
        InputError: the target cannot be found or read.
    """
    folder = Path(resolve_model(name))
    found = _stored(folder) if folder.is_dir() else None
    if found is not None:
        return found
    target = load_target(
        name, revision=revision, trust_remote_code=trust_remote_code, offline=offline
    )
    return target.head_weight.detach()


def _stored(folder: Path) -> Tensor | None:
    """The head as it is stored, or the embedding that stands for it; None where names differ."""
    if not any((folder / name).exists() for name in (*WEIGHTS, *INDEXES)):
        return None
    config = read_json(folder / "config.json")
    text = config.get("text_config") or {}
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    checkpoint = Checkpoint(folder)
    for wanted in (_EMBEDDING, _HEAD) if tied else (_HEAD,):
        names = [n for n in checkpoint.names if n == wanted or n.endswith("." + wanted)]
        if len(names) == 1:
            rows = checkpoint.tensor(names[0])
            return rows if rows.dtype in FLOATS else None
    return None
