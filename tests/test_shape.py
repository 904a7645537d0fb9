from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vtrim.errors import InputError
from vtrim.shape import DraftShape

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "vocab_size": 100,
    "num_hidden_layers": 8,
    "max_position_embeddings": 128,
}


def test_head_dim_is_read_from_the_config_where_it_stands(inputs: Path) -> None:
    config = json.loads((inputs / "target_headdim" / "config.json").read_text())
    shape = DraftShape.from_target_config(config)
    assert (shape.hidden_size, shape.num_attention_heads) == (32, 4)
    assert (shape.head_dim, shape.num_key_value_heads) == (16, 2)


def test_what_a_config_may_leave_out_is_what_llama_means_by_it() -> None:
    shape = DraftShape.from_target_config(CONFIG)
    assert (shape.head_dim, shape.num_key_value_heads) == (16, 4)
    assert (shape.rms_norm_eps, shape.rope_theta) == (1e-5, 10000.0)
    assert shape.target_hidden_size == shape.hidden_size == 64


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_theta": 5e5},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0}},
        {"rope_parameters": {"full_attention": {"rope_theta": 5e5}, "sliding_attention": {}}},
    ],
)
def test_the_rope_base_is_found_wherever_a_config_keeps_it(rope: dict[str, Any]) -> None:
    assert DraftShape.from_target_config({**CONFIG, **rope}).rope_theta == 5e5


def test_a_multimodal_config_is_read_through_its_text_part() -> None:
    nested = {"model_type": "gemma3", "text_config": CONFIG, "hidden_size": 1}
    assert DraftShape.from_target_config(nested) == DraftShape.from_target_config(CONFIG)


@pytest.mark.parametrize("key", ["hidden_size", "intermediate_size", "vocab_size"])
def test_a_missing_dimension_is_named(key: str) -> None:
    config = {name: value for name, value in CONFIG.items() if name != key}
    with pytest.raises(InputError, match=f"model_type 'llama'.* has no '{key}'"):
        DraftShape.from_target_config(config)


@pytest.mark.parametrize("value", [0, -4, "many", [4]])
def test_a_dimension_that_is_no_positive_number_is_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"'num_attention_heads' is .*above 0"):
        DraftShape.from_target_config({**CONFIG, "num_attention_heads": value})


@pytest.mark.parametrize(
    "key", ["num_key_value_heads", "head_dim", "hidden_size", "rms_norm_eps", "rope_theta"]
)
@pytest.mark.parametrize("value", [-1, "wide", [4], {}, True, float("nan"), float("inf")])
def test_a_value_that_is_no_positive_number_is_refused_by_name(key: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"'llama'\): '{key}' is .*number above 0 is needed\.$"):
        DraftShape.from_target_config({**CONFIG, key: value})


@pytest.mark.parametrize("key", ["num_key_value_heads", "head_dim", "vocab_size"])
def test_a_fraction_of_a_head_or_row_is_refused(key: str) -> None:
    with pytest.raises(InputError, match=rf"'{key}' is 2\.5; a whole number above 0 is needed"):
        DraftShape.from_target_config({**CONFIG, key: 2.5})
    whole = DraftShape.from_target_config({**CONFIG, key: 2})
    assert DraftShape.from_target_config({**CONFIG, key: 2.0}) == whole


def test_a_nested_rope_base_is_refused_with_the_kind_of_model() -> None:
    with pytest.raises(InputError, match=r"'llama'\): 'rope_theta' is '5e'"):
        DraftShape.from_target_config({**CONFIG, "rope_parameters": {"rope_theta": "5e"}})


def test_more_heads_than_dimensions_are_refused() -> None:
    with pytest.raises(InputError, match="'head_dim' is 0"):
        DraftShape.from_target_config({**CONFIG, "num_attention_heads": 65})


def test_overrides_replace_the_targets_dimensions() -> None:
    overrides = {"intermediate_size": 32, "rms_norm_eps": 1e-6}
    shape = DraftShape.from_target_config(CONFIG, overrides)
    assert (shape.intermediate_size, shape.rms_norm_eps, shape.hidden_size) == (32, 1e-6, 64)


def test_an_unknown_override_names_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"unknown key 'num_layers'\. Known: head_dim, "):
        DraftShape.from_target_config(CONFIG, {"num_layers": 2})


@pytest.mark.parametrize("value", [0, "wide", float("nan"), None])
def test_an_override_that_is_no_positive_number_is_refused(value: object) -> None:
    with pytest.raises(InputError, match="draft config: 'rms_norm_eps' is"):
        DraftShape.from_target_config(CONFIG, {"rms_norm_eps": value})


def test_a_shape_survives_as_a_plain_mapping() -> None:
    shape = DraftShape.from_target_config(CONFIG)
    assert DraftShape(**json.loads(json.dumps(shape.to_dict()))) == shape
