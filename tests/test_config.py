"""Recipes: what travels with vtrim is valid, and its keys are options of the commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from vtrim.cli.coverage import coverage
from vtrim.cli.eval import evaluate
from vtrim.cli.search import search
from vtrim.cli.train_draft import train_draft
from vtrim.config import (
    CoverageSection,
    EvalSection,
    SearchSection,
    TrainSection,
    load_recipe,
    recipes_folder,
)
from vtrim.errors import InputError


@pytest.mark.parametrize("path", sorted(recipes_folder().rglob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_recipe_loads_and_its_files_are_there(path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.data
    assert all(Path(name).exists() for name in recipe.data)
    assert all(s.prompts is None or Path(s.prompts).exists() for s in recipe.eval)
    head = path.read_text().split("name:")[0]
    assert all(word in head for word in ("Purpose:", "Cost:", "Command:", "Expect:"))


@pytest.mark.parametrize(
    ("section", "command"),
    [
        (CoverageSection, coverage),
        (SearchSection, search),
        (TrainSection, train_draft),
        (EvalSection, evaluate),
    ],
)
def test_every_key_of_a_section_is_an_option_of_its_command(
    section: type[CoverageSection], command: Callable[..., None]
) -> None:
    assert set(section.model_fields) <= set(inspect.signature(command).parameters)


def test_a_section_becomes_the_command_line_a_user_would_type() -> None:
    section = TrainSection(num_gpus=2, max_minutes=4.5, optimizer="muon")
    words = ["--num-gpus", "2", "--max-minutes", "4.5", "--optimizer", "muon"]
    assert section.arguments() == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\ntarget: b\ndata: [c]\nserach: {}", "serach"),
        ("name: a\ntarget: b\ndata: [c]\nsearch: {alhpa: 1}", "search.alhpa"),
        ("name: a\ntarget: b\ndata: [c]\nsearch: {alpha: x}", "search.alpha"),
        ("name: [", "YAML"),
        ("name: a", "target"),
    ],
)
def test_a_bad_recipe_is_refused_with_its_key(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        load_recipe(path)
