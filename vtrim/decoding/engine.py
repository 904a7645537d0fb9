"""Speculative decoding of one sequence: draft, verify, accept, commit; plain decoding beside it.

Both run through the same loop, cache and target forward. Plain decoding is the loop without a
draft: one token a forward.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch import Tensor

from vtrim.decoding.cache import TargetCache
from vtrim.decoding.generation import Generation, GenerationSettings, SequenceState
from vtrim.decoding.protocol import Acceptor, Ask, Drafter, Proposal, Verdict, Verification
from vtrim.decoding.sampling import target_token
from vtrim.decoding.stopwatch import Stopwatch
from vtrim.errors import InputError
from vtrim.models.target import Target


class Engine:
    """A target and what drafts for it, decoding one sequence at a time."""

    def __init__(self, target: Target, drafter: Drafter | None = None) -> None:
        self.target = target
        self.drafter = drafter
        self.context_length = _context_length(target, drafter)
        self.cache = TargetCache(target.config, 0)

    def decode(
        self,
        prompt_ids: Sequence[int],
        settings: GenerationSettings,
        acceptor: Acceptor,
        *,
        prompt: int = 0,
    ) -> Generation:
        """A reply by speculative decoding; ``prompt`` is its index, part of every random seed.

        Raises:
            InputError: the prompt is empty or leaves no room in the context.
        """
        return self._decode(prompt_ids, settings, acceptor, prompt)

    def decode_plain(
        self, prompt_ids: Sequence[int], settings: GenerationSettings, *, prompt: int = 0
    ) -> Generation:
        """A reply by one token a target forward: the baseline of every speed-up.

        Raises:
            InputError: the prompt is empty or leaves no room in the context.
        """
        return self._decode(prompt_ids, settings, None, prompt)

    def check_prompt(self, prompt_ids: Sequence[int]) -> None:
        """Refuses a prompt that cannot be answered.

        Raises:
            InputError: it is empty, fills the context, or holds an id the target does not have.
        """
        if not prompt_ids:
            raise InputError("the prompt is empty: no token to start from.")
        if len(prompt_ids) >= self.context_length:
            raise InputError(
                f"the prompt has {len(prompt_ids)} tokens; the context has "
                f"{self.context_length} positions and the reply needs one."
            )
        rows = self.target.embedding.shape[0]
        if min(prompt_ids) < 0 or max(prompt_ids) >= rows:
            raise InputError(
                f"the prompt holds ids from {min(prompt_ids)} to {max(prompt_ids)}; the target "
                f"has rows 0 to {rows - 1}. Is the tokenizer its own?"
            )

    @torch.inference_mode()
    def _decode(
        self,
        prompt_ids: Sequence[int],
        settings: GenerationSettings,
        acceptor: Acceptor | None,
        prompt: int,
    ) -> Generation:
        self.check_prompt(prompt_ids)
        watch = Stopwatch(self.target.device)
        sequence = self._prefill(prompt_ids, settings, acceptor, prompt)
        watch.lap("prefill")
        while not sequence.done:
            self._round(sequence, settings, acceptor, watch)
        return sequence.finish(watch.seconds)

    def _round(
        self,
        sequence: SequenceState,
        settings: GenerationSettings,
        acceptor: Acceptor | None,
        watch: Stopwatch,
    ) -> None:
        """One round: draft, verify, accept, commit."""
        proposal = self._draft(sequence, settings, drafts=acceptor is not None)
        watch.lap("draft")

        view, aux = self._verify(sequence, settings, proposal)
        watch.lap("verify")

        if acceptor is None:
            verdict = Verdict((), target_token(view, 0, settings.seed), ())
        else:
            verdict = acceptor.accept(proposal, view)
        watch.lap("accept")

        self.cache.rollback(len(sequence.tokens) + verdict.num_accepted)
        sequence.aux = aux[: verdict.num_accepted + 1]
        emitted = sequence.commit(proposal, verdict, settings.stop_ids)
        watch.lap("other")

        clean = view.logits[: len(emitted)].argmax(dim=-1).tolist()
        sequence.off_argmax += sum(a != b for a, b in zip(clean, emitted, strict=True))
        watch.skip()

    def _prefill(
        self,
        prompt_ids: Sequence[int],
        settings: GenerationSettings,
        acceptor: Acceptor | None,
        prompt: int,
    ) -> SequenceState:
        """Runs the prompt through target and draft; the target gives the first token."""
        length = len(prompt_ids)
        reply_end = min(length + settings.max_new_tokens, self.context_length)
        if self.cache.capacity < reply_end:
            self.cache = TargetCache(self.target.config, reply_end)
        self.cache.rollback(0)
        ids = torch.tensor(prompt_ids, device=self.target.device)
        states = self.target.forward(ids[None], cache=self.cache)
        view = self._view(states.hidden[0, -1:], settings, prompt, length)
        token = target_token(view, 0, settings.seed)
        if acceptor is not None:
            acceptor.begin(states.hidden[0], self.target.logits, prompt)
        if acceptor is not None and self.drafter is not None:
            self.drafter.open(1, reply_end)
            # The last row waits for the token just chosen: the first round's work.
            self.drafter.prefill(0, prompt_ids, states.aux[0, :-1])
        return SequenceState(
            tokens=[*prompt_ids, token],
            prompt_length=length,
            prompt=prompt,
            reply_end=reply_end,
            aux=states.aux[0, -1:],
            stopped=token in settings.stop_ids,
        )

    def _draft(
        self, sequence: SequenceState, settings: GenerationSettings, *, drafts: bool
    ) -> Proposal:
        """Drafted tokens; none when there is no room or no draft."""
        if not drafts or self.drafter is None or sequence.room == 0:
            return Proposal.nothing(self.target.device)
        ask = Ask(0, sequence.tokens, sequence.aux, sequence.room, sequence.prompt)
        (proposal,) = self.drafter.propose(
            [ask],
            settings.num_draft_tokens,
            temperature=settings.temperature,
            seed=settings.seed,
        )
        return proposal

    def _verify(
        self, sequence: SequenceState, settings: GenerationSettings, proposal: Proposal
    ) -> tuple[Verification, Tensor]:
        """One target forward over the last token and the drafted ones; its view and aux [R, 3d]."""
        last = torch.tensor(sequence.tokens[-1:], device=self.target.device)
        ids = torch.cat((last, proposal.tokens))
        states = self.target.forward(ids[None], cache=self.cache)
        position = len(sequence.tokens)
        return self._view(states.hidden[0], settings, sequence.prompt, position), states.aux[0]

    def _view(
        self, hidden: Tensor, settings: GenerationSettings, prompt: int, position: int
    ) -> Verification:
        """The target's view of rows ``hidden`` [R, d]; row 0 judges the token at ``position``."""
        return Verification(
            hidden=hidden,
            logits=self.target.logits(hidden).float(),  # arg-max over bf16 is slow on a CPU
            head=self.target.logits,
            temperature=settings.temperature,
            position=position,
            prompt=prompt,
            top_k=settings.top_k,
            top_p=settings.top_p,
        )


def _context_length(target: Target, drafter: Drafter | None) -> int:
    """Positions that target and draft were both made for [tokens]."""
    limit = getattr(target.config, "max_position_embeddings", None)
    limits = [] if limit is None else [int(limit)]
    if drafter is not None:
        limits.append(drafter.context_length)
    return min(limits, default=sys.maxsize)
