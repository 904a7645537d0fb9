"""``vtrim eval --engine vllm|openai``: the same prompts through a serving engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.cli import common
from vtrim.cli.eval_call import EvalCall
from vtrim.cli.eval_engine_open import (
    CHOSEN,
    PLAIN,
    RULES,
    Pairing,
    log_path,
    running_servers,
    started_libraries,
)
from vtrim.cli.eval_prompts import Found, find_prompts
from vtrim.cli.eval_record import draft_facts, engine_provenance, resolved, write
from vtrim.cli.eval_steps import check_named, target_of
from vtrim.cli.eval_tasks import task_numbers

if TYPE_CHECKING:
    from vtrim.evaluation.engines.reply import ServingEngine
    from vtrim.evaluation.tasks.asking import TaskPrompt


def run_engine(call: EvalCall) -> dict[str, Any]:
    """Measures and writes eval/NAME.json; the numbers to print."""
    started = time.monotonic()
    call.check()
    check_named(call)
    common.hush_libraries()
    from vtrim.evaluation.engines.result import EngineMeasurement

    pairing = _pairing(call)
    with _opened(pairing) as (engines, found):
        kernel = None if call.server else _kernel(engines)
        said = _ask(pairing, engines, found, kernel)
        measured = EngineMeasurement(
            prompts=found.prompts,
            said=said,
            infos={name: engine.info for name, engine in engines.items()},
            temperature=call.temperature,
            batch_size=call.batch_size,
            vocab=pairing.vocab,
            kernel=() if kernel is None else tuple(kernel.seconds),
        )
        others = sum(getattr(engine, "other_tokens", 0) for engine in engines.values())
    numbers = measured.result()
    numbers["engine"]["other_tokens"] = others
    _warn(numbers)
    result = {
        "acceptor": call.acceptor_name,
        **numbers,
        **task_numbers(found.prompts, measured.generations, pairing.source.tokenizer),
        **_setting_fields(pairing, found, numbers),
        "wall_seconds": round(time.monotonic() - started, 3),
        "artifact": str(call.artifact),
    }
    write(call.run, result, call.artifact)
    for path in (_part_path(call), *map(partial(log_path, call), RULES)):
        path.unlink(missing_ok=True)
    return result


def _pairing(call: EvalCall) -> Pairing:
    """The target, and the draft of the library, held against each other before anything starts.

    Raises:
        InputError: one of them cannot be read. MismatchError: the draft is another target's.
    """
    source = target_of(call)
    settings = call.settings(source.stop_ids)
    if call.server is not None:
        return Pairing(call=call, source=source, settings=settings, draft=None)
    from vtrim.evaluation.pairing import read_draft

    folder = call.draft_folder
    vocab = read_draft(source, folder).vocab
    return Pairing(call=call, source=source, settings=settings, draft=(folder, vocab))


@contextmanager
def _opened(pairing: Pairing) -> Iterator[tuple[dict[str, ServingEngine], Found]]:
    """The engines by rule, and the prompts for them; what was started is ended."""
    with ExitStack() as stack:
        if pairing.call.server is None:
            found = find_prompts(pairing.call, pairing.source, pairing.source.positions)
            engines = started_libraries(pairing, found, stack)
        else:
            engines = running_servers(pairing.call)
            known = [engine.info.context_length for engine in engines.values()]
            room = min([pairing.source.positions, *(length for length in known if length)])
            found = find_prompts(pairing.call, pairing.source, room)
        found = found.whole(
            pairing.source, pairing.settings.max_new_tokens, _writer(pairing, engines)
        )
        for line in found.skipped.lines():
            common.warn(f"prompts skipped, {line}")
        yield engines, found


def _writer(pairing: Pairing, engines: dict[str, ServingEngine]) -> Any:
    """What writes the replies before later turns: the engine without a draft, where there is one.

    A draft changes no greedy reply.
    """
    from vtrim.evaluation.engines.rows import write_greedily

    def write(prompt: TaskPrompt) -> str:
        engine = engines.get(PLAIN, engines[CHOSEN])
        ids, text = write_greedily(engine, prompt, pairing.settings)
        if ids is None:
            return text or ""
        return str(pairing.source.tokenizer.decode(list(ids), skip_special_tokens=True))

    return write


def _kernel(engines: dict[str, ServingEngine]) -> Any:
    """A fixed piece of work on the engines' own machine, where that is a CPU."""
    from vtrim.evaluation.noise import FixedKernel

    device = engines[CHOSEN].info.settings.get("device")
    return FixedKernel("cpu") if device == "cpu" else None


