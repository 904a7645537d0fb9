"""Every option of ``vtrim eval`` that decides how is drafted, judged or timed, end to end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from vtrim.cli.eval_table import show
from vtrim.cli.main import main
from vtrim.models.target import Target, TargetStates, load_target
from vtrim.vocab import DraftVocab

Capture = pytest.CaptureFixture[str]
Evaluate = Callable[..., dict[str, Any]]
DRIFT = {
    "mean_log_prob", "log_prob_change", "log_prob_change_interval", "plain_prefix_share",
    "plain_prefix_tokens",
}  # fmt: skip
LOSSY = [
    ("typical", []),
    ("relaxed", []),
    ("mars", []),
    ("fsd-js", ["--knob", "threshold=0.2"]),
    ("cactus", ["--knob", "delta=0.5", "--temperature", "1"]),
    ("dropmatch", ["--p-drop", "0.3"]),
]


@pytest.fixture
def target(inputs: Path) -> Path:
    return inputs / "target_chain"


@pytest.fixture
def draft(target: Path, random_draft: Callable[..., Path]) -> Path:
    return random_draft(target, ids=range(0, 54, 2))


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stopped:
        main(["eval", *map(str, arguments)])
    return int(stopped.value.code or 0)


@pytest.fixture
def evaluate(tmp_path: Path, target: Path, capsys: Capture) -> Evaluate:
    """evaluate(*options) -> the JSON object of ``vtrim eval`` on the toy's own prompts."""

    def run(*options: object) -> dict[str, Any]:
        where = ["--run", tmp_path / "run", "--target", target, "--max-new-tokens", 12]
        where += ["--prompts", target.parent / "g20_prompts.jsonl", "--json"]
        capsys.readouterr()
        assert call(*where, *options) == 0, capsys.readouterr().err
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run


def refused(capsys: Capture, *arguments: object) -> str:
    """The one line on stderr of a call that is refused."""
    capsys.readouterr()
    assert call(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    line = printed.err.strip().splitlines()[-1]
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("options", "drafter", "settings"),
    [
        (["--drafter", "ngram"], "ngram", {"max_ngram": 3}),
        (["--drafter", "ngram", "--max-ngram", 2], "ngram", {"max_ngram": 2}),
        (["--skip-layers", "0-2"], "model", {"skip_layers": [0, 1, 2]}),
        (["--drafter", "model", "--skip-layers", "1,3"], "model", {"skip_layers": [1, 3]}),
    ],
)
def test_what_needs_no_draft_runs_without_one(
    options: list[object], drafter: str, settings: dict[str, Any], evaluate: Evaluate
) -> None:
    result = evaluate(*options)
    assert result["identical_to_plain"] == result["plain_prefix_share"] == 1.0
    assert result["drafter"] == result["settings"]["drafter"]["name"] == drafter
    assert settings.items() <= result["settings"]["drafter"].items()
    assert result["provenance"]["draft"] is None
    assert result["artifact"].endswith(f"greedy-{drafter}.json")


def test_a_tree_keeps_the_greedy_output(evaluate: Evaluate, draft: Path) -> None:
    result = evaluate("--draft", draft, "--tree", "9,2,3")
    assert result["identical_to_plain"] == 1.0
    assert (result["drafter"], result["num_draft_tokens"]) == ("tree", 3)
    shape = {"total_token": 9, "depth": 2, "top_k": 3}
    assert shape.items() <= result["settings"]["drafter"].items()
    assert len(result["acceptance_by_position"]) <= 3


def test_a_tree_of_no_shape_is_small_on_a_cpu(evaluate: Evaluate, draft: Path) -> None:
    shape = evaluate("--draft", draft, "--drafter", "tree")["settings"]["drafter"]
    assert (shape["total_token"], shape["depth"], shape["top_k"]) == (16, 3, 4)


class MaskBlind(Target):
    """A target whose attention takes no mask, as of some models with code of their own."""

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Any = None,
        cache: Any = None,
    ) -> TargetStates:
        if attention_mask is not None:
            raise ValueError("masks are not for me")
        return super().forward(input_ids, position_ids=position_ids, cache=cache)


