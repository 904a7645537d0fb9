"""Other tools' ways to count reply tokens, each re-written here in its fewest lines.

They get conversations that are parsed already; vtrim starts from the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Messages = list[dict[str, Any]]
Way = Callable[[Any, "Dialect", Sequence[Messages]], int]

CHUNK = 1000


@dataclass(frozen=True)
class Dialect:
    """How a model's turns are written: before a role's text, the reply's role, after the text."""

    header: str  # a Jinja expression of `role`
    assistant: str
    end: str
    trims: bool = False

    @property
    def template(self) -> str:
        """A chat template with generation marks around the replies and their ends."""
        content = "m['content'] | trim" if self.trims else "m['content']"
        return (
            "{% for m in messages %}{% set role = m['role'] %}{{ " + self.header + " }}"
            "{% if role == 'assistant' %}{% generation %}{{ " + content + " }}{{ '" + self.end
            + "' }}{% endgeneration %}{% else %}{{ " + content + " }}{{ '" + self.end + "' }}"
            "{% endif %}{{ '\n' if '<|im_end|>' == '" + self.end + "' else '' }}{% endfor %}"
        )  # fmt: skip

    @property
    def reply(self) -> re.Pattern[str]:
        """Matches a reply and its end in a rendered text."""
        return re.compile(re.escape(self.assistant) + "(.*?" + re.escape(self.end) + ")", re.DOTALL)


CHATML = Dialect("'<|im_start|>' + role + '\n'", "<|im_start|>assistant\n", "<|im_end|>")
DIALECTS = {
    "llama3_1": Dialect(
        "'<|start_header_id|>' + role + '<|end_header_id|>\n\n'",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|eot_id|>",
        trims=True,
    ),
    "qwen3": CHATML,
    "smollm2": CHATML,
    "gemma3": Dialect(
        "'<start_of_turn>' + ('model' if role == 'assistant' else 'user') + '\n'",
        "<start_of_turn>model\n",
        "<end_of_turn>",
        trims=True,
    ),
    "deepseek_v3": Dialect(
        "'<｜Assistant｜>' if role == 'assistant' else '<｜User｜>'",  # noqa: RUF001
        "<｜Assistant｜>",  # noqa: RUF001
        "<｜end▁of▁sentence｜>",  # noqa: RUF001
    ),
    "gptoss": Dialect(
        "'<|start|>' + role + ('<|channel|>final' if role == 'assistant' else '') + '<|message|>'",
        "<|start|>assistant<|channel|>final<|message|>",
        "<|end|>",
    ),
}


def render(tokenizer: Any, dialect: Dialect, messages: Messages) -> str:
    """The whole conversation as text."""
    text: str = tokenizer.apply_chat_template(
        messages, chat_template=dialect.template, tokenize=False
    )
    return text


def specforge(tokenizer: Any, dialect: Dialect, rows: Sequence[Messages]) -> int:
    """Whole conversation, spans by regex, a mask token by token, unique a sample, one Counter."""
    import torch

    counts: Counter[int] = Counter()
    for messages in rows:
        text = render(tokenizer, dialect, messages)
        encoding = tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=True, return_tensors="pt"
        )
        ids, offsets = encoding["input_ids"][0], encoding["offset_mapping"][0]
        mask = torch.zeros(len(ids), dtype=torch.long)
        for match in dialect.reply.finditer(text):
            low, high = match.span(1)
            for place, (start, end) in enumerate(offsets):
                if end <= low:
                    continue
                if start >= high:
                    break
                mask[place] = 1
        unique, times = ids[mask == 1].unique(return_counts=True)
        counts.update(dict(zip(unique.tolist(), times.tolist(), strict=True)))
    return counts.total()


def speculators(tokenizer: Any, dialect: Dialect, rows: Sequence[Messages]) -> int:
    """The template's own mask a conversation, added up by torch sample by sample."""
    import torch

    counts = torch.zeros(len(tokenizer), dtype=torch.long)
    for messages in rows:
        found = tokenizer.apply_chat_template(
            messages,
            chat_template=dialect.template,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        ids = torch.tensor(found["input_ids"])
        mask = torch.tensor(found["assistant_masks"], dtype=torch.bool)
        counts += torch.bincount(ids[mask], minlength=len(tokenizer))
    return int(counts.sum())


def template_mask(tokenizer: Any, dialect: Dialect, rows: Sequence[Messages]) -> int:
    """The template's own mask, many conversations at a time, one bincount."""
    counts = np.zeros(len(tokenizer), dtype=np.int64)
    for start in range(0, len(rows), CHUNK):
        found = tokenizer.apply_chat_template(
            list(rows[start : start + CHUNK]),
            chat_template=dialect.template,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        ids = np.concatenate([np.asarray(one, dtype=np.int64) for one in found["input_ids"]])
        mask = np.concatenate([np.asarray(one, dtype=bool) for one in found["assistant_masks"]])
        counts += np.bincount(ids[mask], minlength=counts.size)
    return int(counts.sum())


def paper(tokenizer: Any, dialect: Dialect, rows: Sequence[Messages]) -> int:
    """Row by row: render, find the replies by regex, encode each, count."""
    counts: Counter[int] = Counter()
    for messages in rows:
        for reply in dialect.reply.findall(render(tokenizer, dialect, messages)):
            counts.update(tokenizer.encode(reply, add_special_tokens=False))
    return counts.total()


def bare_replies(tokenizer: Any, _dialect: Dialect, rows: Sequence[Messages]) -> int:
    """Reply texts alone, encoded in batches: no template, no end of turn, no counts."""
    texts = [turn["content"] for row in rows for turn in row if turn["role"] == "assistant"]
    backend = tokenizer.backend_tokenizer
    return sum(
        len(encoding)
        for start in range(0, len(texts), CHUNK)
        for encoding in backend.encode_batch_fast(
            texts[start : start + CHUNK], add_special_tokens=False
        )
    )


PEERS: dict[str, Way] = {
    "SpecForge's way": specforge,
    "the paper's way": paper,
    "speculators' way": speculators,
    "template mask, in batches": template_mask,
}
FLOOR = "encode_batch_fast, bare replies"
