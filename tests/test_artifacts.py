from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from vtrim import __version__
from vtrim.artifacts import (
    Run,
    atomic_path,
    check_match,
    fingerprint_bytes,
    fingerprint_file,
    fingerprint_json,
    read_json,
    read_object,
    write_json,
    write_text,
)
from vtrim.errors import InputError, MismatchError


def test_a_written_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    final = tmp_path / "new" / "file.txt"
    with atomic_path(final) as temporary:
        temporary.write_text("half")
        assert not final.exists()
    assert final.read_text() == "half"
    assert list(final.parent.iterdir()) == [final]


def test_an_interrupted_write_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    final = tmp_path / "file.txt"
    write_text(final, "whole")
    with pytest.raises(KeyboardInterrupt):
        _write_half(final, KeyboardInterrupt())
    assert final.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [final]


def test_a_full_disk_is_an_input_error_and_leaves_nothing(tmp_path: Path) -> None:
    final = tmp_path / "file.txt"
    with pytest.raises(InputError, match="No space left on device"):
        _write_half(final, OSError(errno.ENOSPC, "No space left on device"))
    assert list(tmp_path.iterdir()) == []


def _write_half(final: Path, error: BaseException) -> None:
    with atomic_path(final) as temporary:
        temporary.write_text("ha")
        raise error


def test_json_is_written_and_read_back(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"text": "gr\u00fcn [bold]", "n": [1, None]})
    assert read_json(tmp_path / "a.json") == {"text": "gr\u00fcn [bold]", "n": [1, None]}


@pytest.mark.parametrize("content", [b"", b'{"a": 1', b"\xff\xfe\x00", b"no json"])
def test_a_cut_or_foreign_json_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.json: not a whole JSON file"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("content", ["[]", "null", "5", '"text"'])
def test_a_file_that_holds_no_object_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError, match=r"a\.json: damaged: a JSON object is expected, not"):
        read_object(tmp_path / "a.json")


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"target": None},
        {"target": []},
        {"data": "x.jsonl"},
        {"steps": []},
        {"steps": {"search": []}},
    ],
)
def test_a_damaged_manifest_is_refused_by_name_for_reading_and_writing(
    tmp_path: Path, content: object
) -> None:
    run = Run(tmp_path)
    write_json(run.manifest, content)
    for use in (run.read, lambda: run.record("eval", {}), lambda: run.step("search")):
        with pytest.raises(InputError, match=r"run\.json: damaged: .* must be|a JSON object is"):
            use()
    assert read_json(run.manifest) == content


def test_a_manifest_without_steps_has_none_yet(tmp_path: Path) -> None:
    run = Run(tmp_path)
    write_json(run.manifest, {"target": {"name": "t"}})
    run.record("search", {"k": 3})
    assert run.step("search")["k"] == 3


def test_token_texts_are_text_or_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.read_token_texts() == {}
    write_json(run.token_texts, {"5": " the"})
    assert run.read_token_texts() == {"5": " the"}
    write_json(run.token_texts, {"5": 1})
    with pytest.raises(InputError, match=r"tokens\.json: damaged: the text of token 5 is 1\."):
        run.read_token_texts()


def test_a_missing_json_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.json: no such file"):
        read_json(tmp_path / "a.json")


def test_a_fingerprint_depends_on_content_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "b").write_bytes(b"abc")
    known = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert fingerprint_file(tmp_path / "a") == fingerprint_file(tmp_path / "b") == known
    assert fingerprint_bytes(b"abc") == known
    assert fingerprint_json({"a": 1, "b": 2}) == fingerprint_json({"b": 2, "a": 1})
    assert fingerprint_json({"a": 1}) != fingerprint_json({"a": 2})


def test_the_run_folder_is_the_one_named_then_the_variable_then_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VTRIM_RUN", raising=False)
    assert Run().root == Path("vtrim-run")
    monkeypatch.setenv("VTRIM_RUN", str(tmp_path / "env"))
    assert Run().root == tmp_path / "env"
    assert Run(tmp_path / "typed").root == tmp_path / "typed"


def test_a_finished_step_is_recorded_beside_the_others(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert run.read() == {"vtrim": __version__, "steps": {}}
    run.update(target={"name": "t"})
    run.record("coverage", {"tokens": 5})
    run.record("search", {"k": 3})
    run.record("search", {"k": 4})
    assert run.read()["target"] == {"name": "t"}
    assert run.step("coverage") == {"vtrim": __version__, "tokens": 5}
    assert run.step("search")["k"] == 4
    assert json.loads((tmp_path / "run.json").read_text())["steps"]["search"]["k"] == 4


def test_a_step_that_has_not_run_names_the_command(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(InputError, match=r"no finished 'search' step here\. Run `vtrim search`"):
        run.step("search")
    with pytest.raises(InputError, match=r"vocab\.safetensors: no such file\. Run `vtrim search`"):
        run.require(run.vocab, "search")


def test_artefacts_that_differ_are_refused_with_both_values() -> None:
    check_match("tokenizer", "a", "a", "run.json", "Count again.")
    with pytest.raises(MismatchError) as caught:
        check_match("tokenizer", "a", "b", "run.json", "Count again.")
    assert str(caught.value) == "tokenizer differs: a here, b in run.json. Count again."
