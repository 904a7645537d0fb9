"""``vtrim vocab``: look at draft vocabularies, compare them, take and give them to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtrim.cli import common

app = typer.Typer(
    help="Show, compare, import and export draft vocabularies of any project.",
    no_args_is_help=True,
)

_KINDS = (
    "A run folder, a draft of any layout, vocab.safetensors, vocab_mapping.pt (SpecForge), "
    "d2t.npy/t2d.npy (speculators), d2t.pt (ModelOpt), or ids in .pt, .json or text."
)
SizeOption = Annotated[
    int | None,
    typer.Option(min=1, help="Rows of the target's LM head, for lists that do not tell them."),
]
ReadFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="How to read files whose content does not tell: modelopt (ModelOpt: offsets), "
        "hot-token-ids (SGLang), fr-spec (FR-Spec), specforge (SpecForge, EAGLE), speculators.",
    ),
]
CoverageOption = Annotated[
    Path | None,
    typer.Option(help="Counts to judge by, a coverage.npz. (default: the run's)"),
]
TokenizerOption = Annotated[
    str | None, typer.Option(help="Shows tokens as text. (default: the texts the run has)")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a file that exists.")]
LimitOption = Annotated[int, typer.Option(min=0, help="Tokens to list.")]


@app.command("show")
def show(
    source: Annotated[
        Path | None, typer.Argument(help=f"{_KINDS} (default: the run)", show_default=False)
    ] = None,
    file_format: ReadFormat = None,
    coverage: CoverageOption = None,
    tokenizer: TokenizerOption = None,
    limit: LimitOption = 8,
    target_vocab_size: SizeOption = None,
    target: common.TargetOption = None,
    run: common.RunOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Show one vocabulary: size, ids, stop tokens, and its edge where counts are there.

    Without counts, the first and last ids kept are listed. Example:

    vtrim vocab show draft/ --tokenizer smollm2
    """
    from vtrim.cli.vocab_steps import VocabCall, describe
    from vtrim.cli.vocab_table import print_vocab

    call = VocabCall(
        run=common.open_run(run),
        file_format=file_format,
        target_vocab_size=target_vocab_size,
        target=target,
        coverage_file=coverage,
        tokenizer=tokenizer,
        limit=limit,
    )
    result = describe(call, source)
    common.emit_json(result) if json_output else print_vocab(result)


@app.command("diff")
def diff(
    a: Annotated[Path, typer.Argument(help=_KINDS, show_default=False)],
    b: Annotated[Path, typer.Argument(help="The other one.", show_default=False)],
    file_format: ReadFormat = None,
    coverage: CoverageOption = None,
    tokenizer: TokenizerOption = None,
    limit: LimitOption = 10,
    target_vocab_size: SizeOption = None,
    target: common.TargetOption = None,
    run: common.RunOption = None,
    json_output: common.JsonOption = False,
) -> None:
    """Compare two vocabularies: what they share, and what the text they differ in is worth.

    Example: vtrim vocab diff vtrim-run other/vocab_mapping.pt
    """
    from vtrim.cli.vocab_steps import VocabCall, compare
    from vtrim.cli.vocab_table import print_diff

    call = VocabCall(
        run=common.open_run(run),
        file_format=file_format,
        target_vocab_size=target_vocab_size,
        target=target,
        coverage_file=coverage,
        tokenizer=tokenizer,
        limit=limit,
    )
    result = compare(call, a, b)
    common.emit_json(result) if json_output else print_diff(result)


@app.command("import")
def import_vocab(
    source: Annotated[Path, typer.Argument(help=_KINDS, show_default=False)],
    to: Annotated[
        str, typer.Option("--to", help="run: the run's own vocabulary; else a file to write.")
    ] = "run",
    file_format: ReadFormat = None,
    target_vocab_size: SizeOption = None,
    target: common.TargetOption = None,
    run: common.RunOption = None,
    force: ForceOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Take a vocabulary of another project: `vtrim train-draft` then trains with it.

    Example: vtrim vocab import cache/vocab_mapping.pt --to run
    """
    from vtrim.cli.vocab_move import take
    from vtrim.cli.vocab_steps import VocabCall

    call = VocabCall(
        run=common.open_run(run),
        file_format=file_format,
        target_vocab_size=target_vocab_size,
        target=target,
    )
    result = take(call, source, to, force=force)
    if json_output:
        common.emit_json(result)
        return
    common.results.print(
        f"{result['k']:,} of {result['target_vocab_size']:,} tokens ({result['format']}) -> "
        f"{result['artifact']}",
        markup=False,
        soft_wrap=True,
    )


@app.command("export")
def export(
    file_format: Annotated[
        str,
        typer.Option(
            "--format",
            help="What the other project reads. SpecForge, EAGLE: specforge (or eagle); "
            "speculators: speculators; ModelOpt: modelopt; FR-Spec: fr-spec; SGLang's "
            "--speculative-token-map: hot-token-ids (or sglang); anyone: json, text; vtrim: vtrim.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="File to write; a folder for speculators.", show_default=False
        ),
    ],
    source: Annotated[
        Path | None, typer.Argument(help=f"{_KINDS} (default: the run)", show_default=False)
    ] = None,
    target_vocab_size: SizeOption = None,
    target: common.TargetOption = None,
    run: common.RunOption = None,
    force: ForceOption = False,
    json_output: common.JsonOption = False,
) -> None:
    """Write a vocabulary as another project reads it.

    Example: vtrim vocab export --format specforge --output vocab_mapping.pt
    """
    from vtrim.cli.vocab_move import give
    from vtrim.cli.vocab_steps import VocabCall

    call = VocabCall(
        run=common.open_run(run),
        file_format=None,
        target_vocab_size=target_vocab_size,
        target=target,
    )
    result = give(call, source, file_format, output, force=force)
    if json_output:
        common.emit_json(result)
        return
    for file in result["files"]:
        common.results.print(f"{file} ({result['format']})", markup=False, soft_wrap=True)
