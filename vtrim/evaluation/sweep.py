"""One point of a sweep, measured beside plain decoding, and the points that no other one beats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import Generation, GenerationSettings
from vtrim.decoding.protocol import Acceptor
from vtrim.evaluation.drift import mean_log_prob
from vtrim.evaluation.measure import limited
from vtrim.evaluation.metrics import RuleMetrics, identical_share, ratio, speedup_interval
from vtrim.evaluation.prompts import Prompt
from vtrim.evaluation.tasks.grading import Grader

_WARM_UP_TOKENS = 8
HOW = (
    "Each point has a baseline of its own: plain decoding of the same prompts in the same minutes, "
    "prompt by prompt, the two taking turns at going first."
)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """What every point of a sweep shares. grade: scores the replies; decode: ids to text."""

    engine: Engine
    prompts: Sequence[Prompt]
    grade: Grader
    decode: Callable[[Sequence[int]], str]

    def measure(
        self,
        settings: GenerationSettings,
        make: Callable[[], Acceptor],
        advance: Callable[[int], None],
    ) -> dict[str, Any]:
        """The numbers of one rule; ``make`` gives a fresh acceptor of it.

        ``advance`` is told of each finished generation.
        """
        brief = replace(settings, max_new_tokens=min(_WARM_UP_TOKENS, settings.max_new_tokens))
        self.engine.decode_plain(self.prompts[0].ids, brief)
        self.engine.decode(self.prompts[0].ids, brief, make())  # its counts are thrown away
        acceptor = make()
        rule: list[Generation] = []
        plain: list[Generation] = []
        for index, prompt in enumerate(self.prompts):
            own = limited(settings, prompt)
            for ours in ((True, False), (False, True))[index % 2]:
                if ours:
                    rule.append(self.engine.decode(prompt.ids, own, acceptor, prompt=index))
                else:
                    plain.append(self.engine.decode_plain(prompt.ids, own, prompt=index))
                advance(1)
        return self._numbers(rule, plain, settings.temperature, acceptor)

    def _numbers(
        self,
        rule: Sequence[Generation],
        plain: Sequence[Generation],
        temperature: float,
        acceptor: Acceptor,
    ) -> dict[str, Any]:
        metrics, base = RuleMetrics.of(rule), RuleMetrics.of(plain)
        log_prob, plain_log_prob = mean_log_prob(rule), mean_log_prob(plain)
        return {
            "lossless": acceptor.lossless,
            "tokens": metrics.tokens,
            "tokens_per_second": metrics.tokens_per_second,
            "plain_tokens_per_second": base.tokens_per_second,
            "speedup": ratio(metrics.tokens_per_second, base.tokens_per_second),
            "speedup_interval": speedup_interval(rule, plain),
            "acceptance_length": metrics.acceptance_length,
            "shares": metrics.shares,
            "off_argmax_share": metrics.off_argmax_share,
            "mean_log_prob": log_prob,
            "plain_mean_log_prob": plain_log_prob,
            "identical_to_plain": identical_share(rule, plain, temperature),
            "score": self._score(rule),
            "plain_score": self._score(plain),
            **_noise(acceptor),
        }

    def _score(self, generations: Sequence[Generation]) -> float | None:
        return self.grade([self.decode(g.tokens) for g in generations])


def _noise(acceptor: Acceptor) -> dict[str, Any]:
    """What DropMatch's heads said; the p it chose last, where that was left to it."""
    diagnostics = getattr(acceptor, "diagnostics", None)
    if diagnostics is None:
        return {}
    summary = diagnostics.summary()
    return {"agreement": summary["agreement"], "p_drop_used": summary["p_drop"]}


def drift_of(numbers: dict[str, Any], temperature: float) -> float | None:
    """How far a point strays from the target; 0 is not at all.

    Greedy decoding: the share of tokens off the target's arg-max. Above temperature 0 plain
    decoding is off it too, so there it is the change of the mean log p of the tokens [nats].
    """
    if temperature == 0:
        share: float | None = numbers["off_argmax_share"]
        return share
    its, own = numbers["mean_log_prob"], numbers["plain_mean_log_prob"]
    return None if its is None or own is None else abs(its - own)


def pareto(points: Sequence[tuple[float | None, float | None]]) -> list[int]:
    """Indices of the points (gain, cost) that no other one beats, by rising gain.

    A point is beaten by one that gains at least as much at no more cost, and is better in one of
    both. Points that lack a number do not count; of equal points the first stands for all.
    """
    known = [(g, -c, -i) for i, (g, c) in enumerate(points) if g is not None and c is not None]
    front: list[int] = []
    least = float("-inf")
    for _, negative_cost, negative_index in sorted(known, reverse=True):
        if negative_cost > least:
            least = negative_cost
            front.append(-negative_index)
    return front[::-1]
