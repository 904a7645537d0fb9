"""What ``vtrim sweep`` does between parsing and printing: load, measure point by point, write."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.sweep_call import SweepCall
from vtrim.evaluation.sweep_space import Point, named, num_points

if TYPE_CHECKING:
    from vtrim.cli.eval_steps import Loaded
    from vtrim.evaluation.sweep import Bench
    from vtrim.evaluation.sweep_log import SweepLog

_NO_DRIFT_KNOWN = 1.0  # for TPE, of a point whose replies had no rounds


def run_sweep(call: SweepCall) -> dict[str, Any]:
    """Measures what is not in sweep/NAME.jsonl yet and writes the page; the numbers to print."""
    from vtrim.cli.eval_steps import load

    paths = call.log_path, call.page_path
    loaded = load(call.at(call.first))
    call = call.carried_out(loaded.call)
    from vtrim.evaluation.sweep_log import open_log
    from vtrim.evaluation.sweep_page import write_page

    log_path, page_path = paths
    with open_log(log_path) as log:
        log.start(made_with(call, loaded))
        resumed = len(log.points)
        _note_resumed(log)
        _measure(call, loaded, log)
        points = list(log.points)
    result = {
        **_summary(call, loaded, points),
        "resumed": resumed,
        "artifact": str(log_path),
        "page": str(page_path),
    }
    write_page(page_path, result)
    earlier = call.base.run.read()["steps"].get("sweep", {}).get("results", {})
    brief = {name: result[name] for name in ("acceptor", "sampler", "artifact", "page")}
    brief["points"] = len(points)
    call.base.run.record("sweep", {"results": {**earlier, log_path.stem: brief}})
    return result


def made_with(call: SweepCall, loaded: Loaded) -> dict[str, Any]:
    """All that decides the points besides their knobs, under names that an error can show."""
    from vtrim.artifacts import fingerprint_json
    from vtrim.cli.eval_record import resolved
    from vtrim.training.target_weights import weights_fingerprint

    point = call.first
    eval_call = call.at(point)
    settings = resolved(eval_call, loaded.settings, eval_call.make_acceptor())
    flat = {
        f"{name} {option}": value
        for name in ("acceptor", "drafter")
        for option, value in settings.pop(name).items()
        if option not in point and option != "p_drop_chosen"
    }
    kept = {name: value for name, value in settings.items() if name not in point}
    if "num_draft_tokens" in point:
        kept.pop("adaptive", None)
    paths = ("draft", "prompts")  # the content counts, not where it lies
    facts = {name: value for name, value in loaded.provenance.items() if name not in paths}
    second = call.base.draft_model
    if second is not None:
        facts["draft model weights"] = weights_fingerprint(second)
    target = loaded.engine.target
    return {
        **flat,
        **kept,
        **facts,
        "target weights": weights_fingerprint(facts["target"], revision=call.base.revision),
        "prompt ids": fingerprint_json([list(prompt.ids) for prompt in loaded.prompts]),
        "dtype": str(target.dtype).removeprefix("torch."),
        "device": str(target.device),
    }


def _note_resumed(log: SweepLog) -> None:
    if log.cut:
        common.warn(
            f"{log.path}: the last line was cut ({log.cut} bytes, taken off); its point is "
            "measured again."
        )
    if log.points:
        common.note(f"{log.path}: {len(log.points)} finished points found; going on.")


def _measure(call: SweepCall, loaded: Loaded, log: SweepLog) -> None:
    """Measures point after point; each is on the disk before the next one starts."""
    bench = _bench(call, loaded)
    done = sum(log.find(point) is not None for point in call.grid()) if _is_grid(call) else 0
    num = num_points(call.knobs) if _is_grid(call) else (call.trials or 0) - len(log.points)
    total = max(0, int(num) - done) * 2 * len(loaded.prompts)
    with common.progress("sweeping", total) as advance:
        for point in _next_points(call, log):
            eval_call = call.at(point)
            settings = eval_call.settings(loaded.settings.stop_ids)
            told = partial(advance, text=named(point))
            numbers = bench.measure(settings, eval_call.make_acceptor, told)
            log.add({"knobs": point, **numbers})


def _bench(call: SweepCall, loaded: Loaded) -> Bench:
    from vtrim.evaluation.sweep import Bench
    from vtrim.evaluation.tasks.grading import grader

    prompts, tokenizer = loaded.prompts, loaded.engine.tokenizer
    return Bench(
        engine=loaded.engine,
        prompts=prompts,
        grade=grader(prompts, call.base.prompts),
        decode=lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True)),
    )


def _is_grid(call: SweepCall) -> bool:
    return call.sampler == "grid"


def _next_points(call: SweepCall, log: SweepLog) -> Iterator[Point]:
    """The points that are still to be measured, each chosen when the one before is finished."""
    if _is_grid(call):
        yield from (point for point in call.grid() if log.find(point) is None)
        return
    from vtrim.evaluation.sweep import drift_of
    from vtrim.evaluation.sweep_tpe import next_point, within

    while True:
        found = []
        for line in log.points:
            drift = drift_of(line, call.base.temperature)
            known = _NO_DRIFT_KNOWN if drift is None else drift
            found.append((line["knobs"], line["speedup"] or 0.0, known))
        if sum(within(call.knobs, point) for point, _, _ in found) >= (call.trials or 0):
            return
        point = next_point(call.knobs, found, call.base.seed)
        if point is None:
            common.note(
                f"every combination is measured: {int(num_points(call.knobs)):,}, fewer than the "
                "trials asked for."
            )
            return
        yield point


def _summary(call: SweepCall, loaded: Loaded, points: list[dict[str, Any]]) -> dict[str, Any]:
    """The points, the fronts, and what they rest on."""
    from vtrim.evaluation.sweep import HOW, drift_of, pareto

    temperature = call.base.temperature
    shown = [{**point, "drift": drift_of(point, temperature)} for point in points]
    losses = [(p["speedup"], None if p["score"] is None else -p["score"]) for p in shown]
    greedy = "share of tokens off the target's arg-max"
    return {
        "acceptor": call.base.acceptor_name,
        "drafter": call.base.drafter_name,
        "sampler": call.sampler,
        "temperature": temperature,
        "max_new_tokens": loaded.settings.max_new_tokens,
        "prompts": len(loaded.prompts),
        "prompts_skipped": dict(loaded.skipped.counts),
        "drift_measure": greedy if temperature == 0 else "change of the mean log p [nats/token]",
        "baseline": HOW,
        "points": shown,
        "front": pareto([(p["speedup"], p["drift"]) for p in shown]),
        "score_front": pareto(losses),
        "made_with": made_with(call, loaded),
    }
