"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


def _need(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path.name} is not on this machine (../shared is absent)")
    return path


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of shared test data beside the project."""
    return _need(SHARED)


@pytest.fixture(scope="session")
def inputs() -> Path:
    """Hard inputs with known right answers."""
    return _need(SHARED / "inputs")


@pytest.fixture(scope="session")
def data() -> Path:
    """Real chat data and a tiny real model."""
    return _need(SHARED / "data")