def _ask(pairing: Pairing, engines: dict[str, ServingEngine], found: Found, kernel: Any) -> Any:
    """All that the engines say; what an earlier try has finished is not asked again."""
    from vtrim.evaluation.engines.part import PartFile
    from vtrim.evaluation.engines.rows import Schedule, ask

    call, source = pairing.call, pairing.source
    infos = {name: (one.info.name, dict(one.info.settings)) for name, one in engines.items()}
    key = {
        "engines": infos,
        "draft": draft_facts(pairing.draft),
        "settings": repr(pairing.settings),
        "batch_size": call.batch_size,
        "prompts": [[*prompt.ids, prompt.max_new_tokens, *prompt.stop] for prompt in found.prompts],
    }
    part = PartFile(_part_path(call), key)
    if part.found:
        common.note(f"{part.found} of the prompts were finished earlier: {part.path}")
    how = Schedule(
        batch_size=call.batch_size,
        repeats=call.repeats,
        decode=lambda ids: str(source.tokenizer.decode(list(ids), skip_special_tokens=False)),
        kernel=kernel,
    )
    total = len(found.prompts) * len(engines) * call.repeats
    with common.progress("decoding", total) as advance:
        return ask(engines, found.prompts, pairing.settings, how, part, advance)


def _part_path(call: EvalCall) -> Path:
    """Where finished prompts lie until all are."""
    return call.artifact.with_suffix(".part.jsonl")


def _setting_fields(pairing: Pairing, found: Found, numbers: dict[str, Any]) -> dict[str, Any]:
    """What was asked for, and what it was measured on."""
    call, settings = pairing.call, pairing.settings
    own = numbers["engine"]["settings"]
    drafted = len(numbers["acceptance_by_position"]) or own.get("speculative_num_draft_tokens")
    local = call.server is None
    resolved_settings = resolved(call, settings, call.make_acceptor())
    if not local:
        resolved_settings["drafter"] = {"name": "the server's"}
        resolved_settings["num_draft_tokens"] = drafted
    return {
        "prompts_skipped": dict(found.skipped.counts),
        "drafter": call.drafter_name if local else "the server's",
        "num_draft_tokens": settings.num_draft_tokens if local else drafted,
        "batch_size": call.batch_size,
        "diagnosed": False,
        "temperature": call.temperature,
        "dtype": own.get("dtype"),
        "device": own.get("device"),
        "settings": {**resolved_settings, "engine": call.engine},
        "provenance": engine_provenance(call, pairing.source, pairing.draft, found.facts),
    }


def _warn(numbers: dict[str, Any]) -> None:
    """What a reader must be told before using the numbers."""
    engine = numbers["engine"]
    if engine["other_tokens"]:
        common.warn(
            f"the server generated {engine['other_tokens']:,} tokens for others meanwhile: neither "
            "its counts nor its times are these prompts' alone."
        )
    if engine["replies_at_once"]:
        common.warn(
            f"{engine['replies_at_once']} replies came in one piece: their prompts' time is in "
            "their tokens/s."
        )
    if numbers["acceptance_length"] is None:
        common.warn(f"{engine['name']} does not count its rounds: no acceptance length.")
    if numbers["plain"] is None:
        common.note("no --plain-server given: no speed-up.")
