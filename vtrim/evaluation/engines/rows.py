"""The same prompts through an engine with a draft and without, prompt by prompt in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vtrim.errors import InputError, MismatchError
from vtrim.evaluation.engines.part import Pair, PartFile
from vtrim.evaluation.engines.reply import Batch, ServingEngine
from vtrim.evaluation.engines.served import ServedGeneration, generations_of
from vtrim.evaluation.measure import limited
from vtrim.evaluation.prompts import Prompt, batches

if TYPE_CHECKING:
    from vtrim.decoding.generation import GenerationSettings
    from vtrim.evaluation.noise import FixedKernel

Engines = Mapping[str, ServingEngine]
"""By rule: ``plain``, where there is one, and ``chosen``."""
_WARM_UP_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How is measured. batch_size: prompts sent at once; repeats: times that all is measured.

    decode: the ids of a reply as text, None where there is no tokenizer to hold them against;
    kernel: timed between the prompts.
    """

    batch_size: int
    repeats: int
    decode: Callable[[Sequence[int]], str] | None = None
    kernel: FixedKernel | None = None


@dataclass(frozen=True)
class Said:
    """All that was said. pairs: of each repeat, in the order of the prompts."""

    pairs: Sequence[Sequence[Pair]]

    def runs(self) -> list[dict[str, list[ServedGeneration]]]:
        """The generations of each rule in every repeat."""
        return [
            {
                name: [one for pair in repeat for one in generations_of(pair[name])]
                for name in repeat[0]
            }
            for repeat in self.pairs
        ]

    def batches(self, name: str) -> list[Batch]:
        """What was said by one rule's engine in the first repeat, which the others repeat."""
        return [pair[name] for pair in self.pairs[0]]


def ask(
    engines: Engines,
    prompts: Sequence[Prompt],
    settings: GenerationSettings,
    how: Schedule,
    part: PartFile,
    advance: Callable[[int], None],
) -> Said:
    """Every prompt to every engine, in an order that turns from batch to batch.

    What ``part`` holds is not asked again; each finished batch is added to it.

    Raises:
        InputError: an engine fails. MismatchError: it has another tokenizer.
    """
    warm = False
    repeats = []
    for repeat in range(how.repeats):
        pairs = []
        for index, (start, batch) in enumerate(batches(prompts, how.batch_size)):
            place = f"{repeat}:{start}"
            pair = part.get(place)
            if pair is None:
                if not warm:
                    _ask(engines, list(engines), batch, settings, 0, most=_WARM_UP_TOKENS)
                    warm = True
                if how.kernel is not None:
                    how.kernel.look()
                names = _turned(list(engines), index + repeat)
                pair = _ask(engines, names, batch, settings, start)
                _check_ids(pair, how.decode)
                part.add(place, pair)
            pairs.append(pair)
            advance(len(batch) * len(engines))
        repeats.append(pairs)
    return Said(repeats)


def write_greedily(
    engine: ServingEngine, prompt: Prompt, settings: GenerationSettings
) -> tuple[tuple[int, ...] | None, str | None]:
    """Ids and text of one greedy reply, to stand before a later turn."""
    greedy = replace(limited(settings, prompt), temperature=0.0, top_k=0, top_p=1.0)
    (reply,) = engine.decode([prompt.ids], greedy, 0).replies
    return reply.tokens, reply.text


def _ask(
    engines: Engines,
    names: Sequence[str],
    batch: Sequence[Prompt],
    settings: GenerationSettings,
    start: int,
    most: int | None = None,
) -> Pair:
    """What each engine says, asked in the order of ``names``; told in that of ``engines``."""
    own, ids = limited(settings, batch[0], most), [prompt.ids for prompt in batch]
    said: Pair = {}
    for name in names:
        try:
            said[name] = engines[name].decode(ids, own, start)
        except InputError as error:
            raise InputError(f"{batch[0].origin}, {name} decoding: {error}") from error
    return {name: said[name] for name in engines}


def _turned(names: list[str], turn: int) -> list[str]:
    turn %= len(names)
    return names[turn:] + names[:turn]


def _check_ids(pair: Pair, decode: Callable[[Sequence[int]], str] | None) -> None:
    """Refuses ids that do not spell the text that came with them: another model is served.

    Raises:
        MismatchError: shows both.
    """
    if decode is None:
        return
    for batch in pair.values():
        for reply in batch.replies:
            if reply.tokens is None or not reply.text:
                continue
            text, read = _letters(reply.text), _letters(decode(reply.tokens))
            if text not in read and read not in text:
                raise MismatchError(
                    f"the engine's token ids are not of the target's tokenizer: {text[:40]!r} "
                    f"reads {read[:40]!r} there. Serve the target, or name the served one with "
                    "--target."
                )


def _letters(text: str) -> str:
    """Letters and digits alone: engines and tokenizers differ in white space and cut characters."""
    return "".join(filter(str.isalnum, text))
