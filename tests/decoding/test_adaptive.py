"""The number of draft tokens follows measured times and acceptance."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from vtrim.decoding.adaptive import DraftLength


@dataclass
class World:
    """accepts: chance that a position is kept if those before it were, the last one goes on;
    seconds: of a round; goes_on: chance that the drafter offers one more position."""

    accepts: tuple[float, ...]
    seconds: Callable[[int], float]
    goes_on: float = 1.0

    def keeps(self, position: int) -> float:
        return self.accepts[min(position, len(self.accepts) - 1)]

    def emitted(self, length: int) -> float:
        """Expected tokens of a round that asks for ``length``: closed form."""
        chain = [self.keeps(j) * self.goes_on for j in range(length)]
        return 1 + sum(math.prod(chain[: j + 1]) for j in range(length))

    def spent(self, length: int) -> float:
        """Expected seconds of a round: the drafter stops by itself at each length."""
        reached = self.goes_on**length * self.seconds(length)
        stopped = [self.goes_on**j * (1 - self.goes_on) * self.seconds(j) for j in range(length)]
        return reached + sum(stopped)

    def rate(self, length: int) -> float:
        return self.emitted(length) / self.spent(length)

    def play(self, choice: DraftLength, rounds: int, dice: random.Random, batch: int = 1) -> float:
        """Tokens per second expected of the lengths that were chosen."""
        emitted = spent = 0.0
        for _ in range(rounds):
            asked = choice.next()
            drafted = [self._run(asked, lambda _: self.goes_on, dice) for _ in range(batch)]
            accepted = [self._run(offered, self.keeps, dice) for offered in drafted]
            # One round in fifty is interrupted, the others vary by a tenth.
            noise = dice.lognormvariate(0, 0.1) * (5 if dice.random() < 0.02 else 1)
            choice.record([asked] * batch, drafted, accepted, noise * self.seconds(max(drafted)))
            emitted, spent = emitted + self.emitted(asked), spent + self.spent(asked)
        return emitted / spent

    @staticmethod
    def _run(most: int, chance: Callable[[int], float], dice: random.Random) -> int:
        count = 0
        while count < most and dice.random() < chance(count):
            count += 1
        return count


WORLDS = {
    "an easy text and a cheap draft": World((0.8,), lambda n: 1 + 0.05 * n),
    "acceptance that falls": World((0.6, 0.5, 0.4, 0.3), lambda n: 1 + n / 8),
    "a dear draft": World((0.9,), lambda n: 1 + 0.5 * n),
    "a dear first token": World((0.7,), lambda n: 1 + (0.8 if n else 0) + 0.03 * n),
    "a draft that is always right": World((1.0,), lambda n: 1 + 0.1 * n),
    "a draft at the border": World((0.3,), lambda n: 1 + 0.3 * n),
    "a useless draft": World((0.02,), lambda n: 1 + 0.4 * n),
    "n-grams that are seldom found": World((0.6,), lambda n: 1 + 0.1 * n, goes_on=0.4),
}


@pytest.mark.parametrize("most", [3, 8])
@pytest.mark.parametrize("name", WORLDS)
def test_at_least_97_percent_of_the_best_rate_are_reached(name: str, most: int) -> None:
    world = WORLDS[name]
    best = max(world.rate(length) for length in range(most + 1))
    for seed in range(3):
        reached = world.play(DraftLength(most), 3000, random.Random(seed))
        assert reached >= 0.97 * best


def test_a_batch_counts_the_tokens_of_all_its_sequences() -> None:
    world = WORLDS["acceptance that falls"]
    best = max(world.rate(length) for length in range(9))
    assert world.play(DraftLength(8), 1500, random.Random(1), batch=4) >= 0.97 * best


def test_a_useless_draft_is_left_alone_in_most_rounds() -> None:
    choice = DraftLength(8)
    WORLDS["a useless draft"].play(choice, 200, random.Random(0))
    asked = Counter[int]()
    for _ in range(500):
        length = choice.next()
        asked[length] += 1
        choice.record([length], [length], [0], 1 + 0.4 * length)
    assert asked[0] >= 450


def test_drafting_comes_back_when_it_pays_again() -> None:
    choice, dice = DraftLength(4), random.Random(0)
    WORLDS["a useless draft"].play(choice, 1000, dice)
    easy = WORLDS["an easy text and a cheap draft"]
    easy.play(choice, 1000, dice)
    assert easy.play(choice, 500, dice) >= 0.97 * easy.rate(4)


def test_lengths_shorten_when_acceptance_falls() -> None:
    choice, dice = DraftLength(8), random.Random(0)
    WORLDS["an easy text and a cheap draft"].play(choice, 500, dice)
    falling = WORLDS["acceptance that falls"]
    falling.play(choice, 300, dice)
    best = max(falling.rate(length) for length in range(9))
    assert falling.play(choice, 500, dice) >= 0.95 * best


def test_the_same_records_give_the_same_choices() -> None:
    world = WORLDS["acceptance that falls"]
    ours, twin = DraftLength(5), DraftLength(5)
    assert world.play(ours, 400, random.Random(3)) == world.play(twin, 400, random.Random(3))
    assert ours.rates() == twin.rates()


def test_rates_are_those_of_the_counts_and_medians() -> None:
    choice = DraftLength(2)
    for _ in range(400):  # position 0 kept in 3 of 4 rounds, position 1 in 1 of 3 of those
        for accepted in (0, 1, 1, 2):
            choice.record([2], [2], [accepted], 2.0)
    choice.record([0], [0], [0], 1.0)
    choice.record([1], [1], [1], 1.5)
    choice.record([1], [1], [1], 90.0)  # of two measurements the smaller counts
    none, one, two = choice.rates()
    assert none == pytest.approx(1.0)
    assert one == pytest.approx(1.75 / 1.5, rel=0.03)
    assert two == pytest.approx(2.0 / 2.0, rel=0.03)


def test_a_length_that_was_never_measured_lies_between_its_neighbours() -> None:
    choice = DraftLength(4)
    for length, seconds in ((0, 1.0), (4, 3.0)):
        choice.record([length], [length], [length], seconds)
    emitted = [rate * (1 + 0.5 * length) for length, rate in enumerate(choice.rates())]
    assert emitted[0] == pytest.approx(1.0)
    assert emitted == sorted(emitted)


def test_nothing_is_drafted_where_nothing_may_be() -> None:
    choice = DraftLength(0)
    for _ in range(200):
        assert choice.next() == 0
        choice.record([0], [0], [0], 1.0)
