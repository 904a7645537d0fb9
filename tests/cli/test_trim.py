"""``vtrim trim`` from its command line to a draft that decodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from vtrim.artifacts import Run, fingerprint_json
from vtrim.trimming.coverage import Coverage

IDS = list(range(0, 54, 2))  # 27 of the 64 rows, the stop token 51 not among them
Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def vtrim(vtrim: Vtrim, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Vtrim:
    """Runs a command in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VTRIM_RUN", raising=False)
    monkeypatch.setenv("COLUMNS", "140")
    return vtrim


@pytest.fixture
def target(inputs: Path) -> Path:
    return inputs / "target_chain"


@pytest.fixture
def draft(target: Path, random_draft: Callable[..., Path]) -> Path:
    from vtrim.models.hub import load_config, load_tokenizer, tokenizer_fingerprint

    provenance = {
        "target": str(target),
        "target_config_fingerprint": fingerprint_json(load_config(str(target))),
        "tokenizer_fingerprint": tokenizer_fingerprint(load_tokenizer(str(target))),
        "settings": {"seed": 1},
    }
    return random_draft(target, ids=IDS, provenance=provenance)


def ids_file(folder: Path, ids: list[int]) -> Path:
    path = folder / "ids.txt"
    path.write_text(" ".join(map(str, ids)))
    return path


def measured(vtrim: Vtrim, target: Path, draft: Path) -> dict[str, Any]:
    prompts = target.parent / "g20_prompts.jsonl"
    where = ["--draft", draft, "--target", target, "--prompts", prompts, "--run", "elsewhere"]
    code, out, err = vtrim("eval", *where, "--max-new-tokens", 12, "--dtype", "fp32", "--json")
    assert code == 0, err
    value: dict[str, Any] = json.loads(out)
    return value


@pytest.mark.parametrize("ids", [[0, 2, 4, 50], sorted({*IDS, 1, 3, 51}), list(range(64))])
def test_a_draft_cut_or_extended_decodes_and_leaves_greedy_replies_as_they_are(
    vtrim: Vtrim, tmp_path: Path, draft: Path, target: Path, ids: list[int]
) -> None:
    arguments = ["--vocab", ids_file(tmp_path, ids), "--target", target, "-o", "new", "--json"]
    code, out, err = vtrim("trim", draft, *arguments)
    assert code == 0, err
    result = json.loads(out)
    assert (result["k_before"], result["k"], result["target_vocab_size"]) == (27, len(ids), 64)
    assert result["kept"] + result["added"] == len(ids)
    assert result["kept"] + result["dropped"] == 27
    assert (result["new_rows"] is None) == (result["added"] == 0)
    found = measured(vtrim, target, Path("new"))
    assert found["identical_to_plain"] == 1.0
    assert found["provenance"]["draft_vocab_size"] == len(ids)
    assert found["provenance"]["vocab_fingerprint"] == result["vocab_fingerprint"]


def test_the_same_vocabulary_gives_the_same_bytes(
    vtrim: Vtrim, tmp_path: Path, draft: Path
) -> None:
    assert vtrim("trim", draft, "--vocab", ids_file(tmp_path, IDS), "--output", "same")[0] == 0
    before = (draft / "model.safetensors").read_bytes()
    assert (tmp_path / "same" / "model.safetensors").read_bytes() == before


def test_the_new_draft_says_what_it_was_made_from(
    vtrim: Vtrim, tmp_path: Path, draft: Path
) -> None:
    vtrim("trim", draft, "--vocab", ids_file(tmp_path, [0, 2, 51 - 1]), "-o", "new")
    old = json.loads((draft / "config.json").read_text())
    new = json.loads((tmp_path / "new" / "config.json").read_text())
    assert new["draft_vocab_size"] == 3
    differing = {name for name in old if old[name] != new[name]}
    assert differing == {"draft_vocab_size", "vtrim"}
    for name in ("target", "target_config_fingerprint", "tokenizer_fingerprint"):
        assert new["vtrim"][name] == old["vtrim"][name]
    assert new["vtrim"]["trained"]["settings"] == {"seed": 1}
    assert new["vtrim"]["trimmed"]["k_before"] == 27
    card = (tmp_path / "new" / "README.md").read_text()
    assert "3 head rows are the old ones bit for bit, 24 are gone, 0\nare new" in card


