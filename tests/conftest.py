"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from vtrim.models.smollm2 import cache_folder, smollm2_folder

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


BIG_TOKENIZERS = ("llama3_1", "qwen3", "gemma3", "deepseek_v3", "gptoss")


@pytest.fixture(scope="session")
def big_tokenizers() -> Callable[[str], Any]:
    """big_tokenizers(name) -> the real tokenizer of one of BIG_TOKENIZERS, or of smollm2.

    They are looked for under $VTRIM_TOKENIZERS, else where tests/fetch_tokenizers.py puts them.
    """
    import os

    folder = Path(os.environ.get("VTRIM_TOKENIZERS") or cache_folder() / "tokenizers")

    @cache
    def load(name: str) -> Any:
        from transformers import AutoTokenizer

        place = smollm2_folder() if name == "smollm2" else folder / name
        found = sorted(place.rglob("tokenizer.json"))
        if not found:
            pytest.skip(
                f"the tokenizer {name} is not on this machine: set VTRIM_TOKENIZERS, or run "
                "tests/fetch_tokenizers.py"
            )
        return AutoTokenizer.from_pretrained(found[0].parent)

    return load


@pytest.fixture(scope="session")
def random_draft(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Writes a draft with random weights for a target folder; returns the draft's folder.

    Called as random_draft(target_folder, ids=None, seed=0, provenance=None); ids: the draft
    vocabulary, by default every row of the target's head.
    """

    def write(
        target: Path,
        ids: Iterable[int] | None = None,
        seed: int = 0,
        provenance: dict[str, Any] | None = None,
    ) -> Path:
        import torch

        from vtrim.models.aux_layers import default_aux_layers
        from vtrim.models.draft import Eagle3Draft
        from vtrim.models.hub import load_config
        from vtrim.models.layout import draft_config, save_draft
        from vtrim.shape import DraftShape
        from vtrim.vocab import DraftVocab

        config = load_config(str(target))
        shape = DraftShape.from_target_config(config)
        rows = shape.target_vocab_size
        vocab = DraftVocab.full(rows) if ids is None else DraftVocab.of(ids, rows)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = Eagle3Draft(shape, torch.from_numpy(vocab.ids))
        layers = default_aux_layers(shape.num_target_layers)
        folder = tmp_path_factory.mktemp("draft")
        whole = draft_config(shape, vocab, layers, config, provenance or {})
        save_draft(folder, model, vocab, whole, "A draft with random weights.\n")
        return folder

    return write


WORDS = [
    "the", "cat", "dog", "fox", "owl", "bee", "red", "blue", "green", "gold", "grey",
    "one", "two", "three", "four", "five", "six", "yes", "no",
]  # fmt: skip
TEMPLATE = (
    "{% for m in messages %}{{ '<|turn|>' + m['role'] + '\n' + m['content'] + '<|done|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|turn|>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of 8 layers with a word tokenizer and a chat template, in a folder."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("tiny") / "target"
    specials = ["<unk>", "<|turn|>", "<|done|>", "user", "assistant", "system"]
    table = {word: index for index, word in enumerate([*specials, *WORDS])}
    backend = Tokenizer(models.WordLevel(table, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", eos_token="<|done|>", pad_token="<|done|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        eos_token_id=table["<|done|>"],
        bos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 short conversations in the tiny target's words."""
    import json
    import random

    words = random.Random(5)
    rows = []
    for _ in range(120):
        turns = []
        for _ in range(words.randint(1, 2)):
            turns.append({"role": "user", "content": " ".join(words.choices(WORDS, k=4))})
            start = words.randrange(len(WORDS))
            reply = [WORDS[(start + j) % len(WORDS)] for j in range(words.randint(3, 9))]
            turns.append({"role": "assistant", "content": " ".join(reply)})
        rows.append({"messages": turns})
    path = tmp_path_factory.mktemp("chat") / "chat.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
