"""The options of one ``vtrim eval``: what they ask for, and what cannot be asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run
from vtrim.cli import eval_values as values
from vtrim.cli.common import pick_dtype
from vtrim.cli.eval_engine_checks import check_engine
from vtrim.cli.eval_tasks import check_tasks, longest_reply
from vtrim.errors import InputError, OptionError

if TYPE_CHECKING:
    from vtrim.decoding.drafters import DrafterOptions
    from vtrim.decoding.generation import GenerationSettings
    from vtrim.decoding.protocol import Acceptor

_DROPMATCH = ("heads", "p_drop", "criterion", "correction")
_LISTS = ("knob", "stop", "task")
"""Options that can be typed several times."""
_DRAFTING = ("draft_model", "skip_layers", "draft_vocab", "max_ngram", "min_confidence")
"""Options of drafters by the names that both sides give them."""


@dataclass(frozen=True, kw_only=True)
class EvalCall:
    """The options of one call as they were typed; None and empty are options left out."""

    run: Run
    draft: Path | None
    target: str | None
    drafter: str | None
    tree: str | None
    fallback_chain: bool
    draft_model: str | None
    skip_layers: str | None
    draft_vocab: Path | None
    max_ngram: int | None
    min_confidence: float | None
    acceptor: str | None
    heads: int | None
    p_drop: str | None
    criterion: str | None
    correction: str | None
    knob: tuple[str, ...]
    diagnose: bool
    temperature: float
    top_k: int
    top_p: float
    num_draft_tokens: str | None
    batch_size: int
    seed: int
    prompts: Path | None
    task: tuple[str, ...]
    task_data: Path | None
    allow_code_execution: bool
    num_prompts: int
    max_new_tokens: int | None
    stop: tuple[str, ...]
    repeats: int
    engine: str
    server: str | None
    plain_server: str | None
    server_model: str | None
    engine_python: Path | None
    request_timeout: float
    dtype: str
    device: str | None
    threads: int
    fast_forward: bool
    revision: str | None
    trust_remote_code: bool
    offline: bool
    name: str | None

    @classmethod
    def of(cls, run: Run, options: Mapping[str, Any]) -> EvalCall:
        """The call with these options; others that the command has are not looked at."""
        names = {field.name for field in fields(cls)} - {"run", *_LISTS}
        lists: Any = {name: tuple(options.get(name) or ()) for name in _LISTS}
        return cls(run=run, **{name: options[name] for name in names}, **lists)

    def check(self) -> None:
        """Refuses what cannot work; no model is looked for.

        Raises:
            OptionError: an option is unknown or out of range, or two do not go together.
        """
        self._check_typed()
        self.make_acceptor()
        self.settings(frozenset())

    def _check_typed(self) -> None:
        """Refuses what needs no torch to be told: importing it takes seconds."""
        if "" in self.stop:
            raise OptionError("--stop '': an empty text would end every reply at once.")
        check_tasks(self)
        check_engine(self)
        _ = self.artifact, self._rule_options()
        values.draft_tokens(self.num_draft_tokens)
        typed = self._drafting()
        if self.drafter_name != "tree":  # its shape is read with torch
            self._options_of(typed)
        pick_dtype(self.dtype)

    @property
    def drafter_name(self) -> str:
        """What drafts: as typed, else what another option implies, else the run's EAGLE draft."""
        return _drafter_of(vars(self))

    @property
    def acceptor_name(self) -> str:
        """The rule: as typed, else the exact one of the temperature."""
        return _acceptor_of(vars(self))

    @property
    def draft_folder(self) -> Path:
        """Where the draft lies.

        Raises:
            InputError: none was named and the run has none, or there is no folder of the name.
        """
        if self.draft is not None and not self.draft.exists():
            raise InputError(
                f"--draft {self.draft}: no such draft. Train one with `vtrim train-draft`."
            )
        if self.draft is not None and not self.draft.is_dir():
            raise InputError(
                f"--draft {self.draft}: not a folder; name the folder that holds the draft's "
                "config.json and model.safetensors."
            )
        return self.draft or self.run.require(self.run.draft, "train-draft")

    @property
    def artifact(self) -> Path:
        """Where the result goes.

        Raises:
            OptionError: the name is not that of a file.
        """
        name = result_name(vars(self)) if self.name is None else self.name
        if not name.strip():
            raise OptionError("--name '': give the name of a file, or leave it out.")
        if Path(name).name != name or name.startswith("."):
            raise OptionError(f"--name {name}: give a plain name, without folders.")
        return self.run.eval / f"{name}.json"

    def make_observer(self) -> Acceptor | None:
        """The chosen rule as ``--diagnose`` wants it: it also notes what takes time to look at."""
        looks = replace(self, knob=(*self.knob, "diagnose=true"))
        return looks.make_acceptor() if self.diagnose else None

    def make_acceptor(self) -> Acceptor:
        """The chosen rule, with nothing counted yet.

        Raises:
            OptionError: an option is unknown or out of range, or does not suit the temperature.
        """
        options = self._rule_options()
        from vtrim.decoding.acceptors import make_acceptor

        try:
            return make_acceptor(
                self.acceptor_name, temperature=self.temperature, seed=self.seed, **options
            )
        except OptionError as error:
            raise OptionError(values.under_knob(str(error), self.knob)) from error

    def _rule_options(self) -> dict[str, Any]:
        """The options of the rule that were typed, by name."""
        name, options = self.acceptor_name, values.knobs(self.knob)
        needed = values.NEEDED_KNOBS.get(name, "")
        if needed.partition("=")[0] not in ("", *options):
            raise OptionError(
                f"--acceptor {name}: give --knob {needed}; no value suits every model."
            )
        typed = {key: getattr(self, key) for key in _DROPMATCH if getattr(self, key) is not None}
        if typed and name != "dropmatch":
            option = next(iter(typed)).replace("_", "-")
            raise OptionError(f"--{option}: only with --acceptor dropmatch, not with {name}.")
        if "p_drop" in typed:
            typed["p_drop"] = values.noise(typed["p_drop"])
        for key in typed.keys() & options.keys():
            raise OptionError(f"--knob {key}: stands beside --{key.replace('_', '-')}; give one.")
        if self.diagnose and name != "dropmatch":
            raise OptionError(f"--diagnose: only with --acceptor dropmatch, not with {name}.")
        return {**options, **typed}

    def drafter_options(self) -> DrafterOptions:
        """What drafts, with its options.

        Raises:
            OptionError: it is unknown, or an option is another drafter's or out of range.
        """
        typed = self._drafting()
        shape = None if self.tree is None else values.tree_shape(self.tree)
        if self.drafter_name == "tree" and shape is None and self._on_cpu():
            shape = values.CPU_TREE
        if shape is not None:
            typed |= dict(zip(("total_token", "depth", "top_k"), shape, strict=True))
        return self._options_of(typed)

    def _drafting(self) -> dict[str, Any]:
        """The options of the drafter that were typed, by name, but for a tree's shape."""
        from vtrim.decoding.drafters import DRAFTERS

        name = self.drafter_name
        typed = {key: getattr(self, key) for key in _DRAFTING}
        for key in typed if name in DRAFTERS else ():
            fit = [one for one, options in DRAFTERS.items() if key in options.__dataclass_fields__]
            self._check_suits(key, fit)
        trees = ["tree"]
        self._check_suits("tree", trees)
        self._check_suits("fallback_chain", trees)
        self._check_suits("draft", [one for one, o in DRAFTERS.items() if o.needs_draft])
        if self.skip_layers is not None:
            typed["skip_layers"] = values.blocks(self.skip_layers)
        return typed

    def _options_of(self, typed: Mapping[str, Any]) -> DrafterOptions:
        from vtrim.decoding.drafters import drafter_options

        try:
            return drafter_options(self.drafter_name, **typed)
        except OptionError as error:
            if self.tree is None or str(error).startswith("-"):
                raise
            raise OptionError(f"--tree {self.tree}: {str(error).removeprefix('tree ')}") from error

    def _on_cpu(self) -> bool:
        import torch

        return (self.device or ("cuda" if torch.cuda.is_available() else "cpu")).startswith("cpu")

    def _check_suits(self, key: str, drafters: list[str]) -> None:
        """Refuses an option of drafters that are not this call's."""
        if getattr(self, key) not in (None, False) and self.drafter_name not in drafters:
            raise OptionError(
                f"--{key.replace('_', '-')}: only with --drafter {' or '.join(drafters)}, not "
                f"with {self.drafter_name}."
            )

    def settings(self, stop_ids: frozenset[int]) -> GenerationSettings:
        """What decides a generation besides prompt, draft and acceptor.

        Raises:
            OptionError: a value is out of range.
        """
        from vtrim.decoding.drafters import TreeOptions
        from vtrim.decoding.generation import GenerationSettings

        drafted, options = values.draft_tokens(self.num_draft_tokens), self.drafter_options()
        most = values.MOST_DRAFTED if drafted == values.AUTO else drafted or values.CHAIN_LENGTH
        if isinstance(options, TreeOptions):
            if drafted not in (None, values.AUTO):
                raise OptionError(
                    f"--num-draft-tokens {drafted}: a tree's depth is the second number of --tree."
                )
            most = options.depth + 1  # levels below the root's own
        return GenerationSettings(
            max_new_tokens=longest_reply(self, values.LONGEST_REPLY),
            stop_ids=stop_ids,
            temperature=self.temperature,
            num_draft_tokens=int(most),
            seed=self.seed,
            top_k=self.top_k,
            top_p=self.top_p,
            adaptive=drafted == values.AUTO,
            stop_strings=self.stop,
        )


def result_name(options: Mapping[str, Any]) -> str:
    """The name of a call's result: as typed, else rule, drafter, engine and tasks.

    EAGLE's chains and local decoding go without saying. options: by key; some may be missing.
    """
    if options.get("name"):
        return str(options["name"])
    parts = [_acceptor_of(options), _drafter_of(options), options.get("engine", values.LOCAL)]
    tasks = options.get("task") or ()
    parts += [task.partition(":")[0] for task in ([tasks] if isinstance(tasks, str) else tasks)]
    return "-".join(part for part in parts if part not in ("eagle", values.LOCAL))


def _acceptor_of(options: Mapping[str, Any]) -> str:
    return options.get("acceptor") or values.exact_rule(options.get("temperature", 0.0))


def _drafter_of(options: Mapping[str, Any]) -> str:
    implied = "eagle"
    if options.get("draft_model") or options.get("skip_layers"):
        implied = "model"
    if options.get("tree"):
        implied = "tree"
    return options.get("drafter") or implied
