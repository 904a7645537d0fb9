"""What decides a generation, what it gives, and one sequence while it grows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from torch import Tensor

from vtrim.decoding.protocol import Proposal, Verdict
from vtrim.errors import OptionError


@dataclass(frozen=True, kw_only=True)
class GenerationSettings:
    """What decides a generation besides prompt, draft and acceptor.

    temperature: 0 is greedy; top_k and top_p filter the target's law (0 and 1 keep it whole);
    num_draft_tokens: L, the depth of a tree, 0 is plain decoding; adaptive: L is the most, and the
    number of each round follows measured times and acceptance; stop_strings: texts that end a
    reply, the engine then needs a tokenizer.
    """

    max_new_tokens: int
    stop_ids: frozenset[int]
    temperature: float
    num_draft_tokens: int
    seed: int
    top_k: int = 0
    top_p: float = 1.0
    adaptive: bool = False
    stop_strings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises: OptionError when a value is out of range."""
        if self.max_new_tokens < 1:
            raise OptionError(f"--max-new-tokens {self.max_new_tokens}: at least 1 is needed.")
        if not 0 <= self.temperature < float("inf"):
            raise OptionError(f"--temperature {self.temperature}: give 0 (greedy) or more.")
        if self.num_draft_tokens < 0:
            raise OptionError(f"--num-draft-tokens {self.num_draft_tokens}: give 0 or more.")
        if self.top_k < 0:
            raise OptionError(f"--top-k {self.top_k}: give 0 (all tokens) or more.")
        if not 0 < self.top_p <= 1:
            raise OptionError(f"--top-p {self.top_p:g}: give a share above 0, at most 1 (all).")


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A reply and what each round gave.

    tokens: the reply, its stop token included, the prefill token first; drafted and accepted: one
    number a round, tokens behind an accepted stop token counted in neither; reasons: why drafted
    tokens passed; off_argmax: tokens of the rounds that differ from the target's arg-max after the
    same prefix; seconds [s] of ``prefill``, ``draft``, ``verify``, ``accept`` and ``other``.
    """

    tokens: tuple[int, ...]
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    reasons: dict[str, int]
    off_argmax: int
    seconds: dict[str, float]

    @property
    def rounds(self) -> int:
        """Number of target forwards after the prefill."""
        return len(self.drafted)

    @property
    def emitted(self) -> int:
        """Tokens that the rounds gave [tokens]: all but the prefill token."""
        return len(self.tokens) - 1

    @property
    def decode_seconds(self) -> float:
        """Time of the rounds [s]: everything but the prefill."""
        return sum(value for phase, value in self.seconds.items() if phase != "prefill")


@dataclass
class SequenceState:
    """One sequence while it grows.

    tokens: prompt and reply; the last one has no row in the target's cache yet. prompt: its index,
    part of every random seed. reply_end: length at which the reply must end. aux: [R, 3d] states
    of the rows the draft has not seen.
    """

    tokens: list[int]
    prompt_length: int
    prompt: int
    reply_end: int
    aux: Tensor
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    off_argmax: int = 0
    stopped: bool = False

    @property
    def done(self) -> bool:
        """Whether a stop token or the length limit has ended the reply."""
        return self.stopped or len(self.tokens) >= self.reply_end

    @property
    def room(self) -> int:
        """Drafted tokens that still fit: the target gives one token of a round itself."""
        return self.reply_end - len(self.tokens) - 1

    def commit(self, proposal: Proposal, verdict: Verdict, stop_ids: frozenset[int]) -> list[int]:
        """Appends the accepted tokens and the target's own, up to a stop token.

        Returns the tokens that were appended.
        """
        count, num_drafted = verdict.num_accepted, max(proposal.depths, default=-1) + 1
        emitted = [*(proposal.ids[node] for node in verdict.path), verdict.next_token]
        stop = next((i for i, token in enumerate(emitted) if token in stop_ids), None)
        if stop is not None:
            emitted, self.stopped = emitted[: stop + 1], True
            if stop < count:  # drafted tokens behind an accepted stop token count for nothing
                num_drafted = count = stop + 1
        self.tokens += emitted
        self.drafted.append(num_drafted)
        self.accepted.append(count)
        self.reasons.update(verdict.reasons[:count])
        return emitted

    def finish(self, seconds: dict[str, float]) -> Generation:
        """The reply and its counts."""
        return Generation(
            tokens=tuple(self.tokens[self.prompt_length :]),
            drafted=tuple(self.drafted),
            accepted=tuple(self.accepted),
            reasons=dict(self.reasons),
            off_argmax=self.off_argmax,
            seconds=seconds,
        )
