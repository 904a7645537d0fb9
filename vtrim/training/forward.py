"""Which samples share a forward of the target: like lengths, so that little is padding.

Measured on SmolLM2 (CPU, bf16, 32 chats of 49 to 249 tokens): alone 5.3 CPU s, in sorted fours
5.0 s, all 32 padded together 7.5 s, packed with position ids and a block mask 10.5 s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

FORWARD_TOKENS = 1 << 14  # tokens of one forward, padding included: bounds its memory
SHORTEST = 0.8  # of the longest sample of the forward


def forward_groups(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of the samples of each forward, the longest first."""
    groups: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        full = not groups or (len(groups[-1]) + 1) * longest > FORWARD_TOKENS
        if full or lengths[index] < SHORTEST * longest:
            groups.append([])
            longest = lengths[index]
        groups[-1].append(index)
    return groups


def padding_share(batches: Iterable[Sequence[int]]) -> float:
    """Share of the forwards' tokens that is padding; each batch is the lengths of its samples."""
    own = whole = 0
    for lengths in batches:
        own += sum(lengths)
        whole += sum(len(group) * lengths[group[0]] for group in forward_groups(lengths))
    return 1 - own / whole if whole else 0.0