def test_a_target_that_takes_no_tree_gets_a_chain_only_when_that_is_asked_for(
    evaluate: Evaluate,
    tmp_path: Path,
    target: Path,
    draft: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def blind(*names: Any, **options: Any) -> Target:
        found = load_target(*names, **options)
        found.__class__ = MaskBlind
        return found

    monkeypatch.setattr("vtrim.evaluation.pairing.load_target", blind)
    tree = ["--draft", draft, "--tree", "9,2,3", "--no-fast-forward"]
    prompts = target.parent / "g20_prompts.jsonl"
    where = ["--run", tmp_path / "run", "--target", target, "--prompts", prompts]
    assert "does not take a mask" in refused(capsys, *where, *tree)
    assert not (tmp_path / "run" / "eval").exists()
    result = evaluate(*tree, "--fallback-chain")
    assert result["drafter"] == result["settings"]["drafter"]["name"] == "eagle"
    assert result["provenance"]["drafter"] == "eagle"
    assert result["num_draft_tokens"] == 3
    assert result["identical_to_plain"] == 1.0
    assert call(*where, *tree, "--fallback-chain") == 0
    assert "drafting a chain in place of a tree" in capsys.readouterr().err


def test_a_second_model_drafts_from_the_head_rows_of_a_vocabulary(
    evaluate: Evaluate, target: Path, tmp_path: Path
) -> None:
    vocab = DraftVocab.of(range(0, 54, 2), 64)
    vocab.save(tmp_path / "vocab.safetensors")
    options = ["--draft-model", target, "--draft-vocab", tmp_path / "vocab.safetensors"]
    result = evaluate(*options)
    assert result["identical_to_plain"] == 1.0
    assert result["provenance"]["draft_vocab_size"] == 27
    assert evaluate("--draft-model", target)["acceptance_length"] > result["acceptance_length"]


@pytest.mark.parametrize(("acceptor", "options"), LOSSY)
def test_every_lossy_rule_is_measured_with_its_price(
    acceptor: str, options: list[object], evaluate: Evaluate, draft: Path
) -> None:
    result = evaluate("--draft", draft, "--acceptor", acceptor, *options)
    assert (result["acceptor"], result["lossless"]) == (acceptor, False)
    assert set(result) >= DRIFT
    assert set(result["exact"]) >= DRIFT
    assert result["mean_log_prob"] <= 0.0
    change = result["mean_log_prob"] - result["plain"]["mean_log_prob"]
    assert result["log_prob_change"] == pytest.approx(change)
    if result["temperature"] == 0:
        assert result["exact"]["log_prob_change"] == pytest.approx(0.0)
        assert result["exact"]["plain_prefix_share"] == 1.0
    else:
        assert result["plain_prefix_share"] is None


def test_prompts_decoded_together_give_the_same_replies(evaluate: Evaluate, draft: Path) -> None:
    alone, together = (evaluate("--draft", draft, "--batch-size", size) for size in (1, 3))
    assert (together["batch_size"], together["settings"]["batch_size"]) == (3, 3)
    for key in ("tokens", "rounds", "accepted", "mean_log_prob", "identical_to_plain"):
        assert together[key] == pytest.approx(alone[key]), key
    assert sum(together["shares"].values()) == pytest.approx(1.0)


def test_an_adaptive_length_keeps_the_output(evaluate: Evaluate, draft: Path) -> None:
    result = evaluate("--draft", draft, "--num-draft-tokens", "auto")
    assert result["identical_to_plain"] == 1.0
    assert (result["num_draft_tokens"], result["settings"]["adaptive"]) == (8, True)


def test_a_confidence_floor_drafts_less(evaluate: Evaluate, draft: Path) -> None:
    sure, all_of_them = (evaluate("--draft", draft, "--min-confidence", p) for p in (0.9, 0.0))
    assert sure["identical_to_plain"] == 1.0
    assert sure["drafted"] < all_of_them["drafted"]


def test_an_end_of_turn_is_a_prompt_and_an_empty_text_is_none(
    evaluate: Evaluate, draft: Path, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("<|done|>", "", "no")))
    result = evaluate("--draft", draft, "--prompts", file, "--batch-size", 2)
    assert (result["prompts"], result["prompts_skipped"]) == (2, {"empty prompt": 1})
    assert result["identical_to_plain"] == 1.0


def test_a_stop_text_ends_a_reply(evaluate: Evaluate, draft: Path) -> None:
    result = evaluate("--draft", draft, "--stop", "fox")
    assert result["settings"]["stop_strings"] == ["fox"]
    assert result["per_prompt"][0]["tokens"] == 2  # dog fox
    assert result["per_prompt"][0]["finish_reason"] == "stop"


def test_filters_of_the_law_reach_both_sides(evaluate: Evaluate, draft: Path) -> None:
    options = ["--draft", draft, "--temperature", 1, "--top-k", 1, "--top-p", 0.9]
    result = evaluate(*options)
    assert result["off_argmax_share"] == 0.0
    assert (result["settings"]["top_k"], result["settings"]["top_p"]) == (1, 0.9)


