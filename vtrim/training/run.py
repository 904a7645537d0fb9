"""From a run folder to a trained draft: what ``vtrim train-draft`` does in each process."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from vtrim import __version__
from vtrim.artifacts import fingerprint_file, fingerprint_json, read_json, write_json
from vtrim.errors import InputError
from vtrim.models.draft import Eagle3Draft
from vtrim.models.layout import WEIGHTS, draft_config, save_draft
from vtrim.models.smollm2 import HUB_ID, LICENCE, SMOLLM2
from vtrim.models.target import Target, default_aux_layers
from vtrim.shape import DraftShape
from vtrim.training.card import model_card
from vtrim.training.checkpoint import barrier, is_rank_zero, list_checkpoints
from vtrim.training.data import RenderedSample, Split, split_samples
from vtrim.training.ds_config import deepspeed_config
from vtrim.training.init import new_draft
from vtrim.training.loop import Progress, Trainer
from vtrim.training.settings import TrainSettings
from vtrim.training.states import MemoryStates, OnlineStates, StateSource
from vtrim.training.teacher import Teacher
from vtrim.vocab import DraftVocab

GIB = 1024**3


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """What to train, on what, into where. ``facts`` go into the draft's provenance and card."""

    settings: TrainSettings
    vocab: DraftVocab
    folder: Path
    draft_folder: Path
    target_config: dict[str, Any]
    shape_overrides: dict[str, Any] = field(default_factory=dict)
    aux_layers: list[int] = field(default_factory=list)
    user_ds_config: dict[str, Any] | None = None
    ds_origin: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def identity(self, world_size: int) -> dict[str, Any]:
        """What must not change between a run and its resumption, beside the settings."""
        return {
            "processes": world_size,
            "vocab_fingerprint": self.vocab.fingerprint,
            "draft_shape": self.shape_overrides,
            "aux_layers": self.aux_layers,
            "target_config": fingerprint_json(self.target_config),
            "deepspeed_config": self.user_ds_config,
            **{k: self.facts[k] for k in ("target", "data_fingerprint") if k in self.facts},
        }


def prepare_folder(request: TrainRequest, world_size: int, restart: bool) -> None:
    """Starts a run's folder, or checks that it holds the same run.

    Raises:
        MismatchError: it holds a run with other settings; names the one that differs.
    """
    origin = request.folder / "settings.json"
    if restart:
        shutil.rmtree(request.folder, ignore_errors=True)
    identity = request.identity(world_size)
    if origin.exists() and list_checkpoints(request.folder / "checkpoints"):
        earlier = read_json(origin)
        request.settings.check_resume(earlier["settings"], str(origin))
        for name, value in identity.items():
            if earlier["identity"].get(name) != value:
                raise InputError(
                    f"{name.replace('_', ' ')} differs from the run to resume ({origin}): "
                    f"{value} now, {earlier['identity'].get(name)} then. --restart begins anew."
                )
    write_json(origin, {"settings": request.settings.to_dict(), "identity": identity})


def train(
    request: TrainRequest,
    target: Target,
    samples: Iterable[RenderedSample],
    progress: Progress,
    note: Callable[[str], None],
) -> dict[str, Any] | None:
    """Trains, writes the draft, and returns its numbers; None when a signal stopped the run.

    Every process of the group calls it; the first one writes.
    """
    settings, vocab = request.settings, request.vocab
    split = split_samples(samples, settings.mask_alignment)
    world = dist.get_world_size()
    config = deepspeed_config(settings, world, request.user_ds_config, request.ds_origin)
    shape = DraftShape.from_target_config(request.target_config, request.shape_overrides)
    draft = new_draft(target, shape, vocab, settings.head_init, settings.seed)
    memory = MemoryStates(OnlineStates(target), int(settings.cache_gib * GIB))
    teacher = _teacher(target, vocab, settings, memory)
    trainer = Trainer(draft, teacher, split, settings, config, request.folder)
    if (trainer.total_steps() or 10**12) <= trainer.feeder.plan.steps_per_epoch:
        memory.limit = 0  # no sample comes twice
    _describe(split, trainer, draft, target, note)
    if trainer.resume():
        done = trainer.is_done()
        note(
            f"already finished at step {trainer.state.step:,}; --restart trains anew"
            if done
            else f"resumed at step {trainer.state.step:,}"
        )
    if not trainer.run(progress):
        return None
    result = _result(trainer)
    if is_rank_zero():
        _write_draft(request, target, shape, result)
    barrier()
    return result


