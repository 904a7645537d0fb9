"""Which weights are kept, and when a run has stopped getting better.

The draft is judged by its decoded accepted length where that is measured, else by the held-out
joint prefix, which also decides between equal lengths; never by its loss: accepted length can fall
while loss still falls. Of equal drafts the later one is kept, but it is no progress.
"""

from __future__ import annotations

from typing import Any

from vtrim.training.decode_check import DecodeCheck
from vtrim.training.feeder import Feeder
from vtrim.training.heldout import HeldOut, evaluate
from vtrim.training.settings import TrainSettings
from vtrim.training.state import TrainState
from vtrim.training.ttt import TTTModel
from vtrim.training.weights import BestWeights, plain_copy


class Selection:
    """Measures the draft of the moment and keeps its weights when they are the best so far."""

    def __init__(
        self,
        model: TTTModel,
        feeder: Feeder,
        settings: TrainSettings,
        best: BestWeights,
        decode: DecodeCheck | None,
    ) -> None:
        self.model = model
        self.feeder = feeder
        self.settings = settings
        self.best = best
        self.decode = decode

    def check(self, state: TrainState) -> list[dict[str, Any]]:
        """Measures, updates ``state``, keeps better weights; the entries to log. All call."""
        at = {"step": state.step, "seconds": round(state.seconds, 3)}
        entries: list[dict[str, Any]] = []
        score: list[float] = []
        if self.feeder.split.heldout:
            measured = evaluate(self.model, self.feeder.heldout(), self.settings.decay)
            if measured is not None:
                state.heldout = {"kind": "heldout", **at, **_rounded(measured)}
                entries.append(state.heldout)
                score.append(state.heldout["joint_prefix"])
        if self.decode is not None:
            draft = plain_copy(self.model.draft, self.settings.zero_stage)
            state.decoded = {"kind": "decode", **at, **self.decode.measure(draft)}
            entries.append(state.decoded)
            score.insert(0, state.decoded["acceptance_length"])
        state.checked = state.step
        self._judge(state, score)
        return entries

    def _judge(self, state: TrainState, score: list[float]) -> None:
        """Keeps the weights unless they are worse; without a measure the last are kept.

        score: measures, the deciding one first.
        """
        before = state.best.get("score") or []
        if not score or score >= before:
            state.best = {"step": state.step, "score": score or None}
            state.best |= {"heldout": state.heldout, "decoded": state.decoded}
            self.best.save(self.model.draft, state.step, self.settings.zero_stage)
        if score > before or not score:
            state.worse = 0
            return
        state.worse += 1
        patience = self.settings.early_stop
        state.stopped_early = patience is not None and state.worse >= patience


def _rounded(measured: HeldOut) -> dict[str, Any]:
    values = vars(measured)
    return {
        name: [round(v, 5) for v in value] if isinstance(value, list) else round(value, 5)
        for name, value in values.items()
    }
