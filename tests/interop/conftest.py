"""What the tests against vLLM share: the trained draft, prompts, vLLM's runs and vtrim's own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from vtrim.models.smollm2 import ensure_smollm2

sys.path.insert(0, str(Path(__file__).parent))
from vllm_runs import DRAFT_TOKENS, NEW_TOKENS, NUM_PROMPTS, Run, Vllm

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def target_folder() -> Path:
    return ensure_smollm2()


@pytest.fixture(scope="session")
def trained_draft() -> Path:
    """A draft trained for SmolLM2: $VTRIM_INTEROP_DRAFT, else the demo's."""
    named = os.environ.get("VTRIM_INTEROP_DRAFT")
    folder = Path(named) if named else ROOT / "vtrim-run-demo" / "draft"
    if not (folder / "model.safetensors").is_file():
        pytest.fail(f"{folder}: no trained draft. Run `vtrim demo`, or set VTRIM_INTEROP_DRAFT.")
    return folder.resolve()


@pytest.fixture(scope="session")
def prompt_ids(target_folder: Path) -> list[list[int]]:
    """The first prompts of the demo that neither its counts nor its training have seen."""
    from vtrim.models.hub import load_tokenizer

    tokenizer = load_tokenizer(str(target_folder))
    lines = (ROOT / "recipes" / "demo" / "heldout_prompts.jsonl").read_text().splitlines()
    return [
        tokenizer.apply_chat_template(
            json.loads(line)["messages"], add_generation_prompt=True, return_dict=False
        )
        for line in lines[:NUM_PROMPTS]
    ]


@pytest.fixture(scope="session")
def vllm(
    target_folder: Path, prompt_ids: list[list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Vllm]:
    python = os.environ.get("VTRIM_VLLM_PYTHON")
    if not python:
        pytest.fail("VTRIM_VLLM_PYTHON names no Python that has vLLM. Use `make test-interop`.")
    engine = Vllm(python, target_folder, prompt_ids, tmp_path_factory.mktemp("vllm"))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def ours(target_folder: Path, prompt_ids: list[list[int]]) -> Callable[[Path], Run]:
    """The same prompts decoded by vtrim with a draft: fp32, greedy, to the last token."""
    import torch

    from vtrim.decoding.acceptors import make_acceptor
    from vtrim.decoding.drafters import drafter_options, make_drafter
    from vtrim.decoding.engine import Engine
    from vtrim.decoding.generation import GenerationSettings
    from vtrim.models.layout import load_draft
    from vtrim.models.lean import fast_target
    from vtrim.models.lean_draft import fast_draft
    from vtrim.models.target import load_target

    settings = GenerationSettings(
        max_new_tokens=NEW_TOKENS,
        stop_ids=frozenset(),
        temperature=0.0,
        num_draft_tokens=DRAFT_TOKENS,
        seed=0,
    )

    @cache
    def run(folder: Path) -> Run:
        loaded = load_draft(folder)
        target = load_target(
            str(target_folder), dtype=torch.float32, aux_layer_ids=loaded.aux_layer_ids
        )
        target = fast_target(target, pytest.fail)
        draft = fast_draft(loaded.model, pytest.fail)
        drafter = make_drafter(drafter_options("eagle"), target, draft=draft)
        engine = Engine(target, drafter)
        made = [engine.decode(ids, settings, make_acceptor("greedy")) for ids in prompt_ids]
        drafting = [pair for g in made for pair in zip(g.drafted, g.accepted, strict=True)]
        return Run(
            replies=[list(g.tokens) for g in made],
            chains=[],
            rounds=sum(drafted > 0 for drafted, _ in drafting),
            accepted=sum(accepted for _, accepted in drafting),
        )

    return run


@pytest.fixture(scope="session")
def exported(
    trained_draft: Path, target_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """The trained draft in a layout, as ``vtrim export --to`` writes it."""
    from vtrim.models.exporting import Verifier, export_draft
    from vtrim.models.importing import import_draft

    @cache
    def write(layout: str) -> Path:
        folder = tmp_path_factory.mktemp("exports") / f"{layout}-eagle3"
        verifier = Verifier(str(target_folder), ("LlamaForCausalLM",))
        export_draft(import_draft(trained_draft), layout, verifier).write(folder, "A draft.\n")
        return folder

    return write
