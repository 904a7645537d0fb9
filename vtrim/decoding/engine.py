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
from vtrim.decoding.protocol import Acceptor, Drafter, Proposal, Verdict, Verification
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
        sequence = self._prefill(prompt_ids, settings, prompt, drafts=acceptor is not None)
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
        room = sequence.reply_end - len(sequence.tokens) - 1  # the target gives one token itself
        length = 0 if acceptor is None else min(settings.num_draft_tokens, room)
        proposal = self._draft(sequence, settings, length)
        watch.lap("draft")

        view, aux = self._verify(sequence, settings, proposal)
        watch.lap("verify")

        if acceptor is None or proposal is None:
            verdict = Verdict(0, target_token(view, 0, settings.seed), ())
        else:
            verdict = acceptor.accept(proposal, view)
        watch.lap("accept")

        self.cache.rollback(len(sequence.tokens) + verdict.num_accepted)
        sequence.aux = aux[:, : verdict.num_accepted + 1]
        chain = [] if proposal is None else proposal.tokens.tolist()
        emitted = sequence.commit(chain, verdict, settings.stop_ids)
        watch.lap("other")

        clean = view.logits[: len(emitted)].argmax(dim=-1).tolist()
        sequence.off_argmax += sum(a != b for a, b in zip(clean, emitted, strict=True))
        watch.skip()

    def _prefill(
        self, prompt_ids: Sequence[int], settings: GenerationSettings, prompt: int, *, drafts: bool
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
        if drafts and self.drafter is not None:
            self.drafter.start(reply_end)
            if length > 1:  # the last row waits for the token just chosen: the first round's work
                self.drafter.extend(states.aux[:, :-1], ids[1:])
        return SequenceState(
            tokens=[*prompt_ids, token],
            prompt_length=length,
            prompt=prompt,
            reply_end=reply_end,
            aux=states.aux[:, -1:],
            stopped=token in settings.stop_ids,
        )

    def _draft(
        self, sequence: SequenceState, settings: GenerationSettings, length: int
    ) -> Proposal | None:
        """A chain of ``length`` tokens; none when there is no room or no draft."""
        if length == 0 or self.drafter is None:
            return None
        return self.drafter.propose(
            sequence.aux,
            torch.tensor(sequence.fresh, device=self.target.device),
            length,
            temperature=settings.temperature,
            seed=(settings.seed, sequence.prompt),
        )

    def _verify(
        self, sequence: SequenceState, settings: GenerationSettings, proposal: Proposal | None
    ) -> tuple[Verification, Tensor]:
        """One target forward over the last token and the chain; its view and auxiliary states."""
        ids = torch.tensor(sequence.tokens[-1:], device=self.target.device)
        if proposal is not None:
            ids = torch.cat((ids, proposal.tokens))
        states = self.target.forward(ids[None], cache=self.cache)
        position = len(sequence.tokens)
        return self._view(states.hidden[0], settings, sequence.prompt, position), states.aux

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
        )


def _context_length(target: Target, drafter: Drafter | None) -> int:
    """Positions that target and draft were both made for [tokens]."""
    limit = getattr(target.config, "max_position_embeddings", None)
    limits = [] if limit is None else [int(limit)]
    if drafter is not None:
        limits.append(drafter.context_length)
    return min(limits, default=sys.maxsize)
