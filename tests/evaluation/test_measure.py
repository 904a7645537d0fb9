"""Rules measured side by side, with a fake engine that notes what it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from vtrim.chat.conversation import Origin
from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import Generation, GenerationSettings
from vtrim.decoding.protocol import Acceptor
from vtrim.evaluation.measure import (
    Measurement,
    MeasureSettings,
    limited,
    measure,
    num_generations,
    warnings_of,
)
from vtrim.evaluation.prompts import Prompt
from vtrim.models.layout import load_draft
from vtrim.models.target import load_target

SETTINGS = GenerationSettings(
    max_new_tokens=12, stop_ids=frozenset({51}), temperature=0.0, num_draft_tokens=3, seed=0
)


class FakeEngine:
    """Answers at once; notes (rule, prompt, budget) of each reply and the size of each batch."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int]] = []
        self.batches: list[int] = []

    def decode_many(
        self,
        prompts: Sequence[Sequence[int]],
        settings: GenerationSettings,
        acceptor: Acceptor | None,
        *,
        batch_size: int = 1,
        first_prompt: int = 0,
    ) -> list[Generation]:
        rule = "plain" if acceptor is None else acceptor.name
        self.batches.append(batch_size)
        return [
            self.answer(rule, ids, settings, prompt)
            for prompt, ids in enumerate(prompts, first_prompt)
        ]

    def answer(
        self, rule: str, prompt_ids: Sequence[int], settings: GenerationSettings, prompt: int
    ) -> Generation:
        self.calls.append((rule, prompt, settings.max_new_tokens))
        time = {"plain": 4.0, "greedy": 2.0}.get(rule, 1.0)
        return Generation(
            tokens=(*prompt_ids, 1, 2, 3, 4),
            drafted=(3,),
            accepted=(3,),
            reasons={},
            off_argmax=0 if rule in ("plain", "greedy") else 1,
            seconds={"prefill": 9.0, "verify": time},
            log_prob=-1.0 if rule in ("plain", "greedy") else -3.0,
        )


def prompts(count: int) -> list[Prompt]:
    return [Prompt((i,), Origin("prompts.jsonl", i + 1)) for i in range(count)]


def run_fake(
    name: str, count: int = 6, batch_size: int = 1, repeats: int = 1, **options: Any
) -> tuple[FakeEngine, dict[str, Any]]:
    engine, done = FakeEngine(), []
    measured = measure(
        cast(Engine, engine),
        prompts(count),
        SETTINGS,
        lambda: make_acceptor(name, **options),
        done.append,
        MeasureSettings(batch_size=batch_size, repeats=repeats),
    )
    rule = make_acceptor(name, **options)
    assert sum(done) == num_generations(count, rule, repeats=repeats)
    return engine, measured.result()


def test_the_order_of_the_rules_rotates_from_prompt_to_prompt() -> None:
    engine, _ = run_fake("dropmatch", count=4)
    warm_up, measured = engine.calls[:3], engine.calls[3:]
    assert warm_up == [("plain", 0, 8), ("greedy", 0, 8), ("dropmatch", 0, 8)]
    names = ["plain", "greedy", "dropmatch"]
    assert measured == [
        (names[(place + index) % 3], index, 12) for index in range(4) for place in range(3)
    ]


def test_batches_take_turns_too_and_keep_every_prompt_s_index() -> None:
    engine, result = run_fake("dropmatch", count=5, batch_size=2)
    assert engine.batches == [2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1]
    names = ["plain", "greedy", "dropmatch"]
    turns = [(rule, index) for rule, index, budget in engine.calls if budget == 12]
    assert turns[:6] == [(name, index) for name in names for index in (0, 1)]
    assert turns[6:12] == [(names[i % 3], index) for i in (1, 2, 3) for index in (2, 3)]
    assert turns[12:] == [(names[i % 3], 4) for i in (2, 3, 4)]
    assert [row["origin"][-1] for row in result["per_prompt"]] == list("12345")


def test_the_price_is_measured_against_plain_decoding() -> None:
    _, result = run_fake("dropmatch")
    assert result["plain"]["mean_log_prob"] == result["exact"]["mean_log_prob"] == -1 / 4
    assert result["mean_log_prob"] == -3 / 4
    assert (result["exact"]["log_prob_change"], result["log_prob_change"]) == (0.0, -1 / 2)
    assert result["log_prob_change_interval"] == (-0.5, -0.5)
    assert (result["plain_prefix_share"], result["plain_prefix_tokens"]) == (1.0, 5.0)
    assert {row["common_prefix"] for row in result["per_prompt"]} == {5}


def test_a_lossless_rule_is_its_own_exact_baseline() -> None:
    engine, result = run_fake("greedy", count=2)
    assert [rule for rule, _, _ in engine.calls[2:]] == ["plain", "greedy", "greedy", "plain"]
    assert "exact" not in result
    assert result["lossless"] is True


def test_speedups_name_plain_decoding_as_their_baseline() -> None:
    _, result = run_fake("dropmatch")
    assert result["plain_tokens_per_second"] == 1.0
    assert (result["exact"]["speedup"], result["speedup"]) == (2.0, 4.0)
    assert result["speedup_interval"] == (4.0, 4.0)
    assert result["speedup_median"] == 4.0
    assert result["exact"]["off_argmax_share"] == 0.0
    assert result["off_argmax_share"] == 1 / 4
    assert result["identical_to_plain"] == 1.0
    assert [row["origin"] for row in result["per_prompt"]] == [
        f"prompts.jsonl:{i}" for i in range(1, 7)
    ]


