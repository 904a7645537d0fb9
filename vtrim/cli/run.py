"""``vtrim run``: the whole chain from one recipe; what has not changed is skipped."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from vtrim.cli import common


def run_recipe(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="A YAML file, or a name of `vtrim recipes ls`.")
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="STEP", help="Only this step, e.g. train-draft; repeatable."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Another value, e.g. train.lr=1e-3; repeatable."
        ),
    ] = None,
    run: common.RunOption = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run steps anew though nothing has changed.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", "--dry-run", help="Print the commands and stop.")
    ] = False,
    json_output: common.JsonOption = False,
) -> None:
    """Run coverage, search, train-draft, eval and report as one recipe says.

    Each step is the command that is printed, in a process of its own. A step whose options and
    inputs are those it was last run with is skipped; the same line resumes after a stop.

    Example: vtrim run smollm2 --run my-run --set train.max_minutes=2
    """
    from vtrim.cli.chain import chain_steps
    from vtrim.cli.chain_run import pick_steps, plan_chain, run_chain
    from vtrim.cli.recipe_check import check_values
    from vtrim.config import find_recipe, load_recipe

    folder = common.open_run(run)
    found = load_recipe(find_recipe(recipe), overrides or ())
    steps = chain_steps(found, folder)
    chosen = pick_steps(steps, only or [])
    check_values(found, chosen)
    if plan:
        done = plan_chain(steps, chosen, folder, force=force)
    else:
        done = run_chain(steps, chosen, folder, force=force, results_on_stderr=json_output)
    if json_output:
        common.emit_json({"recipe": found.name, "run": str(folder.root), "steps": done})
    elif plan:
        _show(done)


def _show(steps: list[dict[str, Any]]) -> None:
    """The commands, ready to be pasted; what is said about them stands in comments."""
    for step in steps:
        common.results.print(f"# {step['step']}: {step['status']}", markup=False, soft_wrap=True)
        common.results.print(step["command"], markup=False, soft_wrap=True)
