from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from vtrim.errors import InputError, OptionError
from vtrim.models.importing import HEAD, import_draft
from vtrim.models.layout import draft_config, load_draft, write_draft
from vtrim.models.resize import change_vocabulary
from vtrim.models.target_head import head_rows
from vtrim.vocab import DraftVocab

IDS = [2, 3, 5, 8, 9, 10, 11, 13, 14, 17, 20, 21, 22, 23, 24]


@pytest.fixture
def head(tiny_target: Path) -> Callable[[], Tensor]:
    return lambda: head_rows(str(tiny_target))


def test_kept_rows_are_the_same_bits_and_dropped_ones_are_gone(own_draft: Path) -> None:
    draft = import_draft(own_draft)
    found = change_vocabulary(draft, DraftVocab.of([3, 9, 24], 32), None)
    assert (found.kept, found.added, found.dropped, found.fit) == (3, 0, 12, None)
    rows = draft.tensors[HEAD][[IDS.index(3), IDS.index(9), IDS.index(24)]]
    assert torch.equal(found.draft.tensors[HEAD].view(torch.int16), rows.view(torch.int16))
    for name in set(draft.tensors) - {HEAD}:
        assert found.draft.tensors[name] is draft.tensors[name]


def test_new_rows_come_from_the_target_s_head_and_kept_ones_stay(
    own_draft: Path, head: Callable[[], Tensor]
) -> None:
    draft = import_draft(own_draft)
    wanted = DraftVocab.of([0, 1, *IDS, 31], 32)
    found = change_vocabulary(draft, wanted, head)
    assert (found.kept, found.added, found.dropped) == (15, 3, 0)
    assert found.fit is not None
    assert found.fit.common == 15
    rows = found.draft.tensors[HEAD]
    assert (rows.shape, rows.dtype) == ((18, 32), torch.bfloat16)
    assert torch.equal(rows[2:17], draft.tensors[HEAD])
    assert bool(rows.isfinite().all() and (rows[[0, 1, 17]].float().norm(dim=1) > 0).all())


def test_a_head_that_is_a_copy_of_the_target_s_is_extended_by_copies(
    own_draft: Path, head: Callable[[], Tensor]
) -> None:
    draft = import_draft(own_draft)
    draft.tensors[HEAD] = head()[IDS].bfloat16()
    found = change_vocabulary(draft, DraftVocab.full(32), head)
    assert found.draft.vocab.is_full
    error = found.draft.tensors[HEAD].float() - head()
    assert float(error.norm() / head().norm()) < 0.01


def test_new_tokens_without_a_target_and_other_targets_are_refused(
    own_draft: Path, head: Callable[[], Tensor]
) -> None:
    draft = import_draft(own_draft)
    with pytest.raises(OptionError, match=r"1 of 2 tokens are new.*Name it with --target"):
        change_vocabulary(draft, DraftVocab.of([0, 2], 32), None)
    with pytest.raises(InputError, match=r"made for a head of 99 rows, the draft .* of 32"):
        change_vocabulary(draft, DraftVocab.of([0, 2], 99), head)
    with pytest.raises(InputError, match="the target's LM head has 31 rows"):
        change_vocabulary(draft, DraftVocab.of([0, 2], 32), lambda: head()[:31])


@pytest.mark.parametrize("layout", ["SpecForge", "EAGLE", "ModelOpt", "speculators"])
def test_a_foreign_draft_cut_and_written_is_read_by_the_decoder(
    foreign: Callable[..., Path], own_draft: Path, tmp_path: Path, layout: str
) -> None:
    draft = import_draft(foreign(layout))
    found = change_vocabulary(draft, DraftVocab.of([3, 9, 24], 32), None).draft
    config = draft_config(found.shape, found.vocab, found.aux_layer_ids, found.config, {})
    write_draft(tmp_path / "out", found.tensors, found.vocab, config, "")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    assert stored["d2t"].tolist() == [3, 8, 22]
    assert stored["t2d"].nonzero()[:, 0].tolist() == [3, 9, 24]
    assert stored[HEAD].dtype == (torch.float16 if layout == "EAGLE" else torch.bfloat16)
    loaded = load_draft(tmp_path / "out", num_target_layers=lambda: 8)
    whole = load_draft(own_draft)
    hidden = torch.randn(1, 4, 32, generator=torch.Generator().manual_seed(0))
    rows = [IDS.index(3), IDS.index(9), IDS.index(24)]
    wanted = whole.model.logits(hidden)[..., rows]
    assert torch.allclose(loaded.model.logits(hidden), wanted, rtol=1e-4, atol=1e-5)
    assert loaded.aux_layer_ids == whole.aux_layer_ids == (2, 4, 5)
    assert loaded.vocab.ids.tolist() == [3, 9, 24]


def test_new_rows_too_large_for_the_draft_s_dtype_are_refused(
    foreign: Callable[..., Path],
) -> None:
    draft = import_draft(foreign("EAGLE"))
    head = torch.randn(32, 32, generator=torch.Generator().manual_seed(0))
    head[1] *= 1e9
    with pytest.raises(InputError, match="too large for float16"):
        change_vocabulary(draft, DraftVocab.of([1, 2, 3], 32), lambda: head)
