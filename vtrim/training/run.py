"""From a run folder to a trained draft: what ``vtrim train-draft`` does in each process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from vtrim import __version__
from vtrim.artifacts import fingerprint_file, fingerprint_json
from vtrim.models.aux_layers import default_aux_layers
from vtrim.models.draft import Eagle3Draft
from vtrim.models.layout import WEIGHTS, draft_config, save_draft
from vtrim.models.smollm2 import HUB_ID, LICENCE, SMOLLM2
from vtrim.models.target import Target
from vtrim.shape import DraftShape
from vtrim.training.card import model_card
from vtrim.training.checkpoint import barrier, is_rank_zero
from vtrim.training.data import RenderedSample, Split, split_samples
from vtrim.training.decode_check import make_check
from vtrim.training.ds_config import deepspeed_config
from vtrim.training.init import new_draft
from vtrim.training.init_from import StartDraft, start_facts, start_lines
from vtrim.training.loop import Progress, Trainer
from vtrim.training.mix import SourceShare, mixed
from vtrim.training.run_plan import PlannedRun
from vtrim.training.settings import TrainSettings
from vtrim.training.sharded import InStep, spread_target
from vtrim.training.states import MemoryStates, StateSource
from vtrim.training.store_source import DiskStates, make_source, prepare_source
from vtrim.training.teacher import Teacher
from vtrim.vocab import DraftVocab, Ids


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """What to train, on what, into where. ``facts`` go into the draft's provenance and card.

    cache_features: folder of the feature store; target_weights: fingerprint of the target's.
    """

    settings: TrainSettings
    vocab: DraftVocab
    folder: Path
    draft_folder: Path
    target_config: dict[str, Any]
    shape_overrides: dict[str, Any] = field(default_factory=dict)
    aux_layers: list[int] = field(default_factory=list)
    start: StartDraft | None = None
    counts: Ids | None = None
    user_ds_config: dict[str, Any] | None = None
    ds_origin: str = ""
    mix: dict[str, float] = field(default_factory=dict)
    cache_features: Path | None = None
    target_weights: str = ""
    stop_ids: tuple[int, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> DraftShape:
        """The draft's dimensions: those of the draft to go on from, else the target's."""
        if self.start is not None:
            return self.start.shape
        return DraftShape.from_target_config(self.target_config, self.shape_overrides)

    @property
    def identity(self) -> dict[str, Any]:
        """What must not change between a run and its resumption, beside the settings."""
        return {
            "vocab_fingerprint": self.vocab.fingerprint,
            "draft_shape": self.shape_overrides,
            "aux_layers": self.aux_layers,
            "init_from": self.start.fingerprint if self.start else None,
            "mix": self.mix or None,
            "target_config": fingerprint_json(self.target_config),
            "target_weights": self.target_weights,
            "deepspeed_config": self.user_ds_config,
            **{k: self.facts[k] for k in ("target", "data_fingerprint") if k in self.facts},
        }

    def states_identity(self) -> dict[str, str]:
        """What cached target states depend on, beside layers and dtype."""
        config = fingerprint_json(self.target_config)
        return {"target_config": config, "target_weights": self.target_weights}


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
    split, shares = mixed(split, request.mix, settings.seed)
    world = dist.get_world_size()
    config = deepspeed_config(
        settings, world, request.user_ds_config, request.ds_origin, request.shape.hidden_size
    )
    source, spread = _source(request, target, split, note)
    draft = _first_draft(request, target, note)
    teacher = _teacher(target, vocab, settings, spread.source(source) if spread else source)
    positions = request.shape.max_position_embeddings
    decode = make_check(target, split.heldout, settings, request.stop_ids, positions)
    trainer = Trainer(draft, teacher, split, settings, config, request.folder, decode)
    trainer.check_start = request.start is not None
    _describe(split, trainer, draft, target, note)
    _describe_mix(shares, note)
    if trainer.resume(note):
        done = trainer.is_done()
        note(
            f"already finished at step {trainer.state.step:,}; --restart trains anew"
            if done
            else f"resumed at step {trainer.state.step:,}"
        )
    try:
        finished = trainer.run(progress)
    finally:
        source.close()
    if not finished:
        return None
    if trainer.state.stopped_early:
        note(f"ended early at step {trainer.state.step:,}: no better draft for a while")
    result = _result(trainer)
    if shares:
        result["sources"] = {name: share.to_dict() for name, share in shares.items()}
    if is_rank_zero():
        _write_draft(request, target, request.shape, result)
    barrier()
    return result


def _source(
    request: TrainRequest, target: Target, split: Split, note: Callable[[str], None]
) -> tuple[DiskStates | MemoryStates, InStep | None]:
    """Where target states come from, ready to be read; says what that costs."""
    settings = request.settings
    parameters = sum(p.numel() for p in target.model.parameters())
    spread = spread_target(target, note) if settings.shard_target else None
    told = {k: v for k, v in request.facts.items() if k == "tokenizer_fingerprint"}
    source = make_source(target, settings, request.cache_features, request.states_identity(), told)
    planned = PlannedRun(
        settings=settings,
        processes=dist.get_world_size(),
        shape=request.shape,
        target_shape=DraftShape.from_target_config(request.target_config),
        draft_vocab_size=request.vocab.size,
        target_parameters=parameters,
        split=split,
        held=source.held,
    )
    if is_rank_zero():
        note(planned.memory_line(target.device.type))
    prepare_source(source, target, planned, note)
    return source, spread


def _first_draft(request: TrainRequest, target: Target, note: Callable[[str], None]) -> Eagle3Draft:
    """A fresh draft, or the trained one to go on from, which joins the request's facts."""
    settings, start = request.settings, request.start
    if start is None:
        return new_draft(target, request.shape, request.vocab, settings.head_init, settings.seed)
    draft, resized = start.weights(
        request.vocab, lambda: target.head_weight.detach().cpu(), request.counts
    )
    draft.lm_head.requires_grad_(settings.head_init != "frozen")
    request.facts["init_from"] = start_facts(start, resized)
    for line in start_lines(start, resized):
        note(line)
    if start.source.folder.resolve() == request.draft_folder.resolve():
        note(f"{request.draft_folder} is this run's own draft: the new one takes its place")
    return draft


