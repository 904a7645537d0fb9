"""``vtrim flops --measure``: times verification and draft steps on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from vtrim import __version__
from vtrim.artifacts import Run, fingerprint_json, read_object, write_json
from vtrim.cli import common
from vtrim.errors import OptionError

if TYPE_CHECKING:
    from vtrim.cli.target_config import ModelSource
    from vtrim.shape import DraftShape

DEFAULT_CONTEXT = 256
STEADY_SPREAD = 0.2  # an idle machine stays below 0.1


@dataclass(frozen=True, kw_only=True)
class MeasureRequest:
    """What was typed. chosen: a size timed besides a spread of sizes."""

    source: ModelSource
    shape: DraftShape
    chosen: int
    context: int
    num_draft_tokens: int = 3
    repeats: int = 5
    threads: int = 1
    dtype: str = "auto"
    device: str | None = None

    def __post_init__(self) -> None:
        """Refuses numbers that time nothing.

        Raises:
            OptionError: one is below its least value.
        """
        least = {
            "--num-draft-tokens": self.num_draft_tokens,
            "--repeats": self.repeats,
            "--threads": self.threads,
        }
        for option, value in least.items():
            if value < 1:
                raise OptionError(f"{option} {value}: must be at least 1.")


def measure_times(run: Run, request: MeasureRequest) -> dict[str, Any]:
    """The times; left in the run too (step_times.json), for ``search --objective throughput``."""
    dtype, device = common.pick_dtype(request.dtype), common.pick_device(request.device)
    import torch

    from vtrim.evaluation.step_times import StepSettings, default_sizes, measure_steps
    from vtrim.models.target import load_target

    if device == "cpu":
        torch.set_num_threads(request.threads)
    common.hush_libraries()
    source = request.source
    target = load_target(
        source.name,
        dtype=dtype,
        device=device,
        revision=source.revision,
        trust_remote_code=source.trust_remote_code,
        offline=source.offline,
    )
    settings = StepSettings(
        num_draft_tokens=request.num_draft_tokens,
        context=request.context or DEFAULT_CONTEXT,
        repeats=request.repeats,
        sizes=default_sizes(request.shape.target_vocab_size, request.chosen),
    )
    with common.progress("timing rounds", settings.num_rounds) as advance:
        times = measure_steps(target, request.shape, settings, advance)
    measured = {
        "vtrim": __version__,
        "target": source.name,
        "config_fingerprint": fingerprint_json(_config(run, source)),
        **times,
    }
    if unsteady := unsteady_times(measured):
        common.warn(unsteady)
    write_json(run.step_times, measured)
    run.record("flops", {**measured, "artifact": str(run.step_times)})
    return measured


def unsteady_times(measured: dict[str, Any]) -> str | None:
    """What to know before counting with times that spread too far; None where they are steady."""
    rows = [*measured["verify"], *measured["draft"]]
    spread = max((row["q75_s"] - row["q25_s"]) / row["median_s"] for row in rows)
    if spread <= STEADY_SPREAD:
        return None
    return (
        f"the middle half of some times spreads over {spread:.0%} of their median: something else "
        "is using this machine. Measure again when it is idle, or raise --repeats."
    )


def _config(run: Run, source: ModelSource) -> Any:
    """The run's copy of the target's config, where it is the run's own target; else as loaded."""
    if run.target_config.exists() and run.read().get("target", {}).get("name") == source.name:
        return read_object(run.target_config)
    return source.loaded_config()


def print_measured(measured: dict[str, Any], artifact: str) -> None:
    """Prints the two tables on stdout and where the times went on stderr."""
    common.results.print(_verify_table(measured))
    common.results.print(_draft_table(measured))
    fit = measured["draft_fit"]
    common.results.print(
        f"draft step: {1e3 * fit['base_s']:.3g} ms + {1e6 * fit['per_row_s']:.3g} ms for each "
        f"1,000 rows; the line misses a median by at most {fit['largest_error']:.1%}",
        markup=False,
        soft_wrap=True,
    )
    common.note(
        f"{artifact} written: {measured['device_name']}, {measured['dtype']}, "
        f"{measured['threads']} threads, {measured['context']} cached tokens. "
        "`vtrim search --objective throughput` counts with it."
    )


def _verify_table(measured: dict[str, Any]) -> Table:
    table = Table(title="Verification: one target forward, head and arg-max included")
    for name in ("tokens", "ms", "middle half", "of one token"):
        table.add_column(name, justify="right")
    one = measured["verify"][0]["median_s"]
    for row in measured["verify"]:
        table.add_row(f"{row['tokens']}", *_times(row), f"{row['median_s'] / one:.2f}")
    return table


def _draft_table(measured: dict[str, Any]) -> Table:
    drafted = measured["num_draft_tokens"]
    table = Table(title=f"One draft step, the mean over a chain of {drafted}")
    table.caption = (
        f"saved: of a step, against the largest k; FLOPs here over a chain of {drafted}, in which "
        "fc runs once"
    )
    table.caption_justify = "left"
    for name in ("k", "ms", "middle half", "line", "saved, measured", "saved, FLOPs"):
        table.add_column(name, justify="right")
    for row in measured["draft"]:
        table.add_row(
            f"{row['k']:,}",
            *_times(row),
            f"{1e3 * row['fit_s']:.3g}",
            f"{row['measured_reduction']:.1%}",
            f"{row['predicted_reduction']:.1%}",
        )
    return table


def _times(row: dict[str, Any]) -> tuple[str, str]:
    return f"{1e3 * row['median_s']:.3g}", f"{1e3 * row['q25_s']:.3g} to {1e3 * row['q75_s']:.3g}"
