"""The numbers of a serving engine, under the names that local decoding's have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any

from vtrim.evaluation import causes
from vtrim.evaluation.engines.reply import EngineCounts, EngineInfo
from vtrim.evaluation.engines.rows import Said
from vtrim.evaluation.engines.served import ServedGeneration, at_once
from vtrim.evaluation.measure import CHOSEN, PLAIN
from vtrim.evaluation.metrics import (
    RuleMetrics,
    identical_share,
    median_of,
    public,
    rate_intervals,
    ratio,
    speedup_interval,
    speedups,
)
from vtrim.evaluation.noise import noise
from vtrim.evaluation.prompt_rows import prompt_rows
from vtrim.evaluation.prompts import Prompt, batches
from vtrim.evaluation.repeats import by_repeat, medians, same_replies
from vtrim.vocab import DraftVocab


@dataclass(frozen=True, kw_only=True)
class EngineMeasurement:
    """What engines said about prompts. infos: of each rule's engine; kernel: see ``noise``."""

    prompts: Sequence[Prompt]
    said: Said
    infos: Mapping[str, EngineInfo]
    temperature: float
    batch_size: int
    vocab: DraftVocab | None
    kernel: Sequence[float] = ()

    @cached_property
    def runs(self) -> list[dict[str, list[ServedGeneration]]]:
        """The generations of each rule in every repeat."""
        return self.said.runs()

    @cached_property
    def generations(self) -> dict[str, list[Any]]:
        """The median run of each prompt, by rule."""
        return medians(self.runs)

    @cached_property
    def counts(self) -> EngineCounts | None:
        """What the engine with the draft has counted itself, all prompts together."""
        found = [one.counts for one in self.said.batches(CHOSEN)]
        known = [one for one in found if one is not None]
        return reduce(add, known) if known and len(known) == len(found) else None

    @cached_property
    def groups(self) -> list[str]:
        """What stands together in an interval: turns of one row, and what was sent at once."""
        if self.batch_size == 1:
            return [str(prompt.origin) for prompt in self.prompts]
        sent = batches(self.prompts, self.batch_size)
        return [str(start) for start, batch in sent for _ in batch]

    def result(self) -> dict[str, Any]:
        """The numbers of ``vtrim eval``; None where the engine does not tell."""
        return {
            "prompts": len(self.prompts),
            "lossless": self.infos[CHOSEN].lossless,
            "decodes_as_greedy": False,
            **self._rule(),
            **self._beside_plain(),
            **self._repeated(),
            "engine": self._engine(),
            "per_prompt": self._rows(),
        }

    def _rule(self) -> dict[str, Any]:
        """The numbers of decoding with the draft."""
        made, counts = self.generations[CHOSEN], self.counts
        metrics = RuleMetrics.of(made)
        own: dict[str, Any] = {
            "tokens": sum(one.num_tokens for one in made),
            "rounds": metrics.rounds or None,
        }
        if counts is not None:
            by_position = [ratio(n, counts.rounds) for n in counts.by_position]
            own |= {"acceptance_by_position": by_position, "drafted": counts.drafted}
            own |= {"nodes": counts.drafted, "accepted": counts.accepted}
        told = all(one.tokens for one in made)
        return {
            **public(metrics),
            **dict.fromkeys(("off_argmax_share", "mean_log_prob", "log_prob_change")),
            **own,
            **rate_intervals(made, self.groups),
            "shares": {},
            "accept_reasons": {},
            "generated_coverage": causes.coverage(made, self.vocab) if told else None,
        }

    def _beside_plain(self) -> dict[str, Any]:
        """Plain decoding's speed and replies, and the speed-up over it; None without such."""
        names = ("plain_tokens_per_second", "speedup", "speedup_interval", "speedup_median")
        if PLAIN not in self.generations:
            return {**dict.fromkeys((*names, "identical_to_plain")), "plain": None}
        made, plain = self.generations[CHOSEN], self.generations[PLAIN]
        metrics, base = RuleMetrics.of(made), RuleMetrics.of(plain)
        return {
            "plain_tokens_per_second": base.tokens_per_second,
            "speedup": ratio(metrics.tokens_per_second, base.tokens_per_second),
            "speedup_interval": speedup_interval(made, plain, self.groups),
            "speedup_median": median_of(speedups(made, plain)),
            "identical_to_plain": self._identical(made, plain),
            "plain": {
                "tokens": sum(one.num_tokens for one in plain),
                "seconds": base.seconds,
                "prefill_seconds": base.prefill_seconds,
                **dict.fromkeys(("off_argmax_share", "mean_log_prob")),
                **rate_intervals(plain, self.groups),
            },
        }

    def _identical(
        self, made: Sequence[ServedGeneration], plain: Sequence[ServedGeneration]
    ) -> float | None:
        """By ids where both are told, else by text."""
        if all(one.tokens for one in (*made, *plain)):
            return identical_share(made, plain, self.temperature)
        if self.temperature > 0:
            return None
        same = sum(a.text == b.text for a, b in zip(made, plain, strict=True))
        return same / len(made)

    def _repeated(self) -> dict[str, Any]:
        rows = by_repeat(self.runs, PLAIN, {CHOSEN: CHOSEN}) if PLAIN in self.generations else []
        return {
            "repeats": len(self.runs),
            "by_repeat": rows,
            "same_replies": same_replies(self.runs, CHOSEN),
            "noise": noise([row["plain_tokens_per_second"] for row in rows], self.kernel),
        }

    def _engine(self) -> dict[str, Any]:
        """Which engine it is, and its own counts with their own definition."""
        info, counts = self.infos[CHOSEN], self.counts
        made = self.generations[CHOSEN]
        tokens, rounds = sum(one.num_tokens for one in made), sum(one.rounds for one in made)
        length = ratio(tokens, rounds)
        if counts is not None and counts.rounds:
            length, rounds = 1 + counts.accepted / counts.rounds, counts.rounds
        said = [batch for name in self.infos for batch in self.said.batches(name)]
        return {
            "name": info.name,
            "version": info.version,
            "settings": dict(info.settings),
            "acceptance_length": length,
            "acceptance_length_is": info.own_length,
            "rounds": rounds or None,
            "replies_at_once": sum(at_once(reply) for batch in said for reply in batch.replies),
            "plain": dict(self.infos[PLAIN].settings) if PLAIN in self.infos else None,
        }

    def _rows(self) -> list[dict[str, Any]]:
        made = self.generations[CHOSEN]
        known = PLAIN in self.generations
        rows = prompt_rows(self.prompts, made, self.generations[PLAIN if known else CHOSEN], None)
        unknown = ["rejections", "log_prob", "plain_log_prob"]
        if not known:
            unknown += [name for name in rows[0] if name.startswith("plain_")]
            unknown += ["identical_to_plain", "common_prefix"]
        if self.batch_size > 1 and self.counts is not None:
            unknown += ["rounds", "acceptance_length"]  # counted for all that was sent at once
        return [
            {**row, "tokens": one.num_tokens, **dict.fromkeys(unknown)}
            for row, one in zip(rows, made, strict=True)
        ]
