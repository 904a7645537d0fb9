"""docs/results: each page is what its script writes from what was recorded."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = PROJECT / "benchmarks" / "results"
PUBLISHED = sorted(path.stem for path in (PROJECT / "docs" / "results").glob("*.md"))


@pytest.fixture
def build() -> Any:
    """The script that builds all pages."""
    spec = importlib.util.spec_from_file_location("build_results", RESULTS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_page_comes_out_of_its_record_byte_for_byte(name: str, build: Any) -> None:
    assert build.main([name, "--check"]) == 0


def test_a_page_that_a_hand_has_changed_is_named(
    build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (PROJECT / "docs" / "results" / "training.md").read_text(encoding="utf-8")
    (tmp_path / "training.md").write_text(text.replace("1.39", "1.93"), encoding="utf-8")
    monkeypatch.setattr(build, "DOCS", tmp_path)
    assert build.main(["training", "--check"]) == 1
    assert "changed or failed: training" in capsys.readouterr().err


def test_a_page_that_is_not_known_is_refused(
    build: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        build.main(["trainings"])
    assert "no page trainings; there are coverage, training" in capsys.readouterr().err


@pytest.mark.slow
def test_the_recorded_coverage_results_come_out_again_number_for_number(
    data: Path, big_tokenizers: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(RESULTS))
    from coverage_measure import measure  # type: ignore[import-not-found]

    recorded = json.loads((RESULTS / "coverage.json").read_text(encoding="utf-8"))
    assert json.loads(json.dumps(measure(data, big_tokenizers("llama3_1")))) == recorded
