"""What was typed after ``vtrim coverage``, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from vtrim.cli import common
from vtrim.cli.coverage_engine import ENGINES
from vtrim.cli.coverage_part import Reading
from vtrim.cli.coverage_shards import pick_shard
from vtrim.errors import OptionError

if TYPE_CHECKING:
    from vtrim.chat.feed import EncoderChoice
    from vtrim.chat.sources import Source

_NAMED = 8
ENCODERS = ("auto", "tokenizers", "gigatoken")
_READ, _SHOW, _SCALE = "What is read", "What is shown", "At scale"

Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA",
        help="Chat data: JSONL, JSON or parquet (also .gz, .zst), globs, folders saved by "
        "`datasets`, hub ids. With --merge: artefacts.",
        show_default=False,
    ),
]
Tokenizer = Annotated[
    str | None, typer.Option(help="Count with this tokenizer alone; `search` then wants --target.")
]
Keep = Annotated[
    list[int] | None, typer.Option(help="Token id to seat first in the table; repeatable.")
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=1, rich_help_panel=_READ, help="Cut longer sequences, as training will (tokens)."
    ),
]
LastTurnOnly = Annotated[
    bool,
    typer.Option(
        "--last-turn-only", rich_help_panel=_READ, help="Count the last reply of a conversation."
    ),
]
Split = Annotated[
    str | None,
    typer.Option(rich_help_panel=_READ, help="Split of a data set folder or hub id, e.g. train."),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="PART=COLUMN,...",
        rich_help_panel=_READ,
        help="Columns of other data, e.g. user=question,assistant=answer; also system=, messages=.",
    ),
]
SourceColumn = Annotated[
    str, typer.Option(rich_help_panel=_READ, help="Column that names a row's domain.")
]
Generated = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DATA",
        rich_help_panel=_READ,
        help="Replies the target wrote (`vtrim regenerate`): counted apart, to check C(k) on "
        "them; repeatable.",
    ),
]
SkipBadRows = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        rich_help_panel=_READ,
        help="Count unreadable lines instead of stopping.",
    ),
]
Template = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=_READ, help="Jinja chat template in place of the tokenizer's own."
    ),
]
Preview = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        rich_help_panel=_SHOW,
        help="Show the first N conversations with the counted tokens marked, and stop there.",
    ),
]
PreviewHtml = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", rich_help_panel=_SHOW, help="The same as a page (10, or --preview N)."
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(
        min=1,
        rich_help_panel=_SCALE,
        help="Processes that count (default: as many as the data pays for, one for each 32 MB, "
        "128 MB with gigatoken, up to the CPUs).",
    ),
]
ShardText = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        rich_help_panel=_SCALE,
        help="Count the I-th of N parts of the rows; the last one merges all. A launcher's RANK "
        "and WORLD_SIZE (srun's and mpirun's too) do the same.",
    ),
]
Merge = Annotated[
    bool,
    typer.Option(
        "--merge", rich_help_panel=_SCALE, help="Add up artefacts (files or run folders)."
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        rich_help_panel=_SCALE,
        help="local, or ray: on the workers of $RAY_ADDRESS (else here), which must see the "
        "same files; needs vtrim\\[ray].",
    ),
]
Encoder = Annotated[
    str,
    typer.Option(
        rich_help_panel=_SCALE,
        help="auto, tokenizers, or gigatoken (checked against tokenizers; needs vtrim\\[fast]).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What to read, how, and who counts."""

    sources: tuple[Source, ...]
    generated: tuple[Source, ...]
    reading: Reading
    processes: int | None
    engine: str


def make_request(
    data: Sequence[str],
    generated: Sequence[str],
    *,
    split: str | None,
    columns: Sequence[str],
    source_column: str,
    skip_bad_rows: bool,
    max_length: int | None,
    last_turn_only: bool,
    encoder: str,
    processes: int | None,
    shard: str | None,
    engine: str,
    offline: bool,
) -> Request:
    """The request, with every name expanded to what it stands for.

    Raises:
        OptionError: a value is none of those there are. InputError: a name stands for nothing, or
            no source has the source column.
    """
    from vtrim.chat.read import ReadOptions, check_source_column
    from vtrim.chat.sources import expand

    options = ReadOptions(
        skip_bad_rows=skip_bad_rows,
        columns=check_words(columns, encoder=encoder, engine=engine),
        source_column=source_column,
        shard=pick_shard(shard),
    )
    reading = Reading(
        options=options,
        max_length=max_length,
        last_turn_only=last_turn_only,
        encoder=cast("EncoderChoice", encoder),
    )
    sources = _once(expand(data, split=split, offline=offline))
    check_source_column(sources, source_column)
    return Request(
        sources=sources,
        generated=_once(expand(generated, offline=offline)),
        reading=reading,
        processes=processes,
        engine=engine,
    )


def check_words(columns: Sequence[str], *, encoder: str, engine: str) -> dict[str, str]:
    """The mapping of ``--map``; refuses it and the names where they are none.

    Raises:
        OptionError: one is not.
    """
    from vtrim.chat.columns import parse_columns

    _one_of("--encoder", encoder, ENCODERS)
    _one_of("--engine", engine, ENGINES)
    return parse_columns(",".join(columns)) if columns else {}


def _once(sources: Sequence[Source]) -> tuple[Source, ...]:
    """The sources without repeats; says which are named again."""
    from vtrim.chat.sources import without_repeats

    kept, repeats = without_repeats(sources)
    if repeats:
        names = ", ".join(repeats[:_NAMED]) + (", ..." if len(repeats) > _NAMED else "")
        common.warn(f"named more than once, counted once: {names}.")
    return tuple(kept)


def _one_of(option: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise OptionError(f"{option} {value}: unknown. Known: {', '.join(known)}.")
