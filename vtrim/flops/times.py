"""How long the parts of one decoding round take: measured on a machine, or a GPU's roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from vtrim.errors import InputError, OptionError


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

        Raises:
            OptionError: the target was not timed over L + 1 tokens.
            InputError: the file is not a measurement.
        """
        try:
            verify = {int(row["tokens"]): float(row["median_s"]) for row in measured["verify"]}
            fit = measured["draft_fit"]
            plain, base, per_row = verify[1], float(fit["base_s"]), float(fit["per_row_s"])
            source = (
                f"measured: {measured['device_name']}, {measured['dtype']}, "
                f"{measured['threads']} threads, {measured['context']} cached tokens"
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{origin}: not a measurement of step times (bad or missing {error}). "
                "Run `vtrim flops --measure` again."
            ) from error
        if num_draft_tokens + 1 not in verify:
            raise OptionError(
                f"--num-draft-tokens {num_draft_tokens}: {origin} times the target over up to "
                f"{max(verify)} tokens, {num_draft_tokens + 1} are needed. Run `vtrim flops "
                f"--measure --num-draft-tokens {num_draft_tokens}`."
            )
        return cls(
            verify_s=verify[num_draft_tokens + 1],
            plain_s=plain,
            draft_base_s=base,
            draft_per_row_s=per_row,
            num_draft_tokens=num_draft_tokens,
            batch=1,
            source=source,
        )
