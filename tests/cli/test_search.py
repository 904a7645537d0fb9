from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from vtrim.artifacts import Run, fingerprint_json, read_json, write_json
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
TOKENS, STOP = 54, 51
TIES = {0: 40, 5: 25, 6: 15, 20: 10, 21: 4, 22: 2, 23: 2, STOP: 2}


def make_run(
    folder: Path,
    counts: dict[int, int] | None = None,
    *,
    stop_ids: tuple[int, ...] = (),
    fingerprint: str = "sha256:words",
    target: str | None = "toy",
) -> Run:
    """A run folder as `vtrim coverage` leaves it; target None: counted with a tokenizer alone."""
    rows = 64 if target else TOKENS
    array = np.zeros(rows, dtype=np.int64)
    for token, count in (counts or TIES).items():
        array[token] = count
    heldout = array // 5
    Coverage(
        counts=array,
        heldout_counts=heldout,
        target_vocab_size=rows,
        tokenizer_length=TOKENS,
        tokenizer_fingerprint=fingerprint,
        data_fingerprint="sha256:data",
        stop_ids=stop_ids,
        rows_used=10,
    ).save(folder / "coverage.npz")
    run = Run(folder)
    entry = {
        "name": target,
        "revision": None,
        "tokenizer_fingerprint": fingerprint,
        "vocab_size": rows,
        "tokenizer_length": TOKENS,
        "stop_ids": list(stop_ids),
        "trust_remote_code": False,
    }
    run.update(target=entry)
    run.record("coverage", {"tokens": int(array.sum())})
    if target:
        write_json(run.target_config, CONFIG)
    return run


Vtrim = Callable[..., tuple[int, str, str]]


def test_a_search_writes_the_vocabulary_every_trial_and_the_step(
    tmp_path: Path, vtrim: Vtrim
) -> None:
    run = make_run(tmp_path, stop_ids=(STOP,))
    code, out, err = vtrim("search", "--run", tmp_path, "--json")
    all_tried = "every size from 1 to 54 is tried: 54, fewer than the trials asked for.\n"
    assert (code, err) == (0, all_tried)
    printed = json.loads(out)
    vocab = DraftVocab.load(run.vocab)
    assert printed["k"] == vocab.size == 8
    assert STOP in vocab.ids
    assert (vocab.target_vocab_size, int(vocab.ids.max()) < TOKENS) == (64, True)
    saved = json.loads(run.search.read_text())
    assert len(saved["trial_log"]) == 54  # every size there is
    assert saved["k"] in saved["curve"]["k"]
    assert saved["vocab_fingerprint"] == vocab.fingerprint
    assert saved["coverage_fingerprint"] == Coverage.load(run.coverage).fingerprint
    step = run.step("search")
    assert (step["k"], step["coverage"], step["alpha"], step["seed"]) == (8, 1.0, 0.6, 42)
    assert (step["vocab_fingerprint"], "trial_log" in step) == (vocab.fingerprint, False)
    with safe_open(run.vocab, framework="numpy") as file:
        metadata = file.metadata()
    assert metadata["tokenizer_fingerprint"] == "sha256:words"
    assert metadata["coverage_fingerprint"] == saved["coverage_fingerprint"]


def test_json_holds_the_promised_fields(tmp_path: Path, vtrim: Vtrim) -> None:
    make_run(tmp_path, stop_ids=(STOP,))
    printed = json.loads(vtrim("search", "--run", tmp_path, "--json", "--keep", 30)[1])
    promised = {
        "k",
        "sampler",
        "coverage",
        "flops_reduction",
        "utility",
        "exact",
        "regret",
        "alpha",
        "cmin",
        "trials",
        "forced",
        "artifact",
    }
    assert promised <= set(printed)
    assert {"k", "utility"} <= set(printed["exact"])
    assert printed["forced"] == [STOP, 30]
    assert printed["artifact"] == str(tmp_path / "vocab.safetensors")
    assert (printed["exact"]["k"], printed["regret"], printed["filled"]) == (9, 0, 0)
    assert printed["utility"] == pytest.approx(0.6 + 0.4 * 128 * (64 - 9) / 79872)


def test_the_table_shows_both_samplers_and_marks_the_written_one(
    tmp_path: Path, vtrim: Vtrim
) -> None:
    make_run(tmp_path, stop_ids=(STOP,))
    code, out, err = vtrim("search", "--run", tmp_path, "--sampler", "exact", "--preset", "paper")
    assert code == 0
    for shown in ("tpe", "exact *", "regret of TPE", "plateau", "79,872", "forced: 1 (ids 51)"):
        assert shown in out, shown
    assert "vocab.safetensors written: 8 ids (sampler exact)" in err


