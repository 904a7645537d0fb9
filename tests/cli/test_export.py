"""``vtrim export`` and ``vtrim import`` from the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from vtrim.artifacts import Run, fingerprint_json

IDS = [2, 3, 5, 8, 9, 10, 11, 13]
LAYOUTS = ["portable", "sglang", "vllm", "speculators", "eagle", "trtllm"]
Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture
def vtrim(vtrim: Vtrim, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Vtrim:
    """Runs a command in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VTRIM_RUN", raising=False)
    monkeypatch.setenv("COLUMNS", "400")
    return vtrim


@pytest.fixture
def draft(tiny_target: Path, random_draft: Callable[..., Path]) -> Path:
    from vtrim.models.hub import load_config

    provenance = {
        "target": str(tiny_target),
        "target_config_fingerprint": fingerprint_json(load_config(str(tiny_target))),
    }
    return random_draft(tiny_target, ids=IDS, provenance=provenance)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def result(outcome: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = outcome
    assert code == 0, err
    value: dict[str, Any] = json.loads(out)
    return value


def test_every_layout_goes_out_and_comes_back_as_it_was(
    vtrim: Vtrim, tmp_path: Path, draft: Path
) -> None:
    for layout in LAYOUTS:
        out = result(vtrim("export", draft, "--to", layout, "-o", f"{layout}-eagle3", "--json"))
        assert (out["to"], out["k"], out["target_vocab_size"]) == (layout, 8, 32)
        assert sorted(out["files"]) == sorted(contents(tmp_path / f"{layout}-eagle3"))
        back = result(vtrim("import", f"{layout}-eagle3", "-o", f"back-{layout}", "--json"))
        assert back["draft_fingerprint"].startswith("sha256:")
        assert contents(tmp_path / f"back-{layout}") == contents(draft), layout


def test_an_export_says_what_each_engine_makes_of_it(vtrim: Vtrim, draft: Path) -> None:
    out = result(vtrim("export", draft, "--to", "speculators", "-o", "new-eagle3", "--json"))
    assert out["engines"]["vLLM"] == "loads"
    assert out["engines"]["SGLang"] == "refuses"
    code, out_text, err = vtrim("export", draft, "--to", "portable", "-o", "two-eagle3")
    assert (code, "two-eagle3: portable layout, 8 of 32 tokens" in out_text) == (0, True)
    assert "engines: vLLM loads, SGLang loads, TensorRT-LLM loads, EAGLE refuses" in err


def test_speculators_names_the_target_in_full(
    vtrim: Vtrim, tmp_path: Path, draft: Path, tiny_target: Path
) -> None:
    result(vtrim("export", draft, "--to", "speculators", "-o", "new", "--json"))
    config = json.loads((tmp_path / "new" / "config.json").read_text())
    verifier = config["speculators_config"]["verifier"]
    assert verifier == {
        "name_or_path": str(tiny_target.resolve()),
        "architectures": ["LlamaForCausalLM"],
    }
    own = json.loads((draft / "config.json").read_text())
    del own["vtrim"]["target"]
    (draft / "config.json").write_text(json.dumps(own))
    code, out, err = vtrim("export", draft, "--to", "speculators", "-o", "three")
    assert (code, out) == (2, "")
    assert "Name it with --target" in err
    assert not (tmp_path / "three").exists()
    result(vtrim(*f"export {draft} --to speculators -o three --json --target".split(), tiny_target))


def test_the_run_s_draft_is_the_default(vtrim: Vtrim, tmp_path: Path, draft: Path) -> None:
    run = Run(tmp_path / "vtrim-run")
    run.draft.mkdir(parents=True)
    for path in draft.iterdir():
        (run.draft / path.name).write_bytes(path.read_bytes())
    out = result(vtrim("export", "--to", "vllm", "-o", "new", "--json"))
    assert out["draft"] == str(Path("vtrim-run") / "draft")
    checked = result(vtrim("export", "--check", run.draft, "--json"))
    assert checked["vtrim"]["verdict"] == "loads"


def test_the_check_shows_verdicts_reasons_and_remedies(
    vtrim: Vtrim, draft: Path, tiny_target: Path
) -> None:
    tensors = load_file(draft / "model.safetensors")
    tensors["[extra]"] = tensors["norm.weight"].clone()  # data is never markup
    save_file(tensors, draft / "model.safetensors")
    code, out, _ = vtrim("export", "--check", draft, "--target", tiny_target)
    assert code == 0
    told = " ".join(out.replace("│", " ").split())  # a narrow terminal breaks the lines
    for words in ("[extra] is no tensor", "of an EAGLE-3 draft:", "-> remove it"):
        assert words in told
    checked = result(vtrim("export", "--check", draft, "--json"))
    assert checked["target"] == str(tiny_target)  # the draft names it, and it is here
    assert checked["engines"]["vLLM"]["verdict"] == "refuses"
    assert checked["engines"]["SGLang"]["verdict"] == "silently differs"
    assert checked["vtrim"]["verdict"] == "refuses"
    first = checked["engines"]["vLLM"]["findings"][0]
    assert set(first) == {"verdict", "what", "remedy", "evidence"}


def test_launch_commands_are_what_a_shell_takes(vtrim: Vtrim, draft: Path) -> None:
    launch = result(vtrim("export", draft, "--show-launch", "--num-draft-tokens", 4, "--json"))[
        "launch"
    ]
    words = shlex.split(launch["vLLM"].replace("\\\n", " "))
    assert json.loads(words[words.index("--speculative-config") + 1]) == {
        "method": "eagle3",
        "model": str(draft.resolve()),
        "num_speculative_tokens": 4,
        "draft_tensor_parallel_size": 1,
    }
    words = shlex.split(launch["SGLang"].replace("\\\n", " "))
    assert words[words.index("--speculative-num-steps") + 1] == "4"
    assert words[words.index("--speculative-num-draft-tokens") + 1] == "5"
    assert "max_draft_len: 4" in launch["TensorRT-LLM"]
    assert "--total-token 60" in launch["EAGLE"]
    code, out, _ = vtrim("export", draft, "--to", "speculators", "-o", "new", "--show-launch")
    assert code == 0
    assert f"vllm serve {Path('new').resolve()}\n" in out


def test_states_of_its_own_go_into_trt_s_yaml(vtrim: Vtrim, tmp_path: Path, draft: Path) -> None:
    key, path = "eagle_aux_hidden_state_layer_ids", draft / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: [1, 4, 7]}))
    line = "eagle3_layers_to_capture: [0, 3, 6]"
    launch = result(vtrim("export", draft, "--show-launch", "--json"))["launch"]
    assert line in launch["TensorRT-LLM"]
    assert vtrim("export", draft, "--to", "trtllm", "-o", "new")[0] == 0
    assert line in (tmp_path / "new" / "trtllm.yaml").read_text()


