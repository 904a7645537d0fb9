"""Speculative decoding of one prompt or many; plain decoding is the same loop without a draft."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from vtrim.decoding.adaptive import DraftLength
from vtrim.decoding.cache import TargetCache
from vtrim.decoding.context import context_of
from vtrim.decoding.generation import Generation, GenerationSettings
from vtrim.decoding.protocol import Acceptor, Drafter
from vtrim.decoding.rounds import OnTokens, Rounds
from vtrim.decoding.stops import Stops
from vtrim.decoding.stopwatch import Stopwatch
from vtrim.decoding.verify import Verifier
from vtrim.errors import InputError, OptionError
from vtrim.models.target import Target

_CHUNK, _CUDA_CHUNK = 512, 2048  # prompt tokens of one forward: memory stays bounded
_REMEMBERED = 8  # acceptors (times L and slots) whose adaptive length is kept; rules take turns
_SPARE = 64  # columns of the cache behind the longest reply, for the branches of a tree


class Engine:
    """A target, what drafts for it, and the cache that they decode with.

    tokenizer: the target's own; only stop strings need it. chunk: prompt tokens of one forward;
    context: positions that a prompt and its reply may take.
    """

    def __init__(
        self, target: Target, drafter: Drafter | None = None, tokenizer: Any = None
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.tokenizer = tokenizer
        self.context = context_of(target, drafter)
        self.context_length = self.context.length
        self.chunk = _CUDA_CHUNK if target.device.type == "cuda" else _CHUNK
        self.cache = TargetCache(target.config, 1, 0)
        self._verifier = Verifier(target, self.cache, self.context_length)
        self._lengths: dict[tuple[int, int, int], tuple[Acceptor, DraftLength]] = {}

    def decode(
        self,
        prompt_ids: Sequence[int],
        settings: GenerationSettings,
        acceptor: Acceptor,
        *,
        prompt: int = 0,
        on_tokens: OnTokens | None = None,
    ) -> Generation:
        """A reply by speculative decoding; ``prompt`` is its index, part of every random seed.

        Raises:
            InputError: the prompt is empty or leaves no room in the context.
        """
        (reply,) = self.decode_many(
            [prompt_ids], settings, acceptor, first_prompt=prompt, on_tokens=on_tokens
        )
        return reply

    def decode_plain(
        self,
        prompt_ids: Sequence[int],
        settings: GenerationSettings,
        *,
        prompt: int = 0,
        on_tokens: OnTokens | None = None,
    ) -> Generation:
        """A reply by one token a target forward: the baseline of every speed-up.

        Raises:
            InputError: the prompt is empty or leaves no room in the context.
        """
        (reply,) = self.decode_many(
            [prompt_ids], settings, None, first_prompt=prompt, on_tokens=on_tokens
        )
        return reply

    @torch.inference_mode()
    def decode_many(
        self,
        prompts: Sequence[Sequence[int]],
        settings: GenerationSettings,
        acceptor: Acceptor | None,
        *,
        batch_size: int = 1,
        first_prompt: int = 0,
        on_tokens: OnTokens | None = None,
    ) -> list[Generation]:
        """Replies to all prompts, at most ``batch_size`` in flight; acceptor None decodes plainly.

        Raises:
            OptionError: the batch size is below 1, or stop strings lack a tokenizer.
            InputError: a prompt is empty or leaves no room in the context, or the target's
                attention does not take the masks that a tree or a batch needs.
        """
        if batch_size < 1:
            raise OptionError(f"--batch-size {batch_size}: at least 1 is needed.")
        for ids in prompts:
            self.check_prompt(ids)
        rounds = self._rounds(prompts, settings, acceptor, min(batch_size, len(prompts)), on_tokens)
        waiting = deque(enumerate(prompts, first_prompt))
        replies: dict[int, Generation] = {}
        while waiting or rounds.live:
            if waiting and rounds.free:
                index, ids = waiting.popleft()
                rounds.admit(ids, index, self._reply_end(ids, settings))
            else:
                rounds.round()
            replies.update(rounds.leave())
        return [replies[index] for index in sorted(replies)]

    def check_prompt(self, prompt_ids: Sequence[int]) -> None:
        """Refuses a prompt that cannot be answered.

        Raises:
            InputError: it is empty, fills the context, or holds an id the target does not have.
        """
        if not prompt_ids:
            raise InputError("the prompt is empty: no token to start from.")
        self.context.check(len(prompt_ids))
        rows = self.target.embedding.shape[0]
        if min(prompt_ids) < 0 or max(prompt_ids) >= rows:
            raise InputError(
                f"the prompt holds ids from {min(prompt_ids)} to {max(prompt_ids)}; the target "
                f"has rows 0 to {rows - 1}. Is the tokenizer its own?"
            )

    def _reply_end(self, prompt_ids: Sequence[int], settings: GenerationSettings) -> int:
        """Length at which the reply must end."""
        return min(len(prompt_ids) + settings.max_new_tokens, self.context_length)

    def _rounds(
        self,
        prompts: Sequence[Sequence[int]],
        settings: GenerationSettings,
        acceptor: Acceptor | None,
        slots: int,
        on_tokens: OnTokens | None,
    ) -> Rounds:
        """Room for the longest reply in every slot, and all that a round needs."""
        longest = max((self._reply_end(ids, settings) for ids in prompts), default=0)
        drafter = None if acceptor is None else self.drafter
        self.cache.reset()
        self.cache.reserve(slots, longest + _SPARE)
        if drafter is not None:
            drafter.open(slots, longest)
        return Rounds(
            verifier=self._verifier,
            drafter=drafter,
            acceptor=acceptor,
            settings=settings,
            stops=Stops(settings.stop_ids, settings.stop_strings, self.tokenizer),
            length=self._length(settings, acceptor, slots),
            on_tokens=on_tokens,
            chunk=self.chunk,
            free=list(range(slots)),
            watch=Stopwatch(self.target.device),
        )

    def _length(
        self, settings: GenerationSettings, acceptor: Acceptor | None, slots: int
    ) -> DraftLength | None:
        """What picks the number of draft tokens; it goes on learning from call to call."""
        if not settings.adaptive or acceptor is None or self.drafter is None:
            return None
        key = id(acceptor), settings.num_draft_tokens, slots
        # The acceptor is kept too, so that its id stays its own.
        known = self._lengths.pop(key, None) or (acceptor, DraftLength(settings.num_draft_tokens))
        self._lengths[key] = known  # the latest last
        if len(self._lengths) > _REMEMBERED:
            del self._lengths[next(iter(self._lengths))]
        return known[1]
