"""``vtrim recipes``: what travels is right, a copy works where it is, mistakes have their line."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from vtrim.config import recipes_folder, shipped_recipes

Vtrim = Callable[..., tuple[int, str, str]]

HEADER = "# Purpose: a\n# Cost: b\n# Command: c\n# Expect: d\n"


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_every_shipped_recipe_is_right(vtrim: Vtrim, name: str) -> None:
    code, out, err = vtrim("recipes", "check", name)
    assert (code, err) == (0, "")
    assert "right" in out


def test_all_recipes_are_checked_where_none_is_named(vtrim: Vtrim) -> None:
    code, out, _ = vtrim("recipes", "check", "--json")
    assert code == 0
    assert len(json.loads(out)["checked"]) == len(shipped_recipes())


def test_the_list_names_each_recipe_with_its_purpose_and_cost(vtrim: Vtrim) -> None:
    _, out, _ = vtrim("recipes", "ls", "--json")
    listed = {one["recipe"]: one for one in json.loads(out)["recipes"]}
    assert set(listed) == set(shipped_recipes())
    assert all(one["purpose"] and one["cost"] and one["target"] for one in listed.values())
    _, table, _ = vtrim("recipes", "ls")
    assert "demo/smollm2" in table


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_a_copy_is_right_where_it_lies_and_overwrites_nothing(
    vtrim: Vtrim, tmp_path: Path, name: str
) -> None:
    code, out, _ = vtrim("recipes", "copy", name, tmp_path / "mine")
    copied = out.splitlines()
    assert code == 0
    assert copied[0] == str(tmp_path / "mine" / shipped_recipes()[name].name)
    assert all(Path(path).is_file() for path in copied)
    assert vtrim("recipes", "check", copied[0])[0] == 0
    code, out, err = vtrim("recipes", "copy", name, tmp_path / "mine")
    assert (code, out) == (2, "")
    assert "exists already" in err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: a\ntarget: b\n", "bad.yaml:1: the header has no '# Purpose: ...' line"),
        (HEADER + "name: a\ntarget: b\n", "bad.yaml:1: data: name data"),
        (HEADER + "name: a\ntarget: b\ndata: none.jsonl\n", "bad.yaml:7: data.*no such file"),
        (HEADER + "name: a\ntarget: b\ndata: org/set\ntrain:\n  lrr: 1\n", "bad.yaml:9: train.lrr"),
        (HEADER + "name: a\ntarget: b\ndata: org/set\ntrain:\n  lr: 0\n", "bad.yaml:9: train.lr"),
        (
            HEADER + "name: a\ntarget: b\ndata: org/set\nsearch:\n  alpha: 1\n  preset: none\n",
            "bad.yaml:10: search.preset",
        ),
        (
            HEADER + "name: a\ntarget: b\ndata: org/set\ntrain: {deepspeed_config: ds.json}\n",
            "bad.yaml:8: train.deepspeed_config: .*no such file",
        ),
        (
            HEADER + "name: a\ntarget: b\ndata: org/set\neval:\n- {acceptor: best}\n",
            "bad.yaml:9: eval.0: .*best",
        ),
        (
            HEADER + "name: a\ntarget: b\ndata: org/set\ncoverage:\n  engine: foo\n",
            "bad.yaml:9: coverage.engine: --engine foo",
        ),
        (HEADER + "name: a\ntarget: ./b\ndata: org/set\n", "bad.yaml:6: target: ./b: no such"),
    ],
)
def test_the_first_problem_is_told_with_file_and_line(
    vtrim: Vtrim, tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    code, out, err = vtrim("recipes", "check", path)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.search(words, err), err


def test_a_deepspeed_config_that_contradicts_its_recipe_is_refused(
    vtrim: Vtrim, tmp_path: Path
) -> None:
    (tmp_path / "ds.json").write_text(
        '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4,'
        ' "gradient_accumulation_steps": 8}'
    )
    path = tmp_path / "bad.yaml"
    path.write_text(
        HEADER + "name: a\ntarget: b\ndata: org/set\n"
        "train: {deepspeed_config: ds.json, num_gpus: 8}\n"
    )
    code, _, err = vtrim("recipes", "check", path)
    assert code == 2
    assert "bad.yaml:8: train" in err
    assert "64" in err


def test_the_wheel_holds_the_recipes() -> None:
    project = tomllib.loads((recipes_folder().parent / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"recipes": "vtrim/_recipes"}