def test_a_size_takes_the_top_tokens_of_the_run_s_counts(
    vtrim: Vtrim, tmp_path: Path, target: Path, inputs: Path, random_draft: Callable[..., Path]
) -> None:
    data = inputs / "g11_bulk.jsonl"
    assert vtrim("coverage", data, "--target", target, "--run", "run")[0] == 0
    whole = random_draft(target)
    code, out, err = vtrim("trim", whole, "--k", 9, "--run", "run", "-o", "nine", "--json")
    assert code == 0, err
    assert json.loads(out)["k"] == 9
    ids = load_file(tmp_path / "nine" / "model.safetensors")["t2d"].nonzero()[:, 0].tolist()
    assert 51 in ids  # the stop token, forced


def test_the_run_s_counts_weigh_the_fit_unless_they_are_another_tokenizer_s(
    vtrim: Vtrim, tmp_path: Path, draft: Path, target: Path, inputs: Path
) -> None:
    data = inputs / "g11_bulk.jsonl"
    assert vtrim("coverage", data, "--target", target, "--run", "run")[0] == 0
    ids = ids_file(tmp_path, sorted({*IDS, 51}))
    more = ["--vocab", ids, "--target", target, "--json", "-o"]
    weighted = json.loads(vtrim("trim", draft, "--run", "run", *more, "one")[1])
    assert weighted["new_rows"]["weighted"] is True
    plain = json.loads(vtrim("trim", draft, "--run", "nowhere", *more, "two")[1])
    assert plain["new_rows"]["weighted"] is False
    config = json.loads((draft / "config.json").read_text())
    config["vtrim"]["tokenizer_fingerprint"] = "sha256:else"
    (draft / "config.json").write_text(json.dumps(config))
    code, out, err = vtrim("trim", draft, "--run", "run", *more, "three")
    assert (code, json.loads(out)["new_rows"]["weighted"]) == (0, False)
    assert "counts of the run left out" in err
    code, out, err = vtrim("trim", draft, "--run", "run", "--k", 20, "-o", "four")
    assert (code, out) == (2, "")
    assert "tokenizer differs" in err


def test_a_vocabulary_without_the_stop_token_is_warned_of(
    vtrim: Vtrim, tmp_path: Path, draft: Path
) -> None:
    _, _, err = vtrim("trim", draft, "--vocab", ids_file(tmp_path, [0, 2]), "-o", "new")
    assert "warning: the new vocabulary lacks stop token ids [51]" in err


def test_what_cannot_be_is_refused_in_one_line(
    vtrim: Vtrim, tmp_path: Path, draft: Path, target: Path, inputs: Path
) -> None:
    some = ids_file(tmp_path, [0, 2, 3])
    few = ["--vocab", some, "-o", "new"]
    cases = [
        ([draft, "-o", "new"], "name the new vocabulary with --vocab FILE, or its size"),
        ([draft, *few, "--k", 3], "name the new vocabulary with --vocab FILE, or its size"),
        ([draft, *few], "1 of 3 tokens are new to the draft"),
        ([draft, "--vocab", some, "-o", draft], "is the draft itself"),
        ([draft, *few, "--rope-theta", 0], "--rope-theta 0: must be above 0"),
        ([draft, *few, "--rope-theta", "inf"], "--rope-theta inf: must be above 0 and finite"),
        ([draft, *few, "--aux-layers", "1,2,900"], "[1, 2, 900] (hidden_states indices) are not"),
        ([draft, *few, "--aux-layers", "1,2"], "give three numbers"),
        ([draft, "--k", 3, "-o", "new", "--run", "none"], "Run `vtrim coverage` first"),
        ([target, *few], "not the plain EAGLE-3 draft"),
        ([draft, *few, "--target", inputs / "target_headdim"], "made for another target"),
    ]
    for arguments, message in cases:
        code, out, err = vtrim("trim", *arguments)
        assert (code, out) == (2, ""), arguments
        assert err.splitlines()[-1].startswith("error: ")
        assert message in err
    assert not (tmp_path / "new").exists()


def test_a_draft_in_the_way_is_replaced_only_when_asked(
    vtrim: Vtrim, tmp_path: Path, draft: Path
) -> None:
    arguments = ["trim", draft, "--vocab", ids_file(tmp_path, [0, 2]), "-o", "new"]
    assert vtrim(*arguments)[0] == 0
    code, _, err = vtrim(*arguments)
    assert (code, "--force replaces it" in err) == (2, True)
    assert vtrim(*arguments, "--force")[0] == 0


