"""A draft made of the target by leaving blocks out: same weights, no copy, the target untouched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vtrim.decoding.cache import TargetCache
from vtrim.errors import OptionError
from vtrim.models.lean import LeanTarget, fast_target
from vtrim.models.skipping import without_layers
from vtrim.models.target import Target, load_target

NAMES = ["stories260k", "target_headdim", "target_softcap"]
IDS = torch.tensor([[1, 40, 7, 22, 50, 3]])


@pytest.fixture(scope="module")
def load(shared: Path) -> Callable[[str], Target]:
    def one(name: str) -> Target:
        place = "data/model" if name == "stories260k" else "inputs"
        return load_target(str(shared / place / name), dtype=torch.float32)

    return one


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_leaving_no_block_out_gives_the_target_s_own_states(
    name: str, load: Callable[[str], Target]
) -> None:
    target = load(name)
    twin = without_layers(target, [])
    assert torch.equal(twin.forward(IDS).hidden, target.forward(IDS).hidden)
    assert twin.forward(IDS).aux.shape == (1, 6, 0)


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_left_out_blocks_pass_the_stream_on(name: str, load: Callable[[str], Target]) -> None:
    target, skipped = load(name), [1, 2]
    part = without_layers(target, skipped)
    # The same by letting the target's own blocks give back what enters them.
    hooks = [
        target.layers[block].register_forward_hook(
            lambda _module, args, kwargs, _out: args[0] if args else kwargs["hidden_states"],
            with_kwargs=True,
        )
        for block in skipped
    ]
    expected = target.forward(IDS).hidden
    for hook in hooks:
        hook.remove()
    assert part.num_layers == target.num_layers - 2
    torch.testing.assert_close(part.forward(IDS).hidden, expected)


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_the_rest_keeps_its_own_cache(name: str, load: Callable[[str], Target]) -> None:
    part = without_layers(load(name), [0, 3])
    cache = TargetCache(part.config, 1, 6)
    pieces = []
    for piece in IDS.split([3, 1, 2], dim=1):
        pieces.append(part.forward(piece, cache=cache).hidden)
    assert len(cache.layers) == part.num_layers
    torch.testing.assert_close(torch.cat(pieces, 1), part.forward(IDS).hidden, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("lean", [False, True])
@torch.inference_mode()
def test_weights_are_shared_and_the_target_stays_as_it_is(
    lean: bool, load: Callable[[str], Target]
) -> None:
    target = load("stories260k")
    whole = fast_target(target, lambda _: None) if lean else target
    before = whole.forward(IDS)
    part = without_layers(whole, range(1, 4))
    owned = {p.data_ptr() for p in target.model.parameters()}
    assert {p.data_ptr() for p in part.model.parameters()} <= owned
    part.forward(IDS)
    after = whole.forward(IDS)
    assert torch.equal(before.hidden, after.hidden)
    assert torch.equal(before.aux, after.aux)
    assert (target.config.num_hidden_layers, part.config.num_hidden_layers) == (5, 2)
    if lean:
        assert isinstance(part, LeanTarget)
        assert all(block in whole.blocks for block in part.blocks)
        slow = without_layers(target, range(1, 4))
        torch.testing.assert_close(
            part.forward(IDS).hidden, slow.forward(IDS).hidden, atol=1e-4, rtol=1e-4
        )


def test_blocks_that_do_not_exist_and_all_of_them_are_refused(
    load: Callable[[str], Target],
) -> None:
    target = load("stories260k")
    with pytest.raises(OptionError, match="blocks 0 to 4; there is no block 5"):
        without_layers(target, [1, 5])
    with pytest.raises(OptionError, match="at least one has to stay"):
        without_layers(target, range(5))
    assert without_layers(target, [0, 1, 2, 3]).num_layers == 1
