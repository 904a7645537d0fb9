"""``vtrim eval`` from its command line to its files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.artifacts import Run, fingerprint_file
from vtrim.cli.main import main
from vtrim.models.layout import load_draft
from vtrim.vocab import DraftVocab

Capture = pytest.CaptureFixture[str]
CONTRACT = {
    "acceptor", "lossless", "prompts", "prompts_skipped", "tokens", "acceptance_length",
    "acceptance_by_position", "tokens_per_second", "plain_tokens_per_second", "speedup", "shares",
    "identical_to_plain", "off_argmax_share", "accept_reasons", "artifact",
}  # fmt: skip


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


def on_words(
    run: Path, draft: Path, target: Path, *more: object, prompts: str = "g20_prompts.jsonl"
) -> list[object]:
    file = target.parent / prompts
    where = ["--run", run, "--draft", draft, "--target", target, "--prompts", file]
    return [*where, "--max-new-tokens", 12, *more]


def test_json_holds_the_contract_s_fields_and_is_what_the_file_holds(
    tmp_path: Path, draft: Path, target: Path, capsys: Capture
) -> None:
    assert call(*on_words(tmp_path / "run", draft, target, "--json")) == 0
    printed = capsys.readouterr().out
    result: dict[str, Any] = json.loads(printed)
    assert printed.count("\n") == 1
    assert set(result) >= CONTRACT
    assert set(result["shares"]) == {"draft", "verify", "accept", "other"}
    assert "exact" not in result
    assert result["acceptor"] == "greedy"
    assert result["identical_to_plain"] == 1.0
    assert result["tokens"] == 4 + 10 + 12 + 1 + 4
    artifact = tmp_path / "run" / "eval" / "greedy.json"
    assert result["artifact"] == str(artifact)
    assert json.loads(artifact.read_text()) == result
    assert Run(tmp_path / "run").step("eval")["results"]["greedy"]["acceptor"] == "greedy"


def test_a_lossy_rule_is_measured_beside_exact_acceptance_and_says_so(
    tmp_path: Path, draft: Path, target: Path, capsys: Capture
) -> None:
    more = ["--acceptor", "dropmatch", "--p-drop", 0.4, "--heads", 3, "--name", "noisy"]
    assert call(*on_words(tmp_path / "run", draft, target, *more, "--json")) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["exact"]) >= {"acceptance_length", "tokens_per_second", "speedup"}
    assert result["exact"]["identical_to_plain"] == 1.0
    assert result["settings"]["acceptor"]["p_drop"] == 0.4
    assert result["artifact"].endswith("noisy.json")
    assert call(*on_words(tmp_path / "run", draft, target, *more)) == 0
    printed = capsys.readouterr()
    assert "dropmatch is lossy" in printed.out
    assert "exact (greedy)" in printed.out
    assert ("warning: only" in printed.err) == (result["agreement"] < 0.8)


def test_above_temperature_0_the_exact_rule_is_rejection(
    tmp_path: Path, draft: Path, target: Path, capsys: Capture
) -> None:
    arguments = on_words(tmp_path / "run", draft, target, "--temperature", 1, "--json")
    assert call(*arguments) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["acceptor"], result["lossless"]) == ("rejection", True)
    assert result["identical_to_plain"] is None


@pytest.mark.parametrize("known_before_loading", [True, False])
def test_g23_prompts_that_cannot_be_answered_do_not_hide_the_others(
    known_before_loading: bool,
    tmp_path: Path,
    draft: Path,
    target: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not known_before_loading:  # as of a draft with fewer positions than its target
        monkeypatch.setattr("vtrim.evaluation.pairing.TargetSource.positions", sys.maxsize)
    file = "g23_long_prompt.jsonl"
    assert call(*on_words(tmp_path / "run", draft, target, "--json", prompts=file)) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    skipped = {"prompt longer than the context": 1, "empty prompt": 1}
    assert (result["prompts"], result["prompts_skipped"]) == (1, skipped)
    assert "g23_long_prompt.jsonl:2" in printed.err
    assert result["per_prompt"][0]["tokens"] == 3  # green gold <|done|>


@pytest.mark.parametrize(
    ("text", "said"),
    [('{"prompt": "one"}\n{cut\n', "prompts.jsonl:2"), ('{"prompt": ""}\n', "empty prompt")],
)
def test_bad_prompts_are_refused_before_a_model_is_loaded(
    text: str,
    said: str,
    tmp_path: Path,
    draft: Path,
    target: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("vtrim.evaluation.pairing.load_decoder", loaded)
    file = tmp_path / "prompts.jsonl"
    file.write_text(text)
    assert said in refused(capsys, *on_words(tmp_path / "run", draft, target, prompts=str(file)))


def test_ctrl_c_says_that_nothing_was_written(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("vtrim.cli.eval.run_eval", interrupted)
    assert call("--run", tmp_path) == 130
    assert capsys.readouterr().err == "error: interrupted; nothing was written.\n"


def test_the_table_says_what_few_prompts_and_a_rule_without_loss_are_worth(
    tmp_path: Path, draft: Path, target: Path, capsys: Capture
) -> None:
    more = ["--acceptor", "typical", "--num-prompts", 4, "--top-p", 0.9]
    assert call(*on_words(tmp_path / "run", draft, target, *more)) == 0
    printed = capsys.readouterr()
    assert "typical decodes as greedy at temperature 0" in printed.out
    assert "is lossy" not in printed.out
    assert "Fewer than 5 prompts: no interval" in printed.out
    assert "of the rounds that drafted so far" in printed.out
    assert "--top-p: without effect at temperature 0" in printed.err


def test_by_default_the_run_s_own_draft_target_and_held_out_rows_are_used(
    tmp_path: Path, target: Path, random_draft: Callable[..., Path], capsys: Capture
) -> None:
    from vtrim.models.hub import load_tokenizer, tokenizer_fingerprint

    run = Run(tmp_path / "run")
    data = tmp_path / "data.jsonl"
    words = ["one", "two", "three", "four", "five", "six", "seven"]
    rows = [
        {"messages": [{"role": "user", "content": f"{a} {b} {c}"}]}
        for a in words for b in words for c in words
    ]  # fmt: skip
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file = {"path": str(data), "bytes": data.stat().st_size, "fingerprint": fingerprint_file(data)}
    entry = {
        "name": str(target),
        "tokenizer_fingerprint": tokenizer_fingerprint(load_tokenizer(str(target))),
        "stop_ids": [51],
    }
    run.update(target=entry, data={"files": [file], "skip_bad_rows": False})
    run.record("coverage", {"rows_used": len(rows)})
    random_draft(target).rename(run.draft)
    assert call("--run", run.root, "--num-prompts", 3, "--max-new-tokens", 8, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["prompts"] == 3
    assert result["tokens"] == 3 * 5  # red blue green gold <|done|>
    assert result["provenance"]["prompts"] == "held-out rows of the run"
    data.write_text(json.dumps(rows[0]) + "\n")
    assert call("--run", run.root, "--json") == 2
    assert "content differs" in capsys.readouterr().err


def refused(capsys: Capture, *arguments: object) -> str:
    """The one line on stderr of a call that is refused."""
    assert call(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.strip().splitlines()
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--acceptor", "dropmach"], "Did you mean 'dropmatch'?"),
        (["--acceptor", "dropmatch", "--p-drop", "1"], "--p-drop 1"),
        (["--acceptor", "dropmatch", "--heads", "0"], "--heads 0"),
        (["--acceptor", "dropmatch", "--criterion", "maybe"], "Known: full"),
        (["--acceptor", "greedy", "--heads", "5"], "--heads: only with --acceptor dropmatch"),
        (["--p-drop", "0.02"], "--p-drop: only with --acceptor dropmatch, not with greedy"),
        (["--acceptor", "greedy", "--temperature", "1"], "rejection"),
        (["--temperature", "-1"], "--temperature -1: give 0"),
        (["--temperature", "nan"], "--temperature nan: give 0"),
        (["--num-draft-tokens", "0"], "num-draft-tokens"),
        (["--max-new-tokens", "0"], "max-new-tokens"),
        (["--num-prompts", "0"], "num-prompts"),
        (["--name", "../x"], "--name"),
        (["--name", ""], "--name '': give the name"),
        (["--stop", ""], "--stop '': an empty text"),
        (["--dtype", "int8"], "--dtype int8: unknown"),
        (["--acceptor", "typical", "--knob", "delta=abc"], "error: --knob delta=abc: must be"),
        (["--acceptor", "mars", "--knob", "theta=2"], "error: --knob theta=2: must be between"),
        (["--acceptor", "cactus"], "give --knob delta=0.5"),
    ],
)
def test_options_out_of_range_are_refused_before_any_model_is_looked_for(
    options: list[str], said: str, tmp_path: Path, capsys: Capture
) -> None:
    nowhere = ["--run", tmp_path / "run", "--draft", tmp_path / "no", "--target", tmp_path / "no"]
    assert said in refused(capsys, *nowhere, *options)
    assert not (tmp_path / "run").exists()


def test_a_missing_draft_names_the_command_that_makes_it(tmp_path: Path, capsys: Capture) -> None:
    assert "vtrim train-draft" in refused(capsys, "--run", tmp_path)
    missing = ["--draft", tmp_path / "none", "--target", tmp_path]
    assert "no such draft" in refused(capsys, "--run", tmp_path, *missing)


def test_models_that_are_no_folder_and_lengths_that_fit_nowhere_are_named(
    tmp_path: Path, draft: Path, target: Path, capsys: Capture
) -> None:
    nowhere = tmp_path / "no"
    for option in ("--target", "--draft-model"):
        line = refused(
            capsys, "--run", tmp_path, "--drafter", "model", "--skip-layers", 0, option, nowhere
        )
        assert f"{option} {nowhere}: no such folder" in line
    long = on_words(tmp_path / "run", draft, target, "--num-draft-tokens", 4096)
    assert "--num-draft-tokens 4096: target and drafter have" in refused(capsys, *long)


def test_a_draft_that_is_a_file_is_refused(tmp_path: Path, draft: Path, capsys: Capture) -> None:
    file = draft / "model.safetensors"
    line = refused(capsys, "--run", tmp_path, "--draft", file, "--target", tmp_path)
    assert "not a folder; name the folder that holds" in line


def test_a_draft_of_another_vocabulary_than_the_run_s_is_told_in_one_note(
    tmp_path: Path, draft: Path, target: Path, capsys: Capture
) -> None:
    run = Run(tmp_path / "run")
    DraftVocab.of(range(9), 54).save(run.vocab)
    assert call(*on_words(run.root, draft, target)) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "not those of" in line]
    assert len(lines) == 1
    assert "holds 27 tokens" in lines[0]
    load_draft(draft).vocab.save(run.vocab)
    assert call(*on_words(run.root, draft, target)) == 0
    assert "not those of" not in capsys.readouterr().err


@pytest.mark.parametrize("cut", ["cut_body", "cut_header", "empty"])
def test_g19_a_cut_draft_is_refused_in_one_line(
    cut: str, tmp_path: Path, draft: Path, target: Path, capsys: Capture
) -> None:
    cut_file = target.parent / f"g19_draft_{cut}.safetensors"
    (draft / "model.safetensors").write_bytes(cut_file.read_bytes())
    line = refused(capsys, *on_words(tmp_path, draft, target))
    assert "incomplete" in line
    assert "model.safetensors" in line
    assert not (tmp_path / "eval").exists()


def test_a_draft_of_another_target_is_refused(
    tmp_path: Path, target: Path, random_draft: Callable[..., Path], capsys: Capture
) -> None:
    other = random_draft(target, provenance={"target": "acme", "tokenizer_fingerprint": "x"})
    line = refused(capsys, *on_words(tmp_path, other, target))
    assert "trained for acme" in line
    assert str(target) in line


def test_names_with_brackets_are_printed_as_they_are(
    tmp_path: Path, draft: Path, target: Path, capsys: Capture
) -> None:
    odd = tmp_path / "[bold]"
    assert call(*on_words(odd, draft, target)) == 0
    assert "[bold]/eval/greedy.json" in capsys.readouterr().out.replace("\n", "")
