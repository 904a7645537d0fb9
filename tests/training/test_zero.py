"""Several real processes on a CPU: same weights as one process, however they are started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file

from vtrim.training.checkpoint import newest_whole
from vtrim.vocab import DraftVocab

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "deepspeed"
STEPS = 12  # of 7 in a pass: in the second one the states come from memory
OPTIONS = ["--micro-batch", "8", "--ttt-steps", "3", "--lr", "3e-3", "--dtype", "fp32"]
TRAIN = ["train-draft", "--max-steps", str(STEPS), "--eval-every", str(STEPS), *OPTIONS, "--json"]
TOLERANCE = 1e-6
"""Largest difference of a weight. Measured after these 12 steps: 0 to 1.2e-7."""


def _environment(run: Path) -> dict[str, str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    known = {"VTRIM_RUN": str(run), "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "PATH": path}
    return {**os.environ, **known}


def call(run: Path, *command: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs a command for that run folder; it must end with ``code``."""
    done = subprocess.run(
        [str(BIN / str(command[0])), *map(str, command[1:])],
        env=_environment(run), capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == code, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def counted(tiny_target: Path, tiny_chat: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after coverage and search."""
    run = tmp_path_factory.mktemp("run") / "counted"
    call(run, "vtrim", "coverage", tiny_chat, "--target", tiny_target)
    call(run, "vtrim", "search", "--alpha", "0.6", "--cmin", "0.8")
    return run


@pytest.fixture
def run(counted: Path, tmp_path: Path) -> Path:
    """A copy of the counted run folder."""
    return Path(shutil.copytree(counted, tmp_path / "run"))


@pytest.fixture(scope="module")
def alone(counted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process that accumulates two micro-batches a step."""
    run = Path(shutil.copytree(counted, tmp_path_factory.mktemp("one") / "run"))
    call(run, "vtrim", *TRAIN, "--grad-accum", "2", "--zero-stage", "0")
    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    """The weights that the run kept, in fp32."""
    return load_file(run / "train" / "best" / f"step-{STEPS:08d}.safetensors")


def losses(run: Path) -> list[tuple[str, int, float]]:
    """(kind, step, loss) of the run's log."""
    lines = (run / "train" / "metrics.jsonl").read_text().splitlines()
    return [(e["kind"], e["step"], e["loss"]) for e in map(json.loads, lines)]


def assert_same(run: Path, alone: Path) -> None:
    """The two runs ended with the same weights, by the same losses."""
    one, two = weights(alone), weights(run)
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        difference = float((tensor - two[name]).abs().max())
        assert difference <= TOLERANCE, f"{name} differs by {difference:.2e}"
    for (kind, step, left), (_, _, right) in zip(losses(alone), losses(run), strict=True):
        assert left == pytest.approx(right, rel=1e-5), f"{kind} loss at step {step}"


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_two_processes_typed_by_hand_end_with_the_weights_of_one(
    run: Path, alone: Path, stage: int
) -> None:
    launcher = ["deepspeed", "--num_gpus", "2", "--module", "vtrim"]
    done = call(run, *launcher, *TRAIN, "--zero-stage", stage)
    assert '"heldout_joint_prefix"' in done.stdout  # process 0 prints the result itself
    assert_same(run, alone)


def test_two_processes_on_packed_noisy_states_end_with_the_weights_of_one(
    run: Path, counted: Path, tmp_path: Path
) -> None:
    other = "--packing --max-length 96 --noise 0.2 --divisor bt --oov keep --micro-batch 2"
    line = ["vtrim", *TRAIN, *other.split(), "--zero-stage", "1"]
    one = Path(shutil.copytree(counted, tmp_path / "one"))
    call(one, *line, "--grad-accum", "2")
    call(run, *line, "--num-gpus", "2")
    assert_same(run, one)


def test_a_hostfile_of_this_machine_starts_its_slots(run: Path, alone: Path) -> None:
    hosts = run / "hosts"
    hosts.write_text("localhost slots=2\n")
    done = call(run, "vtrim", *TRAIN, "--zero-stage", "2", "--hostfile", hosts)
    assert json.loads(done.stdout)["steps"] == STEPS
    assert_same(run, alone)


def test_torchrun_starts_the_processes_too(run: Path, alone: Path) -> None:
    # the run folder by $VTRIM_RUN: torchrun takes --run for a short form of an option of its own
    launcher = ["torchrun", "--standalone", "--nproc-per-node", "2", "-m", "vtrim"]
    call(run, *launcher, *TRAIN, "--zero-stage", "1")
    assert_same(run, alone)


def test_a_number_of_processes_that_the_launcher_did_not_start_is_refused(run: Path) -> None:
    launcher = ["torchrun", "--standalone", "--nproc-per-node", "1", "-m", "vtrim"]
    done = call(run, *launcher, *TRAIN, "--num-gpus", "3", code=1)
    assert "error: --num-gpus 3, but the launcher started 1 processes" in done.stderr


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.json")), ids=lambda path: path.stem)
def test_every_deepspeed_recipe_trains_a_few_steps(run: Path, recipe: Path) -> None:
    few = ["train-draft", "--max-steps", "3", *OPTIONS[:-2], "--deepspeed-config", recipe, "--json"]
    result = json.loads(call(run, "vtrim", *few).stdout)
    assert result["steps"] == 3
    assert result["bad_steps"] == 0
    settings = json.loads((run / "train" / "settings.json").read_text())["settings"]
    assert settings["dtype"] == "bf16"
    assert f"zero{settings['zero_stage']}" == recipe.stem.removesuffix("_offload")


def test_a_users_optimizer_scheduler_and_monitor_are_honoured(run: Path) -> None:
    config = run / "ds.json"
    csv = run / "csv"
    config.write_text(
        json.dumps(
            {
                "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
                "scheduler": {
                    "type": "WarmupDecayLR",
                    "params": {
                        "total_num_steps": "auto",
                        "warmup_num_steps": 2,
                        "warmup_max_lr": "auto",
                        "warmup_type": "linear",
                    },
                },
                "csv_monitor": {"enabled": True, "output_path": str(csv), "job_name": "job"},
                "bf16": {"enabled": False},
                "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
            }
        )
    )
    few = ["train-draft", "--max-steps", "6", "--ttt-steps", "2", "--deepspeed-config", config]
    call(run, "vtrim", *few, "--json")
    lines = map(json.loads, (run / "train" / "metrics.jsonl").read_text().splitlines())
    rates = [entry["lr"] for entry in lines if entry["kind"] == "train"]
    # DeepSpeed's schedule to the letter: from 0 in 2 steps to the peak, then down to 0 at step 6
    assert rates == pytest.approx([0.0, 0.0, 0.05, 0.1, 0.075, 0.05])
    assert list((csv / "job").glob("*.csv"))


@pytest.mark.parametrize(
    "options",
    [
        ["--zero-stage", "3", "--dtype", "fp32"],
        ["--zero-stage", "1", "--dtype", "bf16", "--optimizer", "muon"],
    ],
    ids=["adamw", "muon"],
)
def test_a_frozen_head_stays_the_targets_and_the_rest_learns(
    run: Path, tiny_target: Path, options: list[str]
) -> None:
    few = ["train-draft", "--max-steps", "4", "--eval-every", "4", "--ttt-steps", "2"]
    call(run, "vtrim", *few, "--lr", "1e-2", "--head", "frozen", *options)
    trained = load_file(run / "train" / "best" / "step-00000004.safetensors")
    ids = torch.from_numpy(DraftVocab.load(run / "vocab.safetensors").ids)
    rows = load_file(tiny_target / "model.safetensors")["lm_head.weight"][ids]
    dtype = torch.bfloat16 if "bf16" in options else torch.float32
    assert torch.equal(trained["lm_head.weight"].float(), rows.to(dtype).float())
    assert trained["midlayer.mlp.down_proj.weight"].any()  # it began at zero


class Running:
    """A run of two processes that goes on until it is stopped."""

    def __init__(self, run: Path) -> None:
        self.run = run
        options = ["--max-steps", "1000000", "--save-every", "3", "--num-gpus", "2", *OPTIONS]
        self.process = subprocess.Popen(
            [str(BIN / "vtrim"), "train-draft", *options],
            env=_environment(run), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.ranks: dict[int, psutil.Process] = {}

    def wait_for_step(self, step: int) -> None:
        """Returns when that step is done; finds the training processes."""
        log, deadline = self.run / "train" / "metrics.jsonl", time.monotonic() + 400
        while not (log.exists() and f'"step": {step},' in log.read_text()):
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline, "training did not get that far"
            time.sleep(0.05)
        for child in psutil.Process(self.process.pid).children(recursive=True):
            found = [word for word in child.cmdline() if word.startswith("--local_rank=")]
            if found:
                self.ranks[int(found[0].split("=")[1])] = child

    def end(self) -> str:
        """Its stderr, once it and all training processes have ended."""
        _, err = self.process.communicate(timeout=200)
        gone, alive = psutil.wait_procs(self.ranks.values(), timeout=60)
        assert not alive, alive
        assert len(gone) == 2
        return err


@pytest.mark.parametrize("rank", [0, 1])
def test_a_killed_process_stops_all_and_the_message_names_it(run: Path, rank: int) -> None:
    training = Running(run)
    training.wait_for_step(7)
    killed = training.ranks[rank]
    killed.send_signal(signal.SIGKILL)
    errors = [line for line in training.end().splitlines() if line.startswith("error: ")]
    assert training.process.returncode == 1
    assert len(errors) == 1, errors
    assert f"process {rank} of 2 (pid {killed.pid}" in errors[0]
    assert "killed by SIGKILL" in errors[0]
    checkpoint, _, problems = newest_whole(run / "train" / "checkpoints")
    assert checkpoint is not None
    assert problems == []


def test_a_terminated_run_of_two_saves_and_ends_as_interrupted(run: Path) -> None:
    training = Running(run)
    training.wait_for_step(4)
    training.process.send_signal(signal.SIGTERM)
    err = training.end()
    assert training.process.returncode == 130
    assert "Traceback" not in err
    checkpoint, listing, _ = newest_whole(run / "train" / "checkpoints")
    assert checkpoint is not None
    assert listing["state"]["step"] == max(step for _, step, _ in losses(run))


def test_processes_whose_starter_is_killed_do_not_go_on(run: Path) -> None:
    training = Running(run)
    training.wait_for_step(4)
    training.process.kill()
    assert "started the processes, died" in training.end()


SAME_STATES = """
import sys
import torch
import torch.distributed as dist
from vtrim.models.target import load_target
from vtrim.training.launch import join_group, leave_group
from vtrim.training.sharded import spread_target

join_group("cpu")
target = load_target(sys.argv[1], dtype=torch.float32)
ids = (torch.arange(40).view(2, 20) + dist.get_rank()) % target.vocab_size
some = torch.tensor([3, 1, 4])
def read():
    with torch.no_grad():
        out = target.forward(ids)
        return (out.hidden, out.aux, target.logits(out.hidden), target.logits_of(out.hidden, some),
                target.logits_between(out.hidden, 2, 9), target.embedding[some],
                target.head_weight[some], target.final_norm_scale)
whole = read()
numbers = sum(p.numel() for p in target.layers.parameters())
steps = spread_target(target, print)
held = sum(p.ds_tensor.numel() for p in target.layers.parameters())
assert held <= numbers / 2 + 64, (held, numbers)
for _ in range(2 + dist.get_rank()):  # not equally often: the other process forwards along
    for left, right in zip(whole, read(), strict=True):
        assert torch.allclose(left, right, rtol=0, atol=1e-5)
steps.catch_up()
leave_group()
print("the same")
"""


def _same_states(target: Path, tmp_path: Path) -> None:
    script = tmp_path / "same.py"
    script.write_text(SAME_STATES)
    done = call(tmp_path, "torchrun", "--standalone", "--nproc-per-node", "2", script, target)
    assert done.stdout.count("the same") == 2, done.stdout


def test_a_spread_target_gives_the_states_of_a_whole_one(tiny_target: Path, tmp_path: Path) -> None:
    _same_states(tiny_target, tmp_path)


def test_a_spread_target_with_a_tied_head_gives_its_states_too(data: Path, tmp_path: Path) -> None:
    _same_states(data / "model" / "stories260k", tmp_path)


def test_training_with_a_spread_target_ends_with_the_same_weights(run: Path, alone: Path) -> None:
    done = call(run, "vtrim", *TRAIN, "--zero-stage", "2", "--num-gpus", "2", "--shard-target")
    assert "spread over 2 process(es)" in done.stderr
    assert_same(run, alone)