def _teacher(
    target: Target, vocab: DraftVocab, settings: TrainSettings, source: StateSource
) -> Teacher:
    dtype = torch.bfloat16 if settings.dtype == "bf16" else torch.float32
    return Teacher(target, torch.from_numpy(vocab.ids), dtype, source)


def _describe(
    split: Split, trainer: Trainer, draft: Eagle3Draft, target: Target, note: Callable[[str], None]
) -> None:
    decode = trainer.selection.decode
    parameters = sum(p.numel() for p in draft.parameters())
    total = trainer.total_steps()
    note(
        f"{len(split.train):,} training samples ({split.reply_tokens:,} reply tokens), "
        f"{len(split.heldout):,} held out ({trainer.settings.eval_samples:,} of them checked at "
        f"most), {split.untrained:,} without a row to train; "
        f"draft of {parameters / 1e6:.1f} M parameters, "
        f"{trainer.feeder.plan.steps_per_epoch:,} steps a pass, "
        f"{'bounded by time' if total is None else f'{total:,} steps'}; "
        f"{trainer.feeder.padding():.1%} of the target's forward is padding"
    )
    if target.aux_layer_ids != (2, target.num_layers // 2, target.num_layers - 3):
        note(
            f"auxiliary states are hidden_states {list(target.aux_layer_ids)} "
            f"({target.num_layers} layers), written into the draft's config"
        )
    prompts = len(decode.prompts) if decode is not None else 0
    if prompts < trainer.settings.decode_eval:
        note(f"--decode-eval: {prompts} held-out prompts are there to decode")
    if not split.heldout:
        note("no conversation is held out: the last weights are kept, not the best")


def _describe_mix(shares: dict[str, SourceShare], note: Callable[[str], None]) -> None:
    for name, share in shares.items():
        note(
            f"source {name}: weight {share.weight:g}, {share.samples:,} samples "
            f"({share.tokens:,} reply tokens) come as {share.mixed_samples:,} "
            f"({share.mixed_tokens:,}) in a pass"
        )


def _result(trainer: Trainer) -> dict[str, Any]:
    state, best = trainer.state, trainer.state.best
    held, decoded = best.get("heldout", {}), best.get("decoded", {})
    return {
        "steps": state.step,
        "tokens": state.tokens,
        "ttt_steps": trainer.settings.ttt_steps,
        "heldout_joint_prefix": held.get("joint_prefix"),
        "heldout_loss": held.get("loss"),
        "oov_share": held.get("oov_share"),
        "decoded_acceptance_length": decoded.get("acceptance_length"),
        "decoded_acceptance_by_position": decoded.get("acceptance_by_position"),
        "best_step": best.get("step"),
        "stopped_early": state.stopped_early,
        "bad_steps": state.bad_steps,
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