def test_a_draft_of_another_project_is_trimmed_and_measured(
    vtrim: Vtrim, tmp_path: Path, draft: Path, target: Path
) -> None:
    tensors = load_file(draft / "model.safetensors")
    config = json.loads((draft / "config.json").read_text())
    del config["vtrim"], tensors["t2d"]
    for name in ("eagle_config", "eagle_aux_hidden_state_layer_ids"):
        config.pop(name, None)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    renamed = {k.replace("midlayer", "layers.0"): v for k, v in tensors.items()}
    save_file(renamed, foreign / "model.safetensors")
    (foreign / "config.json").write_text(json.dumps(config))
    code, out, err = vtrim(
        "trim", foreign, "--vocab", ids_file(tmp_path, [0, 2, 50]), "-o", "new", "--json"
    )
    assert code == 0, err
    assert json.loads(out)["layout"] == "ModelOpt"
    written = json.loads((tmp_path / "new" / "config.json").read_text())
    assert "num_target_layers" not in written["vtrim"]  # nobody told
    assert measured(vtrim, target, Path("new"))["identical_to_plain"] == 1.0


@pytest.mark.slow
def test_on_a_real_chat_model_a_draft_extended_and_cut_leaves_greedy_replies_as_they_are(
    vtrim: Vtrim, tmp_path: Path, random_draft: Callable[..., Path]
) -> None:
    from vtrim.models.smollm2 import smollm2_folder

    target = smollm2_folder()
    if not (target / "model.safetensors").exists():
        pytest.skip("the built-in target is not unpacked here (VTRIM_CACHE; run `vtrim demo`)")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "The sky is"}\n{"prompt": "Bread rises"}\n')
    draft = random_draft(target, ids=range(1200))
    wanted = ids_file(tmp_path, list(range(600, 1400)))
    arguments = ["--vocab", wanted, "--target", target, "-o", "new", "--json"]
    code, out, err = vtrim("trim", draft, *arguments)
    assert code == 0, err
    result = json.loads(out)
    assert (result["kept"], result["dropped"], result["added"]) == (600, 600, 200)
    where = ["--draft", "new", "--target", target, "--prompts", prompts, "--run", "elsewhere"]
    code, out, err = vtrim("eval", *where, "--max-new-tokens", 12, "--dtype", "fp32", "--json")
    assert code == 0, err
    assert json.loads(out)["identical_to_plain"] == 1.0


def other_counts(folder: Path, size: int, *, noted: int | None = None) -> Run:
    """A run whose counts are over ``size`` rows of an unknown tokenizer."""
    run = Run(folder / "other")
    counts = np.arange(size, dtype=np.int64)
    Coverage(
        counts=counts,
        heldout_counts=counts * 0,
        target_vocab_size=size,
        tokenizer_length=size,
        tokenizer_fingerprint="sha256:other",
        data_fingerprint="sha256:data",
    ).save(run.coverage)
    run.update(target={"name": "other", "vocab_size": noted or size})
    return run


@pytest.mark.parametrize(("size", "noted"), [(40, None), (64, 40)])
def test_counts_over_another_number_of_rows_choose_no_vocabulary(
    vtrim: Vtrim,
    tmp_path: Path,
    target: Path,
    random_draft: Callable[..., Path],
    size: int,
    noted: int | None,
) -> None:
    run = other_counts(tmp_path, size, noted=noted)
    call = ["trim", random_draft(target), "--k", 9, "--run", run.root, "-o", "new"]
    code, out, err = vtrim(*call)
    assert (code, out) == (2, "")
    assert "V, the rows of the target's head, differs: 64 here, 40 in" in err
    assert not (tmp_path / "new").exists()


def test_counts_of_another_tokenizer_than_the_target_s_choose_no_vocabulary(
    vtrim: Vtrim, tmp_path: Path, target: Path, random_draft: Callable[..., Path]
) -> None:
    run, whole = other_counts(tmp_path, 64), random_draft(target)
    call = ["trim", whole, "--k", 9, "--run", run.root, "-o", "new"]
    code, out, err = vtrim(*call, "--target", target)
    assert (code, out) == (2, "")
    assert "tokenizer differs: sha256:" in err
    assert "sha256:other in" in err
    code, _, err = vtrim(*call)  # V agrees and nothing else is known: told
    assert code == 0
    assert "nothing tells whether ids mean the same tokens in" in err
    assert "--target would" in err


