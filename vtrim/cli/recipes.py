"""``vtrim recipes``: what travels with vtrim, a copy to change, and whether a recipe is right."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from vtrim.cli import common
from vtrim.errors import InputError

app = typer.Typer(
    help="Recipes: list those that travel with vtrim, copy one, check your own.",
    no_args_is_help=True,
)


@app.command("ls")
def list_recipes(json_output: common.JsonOption = False) -> None:
    """List the recipes that travel with vtrim, with what each is for and costs."""
    from rich.table import Table
    from rich.text import Text

    from vtrim.config import load_recipe, read_header, shipped_recipes

    found = []
    for name, path in shipped_recipes().items():
        header, recipe = read_header(path), load_recipe(path)
        facts = {"recipe": name, "target": recipe.target, "path": str(path)}
        found.append(facts | {key.lower(): text for key, text in header.items()})
    if json_output:
        common.emit_json({"recipes": found})
        return
    table = Table("recipe", "what it is for, and its cost", title="vtrim run RECIPE")
    for one in found:
        text = Text(f"{one.get('purpose', '')}\n").append(f"{one.get('cost', '')}\n", style="dim")
        table.add_row(Text(one["recipe"], no_wrap=True), text)
    common.results.print(table)


@app.command("copy")
def copy_recipe(
    name: Annotated[str, typer.Argument(help="A name of `vtrim recipes ls`.")],
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Where to.")] = Path(),
    json_output: common.JsonOption = False,
) -> None:
    """Copy a recipe and the files it names into a folder, to change it there.

    Example: vtrim recipes copy smollm2 mine, then vtrim run mine/smollm2.yaml
    """
    from vtrim.cli.chain import recipe_files
    from vtrim.config import find_recipe, load_recipe

    source = find_recipe(name)
    files = [source.name, *recipe_files(load_recipe(source))]
    for one in files:
        if (folder / one).exists():
            raise InputError(f"{folder / one}: exists already. Name another folder.")
    try:
        for one in files:
            (folder / one).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source.parent / one, folder / one)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}).") from error
    copied = [str(folder / one) for one in files]
    if json_output:
        common.emit_json({"recipe": name, "files": copied, "artifact": copied[0]})
        return
    for line in copied:
        common.results.print(line, markup=False, soft_wrap=True)


@app.command("check")
def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE]...", help="YAML files or names (default: all shipped)."),
    ] = None,
    json_output: common.JsonOption = False,
) -> None:
    """Check recipes: YAML, header, keys, values, files; no model is loaded, no hub is asked.

    Stops at the first problem with its file and line.
    """
    from vtrim.cli.recipe_check import check_recipe
    from vtrim.config import find_recipe, shipped_recipes

    paths = [find_recipe(name) for name in files or shipped_recipes()]
    checked = [{"recipe": str(path), "steps": len(check_recipe(path))} for path in paths]
    if json_output:
        common.emit_json({"checked": checked})
        return
    for one in checked:
        common.results.print(
            f"{one['recipe']}: right, {one['steps']} steps", markup=False, soft_wrap=True
        )
