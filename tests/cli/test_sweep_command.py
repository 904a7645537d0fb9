"""``vtrim sweep`` from its command line to its files, on the tiny real target."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.artifacts import Run
from vtrim.evaluation.sweep import pareto

Vtrim = Callable[..., tuple[int, str, str]]
GRID = ["--vary", "p_drop=0.05,auto", "--vary", "num_draft_tokens=1,2", "--vary", "criterion=naive"]


@pytest.fixture(scope="module")
def target(data: Path) -> Path:
    return data / "model" / "stories260k"


@pytest.fixture(scope="module")
def draft(target: Path, random_draft: Callable[..., Path]) -> Path:
    return random_draft(target)


@pytest.fixture
def where(tmp_path: Path, target: Path, draft: Path) -> list[object]:
    """Options that say on what to measure: two questions with answers."""
    prompts = tmp_path / "questions.jsonl"
    rows = [
        {"question": "One and one?", "answer": "1 + 1 = 2\n#### 2"},
        {"question": "Two and two?", "answer": "#### 4"},
    ]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = ["--run", tmp_path / "run", "--target", target, "--draft", draft]
    return [*named, "--prompts", prompts, "--max-new-tokens", 6, "--acceptor", "dropmatch"]


def measured(vtrim: Vtrim, *arguments: object) -> dict[str, Any]:
    code, out, err = vtrim("sweep", *arguments, "--json")
    assert code == 0, err
    assert out.count("\n") == 1
    result: dict[str, Any] = json.loads(out)
    return result


def test_a_grid_measures_every_combination_beside_plain_decoding(
    vtrim: Vtrim, where: list[object], tmp_path: Path
) -> None:
    result = measured(vtrim, *where, *GRID)
    knobs = [point["knobs"] for point in result["points"]]
    assert knobs == [
        {"p_drop": p, "num_draft_tokens": length, "criterion": "naive"}
        for p in (0.05, "auto")
        for length in (1, 2)
    ]
    for point in result["points"]:
        ratio = point["tokens_per_second"] / point["plain_tokens_per_second"]
        assert point["speedup"] == pytest.approx(ratio)
        assert point["tokens"] == 12
        assert point["drift"] == point["off_argmax_share"]
        assert point["mean_log_prob"] < 0
        assert (point["score"], point["plain_score"]) == (0.0, 0.0)
    assert result["front"] == pareto([(p["speedup"], p["drift"]) for p in result["points"]])
    assert result["score_front"]
    assert result["resumed"] == 0
    assert (tmp_path / "run" / "sweep" / "dropmatch.jsonl").read_text().count("\n") == 5
    entry = Run(tmp_path / "run").step("sweep")["results"]["dropmatch"]
    assert (entry["points"], entry["artifact"]) == (4, result["artifact"])


def test_the_page_needs_nothing_from_outside_and_shows_every_point(
    vtrim: Vtrim, where: list[object]
) -> None:
    page = Path(measured(vtrim, *where, *GRID)["page"]).read_text(encoding="utf-8")
    own = page.split("<script>")[0]
    assert "src=" not in own
    assert "://" not in own
    assert "default-src 'none'" in own
    assert own.count("<tr>") == 5
    assert "p_drop, L, criterion" in own
    for figure in ("section-drift", "section-score"):
        assert figure in own


def test_a_second_call_goes_on_behind_a_cut_line_and_measures_no_point_twice(
    vtrim: Vtrim, where: list[object], tmp_path: Path
) -> None:
    first = measured(vtrim, *where, *GRID)
    log = tmp_path / "run" / "sweep" / "dropmatch.jsonl"
    content = log.read_bytes()
    kept = content.splitlines(keepends=True)[:3]
    log.write_bytes(b"".join(kept) + content.splitlines()[3][:40])
    code, out, err = vtrim("sweep", *where, *GRID)
    assert code == 0, err
    assert "last line was cut (40 bytes" in err
    assert "2 finished points found" in err
    assert "p_drop" in out  # the header may wrap
    assert "criterion" in out
    lines = log.read_bytes().splitlines(keepends=True)
    assert lines[:3] == kept
    found = [json.loads(line)["knobs"] for line in lines[1:]]
    assert found == [point["knobs"] for point in first["points"]]


def test_a_sweep_of_a_second_model_goes_on(
    vtrim: Vtrim, where: list[object], target: Path, tmp_path: Path
) -> None:
    skipping = ["--target", target, "--skip-layers", "1,3", "--max-new-tokens", 4]
    skipping += ["--prompts", where[where.index("--prompts") + 1], "--run", tmp_path / "run"]
    length = ["--acceptor", "greedy", "--vary"]
    measured(vtrim, *skipping, *length, "num_draft_tokens=1")
    result = measured(vtrim, *skipping, *length, "num_draft_tokens=1,2")
    assert (result["resumed"], len(result["points"])) == (1, 2)


def test_a_larger_grid_keeps_the_points_of_the_smaller_one(
    vtrim: Vtrim, where: list[object]
) -> None:
    measured(vtrim, *where, "--vary", "p_drop=0.05,0.1")
    result = measured(vtrim, *where, "--vary", "p_drop=0.05,0.1,0.2")
    assert result["resumed"] == 2
    assert [point["knobs"]["p_drop"] for point in result["points"]] == [0.05, 0.1, 0.2]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["--max-new-tokens", 7], "another max_new_tokens: 6 there, 7 now"),
        (["--seed", 1], "another acceptor seed: 0 there, 1 now"),
        (["--num-prompts", 1], "another num_prompts: 20 there, 1 now"),
        (["--vary", "heads=3"], "another acceptor heads: 5 there, null now"),
    ],
)
def test_changed_inputs_are_refused_with_the_difference(
    changed: list[object], said: str, vtrim: Vtrim, where: list[object]
) -> None:
    measured(vtrim, *where, "--vary", "p_drop=0.05")
    code, out, err = vtrim("sweep", *where, "--vary", "p_drop=0.05", *changed)
    assert (code, out) == (2, "")
    assert said in err
    assert "Give another --name" in err


def test_a_changed_draft_or_prompt_is_refused(
    vtrim: Vtrim, where: list[object], target: Path, random_draft: Callable[..., Path]
) -> None:
    measured(vtrim, *where, "--vary", "p_drop=0.05")
    other = random_draft(target, seed=1)
    code, _, err = vtrim("sweep", *where, "--vary", "p_drop=0.05", "--draft", other)
    assert (code, "another draft_fingerprint" in err) == (2, True)
    prompts = Path(str(where[where.index("--prompts") + 1]))
    prompts.write_text(prompts.read_text().replace("Two", "Six"))
    code, _, err = vtrim("sweep", *where, "--vary", "p_drop=0.05")
    assert (code, "another prompt" in err) == (2, True)


def test_tpe_measures_as_many_points_as_asked_for_and_goes_on(
    vtrim: Vtrim, where: list[object]
) -> None:
    tpe = ["--vary", "p_drop=0.01..0.3", "--vary", "heads=2..4", "--sampler", "tpe"]
    first = measured(vtrim, *where, *tpe, "--trials", 2)
    both = measured(vtrim, *where, *tpe, "--trials", 3)
    assert (len(first["points"]), len(both["points"]), both["resumed"]) == (2, 3, 2)
    assert [p["knobs"] for p in both["points"][:2]] == [p["knobs"] for p in first["points"]]
    for point in both["points"]:
        assert 0.01 <= point["knobs"]["p_drop"] <= 0.3
        assert point["knobs"]["heads"] in (2, 3, 4)


def test_tpe_stops_when_every_combination_is_measured(vtrim: Vtrim, where: list[object]) -> None:
    tpe = ["--vary", "heads=2,3", "--vary", "p_drop=0.1", "--sampler", "tpe", "--trials", 9]
    code, _, err = vtrim("sweep", *where, *tpe)
    assert code == 0
    assert "every combination is measured: 2" in err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "nothing to vary"),
        (["--vary", "pdrop=0.1"], "Did you mean 'p_drop'? Known: heads, p_drop"),
        (["--vary", "diagnose=true"], "no such knob"),
        (["--vary", "p_drop="], "a value is missing"),
        (["--vary", "p_drop=0.3..0.1", "--sampler", "tpe", "--trials", 3], "upside down"),
        (["--vary", "p_drop=0.1..0.3"], "a grid needs values, not a range"),
        (["--vary", "p_drop=0.1..0.3", "--sampler", "tpe"], "needs --trials N"),
        (["--vary", "p_drop=0.1", "--trials", 3], "--trials: only with --sampler tpe"),
        (["--vary", "p_drop=0.1", "--sampler", "random"], "Known: grid, tpe"),
        (["--vary", "p_drop=0.1,1"], "--vary p_drop=1: give"),
        (["--vary", "p_drop=0..1", "--sampler", "tpe", "--trials", 3], "--vary p_drop=1.0: give"),
        (["--vary", "heads=0,3"], "--vary heads=0: "),
        (["--vary", "heads=2.5,3"], "--vary heads=2.5: must be a whole number"),
        (["--vary", "criterion=naive,maybe"], "maybe"),
        (["--vary", "num_draft_tokens=0,3"], "--vary num_draft_tokens=0: give"),
        (
            ["--vary", "num_draft_tokens=3", "--tree", "9,2,3"],
            "--vary num_draft_tokens=3: a tree's depth",
        ),
        (
            ["--vary", "num_draft_tokens=3", "--acceptor", "fsd-js"],
            "--acceptor fsd-js: give --vary threshold=0.1",
        ),
        (
            ["--vary", "num_draft_tokens=2", "--num-draft-tokens", 2],
            "--num-draft-tokens: stands beside --vary",
        ),
        (["--vary", "p_drop=0.1", "--name", "a/b"], "--name a/b"),
        (["--vary", "p_drop=0.1", "--name", ""], "--name ''"),
        (["--vary", "p_drop=0.1", "--acceptor", "greedy"], "greedy has no such knob"),
        (["--vary", "p_drop=0.1", "--acceptor", "dropmach"], "Did you mean 'dropmatch'"),
    ],
)
def test_a_sweep_that_cannot_work_is_refused_before_any_model_is_looked_for(
    options: list[object], said: str, vtrim: Vtrim, tmp_path: Path
) -> None:
    nowhere = ["--run", tmp_path / "run", "--draft", tmp_path / "no", "--target", tmp_path / "no"]
    acceptor = [] if "--acceptor" in options else ["--acceptor", "dropmatch"]
    code, out, err = vtrim("sweep", *nowhere, *acceptor, *options)
    assert (code, out) == (2, "")
    (line,) = err.strip().splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_ctrl_c_keeps_the_finished_points(
    vtrim: Vtrim, where: list[object], tmp_path: Path
) -> None:
    log = tmp_path / "run" / "sweep" / "dropmatch.jsonl"
    vary = ["--vary", "p_drop=" + ",".join(f"{0.001 * i:.3f}" for i in range(1, 300))]
    command = [sys.executable, "-m", "vtrim.cli.main", "sweep", *map(str, [*where, *vary])]
    # a shell that starts jobs in the background has them ignore Ctrl-C
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 120
    while not (log.exists() and log.read_bytes().count(b"\n") >= 3):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert err.strip().splitlines()[-1] == "error: interrupted; finished work is kept."
    done = log.read_bytes().count(b"\n") - 1
    result = measured(vtrim, *where, "--vary", "p_drop=0.001,0.002")
    assert result["resumed"] >= min(done, 2)
    assert len(result["points"]) == result["resumed"]
