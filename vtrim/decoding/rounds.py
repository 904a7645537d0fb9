"""The live sequences of one call, and the round they all go through: draft, verify, accept, commit.

A finished sequence leaves, and a waiting prompt takes its place. What a sequence gives depends on
its own tokens and index only, up to the rounding of batched matrix products. (A model whose rotary
angles depend on the longest row beside it would break that; ``context_of`` ends replies before.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from vtrim.decoding.adaptive import DraftLength
from vtrim.decoding.generation import Generation, GenerationSettings, SequenceState
from vtrim.decoding.protocol import Acceptor, Ask, Drafter, Proposal, Verdict, Verification
from vtrim.decoding.sampling import target_token
from vtrim.decoding.stops import Stops
from vtrim.decoding.stopwatch import Stopwatch
from vtrim.decoding.verify import Verifier

OnTokens = Callable[[int, list[int]], None]
"""Told of each prompt's index and its new tokens, once a round."""


@dataclass
class Rounds:
    """drafter: None drafts nothing; acceptor: None is plain decoding; length: L of each round.

    chunk: prompt tokens of one prefill forward; free: the drafter's slots not in use.
    """

    verifier: Verifier
    drafter: Drafter | None
    acceptor: Acceptor | None
    settings: GenerationSettings
    stops: Stops
    length: DraftLength | None
    on_tokens: OnTokens | None
    chunk: int
    free: list[int]
    watch: Stopwatch
    live: list[SequenceState] = field(default_factory=list)

    def round(self) -> None:
        """One round of all live sequences."""
        start = time.perf_counter()
        ledgers = [sequence.seconds for sequence in self.live]
        asked = self.settings.num_draft_tokens if self.length is None else self.length.next()
        proposals = self._draft(asked)
        self.watch.lap("draft", ledgers)

        views, aux = self._verify(proposals)
        self.watch.lap("verify", ledgers)

        verdicts = [self._judge(*pair) for pair in zip(proposals, views, strict=True)]
        self._learn(asked, proposals, verdicts, time.perf_counter() - start)
        self.watch.lap("accept", ledgers)

        emitted = [
            self._commit(row, proposal, verdict, aux)
            for row, (proposal, verdict) in enumerate(zip(proposals, verdicts, strict=True))
        ]
        self.watch.lap("other", ledgers)

        rows = zip(self.live, proposals, views, verdicts, emitted, strict=True)
        for sequence, proposal, view, verdict, new in rows:
            sequence.note(view.logits, proposal, verdict, new)
            self._tell(sequence, new)
        self.watch.skip()

    def admit(self, prompt_ids: Sequence[int], prompt: int, reply_end: int) -> None:
        """Runs a prompt through target and draft; the target gives the first token."""
        hidden, aux = self._prefill(prompt_ids, prompt)
        view = self._view(hidden, prompt, len(prompt_ids))
        token = target_token(view, 0, self.settings.seed)
        sequence = SequenceState(
            tokens=[*prompt_ids, token],
            prompt_length=len(prompt_ids),
            prompt=prompt,
            reply_end=reply_end,
            aux=aux,
            slot=self.free.pop(),
            stopped=self.stops.first((), 0, [token]) is not None,
        )
        self.live.append(sequence)
        self.watch.lap("prefill", [sequence.seconds])
        self._tell(sequence, [token])
        self.watch.skip()

    def leave(self) -> Iterator[tuple[int, Generation]]:
        """Takes the finished sequences out; the last live one moves into a freed slot."""
        for row in range(len(self.live) - 1, -1, -1):
            sequence = self.live[row]
            if not sequence.done:
                continue
            last = len(self.live) - 1
            if row != last:
                self.verifier.cache.move(last, row)
                self.live[row] = self.live[last]
            self.live.pop()
            self.free.append(sequence.slot)
            self.watch.settle()
            yield sequence.prompt, sequence.finish()

    def _draft(self, num_draft_tokens: int) -> list[Proposal]:
        """Drafted tokens of each sequence; none where there is no room or no draft."""
        nothing = Proposal.nothing(self.verifier.target.device)
        asks = [
            Ask(sequence.slot, sequence.tokens, sequence.aux, sequence.room, sequence.prompt)
            for sequence in self.live
            if sequence.room > 0
        ]
        if self.drafter is None or not asks:
            return [nothing] * len(self.live)
        drafted = iter(self._propose(self.drafter, asks, num_draft_tokens))
        return [next(drafted) if sequence.room > 0 else nothing for sequence in self.live]

    def _propose(
        self, drafter: Drafter, asks: Sequence[Ask], num_draft_tokens: int
    ) -> list[Proposal]:
        temperature, seed = self.settings.temperature, self.settings.seed
        return drafter.propose(asks, num_draft_tokens, temperature=temperature, seed=seed)

    def _verify(self, proposals: Sequence[Proposal]) -> tuple[list[Verification], Tensor]:
        """Each sequence's view, and the states [B, T, 3d] for the draft."""
        last = [sequence.tokens[-1] for sequence in self.live]
        states = self.verifier.states(last, proposals)
        sizes = [proposal.size + 1 for proposal in proposals]
        rows = [hidden[:size] for hidden, size in zip(states.hidden, sizes, strict=True)]
        joined = rows[0] if len(rows) == 1 else torch.cat(rows)
        logits = self.verifier.target.logits(joined).float()  # arg-max over bf16 is slow on a CPU
        views = [
            self._view(hidden, sequence.prompt, len(sequence.tokens), own)
            for sequence, hidden, own in zip(self.live, rows, logits.split(sizes), strict=True)
        ]
        return views, states.aux

    def _judge(self, proposal: Proposal, view: Verification) -> Verdict:
        if self.acceptor is None:
            return Verdict((), target_token(view, 0, self.settings.seed), ())
        return self.acceptor.accept(proposal, view)

    def _learn(
        self,
        asked: int,
        proposals: Sequence[Proposal],
        verdicts: Sequence[Verdict],
        seconds: float,
    ) -> None:
        """Tells the adaptive length what a round gave; the verdicts have waited for the device."""
        if self.length is not None:
            self.length.record(
                [min(asked, sequence.room) for sequence in self.live],
                [proposal.depth for proposal in proposals],
                [verdict.num_accepted for verdict in verdicts],
                seconds,
            )

    def _commit(self, row: int, proposal: Proposal, verdict: Verdict, aux: Tensor) -> list[int]:
        """Keeps the accepted rows of target and draft states; returns the emitted tokens."""
        sequence, path = self.live[row], verdict.path
        self.verifier.cache.keep(row, len(sequence.tokens), path)
        if proposal.is_chain:
            sequence.aux = aux[row, : len(path) + 1]
        else:
            sequence.aux = aux[row, [0, *(node + 1 for node in path)]]
        return sequence.commit(proposal, verdict, self.stops)

    def _tell(self, sequence: SequenceState, new: list[int]) -> None:
        if self.on_tokens is not None:
            self.on_tokens(sequence.prompt, new)

    def _prefill(self, prompt_ids: Sequence[int], prompt: int) -> tuple[Tensor, Tensor]:
        """Hidden and auxiliary states of the last prompt token; bounded memory by chunks."""
        row, length = len(self.live), len(prompt_ids)
        self.verifier.cache.rollback(0, row)
        for start in range(0, length, self.chunk):
            states = self.verifier.prefill(row, prompt_ids[start : start + self.chunk])
            if start == 0 and self.acceptor is not None:
                self.acceptor.begin(states.hidden[0], self.verifier.target.logits, prompt)
            known = prompt_ids[: min(start + self.chunk + 1, length)]
            # The last row of a prompt waits for the token behind it: the first round's work.
            self._take_in(known, states.aux[0, : len(known) - 1 - start], prompt)
        return states.hidden[0, -1:], states.aux[0, -1:].clone()

    def _take_in(self, tokens: Sequence[int], aux: Tensor, prompt: int) -> None:
        """Gives the drafter the next rows of a prompt. aux: [R, 3d] of those before the last."""
        slot = self.free[-1]
        if self.drafter is None:
            return
        if aux.shape[0] == len(tokens) - 1:
            self.drafter.prefill(slot, tokens, aux)
        elif aux.shape[0]:
            self._propose(self.drafter, [Ask(slot, tokens, aux, 0, prompt)], 0)

    def _view(
        self, hidden: Tensor, prompt: int, position: int, logits: Tensor | None = None
    ) -> Verification:
        """The target's view of rows ``hidden`` [R, d]; row 0 judges the token at ``position``."""
        head = self.verifier.target.logits
        return Verification(
            hidden=hidden,
            logits=head(hidden).float() if logits is None else logits,
            head=head,
            temperature=self.settings.temperature,
            position=position,
            prompt=prompt,
            top_k=self.settings.top_k,
            top_p=self.settings.top_p,
        )
