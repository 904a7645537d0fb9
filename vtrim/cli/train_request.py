"""What one ``vtrim train-draft`` trains, put together and checked before the target is loaded."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import check_match, fingerprint_json, read_json
from vtrim.cli.train_call import TrainCall, check_options, draft_overrides
from vtrim.cli.train_start import counts_of
from vtrim.errors import InputError
from vtrim.models.aux_layers import check_aux_layers
from vtrim.shape import DraftShape

if TYPE_CHECKING:
    from vtrim.training.run import TrainRequest


def check(call: TrainCall, world_size: int) -> None:
    """Refuses in seconds what could not work, before any model is loaded."""
    check_options(call, world_size)
    call.draft_vocab()
    _check_target(call)
    _check_request(call)


def make_request(call: TrainCall) -> TrainRequest:
    """The call's request, without the fingerprint of the target's weights."""
    from vtrim.models.aux_layers import default_aux_layers
    from vtrim.training.run import TrainRequest

    config = read_json(call.run.target_config)
    num_layers = DraftShape.from_target_config(config).num_target_layers
    return TrainRequest(
        settings=call.resolved,
        vocab=call.draft_vocab(),
        folder=call.run.train,
        draft_folder=call.run.draft,
        target_config=config,
        shape_overrides=draft_overrides(call.draft_config) if call.draft_config else {},
        aux_layers=list(call.aux_layer_ids or default_aux_layers(num_layers)),
        start=call.start,
        counts=counts_of(call),
        mix=call.mix_weights,
        cache_features=call.cache_features,
        user_ds_config=call.user_config,
        ds_origin=str(call.deepspeed_config),
        stop_ids=tuple(call.manifest["target"].get("stop_ids", ())),
        facts=_facts(call),
    )


def _check_request(call: TrainCall) -> None:
    """Refuses what does not fit the target's shape, the states' folder or the training begun here.

    Raises:
        VtrimError: names the option.
    """
    overrides = draft_overrides(call.draft_config) if call.draft_config else {}
    shape = DraftShape.from_target_config(read_json(call.run.target_config), overrides)
    heads, groups = shape.num_attention_heads, shape.num_key_value_heads
    if heads % groups or shape.head_dim % 2:
        raise InputError(
            f"{call.draft_config or call.run.target_config}: {heads} heads of {shape.head_dim} on "
            f"{groups} key/value heads: heads must share those evenly, and have an even size."
        )
    if call.aux_layer_ids is not None:
        check_aux_layers(call.aux_layer_ids, shape.num_target_layers, "--aux-layers")
    if call.cache_features is not None:
        _check_store(call, call.cache_features, shape.num_target_layers)
    if not call.restart and any(call.run.train.glob("checkpoints/*")):
        from vtrim.training.folder import check_begun

        identity = make_request(call).identity
        check_begun(call.run.train, call.resolved, identity, processes=call.processes)


def _check_target(call: TrainCall) -> None:
    """Refuses another model than the run's under the run's name and shape."""
    if call.target_name == call.manifest["target"]["name"]:
        return
    from vtrim.models.hub import load_config

    check_match(
        f"{call.target_name}: config",
        fingerprint_json(load_config(call.target_name, offline=call.offline)),
        fingerprint_json(read_json(call.run.target_config)),
        str(call.run.target_config),
        "Run `vtrim coverage --target` for that model in another run folder.",
    )


def _check_store(call: TrainCall, folder: Path, num_layers: int) -> None:
    """Refuses a folder that is none, could not be written, or holds other states.

    The target's weights are compared later: they may be yet to be downloaded.
    """
    manifest = folder / "manifest.json"
    if not manifest.exists():
        _check_writable(folder)
        return
    from vtrim.models.aux_layers import default_aux_layers
    from vtrim.training.store import check_manifest

    config = fingerprint_json(read_json(call.run.target_config))
    layers = call.aux_layer_ids or default_aux_layers(num_layers)
    own = {"target_config": config, "aux_layer_ids": list(layers)}
    check_manifest(manifest, {**own, "dtype": call.resolved.dtype})


def _check_writable(folder: Path) -> None:
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not there.is_dir():
        raise InputError(f"--cache-features {folder}: {there} is a file. Name a folder.")
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise InputError(
            f"--cache-features {folder}: {there} cannot be written ({error.strerror or error}). "
            "Name a folder that can, or leave the option out."
        ) from error


def _facts(call: TrainCall) -> dict[str, Any]:
    """Provenance that goes into the draft's config and card."""
    manifest = call.manifest
    search = manifest["steps"].get("search", {})
    chosen = search.get("vocab_fingerprint") == call.draft_vocab().fingerprint
    share = search.get("coverage") if chosen else None
    return {
        "target": call.target_name,
        "tokenizer_fingerprint": manifest["target"]["tokenizer_fingerprint"],
        "data_fingerprint": manifest["steps"]["coverage"]["data_fingerprint"],
        "rows": manifest["data"]["rows_used"],
        "coverage": "not measured" if share is None else f"{100 * share:.2f} %",
    }
