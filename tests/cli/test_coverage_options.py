"""What is read and how, from the options to run.json to training."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vtrim.artifacts import Run, read_json
from vtrim.cli.coverage_model import needs_torch
from vtrim.cli.train_call import TrainCall
from vtrim.cli.train_data import training_samples
from vtrim.trimming.coverage import Coverage

Row = dict[str, Any]


def messages(*turns: str, **more: Any) -> Row:
    roles = ["user", "assistant"] * len(turns)
    named = zip(roles, turns, strict=False)
    return {"messages": [{"role": role, "content": text} for role, text in named], **more}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """write(name, rows) -> a JSONL file."""

    def make(name: str, rows: list[Row]) -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return make


ASKED = [{"q": "red", "a": "cat dog"}, {"q": "blue", "a": "fox"}, {"q": "red", "a": None}]


def test_other_columns_are_named_by_map(
    cover: Callable, write: Callable, inputs: Path, tmp_path: Path
) -> None:
    data, tokenizer = write("qa.jsonl", ASKED), ["--tokenizer", inputs / "tok_words"]
    found = cover(tmp_path / "run", data, *tokenizer, "--map", "user=q,assistant=a", "--json").json
    assert (found["tokens"], found["rows_by_kind"]) == (5, {"mapped": 2})
    assert found["rows_skipped"] == {"missing column": 1}
    again = cover(tmp_path / "two", data, *tokenizer, "--map", "user=q", "--map", "assistant=a")
    assert again.code == 0
    read = Run(tmp_path / "run").read()["data"]["read"]
    assert read["columns"] == {"user": "q", "assistant": "a"}
    assert read["shard"] is None


def test_sources_are_told_apart_by_their_column(
    cover: Callable, write: Callable, inputs: Path, tmp_path: Path
) -> None:
    rows = [messages("red", "cat cat dog", domain="[b]"), messages("red", "fox", domain="a")]
    data = write("domains.jsonl", rows)
    options = ["--tokenizer", inputs / "tok_words", "--source-column", "domain"]
    outcome = cover(tmp_path / "run", data, *options, "--json")
    assert {name: one["tokens"] for name, one in outcome.json["sources"].items()} == {
        "[b]": 4,
        "a": 2,
    }
    k = str(outcome.json["k_for"]["0.99"])
    assert outcome.json["sources"]["a"]["coverage"][k] == 1.0
    table = cover(tmp_path / "run", data, *options).out
    assert "Coverage by source" in table
    assert "[b]" in table


def test_a_source_cannot_move_the_cursor(
    cover: Callable, write: Callable, inputs: Path, tmp_path: Path
) -> None:
    rows = [messages("red", "cat", source="\x1b[31ma\nb"), messages("red", "fox", source="c")]
    data = write("domains.jsonl", rows)
    table = cover(tmp_path / "run", data, "--tokenizer", inputs / "tok_words").out
    assert "\x1b" not in table
    assert "\u241b[31ma b" in table


def test_what_is_empty_or_left_out_is_said(
    cover: Callable, write: Callable, inputs: Path, tmp_path: Path
) -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    rows = [messages("red", "cat dog"), messages([image], ""), messages("red", "")]
    data = write("empty.jsonl", rows)
    outcome = cover(tmp_path / "run", data, "--tokenizer", inputs / "tok_words")
    assert "3 rows: messages 3\n" in outcome.err
    assert "2 replies are empty: of each, only the end of turn is counted." in outcome.err
    assert "1 parts of turns hold no text (images and the like)" in outcome.err
    assert "conversations used" in outcome.out


def test_generated_text_is_counted_apart(
    cover: Callable, write: Callable, inputs: Path, tmp_path: Path
) -> None:
    data = write("data.jsonl", [messages("red", "cat dog"), messages("blue", "cat")])
    wrote = write("wrote.jsonl", [messages("red", "cat owl"), {"messages": "?"}])
    options = [data, "--tokenizer", inputs / "tok_words", "--generated", wrote]
    outcome = cover(tmp_path / "run", *options, "--json")
    assert outcome.json["tokens"] == 5
    assert (outcome.json["generated"]["rows"], outcome.json["generated"]["tokens"]) == (1, 3)
    curve = Coverage.load(tmp_path / "run" / "coverage.npz").curve()
    assert outcome.json["generated"]["coverage"]["2"] == pytest.approx(2 / 3)
    assert curve.coverage(2) == pytest.approx(4 / 5)
    assert outcome.json["rows_skipped"] == {}
    assert "generated rows skipped, no messages: 1" in outcome.err
    assert "generated C(k)" in cover(tmp_path / "run", *options).out
    data_entry = Run(tmp_path / "run").read()["data"]
    assert [Path(file["path"]).name for file in data_entry["generated"]] == ["wrote.jsonl"]


def test_generated_text_without_a_reply_is_refused(
    cover: Callable, write: Callable, inputs: Path, tmp_path: Path
) -> None:
    data = write("data.jsonl", [messages("red", "cat dog")])
    wrote = write("wrote.jsonl", [messages("red")])
    outcome = cover(
        tmp_path / "run", data, "--tokenizer", inputs / "tok_words", "--generated", wrote
    )
    assert "--generated: no assistant tokens in" in outcome.error


def test_texts_of_counted_and_forced_tokens_are_kept_beside_the_target(
    cover: Callable, write: Callable, inputs: Path, tmp_path: Path
) -> None:
    data = write("data.jsonl", [messages("red", "yes no")])
    run = Run(tmp_path / "run")
    cover(run.root, data, "--tokenizer", inputs / "tok_meta")
    texts = read_json(run.token_texts)
    counted = Coverage.load(run.coverage)
    assert set(texts) == {str(i) for i in {*np.flatnonzero(counted.counts), *counted.stop_ids}}
    assert " yes" in texts.values() or "yes" in texts.values()
    assert list(map(int, texts)) == sorted(map(int, texts))


def test_the_space_that_a_piece_begins_with_is_part_of_its_text(inputs: Path) -> None:
    from vtrim.cli.coverage_record import token_texts
    from vtrim.models.hub import load_tokenizer

    tokenizer = load_tokenizer(str(inputs / "tok_meta"))
    pieces = tokenizer.get_vocab()
    spaced = pieces["\u2581yes"]
    assert token_texts(tokenizer, [spaced, pieces["yes"]]) == {
        str(pieces["yes"]): "yes",
        str(spaced): " yes",
    }


def _training_counts(run: Run, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Reply tokens of the samples that train-draft makes of a run."""
    call = TrainCall(
        settings={}, run=run, target=None, vocab="full", aux_layers=None, draft_config=None,
        deepspeed_config=None, restart=False, device=None, offline=False,
    )  # fmt: skip
    counts = np.zeros(size, dtype=np.int64)
    for sample in training_samples(call, lambda _line: None):
        np.add.at(counts, sample.ids[sample.mask], 1)
    return counts


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--map", "user=q,assistant=a"],
        ["--last-turn-only"],
        ["--max-length", "12"],
        ["--split", "b"],
        ["--split", "a", "--last-turn-only", "--max-length", "20"],
        ["--skip-bad-rows"],
    ],
    ids=" ".join,
)
def test_training_reads_and_masks_what_coverage_counted(
    cover: Callable, write: Callable, tiny_target: Path, tmp_path: Path, options: list[str]
) -> None:
    run = Run(tmp_path / "run")
    outcome = cover(run.root, _data(write, tmp_path, options), "--target", tiny_target, *options)
    assert outcome.code == 0, outcome.err
    counted = Coverage.load(run.coverage)
    assert np.array_equal(_training_counts(run, counted.target_vocab_size), counted.counts)
    data = run.read()["data"]
    assert data["last_turn_only"] is ("--last-turn-only" in options)
    assert data["max_length"] == next((int(o) for o in options if o.isdecimal()), None)


