"""Plain decoding, exact acceptance and a chosen rule on the same prompts, in one process.

The order of the rules rotates from batch to batch, so that a machine that slows down or warms up
during the run favours none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vtrim.decoding.acceptors import exact_acceptor
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import Generation, GenerationSettings
from vtrim.decoding.protocol import Acceptor
from vtrim.evaluation.drift import common_prefix, drift, mean_log_prob
from vtrim.evaluation.metrics import (
    RuleMetrics,
    identical_share,
    median_of,
    public,
    ratio,
    speedup_interval,
    speedups,
)
from vtrim.evaluation.prompts import Prompt

PLAIN, EXACT, CHOSEN = "plain", "exact", "chosen"
MIN_AGREEMENT = 0.8  # below it dropout noise drowns the target's own choice (MATH.md section 6)
_WARM_UP_TOKENS = 8

Rules = Mapping[str, Acceptor | None]
"""The acceptor of each rule; None is plain decoding."""


@dataclass(frozen=True)
class Measurement:
    """The generations of each rule, in the order of the prompts.

    judge: the acceptor whose notes of its judgements are shown.
    """

    prompts: Sequence[Prompt]
    settings: GenerationSettings
    acceptor: Acceptor
    generations: dict[str, list[Generation]]
    judge: Acceptor

    def result(self) -> dict[str, Any]:
        """The numbers of ``vtrim eval`` that come from decoding."""
        base = RuleMetrics.of(self.generations[PLAIN])
        return {
            "acceptor": self.acceptor.name,
            "lossless": self.acceptor.lossless,
            "decodes_as_greedy": self._decodes_as_greedy,
            "prompts": len(self.prompts),
            **({"exact": self._rule(EXACT)} if EXACT in self.generations else {}),
            **self._rule(CHOSEN),
            "plain_tokens_per_second": base.tokens_per_second,
            "plain": {
                "tokens": base.tokens,
                "rounds": base.rounds,
                "seconds": base.seconds,
                "off_argmax_share": base.off_argmax_share,
                "mean_log_prob": mean_log_prob(self.generations[PLAIN]),
            },
            **_judgements(self.judge),
            "per_prompt": self._per_prompt(),
        }

    @property
    def _decodes_as_greedy(self) -> bool:
        """Whether a lossy rule has nothing to lose here: at temperature 0 it is exact matching."""
        exact_at_0 = bool(getattr(self.acceptor, "exact_at_0", False))
        return self.settings.temperature == 0 and exact_at_0 and not self.acceptor.lossless

    def _rule(self, name: str) -> dict[str, Any]:
        """A rule's own numbers, and its speed and replies against plain decoding's."""
        rule, plain = self.generations[name], self.generations[PLAIN]
        metrics, base = RuleMetrics.of(rule), RuleMetrics.of(plain)
        return {
            **public(metrics),
            "speedup": ratio(metrics.tokens_per_second, base.tokens_per_second),
            "speedup_interval": speedup_interval(rule, plain),
            "speedup_median": median_of(speedups(rule, plain)),
            "identical_to_plain": identical_share(rule, plain, self.settings.temperature),
            **drift(rule, plain, self.settings.temperature),
        }

    def _per_prompt(self) -> list[dict[str, Any]]:
        rows = []
        pairs = zip(self.prompts, self.generations[CHOSEN], self.generations[PLAIN], strict=True)
        for prompt, chosen, plain in pairs:
            rows.append(
                {
                    "origin": str(prompt.origin),
                    "prompt_tokens": len(prompt.ids),
                    "tokens": len(chosen.tokens),
                    "rounds": chosen.rounds,
                    "acceptance_length": ratio(chosen.emitted, chosen.rounds),
                    "seconds": chosen.decode_seconds,
                    "plain_tokens": len(plain.tokens),
                    "plain_seconds": plain.decode_seconds,
                    "identical_to_plain": chosen.tokens == plain.tokens,
                    "common_prefix": common_prefix(chosen.tokens, plain.tokens),
                    "log_prob": chosen.log_prob,
                    "plain_log_prob": plain.log_prob,
                    "finish_reason": chosen.finish_reason,
                }
            )
        return rows


def measure(
    engine: Engine,
    prompts: Sequence[Prompt],
    settings: GenerationSettings,
    make: Callable[[], Acceptor],
    advance: Callable[[int], None],
    batch_size: int = 1,
    observer: Acceptor | None = None,
) -> Measurement:
    """Decodes every prompt by every rule; ``make`` gives a fresh acceptor of the chosen rule.

    ``batch_size`` prompts are decoded together; ``advance`` is told of finished generations.
    observer: the chosen rule once more, which notes so much that its pass is timed in nothing.
    """
    brief = replace(settings, max_new_tokens=min(_WARM_UP_TOKENS, settings.max_new_tokens))
    for acceptor in _rules(make(), settings).values():  # its counts are thrown away
        _decode(engine, prompts[:batch_size], brief, acceptor, 0)
    chosen = make()
    rules = _rules(chosen, settings)
    names = list(rules)
    generations: dict[str, list[Generation]] = {name: [] for name in names}
    for start in range(0, len(prompts), batch_size):
        batch = prompts[start : start + batch_size]
        turn = start // batch_size % len(names)
        for name in names[turn:] + names[:turn]:
            generations[name] += _decode(engine, batch, settings, rules[name], start)
            advance(len(batch))
    if observer is not None:
        for start in range(0, len(prompts), batch_size):
            batch = prompts[start : start + batch_size]
            _decode(engine, batch, settings, observer, start)
            advance(len(batch))
    return Measurement(prompts, settings, chosen, generations, observer or chosen)


def num_generations(num_prompts: int, acceptor: Acceptor, *, observed: bool = False) -> int:
    """How often ``measure`` will advance."""
    return num_prompts * ((2 if acceptor.lossless else 3) + observed)


def warnings_of(result: Mapping[str, Any]) -> list[str]:
    """What a reader must be told about a result before using it."""
    agreement = result.get("agreement")
    if agreement is None or agreement >= MIN_AGREEMENT:
        return []
    found = result.get("calibration") or {}
    if found.get("p_drop"):
        return [
            f"--p-drop auto was fitted on {found['positions']} prompt positions, where "
            f"{100 * found['agreement']:.0f} % of the dropout heads keep the target's own arg-max; "
            f"in these replies {100 * agreement:.0f} % do. Set --p-drop below "
            f"{found['p_drop']:.3g} if drift matters."
        ]
    return [
        f"only {100 * agreement:.0f} % of the dropout heads keep the target's own arg-max "
        f"(below {100 * MIN_AGREEMENT:.0f} %): the noise is too strong for this target, and "
        f"{100 * (result['off_argmax_share'] or 0):.0f} % of the emitted tokens are not the "
        "target's choice. Lower --p-drop."
    ]


def _rules(chosen: Acceptor, settings: GenerationSettings) -> dict[str, Acceptor | None]:
    rules: dict[str, Acceptor | None] = {PLAIN: None}
    if not chosen.lossless:
        rules[EXACT] = exact_acceptor(settings.temperature, settings.seed)
    return {**rules, CHOSEN: chosen}


def _decode(
    engine: Engine,
    prompts: Sequence[Prompt],
    settings: GenerationSettings,
    acceptor: Acceptor | None,
    first: int,
) -> list[Generation]:
    """Replies to prompts that are decoded together; ``first``: index of the first of them."""
    ids = [prompt.ids for prompt in prompts]
    return engine.decode_many(ids, settings, acceptor, batch_size=len(prompts), first_prompt=first)


def _judgements(acceptor: Acceptor) -> dict[str, Any]:
    """What a rule notes about its own judgements, where it does."""
    diagnostics = getattr(acceptor, "diagnostics", None)
    return {} if diagnostics is None else dict(diagnostics.summary())
