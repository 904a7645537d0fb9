"""Plain decoding of many prompts at once: finished rows leave, waiting prompts take their place.

Each draw depends on (seed, row, position) only, never on the neighbours, so a reply is the same in
any batch up to the rounding of batched matrix products.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import DynamicCache

from vtrim.decoding.sampling import Purpose, law, uniform
from vtrim.decoding.slots import SlotCache, left_padded
from vtrim.errors import InputError
from vtrim.models.target import Target

PREFILL_TOKENS = 1024  # padded prompt tokens of one prefill: a few rows at a time stay in cache
REFILL_SHARE = 8  # wait until 1/8 of the slots are free, so that a prefill is worth its call


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How replies are drawn; temperature 0 is greedy, top_p 1 keeps the whole law."""

    max_new_tokens: int
    temperature: float
    top_p: float
    seed: int


@dataclass(frozen=True)
class Reply:
    """A finished reply: its ids end with the stop token when finish_reason is ``stop``."""

    row: int
    ids: list[int]
    finish_reason: str


@dataclass
class _Live:
    """A row being decoded. first: the buffer column of its first token; length: of its prompt."""

    row: int
    first: int
    length: int
    budget: int
    ids: list[int] = field(default_factory=list)


class BatchDecoder:
    """Decodes prompts with at most ``batch_size`` rows in flight.

    Raises:
        InputError: the target has layers that are not attention.
    """

    def __init__(
        self, target: Target, stop_ids: Iterable[int], sampling: Sampling, batch_size: int
    ) -> None:
        self.target = target
        self.stop_ids = frozenset(stop_ids)
        self.sampling = sampling
        self.batch_size = batch_size
        limit = getattr(target.config, "max_position_embeddings", None)
        self.context = sys.maxsize if limit is None else int(limit)
        _check_layers(target)

    @torch.inference_mode()
    def decode(self, prompts: Sequence[tuple[int, list[int]]]) -> Iterator[Reply]:
        """Replies to (row, prompt ids) pairs, in the order in which they finish.

        Longest prompts go first: their neighbours are padded least. A prompt must be shorter
        than the target's context; a reply ends where the context does.
        """
        waiting = deque(sorted(prompts, key=lambda prompt: -len(prompt[1])))
        cache = SlotCache(self.target.num_layers, self.batch_size)
        live: list[_Live] = []
        while waiting or live:
            free = self.batch_size - len(live)
            if waiting and (not live or free * REFILL_SHARE >= self.batch_size):
                while waiting and len(live) < self.batch_size:
                    self._admit(cache, live, waiting)
                    yield from self._finished(cache, live)
            else:
                self._step(cache, live)
                yield from self._finished(cache, live)

    def _admit(
        self, cache: SlotCache, live: list[_Live], waiting: deque[tuple[int, list[int]]]
    ) -> None:
        """Prefills the next few prompts and draws their first token."""
        width = len(waiting[0][1])
        count = min(self.batch_size - len(live), max(1, PREFILL_TOKENS // width), len(waiting))
        taken = [waiting.popleft() for _ in range(count)]
        shift = cache.make_room(width)
        for row in live:
            row.first += shift
        ids, mask = left_padded([ids for _, ids in taken], self.target.device)
        prefilled = DynamicCache()
        states = self.target.forward(
            ids,
            position_ids=(mask.cumsum(-1) - 1).clamp_min(0),
            attention_mask=mask,
            cache=prefilled,
        )
        cache.add(prefilled, [len(ids) for _, ids in taken])
        added = [self._live(cache.window.end, row, ids) for row, ids in taken]
        live.extend(added)
        cache.window.start = min(row.first for row in live)
        self._draw(added, states.hidden[:, -1])

    def _live(self, end: int, row: int, ids: list[int]) -> _Live:
        budget = min(self.sampling.max_new_tokens, self.context - len(ids))
        return _Live(row=row, first=end - len(ids), length=len(ids), budget=budget)

    def _step(self, cache: SlotCache, live: list[_Live]) -> None:
        """One token for every live row."""
        shift = cache.make_room(0)
        for row in live:
            row.first += shift
        window = cache.window
        window.start = min(row.first for row in live)
        device = self.target.device
        first = torch.tensor([row.first for row in live], device=device)[:, None]
        columns = torch.arange(window.start, window.end + 1, device=device)[None]
        states = self.target.forward(
            torch.tensor([[row.ids[-1]] for row in live], device=device),
            position_ids=window.end - first,
            attention_mask=(columns >= first).long(),
            cache=cache,
        )
        window.end += 1
        self._draw(live, states.hidden[:, -1])

    def _draw(self, rows: list[_Live], hidden: Tensor) -> None:
        """Appends one token to each row. hidden: [rows, d]."""
        logits = self.target.logits(hidden).float()  # arg-max over bf16 is slow on a CPU
        tokens = logits.argmax(-1) if self.sampling.temperature == 0 else self._sample(rows, logits)
        for row, token in zip(rows, tokens.tolist(), strict=True):
            row.ids.append(token)

    def _sample(self, rows: list[_Live], logits: Tensor) -> Tensor:
        """[rows] one draw a row. logits: [rows, V] fp32."""
        sampling = self.sampling
        weights = law(logits, sampling.temperature, top_p=sampling.top_p).exp()
        places = [(sampling.seed, row.row, row.length + len(row.ids)) for row in rows]
        uniforms = [uniform(place, Purpose.TARGET) for place in places]
        return invert(weights, torch.tensor(uniforms, device=weights.device))

    def _finished(self, cache: SlotCache, live: list[_Live]) -> Iterator[Reply]:
        """Takes the finished rows out of the batch, last slot first."""
        for slot in range(len(live) - 1, -1, -1):
            row = live[slot]
            stopped = row.ids[-1] in self.stop_ids
            if not stopped and len(row.ids) < row.budget:
                continue
            cache.drop(slot)
            live[slot] = live[-1]
            live.pop()
            yield Reply(row.row, row.ids, "stop" if stopped else "length")


def _check_layers(target: Target) -> None:
    """Refuses layers whose state is not keys and values by position."""
    kinds = set(getattr(target.config, "layer_types", None) or ())
    others = sorted(kind for kind in kinds if "attention" not in kind or "linear" in kind)
    if others:
        raise InputError(
            f"{target.name}: has layers of type {', '.join(others)}; batched decoding handles "
            "attention layers only. Let a server of this model write the replies."
        )


def invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """[B] tokens where the uniforms fall in the cumulative law. weights: [B, V]; uniforms: [B]."""
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1:]
    # right=True and a point below the total: only tokens of positive weight are found
    point = (uniforms[:, None].to(total) * total).minimum(total.nextafter(torch.zeros_like(total)))
    return torch.searchsorted(cumulative, point, right=True)[:, 0]
