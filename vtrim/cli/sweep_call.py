"""The options of one ``vtrim sweep``: the points that it asks for, and what cannot be asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vtrim.artifacts import Run
from vtrim.cli.eval_call import EvalCall
from vtrim.errors import OptionError, did_you_mean
from vtrim.evaluation.sweep_space import (
    Knob,
    Point,
    corners,
    grid,
    num_points,
    parse_knobs,
    spelled,
)

SAMPLERS = ("grid", "tpe")
_LENGTH = "num_draft_tokens"
_MOST_POINTS = 10_000
_NOT_SWEPT: dict[str, Any] = {
    **dict.fromkeys(("heads", "p_drop", "criterion", "correction")),
    "diagnose": False,
    "batch_size": 1,
    "repeats": 1,
    "engine": "local",
    "request_timeout": 600.0,
    **dict.fromkeys(("server", "plain_server", "server_model", "engine_python")),
}
"""Options of ``vtrim eval`` that ``--vary`` stands for, or that a sweep has no use for."""


@dataclass(frozen=True, kw_only=True)
class SweepCall:
    """What to measure with, and which points. trials: number of points of ``tpe``."""

    base: EvalCall
    knobs: tuple[Knob, ...]
    sampler: str
    trials: int | None

    @classmethod
    def of(
        cls,
        run: Run,
        options: Mapping[str, Any],
        vary: Sequence[str],
        sampler: str,
        trials: int | None,
    ) -> SweepCall:
        """The call with these options, each point of it checked; no model is looked for.

        Raises:
            OptionError: an option is unknown or out of range, or two do not go together.
        """
        base = EvalCall.of(run, {**_NOT_SWEPT, **options})
        call = cls(base=base, knobs=parse_knobs(vary), sampler=sampler, trials=trials)
        call._check_sampler()
        knobs = call.knobs
        from vtrim.decoding.acceptors import option_types

        types = {**option_types(base.acceptor_name), _LENGTH: "int | str"}
        types.pop("diagnose", None)  # measures more, decides nothing
        for knob in knobs:
            _check_name(knob.name, base.acceptor_name, list(types))
        if base.num_draft_tokens is not None and _LENGTH in [knob.name for knob in knobs]:
            raise OptionError(
                "--num-draft-tokens: stands beside --vary num_draft_tokens; give one."
            )
        reals = tuple(knob.real if "float" in types[knob.name] else knob for knob in knobs)
        call = replace(call, knobs=reals)
        for point in corners(reals):
            call._check_point(point)
        return call

    def _check_sampler(self) -> None:
        if self.sampler not in SAMPLERS:
            raise OptionError(f"--sampler {self.sampler}: unknown. Known: {', '.join(SAMPLERS)}.")
        if self.sampler == "tpe" and self.trials is None:
            raise OptionError("--sampler tpe: needs --trials N, the number of points to measure.")
        if self.sampler == "grid":
            if self.trials is not None:
                raise OptionError("--trials: only with --sampler tpe; a grid has its own size.")
            for knob in self.knobs:
                knob.check_listed()
            if num_points(self.knobs) > _MOST_POINTS:
                raise OptionError(
                    f"--vary: {num_points(self.knobs):,} combinations; at most {_MOST_POINTS:,} go "
                    "into a grid. Use --sampler tpe."
                )
        _ = self.log_path

    def _check_point(self, point: Point) -> None:
        """Refuses a point that cannot be measured, under the name it was typed with."""
        try:
            self.at(point).check()
        except OptionError as error:
            text = str(error).replace("--knob ", "--vary ")
            length = "--num-draft-tokens "
            if _LENGTH in point and text.startswith(length):
                text = f"--vary {_LENGTH}={text.removeprefix(length)}"
            raise OptionError(text) from error

    @property
    def name(self) -> str:
        """The name of the files.

        Raises:
            OptionError: it is not that of a file.
        """
        name = self.base.acceptor_name if self.base.name is None else self.base.name
        if not name.strip():
            raise OptionError("--name '': give the name of a file, or leave it out.")
        if Path(name).name != name or name.startswith("."):
            raise OptionError(f"--name {name}: give a plain name, without folders.")
        return name

    @property
    def log_path(self) -> Path:
        """Where the points go."""
        return self.base.run.sweep / f"{self.name}.jsonl"

    @property
    def page_path(self) -> Path:
        """Where the page goes."""
        return self.base.run.sweep / f"{self.name}.html"

    @property
    def first(self) -> Point:
        """A point to load the models with."""
        return next(corners(self.knobs))

    def at(self, point: Point) -> EvalCall:
        """The call of ``vtrim eval`` that measures a point."""
        knobs = tuple(f"{n}={spelled(v)}" for n, v in point.items() if n != _LENGTH)
        length = point.get(_LENGTH)
        drafted = self.base.num_draft_tokens if length is None else spelled(length)
        return replace(self.base, knob=knobs, num_draft_tokens=drafted)

    def carried_out(self, call: EvalCall) -> SweepCall:
        """The sweep with a call as it could be loaded: a chain's where a tree's could not be."""
        return replace(self, base=replace(call, knob=()))

    def grid(self) -> Iterator[Point]:
        """The points of a grid."""
        return grid(self.knobs)


def _check_name(name: str, acceptor: str, known: list[str]) -> None:
    if name in known:
        return
    hint = did_you_mean(name, known)
    raise OptionError(
        f"--vary {name}: {acceptor} has no such knob.{hint} Known: {', '.join(known)}."
    )