def test_the_floor_is_named_where_it_decides(tmp_path: Path, vtrim: Vtrim) -> None:
    make_run(tmp_path)
    _, out, _ = vtrim("search", "--run", tmp_path, "--alpha", "0", "--cmin", "0.95")
    assert "the floor cmin decides: by utility alone the best k is 1" in out


def test_two_searches_with_one_seed_write_the_same_bytes(tmp_path: Path, vtrim: Vtrim) -> None:
    run = make_run(tmp_path)
    arguments = ("search", "--run", tmp_path, "--trials", "5", "--seed", "7", "--cmin", "0.5")
    assert vtrim(*arguments)[0] == 0
    first = (run.vocab.read_bytes(), run.search.read_bytes())
    assert vtrim(*arguments)[0] == 0
    assert (run.vocab.read_bytes(), run.search.read_bytes()) == first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--alpha", "1.5"], "--alpha 1.5: must lie in [0, 1]"),
        (["--alpha", "-0.1"], "--alpha -0.1: must lie in [0, 1]"),
        (["--alpha", "nan"], "--alpha nan: not a number"),
        (["--alpha", "much"], "--alpha much: not a number"),
        (["--cmin", "1.2"], "--cmin 1.2: must lie in [0, 1]"),
        (["--cmin", "95"], "a share between 0 and 1 is meant"),
        (["--kmin", "0"], "--kmin 0: must be at least 1"),
        (["--kmin", "10", "--kmax", "5"], "the range is empty"),
        (["--trials", "0"], "--trials 0: must be at least 1"),
        (["--trials", "many"], "--trials"),
        (["--sampler", "grid"], "Known: tpe, exact"),
        (["--preset", "fast"], "Known: default, paper"),
        (["--grid"], "--grid"),
    ],
)
def test_a_bad_option_stops_before_any_file_is_read(
    tmp_path: Path, vtrim: Vtrim, options: list[str], message: str
) -> None:
    code, out, err = vtrim("search", "--run", tmp_path / "nowhere", *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1


def bad_runs(folder: Path) -> dict[str, tuple[list[str], str]]:
    """Runs and options that do not fit, and what the error has to say."""
    make_run(folder / "infeasible", stop_ids=(STOP,))
    make_run(folder / "alone", target=None)
    cut = make_run(folder / "cut")
    cut.coverage.write_bytes(cut.coverage.read_bytes()[:500])
    mixed = make_run(folder / "mixed")
    mixed.update(target={**mixed.read()["target"], "tokenizer_fingerprint": "sha256:other"})
    (folder / "empty").mkdir()
    return {
        "infeasible": (["--kmax", "5"], "best coverage is 0.92 (k 5, 1 of them forced tokens)"),
        "alone": ([], "Name the model with --target"),
        "cut": ([], "coverage.npz: incomplete"),
        "mixed": ([], "tokenizer of another model than the coverage's"),
        "empty": ([], "Run `vtrim coverage` first"),
    }


@pytest.mark.parametrize("name", ["infeasible", "alone", "cut", "mixed", "empty"])
def test_a_run_that_cannot_be_searched_is_refused_in_one_line_and_nothing_is_written(
    tmp_path: Path, vtrim: Vtrim, name: str
) -> None:
    options, message = bad_runs(tmp_path)[name]
    code, out, err = vtrim("search", "--run", tmp_path / name, "--json", *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / name / "vocab.safetensors").exists()
    assert not (tmp_path / name / "search.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--kmax", "55"], "the tokenizer has 54 ids"),
        (["--keep", "54"], "--keep 54: not a token id"),
        (["--kmin", "60"], "the range is empty"),
        (["--kmax", "1", "--keep", "3", "--keep", "4"], "do not fit into --kmax 1"),
    ],
)
def test_an_option_that_does_not_fit_the_counts_is_refused(
    tmp_path: Path, vtrim: Vtrim, options: list[str], message: str
) -> None:
    make_run(tmp_path)
    code, out, err = vtrim("search", "--run", tmp_path, *options)
    assert (code, out) == (2, "")
    assert message in err


def test_counts_of_a_tokenizer_alone_are_searched_for_a_model_with_that_tokenizer(
    tmp_path: Path, inputs: Path, vtrim: Vtrim
) -> None:
    from vtrim.models.hub import load_tokenizer, tokenizer_fingerprint

    target = inputs / "target_chain"
    fingerprint = tokenizer_fingerprint(load_tokenizer(str(target)))
    run = make_run(tmp_path, fingerprint=fingerprint, target=None)
    code, out, err = vtrim("search", "--run", tmp_path, "--target", target, "--json")
    assert code == 0, err
    assert json.loads(out)["forced"] == [STOP]
    assert DraftVocab.load(run.vocab).target_vocab_size == 64
    entry: dict[str, Any] = run.read()["target"]
    assert (entry["name"], entry["vocab_size"], entry["stop_ids"]) == (str(target), 64, [STOP])
    assert entry["config_fingerprint"] == fingerprint_json(read_json(run.target_config))
    # the steps that follow, and a search without --target, find the model in the run
    code, again, err = vtrim("search", "--run", tmp_path, "--json")
    assert code == 0, err
    assert json.loads(again) == json.loads(out)


