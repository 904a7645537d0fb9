"""Recipes as files: what is read, where a mistake is said to be, what travels with vtrim."""

from __future__ import annotations

from pathlib import Path

import pytest

from vtrim.config import (
    HEADER,
    find_recipe,
    load_recipe,
    read_header,
    recipes_folder,
    shipped_recipes,
)
from vtrim.errors import InputError, OptionError

WHOLE = """# Purpose: a test,
#   in two lines.
# Cost:    nothing
name: a
target: b
data: [c.jsonl, d.jsonl]
search: {alpha: 0.60}
train:
  lr: 1e-3
  mix: {code: 2}
eval:
  - {acceptor: greedy}
  - name: lossy
    acceptor: dropmatch
"""


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A recipe with several evaluations."""
    path = tmp_path / "a.yaml"
    path.write_text(WHOLE)
    return path


def test_values_stay_the_text_that_was_typed(written: Path) -> None:
    recipe = load_recipe(written)
    assert recipe.search == {"alpha": "0.60"}
    assert recipe.train == {"lr": "1e-3", "mix": {"code": "2"}}
    assert [section.get("name") for section in recipe.eval] == [None, "lossy"]


def test_a_key_is_told_with_its_file_and_line(written: Path) -> None:
    recipe = load_recipe(written)
    assert recipe.where("train.lr") == f"{written}:9: train.lr"
    assert recipe.where("eval.1.acceptor") == f"{written}:14: eval.1.acceptor"
    assert recipe.where("search.kmax") == f"{written}:7: search"
    assert recipe.where("coverage.split") == f"{written}:1: coverage.split"


def test_one_value_may_stand_for_a_list_of_one(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\ntarget: b\ndata: c.jsonl\neval: {acceptor: greedy}\n")
    recipe = load_recipe(path)
    assert recipe.data == ["c.jsonl"]
    assert recipe.eval == [{"acceptor": "greedy"}]


@pytest.mark.parametrize(
    ("typed", "section", "expected"),
    [
        ("train.lr=2e-3", "train", {"lr": "2e-3", "mix": {"code": "2"}}),
        ("train.mix.chat=0.5", "train", {"lr": "1e-3", "mix": {"code": "2", "chat": "0.5"}}),
        ("train.num-gpus=2", "train", {"lr": "1e-3", "mix": {"code": "2"}, "num_gpus": "2"}),
        ("coverage.split=train", "coverage", {"split": "train"}),
        ("data=[x, y]", "data", ["x", "y"]),
        ("data=x", "data", ["x"]),
        ("target=a=b", "target", "a=b"),
        (
            "eval.seed=3",
            "eval",
            [
                {"acceptor": "greedy", "seed": "3"},
                {"name": "lossy", "acceptor": "dropmatch", "seed": "3"},
            ],
        ),
        (
            "eval.lossy.p_drop=0.1",
            "eval",
            [{"acceptor": "greedy"}, {"name": "lossy", "acceptor": "dropmatch", "p_drop": "0.1"}],
        ),
    ],
)
def test_an_override_sets_one_value(
    written: Path, typed: str, section: str, expected: object
) -> None:
    assert getattr(load_recipe(written, [typed]), section) == expected


def test_an_evaluation_can_be_set_where_the_recipe_has_none(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\ntarget: b\ndata: c\n")
    assert load_recipe(path, ["eval.acceptor=greedy"]).eval == [{"acceptor": "greedy"}]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("train.lr", "KEY=VALUE"),
        ("=3", "KEY=VALUE"),
        ("train..lr=3", "KEY=VALUE"),
        ("train.lr=[", "not YAML"),
        ("eval.lossi.p_drop=1", "greedy, lossy"),
        ("name.x=1", "name holds no keys"),
    ],
)
def test_an_override_that_is_none_is_refused(written: Path, typed: str, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        load_recipe(written, [typed])


def test_a_mistake_in_an_override_is_told_as_an_override(written: Path) -> None:
    with pytest.raises(InputError, match=r"--set trian.lr=3: trian: unknown key.*'train'"):
        load_recipe(written, ["trian.lr=3"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\ntarget: b\ndata: [c]\nserach: {}", "bad.yaml:4: serach: .*'search'"),
        ("name: a\ntarget: b\nsearch: {alpha: [[1]]}", "bad.yaml:3: search.alpha"),
        ("name: a\ntarget: b\nsearch: [1]", "bad.yaml:3: search.*dictionary"),
        ("name: a\ntarget: [b]\n", "bad.yaml:2: target: .*string"),
        ("name: a\ntarget: b\nname: c\n", "bad.yaml:3: name: stands twice"),
        ("name: a\ntarget: b\nsearch: {seed: 1,\n seed: 2}", "bad.yaml:4: search.seed: .*twice"),
        ("name: a\ntarget: [", "bad.yaml:2: not YAML"),
        ("name: a\ndata: [c]", "'target' is missing"),
        ("", "'name' is missing"),
        ("- name: a", "a recipe is a mapping"),
        ("name: &x [*x]\ntarget: b", "bad.yaml:1: not YAML"),
        ("name: \x07", "not YAML"),
    ],
)
def test_a_bad_recipe_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as refused:
        load_recipe(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfename: a"])
def test_what_is_no_text_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "bad.yaml"
    path.mkdir() if content is None else path.write_bytes(content)
    with pytest.raises(InputError, match=r"bad.yaml: this recipe cannot be read"):
        load_recipe(path)


def test_the_header_is_read_over_several_lines(written: Path) -> None:
    assert read_header(written) == {"Purpose": "a test, in two lines.", "Cost": "nothing"}


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_every_shipped_recipe_has_its_header_and_is_found_by_name(name: str) -> None:
    path = find_recipe(name)
    assert set(read_header(path)) == set(HEADER)
    assert load_recipe(path).path == path
    assert path.is_relative_to(recipes_folder())


def test_a_name_that_nothing_has_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'demo/smollm2'.*recipes ls"):
        find_recipe("demo/smolm2")
    with pytest.raises(InputError, match="no such file"):
        find_recipe(str(tmp_path / "none.yaml"))
