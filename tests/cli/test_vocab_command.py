"""``vtrim vocab show``, ``diff``, ``import`` and ``export`` from their command lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vtrim.artifacts import Run, write_json
from vtrim.cli import common
from vtrim.cli.main import main
from vtrim.cli.token_text import quoted
from vtrim.errors import InputError
from vtrim.trimming.coverage import Coverage
from vtrim.vocab import DraftVocab

IDS = [0, 3, 4, 9, 17]
COUNTS = {0: 50, 3: 20, 4: 10, 5: 9, 9: 5, 11: 4, 17: 2}  # 100 tokens; id 19 is the stop token
Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def vtrim(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Vtrim:
    """Runs `vtrim vocab ...` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VTRIM_RUN", raising=False)
    monkeypatch.setenv("COLUMNS", "140")

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["vocab", *map(str, arguments)])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return call


@pytest.fixture
def ask(vtrim: Vtrim) -> Callable[..., dict[str, Any]]:
    """Runs a command with --json; the object it prints."""

    def call(*arguments: object) -> dict[str, Any]:
        code, out, err = vtrim(*arguments, "--json")
        assert code == 0, err
        assert out.count("\n") == 1
        value: dict[str, Any] = json.loads(out)
        return value

    return call


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with counts over 20 rows, token texts, and a vocabulary of five tokens."""
    found = Run(tmp_path / "vtrim-run")
    counts = np.zeros(20, dtype=np.int64)
    counts[list(COUNTS)] = list(COUNTS.values())
    coverage = Coverage(
        counts=counts,
        heldout_counts=counts // 10,
        target_vocab_size=20,
        tokenizer_length=20,
        tokenizer_fingerprint="sha256:tok",
        data_fingerprint="sha256:data",
        stop_ids=(19,),
    )
    coverage.save(found.coverage)
    write_json(found.token_texts, {"0": " the", "5": "[red]", "11": "\n\u200b語"})
    found.update(target={"name": "t", "vocab_size": 20, "stop_ids": [19]})
    found.record("coverage", {})
    DraftVocab.of(IDS, 20).save(found.vocab, {"tokenizer_fingerprint": "sha256:tok"})
    return found


def test_the_run_s_vocabulary_is_shown_against_its_counts(
    run: Run, ask: Callable[..., dict[str, Any]]
) -> None:
    shown = ask("show")
    assert shown["source"] == "vtrim-run/vocab.safetensors"
    assert (shown["format"], shown["k"], shown["target_vocab_size"]) == ("vtrim", 5, 20)
    assert (shown["share"], shown["first_id"], shown["last_id"], shown["ranges"]) == (
        0.25,
        0,
        17,
        4,
    )
    assert sum(shown["by_eighth"]) == 5
    assert shown["stop_ids"] == {"inside": [], "missing": [19]}
    assert shown["forced"] is None
    assert (shown["coverage"], shown["counted_tokens"]) == (0.87, 100)
    assert shown["heldout_coverage"] == 8 / 8
    assert [token["id"] for token in shown["rarest_kept"]] == [17, 9, 4, 3, 0]
    assert shown["missed_most"] == [
        {"id": 5, "count": 9, "text": '"[red]"'},
        {"id": 11, "count": 4, "text": '"\\n\\u200b語"'},
    ]
    assert shown["fingerprint"] == DraftVocab.load(run.vocab).fingerprint


def test_what_the_search_forced_is_shown_with_its_own_choice(
    run: Run, ask: Callable[..., dict[str, Any]]
) -> None:
    chosen = {"forced": [19], "vocab_fingerprint": DraftVocab.load(run.vocab).fingerprint}
    write_json(run.search, chosen)
    assert ask("show")["forced"] == [19]
    write_json(run.search, {**chosen, "vocab_fingerprint": "sha256:else"})
    assert ask("show")["forced"] is None


def test_the_table_shows_brackets_as_they_are_and_warns_of_missing_stop_tokens(
    run: Run, vtrim: Vtrim
) -> None:
    code, out, err = vtrim("show", run.root, "--limit", 2)
    assert code == 0
    assert '"[red]"' in out
    assert "5 of 20 (25.00%)" in out
    assert "87.00% of 100 counted tokens" in out
    assert "warning: stop token ids [19] are missing" in err


def test_a_list_without_a_run_needs_the_size_of_the_head(
    vtrim: Vtrim, ask: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    torch.save([9, 0, 3], tmp_path / "freq.pt")
    code, out, err = vtrim("show", "freq.pt")
    assert (code, out) == (2, "")
    assert err.startswith("error: freq.pt: does not tell the rows of the target's LM head; give")
    shown = ask("show", "freq.pt", "--target-vocab-size", 12)
    assert (shown["target_vocab_size"], shown["moved"], shown["stop_ids"]) == (12, 3, None)
    config = tmp_path / "config.json"
    write_json(config, {"model_type": "llama", "hidden_size": 8, "intermediate_size": 8,
        "num_attention_heads": 2, "num_hidden_layers": 8, "vocab_size": 40,
        "max_position_embeddings": 64})  # fmt: skip
    assert ask("show", "freq.pt", "--target", config)["target_vocab_size"] == 40


def test_two_vocabularies_are_compared_on_counted_text(
    run: Run, ask: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / "other.txt").write_text("0 3 4 5 11 12")
    found = ask("diff", run.root, "other.txt")
    assert (found["common"], found["jaccard"], found["counted_tokens"]) == (3, 3 / 8, 100)
    assert (found["a"]["k"], found["b"]["k"]) == (5, 6)
    assert (found["a"]["coverage"], found["b"]["coverage"]) == (0.87, 0.93)
    assert (found["only_a"]["size"], found["only_a"]["tokens"], found["only_a"]["share"]) == (
        2,
        7,
        0.07,
    )
    assert [(t["id"], t["count"]) for t in found["only_b"]["listed"]] == [(5, 9), (11, 4), (12, 0)]


def test_without_counts_the_ids_alone_are_compared(
    ask: Callable[..., dict[str, Any]], vtrim: Vtrim, tmp_path: Path
) -> None:
    DraftVocab.of(IDS, 20).save(tmp_path / "a.safetensors")
    (tmp_path / "b.json").write_text("[3, 0]")
    for names in (("a.safetensors", "b.json"), ("b.json", "a.safetensors")):  # either tells V
        found = ask("diff", *names)
        assert (found["common"], found["jaccard"]) == (2, 0.4)
        assert (found["counted_tokens"], found["a"]["coverage"]) == (None, None)
    code, out, _ = vtrim("diff", "b.json", "a.safetensors")
    assert code == 0
    assert "common: 2 tokens, Jaccard 0.4000" in out
    assert "only in b" in out


def test_vocabularies_of_other_targets_are_not_compared(vtrim: Vtrim, tmp_path: Path) -> None:
    for name, size, tokenizer in (("a", 20, "x"), ("b", 21, "x"), ("c", 20, "y")):
        path = tmp_path / f"{name}.safetensors"
        DraftVocab.of(IDS, size).save(path, {"tokenizer_fingerprint": tokenizer})
    code, out, err = vtrim("diff", "a.safetensors", "b.safetensors")
    assert (code, out) == (2, "")
    assert "made for a head of 20 rows, b.safetensors for one of 21" in err
    assert (
        "tokenizer differs: x here, y in c.safetensors"
        in vtrim("diff", "a.safetensors", "c.safetensors")[2]
    )


def test_counts_of_another_target_are_left_out_unless_they_were_named(
    run: Run, vtrim: Vtrim, tmp_path: Path
) -> None:
    other = tmp_path / "other.safetensors"
    DraftVocab.of([1, 2], 20).save(other, {"tokenizer_fingerprint": "sha256:else"})
    code, _, err = vtrim("show", other)
    assert (code, "counts of the run left out" in err) == (0, True)
    code, out, err = vtrim("show", other, "--coverage", run.coverage)
    assert (code, out) == (2, "")
    assert "tokenizer differs" in err


def test_an_imported_vocabulary_is_the_run_s_own(
    run: Run, vtrim: Vtrim, ask: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    vocab = DraftVocab.of([0, 3, 5, 19], 20)
    mapping = {"d2t": torch.from_numpy(vocab.d2t), "t2d": torch.from_numpy(vocab.t2d)}
    torch.save(mapping, tmp_path / "vocab_mapping.pt")
    result = ask("import", "vocab_mapping.pt", "--to", "run")
    assert (result["format"], result["k"], result["coverage"]) == ("specforge", 4, 0.79)
    assert (result["missing_stop_ids"], result["artifact"]) == ([], "vtrim-run/vocab.safetensors")
    assert DraftVocab.load(run.vocab).fingerprint == vocab.fingerprint
    shown = ask("show")["metadata"]
    assert shown["coverage_fingerprint"] == Coverage.load(run.coverage).fingerprint
    assert run.step("vocab-import")["k"] == 4
    torch.save([0, 3], tmp_path / "freq.pt")
    code, out, err = vtrim("import", "freq.pt", "--to", "mine.safetensors")
    assert (code, out) == (0, "2 of 20 tokens (fr-spec) -> mine.safetensors\n")
    assert "warning: the vocabulary lacks stop token ids [19]" in err
    assert DraftVocab.load(tmp_path / "mine.safetensors").ids.tolist() == [0, 3]


def test_a_vocabulary_of_another_target_does_not_enter_a_run(
    run: Run, vtrim: Vtrim, tmp_path: Path
) -> None:
    before = run.vocab.read_bytes()
    DraftVocab.of([0, 3], 21).save(tmp_path / "other.safetensors")
    code, out, err = vtrim("import", "other.safetensors")
    assert (code, out) == (2, "")
    assert "target vocabulary differs: 21 here, 20 in vtrim-run/run.json" in err
    code, _, err = vtrim("import", "other.safetensors", "--run", "nowhere")
    assert (code, "Run `vtrim coverage` first" in err) == (2, True)
    assert run.vocab.read_bytes() == before


@pytest.mark.parametrize(
    "file_format",
    ["vtrim", "specforge", "speculators", "modelopt", "fr-spec", "hot-token-ids", "json", "text"],
)
def test_what_is_exported_is_imported_again(
    run: Run, ask: Callable[..., dict[str, Any]], file_format: str
) -> None:
    exported = ask("export", "--format", file_format, "--output", "out")
    assert exported["k"] == 5
    assert all(Path(file).exists() for file in exported["files"])
    imported = ask("import", "out", "--to", "back.safetensors")
    assert imported["format"] == file_format
    assert imported["vocab_fingerprint"] == DraftVocab.load(run.vocab).fingerprint


def test_bad_calls_are_refused_in_one_line(run: Run, vtrim: Vtrim, tmp_path: Path) -> None:
    (tmp_path / "both.pt").write_bytes(b"")
    torch.save(torch.tensor([0, 3, 4]), tmp_path / "both.pt")
    cases: list[tuple[list[str], str]] = [
        (["export", "--format", "zip", "--output", "x"], "--format zip: unknown. Known: vtrim"),
        (["show", "nothing.pt"], "nothing.pt: no such file"),
        (["show", "both.pt"], "can be offsets or absolute token ids"),
        (["show", "--run", "nowhere"], "Run `vtrim search` first"),
        (["show", str(run.coverage)], "token counts, no vocabulary. `vtrim search` chooses"),
        (["show", str(run.root), "--target-vocab-size", "99"], "not for one of 99"),
    ]
    for arguments, message in cases:
        code, out, err = vtrim(*arguments)
        assert (code, out) == (2, ""), arguments
        assert err.splitlines()[-1].startswith("error: ")
        assert message in err
    assert vtrim("show", "both.pt", "--format", "modelopt")[0] == 0


def test_texts_are_quoted_and_what_cannot_be_printed_is_escaped() -> None:
    assert quoted(' a"b\\n') == '" a\\"b\\\\n"'
    assert quoted("\t\x1b[31m語é") == '"\\t\\x1b[31m語é"'


def test_a_file_in_the_way_is_replaced_only_when_asked(
    run: Run, vtrim: Vtrim, tmp_path: Path
) -> None:
    precious = tmp_path / "precious.jsonl"
    calls = (
        ["export", "--format", "json", "--output", "precious.jsonl"],
        ["import", str(run.root), "--to", "precious.jsonl"],
    )
    for call in calls:
        precious.write_text("mine")
        code, out, err = vtrim(*call)
        assert (code, out) == (2, "")
        assert "precious.jsonl exists; --force replaces it" in err
        assert precious.read_text() == "mine"
        assert vtrim(*call, "--force")[0] == 0
        assert precious.read_bytes() != b"mine"


def test_what_was_read_is_never_written_over(run: Run, vtrim: Vtrim, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("0 3")
    vtrim("export", "--format", "speculators", "--output", "arrays")
    before = run.vocab.read_bytes()
    cases = [
        ["export", "--format", "json", "--output", str(run.vocab)],
        ["export", "mine.txt", "--format", "json", "--output", "../" + tmp_path.name + "/mine.txt"],
        ["export", "arrays/d2t.npy", "--format", "json", "--output", "arrays/t2d.npy"],
        ["import", "mine.txt", "--to", "mine.txt"],
    ]
    for arguments in cases:
        code, out, err = vtrim(*arguments, "--force")
        assert (code, out) == (2, ""), arguments
        assert "belongs to what was read; name another file" in err
    assert run.vocab.read_bytes() == before
    assert (tmp_path / "mine.txt").read_text() == "0 3"


def test_a_folder_is_no_file_to_write(run: Run, vtrim: Vtrim) -> None:
    for arguments in (["import", run.root, "--to", "."], ["export", "--format", "json", "-o", "."]):
        code, out, err = vtrim(*arguments)
        assert (code, out) == (2, "")
        assert "is a folder; name a file" in err


def test_a_size_that_is_the_run_s_alone_is_told(run: Run, vtrim: Vtrim, tmp_path: Path) -> None:
    torch.save([9, 0, 3], tmp_path / "freq.pt")
    told = f"V 20 from {run.manifest.relative_to(tmp_path)}"
    assert told in vtrim("show", "freq.pt")[2]
    assert told in vtrim("export", "freq.pt", "--format", "json", "--output", "ids.json")[2]
    assert "V 20 from" not in vtrim("show", "freq.pt", "--target-vocab-size", 20)[2]
    assert "V 20 from" not in vtrim("show")[2]


def test_texts_are_those_of_the_vocabulary_s_own_tokenizer(
    run: Run, vtrim: Vtrim, ask: Callable[..., dict[str, Any]], tmp_path: Path, tiny_target: Path
) -> None:
    code, out, err = vtrim("show", "--tokenizer", tiny_target)
    assert (code, out) == (2, "")
    assert "tokenizer" in err
    assert "sha256:tok in vtrim-run/vocab.safetensors" in err
    (tmp_path / "ids.txt").write_text("0 3")
    run.update(target={"name": "t", "vocab_size": 20, "stop_ids": [19], "tokenizer_length": 20})
    _, _, err = vtrim("show", "ids.txt", "--tokenizer", tiny_target)
    assert "length differs: 25 here, 20 in vtrim-run/run.json" in err
    torch.save([3, 30], tmp_path / "freq.pt")
    told = ["diff", "freq.pt", "ids.txt", "--target-vocab-size", 32, "--tokenizer", tiny_target]
    found = ask(*told)
    assert found["only_a"]["listed"] == [
        {"id": 30, "count": 0, "text": "(no token of the tokenizer)"}
    ]
    assert "does not tell its tokenizer" in vtrim(*told)[2]


def test_the_template_a_run_counted_with_does_not_make_another_tokenizer(
    run: Run, vtrim: Vtrim, tmp_path: Path, tiny_target: Path
) -> None:
    from vtrim.models.hub import load_tokenizer, tokenizer_fingerprint

    template = tmp_path / "own.jinja"
    template.write_text("{{ messages }}")
    tokenizer = load_tokenizer(str(tiny_target))
    tokenizer.chat_template = template.read_text()
    known = {"tokenizer_fingerprint": tokenizer_fingerprint(tokenizer)}
    DraftVocab.of(IDS, 20).save(run.vocab, known)
    run.update(target={"vocab_size": 20, "chat_template": str(template), **known})
    run.coverage.unlink()
    assert vtrim("show", "--tokenizer", tiny_target)[0] == 0


def test_json_says_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="not finite"):
        common.emit_json({"cosine": float("nan")})
    assert capsys.readouterr().out == ""


def test_formats_go_by_the_name_of_their_reader_too(
    run: Run, ask: Callable[..., dict[str, Any]], vtrim: Vtrim, tmp_path: Path
) -> None:
    for alias, name in {"sglang": "hot-token-ids", "eagle": "specforge"}.items():
        named = ask("export", run.root, "--format", alias, "-o", f"{alias}.pt")
        assert named["format"] == name
        ask("export", "--format", name, "-o", f"{name}.pt")
        assert (tmp_path / f"{alias}.pt").read_bytes() == (tmp_path / f"{name}.pt").read_bytes()
    assert ask("show", "sglang.pt", "--format", "sglang")["k"] == 5
    assert "sglang (= hot-token-ids)" in vtrim("show", "sglang.pt", "--format", "vllm")[2]


def test_a_run_named_as_a_file_to_write_is_told_how_to_import_into_it(
    run: Run, vtrim: Vtrim
) -> None:
    err = vtrim("import", run.root, "--to", run.root)[2]
    assert "is a folder; name a file, or type `--to run --run" in err
    assert "name a file in it" in vtrim("import", run.root, "--to", ".")[2]


def test_archives_of_numpy_are_no_vocabulary(vtrim: Vtrim, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", d2t=np.arange(3))
    assert "other.npz: an archive of numpy arrays" in vtrim("show", "other.npz")[2]


def test_the_held_out_share_of_a_search_s_choice_says_what_it_is(
    run: Run, vtrim: Vtrim, ask: Callable[..., dict[str, Any]]
) -> None:
    assert "counted in its choice" not in vtrim("show")[1]
    DraftVocab.of(IDS, 20).save(run.vocab, {"coverage_fingerprint": "sha256:c"})
    assert "these rows counted in its choice" in vtrim("show")[1]
    assert ask("show")["chosen_from_counts"] is True


def test_without_counts_the_ends_are_listed_as_text(
    ask: Callable[..., dict[str, Any]], vtrim: Vtrim, tmp_path: Path, tiny_target: Path
) -> None:
    (tmp_path / "ids.txt").write_text(" ".join(map(str, range(40, 50))))
    named = ["show", "ids.txt", "--target-vocab-size", "512", "--tokenizer", tiny_target]
    shown = ask(*named, "--limit", 5)
    assert [token["id"] for token in shown["first_kept"]] == [40, 41, 42]
    assert [token["id"] for token in shown["last_kept"]] == [48, 49]
    assert all(token["text"] for token in shown["first_kept"])
    assert "first ids kept" in vtrim(*named)[1]
    for limit, sizes in {0: (0, 0), 1: (1, 0), 30: (10, 0)}.items():
        ends = ask(*named, "--limit", limit)
        assert (len(ends["first_kept"]), len(ends["last_kept"])) == sizes
