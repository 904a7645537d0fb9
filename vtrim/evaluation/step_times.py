"""How long a verification and a draft step take on this machine, as decoding meets them.

Target and draft alternate, so that each finds the caches as the other leaves them: timed alone and
hot, both look two to three times faster than they are in a round. Plain decoding has no draft, so
its step follows another one. Weights of the draft are random; its cost does not depend on what it
proposes.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vtrim.decoding.cache import TargetCache
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.protocol import Ask
from vtrim.errors import OptionError
from vtrim.flops.cost import DraftStep, draft_flops
from vtrim.models.draft import Eagle3Draft
from vtrim.models.target import Target
from vtrim.shape import DraftShape

_WARM_UP_ROUNDS = 2


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """What is timed: L drafted tokens behind ``context`` cached ones, with heads of some sizes.

    repeats: how often each pair of a verification length (1 .. L + 1) and a size is timed.
    """

    num_draft_tokens: int
    context: int
    repeats: int
    sizes: tuple[int, ...]

    @property
    def num_rounds(self) -> int:
        """Rounds that will be timed."""
        return self.repeats * len(self.sizes) * (self.num_draft_tokens + 1)


def default_sizes(target_vocab_size: int, chosen: int | None = None) -> tuple[int, ...]:
    """Sizes that span the line T_draft(k): V, its half, quarter, .., and the chosen one."""
    spread = {max(target_vocab_size >> shift, 1) for shift in range(5)}
    return tuple(sorted(spread | ({chosen} if chosen else set())))


@torch.inference_mode()
def measure_steps(
    target: Target,
    shape: DraftShape,
    settings: StepSettings,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Medians and quartiles of verification and draft steps [s], and the line through the latter.

    Raises:
        OptionError: the context has no room for the cached tokens and a round.
    """
    bench = _Bench(target, shape, settings)
    lengths = range(1, settings.num_draft_tokens + 2)
    pairs = [(tokens, k) for k in settings.sizes for tokens in lengths]
    verify: dict[int, list[float]] = {tokens: [] for tokens in lengths}
    draft: dict[int, list[float]] = {k: [] for k in settings.sizes}
    for tokens, k in pairs[:_WARM_UP_ROUNDS]:
        bench.round(tokens, k)
    order = np.random.default_rng(0)
    for _ in range(settings.repeats):
        for index in order.permutation(len(pairs)):
            tokens, k = pairs[index]
            seconds = bench.round(tokens, k)
            verify[tokens].append(seconds[0])
            draft[k].append(seconds[1] / settings.num_draft_tokens)
            advance()
    rows = [{"k": k, **_spread(draft[k])} for k in settings.sizes]
    return {
        **_machine(target),
        "context": settings.context,
        "num_draft_tokens": settings.num_draft_tokens,
        "batch": 1,
        "repeats": settings.repeats,
        "verify": [{"tokens": tokens, **_spread(verify[tokens])} for tokens in lengths],
        **fit_draft(rows, shape, settings.num_draft_tokens),
    }


def fit_draft(
    rows: Sequence[dict[str, Any]], shape: DraftShape, num_draft_tokens: int
) -> dict[str, Any]:
    """The line base + per_row k through the draft steps' medians, and what each size saves.

    Errors count relative to the time, so that small sizes weigh as much as large ones. A slope or a
    start below 0 (noise on tiny models) is set to 0. measured_reduction is against the largest
    size timed, predicted_reduction counts FLOPs, mean over the steps of a round.
    """
    sizes = np.array([row["k"] for row in rows], dtype=np.float64)
    medians = np.array([row["median_s"] for row in rows])
    per_row, base = np.polyfit(sizes, medians, 1, w=1 / medians) if len(rows) > 1 else (0.0, 0.0)
    if len(rows) < 2 or per_row < 0:
        per_row, base = 0.0, float(np.mean(medians))
    elif base < 0:
        base, per_row = 0.0, float(np.sum(sizes / medians) / np.sum((sizes / medians) ** 2))
    fitted = base + per_row * sizes
    largest = rows[int(np.argmax(sizes))]
    full = _round_flops(shape, int(largest["k"]), num_draft_tokens)
    return {
        "draft": [
            {
                **row,
                "fit_s": float(fit),
                "measured_reduction": 1 - row["median_s"] / largest["median_s"],
                "predicted_reduction": 1
                - _round_flops(shape, int(row["k"]), num_draft_tokens) / full,
            }
            for row, fit in zip(rows, fitted, strict=True)
        ],
        "draft_fit": {
            "base_s": float(base),
            "per_row_s": float(per_row),
            "largest_error": float(np.max(np.abs(fitted / medians - 1))),
        },
    }