def test_the_forward_that_ran_is_told(evaluate: Evaluate, draft: Path) -> None:
    lean = evaluate("--draft", draft)
    slow = evaluate("--draft", draft, "--no-fast-forward")
    assert lean["provenance"]["forward"] == "lean"
    assert slow["provenance"]["forward"] == "transformers"
    assert lean["tokens"] == slow["tokens"]


def test_auto_finds_the_noise_and_says_which(
    evaluate: Evaluate, draft: Path, capsys: Capture
) -> None:
    result = evaluate("--draft", draft, "--acceptor", "dropmatch", "--p-drop", "auto")
    rule = result["settings"]["acceptor"]
    assert (rule["p_drop"], rule["p_drop_chosen"]) == ("auto", result["calibration"]["p_drop"])
    assert result["calibration"]["agreement"] >= rule["target_agreement"]
    capsys.readouterr()
    show(result)
    printed = capsys.readouterr().out
    positions = result["calibration"]["positions"]
    assert f"from {positions} prompt positions (few: the choice is rough)" in printed
    assert positions < 64


def test_diagnosing_prints_what_the_paper_measures(
    tmp_path: Path, target: Path, draft: Path, capsys: Capture
) -> None:
    where = ["--run", tmp_path / "run", "--target", target, "--draft", draft]
    where += ["--prompts", target.parent / "g20_prompts.jsonl", "--acceptor", "dropmatch"]
    assert call(*where, "--p-drop", 0.2, "--diagnose") == 0
    printed = capsys.readouterr().out
    for said in ("Diagnosis", "paper", "98.40 %"):
        assert said in printed
    diagnosed = json.loads((tmp_path / "run/eval/dropmatch.json").read_text())
    assert diagnosed["diagnosed"]
    assert diagnosed["total_variation"] is not None
    assert "diagnose" not in diagnosed["settings"]["acceptor"]
    assert "--diagnose: only with" in refused(capsys, *where[:-2], "--diagnose")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--drafter", "tre"], "Did you mean 'tree'"),
        (["--tree", "60,5"], "--tree 60,5: give TOTAL,DEPTH,TOPK"),
        (["--tree", "1,5,10"], "error: --tree 1,5,10: total_token=1"),
        (["--tree", "1,0,0"], "error: --tree 1,0,0: top_k=0"),
        (["--tree", "60,1,2"], "a tree has 6"),
        (["--tree", "9,2,3", "--drafter", "ngram"], "--tree: only with --drafter tree"),
        (["--tree", "9,2,3", "--num-draft-tokens", "4"], "the second number of --tree"),
        (["--fallback-chain"], "--fallback-chain: only with --drafter tree"),
        (["--drafter", "model"], "--draft-model"),
        (["--drafter", "ngram", "--max-ngram", "0"], "--max-ngram 0"),
        (["--max-ngram", "2"], "--max-ngram: only with --drafter ngram"),
        (["--min-confidence", "1"], "--min-confidence 1"),
        (["--num-draft-tokens", "some"], "--num-draft-tokens some"),
        (["--top-p", "0"], "--top-p 0"),
        (["--top-p", "1.1"], "--top-p 1.1"),
        (["--top-k", "-1"], "--top-k -1"),
        (["--batch-size", "0"], "batch-size"),
        (["--p-drop", "auto"], "--p-drop: only with --acceptor dropmatch"),
        (["--acceptor", "dropmatch", "--p-drop", "some"], "--p-drop some"),
        (["--acceptor", "typical", "--knob", "theta=1"], "unknown option 'theta'"),
        (["--acceptor", "typical", "--knob", "theta"], "--knob theta: give NAME=VALUE"),
        (["--acceptor", "dropmatch", "--heads", "3", "--knob", "heads=4"], "--heads; give one"),
        (["--acceptor", "fsd-js"], "give --knob threshold=0.1"),
        (["--drafter", "ngram", "--draft", "x"], "--draft: only with --drafter eagle or tree"),
    ],
)
def test_options_that_cannot_work_are_refused_before_any_model_is_looked_for(
    options: list[str], said: str, tmp_path: Path, capsys: Capture
) -> None:
    nowhere = ["--run", tmp_path / "run", "--target", tmp_path / "no"]
    assert said in refused(capsys, *nowhere, *options)
    assert not (tmp_path / "run").exists()
