"""The least time a GPU needs for a decoding round: bytes over bandwidth or FLOPs over peak.

A best case: no kernel reaches both peaks, launches cost nothing, keys and values of the context,
activations and sampling are left out. Where memory decides (small batches), a GPU that reaches the
same share of its bandwidth everywhere leaves the *ratios* of these times as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from vtrim.errors import OptionError
from vtrim.flops.cost import DraftStep, draft_bytes, draft_flops
from vtrim.flops.times import StepTimes
from vtrim.shape import DraftShape

BYTES_PER_WEIGHT = 2  # bf16


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU's data sheet: bandwidth [bytes/s], dense bf16 peak [FLOP/s], memory [bytes]."""

    bandwidth: float
    peak: float
    memory: float
    source: str


def _gpu(gigabytes_per_s: float, teraflops: float, gigabytes: float, source: str) -> Gpu:
    return Gpu(
        bandwidth=gigabytes_per_s * 1e9,
        peak=teraflops * 1e12,
        memory=gigabytes * 1e9,
        source=source,
    )


# Dense (without sparsity) bf16 peaks with fp32 accumulation; where a data sheet prints the sparse
# figure only, half of it.
GPUS = {
    "B200": _gpu(8000, 2250, 180, "NVIDIA DGX B200 data sheet, one of eight"),
    "H200": _gpu(4800, 989, 141, "NVIDIA H200 data sheet (SXM)"),
    "H100 SXM": _gpu(3350, 989, 80, "NVIDIA H100 data sheet"),
    "H100 PCIe": _gpu(2000, 756, 80, "NVIDIA H100 PCIe product brief"),
    "H20": _gpu(4000, 148, 96, "NVIDIA H20 data sheet"),
    "A100 80G": _gpu(2039, 312, 80, "NVIDIA A100 data sheet (SXM)"),
    "A100 40G": _gpu(1555, 312, 40, "NVIDIA A100 data sheet (SXM)"),
    "A10": _gpu(600, 125, 24, "NVIDIA A10 data sheet"),
    "L40S": _gpu(864, 362, 48, "NVIDIA L40S data sheet"),
    "L4": _gpu(300, 121, 24, "NVIDIA L4 data sheet"),
    "RTX 5090": _gpu(1792, 209.5, 32, "NVIDIA RTX Blackwell architecture paper"),
    "RTX 4090": _gpu(1008, 165.2, 24, "NVIDIA Ada architecture paper"),
    "RTX 3090": _gpu(936, 71, 24, "NVIDIA GA102 architecture paper"),
    "MI300X": _gpu(5300, 1307, 192, "AMD Instinct MI300X data sheet"),
}
_ALIASES = {"h100": "H100 SXM", "h100sxm5": "H100 SXM", "h200sxm": "H200", "a100": "A100 80G"}


def find_gpu(name: str) -> tuple[str, Gpu]:
    """The GPU of that name; case, spaces, dashes and a leading maker do not matter.

    Raises:
        OptionError: its data sheet is not known here.
    """
    wanted = _plain(name)
    known = {_plain(label): label for label in GPUS} | _ALIASES
    if wanted not in known:
        raise OptionError(f"--gpu {name}: unknown. Known: {', '.join(GPUS)}.")
    label = known[wanted]
    return label, GPUS[label]


def target_weights(shape: DraftShape) -> int:
    """Weights a forward of a dense target reads: its blocks (gated MLP) and its LM head.

    Norms, biases and the rows looked up in the embedding are left out.
    """
    d = shape.target_hidden_size
    query = shape.num_attention_heads * shape.head_dim
    key = shape.num_key_value_heads * shape.head_dim
    block = 2 * d * query + 2 * d * key + 3 * d * shape.intermediate_size
    return shape.num_target_layers * block + d * shape.target_vocab_size


def roofline_times(
    shape: DraftShape, gpu: Gpu, name: str, *, num_draft_tokens: int, batch: int = 1
) -> StepTimes:
    """The least times of a round on that GPU, weights in bf16 [s]."""
    weights = target_weights(shape)

    def forward(tokens: int) -> float:
        return _seconds(gpu, BYTES_PER_WEIGHT * weights, 2 * weights * tokens * batch)

    per_row = _seconds(gpu, BYTES_PER_WEIGHT * shape.hidden_size, 2 * shape.hidden_size * batch)
    steps = [DraftStep(recursive=step > 0, num_tokens=batch) for step in range(num_draft_tokens)]
    bodies = [
        _seconds(gpu, draft_bytes(shape, 0, step).total, draft_flops(shape, 0, step).total)
        for step in steps
    ]
    return StepTimes(
        verify_s=forward(num_draft_tokens + 1),
        plain_s=forward(1),
        draft_base_s=sum(bodies) / num_draft_tokens,
        draft_per_row_s=per_row,
        num_draft_tokens=num_draft_tokens,
        batch=batch,
        source=f"roofline: {name}, bf16, batch {batch} (best case: {gpu.source})",
    )


def _seconds(gpu: Gpu, num_bytes: float, num_flops: float) -> float:
    return max(num_bytes / gpu.bandwidth, num_flops / gpu.peak)


def _plain(name: str) -> str:
    """A name as it is compared: letters and digits, without the maker's."""
    letters = "".join(char for char in name.lower() if char.isalnum())
    for maker in ("nvidia", "geforce", "amd", "instinct"):
        letters = letters.removeprefix(maker)
    return letters.replace("80gb", "80g").replace("40gb", "40g")