def _data(write: Callable, folder: Path, options: list[str]) -> Path:
    """Data that the options make a difference for."""
    if "--map" in options:
        return write("qa.jsonl", ASKED)
    rows = [messages("red", "cat dog", "blue", "fox owl bee one"), messages("gold", "cat " * 9)]
    if "--split" in options:
        from datasets import Dataset, DatasetDict

        splits = {"a": Dataset.from_list(rows), "b": Dataset.from_list(rows[1:])}
        DatasetDict(splits).save_to_disk(str(folder / "saved"))
        return folder / "saved"
    path: Path = write("rows.jsonl", rows)
    if "--skip-bad-rows" in options:
        path.write_text("{cut\n" + path.read_text())
    return path


def test_a_preview_shows_and_counts_nothing(
    cover: Callable, write: Callable, inputs: Path, tmp_path: Path
) -> None:
    data = write("data.jsonl", [messages("red", "cat"), messages("red", "owl")])
    options = [data, "--tokenizer", inputs / "tok_words"]
    outcome = cover(tmp_path / "run", *options, "--preview", 1, "--shard", "2/2")
    assert outcome.code == 0
    assert "⟦cat<|done|>⟧" in outcome.out
    assert "owl" not in outcome.out
    assert "nothing was counted" in outcome.err
    page = tmp_path / "page.html"
    outcome = cover(tmp_path / "run", *options, "--preview-html", page, "--last-turn-only")
    assert (outcome.code, outcome.out) == (0, "")
    assert "owl" in page.read_text()
    assert not (tmp_path / "run").exists()
    assert "leave one out" in cover(tmp_path, *options, "--preview", 1, "--json").error


