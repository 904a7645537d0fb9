"""Toy tokenizers and an independent, plain way to find the reply tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vtrim.chat.conversation import Conversation, Origin, conversation_of
from vtrim.chat.feed import EncoderChoice, ReplyFeed
from vtrim.chat.read import ReadOptions, read_conversations
from vtrim.chat.render import Renderer
from vtrim.chat.skips import SkipLog
from vtrim.trimming.count import Tally as TokenTally

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES = {
    "chatml": CHATML,
    "trimmed": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n\n' + m['content'] | trim + "
        "'<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n\n' }}{% endif %}"
    ),
    "marked": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['role'] == "
        "'assistant' %}{% generation %}{{ m['content'] }}{% endgeneration %}{{ '<|im_end|>\n' }}"
        "{% else %}{{ m['content'] + '<|im_end|>\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    # the last reply gets an empty think block unless it has one; earlier ones lose theirs
    "think": (
        "{% for m in messages %}{% set c = m['content'] %}{% if m['role'] == 'assistant' %}"
        "{% set r = '' %}{% if '</think>' in c %}{% set r = c.split('</think>')[0].split('<think>')"
        "[-1] %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}"
        "{{ '<|im_start|>assistant\n' }}{% if loop.last %}{{ '<think>\n' + r.strip('\n') + "
        "'\n</think>\n\n' }}{% endif %}{{ c + '<|im_end|>\n' }}{% else %}"
        "{{ '<|im_start|>' + m['role'] + '\n' + c + '<|im_end|>\n' }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% if enable_thinking is "
        "defined and not enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}"
    ),
    # the last turn ends with another token than earlier ones
    "returns": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] }}"
        "{{ '<|return|>' if loop.last and m['role'] == 'assistant' else '<|im_end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    # no special token anywhere; the space before a reply merges with it
    "bare": (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\n\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    ),
    "spaced": (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + ': ' + m['content'] + "
        "'<|im_end|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant: ' }}{% endif %}"
    ),
    "alternating": (
        "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}"
        "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
}

_SPLITS = {
    "llama3": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
_CORPUS = (
    "The cat sat on the mat. It's 12,345 o'clock, isn't it?\n\nassistant: yes, no, maybe!\n",
    "def f(x):\n    return x + 1\n\n\n# user said: hello   world\t(again)\r\n",
    "Probably we'll see; I'd say 2024/05/06 https://example.org/a_b?c=d&e=f\n",
    "naïve café Straße Ω ё 漢字 かな 🙂 ½ ",
)
_SPECIALS = ("<|im_start|>", "<|im_end|>", "<|return|>", "<|pad|>")


@cache
def byte_level_bpe(split: str, template: str, merges: int = 400) -> Any:
    """A small byte-level BPE with special tokens; split: a pattern's name, or 'gpt2'."""
    from tokenizers import (
        AddedToken,
        Regex,
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        processors,
    )
    from tokenizers.trainers import BpeTrainer
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    if split == "gpt2":
        level = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.pre_tokenizer = level
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_SPLITS[split]), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    trainer = BpeTrainer(
        vocab_size=256 + merges,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 3, trainer)
    tokenizer.add_special_tokens(list(_SPECIALS))
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in ("<think>", "</think>")])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
        clean_up_tokenization_spaces=False,
        chat_template=TEMPLATES[template],
    )


@pytest.fixture(scope="session")
def bpe() -> Callable[..., Any]:
    """bpe(split, template) -> a small byte-level BPE tokenizer with a chat template."""
    return byte_level_bpe


@pytest.fixture(scope="session")
def toy(inputs: Path) -> Callable[[str], Any]:
    """toy(name) -> a word tokenizer of ../shared/inputs."""
    from transformers import AutoTokenizer

    return cache(lambda name: AutoTokenizer.from_pretrained(inputs / name))


