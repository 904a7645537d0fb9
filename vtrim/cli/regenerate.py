"""``vtrim regenerate``: replies of a chat file rewritten by the target, ids and mask recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vtrim.cli import common
from vtrim.errors import InputError, OptionError

if TYPE_CHECKING:
    from vtrim.chat.conversation import Conversation
    from vtrim.chat.render import Renderer
    from vtrim.chat.skips import SkipLog
    from vtrim.decoding.batch import BatchDecoder
    from vtrim.decoding.regenerate import Request, Totals


def regenerate(
    prompts: Annotated[list[Path], typer.Argument(help="Chat files: JSONL or JSON, also gzip.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="OUT.jsonl or OUT.jsonl.gz")],
    target: common.TargetOption = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Longest reply, in tokens.")] = 256,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Keep the likeliest tokens up to this share.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws above temperature 0.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows decoded at once.")] = 64,
    num_prompts: Annotated[
        int | None, typer.Option(min=1, help="Only the first N rows (default: all).")
    ] = None,
    shard: Annotated[
        str, typer.Option(help="i/n: every n-th row from the i-th, for n processes.")
    ] = "1/1",
    dtype: Annotated[str, typer.Option(help="auto, bf16, fp32 or fp16.")] = "auto",
    device: common.DeviceOption = None,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads of this process.")] = 1,
    revision: common.RevisionOption = None,
    trust_remote_code: common.TrustOption = False,
    offline: common.OfflineOption = False,
    template: common.TemplateOption = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Count unreadable lines instead of stopping.")
    ] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Let the target write the replies: the best data to choose a vocabulary and train a draft on.

    The reply of each row (its last assistant turn, or the answer to its last user turn) is
    generated in batches. Interrupt it at will: the same command goes on where it stopped.
    """
    if not 0 < top_p <= 1:
        raise OptionError(f"--top-p {top_p}: must be above 0 and at most 1.")
    if output.exists():
        raise OptionError(f"{output}: exists already. Delete it or choose another --output.")
    from vtrim.chat.skips import SkipLog

    rows = _Rows(prompts, skip_bad_rows, num_prompts, parse_shard(shard), SkipLog())
    model = _Model(target, revision, trust_remote_code, offline, template)
    law = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
    }
    tokenizer, decoder = model.load(dtype, device, threads, law, batch_size)
    result = _generate(rows, tokenizer, decoder, output, model.settings(tokenizer, decoder, law))
    if json_output:
        common.emit_json(result)
    else:
        common.results.print(_table(result))
        # never wrapped, so that the path can be copied
        common.results.print(f"written to {result['artifact']}", markup=False, soft_wrap=True)


def parse_shard(text: str) -> tuple[int, int]:
    """``i/n`` as two numbers.

    Raises:
        OptionError: not of that form, or i outside 1..n.
    """
    try:
        index, count = (int(number) for number in text.split("/"))
    except ValueError as error:
        raise OptionError(f"--shard {text}: write it as i/n, e.g. 1/2.") from error
    if not 1 <= index <= count:
        raise OptionError(f"--shard {text}: i must lie between 1 and n.")
    return index, count


@dataclass(frozen=True)
class _Model:
    """The target as the options name it."""

    target: str | None
    revision: str | None
    trust_remote_code: bool
    offline: bool
    template: Path | None

    @property
    def name(self) -> str:
        return self.target or "smollm2"

    def load(
        self, dtype: str, device: str | None, threads: int, law: dict[str, Any], batch_size: int
    ) -> tuple[Any, BatchDecoder]:
        """The tokenizer, and the target behind a decoder."""
        import torch

        from vtrim.chat.stops import stop_ids
        from vtrim.decoding.batch import BatchDecoder, Sampling
        from vtrim.models.hub import load_config, load_generation_config, load_tokenizer
        from vtrim.models.target import load_target

        if self.target is None:
            common.note("No --target given: using the built-in demo target smollm2.")
        common.hush_libraries()
        torch.set_num_threads(threads)
        where: dict[str, Any] = {"revision": self.revision, "offline": self.offline}
        trusted = {**where, "trust_remote_code": self.trust_remote_code}
        tokenizer = load_tokenizer(self.name, **trusted)
        if self.template is not None:
            tokenizer.chat_template = common.read_template(self.template)
        target = load_target(
            self.name,
            dtype=common.pick_dtype(dtype),
            device=common.pick_device(device),
            **trusted,
        )
        stops = stop_ids(
            tokenizer,
            load_generation_config(self.name, **where),
            load_config(self.name, **trusted),
        )
        return tokenizer, BatchDecoder(target, stops, Sampling(**law), batch_size)

    def settings(
        self, tokenizer: Any, decoder: BatchDecoder, law: dict[str, Any]
    ) -> dict[str, Any]:
        """What replies of one file must have in common."""
        from vtrim.models.hub import tokenizer_fingerprint

        return {
            "target": self.name,
            "revision": self.revision,
            "tokenizer_fingerprint": tokenizer_fingerprint(tokenizer),
            "dtype": str(decoder.target.dtype).removeprefix("torch."),
            **law,
        }


