"""What decides a generation, what it gives, and one sequence while it grows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vtrim.decoding.protocol import ROOT, Proposal, Verdict
from vtrim.decoding.sampling import arg_max, check_temperature
from vtrim.decoding.stops import Stops
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
        check_temperature(self.temperature)
        if self.num_draft_tokens < 0:
            raise OptionError(f"--num-draft-tokens {self.num_draft_tokens}: give 0 or more.")
        if self.top_k < 0:
            raise OptionError(f"--top-k {self.top_k}: give 0 (all tokens) or more.")
        if not 0 < self.top_p <= 1:
            raise OptionError(f"--top-p {self.top_p:g}: give a share above 0, at most 1 (all).")


@dataclass(frozen=True, slots=True)
class Rejection:
    """What a round's first rejected tokens were rejected for.

    position: drafted tokens kept before them; token: the target's own in their place; likeliest:
    whether one of them is the target's arg-max, so that a draw or the rule's noise rejected it.
    """

    position: int
    token: int
    likeliest: bool


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A reply and what each round gave.

    tokens: the reply, its stop token included, the prefill token first; drafted and accepted: one
    number a round, the depth of what was drafted and how much of it was kept, tokens behind an
    accepted stop counted in neither; nodes: tokens drafted in each round, all branches counted;
    rejections: one of each round that rejected a drafted token before the reply ended; reasons:
    why drafted tokens passed; off_argmax: tokens of the rounds that differ from the
    target's arg-max after the same prefix; log_prob: sum of the target's own log p of these tokens
    at temperature 1 [nats]; seconds [s] of ``prefill``, ``draft``, ``verify``, ``accept`` and
    ``other``, of a batch's round the sequence's equal share; finish_reason: ``stop`` behind a stop
    token or string, else ``length``.
    """

    tokens: tuple[int, ...]
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]
    reasons: dict[str, int]
    off_argmax: int
    seconds: dict[str, float]
    nodes: tuple[int, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    log_prob: float = 0.0
    finish_reason: str = "length"

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
    of the rows the draft has not seen. slot: its place in the drafter's cache. seconds: by phase.
    """

    tokens: list[int]
    prompt_length: int
    prompt: int
    reply_end: int
    aux: Tensor
    slot: int = 0
    stopped: bool = False
    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    rejected: list[tuple[int, int, Tensor]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    off_argmax: Tensor | int = 0  # on the target's device: read once, at the end
    log_prob: Tensor | float = 0.0

    @property
    def done(self) -> bool:
        """Whether a stop or the length limit has ended the reply."""
        return self.stopped or len(self.tokens) >= self.reply_end

    @property
    def room(self) -> int:
        """Drafted tokens that still fit: the target gives one token of a round itself."""
        return self.reply_end - len(self.tokens) - 1

    def commit(self, proposal: Proposal, verdict: Verdict, stops: Stops) -> list[int]:
        """Appends the accepted tokens and the target's own, up to the one that stops the reply.

        Returns the tokens that were appended.
        """
        count, num_drafted = verdict.num_accepted, proposal.depth
        emitted = [*(proposal.ids[node] for node in verdict.path), verdict.next_token]
        stop = stops.first(self.tokens, self.prompt_length, emitted)
        if stop is not None:
            emitted, self.stopped = emitted[: stop + 1], True
            if stop < count:  # drafted tokens behind an accepted stop count for nothing
                num_drafted = count = stop + 1
        self.tokens += emitted
        self.drafted.append(num_drafted)
        self.accepted.append(count)
        self.nodes.append(proposal.size)
        self.reasons.update(verdict.reasons[:count])
        return emitted

    def note(
        self, logits: Tensor, proposal: Proposal, verdict: Verdict, emitted: list[int]
    ) -> None:
        """Counts how the emitted tokens stand under the target's own law. logits: [N+1, V]."""
        rows = [0, *(node + 1 for node in verdict.path)][: len(emitted)]
        chain = verdict.path == tuple(range(len(verdict.path)))
        own = logits[: len(emitted)] if chain else logits[rows]
        tokens = torch.tensor(emitted, device=logits.device)
        best = arg_max(own)
        self.off_argmax = self.off_argmax + (best != tokens).sum()
        self.log_prob = self.log_prob + own.log_softmax(-1).gather(1, tokens[:, None]).sum()
        rejected = proposal.children.get(verdict.path[-1] if verdict.path else ROOT, [])
        if rejected and len(emitted) > len(verdict.path):  # else an accepted stop ended the reply
            drafted = torch.tensor([proposal.ids[node] for node in rejected], device=best.device)
            likeliest = (drafted == best[-1]).any()
            self.rejected.append((len(verdict.path), verdict.next_token, likeliest))

    def finish(self) -> Generation:
        """The reply and its counts."""
        return Generation(
            tokens=tuple(self.tokens[self.prompt_length :]),
            drafted=tuple(self.drafted),
            accepted=tuple(self.accepted),
            nodes=tuple(self.nodes),
            rejections=tuple(Rejection(at, token, bool(top)) for at, token, top in self.rejected),
            reasons=dict(self.reasons),
            off_argmax=int(self.off_argmax),
            log_prob=float(self.log_prob),
            seconds=self.seconds,
            finish_reason="stop" if self.stopped else "length",
        )
