"""Names of models that can only be folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from vtrim.errors import InputError
from vtrim.models.hub import is_missing, load_config, load_tokenizer


def test_a_folder_that_is_not_there_is_looked_for_nowhere_else(tmp_path: Path) -> None:
    name = str(tmp_path / "no")
    for load in (load_tokenizer, load_config):
        with pytest.raises(InputError, match=r"no: no such folder\."):
            load(name)


@pytest.mark.parametrize("name", ["org/model", "model", "smollm2", "."])
def test_other_names_are_left_to_the_hub(name: str) -> None:
    assert not is_missing(name)
