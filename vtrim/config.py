"""Recipes: one YAML is one reproducible run. Section keys are the option names of the commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from vtrim.errors import InputError


class _Section(BaseModel):
    """Options of one command; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def arguments(self) -> list[str]:
        """The options that are set, as a command line."""
        words: list[str] = []
        for name, value in self.model_dump(exclude_none=True).items():
            option = "--" + name.replace("_", "-")
            if value is True:
                words.append(option)
            elif value is not False:
                words += [option, str(value)]
        return words


class CoverageSection(_Section):
    """``vtrim coverage``."""

    split: str | None = None
    source_column: str | None = None
    max_length: int | None = None
    last_turn_only: bool | None = None
    template: str | None = None
    skip_bad_rows: bool | None = None
    encoder: str | None = None
    processes: int | None = None


class SearchSection(_Section):
    """``vtrim search``."""

    objective: str | None = None
    alpha: float | None = None
    cmin: float | None = None
    kmin: int | None = None
    kmax: int | None = None
    trials: int | None = None
    seed: int | None = None
    sampler: str | None = None
    preset: str | None = None
    align: int | None = None
    storage: str | None = None
    gpu: str | None = None
    a0: float | None = None
    num_draft_tokens: int | None = None
    batch: int | None = None


class TrainSection(_Section):
    """``vtrim train-draft``."""

    num_gpus: int | None = None
    max_steps: int | None = None
    max_minutes: float | None = None
    epochs: int | None = None
    zero_stage: int | None = None
    micro_batch: int | None = None
    grad_accum: int | None = None
    optimizer: str | None = None
    muon_lr: float | None = None
    lr: float | None = None
    warmup: float | None = None
    weight_decay: float | None = None
    clip: float | None = None
    ttt_steps: int | None = None
    decay: float | None = None
    mask_alignment: str | None = None
    head: str | None = None
    max_length: int | None = None
    dtype: str | None = None
    seed: int | None = None
    eval_every: int | None = None
    eval_samples: int | None = None
    save_every: int | None = None
    cache_gib: float | None = None
    aux_layers: str | None = None


class EvalSection(_Section):
    """``vtrim eval``."""

    name: str | None = None
    acceptor: str | None = None
    temperature: float | None = None
    num_draft_tokens: int | None = None
    heads: int | None = None
    p_drop: float | None = None
    criterion: str | None = None
    correction: str | None = None
    seed: int | None = None
    prompts: str | None = None
    num_prompts: int | None = None
    max_new_tokens: int | None = None
    dtype: str | None = None


class Recipe(BaseModel):
    """A whole run: target, data, and the options of each step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    target: str
    data: list[str]
    coverage: CoverageSection = CoverageSection()
    search: SearchSection = SearchSection()
    train: TrainSection = TrainSection()
    eval: list[EvalSection] = []


def load_recipe(path: Path) -> Recipe:
    """The recipe in a YAML file; relative data paths are taken from the file's folder.

    Raises:
        InputError: no such file, not YAML, an unknown key or a value of the wrong type.
    """
    import yaml

    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        recipe = Recipe.model_validate(content)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such recipe.") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML ({error}).") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}: {where}: {first['msg']}.") from error
    data = [str(path.parent / name) for name in recipe.data]
    evals = [_beside(path, section) for section in recipe.eval]
    return recipe.model_copy(update={"data": data, "eval": evals})


def _beside(path: Path, section: EvalSection) -> EvalSection:
    """The section with its prompts file taken from the recipe's folder."""
    if section.prompts is None:
        return section
    return section.model_copy(update={"prompts": str(path.parent / section.prompts)})


def recipes_folder() -> Path:
    """Where the recipes lie: inside an installed wheel, or beside the package in a checkout."""
    package = Path(__file__).parent
    installed = package / "_recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def python_command() -> list[str]:
    """How to start vtrim in a new process with this interpreter."""
    return [sys.executable, "-m", "vtrim"]
