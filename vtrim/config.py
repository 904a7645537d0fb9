"""Recipes: one YAML is one reproducible run. Section keys are the option names of the commands."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from vtrim.errors import InputError, OptionError, did_you_mean

Value = str | list[str] | dict[str, str]
Section = dict[str, Value]

HEADER = ("Purpose", "Cost", "Command", "Expect")


class Recipe(BaseModel):
    """A whole run: target, data, and the options of each step, as text.

    Which keys a section knows is for its command to say (vtrim.cli.chain): no list of options is
    kept here that could differ from the commands' own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    target: str
    data: list[str] = []
    regenerate: Section = {}
    coverage: Section = {}
    search: Section = {}
    train: Section = {}
    eval: list[Section] = []
    report: Section = {}
    _path: Path = PrivateAttr()
    _places: dict[str, str] = PrivateAttr()

    @property
    def path(self) -> Path:
        """The file it was read from; the names of files in it are relative to its folder."""
        return self._path

    def where(self, key: str) -> str:
        """``file:line: key``, or the --set that gave the key; of the nearest key that is there."""
        return _where(self._path, self._places, key)


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe in a YAML file, with ``KEY=VALUE`` overrides such as ``train.lr=1e-3``.

    Raises:
        InputError: no such file, not YAML, an unknown key or a value of the wrong kind.
        OptionError: an override is no KEY=VALUE, or names an evaluation that is not there.
    """
    import yaml

    try:
        # every scalar stays the text that was typed: the option it is for decides what it means
        loader = yaml.BaseLoader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
        content = {} if node is None else loader.construct_document(node)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise InputError(f"{path}: this recipe cannot be read ({reason}).") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InputError(f"{path}:{line}: not YAML ({error.problem}).") from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not YAML ({' '.join(str(error).split())}).") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}:1: a recipe is a mapping of name, target, data and sections.")
    places: dict[str, str] = {}
    for key, line in _lines(path, node):
        places.setdefault(key, f"{path}:{line}")
    for typed in overrides:
        _override(content, places, typed)
    return _validated(path, content, places)


def _validated(path: Path, content: dict[str, Any], places: dict[str, str]) -> Recipe:
    for key in content:
        if key not in Recipe.model_fields:
            raise unknown_key(_where(path, places, key), key, Recipe.model_fields)
    whole = {key: value for key, value in content.items() if value not in ("", "null", "~")}
    if isinstance(whole.get("data"), str):
        whole["data"] = [whole["data"]]
    if isinstance(whole.get("eval"), dict):
        whole["eval"] = [whole["eval"]]
    try:
        recipe = Recipe.model_validate(whole)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "missing":
            raise InputError(f"{path}:1: '{key}' is missing.") from error
        raise InputError(f"{_where(path, places, key)}: {first['msg']}.") from error
    recipe._path, recipe._places = path, places
    return recipe


def unknown_key(where: str, key: str, known: Iterable[str]) -> InputError:
    """The error for a key that nothing knows; names the nearest one."""
    meant = did_you_mean(key, known) or f" Known: {', '.join(sorted(known))}."
    return InputError(f"{where}: unknown key.{meant}")


def _where(path: Path, places: dict[str, str], key: str) -> str:
    known = key
    while known and known not in places:
        known = known.rpartition(".")[0]
    return f"{places.get(known, f'{path}:1')}: {known or key}"


def _lines(path: Path, node: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, int]]:
    """(dotted key, line number) of everything in a YAML tree.

    Raises:
        InputError: a key stands twice in one mapping; YAML would keep the last without a word.
    """
    import yaml

    if depth > 4:  # deeper than any recipe; a list may also hold itself
        return
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if str(key.value) in seen:
                raise InputError(f"{path}:{line}: {prefix}{key.value}: stands twice; keep one.")
            seen.add(str(key.value))
            yield f"{prefix}{key.value}", line
            yield from _lines(path, value, f"{prefix}{key.value}.", depth + 1)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield f"{prefix}{index}", value.start_mark.line + 1
            yield from _lines(path, value, f"{prefix}{index}.", depth + 1)


def _override(content: dict[str, Any], places: dict[str, str], typed: str) -> None:
    """Sets one value; ``eval.KEY`` means every evaluation, ``eval.NAME.KEY`` one of them."""
    import yaml

    key, equals, text = typed.partition("=")
    parts = [part.replace("-", "_") for part in key.split(".")]
    if not equals or not all(parts):
        raise OptionError(f"--set {typed}: give KEY=VALUE, e.g. train.lr=1e-3.")
    try:
        value = yaml.load(text, yaml.BaseLoader) if text else ""  # noqa: S506 - builds only text
    except yaml.YAMLError as error:
        raise OptionError(f"--set {typed}: the value is not YAML.") from error
    for path in _paths(content, parts, typed):
        *folders, last = path
        place: Any = content
        for part in folders:
            place = place[part] if isinstance(part, int) else place.setdefault(part, {})
        if not isinstance(place, dict):
            raise OptionError(f"--set {typed}: {'.'.join(map(str, folders))} holds no keys.")
        place[last] = value
        _place(places, [str(part) for part in path], f"--set {typed}")


def _place(places: dict[str, str], parts: list[str], where: str) -> None:
    """Notes where a value comes from now, in place of what stood there and inside it."""
    key = ".".join(parts)
    for known in [known for known in places if f"{known}.".startswith(f"{key}.")]:
        del places[known]
    for count in range(1, len(parts) + 1):
        places.setdefault(".".join(parts[:count]), where)


def _paths(content: dict[str, Any], parts: list[str], typed: str) -> list[list[Any]]:
    """Where an override goes in the recipe's tree."""
    if parts[0] != "eval" or len(parts) == 1:
        return [list(parts)]
    entries = content.setdefault("eval", [{}])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        return [list(parts)]
    if len(parts) == 2:
        return [["eval", index, parts[1]] for index in range(len(entries))]
    names = [entry.get("name", entry.get("acceptor", str(i))) for i, entry in enumerate(entries)]
    if parts[1] not in names:
        raise OptionError(f"--set {typed}: no such evaluation. There are: {', '.join(names)}.")
    return [["eval", names.index(parts[1]), *parts[2:]]]


