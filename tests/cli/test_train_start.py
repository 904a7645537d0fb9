"""``vtrim train-draft --init-from`` from its command line to a fine-tuned draft."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from vtrim.artifacts import Run, fingerprint_json
from vtrim.cli.main import main
from vtrim.cli.train_call import TrainCall
from vtrim.models.hub import load_config
from vtrim.vocab import DraftVocab

IDS = [1, 2, 3, 5, 8, 9, 10, 11, 13, 14, 17, 20, 21, 22, 23]
Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def counted(tiny_target: Path, tiny_chat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder that coverage has been through."""
    run = tmp_path_factory.mktemp("start") / "run"
    done("coverage", tiny_chat, "--target", tiny_target, "--run", run)
    return run


@pytest.fixture
def run(counted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(counted, tmp_path / "run"))


@pytest.fixture
def draft(tiny_target: Path, random_draft: Callable[..., Path]) -> Path:
    known = {"target_config_fingerprint": fingerprint_json(load_config(str(tiny_target)))}
    return random_draft(tiny_target, ids=IDS, provenance=known)


def call_of(run: Path, draft: Path | None, vocab: str | None = None) -> TrainCall:
    return TrainCall(
        settings={},
        run=Run(run),
        target=None,
        vocab=vocab,
        init_from=draft,
        aux_layers=None,
        draft_config=None,
        deepspeed_config=None,
        restart=False,
        device=None,
        offline=True,
    )


def test_the_vocabulary_is_the_one_typed_then_the_runs_then_the_drafts(
    run: Path, draft: Path, tmp_path: Path
) -> None:
    own, other = DraftVocab.of(IDS, 32), DraftVocab.of(range(20), 32)
    assert call_of(run, draft).draft_vocab().fingerprint == own.fingerprint
    other.save(tmp_path / "other.safetensors")
    typed = str(tmp_path / "other.safetensors")
    assert call_of(run, draft, typed).draft_vocab().fingerprint == other.fingerprint
    assert call_of(run, draft, "full").draft_vocab().is_full
    done("search", "--run", run, "--cmin", "0.8")
    chosen = DraftVocab.load(run / "vocab.safetensors")
    assert chosen.fingerprint != own.fingerprint
    assert call_of(run, draft).draft_vocab().fingerprint == chosen.fingerprint
    assert call_of(run, draft, "draft").draft_vocab().fingerprint == own.fingerprint


def test_layers_come_from_the_draft(run: Path, draft: Path) -> None:
    config = json.loads((draft / "config.json").read_text())
    config["eagle_aux_hidden_state_layer_ids"] = [1, 3, 6]
    (draft / "config.json").write_text(json.dumps(config))
    assert call_of(run, draft).aux_layer_ids == (1, 3, 6)
    assert call_of(run, None).aux_layer_ids is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--init-from", "nowhere"], ["nowhere", "no such draft folder"]),
        (["--vocab", "draft"], ["--vocab draft", "--init-from DRAFT, which was not given"]),
        (["--init-from", "DRAFT", "--head", "target"], ["--head target", "--head frozen"]),
        (["--init-from", "DRAFT", "--aux-layers", "1,2,3"], ["1,2,3", "2,4,5"]),
        (["--init-from", "DRAFT", "--draft-config", "SHAPE"], ["'head_dim' is 16", "has 8"]),
        (["--init-from", "OTHER"], ["another target", "64 LM head rows", "32"]),
    ],
)
def test_what_cannot_go_on_is_refused_before_any_model_is_loaded(
    run: Path,
    draft: Path,
    inputs: Path,
    tmp_path: Path,
    random_draft: Callable[..., Path],
    vtrim: Vtrim,
    options: list[str],
    words: list[str],
) -> None:
    (tmp_path / "shape.json").write_text('{"head_dim": 16}')
    names = {"DRAFT": draft, "SHAPE": tmp_path / "shape.json"}
    if "OTHER" in options:
        names["OTHER"] = random_draft(inputs / "target_headdim", ids=IDS)
    code, out, err = vtrim("train-draft", "--run", run, *(names.get(o, o) for o in options))
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert err.startswith("error: ")
    assert all(word in err for word in words), err
    assert not (run / "train").exists()


VTRIM = Path(sys.executable).with_name("vtrim")
TRAIN = ["--micro-batch", "4", "--ttt-steps", "3", "--dtype", "fp32", "--eval-every", "10"]
TRAIN += ["--eval-samples", "16"]