def test_both_encoders_make_the_same_bytes(cover: Callable, data: Path, tmp_path: Path) -> None:
    pytest.importorskip(
        "gigatoken", reason="gigatoken is not installed (pip install 'vtrim[fast]')"
    )
    counting = [
        data / "function_calling_messages.jsonl",
        "--target",
        data / "model" / "stories260k",
    ]
    runs = {}
    for name in ("tokenizers", "gigatoken"):
        outcome = cover(tmp_path / name, *counting, "--encoder", name, "--json")
        assert outcome.json["encoder"] == name
        runs[name] = (tmp_path / name / "coverage.npz").read_bytes()
    assert runs["tokenizers"] == runs["gigatoken"]


def _cut(name: str, body: bytes) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / name).write_bytes(body)
        return str(folder / name)

    return make


def _zstd(folder: Path) -> str:
    import pyarrow as pa

    whole = pa.compress(json.dumps(messages("red", "cat")).encode() * 99, "zstd", asbytes=True)
    return _cut("a.jsonl.zst", whole[:-9])(folder)


def _parquet(folder: Path) -> str:
    import pyarrow as pa
    from pyarrow import parquet

    path = folder / "a.parquet"
    parquet.write_table(pa.table({"prompt": ["red"] * 99, "completion": ["cat"] * 99}), path)
    path.write_bytes(path.read_bytes()[:-20])
    return str(path)