def chat(*turns: tuple[str, str], line: int = 1) -> Conversation:
    """A conversation of (role, text) pairs."""
    messages = [{"role": role, "content": content} for role, content in turns]
    return conversation_of({"messages": messages}, Origin("made.jsonl", line))


@pytest.fixture(scope="session")
def talk() -> Callable[..., Conversation]:
    """talk((role, text), ...) -> a conversation."""
    return chat


@dataclass
class Tally:
    """Counts by token text, and what happened to the rows."""

    tokens: Counter[str]
    arrays: tuple[Any, Any]
    feed: ReplyFeed
    skipped: SkipLog

    @property
    def total(self) -> int:
        """All reply tokens."""
        return self.tokens.total()


@pytest.fixture(scope="session")
def tally() -> Callable[..., Tally]:
    """tally(source, tokenizer, full=False, ...): counts files or conversations."""

    def run(
        source: Path | Iterable[Conversation],
        tokenizer: Any,
        *,
        full: bool = False,
        max_length: int | None = None,
        skip_bad_rows: bool = False,
        last_turn_only: bool = False,
        encoder: EncoderChoice = "auto",
    ) -> Tally:
        skipped = SkipLog()
        rows = (
            read_conversations(
                [source], options=ReadOptions(skip_bad_rows=skip_bad_rows), skipped=skipped
            )
            if isinstance(source, Path)
            else source
        )
        renderer = Renderer(
            tokenizer, max_length=max_length, skipped=skipped, last_turn_only=last_turn_only
        )
        feed = ReplyFeed(renderer, full=full, encoder=encoder)
        counted = TokenTally(len(tokenizer)).update(feed.feed(rows))
        arrays = counted.counts, counted.heldout_counts
        found = np.flatnonzero(arrays[0]).tolist()
        names = tokenizer.convert_ids_to_tokens(found)
        tokens = Counter(dict(zip(names, arrays[0][found].tolist(), strict=True)))
        return Tally(tokens, arrays, feed, skipped)

    return run


@pytest.fixture(scope="session")
def plain_reply_ids() -> Callable[..., list[int]]:
    """The reply ids of a conversation, straight from the definition of the render boundary.

    One prompt and one whole a reply through the public API of transformers: cut where the ids of
    the prompt are a prefix of those of the whole, else by character offsets; then drop what
    follows the token that ends the turn. Shares no code with vtrim.
    """

    def find(
        tokenizer: Any, messages: Sequence[dict[str, Any]], end: str | None = "<|im_end|>"
    ) -> list[int]:
        found: list[int] = []
        for index, message in enumerate(messages):
            if message["role"] != "assistant":
                continue
            whole = tokenizer.apply_chat_template(messages[: index + 1], tokenize=False)
            prompts = [
                tokenizer.apply_chat_template(
                    messages[:index], add_generation_prompt=True, tokenize=False, **more
                )
                for more in ({"enable_thinking": False}, {})
            ]
            prompt = next(text for text in prompts if whole.startswith(text))
            ahead = tokenizer(prompt, add_special_tokens=False)["input_ids"]
            all_of_it = tokenizer(whole, add_special_tokens=False, return_offsets_mapping=True)
            ids = all_of_it["input_ids"]
            if ids[: len(ahead)] == ahead:
                reply = ids[len(ahead) :]
            else:
                same = 0
                while ids[same] == ahead[same]:
                    same += 1
                reply = [
                    token
                    for place, (token, offset) in enumerate(
                        zip(ids, all_of_it["offset_mapping"], strict=True)
                    )
                    if offset[0] >= len(prompt) and place > same
                ]
            if end is not None:
                token = tokenizer.convert_tokens_to_ids(end)
                reply = reply[: len(reply) - reply[::-1].index(token)]
            found += reply
        return found

    return find


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    """write_rows(rows, name='rows.jsonl') -> a JSONL file of the rows."""

    def write(rows: Iterable[Any], name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write
