"""``vtrim regenerate`` with a target in this process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.regenerate_rows import Follow, Rows, write_replies

if TYPE_CHECKING:
    from vtrim.decoding.batch import BatchDecoder
    from vtrim.decoding.regenerate import PartFile, Totals


@dataclass(frozen=True, kw_only=True)
class LocalTarget:
    """The target as the options name it."""

    target: str | None
    revision: str | None
    trust_remote_code: bool
    offline: bool
    template: Path | None
    dtype: str
    device: str | None
    threads: int
    batch_size: int

    @property
    def name(self) -> str:
        """What the target is called."""
        return self.target or "smollm2"

    def load(self, law: dict[str, Any]) -> tuple[Any, BatchDecoder]:
        """The tokenizer, and the target behind a decoder."""
        import torch

        from vtrim.chat.stops import stop_ids
        from vtrim.decoding.batch import BatchDecoder, Sampling
        from vtrim.models.hub import load_config, load_generation_config, load_tokenizer
        from vtrim.models.target import load_target

        if self.target is None:
            common.note("No --target given: using the built-in demo target smollm2.")
        common.hush_libraries()
        torch.set_num_threads(self.threads)
        where: dict[str, Any] = {"revision": self.revision, "offline": self.offline}
        trusted = {**where, "trust_remote_code": self.trust_remote_code}
        tokenizer = load_tokenizer(self.name, **trusted)
        if self.template is not None:
            tokenizer.chat_template = common.read_template(self.template)
        target = load_target(
            self.name,
            dtype=common.pick_dtype(self.dtype),
            device=common.pick_device(self.device),
            **trusted,
        )
        stops = stop_ids(
            tokenizer,
            load_generation_config(self.name, **where),
            load_config(self.name, **trusted),
        )
        return tokenizer, BatchDecoder(target, stops, Sampling(**law), self.batch_size)

    def settings(self, tokenizer: Any, decoder: BatchDecoder) -> dict[str, Any]:
        """What replies of one file must have in common, beside the law."""
        from vtrim.models.hub import tokenizer_fingerprint

        return {
            "target": self.name,
            "revision": self.revision,
            "tokenizer_fingerprint": tokenizer_fingerprint(tokenizer),
            "dtype": str(decoder.target.dtype).removeprefix("torch."),
        }


def answer_locally(
    rows: Rows, output: Path, local: LocalTarget, law: dict[str, Any]
) -> dict[str, Any]:
    """Generates and writes; returns the ``--json`` object."""
    from vtrim.chat.render import Renderer
    from vtrim.decoding.regenerate import regenerate_rows

    tokenizer, decoder = local.load(law)
    renderer = Renderer(tokenizer)

    def text_of(ids: Sequence[int]) -> str:
        text: str = tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def answer(part: PartFile, follow: Follow) -> tuple[Totals, dict[str, Any]]:
        requests = rows.rendered(renderer.prompt_ids, decoder.context)
        return regenerate_rows(requests, decoder, part, text_of, follow), {}

    return write_replies(rows, output, {**local.settings(tokenizer, decoder), **law}, answer)