def _teacher(
    target: Target, vocab: DraftVocab, settings: TrainSettings, source: StateSource
) -> Teacher:
    dtype = torch.bfloat16 if settings.dtype == "bf16" else torch.float32
    return Teacher(target, torch.from_numpy(vocab.ids), dtype, source)


def _describe(
    split: Split, trainer: Trainer, draft: Eagle3Draft, target: Target, note: Callable[[str], None]
) -> None:
    parameters = sum(p.numel() for p in draft.parameters())
    total = trainer.total_steps()
    note(
        f"{len(split.train):,} training samples ({split.reply_tokens:,} reply tokens), "
        f"{len(split.heldout):,} held out ({trainer.settings.eval_samples:,} of them checked at "
        f"most), {split.untrained:,} without a row to train; "
        f"draft of {parameters / 1e6:.1f} M parameters, {trainer.feeder.plan.steps_per_epoch:,} steps a "
        f"pass, {'bounded by time' if total is None else f'{total:,} steps'}"
    )
    if target.aux_layer_ids != (2, target.num_layers // 2, target.num_layers - 3):
        note(
            f"auxiliary states are hidden_states {list(target.aux_layer_ids)} "
            f"({target.num_layers} layers), written into the draft's config"
        )
    if not split.heldout:
        note("no conversation is held out: the last weights are kept, not the best")


def _result(trainer: Trainer) -> dict[str, Any]:
    state, held = trainer.state, trainer.best_heldout()
    return {
        "steps": state.step,
        "tokens": state.tokens,
        "ttt_steps": trainer.settings.ttt_steps,
        "heldout_joint_prefix": held.get("joint_prefix"),
        "heldout_loss": held.get("loss"),
        "oov_share": held.get("oov_share"),
        "best_step": held.get("step"),
        "tokens_per_second": round(state.tokens / max(1e-9, state.seconds), 1),
        "seconds": round(state.seconds, 1),
    }


def _write_draft(
    request: TrainRequest, target: Target, shape: DraftShape, result: dict[str, Any]
) -> None:
    """The best weights in the portable layout, with their card."""
    from vtrim.training.weights import BestWeights

    facts = {
        "version": __version__,
        "target": target.name,
        "target_config_fingerprint": fingerprint_json(request.target_config),
        "vocab_fingerprint": request.vocab.fingerprint,
        "data_fingerprint": "unknown",
        **request.facts,
        "settings": request.settings.to_dict(),
        "result": result,
        "written": time.strftime("%Y-%m-%d"),
    }
    draft = Eagle3Draft(shape, torch.from_numpy(request.vocab.ids))
    BestWeights(request.folder / "best").load(draft, result["best_step"])
    config = draft_config(shape, request.vocab, target.aux_layer_ids, request.target_config, facts)
    prefix = result["heldout_joint_prefix"]
    card = model_card(
        {
            **facts,
            "target": HUB_ID if target.name == SMOLLM2 else target.name,
            "licence": LICENCE.lower() if target.name == SMOLLM2 else "other",
            "k": request.vocab.size,
            "V": request.vocab.target_vocab_size,
            "coverage": facts.get("coverage", "not measured"),
            "rows": facts.get("rows", 0),
            "steps": result["steps"],
            "tokens": result["tokens"],
            "ttt_steps": result["ttt_steps"],
            "joint_prefix": "not measured" if prefix is None else f"{prefix:.3f}",
            "aux": list(target.aux_layer_ids),
            "custom_aux": target.aux_layer_ids != default_aux_layers(max(7, target.num_layers)),
        }
    )
    save_draft(request.draft_folder, draft, request.vocab, config, card)
    result["draft_fingerprint"] = fingerprint_file(request.draft_folder / WEIGHTS)
