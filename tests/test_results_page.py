from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_published_coverage_results_come_out_again_byte_for_byte(
    data: Path, big_tokenizers: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(PROJECT / "benchmarks" / "results"))
    from coverage_page import page  # type: ignore[import-not-found]

    published = (PROJECT / "docs" / "results" / "coverage.md").read_text(encoding="utf-8")
    assert page(data, big_tokenizers("llama3_1")) == published
