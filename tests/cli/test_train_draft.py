"""What ``vtrim train-draft`` refuses, in one line and before any model is loaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from vtrim.artifacts import Run, write_json
from vtrim.cli.main import main
from vtrim.vocab import DraftVocab


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder that coverage and search have been through, for a target that is not there."""
    run = Run(tmp_path / "run")
    target = {"name": "nowhere", "vocab_size": 32, "tokenizer_fingerprint": "sha256:0"}
    data = {"files": [], "rows_used": 1, "max_length": None}
    run.update(target=target, data=data)
    run.record("coverage", {"data_fingerprint": "sha256:1"})
    write_json(run.target_config, {})
    DraftVocab.of(range(8), 32).save(run.vocab)
    return run.root


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one error line of a refused call."""
    loaded = "transformers" in sys.modules
    with pytest.raises(SystemExit) as stop:
        main(["train-draft", *arguments])
    output = capsys.readouterr()
    assert stop.value.code == 2
    assert output.out == ""
    assert loaded or "transformers" not in sys.modules, "a model library was loaded first"
    lines = output.err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--lr", "nan"], ["--lr", "nan"]),
        (["--lr", "0"], ["--lr", "0"]),
        (["--zero-stage", "4"], ["zero-stage", "4", "0", "3"]),
        (["--ttt-steps", "0"], ["ttt-steps", "1", "9"]),
        (["--mask-alignment", "peer"], ["mask-alignment", "exact", "eagle"]),
        (["--dtype", "fp16"], ["dtype", "bf16", "fp32"]),
        (["--aux-layers", "1,2"], ["aux-layers", "three"]),
        (["--max-minutes", "-1"], ["max-minutes", "-1"]),
        (["--vocab", "missing.safetensors"], ["missing.safetensors", "no such file"]),
        (["--draft-config", "missing.json"], ["missing.json", "no such file"]),
        (["--no-such-option"], ["--no-such-option"]),
    ],
)
def test_a_bad_option_is_refused_with_its_name(
    run: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: list[str]
) -> None:
    line = refused(capsys, "--run", str(run), *options)
    assert all(word in line for word in words), line


def test_a_run_without_coverage_names_the_command_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "vtrim coverage" in refused(capsys, "--run", str(tmp_path / "empty"))


def test_a_run_without_a_vocabulary_names_the_command_to_run(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "vocab.safetensors").unlink()
    assert "vtrim search" in refused(capsys, "--run", str(run))


def test_a_vocabulary_of_another_target_is_refused_with_both_sizes(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.safetensors"
    DraftVocab.of(range(8), 64).save(other)
    line = refused(capsys, "--run", str(run), "--vocab", str(other))
    assert "32" in line
    assert "64" in line


def test_a_vocabulary_of_another_tokenizer_is_refused_with_both_fingerprints(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.safetensors"
    DraftVocab.of(range(8), 32).save(other, {"tokenizer_fingerprint": "sha256:9"})
    line = refused(capsys, "--run", str(run), "--vocab", str(other))
    assert "tokenizer behind the vocabulary" in line
    assert "sha256:0" in line
    assert "sha256:9" in line
    assert str(other) in line


def test_a_deepspeed_config_that_contradicts_itself_is_refused_with_its_numbers(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "ds.json"
    config.write_text(
        json.dumps(
            {
                "train_batch_size": 64,
                "train_micro_batch_size_per_gpu": 4,
                "gradient_accumulation_steps": 8,
            }
        )
    )
    line = refused(capsys, "--run", str(run), "--deepspeed-config", str(config))
    assert all(number in line for number in ("64", "4", "8", "32", str(config))), line


def test_a_draft_config_that_changes_the_hidden_size_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "draft.json"
    path.write_text('{"hidden_size": 16}')
    assert "embedding" in refused(capsys, "--run", str(run), "--draft-config", str(path))


@pytest.mark.parametrize("options", [[], ["--last-turn-only"], ["--max-length", "24"]])
def test_training_learns_the_tokens_that_coverage_counted(
    tiny_target: Path,
    tiny_chat: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
) -> None:
    from vtrim.cli.train_call import TrainCall
    from vtrim.cli.train_data import training_samples

    folder = tmp_path / "run"
    counting = ["--target", str(tiny_target), "--run", str(folder), "--json", *options]
    with pytest.raises(SystemExit) as stop:
        main(["coverage", str(tiny_chat), *counting])
    assert stop.value.code in (None, 0)
    counted = json.loads(capsys.readouterr().out)["tokens"]
    call = TrainCall(
        settings={},
        run=Run(folder),
        target=None,
        vocab=None,
        aux_layers=None,
        draft_config=None,
        deepspeed_config=None,
        restart=False,
        device=None,
        offline=True,
    )
    told: list[str] = []
    samples = training_samples(call, told.append)
    assert sum(int(sample.mask.sum()) for sample in samples) == counted
    assert all(sample.ids.base is None and sample.mask.base is None for sample in samples)
    assert {sample.source for sample in samples} == {"chat"}
    assert call.resolved.max_length == (24 if "--max-length" in options else 2048)
    assert not [line for line in told if "--max-length" in line]
