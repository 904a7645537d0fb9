"""The ``vtrim`` command: a table of subcommands; the one place where errors become exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from vtrim import __version__
from vtrim.artifacts import note_command
from vtrim.cli import common
from vtrim.cli.compare import compare
from vtrim.cli.coverage import coverage
from vtrim.cli.demo import demo
from vtrim.cli.doctor import doctor
from vtrim.cli.eval import evaluate
from vtrim.cli.export import export
from vtrim.cli.flops import flops
from vtrim.cli.import_draft import import_command
from vtrim.cli.recipes import app as recipes
from vtrim.cli.regenerate import regenerate
from vtrim.cli.report import report
from vtrim.cli.run import run_recipe
from vtrim.cli.search import search
from vtrim.cli.sweep import sweep
from vtrim.cli.tasks import tasks
from vtrim.cli.train_draft import train_draft
from vtrim.cli.trim import trim
from vtrim.cli.vocab import app as vocab
from vtrim.errors import OwnError, VtrimError

UsageError: Any = typer.BadParameter.__mro__[1]  # typer carries its own copy of click

_INTERRUPTED = 130  # typer turns Ctrl-C into this exit code
_WRITES_AT_THE_END = ("eval", "evaluate")

app = typer.Typer(
    name="vtrim",
    help="Trim the draft vocabulary of speculative decoding, from token counts to measured speed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("coverage")(coverage)
app.command("search")(search)
app.command("train-draft")(train_draft)
app.command("eval")(evaluate)
app.command("evaluate", hidden=True)(evaluate)
app.command("compare")(compare)
app.command("sweep")(sweep)
app.command("tasks")(tasks)
app.command("report")(report)
app.command("run")(run_recipe)
app.command("regenerate")(regenerate)
app.command("flops")(flops)
app.command("trim")(trim)
app.command("export")(export)
app.command("import")(import_command)
app.add_typer(vocab, name="vocab")
app.add_typer(recipes, name="recipes")
app.command("doctor")(doctor)
app.command("demo")(demo)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"vtrim {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Only results and errors.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="More detail.")] = False,
    local_rank: Annotated[
        int | None, typer.Option("--local_rank", hidden=True, help="Set by the deepspeed launcher.")
    ] = None,
) -> None:
    """Trim the draft vocabulary of speculative decoding, from token counts to measured speed."""
    del version, local_rank  # the rank is read from the environment
    common.set_verbosity(quiet=quiet, verbose=verbose)


def main(arguments: list[str] | None = None) -> None:
    """Runs one command: exit code 0; 2 on bad input (one ``error:`` line); 130 on Ctrl-C."""
    if arguments is None:
        common.own_process()
    typed = sys.argv[1:] if arguments is None else arguments
    note_command(typed)
    alone = "RANK" not in os.environ  # training sets it later
    try:
        code = app(args=arguments, standalone_mode=False)
    except VtrimError as error:
        _stop(" ".join(str(error).split()), 2, alone=isinstance(error, OwnError))
    except UsageError as error:
        _stop(" ".join(error.format_message().split()), 2)
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    finally:
        note_command(None)
    if code == _INTERRUPTED and alone:
        command = next((word for word in typed if not word.startswith("-")), "")
        kept = "nothing was written" if command in _WRITES_AT_THE_END else "finished work is kept"
        _stop(f"interrupted; {kept}.", _INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)


def _stop(message: str, code: int, *, alone: bool = False) -> None:
    sys.stdout.flush()
    if not message:  # the help was shown instead
        sys.exit(code)
    if alone or common.speaks():  # one line, not one for each process of a group
        sys.stderr.write(f"error: {message}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
