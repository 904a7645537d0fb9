from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from vtrim.artifacts import Run, fingerprint_json, write_json
from vtrim.trimming.coverage import Coverage
from vtrim.vocab import DraftVocab

CONFIG = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 64,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 16,
    "max_position_embeddings": 128,
}
TIES = {0: 40, 5: 25, 6: 15, 20: 10, 21: 4, 22: 2, 23: 2, 51: 2}
MEASURED = {
    "target": "toy",
    "config_fingerprint": fingerprint_json(CONFIG),
    "verify": [{"tokens": tokens, "median_s": 0.03} for tokens in range(1, 5)],
    "draft_fit": {"base_s": 0.001, "per_row_s": 1e-4},
    "device_name": "toy [bold]",
    "dtype": "bfloat16",
    "threads": 1,
    "context": 256,
    "num_draft_tokens": 3,
}
Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run folder as `vtrim coverage` leaves it."""
    counts = np.zeros(64, dtype=np.int64)
    for token, count in TIES.items():
        counts[token] = count
    run = Run(tmp_path / "run")
    Coverage(
        counts=counts,
        heldout_counts=np.zeros(64, dtype=np.int64),
        target_vocab_size=64,
        tokenizer_length=54,
        tokenizer_fingerprint="sha256:words",
        data_fingerprint="sha256:data",
    ).save(run.coverage)
    run.update(target={"name": "toy", "tokenizer_fingerprint": "sha256:words", "stop_ids": []})
    write_json(run.target_config, CONFIG)
    return run


def test_a_budget_is_read_off_the_counts_without_a_trial(run: Run, vtrim: Vtrim) -> None:
    arguments = ("search", "--run", run.root, "--objective", "budget", "--cmin", "0.95")
    code, out, _ = vtrim(*arguments)
    assert code == 0
    assert "no trials: the smallest size of a coverage is read off the counts, exactly" in out
    assert "tpe" not in out
    assert DraftVocab.load(run.vocab).ids.tolist() == [0, 5, 6, 20, 21, 22]
    printed = json.loads(vtrim(*arguments, "--json")[1])
    assert (printed["k"], printed["tpe"], printed["trials"]) == (6, None, 0)
    assert (printed["objective"], printed["sampler"], printed["regret"]) == ("budget", "exact", 0)
    assert not run.search_journal.exists()


def test_speed_is_maximised_with_the_times_measured_in_the_run(run: Run, vtrim: Vtrim) -> None:
    write_json(run.step_times, MEASURED)
    arguments = ("search", "--run", run.root, "--objective", "throughput", "--cmin", "0.9")
    code, out, _ = vtrim(*arguments)
    assert code == 0
    assert "most tokens/s, L 3, a0 0.75, cmin 0.9" in out
    assert "measured: toy [bold], bfloat16, 1 threads, 256 cached tokens" in out
    assert "k by a0: 0.5: " in out
    printed = json.loads(vtrim(*arguments, "--json")[1])
    a = 0.75 * printed["coverage"]
    tau = 1 + a + a**2 + a**3
    speed = tau / (0.03 + 3 * (0.001 + 1e-4 * printed["k"]))
    assert printed["throughput"]["tokens_per_second"] == pytest.approx(speed)
    assert printed["throughput"]["speedup_over_plain"] == pytest.approx(0.03 * speed)
    assert printed["value"] == printed["throughput"]["tokens_per_second"]


def test_a_gpu_takes_the_place_of_a_measurement(run: Run, vtrim: Vtrim) -> None:
    options = ("--objective", "throughput", "--gpu", "l40s", "--num-draft-tokens", 5, "--batch", 4)
    code, out, err = vtrim("search", "--run", run.root, *options, "--json")
    assert code == 0, err
    times = json.loads(out)["throughput"]["times"]
    assert (times["num_draft_tokens"], times["batch"]) == (5, 4)
    assert times["source"].startswith("roofline: L40S, bf16, batch 4 (best case")
    shown = vtrim("search", "--run", run.root, *options)[1]
    assert "L 5, a0 0.75, cmin 0.95, batch 4" in shown


def test_a_target_larger_than_the_card_is_said(run: Run, vtrim: Vtrim) -> None:
    write_json(run.target_config, {**CONFIG, "num_hidden_layers": 2_000_000})
    options = ("--objective", "throughput", "--gpu", "L4")
    code, _, err = vtrim("search", "--run", run.root, *options)
    assert code == 0
    assert "do not fit into the 24 GB of one L4" in err


@pytest.mark.parametrize(
    ("measured", "options", "message"),
    [
        (None, [], "run `vtrim flops --measure` first, or name a GPU with --gpu"),
        ({}, ["--batch", "8"], "--batch 8: `vtrim flops --measure` times one sequence"),
        ({}, ["--num-draft-tokens", "7"], "--num-draft-tokens 7: "),
        ({"config_fingerprint": "sha256:other"}, [], "measured for toy, not for this search's"),
        ({"verify": None}, [], "not a measurement of step times"),
        ({"draft_fit": {"base_s": -9, "per_row_s": 0}}, [], "step_times.json: impossible times"),
        (None, ["--gpu", "H900"], "--gpu H900: unknown"),
    ],
)
def test_speed_without_fitting_times_is_refused_in_one_line(
    run: Run,
    vtrim: Vtrim,
    measured: dict[str, object] | None,
    options: list[str],
    message: str,
) -> None:
    if measured is not None:
        write_json(run.step_times, {**MEASURED, **measured})
    code, out, err = vtrim("search", "--run", run.root, "--objective", "throughput", *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not run.vocab.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", "[]"),
        ("run.json", '{"target": null, "steps": {}}'),
        ("run.json", '{"target": [], "steps": {}}'),
        ("run.json", '{"target": {"stop_ids": ["</s>"]}, "steps": {}}'),
        ("run.json", '{"target": {"stop_ids": 2}, "steps": {}}'),
        ("run.json", '{"target": {}, "steps": []}'),
        ("target/config.json", "[]"),
        ("target/config.json", json.dumps({**CONFIG, "head_dim": [16]})),
        ("target/tokens.json", "[]"),
        ("target/tokens.json", '{"5": 5}'),
    ],
)
def test_a_damaged_file_of_the_run_is_named_in_one_line(
    run: Run, vtrim: Vtrim, name: str, content: str
) -> None:
    path = run.root / name
    path.write_text(content)
    code, out, err = vtrim("search", "--run", run.root)
    assert (code, out) == (2, "")
    assert path.name in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert not run.vocab.exists()


def test_the_roofline_of_a_mixture_of_experts_is_refused(run: Run, vtrim: Vtrim) -> None:
    write_json(run.target_config, {**CONFIG, "num_experts": 8})
    options = ("--objective", "throughput", "--gpu", "H100")
    code, _, err = vtrim("search", "--run", run.root, *options)
    assert code == 2
    assert "the target has experts" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--objective", "speed"], "Known: utility, throughput, budget"),
        (["--objective", "budget", "--alpha", "0.5"], "--alpha: --objective budget does not"),
        (["--objective", "budget", "--sampler", "tpe"], "has nothing to sample"),
        (["--objective", "budget", "--storage", "x.db"], "there is nothing to keep"),
        (["--objective", "budget", "--preset", "paper"], "--preset paper: --objective budget"),
        (["--objective", "throughput", "--alpha", "0.5"], "--alpha: --objective throughput"),
        (["--objective", "throughput", "--a0", "1.5"], "--a0 1.5: must lie in [0, 1]"),
        (["--objective", "throughput", "--a0", "0"], "--a0 0: "),
        (["--objective", "throughput", "--batch", "0"], "--batch 0: must be at least 1"),
        (["--a0", "0.8"], "--a0: --objective utility does not use it"),
        (["--gpu", "H100"], "--gpu: --objective utility does not use it"),
        (["--num-draft-tokens", "0"], "--num-draft-tokens"),
        (["--align", "0"], "--align 0: must be at least 1"),
        (["--revision", "main"], "--revision: only a model named with --target uses it"),
        (["--trust-remote-code"], "--trust-remote-code: only a model named with --target"),
        (["--storage", ""], "--storage: no name. Name a journal file or a URL"),
        (["--cmin", "1e-99999999"], "--cmin 1e-99999999: not a number"),
    ],
)
def test_an_option_that_means_nothing_stops_before_any_file_is_read(
    tmp_path: Path, vtrim: Vtrim, options: list[str], message: str
) -> None:
    code, out, err = vtrim("search", "--run", tmp_path / "nowhere", *options)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_aligned_size_is_written_and_said(run: Run, vtrim: Vtrim) -> None:
    code, out, err = vtrim("search", "--run", run.root, "--align", 16)
    assert code == 0
    assert "aligned to 16: 8 -> 16" in out
    assert "written: 16 ids (sampler tpe, aligned to 16)" in err
    assert DraftVocab.load(run.vocab).size == 16
    assert json.loads(run.search.read_text())["aligned_from"] == 8


def test_k_over_alpha_and_the_front_are_shown(run: Run, vtrim: Vtrim) -> None:
    _, out, _ = vtrim("search", "--run", run.root)
    assert "k by alpha: 0.1: 8, 0.2: 8" in out
    assert "is within 0.001 of the best utility at every alpha from" in out
    for name in ("knee -", "C 0.9 -", "C 0.95 ", "C 0.995"):
        assert name in out, name
    printed = json.loads(vtrim("search", "--run", run.root, "--json")[1])
    assert printed["pareto"]["knee"] == 3
    assert "pareto" not in run.step("search")


@pytest.mark.parametrize("name", ["x.journal", "sqlite:///{}/x.db"])
def test_two_runs_of_5_trials_on_one_storage_try_10_sizes(
    run: Run, tmp_path: Path, vtrim: Vtrim, name: str
) -> None:
    # the hard input g15
    storage = name.format(tmp_path) if "://" in name else str(tmp_path / name)
    arguments = ("search", "--run", run.root, "--storage", storage, "--seed", 7, "--trials", 5)
    code, _, err = vtrim(*arguments)
    assert (code, "found" in err) == (0, False)
    code, _, err = vtrim(*arguments)
    assert code == 0
    assert f"{storage}: 5 trials of this search found, 5 new sizes tried." in err
    saved = json.loads(run.search.read_text())
    assert saved["trials"] == len({trial["k"] for trial in saved["trial_log"]}) == 10
    code, _, err = vtrim(*arguments, "--alpha", "0.5")
    assert "1 other searches (other counts or settings) are in this storage too" in err
    assert json.loads(run.search.read_text())["trials"] == 5


def test_a_search_typed_twice_tries_nothing_again_and_writes_the_same_bytes(
    run: Run, vtrim: Vtrim
) -> None:
    arguments = ("search", "--run", run.root, "--trials", 6)
    vtrim(*arguments)
    first = (run.search.read_bytes(), run.search_journal.read_bytes())
    code, _, err = vtrim(*arguments)
    assert (code, "found" in err) == (0, False)
    assert (run.search.read_bytes(), run.search_journal.read_bytes()) == first
    # and neither do trials that were added in between change it
    vtrim(*arguments, "--storage", run.search_journal)
    assert json.loads(run.search.read_text())["trials"] == 12
    vtrim(*arguments)
    assert run.search.read_bytes() == first[0]


def test_a_cut_journal_is_mended_and_said_in_one_line(run: Run, vtrim: Vtrim) -> None:
    arguments = ("search", "--run", run.root, "--trials", 6)
    vtrim(*arguments)
    before = run.search.read_bytes()
    run.search_journal.write_bytes(run.search_journal.read_bytes()[:-9])
    code, _, err = vtrim(*arguments)
    assert code == 0
    lines = [line for line in err.splitlines() if "was cut" in line]
    assert len(lines) == 1
    assert lines[0].startswith("warning: ")
    assert run.search.read_bytes() == before


def test_a_storage_that_is_something_else_is_refused_and_kept(run: Run, vtrim: Vtrim) -> None:
    content = run.coverage.read_bytes()
    code, out, err = vtrim("search", "--run", run.root, "--storage", run.coverage)
    assert (code, out) == (2, "")
    assert "not a record of an Optuna journal" in err
    assert run.coverage.read_bytes() == content


SPEED = ("--objective", "throughput", "--json")
EVAL = {
    "lossless": False,
    "acceptance_length": 9.0,
    "exact": {"acceptance_length": 1.4},
    "num_draft_tokens": 1,
    "provenance": {"target_config_fingerprint": fingerprint_json(CONFIG), "draft_vocab_size": 3},
}


def test_an_eval_of_the_run_tells_its_a0(run: Run, vtrim: Vtrim) -> None:
    write_json(run.step_times, MEASURED)
    write_json(run.eval / "dropmatch.json", EVAL)
    err = vtrim("search", "--run", run.root, *SPEED)[2]
    # L = 1: a = tau - 1 = 0.4; three rows cover 0.8
    assert "1.40 tokens a round with 1 drafted and k 3, so a0 about 0.50" in err
    assert "search again with --a0 0.50" in err
    assert "a0 about 0.50, as here" in vtrim("search", "--run", run.root, *SPEED, "--a0", "0.5")[2]


@pytest.mark.parametrize(
    "found",
    [
        {**EVAL, "provenance": {**EVAL["provenance"], "target_config_fingerprint": "sha256:x"}},
        {**EVAL, "exact": None},
        {},
        [],
    ],
)
def test_an_eval_of_another_target_or_none_at_all_is_no_matter(
    run: Run, vtrim: Vtrim, found: object
) -> None:
    write_json(run.step_times, MEASURED)
    write_json(run.eval / "other.json", found)
    code, _, err = vtrim("search", "--run", run.root, *SPEED)
    assert (code, "a0" in err) == (0, False)


def test_times_that_spread_are_warned_of_where_they_are_used(run: Run, vtrim: Vtrim) -> None:
    rows = [{"tokens": n, "median_s": 0.03, "q25_s": 0.03, "q75_s": 0.06} for n in range(1, 5)]
    write_json(run.step_times, {**MEASURED, "verify": rows, "draft": []})
    err = vtrim("search", "--run", run.root, *SPEED)[2]
    assert "step_times.json: the middle half of some times spreads over 100%" in err


def test_speeds_are_plain_numbers_and_the_floor_is_named(run: Run, vtrim: Vtrim) -> None:
    fast = [{**row, "median_s": 3e-5} for row in MEASURED["verify"]]
    slow_head = {"base_s": 1e-6, "per_row_s": 1e-5}
    write_json(run.step_times, {**MEASURED, "verify": fast, "draft_fit": slow_head})
    out = vtrim("search", "--run", run.root, *SPEED[:2])[1]
    assert "regret of TPE: none after" in out
    assert "the floor cmin decides: by throughput alone the best k is 1 (" in out
    assert "(* the floor decides)" in out
    assert "L 3: tokens drafted a round; a0 0.75: chance that one is accepted" in out
    assert "e+" not in out


def test_a_budget_shows_no_utility(run: Run, vtrim: Vtrim) -> None:
    assert "utility" not in vtrim("search", "--run", run.root, "--objective", "budget")[1]
