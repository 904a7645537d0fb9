"""How long the parts of one decoding round take: measured on a machine, or a GPU's roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vtrim.errors import InputError, OptionError

_SHORTEST_S, _LONGEST_S = 1e-9, 1e6  # of a forward: less or more was not measured


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Times of a round of L drafted tokens [s].

    verify_s: one target forward over L + 1 tokens of each sequence. plain_s: over one token, the
    step of decoding without a draft. draft_base_s, draft_per_row_s: a draft step with a head of k
    rows takes base + per_row * k, the mean over the L steps of a round. num_draft_tokens: L.
    batch: sequences decoded together. source: where the times come from, for people.
    """

    verify_s: float
    plain_s: float
    draft_base_s: float
    draft_per_row_s: float
    num_draft_tokens: int
    batch: int
    source: str

    def draft_s(self, draft_vocab_size: float) -> float:
        """One draft step with a head of that many rows [s]."""
        return self.draft_base_s + self.draft_per_row_s * draft_vocab_size

    def cycle_s(self, draft_vocab_size: float) -> float:
        """One whole round: L draft steps and the verification [s]."""
        return self.verify_s + self.num_draft_tokens * self.draft_s(draft_vocab_size)

    def to_dict(self) -> dict[str, Any]:
        """The fields as a plain mapping."""
        return asdict(self)

    @classmethod
    def from_measurement(
        cls, measured: Mapping[str, Any], *, num_draft_tokens: int, origin: str
    ) -> StepTimes:
        """The times that ``vtrim flops --measure`` left in a run, for L drafted tokens.

        The draft step was timed as the mean over a chain of one length (the fc fusion runs once
        a round), so times of another length are no times of this one.

        Raises:
            OptionError: chains of another length were timed.
            InputError: the file is not a measurement, or holds times that cannot be.
        """
        try:
            timed, fit = int(measured["num_draft_tokens"]), measured["draft_fit"]
            steps = {int(row["tokens"]): float(row["median_s"]) for row in measured["verify"]}
            verify, plain = steps[timed + 1], steps[1]
            base, per_row = float(fit["base_s"]), float(fit["per_row_s"])
            source = (
                f"measured: {measured['device_name']}, {measured['dtype']}, "
                f"{measured['threads']} threads, {measured['context']} cached tokens"
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"{origin}: not a measurement of step times (bad or missing {error}). "
                "Run `vtrim flops --measure` again."
            ) from error
        forwards = all(_SHORTEST_S <= seconds <= _LONGEST_S for seconds in (verify, plain))
        if not forwards or not all(0 <= seconds <= _LONGEST_S for seconds in (base, per_row)):
            raise InputError(
                f"{origin}: impossible times (verify {verify:g} s, plain {plain:g} s, draft step "
                f"{base:g} s + {per_row:g} s a row). Run `vtrim flops --measure` again."
            )
        if num_draft_tokens != timed:
            raise OptionError(
                f"--num-draft-tokens {num_draft_tokens}: {origin} times chains of {timed}. Run "
                f"`vtrim flops --measure --num-draft-tokens {num_draft_tokens}`, or search with "
                f"--num-draft-tokens {timed}."
            )
        return cls(
            verify_s=verify,
            plain_s=plain,
            draft_base_s=base,
            draft_per_row_s=per_row,
            num_draft_tokens=num_draft_tokens,
            batch=1,
            source=source,
        )
