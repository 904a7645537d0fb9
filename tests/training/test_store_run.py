"""``vtrim train-draft --cache-features`` on a real model: written by one run, read by the next."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

WITHOUT_DECODER = """
import sys
from vtrim.cli.main import main
from vtrim.models.target import Target

forward = Target.forward

def only_at_load(self, *args, **kwargs):
    caller = sys._getframe(1).f_code.co_name
    assert caller == "check", f"the target's decoder ran in {caller}"
    return forward(self, *args, **kwargs)

Target.forward = only_at_load
main(sys.argv[1:])
"""
WORDS = ["once", "upon", "a", "time", "there", "was", "little", "girl", "named", "Lily", "dog"]


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A run folder of stories260k that coverage and search have been through."""
    folder = tmp_path_factory.mktemp("store_run")
    draw = random.Random(1)
    rows = [
        {
            "messages": [
                {"role": "user", "content": " ".join(draw.choices(WORDS, k=5))},
                {"role": "assistant", "content": " ".join(draw.choices(WORDS, k=3 + index % 20))},
            ]
        }
        for index in range(60)
    ]
    chat = folder / "chat.jsonl"
    chat.write_text("".join(json.dumps(row) + "\n" for row in rows))
    target = str(data / "model" / "stories260k")
    vtrim("-m", "vtrim", "coverage", str(chat), "--target", target, "--run", str(folder / "run"))
    vtrim("-m", "vtrim", "search", "--run", str(folder / "run"))
    return folder


def vtrim(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def train(folder: Path, cache: Path, *options: str, decoder: bool = True) -> dict[str, Any]:
    """Trains anew; the printed result, with the logged losses and what was said."""
    call = ("-m", "vtrim") if decoder else ("-c", WITHOUT_DECODER)
    run = str(folder / "run")
    common = ("--run", run, "--max-steps", "12", "--dtype", "fp32", "--restart", "--json")
    done = vtrim(*call, "train-draft", *common, "--cache-features", str(cache), *options)
    log = (folder / "run" / "train" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in log]
    return {**json.loads(done.stdout), "losses": losses, "notes": done.stderr}


def test_the_second_run_trains_the_same_draft_without_the_targets_decoder(counted: Path) -> None:
    cache = counted / "cache"
    first = train(counted, cache, "--ttt-steps", "3", "--epochs", "1", "--max-steps", "100")
    assert "0 samples cached" in first["notes"]
    second = train(
        counted, cache, "--ttt-steps", "3", "--epochs", "1", "--max-steps", "100", decoder=False
    )
    assert "60 samples cached" in second["notes"]
    assert "blocks are freed" in second["notes"]
    assert second["losses"] == pytest.approx(first["losses"], abs=1e-5)
    assert second["heldout_joint_prefix"] == pytest.approx(first["heldout_joint_prefix"])
    other = train(counted, cache, "--vocab", "full", "--mask-alignment", "eagle", decoder=False)
    assert other["steps"] == 12


def test_two_processes_read_what_one_wrote_and_add_shards_of_their_own(counted: Path) -> None:
    cache = counted / "cache2"
    train(counted, cache, "--max-steps", "3")  # a part of the samples
    before = len(list(cache.glob("shard-*")))
    train(counted, cache, "--num-gpus", "2", "--epochs", "1", "--max-steps", "100")
    paths = list(cache.glob("shard-*"))
    assert len(paths) == before + 2
    keys = [set(_samples(path)) for path in paths]
    assert len(set.union(*keys)) == 60


def _samples(path: Path) -> dict[str, Any]:
    header = path.read_bytes()
    length = int.from_bytes(header[:8], "little")
    told = json.loads(json.loads(header[8 : 8 + length])["__metadata__"]["vtrim"])
    samples: dict[str, Any] = told["samples"]
    return samples
