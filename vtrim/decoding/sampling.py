"""Laws over a vocabulary, and draws that depend on where a token stands, not on how it got there.

Every random number is a function of (seed, prompt, absolute position, purpose), read from a
counter-based generator (Philox), so a result does not depend on how positions fall into blocks.
Draws are made on the CPU and are the same on every device.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from vtrim.decoding.protocol import Verification
from vtrim.errors import OptionError

Place = tuple[int, int, int]
"""Where a random number belongs: (seed, prompt, absolute position)."""

HEAD = 256
"""Number of most likely tokens in which a nucleus is looked for first."""
COLDEST = 1e-6
"""The least temperature above 0: far below any that is told from greedy, far above underflow."""
_WORD = (1 << 64) - 1


class Purpose(IntEnum):
    """What a random number decides; numbers of different purposes are independent."""

    DRAFT = 0  # the drafted token
    ACCEPT = 1  # whether it is kept
    TARGET = 2  # the target's own token
    MASK = 3  # the dropout masks of DropMatch


def check_temperature(temperature: float) -> None:
    """Refuses what no law can be scaled by.

    Raises:
        OptionError: a negative, infinite or undefined temperature, or one that fp32 cannot divide
            by.
    """
    if temperature != 0 and not COLDEST <= temperature < float("inf"):
        raise OptionError(
            f"--temperature {temperature:g}: give 0 (greedy) or a number from {COLDEST:g} on."
        )


def _stream(place: Place, purpose: Purpose) -> np.random.Philox:
    seed, prompt, position = place
    key = [seed & _WORD, prompt & _WORD]
    return np.random.Philox(key=key, counter=[0, position & _WORD, int(purpose), 0])


def uniform(place: Place, purpose: Purpose, index: int = 0) -> float:
    """The random number in [0, 1) of a place and a purpose; ``index`` tells siblings apart."""
    words = _stream(place, purpose).random_raw(index + 1)
    return float(int(words[index]) >> 11) * 2.0**-53


def keep_masks(place: Place, *, num_heads: int, size: int, p_drop: float) -> Tensor:
    """[num_heads, size] bool, True where a unit is kept; P(True) = 1 - p_drop to within 2**-32.

    Row i is the same whatever the number of heads.
    """
    words = _stream(place, Purpose.MASK).random_raw(num_heads * ((size + 1) // 2))
    draws = words.reshape(num_heads, -1).view(np.uint32)[:, :size]
    return torch.from_numpy(draws >= round(p_drop * 2**32))


def arg_max(logits: Tensor) -> Tensor:
    """[...] the first arg-max of each row. logits: [..., V]."""
    if logits.device.type != "cpu":
        return logits.argmax(-1)
    # torch takes ten times as long over fp32 on a CPU, and more over bf16.
    return torch.as_tensor(logits.float().numpy().argmax(-1))


def law(logits: Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """[..., V] fp32 log-probabilities that a token is drawn from. logits: [..., V], below inf.

    Temperature 0 puts all mass on the (first) arg-max. top_k keeps the k largest logits and their
    ties (0: all), then top_p the smallest set of most likely tokens that holds this much mass.
    """
    wide = logits.float()
    if temperature == 0:
        one_hot = torch.full_like(wide, -torch.inf)
        return one_hot.scatter_(-1, arg_max(wide)[..., None], 0.0)
    # The largest logit goes to 0 first, so that a small temperature cannot overflow.
    scaled = (wide - wide.amax(-1, keepdim=True)) / temperature
    if 0 < top_k < scaled.shape[-1]:
        least = scaled.topk(top_k, dim=-1).values[..., -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    if top_p < 1:
        scaled = _nucleus(scaled, top_p)
    return scaled.log_softmax(-1)


def _nucleus(logits: Tensor, top_p: float) -> Tensor:
    """The logits with -inf outside the smallest most likely set whose mass reaches ``top_p``."""
    probabilities = logits.softmax(-1)
    ranked, order = _head(probabilities, top_p) or probabilities.sort(
        dim=-1, descending=True, stable=True
    )
    before = ranked.cumsum(-1) - ranked  # mass of the more likely tokens; 0 for the first
    outside = torch.ones_like(probabilities, dtype=torch.bool)
    outside.scatter_(-1, order, before >= top_p)
    return logits.masked_fill(outside, -torch.inf)


def _head(probabilities: Tensor, top_p: float) -> tuple[Tensor, Tensor] | None:
    """The most likely tokens in the order of a stable sort, if these few hold ``top_p``.

    A full sort of 128,000 numbers takes 12 ms on a CPU; a device would have to be waited for.
    """
    if probabilities.device.type != "cpu" or probabilities.shape[-1] <= HEAD:
        return None
    order = probabilities.topk(HEAD, dim=-1).indices.sort(dim=-1).values
    ranked, place = probabilities.gather(-1, order).sort(dim=-1, descending=True, stable=True)
    # Outside the head may be others as likely as its last, so those equal to it do not count.
    sure = ranked.masked_fill(ranked == ranked[..., -1:], 0.0).sum(-1)
    return (ranked, order.gather(-1, place)) if bool((sure > top_p + 1e-4).all()) else None


def draw(weights: Tensor, place: Place, purpose: Purpose) -> Tensor:
    """Index [...] of a token drawn by inverting the cumulative law; never one of weight 0.

    weights: [..., n] non-negative, any positive sum. All rows share the one random number.
    """
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    # Below the total even after rounding, so the index is in range; right=True: a token of weight 0
    # does not lift the cumulative law and is passed over.
    level = cumulative[..., -1:] * uniform(place, purpose)
    return torch.searchsorted(cumulative, level, right=True).squeeze(-1)


def target_token(view: Verification, row: int, seed: int, depth: int | None = None) -> int:
    """The target's own token at a row: its arg-max at temperature 0, else a draw from its law.

    depth: of the tokens that the row judges, by default ``row`` as in a chain.
    """
    logits = view.logits[row]
    if view.temperature == 0:
        return int(arg_max(logits))
    weights = law(logits, view.temperature, view.top_k, view.top_p).exp()
    position = view.position + (row if depth is None else depth)
    return int(draw(weights, (seed, view.prompt, position), Purpose.TARGET))
