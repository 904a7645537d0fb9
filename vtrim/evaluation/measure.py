"""Plain decoding, exact acceptance and a chosen rule on the same prompts, in one process.

The order of the rules rotates from batch to batch and from repeat to repeat, so that a machine that
slows down or warms up during the run favours none of them. Of repeats, which decode the same
replies again, each prompt's median run counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from vtrim.decoding.acceptors import exact_acceptor
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import Generation, GenerationSettings
from vtrim.decoding.protocol import Acceptor
from vtrim.evaluation import causes
from vtrim.evaluation.compare import compare_rows
from vtrim.evaluation.drift import drift, mean_log_prob
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
from vtrim.evaluation.noise import FixedKernel, noise
from vtrim.evaluation.prompt_rows import prompt_rows
from vtrim.evaluation.prompts import Prompt, batches
from vtrim.evaluation.repeats import Runs, by_repeat, medians, same_replies
from vtrim.vocab import DraftVocab

PLAIN, EXACT, CHOSEN = "plain", "exact", "chosen"
MIN_AGREEMENT = 0.8  # below it dropout noise drowns the target's own choice (MATH.md section 6)
_WARM_UP_TOKENS = 8

Rules = Mapping[str, Acceptor | None]
"""The acceptor of each rule; None is plain decoding."""


@dataclass(frozen=True)
class Measurement:
    """What each rule generated in every repeat, in the order of the prompts.

    judge: the acceptor whose notes of its judgements are shown; vocab: what the drafter can write,
    None for all; kernel: times of the fixed kernel between the prompts [s].
    """

    prompts: Sequence[Prompt]
    settings: GenerationSettings
    acceptor: Acceptor
    runs: Runs
    judge: Acceptor
    vocab: DraftVocab | None = None
    kernel: Sequence[float] = ()

    @cached_property
    def generations(self) -> dict[str, list[Generation]]:
        """The median run of each prompt, by rule."""
        return medians(self.runs)

    @cached_property
    def groups(self) -> list[str]:
        """What prompts stand together in an interval: the turns of one row of the data."""
        return [str(prompt.origin) for prompt in self.prompts]

    def result(self) -> dict[str, Any]:
        """The numbers of ``vtrim eval`` that come from decoding."""
        base = RuleMetrics.of(self.generations[PLAIN])
        return {
            "acceptor": self.acceptor.name,
            "lossless": self.acceptor.lossless,
            "decodes_as_greedy": self._decodes_as_greedy,
            "prompts": len(self.prompts),
            **self._exact(),
            **self._rule(CHOSEN),
            "plain_tokens_per_second": base.tokens_per_second,
            "plain": {
                "tokens": base.tokens,
                "rounds": base.rounds,
                "seconds": base.seconds,
                "off_argmax_share": base.off_argmax_share,
                "mean_log_prob": mean_log_prob(self.generations[PLAIN]),
                "generated_coverage": causes.coverage(self.generations[PLAIN], self.vocab),
                **rate_intervals(self.generations[PLAIN], self.groups),
            },
            "missing_tokens": causes.missing(self.generations[PLAIN], self.vocab),
            **_judgements(self.judge),
            **self._repeated(),
            "per_prompt": self._rows(CHOSEN),
        }

    def _exact(self) -> dict[str, Any]:
        """Exact acceptance beside a lossy rule, and that rule against it."""
        if EXACT not in self.generations:
            return {}
        found = compare_rows(self._rows(EXACT), self._rows(CHOSEN), (EXACT, self.acceptor.name))
        return {
            "exact": self._rule(EXACT),
            "against_exact": [one.to_dict() for one in found],
        }

    def _repeated(self) -> dict[str, Any]:
        """How often all was measured, and how far the repeats lie apart."""
        rows = by_repeat(self.runs, PLAIN, {EXACT: "exact", CHOSEN: "chosen"})
        return {
            "repeats": len(rows),
            "by_repeat": rows,
            "same_replies": same_replies(self.runs, CHOSEN),
            "noise": noise([row["plain_tokens_per_second"] for row in rows], self.kernel),
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
        heat = self.settings.temperature
        return {
            **public(metrics),
            **rate_intervals(rule, self.groups),
            "speedup": ratio(metrics.tokens_per_second, base.tokens_per_second),
            "speedup_interval": speedup_interval(rule, plain, self.groups),
            "speedup_median": median_of(speedups(rule, plain)),
            "identical_to_plain": identical_share(rule, plain, heat),
            **drift(rule, plain, heat, self.groups),
            **causes.rejections(rule, self.vocab),
            "generated_coverage": causes.coverage(rule, self.vocab),
            **({"per_prompt": self._rows(name)} if name == EXACT else {}),
        }

    def _rows(self, name: str) -> list[dict[str, Any]]:
        rule, plain = self.generations[name], self.generations[PLAIN]
        return prompt_rows(self.prompts, rule, plain, self.vocab)


@dataclass(frozen=True, kw_only=True)
class MeasureSettings:
    """How is measured. batch_size: prompts decoded together; repeats: times that all is decoded.

    vocab: what the drafter can write, None for all; kernel: timed between the prompts; observer:
    the chosen rule once more, which notes so much that its pass is timed in nothing.
    """

    batch_size: int = 1
    repeats: int = 1
    vocab: DraftVocab | None = None
    kernel: FixedKernel | None = None
    observer: Acceptor | None = None


def measure(
    engine: Engine,
    prompts: Sequence[Prompt],
    settings: GenerationSettings,
    make: Callable[[], Acceptor],
    advance: Callable[[int], None],
    how: MeasureSettings | None = None,
) -> Measurement:
    """Decodes every prompt by every rule; ``make`` gives a fresh acceptor of the chosen rule.

    ``advance`` is told of finished generations.
    """
    how = how or MeasureSettings()
    _warm_up(engine, prompts, settings, make(), how.batch_size)
    chosen = make()
    runs: list[dict[str, list[Generation]]] = []
    for repeat in range(how.repeats):
        # A fresh rule each time: one that fits its noise as it goes decodes the same replies again.
        rules = _rules(chosen if repeat == 0 else make(), settings)
        names = list(rules)
        run: dict[str, list[Generation]] = {name: [] for name in names}
        for index, (start, batch) in enumerate(batches(prompts, how.batch_size)):
            if how.kernel is not None:
                how.kernel.look()
            turn = (index + repeat) % len(names)
            for name in names[turn:] + names[:turn]:
                run[name] += _decode(engine, batch, settings, rules[name], start)
                advance(len(batch))
        runs.append(run)
    if how.observer is not None:
        for start, batch in batches(prompts, how.batch_size):
            _decode(engine, batch, settings, how.observer, start)
            advance(len(batch))
    looks = () if how.kernel is None else tuple(how.kernel.seconds)
    return Measurement(prompts, settings, chosen, runs, how.observer or chosen, how.vocab, looks)


def _warm_up(
    engine: Engine,
    prompts: Sequence[Prompt],
    settings: GenerationSettings,
    acceptor: Acceptor,
    batch_size: int,
) -> None:
    """Decodes a few tokens of the first prompts by every rule, for nothing."""
    _, first = next(batches(prompts, batch_size))
    for rule in _rules(acceptor, settings).values():
        _decode(engine, first, settings, rule, 0, most=_WARM_UP_TOKENS)


def limited(
    settings: GenerationSettings, prompt: Prompt, most: int | None = None
) -> GenerationSettings:
    """The settings with a prompt's own limits; most: no reply is longer than that."""
    length = prompt.max_new_tokens or settings.max_new_tokens
    return replace(
        settings,
        max_new_tokens=length if most is None else min(length, most),
        stop_strings=(*settings.stop_strings, *prompt.stop),
    )


def num_generations(
    num_prompts: int, acceptor: Acceptor, *, observed: bool = False, repeats: int = 1
) -> int:
    """How often ``measure`` will advance."""
    return num_prompts * ((2 if acceptor.lossless else 3) * repeats + observed)


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
    most: int | None = None,
) -> list[Generation]:
    """Replies to prompts of the same limits that are decoded together.

    first: index of the first of them; most: no reply is longer than that.
    """
    settings = limited(settings, prompts[0], most)
    ids = [prompt.ids for prompt in prompts]
    return engine.decode_many(ids, settings, acceptor, batch_size=len(prompts), first_prompt=first)


def _judgements(acceptor: Acceptor) -> dict[str, Any]:
    """What a rule notes about its own judgements, where it does."""
    diagnostics = getattr(acceptor, "diagnostics", None)
    return {} if diagnostics is None else dict(diagnostics.summary())
