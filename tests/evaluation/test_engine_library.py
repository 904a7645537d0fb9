"""vLLM in a process of its own: the real worker, with a vLLM that counts on from the prompt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vtrim.decoding.generation import GenerationSettings
from vtrim.errors import InputError
from vtrim.evaluation.engines.reply import EngineCounts
from vtrim.evaluation.engines.vllm_library import LibraryJob, VllmLibrary

SETTINGS = GenerationSettings(
    max_new_tokens=6, stop_ids=frozenset({2}), temperature=0.0, num_draft_tokens=3, seed=0
)
JOB: dict[str, Any] = {
    "target": "some/target",
    "revision": None,
    "trust_remote_code": False,
    "detokenize": False,
    "dtype": "float32",
    "max_model_len": 9,
    "batch_size": 2,
    "seed": 0,
    "speculative": {"method": "eagle3", "model": "draft", "num_speculative_tokens": 3},
    "engines": 2,
    "threads": 1,
    "offline": True,
}


@pytest.fixture
def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> str:
    folder = str(Path(__file__).parents[1] / "fake_library")
    monkeypatch.setenv("PYTHONPATH", folder)
    return folder


def start(folder: Path, *, python: str = sys.executable, timeout: float = 60.0, **job: Any) -> Any:
    whole = LibraryJob(**{**JOB, **job})
    return VllmLibrary(Path(python), whole, folder / "eval" / "vllm.log", timeout)


@pytest.fixture
def engine(tmp_path: Path, fake_vllm: str) -> Iterator[VllmLibrary]:
    assert fake_vllm
    started = start(tmp_path)
    yield started
    started.close()


@pytest.mark.slow
def test_replies_come_with_their_rounds_and_the_counts_of_each_batch(
    engine: VllmLibrary, tmp_path: Path
) -> None:
    info = engine.info
    assert (info.name, info.version, info.lossless) == ("vllm", "0.32.0", True)
    assert info.settings["enforce_eager"] is True
    batch = engine.decode([[4]], SETTINGS, 0)
    (reply,) = batch.replies
    assert reply.tokens == (5, 6, 7, 8, 9, 10)
    assert (reply.with_first, reply.rounds) == (1, 3)  # 1, then 2, 2, 1
    assert (reply.prefill_seconds, reply.seconds) == (0.5, 2.0)
    both = engine.decode([[4], [20, 21, 22, 23, 24]], SETTINGS, 0)
    assert [one.num_tokens for one in both.replies] == [6, 4]  # 9 positions, 5 of them the prompt's
    assert isinstance(both.counts, EngineCounts)
    assert both.counts.by_position == (both.counts.rounds, 0, 0)
    assert "hello on stdout" in (tmp_path / "eval" / "vllm.log").read_text()
    with pytest.raises(InputError, match=r"stopped while decoding: RuntimeError: unlucky\. All"):
        engine.decode([[13]], SETTINGS, 0)
    with pytest.raises(InputError, match="stopped while decoding"):
        engine.decode([[4]], SETTINGS, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("fake_vllm")
def test_a_vllm_that_does_not_take_the_job_says_why_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"loading: ValueError: float16 is not supported\. All"
    ) as found:
        start(tmp_path, dtype="float16")
    assert "\n" not in str(found.value)


def test_a_python_without_vllm_or_none_at_all_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "bin" / "python"
    with pytest.raises(InputError, match=r"--engine-python .*: cannot be run"):
        start(tmp_path, python=str(missing))
    plain = tmp_path / "python"
    plain.write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'vllm'\" >&2\nexit 1\n"
    )
    plain.chmod(0o755)
    with pytest.raises(InputError, match=r"no vLLM there.*--engine-python.*--server"):
        start(tmp_path, python=str(plain))


def test_a_vllm_that_never_answers_is_given_up(tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 60\n")
    silent.chmod(0o755)
    with pytest.raises(InputError, match=r"nothing came for 0\.3 s while loading"):
        start(tmp_path, python=str(silent), timeout=0.3)