def test_an_import_tells_where_the_draft_came_from_and_what_was_changed(
    vtrim: Vtrim, tmp_path: Path, draft: Path, tiny_target: Path
) -> None:
    config = json.loads((draft / "config.json").read_text())
    for name in ("vtrim", "head_dim"):
        del config[name]
    config |= {"architectures": ["Eagle3LlamaForCausalLM"], "max_position_embeddings": 64}
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    save_file(load_file(draft / "model.safetensors"), foreign / "model.safetensors")
    (foreign / "config.json").write_text(json.dumps(config | {"rope_theta": 1e6}))
    code, out, err = vtrim("import", foreign, "-o", "new", "--target", tiny_target, "--json")
    assert code == 0, err
    made = json.loads(out)
    assert (made["layout"], made["rope_theta"]) == ("AngelSlim", 1e6)
    assert "the trainer of AngelSlim rotates by base 10,000" in err
    assert "max_position_embeddings 64 raised to the target's 128" in err
    written = json.loads((tmp_path / "new" / "config.json").read_text())
    assert written["architectures"] == ["LlamaForCausalLMEagle3"]
    assert written["max_position_embeddings"] == 128
    assert written["vtrim"]["target"] == str(tiny_target)
    assert written["vtrim"]["imported"]["layout"] == "AngelSlim"
    base = vtrim("import", foreign, "-o", "two", "--rope-theta", 10000, "--json")
    assert result(base)["rope_theta"] == 10000
    checked = result(vtrim("export", "--check", "new", "--json"))
    assert checked["engines"]["SGLang"]["verdict"] == "loads"


