"""Head rows for tokens that a trained draft never had, from the target's own head.

A trained head reads the *draft's* normed state, the target's head its own, so a target row is a
start only after a map between the two spaces. Both heads have rows for the kept tokens: the map M
is fitted on them by ridge regression, pulled towards the scaled copy s*I,

    M = argmin sum_i w_i |x_i M - y_i|^2 + strength * |M - s I|^2,   x target rows, y trained rows.

w_i is how often token i was counted, plus one: rows of rare tokens are many, training pushed them
down, and unweighted they would push every new row down too (a third of a real draft's rows deleted
and made again: first-step accuracy .387 weighted, .372 not, .385 copied, .333 without them, .422
before). Without counts all rows weigh the same. The strength is the one that restores every fifth
common row best when it is left out. Heads that began as a copy of the target's give a strong pull;
heads trained from nothing a weak one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from vtrim.errors import InputError

STRENGTHS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
FEWEST = 10
_FOLD = 5
_CHUNK = 4096


@dataclass(frozen=True, kw_only=True)
class RowFit:
    """How new rows were made, and how well the rule restores trained rows that it did not see.

    common: rows the map was fitted on. weighted: by counts. scale: s. strength: of the pull, in
    units of the mean squared length of a column. relative_error: |restored - trained| / |trained|
    over the rows left out, weighted alike. cosine: their mean cosine.
    """

    common: int
    weighted: bool
    scale: float
    strength: float
    relative_error: float
    cosine: float

    def to_dict(self) -> dict[str, float]:
        """The fields as a plain mapping."""
        return asdict(self)


@dataclass(frozen=True)
class _Moments:
    """X'X and X'Y of some rows, [d, d] each, in fp64."""

    gram: Tensor
    cross: Tensor

    def __add__(self, other: _Moments) -> _Moments:
        return _Moments(self.gram + other.gram, self.cross + other.cross)

    @property
    def scale(self) -> float:
        """s, the factor of the best scaled copy."""
        return float(self.cross.trace() / self.gram.trace())

    def maps(self, strengths: Iterable[float]) -> list[Tensor]:
        """M [d, d] for each strength; one decomposition serves all."""
        values, vectors = torch.linalg.eigh(self.gram)
        start = vectors.T @ (self.cross - self.scale * self.gram)
        unit = values.mean()
        identity = self.scale * torch.eye(values.numel(), dtype=torch.float64)
        return [
            identity + vectors @ (start / (values.clamp(min=0) + s * unit)[:, None])
            for s in strengths
        ]


def fit_new_rows(
    trained: Tensor, common: Tensor, wanted: Tensor, counts: Tensor | None = None
) -> tuple[Tensor, RowFit]:
    """Rows for new tokens [n, d], fp32, and how well the rule does.

    trained: [c, d] draft rows of the common tokens; common: [c, d] the target's rows of them;
    wanted: [n, d] the target's rows of the new tokens; counts: [c] of the common tokens.

    Raises:
        InputError: too few tokens in common, rows of another width, or rows that no map fits: not
            finite, or all zero.
    """
    if trained.shape != common.shape or wanted.shape[1:] != common.shape[1:]:
        raise InputError(
            f"the draft's head rows have {trained.shape[1]} numbers, the target's "
            f"{common.shape[1]}: new rows cannot be made from them."
        )
    count = trained.shape[0]
    if count < FEWEST:
        raise InputError(
            f"the draft and the new vocabulary share {count} tokens with the target; at least "
            f"{FEWEST} are needed to fit rows for new ones."
        )
    # a row times the root of its weight counts as often as its weight says
    if not all(bool(torch.isfinite(rows).all()) for rows in (trained, common, wanted)):
        raise InputError(
            "rows of the draft's head or of the target's hold numbers that are not finite (NaN, "
            "infinity): new rows cannot be made from them."
        )
    root = torch.ones(count, 1) if counts is None else (counts[:, None] + 1).float().sqrt()
    out = torch.arange(count) % _FOLD == _FOLD - 1
    seen = _moments(trained[~out], common[~out], root[~out])
    unseen = _moments(trained[out], common[out], root[out])
    y = trained[out].double()
    restored = [common[out].double() @ matrix for matrix in seen.maps(STRENGTHS)]
    errors = [float((root[out] * (x - y)).norm() / (root[out] * y).norm()) for x in restored]
    best = min(range(len(errors)), key=errors.__getitem__)
    whole = seen + unseen
    fit = RowFit(
        common=count,
        weighted=counts is not None,
        scale=whole.scale,
        strength=STRENGTHS[best],
        relative_error=errors[best],
        cosine=float(torch.cosine_similarity(restored[best], y).mean()),
    )
    if not all(map(math.isfinite, (fit.scale, fit.relative_error, fit.cosine))):
        raise InputError(
            "no map from the target's head to the draft's can be fitted: the rows of the tokens "
            "they share are zero, or nearly, in one of them."
        )
    return _apply(whole.maps([fit.strength])[0], wanted), fit


def _moments(trained: Tensor, common: Tensor, root: Tensor) -> _Moments:
    width = common.shape[1]
    gram = torch.zeros(width, width, dtype=torch.float64)
    cross = torch.zeros(width, width, dtype=torch.float64)
    parts = (common.split(_CHUNK), trained.split(_CHUNK), root.split(_CHUNK))
    for x, y, w in zip(*parts, strict=True):
        weighted = x.double() * w
        gram += weighted.T @ weighted
        cross += weighted.T @ (y.double() * w)
    return _Moments(gram, cross)


def _apply(matrix: Tensor, rows: Tensor) -> Tensor:
    return torch.cat([(chunk.double() @ matrix).float() for chunk in rows.split(_CHUNK)])
