"""What a round notes of the first drafted tokens that it rejected."""

from __future__ import annotations

import pytest
import torch

from vtrim.decoding.acceptors import make_acceptor
from vtrim.decoding.generation import Rejection, SequenceState
from vtrim.decoding.protocol import Proposal, Verdict, Verification
from vtrim.decoding.stops import Stops

V = 8


def logits(*best: int) -> torch.Tensor:
    """[N+1, V] rows whose arg-max is as given."""
    rows = torch.zeros(len(best), V)
    rows[range(len(best)), list(best)] = 5.0
    return rows


def proposal(*tokens: int, parents: tuple[int, ...] | None = None) -> Proposal:
    soft = torch.zeros(len(tokens), V)
    return Proposal(torch.tensor(tokens, dtype=torch.long), None, soft, torch.arange(V), parents)


def noted(
    drafted: Proposal, rows: torch.Tensor, verdict: Verdict, stop: int = 99
) -> tuple[Rejection, ...]:
    state = SequenceState([0], prompt_length=1, prompt=0, reply_end=99, aux=torch.zeros(1, 3))
    state.note(
        rows, drafted, verdict, state.commit(drafted, verdict, Stops(frozenset({stop}), (), None))
    )
    return state.finish().rejections


def greedy(drafted: Proposal, rows: torch.Tensor) -> Verdict:
    view = Verification(
        hidden=rows, logits=rows, head=lambda h: h, temperature=0.0, position=1, prompt=0
    )
    return make_acceptor("greedy").accept(drafted, view)


@pytest.mark.parametrize(
    ("tokens", "best", "found"),
    [
        ((1, 2, 3), (1, 2, 3, 4), ()),  # all kept
        ((1, 2, 3), (1, 7, 3, 4), (Rejection(1, 7, False),)),
        ((1, 2, 3), (6, 2, 3, 4), (Rejection(0, 6, False),)),
        ((), (6,), ()),  # nothing drafted
    ],
)
def test_a_chain_notes_where_it_broke_and_the_target_s_own_token(
    tokens: tuple[int, ...], best: tuple[int, ...], found: tuple[Rejection, ...]
) -> None:
    drafted, rows = proposal(*tokens), logits(*best)
    assert noted(drafted, rows, greedy(drafted, rows)) == found


def test_the_likeliest_token_can_only_be_rejected_by_a_draw() -> None:
    drafted = proposal(1, 2)
    assert noted(drafted, logits(1, 2, 3), Verdict((0,), 6, ("ratio",))) == (Rejection(1, 6, True),)


def test_an_accepted_stop_is_no_rejection() -> None:
    drafted = proposal(1, 2, 3)
    kept = Verdict((0, 1), 6, ("argmax",) * 2)
    assert noted(drafted, logits(1, 2, 6, 4), kept, stop=2) == ()
    assert noted(drafted, logits(1, 2, 6, 4), kept, stop=6) == (Rejection(2, 6, False),)


def test_a_tree_is_rejected_where_none_of_the_siblings_is_kept() -> None:
    # 1 and 2 behind the root, 3 and 4 behind 2
    drafted = proposal(1, 2, 3, 4, parents=(-1, -1, 1, 1))
    rows = logits(2, 0, 7, 0, 0)
    assert noted(drafted, rows, greedy(drafted, rows)) == (Rejection(1, 7, False),)
    leaf = logits(1, 7, 0, 0, 0)  # 1 is kept, and nothing was drafted behind it
    assert noted(drafted, leaf, greedy(drafted, leaf)) == ()
    drawn = Verdict((1,), 5, ("ratio",))
    assert noted(drafted, logits(2, 0, 4, 0, 0), drawn) == (Rejection(1, 5, True),)
