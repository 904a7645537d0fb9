"""Sections of the report that come from the results: tasks, rejections, engines, expectations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vtrim.artifacts import Run, write_json
from vtrim.evaluation.report import by_task, conditions, cost, grids, rejected
from vtrim.evaluation.report.document import Document, of_run
from vtrim.evaluation.report.facts import read_facts
from vtrim.evaluation.report.parts import Grid
from vtrim.evaluation.report.rules import measured_rules
from vtrim.evaluation.report.sweeps import read_sweeps, sweeps_grid
from vtrim.evaluation.report.tables import SPEED_COLUMNS, headline_rules


def speed(length: float, rate: float) -> dict[str, Any]:
    return {
        "acceptance_length": length,
        "acceptance_length_interval": [length - 0.1, length + 0.2],
        "tokens_per_second": rate,
        "tokens_per_second_interval": [rate - 1, rate + 1],
        "seconds_per_token": 1 / rate,
        "seconds_per_token_interval": [1 / (rate + 1), 1 / (rate - 1)],
        "speedup": rate / 10,
        "speedup_interval": [rate / 10 - 0.1, rate / 10 + 0.1],
        "rounds": 40,
        "rejected_rounds": 20,
        "rejections": {"out_of_vocabulary": 5, "wrong_token": 13, "sampling": 2},
        "generated_coverage": 0.98,
    }


def task(scores: dict[str, Any] | None, groups: dict[str, Any]) -> dict[str, Any]:
    return {
        "questions": 6,
        "metric": "accuracy" if scores else None,
        "plain_tokens_per_second": 10.0,
        "exact": speed(1.5, 12.0),
        **speed(2.0, 15.0),
        "groups": groups,
        "scores": scores,
    }


SCORES = {"plain": 0.5, "exact": 0.5, "chosen": 0.25, "change": -0.25,
          "change_interval": [-0.5, 0.0]}  # fmt: skip
PART = {"prompts": 3, "acceptance_length": 1.7, "tokens_per_second": 11.0, "speedup": 1.1,
        "score": None, "plain_score": None}  # fmt: skip


def result(**more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "acceptor": "typical",
        "lossless": False,
        "prompts": 6,
        "plain_tokens_per_second": 10.0,
        "plain": {"generated_coverage": 0.97},
        "exact": speed(1.5, 12.0),
        **speed(2.0, 15.0),
        "temperature": 0.7,
        "settings": {"num_draft_tokens": 3},
        "per_prompt": [{"prompt": "p1"}, {"prompt": "p2"}],
    }
    return {**base, **more}


def cells(grid: Grid | None) -> list[dict[str, str]]:
    assert grid is not None
    assert all(len(row) == len(grid.columns) for row in grid.rows)
    return [dict(zip(grid.columns, row, strict=True)) for row in grid.rows]


TASKS = {"tasks": {"sums": task(SCORES, {}), "talk": task(None, {"jokes": PART})}}


def test_each_rule_has_a_row_on_each_task_and_the_lossy_one_its_change_of_score() -> None:
    rows = cells(by_task.tasks_grid({"x": result(**TASKS)}))
    assert [(row["task"], row["rule"], row["tokens/round"], row["score"]) for row in rows] == [
        ("sums", "plain", "1.00", "50.0 %"),
        ("sums", "exact", "1.50", "50.0 %"),
        ("sums", "typical", "2.00", "25.0 %"),
        ("talk", "plain", "1.00", ""),
        ("talk", "exact", "1.50", ""),
        ("talk", "typical", "2.00", ""),
    ]
    assert [row["change"] for row in rows] == ["", "", "-25.0", "", "", ""]
    assert rows[2]["95 % of the change"] == "-50.0 to +0.0"
    (part,) = cells(by_task.groups_grid({"x": result(**TASKS)}))
    assert (part["task"], part["part"], part["tokens/round"], part["score"]) == (
        "talk", "jokes", "1.70", "")  # fmt: skip


def test_bars_of_a_task_reach_from_end_to_end_of_the_interval() -> None:
    figure = by_task.tasks_figure({"x": result(**TASKS)})
    assert figure is not None
    exact, chosen = figure["data"]
    assert (exact["x"], exact["y"]) == (["sums", "talk"], [1.5, 1.5])
    assert chosen["error_y"]["array"] == pytest.approx([0.2, 0.2])
    assert chosen["error_y"]["arrayminus"] == pytest.approx([0.1, 0.1])


def test_a_task_without_a_scorer_is_not_drawn_over_speed() -> None:
    figure = by_task.scores_figure({"x": result(**TASKS)})
    assert figure is not None
    points = {trace["name"]: (*trace["x"], *trace["y"]) for trace in figure["data"]}
    assert points == {
        "sums: plain": (1.0, 0.5), "sums: x: exact": (1.2, 0.5), "sums: x: typical": (1.5, 0.25),
    }  # fmt: skip
    assert by_task.scores_figure({"x": result()}) is None
    assert by_task.tasks_figure({"x": result()}) is None


def test_the_causes_of_rejection_add_up_to_all_rejected_rounds() -> None:
    rules = measured_rules({"x": result()})
    figure = rejected.causes_figure(rules)
    assert figure is not None
    shares = [trace["x"] for trace in figure["data"]]
    assert shares[0] == [0.25, 0.25]
    assert [sum(of_rule) for of_rule in zip(*shares, strict=True)] == pytest.approx([1, 1])
    row = cells(rejected.causes_grid(rules))[0]
    assert (row["rounds"], row["rejected"], row["out of the vocabulary"]) == ("40", "20", "25.0 %")


def test_the_text_that_a_draft_cannot_write_is_named() -> None:
    gone = [{"id": 7, "count": 3}, {"id": 8, "count": 1}]
    (row,) = cells(rejected.covered_grid({"x": result(missing_tokens=gone)}, {"7": " cat"}))
    assert list(row.values()) == ["x", "' cat' 3, 8 1", "97.00 %", "98.00 %"]
    whole = result(plain={"generated_coverage": None})
    assert not rejected.covered_grid({"x": whole}, {}).rows


def test_noise_is_said_in_a_sentence_with_what_was_looked_at() -> None:
    noise = {"plain_spread": 0.05, "kernel_looks": 12, "kernel_spread": 0.02, "kernel_drift": -0.01}
    (line,) = conditions.noise_lines({"x": result(noise=noise, repeats=3)})
    assert "x: plain decoding's speed lay 5.0 % apart over 3 repeats" in line
    assert "timed 12 times in between, spread by 2.0 % and drifted by -1.0 %" in line
    assert conditions.noise_lines({"x": result(noise={"plain_spread": None})}) == []


def test_rates_stand_with_their_intervals() -> None:
    row = cells(conditions.rates_grid(measured_rules({"x": result()})))[1]
    assert row["tokens/round"] == "2.00 (1.90 to 2.20)"
    assert row["latency [ms/token]"] == "66.67 (62.50 to 71.43)"


def test_engines_stand_side_by_side_with_their_own_count_and_a_letter_for_the_prompts() -> None:
    assert conditions.engines_grid({"x": result()}) is None
    engine = {"name": "vllm", "version": "0.32", "acceptance_length": 2.3}
    other = [{"prompt": "p3"}]
    evals = {
        "own": result(),
        "served": result(engine=engine, lossless=True),
        "else": result(engine=engine, per_prompt=other, speedup=None),
    }
    rows = cells(conditions.engines_grid(evals))
    assert [(row["engine"], row["prompts"]) for row in rows] == [
        ("vtrim", "6 (A)"), ("vllm 0.32", "6 (A)"), ("vllm 0.32", "6 (B)"),
    ]  # fmt: skip
    assert [row["by its own count"] for row in rows] == ["", "2.30", "2.30"]
    assert [row["tokens/round"] for row in rows] == [
        "1.50 (1.40 to 1.70)", "2.00 (1.90 to 2.20)", "1.50 (1.40 to 1.70)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lossless", "kind"), [(True, "exact"), (False, "lossy"), (None, "not said")]
)
def test_an_engine_that_does_not_say_whether_it_is_exact_is_called_neither(
    lossless: bool | None, kind: str
) -> None:
    served = result(engine={"name": "sglang"}, lossless=lossless, exact=None)
    (rule,) = measured_rules({"x": served})
    assert rule.rule == f"typical, sglang ({kind})"


def test_the_headline_is_of_vtrim_s_own_decoding_where_engines_were_measured_too(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path)
    run.update(target={"name": "toy"})
    write_json(run.eval / "own.json", result(lossless=True))
    served = result(lossless=True, engine={"name": "vllm"}, prompts=60, dtype=None)
    write_json(run.eval / "served.json", served)
    exact, lossy = headline_rules(read_facts(run))
    assert exact is not None
    assert (exact.run, lossy) == ("own", None)
    (run.eval / "own.json").unlink()
    exact, _ = headline_rules(read_facts(run))
    assert exact is not None
    assert exact.run == "served"


def test_the_headline_is_of_the_run_s_own_target_and_of_a_trained_draft(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.update(target={"name": "toy", "config_fingerprint": "sha256:1"})
    kinds = {
        "mine": {"target_config_fingerprint": "sha256:1", "draft_fingerprint": "sha256:d"},
        "theirs": {"target_config_fingerprint": "sha256:2", "draft_fingerprint": "sha256:d"},
    }
    for name, provenance in kinds.items():
        write_json(run.eval / f"{name}.json", result(lossless=True, provenance=provenance))
    ngrams = {"settings": {"drafter": {"name": "ngram"}}, "prompts": 60}
    write_json(run.eval / "ngrams.json", result(lossless=True, **ngrams))
    facts = read_facts(run)
    exact, _ = headline_rules(facts)
    assert exact is not None
    assert exact.run == "mine"
    assert [note for note in facts.notes if note.endswith("headline: eval/theirs.json.")]


def test_expected_and_measured_stand_beside_each_other_where_both_are_known() -> None:
    found = {
        "coverage": {"heldout": 0.96, "generated": 0.97},
        "acceptance_length": {"by_training": 2.5, "by_model": None, "measured": 2.0},
        "draft_seconds": {"expected": 0.002, "measured": 0.003},
        "times_note": "no step times",
    }
    rows = cells(conditions.expected_grid({"x": result(expected=found)}))
    assert [list(row.values())[1:] for row in rows] == [
        ["coverage of plain replies [%]", "96.0", "97.0", "1.01"],
        ["tokens/round, of training", "2.50", "2.00", "0.80"],
        ["draft step [ms]", "2.00", "3.00", "1.50"],
    ]
    assert conditions.time_notes({"x": result(expected=found)}) == ["x: no step times."]
    assert conditions.expected_grid({"x": result(expected=None)}).rows == []


def test_timed_steps_stand_beside_the_flops_that_the_model_counts() -> None:
    row = {"k": 512, "median_s": 0.001, "q25_s": 0.0009, "q75_s": 0.0012,
           "measured_reduction": 0.6, "predicted_reduction": 0.7}  # fmt: skip
    times = {"draft": [row, {"k": 1024}], "device_name": "cpu", "dtype": "float32"}
    figure = cost.cost_figure(times)
    assert figure is not None
    assert [trace["y"] for trace in figure["data"]] == [[0.7], [0.6]]
    (shown,) = cells(cost.cost_grid(times))
    assert list(shown.values()) == ["512", "1.00", "0.90 to 1.20", "60.0 %", "70.0 %"]
    assert cost.cost_figure(None) is None


def test_what_is_the_same_in_all_rows_is_said_once() -> None:
    plain = dict.fromkeys(SPEED_COLUMNS, "")
    rows = [
        {**plain, "run": "x", "rule": "plain", "T": "0.0", "batch": "1"},
        {**plain, "run": "x", "rule": "greedy", "T": "0.0", "batch": "1", "L": "3"},
        {**plain, "run": "y", "rule": "greedy", "T": "0.0", "batch": "1", "L": "5"},
    ]
    grid = grids.speed_grid([list(row.values()) for row in rows]).without_empty_columns()
    assert grid.text.endswith("In all rows: T 0.0; batch 1.")
    assert grid.columns == ("run", "rule", "L")
    assert (grid.rows[1], grid.names) == (["x", "greedy", "3"], 2)


def sweep_file(folder: Path, name: str, lines: list[dict[str, Any]], tail: str = "") -> None:
    folder.mkdir(exist_ok=True)
    first = {"kind": "vtrim sweep", "made_with": {"acceptor name": "typical"}}
    text = "".join(json.dumps(line) + "\n" for line in [first, *lines])
    (folder / f"{name}.jsonl").write_text(text + tail, encoding="utf-8")


def test_sweeps_are_linked_and_one_that_was_killed_is_shown_with_what_it_has(
    tmp_path: Path,
) -> None:
    points = [{"knobs": {"delta": 0.3}, "speedup": 1.1, "off_argmax_share": 0.1},
              {"knobs": {"delta": 0.5}, "speedup": 1.4, "off_argmax_share": 0.2}]  # fmt: skip
    folder = tmp_path / "sweep"
    sweep_file(folder, "done & #1", points)
    (folder / "done & #1.html").touch()
    sweep_file(folder, "killed", points[:1], tail='{"knobs": {"del')
    sweep_file(folder, "new", [])
    (folder / "foreign.jsonl").write_text("[]\n", encoding="utf-8")
    grid = sweeps_grid(read_sweeps(folder), tmp_path / "pages")
    rows = cells(grid)
    assert [(row["sweep"], row["points"], row["fastest"], row["speed-up"]) for row in rows] == [
        ("done & #1", "2", "delta=0.5", "1.40"),
        ("killed", "1 (not finished)", "delta=0.3", "1.10"),
        ("new", "0 (not finished)", "-", "-"),
    ]
    assert grid.links == ("./../sweep/done%20%26%20%231.html", "", "")


def documented(tmp_path: Path) -> Document:
    run = Run(tmp_path)
    run.update(target={})
    write_json(run.eval / "x.json", result(**TASKS, provenance={"target": "toy"}))
    write_json(run.eval / "notes.json", {"comparisons": []})
    return of_run(read_facts(run), run.root)


def test_a_run_of_one_evaluation_names_the_target_that_was_measured(tmp_path: Path) -> None:
    document = documented(tmp_path)
    assert document.title == "toy"
    assert document.evals == ["x"]
    assert document.notes == ["eval/notes.json is no result of vtrim eval and is left out."]
    assert {"tasks", "scores", "causes"} <= set(document.plots)