def test_a_model_with_another_tokenizer_is_refused(
    tmp_path: Path, inputs: Path, vtrim: Vtrim
) -> None:
    run = make_run(tmp_path)
    before = run.manifest.read_bytes()
    code, out, err = vtrim("search", "--run", tmp_path, "--target", inputs / "target_chain")
    assert (code, out) == (2, "")
    assert "tokenizer of another model than the coverage's" in err
    assert run.manifest.read_bytes() == before


def test_search_needs_neither_torch_nor_transformers(tmp_path: Path) -> None:
    make_run(tmp_path)
    script = (
        "import sys\n"
        "from vtrim.cli.main import main\n"
        "try:\n"
        f"    main(['search', '--run', {str(tmp_path)!r}, '--trials', '3', '--json'])\n"
        "except SystemExit as ended:\n"
        "    assert not ended.code, ended.code\n"
        "heavy = {'torch', 'transformers', 'deepspeed', 'datasets'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["trials"] == 3


def test_the_tokens_at_the_edge_and_those_that_forcing_moves_are_named(
    tmp_path: Path, vtrim: Vtrim
) -> None:
    run = make_run(tmp_path, stop_ids=(40,))
    write_json(run.token_texts, {"20": " [b]x", "21": "\u202e", "40": "<end>"})
    options = ("search", "--run", tmp_path, "--kmax", 5, "--cmin", 0, "--alpha", 1)
    code, out, _ = vtrim(*options)
    assert code == 0
    assert 'at the edge: kept 5 (25), 6 (15), " [b]x" (10) | left out "\\u202e" (4), 22 (2)' in out
    assert 'forced in: "<end>" (0); pushed out: "\\u202e" (4) (4 % of the tokens)' in out
    code, out, _ = vtrim(*options, "--json")
    found = json.loads(out)
    assert found["boundary"]["outside"][0] == {"token": 21, "count": 4}
    assert found["boundary"]["inside"][-1] == {"token": 20, "count": 10}
    effect = found["forced_effect"]
    assert (effect["admitted"], effect["pushed_out"], effect["lost"]) == (
        [{"token": 40, "count": 0}],
        [{"token": 21, "count": 4}],
        pytest.approx(0.04),
    )


def hold_out(run: Run, heldout: dict[int, int], rows: int) -> None:
    """Counts of which some are held out."""
    array = np.zeros(64, dtype=np.int64)
    for token, count in heldout.items():
        array[token] = count
    found = Coverage.load(run.coverage)
    replace(found, heldout_counts=array, rows_heldout=rows).save(run.coverage)


def test_a_floor_missed_on_held_out_rows_says_which_size_holds_it(
    tmp_path: Path, vtrim: Vtrim
) -> None:
    run = make_run(tmp_path)
    hold_out(run, {0: 5, 21: 4}, 9)  # without them 21 counts 0: the others come first
    err = vtrim("search", "--run", tmp_path, "--cmin", "0.8", "--sampler", "exact")[2]
    assert "on held-out conversations coverage is 55.6 %, below --cmin 80 %" in err
    # 7 other counted ids, then those of no count in ascending order: 17 stand before id 21
    assert "(k 25 would hold it there)" in err
    assert "Only 9 conversations held out: read this figure with care." in err


def test_few_held_out_rows_are_warned_of_and_many_are_not(tmp_path: Path, vtrim: Vtrim) -> None:
    run = make_run(tmp_path)
    hold_out(run, {0: 5}, 29)
    assert "only 29 conversations held out" in vtrim("search", "--run", tmp_path)[2]
    hold_out(run, {0: 5}, 30)
    _, out, err = vtrim("search", "--run", tmp_path, "--json")
    assert "held out" not in err
    assert json.loads(out)["heldout_k"] == 1


def test_the_shard_still_to_count_is_named(tmp_path: Path, vtrim: Vtrim) -> None:
    run = make_run(tmp_path)
    run.coverage.rename(tmp_path / "coverage.1-of-3.npz")
    code, out, err = vtrim("search", "--run", tmp_path)
    assert (code, out) == (2, "")
    assert "shard 2/3, 3/3 is missing. Run `vtrim coverage` with --shard 2/3." in err


def test_a_percentage_is_told_from_a_share(tmp_path: Path, vtrim: Vtrim) -> None:
    for option in ("--alpha", "--cmin"):
        err = vtrim("search", "--run", tmp_path, option, "60")[2]
        assert f"For 60 % type {option} 0.6." in err