@pytest.mark.parametrize(("agreement", "warned"), [(0.5, 1), (0.79, 1), (0.8, 0), (None, 0)])
def test_heads_that_leave_the_target_s_choice_are_warned_of(
    agreement: float | None, warned: int
) -> None:
    lines = warnings_of({"agreement": agreement, "off_argmax_share": 0.52})
    assert len(lines) == warned
    assert all("52 %" in line and "--p-drop" in line for line in lines)


def test_noise_that_was_fitted_is_not_told_to_be_lowered_blindly() -> None:
    fitted = {"p_drop": 0.0123, "positions": 40, "agreement": 0.91}
    result = {"agreement": 0.7, "off_argmax_share": 0.3, "calibration": fitted}
    (line,) = warnings_of(result)
    for said in ("fitted on 40 prompt positions", "91 %", "70 %", "--p-drop below 0.0123 if drift"):
        assert said in line
    assert "Lower" not in line
    assert warnings_of({**result, "agreement": 0.85}) == []


@pytest.mark.parametrize(
    ("acceptor", "options", "heat", "greedy"),
    [
        ("typical", {}, 0.0, True),
        ("cactus", {"delta": 0.5}, 0.0, True),
        ("typical", {}, 1.0, False),
        ("mars", {}, 0.0, False),
        ("greedy", {}, 0.0, False),
    ],
)
def test_a_lossy_rule_that_is_greedy_at_temperature_0_says_so(
    acceptor: str, options: dict[str, Any], heat: float, greedy: bool
) -> None:
    rule = make_acceptor(acceptor, temperature=heat, **options)
    settings = replace(SETTINGS, temperature=heat)
    reply = FakeEngine().answer("greedy", [7], settings, 0)
    generations = {name: [reply] for name in ("plain", "exact", "chosen")}
    result = Measurement(prompts(1), settings, rule, [generations], rule).result()
    assert result["decodes_as_greedy"] is greedy


def test_real_rules_agree_where_they_must(inputs: Path, random_draft: Callable[..., Path]) -> None:
    folder = inputs / "target_chain"
    target = load_target(str(folder), dtype=torch.float32)
    draft = load_draft(random_draft(folder, ids=range(0, 54, 2))).model
    engine = Engine(target, ChainDrafter(draft, target.embedding))
    result = measure(
        engine,
        prompts(8),
        SETTINGS,
        lambda: make_acceptor("dropmatch", p_drop=0.0, seed=1),
        lambda _: None,
    ).result()
    assert result["identical_to_plain"] == result["exact"]["identical_to_plain"] == 1.0
    assert result["acceptance_length"] == result["exact"]["acceptance_length"]
    assert result["off_argmax_share"] == 0.0
    assert sum(result["shares"].values()) == pytest.approx(1.0)
    emitted = result["tokens"] - result["prompts"]
    assert result["acceptance_length"] == emitted / result["rounds"]
    noisy = measure(
        engine,
        prompts(8),
        SETTINGS,
        lambda: make_acceptor("dropmatch", p_drop=0.3, seed=1),
        lambda _: None,
    ).result()
    assert 0 < noisy["agreement"] <= 1
    assert sum(noisy["head_histogram"].values()) == noisy["positions"]


def test_the_order_turns_from_repeat_to_repeat_and_every_reply_is_made_again() -> None:
    engine, result = run_fake("dropmatch", count=2, repeats=3)
    names = ["plain", "greedy", "dropmatch"]
    assert engine.calls[3:] == [
        (names[(place + index + repeat) % 3], index, 12)
        for repeat in range(3)
        for index in range(2)
        for place in range(3)
    ]
    assert (result["repeats"], result["same_replies"]) == (3, 1.0)
    assert [row["chosen"]["speedup"] for row in result["by_repeat"]] == [4.0] * 3
    assert result["noise"]["plain_spread"] == 0.0


def test_every_repeat_has_a_fresh_rule_so_that_fitted_noise_starts_anew() -> None:
    made = []

    def make() -> Acceptor:
        made.append(make_acceptor("dropmatch"))
        return made[-1]

    how = MeasureSettings(repeats=3)
    measured = measure(cast(Engine, FakeEngine()), prompts(2), SETTINGS, make, lambda _: None, how)
    assert len(made) == 1 + 3  # one for the warm-up
    assert measured.judge is measured.acceptor is made[1]


def test_turns_of_one_row_count_as_one_prompt_in_the_intervals() -> None:
    rows = [Prompt((i,), Origin("prompts.jsonl", i // 2)) for i in range(8)]
    how = MeasureSettings()
    engine = cast(Engine, FakeEngine())
    result = measure(engine, rows, SETTINGS, lambda: make_acceptor("greedy"), print, how).result()
    assert result["prompts"] == 8
    assert result["speedup_interval"] is result["acceptance_length_interval"] is None  # four rows


def test_a_prompt_s_own_limits_stand_above_the_settings_and_end_the_warm_up_too() -> None:
    own = Prompt((7,), Origin("f", 2), max_new_tokens=30, stop=("Q:",))
    engine = FakeEngine()
    prompts = [own, Prompt((8,), Origin("f", 3))]
    measure(cast(Engine, engine), prompts, SETTINGS, lambda: make_acceptor("greedy"), print)
    assert [budget for _, _, budget in engine.calls] == [8, 8, 30, 30, 12, 12]
    assert limited(replace(SETTINGS, stop_strings=("x",)), own).stop_strings == ("x", "Q:")
