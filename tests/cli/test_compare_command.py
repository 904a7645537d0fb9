"""``vtrim compare`` on results that ``vtrim eval`` wrote, and on what is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def measured(
    tmp_path: Path, inputs: Path, random_draft: Callable[..., Path], vtrim: Vtrim
) -> Callable[..., Path]:
    """measured(name, *options) -> a result of the word target and one random draft."""
    target = inputs / "target_chain"
    draft = random_draft(target, ids=range(0, 54, 2))
    prompts = tmp_path / "prompts.jsonl"
    texts = ["one", "red fox", "blue", "green gold", "cat", "dog no", "owl", "bee yes"]
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))

    def measure(name: str, *options: object, run: str = "run") -> Path:
        where = ["--run", tmp_path / run, "--draft", draft, "--target", target]
        more = ["--prompts", prompts, "--max-new-tokens", 12, "--dtype", "fp32", *options]
        code, _, err = vtrim("eval", *where, *more, "--name", name, "--json")
        assert code == 0, err
        return tmp_path / run / "eval" / f"{name}.json"

    return measure


def test_two_lengths_of_one_draft_are_compared_in_words_and_in_json(
    measured: Callable[..., Path], vtrim: Vtrim
) -> None:
    one, three = measured("one", "--num-draft-tokens", 1), measured("three")
    code, out, err = vtrim("compare", one, three)
    assert (code, err) == (0, "")
    for said in (
        "three emits",
        "three is",
        "p = ",
        "8 prompts",
        "num draft tokens (1 in A, 3 in B)",
    ):
        assert said in out
    code, out, _ = vtrim("compare", one, three, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["a"]["name"], found["b"]["name"], found["prompts"]) == ("one", "three", 8)
    names = {row["metric"] for row in found["comparisons"]}
    assert names >= {"acceptance_length", "tokens_per_second", "speedup", "mean_log_prob"}
    by_name = {row["metric"]: row for row in found["comparisons"]}
    assert by_name["mean_log_prob"]["difference"] == pytest.approx(0.0, abs=1e-5)  # both lossless
    length = by_name["acceptance_length"]
    for side, path in (("a", one), ("b", three)):
        assert length[side] == pytest.approx(json.loads(path.read_text())["acceptance_length"])


def test_a_result_tells_causes_coverage_intervals_and_noise(
    measured: Callable[..., Path],
) -> None:
    result = json.loads(measured("noted", "--repeats", 2).read_text())
    assert sum(result["rejections"].values()) == result["rejected_rounds"] > 0
    assert result["rejections"]["sampling"] == 0  # greedy
    assert (
        sum(row["rejections"]["wrong_token"] for row in result["per_prompt"])
        == (result["rejections"]["wrong_token"])
    )
    covered = result["plain"]["generated_coverage"]
    assert 0 < covered < 1  # every second id is kept
    assert result["generated_coverage"] == covered  # the same replies
    assert result["acceptance_by_position"][0] <= 1
    assert result["missing_tokens"][0]["text"]
    low, high = result["acceptance_length_interval"]
    assert low <= result["acceptance_length"] <= high
    assert (result["repeats"], len(result["by_repeat"]), result["same_replies"]) == (2, 2, 1.0)
    assert result["noise"]["kernel_looks"] == 2 * 8
    assert result["noise"]["plain_spread"] >= 0
    assert result["expected"]["draft_vocab_size"] == 27
    assert result["expected"]["acceptance_length"]["measured"] == result["acceptance_length"]
    assert result["provenance"]["target_weights"].startswith("sha256:")


def test_a_lossy_rule_is_compared_with_the_exact_one_beside_it(
    measured: Callable[..., Path], vtrim: Vtrim
) -> None:
    path = measured("noisy", "--acceptor", "dropmatch", "--p-drop", 0.4, "--heads", 3)
    result = json.loads(path.read_text())
    against = {row["metric"]: row for row in result["against_exact"]}
    assert against["acceptance_length"]["a"] == pytest.approx(result["exact"]["acceptance_length"])
    assert against["acceptance_length"]["b"] == pytest.approx(result["acceptance_length"])
    assert len(result["exact"]["per_prompt"]) == 8
    exact = measured("exact")
    code, out, _ = vtrim("compare", exact, path)
    assert code == 0
    assert "acceptor (greedy in A, dropmatch in B)" in out


def test_run_folders_stand_for_the_result_that_both_have(
    measured: Callable[..., Path], vtrim: Vtrim
) -> None:
    one, two = measured("greedy"), measured("greedy", "--num-draft-tokens", 2, run="other")
    measured("third", "--num-draft-tokens", 1, run="other")
    code, out, _ = vtrim("compare", one.parent.parent, two.parent.parent, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["a"]["name"], found["b"]["name"]) == ("run", "other")
    assert found["b"]["path"] == str(two)


def error(vtrim: Vtrim, *arguments: object) -> str:
    code, out, err = vtrim("compare", *arguments)
    assert (code, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("error: ")
    return line


def test_what_cannot_be_compared_is_refused_in_one_line(
    measured: Callable[..., Path], vtrim: Vtrim, tmp_path: Path
) -> None:
    one = measured("one")
    fewer, longer = measured("few", "--num-prompts", 6), measured("long", "--max-new-tokens", 9)
    assert "compared with itself" in error(vtrim, one, one)
    assert "6 of its 6 are among the 8" in error(vtrim, one, fewer)
    assert "--max-new-tokens 9" in error(vtrim, one, longer)
    assert "no such result" in error(vtrim, one, tmp_path / "gone.json")
    assert "holds several results" in error(vtrim, one.parent.parent, tmp_path / "run")
    (tmp_path / "empty").mkdir()
    assert "vtrim eval --run" in error(vtrim, tmp_path / "empty", one)
    cut = tmp_path / "cut.json"
    cut.write_text(one.read_text()[:-9])
    assert "not a whole JSON file" in error(vtrim, one, cut)
    shutil.copy(one, tmp_path / "old.json")
    content: dict[str, Any] = json.loads(one.read_text())
    for row in content["per_prompt"]:
        del row["prompt"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    assert "older vtrim" in error(vtrim, one, tmp_path / "old.json")
