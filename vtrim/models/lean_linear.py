"""Products with weights that never change: packed once on a CPU, as they are elsewhere.

oneDNN reads a weight fastest in its own blocked layout. ``F.linear`` starts from rows and arranges
them anew at each call, which costs as much as the product itself when x has few rows. PyTorch packs
a weight ahead only through the operators that ``torch.compile`` emits (``torch.ops.mkldnn``); its
documented ways were measured and are slower than ``F.linear`` (``torch.utils.mkldnn`` packs no
linear weight, a frozen ``torch.compile`` of one product costs more in guards than it saves). So the
operators are looked up at run time, their results are checked, and without them nothing is packed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

Product = Callable[[Tensor], Tensor]
"""[..., d_in] -> [..., d_out]."""

_ROWS = 4  # the number of rows that the layout is chosen for; it serves 1 to 500 as well
_RESERVE = 512 * 2**20  # left for everything else when weights are packed [bytes]


def product(weight: Tensor, bias: Tensor | None, *, pack: bool) -> Product:
    """The map x @ weight.T + bias; packing keeps a second copy of the weight [d_out, d_in]."""
    if not pack:
        return lambda x: F.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS)
    run = torch.ops.mkldnn._linear_pointwise.default

    def packed_product(x: Tensor) -> Tensor:
        out: Tensor = run(x, packed, bias, "none", [], "")
        return out

    return packed_product


def cannot_pack(weight: Tensor, num_bytes: int) -> str | None:
    """Why weights like this one, ``num_bytes`` in all, are not packed; None: they can be."""
    if weight.device.type != "cpu":
        return "weights are packed on a CPU only"
    if not torch.backends.mkldnn.is_available() or not _has_operators():
        return "this PyTorch has no oneDNN packing"
    supported = {
        torch.float32: True,
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported(),
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported(),
    }
    if not supported.get(weight.dtype, False):
        return f"this CPU multiplies no packed {str(weight.dtype).removeprefix('torch.')} weights"
    free = available_memory()
    if free is not None and free < num_bytes + _RESERVE:
        return (
            f"packed weights take another {num_bytes / 2**30:.1f} GiB and "
            f"{free / 2**30:.1f} GiB are free"
        )
    return None


def _has_operators() -> bool:
    names = (
        "_reorder_linear_weight",
        "_linear_pointwise",
        "_is_mkldnn_bf16_supported",
        "_is_mkldnn_fp16_supported",
    )
    return all(hasattr(torch.ops.mkldnn, name) for name in names)


def available_memory() -> int | None:
    """Memory that a program may still take [bytes], a container's limit heeded; None: unknown."""
    found = []
    system = _fields(Path("/proc/meminfo"))
    if "MemAvailable:" in system:
        found.append(1024 * system["MemAvailable:"])
    elif "SC_AVPHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    group = Path("/sys/fs/cgroup")
    limit = group / "memory.max"
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        found.append(int(text) - _fields(group / "memory.stat").get("anon", 0))
    return min(found, default=None)


def _fields(path: Path) -> dict[str, int]:
    """Lines of ``name number ...``; nothing where the file is absent."""
    if not path.is_file():
        return {}
    rows = (line.split() for line in path.read_text().splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}
