"""How much is drafted: the size of a tree, and the confidence that a chain ends at. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from vtrim.errors import OptionError


def check_confidence(value: float) -> None:
    """Refuses what is no probability below 1.

    Raises:
        OptionError: says what is.
    """
    if not 0 <= value < 1:
        raise OptionError(
            f"--min-confidence {value:g}: give a probability from 0 (off) to below 1."
        )


@dataclass(frozen=True)
class TreeShape:
    """Size of a tree; SGLang's num_draft_tokens, num_steps - 1 and eagle_topk.

    total_token: rows the target verifies, the sequence's last token and total_token - 1 drafted
    ones; depth: draft passes behind the first, so a path has at most depth + 1 drafted tokens.
    """

    total_token: int
    depth: int
    top_k: int

    def __post_init__(self) -> None:
        """Raises: OptionError when no tree has these numbers."""
        if self.top_k < 1:
            raise OptionError(f"tree top_k={self.top_k}: give at least 1 child a node.")
        if self.depth < 0:
            raise OptionError(f"tree depth={self.depth}: give 0 (one level of nodes) or more.")
        if self.total_token < 2:
            raise OptionError(
                f"tree total_token={self.total_token}: give at least 2, the sequence's last token "
                "and one drafted token."
            )
        most = self.nodes(self.depth + 1)
        if self.total_token - 1 > most:
            raise OptionError(
                f"tree total_token={self.total_token} asks for {self.total_token - 1} drafted "
                f"tokens; with depth={self.depth} and top_k={self.top_k} a tree has {most}. Lower "
                f"total_token to {most + 1}, or raise depth or top_k."
            )

    def nodes(self, levels: int) -> int:
        """Nodes of a pool with that many levels, at least one: K, then K * K a level."""
        return self.top_k + (levels - 1) * self.top_k**2