def read_header(path: Path) -> dict[str, str]:
    """The comment that begins a recipe: Purpose, Cost, Command, Expect; those that are there."""
    found: dict[str, str] = {}
    name = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        match = re.match(r"#\s*(?:(\w+):\s+)?(.*)", line)
        if match is None:
            break
        if match[1] in HEADER:
            name = match[1]
            found[name] = match[2]
        elif name:
            found[name] = f"{found[name]} {match[0].lstrip('# ')}"
    return found


def recipes_folder() -> Path:
    """Where the recipes lie: inside an installed wheel, or beside the package in a checkout."""
    package = Path(__file__).parent
    installed = package / "_recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def shipped_recipes() -> dict[str, Path]:
    """The recipes that travel with vtrim, by their name: the path without its suffix."""
    root = recipes_folder()
    files = sorted(root.rglob("*.yaml"))
    return {file.relative_to(root).with_suffix("").as_posix(): file for file in files}


def find_recipe(name: str) -> Path:
    """The file of that name, else the shipped recipe.

    Raises:
        InputError: there is neither; names the nearest shipped one.
    """
    path, shipped = Path(name), shipped_recipes()
    if path.is_file():
        return path
    if name in shipped:
        return shipped[name]
    meant = did_you_mean(name, shipped, cutoff=0.4)
    raise InputError(
        f"{name}: no such file, and no recipe of that name travels with vtrim.{meant} "
        "`vtrim recipes ls` names those that do."
    )


def python_command() -> list[str]:
    """How to start vtrim in a new process with this interpreter."""
    return [sys.executable, "-m", "vtrim"]