def test_a_folder_that_holds_a_draft_of_any_kind_is_kept_and_forced_leaves_one_head(
    vtrim: Vtrim, tmp_path: Path, draft: Path
) -> None:
    new = tmp_path / "new"
    call = ["trim", draft, "--vocab", ids_file(tmp_path, [0, 2]), "-o", "new"]
    names = ["config.json", "model-1.safetensors", "model.safetensors.index.json"]
    for name in [*names, "pytorch_model.bin", "pytorch_model.bin.index.json"]:
        new.mkdir(exist_ok=True)
        (new / name).write_text("old")
        code, _, err = vtrim(*call)
        assert (code, f"holds {name}; --force replaces it" in err) == (2, True)
        code, _, err = vtrim(*call, "--force")
        assert code == 0
        assert (name == "config.json") or f"{name}: removed" in err
        found = sorted(path.name for path in new.iterdir())
        assert found == ["README.md", "config.json", "model.safetensors"]
        for path in new.iterdir():
            path.unlink()


def test_what_is_no_draft_s_folder_is_refused_even_with_force(
    vtrim: Vtrim, tmp_path: Path, draft: Path
) -> None:
    call = ["trim", draft, "--vocab", ids_file(tmp_path, [0, 2]), "--force", "-o"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "vocab.safetensors").write_text("mine")
    Run(tmp_path / "run").update(target={})
    cases = {
        "ids.txt": "is a file; name a folder",
        "full": "holds vocab.safetensors, which engines would read as weights",
        "run": "is a run folder; name another",
        "ids.txt/new": "cannot be made",
    }
    for output, message in cases.items():
        code, out, err = vtrim(*call, output)
        assert (code, out) == (2, ""), output
        assert err.splitlines()[-1].startswith("error: ")
        assert message in err
    assert (tmp_path / "full" / "vocab.safetensors").read_text() == "mine"


def test_the_run_s_target_gives_the_rows_of_new_tokens_where_it_fits(
    vtrim: Vtrim, tmp_path: Path, draft: Path, target: Path, inputs: Path
) -> None:
    data = inputs / "g11_bulk.jsonl"
    assert vtrim("coverage", data, "--target", target, "--run", "a run")[0] == 0
    more = ["--vocab", ids_file(tmp_path, sorted({*IDS, 51})), "--run", "a run", "-o"]
    code, out, err = vtrim("trim", draft, *more, "new")
    assert code == 0, err
    assert f"target: {target}, the run's; another is named with --target" in err
    assert "coverage of the run's counts: " in out
    assert "vtrim eval --draft new --run 'a run'" in err
    vtrim("trim", draft, *more, "named", "--target", target)
    for name in ("model.safetensors", "README.md"):
        files = [tmp_path / folder / name for folder in ("new", "named")]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_a_run_s_target_of_other_sizes_or_another_draft_s_is_left_alone(
    vtrim: Vtrim, tmp_path: Path, draft: Path, target: Path, inputs: Path
) -> None:
    data = inputs / "g11_bulk.jsonl"
    assert vtrim("coverage", data, "--target", target, "--run", "run")[0] == 0
    path = draft / "config.json"
    config = json.loads(path.read_text())
    few = ["--vocab", ids_file(tmp_path, [0, 2]), "--run", "run", "--force", "-o", "new"]
    other = {**config["vtrim"], "target_config_fingerprint": "sha256:other"}
    path.write_text(json.dumps({**config, "vtrim": other}))
    code, _, err = vtrim("trim", draft, *few)
    assert (code, "the run's" in err) == (0, False)
    silent = {"num_target_layers": config["vtrim"]["num_target_layers"]}
    path.write_text(json.dumps({**config, "vtrim": silent}))
    code, _, err = vtrim("trim", draft, *few)
    assert code == 0, err
    assert "the run's, as its sizes fit the draft" in err
    written = json.loads((tmp_path / "new" / "config.json").read_text())
    assert "target" not in written["vtrim"]  # guessed, so not noted as known


def test_base_model_and_licence_of_the_card_stay(vtrim: Vtrim, tmp_path: Path, draft: Path) -> None:
    front = (
        "---\nbase_model:\n- org/base\nlicense: llama3.1\nlicense_link: L\ntags: [x]\n---\n# y\n"
    )
    (draft / "README.md").write_text(front)
    assert vtrim("trim", draft, "--vocab", ids_file(tmp_path, [0, 2]), "-o", "new")[0] == 0
    card = (tmp_path / "new" / "README.md").read_text()
    assert card.startswith(
        "---\nbase_model:\n- org/base\nlibrary_name: vtrim\nlicense: llama3.1\nlicense_link: L\n"
    )
    (draft / "README.md").write_text("no front matter\nlicense: mine\n")
    assert vtrim("trim", draft, "--vocab", ids_file(tmp_path, [0, 2]), "-o", "two")[0] == 0
    assert "license: other\n" in (tmp_path / "two" / "README.md").read_text()
