from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from vtrim.artifacts import Run, write_json
from vtrim.trimming.coverage import Coverage
from vtrim.vocab import DraftVocab

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
}
Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The config.json of Llama-3.1-8B, as far as a draft needs it."""
    path = tmp_path / "llama" / "config.json"
    write_json(path, LLAMA)
    return path


def test_a_config_file_gives_the_cost_to_the_unit(config: Path, vtrim: Vtrim) -> None:
    code, out, err = vtrim("flops", config, "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert printed["components"] == {
        "fc": 100_663_296,
        "attention": 134_217_728,
        "mlp": 352_321_536,
        "lm_head": 1_050_673_152,
    }
    assert (printed["total"], printed["draft_vocab_size"]) == (1_637_875_712, 128256)
    assert printed["lm_head_share"] == pytest.approx(0.6415, abs=5e-5)


def test_a_folder_and_the_run_are_read_like_the_file(
    config: Path, tmp_path: Path, vtrim: Vtrim
) -> None:
    write_json(Run(tmp_path / "run").target_config, LLAMA)
    by_folder = json.loads(vtrim("flops", config.parent, "--json")[1])
    by_run = json.loads(vtrim("flops", "--run", tmp_path / "run", "--json")[1])
    assert by_folder["total"] == by_run["total"] == 1_637_875_712


def test_a_smaller_head_is_compared_with_the_full_one(config: Path, vtrim: Vtrim) -> None:
    printed = json.loads(vtrim("flops", config, "--draft-vocab-size", 32000, "--json")[1])
    assert printed["flops_reduction"] == pytest.approx(0.4814, abs=5e-5)
    code, out, _ = vtrim("flops", config, "--draft-vocab-size", 32000)
    assert code == 0
    assert "lm head" in out
    assert "48.14% fewer FLOPs than with all 128,256 rows (1,637,875,712)." in out


def test_the_runs_own_vocabulary_is_shown_beside_the_whole_head(
    config: Path, tmp_path: Path, vtrim: Vtrim
) -> None:
    run = Run(tmp_path / "run")
    write_json(run.target_config, LLAMA)
    DraftVocab.of(range(32000), 128256).save(run.vocab, {})
    printed = json.loads(vtrim("flops", "--run", run.root, "--json")[1])
    assert (printed["draft_vocab_size"], printed["full_total"]) == (32000, 1_637_875_712)
    assert printed["full_components"]["lm_head"] == 1_050_673_152
    out = vtrim("flops", "--run", run.root)[1]
    for shown in ("32,000 rows in the LM head", "FLOPs, 128,256", "1,050,673,152", "48.14%"):
        assert shown in out, shown
    # what was asked for goes first, and a model that was named is not the run's
    asked = json.loads(vtrim("flops", "--run", run.root, "-k", 500, "--json")[1])
    assert asked["draft_vocab_size"] == 500
    named = json.loads(vtrim("flops", config, "--run", run.root, "--json")[1])
    assert named["draft_vocab_size"] == 128256


def test_a_vocabulary_of_another_target_is_not_the_runs(tmp_path: Path, vtrim: Vtrim) -> None:
    run = Run(tmp_path / "run")
    write_json(run.target_config, LLAMA)
    DraftVocab.of(range(10), 64).save(run.vocab, {})
    printed = json.loads(vtrim("flops", "--run", run.root, "--json")[1])
    assert printed["draft_vocab_size"] == 128256


def test_the_times_of_this_machine_are_shown_and_left_in_the_run(
    tmp_path: Path, data: Path, vtrim: Vtrim
) -> None:
    target, run = data / "model" / "stories260k", Run(tmp_path / "run")
    options = ("--measure", "--repeats", 1, "--context", 8, "--num-draft-tokens", 2, "-k", 100)
    code, out, err = vtrim("flops", target, "--run", run.root, *options)
    assert code == 0, err
    for shown in (
        "Verification",
        "mean over a chain of 2",
        "saved, measured",
        "FLOPs here over a chain",
        "rows; the line",
    ):
        assert shown in out, shown
    assert "step_times.json written" in err
    measured = json.loads(run.step_times.read_text())
    assert [row["tokens"] for row in measured["verify"]] == [1, 2, 3]
    assert [row["k"] for row in measured["draft"]] == [32, 64, 100, 128, 256, 512]
    assert (measured["threads"], measured["context"]) == (1, 8)
    assert run.step("flops")["draft_fit"] == measured["draft_fit"]
    printed = json.loads(vtrim("flops", target, "--run", run.root, *options, "--json")[1])
    assert set(printed["measured"]) == set(measured)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--repeats", "0"], "--repeats 0: must be at least 1"),
        (["--num-draft-tokens", "0"], "--num-draft-tokens 0: must be at least 1"),
        (["--threads", "0"], "--threads 0: must be at least 1"),
        (["--context", "100000"], "more than the target's"),
        (["--dtype", "fp8"], "--dtype fp8: unknown"),
    ],
)
def test_a_measurement_that_cannot_be_made_is_refused(
    tmp_path: Path, data: Path, vtrim: Vtrim, options: list[str], message: str
) -> None:
    target = data / "model" / "stories260k"
    code, out, err = vtrim("flops", target, "--run", tmp_path / "run", "--measure", *options)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "run" / "step_times.json").exists()


@pytest.mark.parametrize(
    "option",
    [
        ["--repeats", "3"],
        ["--threads", "2"],
        ["--num-draft-tokens", "5"],
        ["--dtype", "fp32"],
        ["--device", "cpu"],
    ],
)
def test_an_option_of_a_measurement_is_refused_without_one(
    config: Path, vtrim: Vtrim, option: list[str]
) -> None:
    code, out, err = vtrim("flops", config, *option)
    assert (code, out) == (2, "")
    assert err == f"error: {option[0]}: only --measure uses it. Leave it out, or add --measure.\n"


@pytest.mark.parametrize("options", [[], ["--measure"]])
def test_a_run_counted_with_a_tokenizer_alone_is_not_taken_for_the_demo_target(
    tmp_path: Path, vtrim: Vtrim, options: list[str]
) -> None:
    run = Run(tmp_path / "run")
    run.update(target={"name": None, "tokenizer_fingerprint": "t", "vocab_size": 54})
    code, out, err = vtrim("flops", "--run", run.root, *options)
    assert (code, out) == (2, "")
    assert "counted with a tokenizer alone" in err
    assert "Name one, as in `vtrim flops MODEL`" in err
    assert not run.step_times.exists()


def test_the_options_change_what_is_counted(config: Path, vtrim: Vtrim) -> None:
    arguments = ("--recursive", "--context", 1000, "--tokens", 2, "--json")
    printed = json.loads(vtrim("flops", config, *arguments)[1])
    assert printed["components"]["fc"] == 0
    assert printed["components"]["attention_scores"] == 2 * 4 * 4096 * 1000
    assert printed["bytes"]["attention_scores"] == 2 * 2 * 8 * 128 * 1000
    assert printed["total"] == sum(printed["components"].values())


def test_dimensions_that_a_config_leaves_to_its_model_class_are_filled_in(
    tmp_path: Path, vtrim: Vtrim
) -> None:
    # Gemma 3 writes neither heads nor vocabulary into its text part
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gemma3_text", **text}))
    code, out, err = vtrim("flops", path, "--json")
    assert code == 0, err
    assert json.loads(out)["target_vocab_size"] == 262208


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--draft-vocab-size", "0"], "must lie between 1 and the 128256 rows"),
        (["--draft-vocab-size", "128257"], "must lie between 1 and the 128256 rows"),
        (["--context", "-1"], "--context -1: must be at least 0"),
        (["--tokens", "0"], "--tokens 0: must be at least 1"),
    ],
)
def test_an_option_out_of_range_is_refused(
    config: Path, vtrim: Vtrim, options: list[str], message: str
) -> None:
    code, out, err = vtrim("flops", config, *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"hidden_size": 64}', "has no 'num_attention_heads'"),
        ('{"hidden_size": ', "not a whole JSON file"),
        ("[1]", "a JSON object is expected"),
    ],
)
def test_a_file_that_is_no_config_is_refused_by_name(
    tmp_path: Path, vtrim: Vtrim, content: str, message: str
) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    code, out, err = vtrim("flops", path)
    assert (code, out) == (2, "")
    assert str(path) in err
    assert message in err


def test_a_missing_config_file_is_refused(tmp_path: Path, vtrim: Vtrim) -> None:
    code, _, err = vtrim("flops", tmp_path / "config.json")
    assert code == 2
    assert "no such file" in err


def test_a_config_file_needs_neither_torch_nor_transformers(config: Path) -> None:
    script = (
        "import sys\n"
        "from vtrim.cli.main import main\n"
        "try:\n"
        f"    main(['flops', {str(config)!r}])\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code, ended.code\n"
        "heavy = {'torch', 'transformers', 'deepspeed', 'optuna'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_runs_own_target_is_timed_and_its_search_counts_with_that(
    tmp_path: Path, data: Path, vtrim: Vtrim
) -> None:
    from vtrim.models.hub import load_config

    target, run = data / "model" / "stories260k", Run(tmp_path / "run")
    write_json(run.target_config, load_config(str(target)))
    run.update(target={"name": str(target), "tokenizer_fingerprint": "t", "stop_ids": []})
    counts = np.arange(512, dtype=np.int64)
    Coverage(
        counts=counts,
        heldout_counts=counts // 9,
        target_vocab_size=512,
        tokenizer_length=512,
        tokenizer_fingerprint="t",
        data_fingerprint="d",
    ).save(run.coverage)
    search = ("search", "--run", run.root, "--objective", "throughput", "--json")
    code, _, err = vtrim(*search)
    assert code == 2
    assert "run `vtrim flops --measure` first" in err
    assert vtrim("flops", "--run", run.root, "--measure", "--repeats", 1, "--context", 8)[0] == 0
    code, out, err = vtrim(*search)
    assert code == 0, err
    fit = json.loads(run.step_times.read_text())["draft_fit"]
    assert json.loads(out)["throughput"]["times"]["draft_base_s"] == fit["base_s"]


def test_times_that_spread_too_far_are_said() -> None:
    from vtrim.cli.flops_measure import unsteady_times

    steady = {"median_s": 1.0, "q25_s": 0.95, "q75_s": 1.1}
    assert unsteady_times({"verify": [steady], "draft": [steady]}) is None
    wild = {"median_s": 1.0, "q25_s": 0.9, "q75_s": 1.3}
    message = unsteady_times({"verify": [steady], "draft": [steady, wild]})
    assert message is not None
    assert "spreads over 40% of their median" in message