def done(*arguments: object) -> None:
    """Runs a command in this process."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert ended.value.code in (None, 0)


def train(*arguments: object, code: int = 0) -> tuple[dict[str, Any], str]:
    """Trains in a process of its own: the object of --json, and what was told."""
    command = [str(VTRIM), "train-draft", *map(str, arguments), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert ended.returncode == code, ended.stderr
    return json.loads(ended.stdout or "{}"), ended.stderr


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder on stories260k with a draft of 40 steps."""
    folder = tmp_path_factory.mktemp("trained")
    rows, run = folder / "chat.jsonl", folder / "run"
    with (data / "chat_messages.jsonl").open() as file:
        rows.write_text("".join(itertools.islice(file, 160)))
    target = data / "model" / "stories260k"
    done("coverage", rows, "--target", target, "--max-length", 128, "--run", run)
    done("search", "--run", run, "--cmin", "0.9")
    train("--run", run, *TRAIN, "--lr", "3e-3", "--max-steps", "40")
    return run


def checks(run: Path) -> dict[int, float]:
    """The joint prefix at each step that was checked."""
    lines = (run / "train" / "metrics.jsonl").read_text().splitlines()
    return {e["step"]: e["joint_prefix"] for e in map(json.loads, lines) if e["kind"] == "heldout"}


@pytest.mark.slow
def test_the_first_check_is_the_drafts_own_and_a_worse_draft_never_takes_its_place(
    trained: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    known = json.loads((run / "run.json").read_text())["steps"]["train-draft"]
    wild = ["--lr", "0.9", "--max-steps", "10", "--restart", "--init-from", run / "draft"]
    result, told = train("--run", run, *TRAIN, *wild)
    assert known["heldout_joint_prefix"] > 1.05
    assert checks(run)[0] == pytest.approx(known["heldout_joint_prefix"], abs=0.01)  # by bf16
    assert checks(run)[10] < checks(run)[0] == result["heldout_joint_prefix"]
    assert "is this run's own draft" in told
    before, after = (load_file(place / "draft" / "model.safetensors") for place in (trained, run))
    assert all(bool((before[name] == after[name]).all()) for name in before)


@pytest.mark.slow
def test_a_trimmed_draft_is_tuned_resumed_and_named_in_what_is_written(
    trained: Path, tmp_path: Path
) -> None:
    run, small = Path(shutil.copytree(trained, tmp_path / "run")), tmp_path / "small"
    shutil.rmtree(run / "train")
    done("search", "--run", run, "--cmin", "0.8", "--kmax", "120")
    k = DraftVocab.load(run / "vocab.safetensors").size
    done("trim", trained / "draft", "--k", k, "--output", small, "--run", run)
    more = [*TRAIN, "--lr", "1e-3", "--max-steps", "20", "--init-from", small]
    tuned, _ = train("--run", run, *more)
    found = checks(run)
    assert sorted(found) == [0, 10, 20]
    assert tuned["heldout_joint_prefix"] == max(found.values())
    facts = json.loads((run / "draft" / "config.json").read_text())["vtrim"]["init_from"]
    assert facts == tuned["init_from"]
    assert (facts["draft"], facts["kept"], facts["dropped"], facts["added"]) == (
        str(small),
        k,
        0,
        0,
    )
    assert "training went on from the draft" in (run / "draft" / "README.md").read_text()

    _, told = train("--run", run, *more)
    assert "already finished at step 20" in told
    _, told = train("--run", run, *more[:-1], trained / "draft", code=2)
    assert "--init-from differs" in told


@pytest.mark.slow
def test_another_vocabulary_resizes_the_head_and_says_how_to_keep_it(
    trained: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    typed = [*TRAIN, "--max-steps", "1", "--restart", "--init-from", trained / "draft"]
    result, told = train("--run", run, *typed, "--vocab", "full", "--head", "frozen")
    old, new = (load_file(place / "draft" / "model.safetensors") for place in (trained, run))
    k = old["lm_head.weight"].shape[0]
    assert (result["init_from"]["kept"], result["init_from"]["added"]) == (k, 512 - k)
    assert f"{k:,} head rows kept, 0 cut, {512 - k:,} made from the target's head" in told
    kept = old["t2d"].nonzero().flatten()
    assert bool((new["lm_head.weight"][kept] == old["lm_head.weight"]).all()), "frozen"
