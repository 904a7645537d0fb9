from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import optuna
import pytest

from vtrim.errors import OptionError
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.search import build_objective, search
from vtrim.trimming.settings import parse_settings
from vtrim.trimming.tpe import best_trial, tpe_trials


@pytest.mark.parametrize(
    ("alpha", "cmin", "binds"),
    [("0.6", "0.95", True), ("0.6", "0.9", True), ("0.5", "0", False), ("0.9", "0", False)],
)
def test_tpe_loses_at_most_1e_4_on_a_natural_curve_also_where_the_floor_binds(
    zipf_coverage: Callable[..., Coverage],
    llama_shape: DraftShape,
    alpha: str,
    cmin: str,
    binds: bool,
) -> None:
    coverage = zipf_coverage(1.1, 3_000_000)
    result = search(coverage, llama_shape, parse_settings(alpha=alpha, cmin=cmin))
    assert 0 <= result.regret <= 1e-4
    assert result.floor_binds is binds
    assert result.tpe.coverage >= float(cmin)
    assert result.plateau[0] <= result.exact.k <= result.plateau[1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("stop_ids", [(), (51,)])
def test_tpe_finds_the_optimum_of_a_toy_file(
    word_coverage: Callable[..., Coverage],
    toy_shape: DraftShape,
    seed: int,
    stop_ids: tuple[int, ...],
) -> None:
    coverage = word_coverage("g11_bulk.jsonl", stop_ids=stop_ids)
    result = search(coverage, toy_shape, parse_settings(alpha="0.3", cmin="0.95", seed=seed))
    assert result.tpe.k == result.exact.k == 31
    assert result.regret == 0


def test_the_smallest_feasible_size_is_the_first_trial(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    settings = parse_settings(num_trials=1)
    result = search(word_coverage("g11_bulk.jsonl"), toy_shape, settings)
    assert [trial.point.k for trial in result.trials] == [31]
    assert result.tpe.k == 31


def test_a_trial_below_the_floor_is_logged_as_infeasible_and_never_the_best(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    # at alpha 0 every size below the floor has the higher utility
    settings = parse_settings(alpha=0, cmin="0.95")
    result = search(word_coverage("g11_bulk.jsonl"), toy_shape, settings)
    assert [trial.number for trial in result.trials] == list(range(54))
    below = [trial for trial in result.trials if trial.point.k < 31]
    assert below
    assert not any(trial.feasible for trial in below)
    assert all(trial.feasible for trial in result.trials if trial.point.k >= 31)
    assert result.tpe.k == 31


@pytest.mark.parametrize("seed", range(3))
def test_no_size_is_tried_twice_and_a_small_range_is_tried_whole(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape, seed: int
) -> None:
    settings = parse_settings(alpha="0.3", cmin=0, kmin=5, kmax=44, seed=seed)
    result = search(word_coverage("g11_bulk.jsonl"), toy_shape, settings)
    assert sorted(trial.point.k for trial in result.trials) == list(range(5, 45))
    assert result.log is not None
    assert (result.log.exhausted, result.regret) == (True, 0)


def test_fewer_trials_than_sizes_exhaust_nothing(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    settings = parse_settings(num_trials=54)
    result = search(word_coverage("g11_bulk.jsonl"), toy_shape, settings)
    assert result.log is not None
    assert (len(result.trials), result.log.exhausted) == (54, False)


def test_more_trials_begin_with_the_trials_of_fewer(
    zipf_coverage: Callable[..., Coverage], llama_shape: DraftShape
) -> None:
    objective = build_objective(zipf_coverage(1.3, 300_000), llama_shape, parse_settings())
    long = tpe_trials(objective, num_trials=30, seed=7).trials
    assert tpe_trials(objective, num_trials=12, seed=7).trials == long[:12]


def test_equal_seeds_try_equal_sizes_and_others_do_not(
    zipf_coverage: Callable[..., Coverage], llama_shape: DraftShape
) -> None:
    def sizes(seed: int) -> list[int]:
        settings = parse_settings(seed=seed, cmin="0.8", num_trials=20)
        objective = build_objective(zipf_coverage(1.3, 300_000), llama_shape, settings)
        return [t.point.k for t in tpe_trials(objective, num_trials=20, seed=seed).trials]

    assert sizes(7) == sizes(7)
    assert sizes(7) != sizes(8)


def test_an_infeasible_floor_stops_before_any_trial(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    settings = parse_settings(cmin="0.95", kmax=5)
    objective = build_objective(word_coverage("g11_ties.jsonl"), toy_shape, settings)
    with pytest.raises(OptionError, match=r"best coverage is 0\.94"):
        tpe_trials(objective, num_trials=5, seed=0)


def test_a_single_allowed_size_is_searched_like_any_range(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    settings = parse_settings(kmin=40, kmax=40, num_trials=3)
    result = search(word_coverage("g11_bulk.jsonl"), toy_shape, settings)
    assert (result.tpe.k, result.exact.k, result.plateau) == (40, 40, (40, 40))


def test_of_equally_good_trials_the_smaller_size_is_the_best(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    settings = parse_settings(alpha=1, cmin=0, num_trials=60)
    objective = build_objective(word_coverage("g11_bulk.jsonl"), toy_shape, settings)
    trials = tpe_trials(objective, num_trials=60, seed=1).trials
    full = [trial.point.k for trial in trials if trial.point.utility == 1]
    assert len(set(full)) > 1
    assert best_trial(trials).point.k == min(full)


def test_optuna_is_silent_and_its_verbosity_is_left_as_it_was(
    word_coverage: Callable[..., Coverage],
    toy_shape: DraftShape,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = optuna.logging.get_verbosity()
    search(word_coverage("g11_bulk.jsonl"), toy_shape, parse_settings(num_trials=5))
    assert optuna.logging.get_verbosity() == before
    assert capfd.readouterr() == ("", "")


def test_the_written_size_is_the_samplers(
    zipf_coverage: Callable[..., Coverage], llama_shape: DraftShape
) -> None:
    coverage = zipf_coverage(1.3, 3_000_000)
    found = {
        sampler: search(
            coverage, llama_shape, parse_settings(preset="paper", sampler=sampler, num_trials=30)
        )
        for sampler in ("tpe", "exact")
    }
    assert found["tpe"].chosen.k == found["tpe"].tpe.k == found["exact"].tpe.k
    assert found["exact"].chosen.k == found["exact"].exact.k == found["tpe"].exact.k
    assert found["tpe"].tpe.k != found["tpe"].exact.k
    assert found["tpe"].regret > 0


def test_the_vocabulary_holds_the_forced_ids_and_k_ids_in_all(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    coverage = word_coverage("g11_ties.jsonl", stop_ids=(51,))
    result = search(coverage, toy_shape, parse_settings(keep=[40], cmin="0.95"))
    vocab = result.vocab
    assert vocab.size == result.chosen.k
    assert {51, 40} <= set(vocab.ids.tolist())
    assert (vocab.t2d.size, int(vocab.ids.max()) < 54) == (64, True)
    np.testing.assert_array_equal(np.flatnonzero(vocab.t2d), vocab.d2t + np.arange(vocab.size))


def test_a_size_above_the_seen_tokens_is_filled_and_says_so(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    settings = parse_settings(kmin=20, kmax=20, num_trials=1)
    result = search(word_coverage("g11_ties.jsonl"), toy_shape, settings)
    assert (result.vocab.size, result.num_filled) == (20, 12)
    assert result.marginal_frequency == 0


def test_the_marginal_frequency_is_that_of_the_last_seat(
    word_coverage: Callable[..., Coverage], toy_shape: DraftShape
) -> None:
    coverage = word_coverage("g11_ties.jsonl")
    result = search(coverage, toy_shape, parse_settings(kmax=5, cmin=0))
    assert (result.chosen.k, result.marginal_frequency) == (5, 0.04)
    only_forced = search(
        word_coverage("g11_ties.jsonl", stop_ids=(51,)),
        toy_shape,
        parse_settings(kmax=1, cmin=0, num_trials=1),
    )
    assert only_forced.marginal_frequency is None


def test_the_saved_search_holds_every_trial_and_the_curve_with_the_chosen_size(
    zipf_coverage: Callable[..., Coverage], llama_shape: DraftShape
) -> None:
    result = search(zipf_coverage(1.3, 3_000_000), llama_shape, parse_settings(preset="paper"))
    saved = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert len(saved["trial_log"]) == saved["trials"] == 100
    assert set(saved["trial_log"][0]) == {
        "number",
        "k",
        "coverage",
        "flops_reduction",
        "utility",
        "value",
        "feasible",
    }
    sizes = saved["curve"]["k"]
    assert 300 <= len(sizes) <= 402
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (1, 128000)
    assert {saved["k"], saved["exact"]["k"], saved["tpe"]["k"]} <= set(sizes)
    at = sizes.index(saved["k"])
    for name in ("coverage", "heldout_coverage", "flops_reduction", "utility"):
        assert len(saved["curve"][name]) == len(sizes)
        assert saved["curve"][name][at] == saved[name]
    assert saved["heldout_coverage"] < saved["coverage"]