def _plain(*rows: Row) -> Callable[[Path], str]:
    body = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return _cut("a.jsonl", body)


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (_cut("a.jsonl.gz", gzip.compress(b"x" * 999)[:-9]), [], "a.jsonl.gz:1"),
        (_zstd, [], "a.jsonl.zst:1"),
        (_parquet, [], "not a whole parquet file"),
        (str, [], "a folder"),
        (lambda folder: f"{folder}/*.nothing", [], "matches no file"),
        (_plain(ASKED[0]), [], "no row can be used"),
        (_plain(ASKED[0]), ["--map", "user=q,assistant=b"], "the columns are q, a"),
        (_plain(ASKED[0]), ["--map", "user"], "--map user"),
        (_plain(ASKED[0]), ["--split", "train"], "--split train"),
        (_plain(messages("red", "cat")), ["--shard", "5/4"], "--shard 5/4"),
        (_plain(messages("red", "cat")), ["--shard", "0/4"], "--shard 0/4"),
        (_plain(messages("red", "cat")), ["--shard", "1"], "--shard 1"),
        (_plain(messages("red", "cat")), ["--processes", "0"], "--processes"),
        (_plain(messages("red", "cat")), ["--preview", "0"], "--preview"),
        (_plain(messages("red", "cat")), ["--engine", "spark"], "local, ray"),
        (_plain(messages("red", "cat")), ["--encoder", "bpe"], "tokenizers, gigatoken"),
        (_plain(messages("red", "cat")), ["--generated", "nowhere.jsonl"], "nowhere.jsonl"),
        (_plain(messages("red", "cat")), ["--merge"], "--merge adds up"),
    ],
)
def test_bad_data_and_options_are_one_line_that_names_them(
    cover: Callable,
    inputs: Path,
    tmp_path: Path,
    make: Callable[[Path], str],
    options: list[str],
    words: str,
) -> None:
    (tmp_path / "data").mkdir()
    data = make(tmp_path / "data")
    outcome = cover(tmp_path / "run", data, "--tokenizer", inputs / "tok_words", *options)
    assert words in outcome.error
    assert len(outcome.err.splitlines()) == 1
    assert not (tmp_path / "run" / "coverage.npz").exists()


def test_a_tokenizer_without_a_chat_template_is_told_of_the_option(
    cover: Callable, write: Callable, tiny_target: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_target)
    template, tokenizer.chat_template = tokenizer.chat_template, None
    tokenizer.save_pretrained(tmp_path / "bare")
    data = write("data.jsonl", [messages("red", "cat")])
    options = [data, "--tokenizer", tmp_path / "bare"]
    assert "--template" in cover(tmp_path / "run", *options).error
    own = tmp_path / "own.jinja"
    own.write_text(template)
    assert cover(tmp_path / "run", *options, "--template", own, "--json").json["tokens"] == 2


def test_several_files_and_a_glob_are_read_in_order(
    cover: Callable, write: Callable, inputs: Path, tmp_path: Path
) -> None:
    write("b.jsonl", [messages("red", "cat")])
    write("a.jsonl", [{"instruction": "red", "output": "dog"}])
    cover(tmp_path / "run", tmp_path / "*.jsonl", "--tokenizer", inputs / "tok_words")
    files = Run(tmp_path / "run").read()["data"]["files"]
    assert [Path(file["path"]).name for file in files] == ["a.jsonl", "b.jsonl"]
    assert Coverage.load(tmp_path / "run" / "coverage.npz").rows_by_kind == {
        "alpaca": 1,
        "messages": 1,
    }


def test_torch_is_loaded_only_for_code_of_others_and_to_convert_the_built_in_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTRIM_CACHE", str(tmp_path))
    assert needs_torch("org/model", trust_remote_code=True)
    assert not needs_torch("org/model", trust_remote_code=False)
    assert needs_torch("smollm2", trust_remote_code=False)
    (tmp_path / "SmolLM2-135M-Instruct").mkdir()
    (tmp_path / "SmolLM2-135M-Instruct" / "model.safetensors").touch()
    assert not needs_torch("smollm2", trust_remote_code=False)


def test_the_command_counts_the_same_without_torch(
    cover: Callable, inputs: Path, tmp_path: Path
) -> None:
    counting = [str(inputs / "g11_bulk.jsonl"), "--target", str(inputs / "target_chain")]
    assert cover(tmp_path / "here", *counting).code == 0
    script = (
        "import sys; from vtrim.cli.main import main\n"
        "try: main()\n"
        "finally: print(sys.modules['torch'], file=sys.stderr)"
    )
    command = [sys.executable, "-c", script, "coverage", *counting]
    done = subprocess.run(
        [*command, "--run", str(tmp_path / "there")], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == "None", done.stderr
    assert "PyTorch" not in done.stderr
    runs = [Run(tmp_path / name) for name in ("here", "there")]
    assert runs[0].coverage.read_bytes() == runs[1].coverage.read_bytes()
    assert runs[0].target_config.read_text() == runs[1].target_config.read_text()
    assert runs[0].read()["target"] == runs[1].read()["target"]
