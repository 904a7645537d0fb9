"""The other trainers' order of work (benchmarks/training/peers.py) gives our parity mode."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from vtrim.training.batch import make_rows
from vtrim.training.ttt import TTTModel, step_coefficients

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "training"))
from peers import PEERS
from test_step import CLOSE, KEPT, STEPS, _draft, _gradients, _sample, _settings, _target, _teacher

IDS = [[1, 5, 9, 3, 3, 7, 2, 8, 30, 11, 4, 2], [6, 2, 31, 12, 9, 1, 2, 14, 0, 25, 36, 7]]
MASK = [[0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0], [0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]]
# the last token is no reply: there the peers train a row towards a teacher that is not


@pytest.mark.parametrize("name", sorted(PEERS))
def test_eagle_parity_equals_the_peers_order_of_work(name: str) -> None:
    target = _target("llama")
    draft = _draft(target)
    settings = _settings(mask_alignment="eagle", divisor="bt")
    bins = [[_sample(i, m, n)] for n, (i, m) in enumerate(zip(IDS, MASK, strict=True))]
    rows, teacher = make_rows(bins, STEPS, "eagle"), _teacher(target)
    features = teacher.features(bins, rows)
    tokens = torch.full((STEPS,), rows.length)
    model = TTTModel(draft, settings, teacher.logits)
    ours = model(rows, features, step_coefficients(tokens, settings.decay)).total

    states = target.forward(torch.tensor(IDS))
    peer = PEERS[name](draft, target.logits, target.vocab_size, STEPS)
    theirs = peer(
        torch.tensor(IDS), torch.tensor(MASK), target.embedding, states.aux, states.hidden
    )
    assert 0 < len(KEPT) < target.vocab_size
    torch.testing.assert_close(ours, theirs, **CLOSE)
    expected = _gradients(draft, theirs)
    for parameter, gradient in _gradients(draft, ours).items():
        torch.testing.assert_close(gradient, expected[parameter], **CLOSE, msg=parameter)