class _Bench:
    """A target with cached tokens, and a draft of every size that shares all but its head."""

    def __init__(self, target: Target, shape: DraftShape, settings: StepSettings) -> None:
        self.target, self.settings = target, settings
        room = settings.context + settings.num_draft_tokens + 1
        if room > shape.max_position_embeddings:
            raise OptionError(
                f"--context {settings.context}: with {settings.num_draft_tokens} drafted tokens "
                f"that is more than the target's {shape.max_position_embeddings} positions."
            )
        generator = torch.Generator().manual_seed(0)
        ids = torch.randint(0, shape.target_vocab_size, (room,), generator=generator)
        self.ids = ids.to(target.device)
        self.cache = TargetCache(target.config, 1, room)
        states = target.forward(self.ids[None, : settings.context], cache=self.cache)
        self.aux = states.aux[0]
        self.drafters = dict(self._drafters(shape, room))

    def _drafters(self, shape: DraftShape, room: int) -> Iterator[tuple[int, ChainDrafter]]:
        context, target = self.settings.context, self.target
        whole = _draft(shape, max(self.settings.sizes), target)
        for k in self.settings.sizes:
            drafter = ChainDrafter(_with_head(whole, k), target.embedding)
            drafter.open(1, room)
            drafter.prefill(0, self.ids[:context].tolist(), self.aux[:-1])
            yield k, drafter

    def round(self, tokens: int, k: int) -> tuple[float, float]:
        """Seconds of one verification of ``tokens`` tokens, then of drafting a chain of L.

        A single token is a step of plain decoding, so another one goes before it, untimed.
        """
        if tokens == 1:
            self._verify(tokens)
        return self._verify(tokens), self._propose(self.drafters[k])

    def _verify(self, tokens: int) -> float:
        first = self.settings.context
        start = self._now()
        states = self.target.forward(self.ids[None, first : first + tokens], cache=self.cache)
        self.target.logits(states.hidden[0]).float().argmax(dim=-1).tolist()
        seconds = self._now() - start
        self.cache.rollback(first)
        return seconds

    def _propose(self, drafter: ChainDrafter) -> float:
        first, committed = self.settings.context, drafter.cache.committed[0]
        length = self.settings.num_draft_tokens
        ask = Ask(0, self.ids[: first + 1].tolist(), self.aux[-1:], length, 0)
        start = self._now()
        (proposal,) = drafter.propose([ask], length, temperature=0.0, seed=0)
        proposal.tokens.tolist()
        seconds = self._now() - start
        drafter.cache.committed[0] = committed
        return seconds

    def _now(self) -> float:
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        return time.perf_counter()


def _draft(shape: DraftShape, size: int, target: Target) -> Eagle3Draft:
    """A draft of ``size`` rows with random weights, where and as the target's are."""
    with torch.random.fork_rng(devices=[]), target.device:
        torch.manual_seed(0)
        draft = Eagle3Draft(shape, torch.arange(size))
    return draft.to(target.dtype).eval().requires_grad_(False)


def _with_head(draft: Eagle3Draft, size: int) -> Eagle3Draft:
    """The same draft with the first rows of its head only; no weight is copied."""
    with torch.device("meta"):
        other = Eagle3Draft(draft.shape, torch.arange(1))
    other.fc, other.midlayer, other.norm = draft.fc, draft.midlayer, draft.norm
    rows: Tensor = draft.lm_head.weight[:size]
    other.lm_head.weight = nn.Parameter(rows, requires_grad=False)
    other.vocab_ids = draft.vocab_ids[:size]
    return other.eval()


def _round_flops(shape: DraftShape, size: int, num_draft_tokens: int) -> float:
    """FLOPs of a draft step, the mean over a round: fc runs on the first one only."""
    first = draft_flops(shape, size).total
    later = draft_flops(shape, size, DraftStep(recursive=True)).total
    return (first + (num_draft_tokens - 1) * later) / num_draft_tokens


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    low, median, high = np.quantile(seconds, (0.25, 0.5, 0.75))
    return {"median_s": float(median), "q25_s": float(low), "q75_s": float(high)}


def _machine(target: Target) -> dict[str, Any]:
    """Where and how was timed."""
    cuda = target.device.type == "cuda"
    name = torch.cuda.get_device_name(target.device) if cuda else platform.processor()
    return {
        "device": str(target.device),
        "device_name": name or platform.machine() or "cpu",
        "dtype": str(target.dtype).removeprefix("torch."),
        "threads": 1 if cuda else torch.get_num_threads(),
        "torch": torch.__version__,
    }