@dataclass
class _Rows:
    """The rows asked for; ``skipped`` says why some of them cannot be used."""

    paths: list[Path]
    skip_bad_rows: bool
    num_prompts: int | None
    shard: tuple[int, int]
    skipped: SkipLog

    def conversations(self, skipped: SkipLog) -> Iterator[tuple[int, Conversation]]:
        """(row number, conversation) of this shard; numbers run over all readable rows."""
        from vtrim.chat.read import ReadOptions, read_conversations

        options = ReadOptions(skip_bad_rows=self.skip_bad_rows)
        stream = read_conversations(self.paths, options=options, skipped=skipped)
        index, count = self.shard
        return islice(islice(enumerate(stream), self.num_prompts), index - 1, None, count)

    def count(self) -> int:
        """Number of rows, read once ahead for the progress bar; bad input shows up here."""
        from vtrim.chat.skips import SkipLog

        return sum(1 for _ in self.conversations(SkipLog()))

    def requests(self, tokenizer: Any, context: int) -> Iterator[Request]:
        """Rendered prompts; rows without a usable one are noted."""
        from vtrim.chat.render import Renderer
        from vtrim.chat.template import TemplateRefusal

        renderer = Renderer(tokenizer)
        for row, conversation in self.conversations(self.skipped):
            if conversation.text is not None:
                detail = "its turns are not told apart"
                self.skipped.add("already rendered text", conversation.origin, detail)
                continue
            try:
                request = _request(row, conversation, renderer)
            except TemplateRefusal as error:
                self.skipped.add("template refusal", conversation.origin, str(error))
                continue
            length = len(request.prompt_ids)
            if length == 0:
                self.skipped.add("empty prompt", conversation.origin)
            elif length >= context:
                detail = f"{length} tokens, the target's context has {context}"
                self.skipped.add("prompt too long", conversation.origin, detail)
            else:
                yield request


def _request(row: int, conversation: Conversation, renderer: Renderer) -> Request:
    """The prompt of a row; no ids when nothing is asked in it."""
    from vtrim.decoding.regenerate import Request, before_last_reply

    messages = before_last_reply(conversation.messages)
    asked = any(message["content"].strip() for message in messages)
    ids = renderer.prompt_ids(messages, conversation.tools) if asked else []
    extras: dict[str, Any] = {}
    if conversation.source is not None:
        extras["source"] = conversation.source
    if conversation.tools is not None:
        extras["tools"] = list(conversation.tools)
    return Request(row, messages, ids, extras)


def _generate(
    rows: _Rows, tokenizer: Any, decoder: BatchDecoder, output: Path, settings: dict[str, Any]
) -> dict[str, Any]:
    """Generates and writes; returns the ``--json`` object."""
    from vtrim.decoding.regenerate import PartFile, regenerate_rows

    start, tokens = time.perf_counter(), 0

    def text_of(ids: Sequence[int]) -> str:
        text: str = tokenizer.decode(ids, skip_special_tokens=True)
        return text

    with (
        common.progress("replies", total=rows.count()) as advance,
        closing(PartFile(output, settings)) as part,
    ):

        def follow(count: int, new_tokens: int) -> None:
            nonlocal tokens
            tokens += new_tokens
            rate = tokens / (time.perf_counter() - start)
            advance(count, f"replies, {rate:.0f} tokens/s")

        requests = rows.requests(tokenizer, decoder.context)
        totals = regenerate_rows(requests, decoder, part, text_of, follow)
        _report_skipped(rows, totals)
        part.finish(output, sorted(totals.order))
    seconds = time.perf_counter() - start
    return {
        "rows": totals.rows + totals.resumed,
        "rows_resumed": totals.resumed,
        "rows_skipped": rows.skipped.counts,
        "reply_tokens": totals.reply_tokens,
        "stopped_share": totals.stopped / totals.rows if totals.rows else None,
        "tokens_per_second": totals.reply_tokens / seconds,
        "seconds": seconds,
        "artifact": str(output),
    }


def _report_skipped(rows: _Rows, totals: Totals) -> None:
    """Says what was left out.

    Raises:
        InputError: that is everything.
    """
    for line in rows.skipped.lines():
        common.warn(f"skipped {line}")
    if not totals.order:
        why = "; ".join(rows.skipped.lines()) or "this shard is empty"
        raise InputError(f"{rows.paths[0]}: no row with a prompt to answer ({why}).")


def _table(result: dict[str, Any]) -> Table:
    """The result as a person reads it."""
    table = Table("replies of the target", "", show_header=True)
    table.add_row("rows written", f"{result['rows']:,}")
    table.add_row("of which finished before", f"{result['rows_resumed']:,}")
    table.add_row("rows skipped", f"{sum(result['rows_skipped'].values()):,}")
    table.add_row("reply tokens, now", f"{result['reply_tokens']:,}")
    if result["stopped_share"] is not None:
        table.add_row("ended with a stop token, now", f"{result['stopped_share']:.1%}")
    table.add_row("tokens per second", f"{result['tokens_per_second']:.0f}")
    return table