def test_what_cannot_be_exported_or_imported_is_refused_in_one_line(
    vtrim: Vtrim, tmp_path: Path, draft: Path, tiny_target: Path
) -> None:
    (tmp_path / "ids.txt").write_text("1")
    new = ["-o", "new"]
    cases = [
        (["export", draft], "name the layout with --to and the folder to write with --output"),
        (["export", draft, "--to", "vllm"], "name the layout with --to and the folder"),
        (["export", draft, *new], "name the layout with --to and the folder"),
        (["export", draft, "--to", "gguf", *new], "--to gguf: no such layout. Known: portable"),
        (["export", draft, "--check", draft], "--check DIR: only looks"),
        (["export", "--check", draft, "--to", "vllm", *new], "--check DIR: only looks"),
        (["export", "--check", "nothing"], "nothing: no such draft folder"),
        (["export", "none", "--to", "vllm", *new], "none: no such draft folder"),
        (["export", "--to", "vllm", *new], "vtrim-run/draft: no such draft folder"),
        (["export", tiny_target, "--to", "vllm", *new], "not the plain EAGLE-3 draft"),
        (["export", draft, "--to", "vllm", "-o", draft], "is the draft itself"),
        (["export", draft, "--to", "vllm", "-o", "ids.txt"], "is a file; name a folder"),
        (["export", draft, "--to", "vllm", *new, "--num-draft-tokens", 0], "num-draft-tokens"),
        (["import", "none", *new], "none: no such draft folder"),
        (["import", draft, *new, "--rope-theta", 0], "--rope-theta 0: must be above 0"),
        (["import", draft, *new, "--aux-layers", "1,2"], "give three numbers"),
        (["import", tiny_target, *new], "not the plain EAGLE-3 draft"),
    ]
    for arguments, message in cases:
        code, out, err = vtrim(*arguments)
        assert (code, out) == (2, ""), arguments
        assert err.splitlines()[-1].startswith("error: "), err
        assert message in err, (arguments, err)
    assert not (tmp_path / "new").exists()


def test_a_draft_in_the_way_is_replaced_only_when_asked_and_leaves_nothing_behind(
    vtrim: Vtrim, tmp_path: Path, draft: Path
) -> None:
    assert vtrim("export", draft, "--to", "trtllm", "-o", "new")[0] == 0
    code, _, err = vtrim("export", draft, "--to", "eagle", "-o", "new")
    assert (code, "--force replaces it" in err) == (2, True)
    assert vtrim("export", draft, "--to", "eagle", "-o", "new", "--force")[0] == 0
    assert set(contents(tmp_path / "new")) == {"README.md", "config.json", "pytorch_model.bin"}
    assert vtrim("export", draft, "--to", "vllm", "-o", "new", "--force")[0] == 0
    assert set(contents(tmp_path / "new")) == {"README.md", "config.json", "model.safetensors"}


def test_a_launch_without_a_target_is_refused(vtrim: Vtrim, draft: Path) -> None:
    own = json.loads((draft / "config.json").read_text())
    del own["vtrim"]["target"]
    (draft / "config.json").write_text(json.dumps(own))
    code, out, err = vtrim("export", draft, "--show-launch")
    assert (code, out) == (2, "")
    assert "--show-launch: name the target with --target" in err
