"""Names of models that can only be folders."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from vtrim.errors import InputError
from vtrim.models import hub
from vtrim.models.hub import here_only, is_missing, load_config, load_tokenizer

sys.path.insert(0, str(Path(__file__).parents[1]))
from fake_server import echo, serving


def test_a_folder_that_is_not_there_is_looked_for_nowhere_else(tmp_path: Path) -> None:
    name = str(tmp_path / "no")
    for load in (load_tokenizer, load_config):
        with pytest.raises(InputError, match=r"no: no such folder\."):
            load(name)


@pytest.mark.parametrize("name", ["org/model", "model", "smollm2", "."])
def test_other_names_are_left_to_the_hub(name: str) -> None:
    assert not is_missing(name)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """endpoint(URL) makes that the hub, of which nothing is known yet."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("no_proxy", "*")

    def use(url: str) -> None:
        monkeypatch.setattr(constants, "ENDPOINT", url)
        hub._hub_answers.cache_clear()

    yield use
    hub._hub_answers.cache_clear()


def test_a_hub_that_does_not_answer_is_not_asked_for_each_file(
    endpoint: Callable[[str], None], tmp_path: Path
) -> None:
    with serving(echo) as server:
        endpoint(server.url)
        assert not here_only("org/model", offline=False)  # 404 is an answer
        assert here_only("org/model", offline=True)
    endpoint(server.url)  # down now
    assert here_only("org/model", offline=False)
    assert not here_only(str(tmp_path), offline=False)
    assert not here_only("smollm2", offline=False)
