"""The options of one ``vtrim train-draft`` and what is refused before any model is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vtrim.artifacts import Run, check_match, read_json
from vtrim.cli import common
from vtrim.errors import InputError, OptionError
from vtrim.training.ds_config import deepspeed_config, read_user_config, settings_from
from vtrim.training.mix import parse_mix
from vtrim.training.optimizer import check_optimizer
from vtrim.training.settings import TrainSettings
from vtrim.vocab import DraftVocab

if TYPE_CHECKING:
    from vtrim.training.init_from import StartDraft

_FREE_DIMENSIONS = (
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "rope_theta",
)


@dataclass(frozen=True, kw_only=True)
class TrainCall:
    """The options of one call; ``settings`` holds only those that were typed."""

    settings: dict[str, Any]
    run: Run
    target: str | None
    vocab: str | None
    init_from: Path | None = None
    mix: tuple[str, ...] = ()
    cache_features: Path | None = None
    aux_layers: str | None
    draft_config: Path | None
    deepspeed_config: Path | None
    processes: int = 1
    restart: bool
    device: str | None
    offline: bool

    @cached_property
    def user_config(self) -> dict[str, Any] | None:
        """The user's DeepSpeed config, if one was named."""
        return read_user_config(self.deepspeed_config) if self.deepspeed_config else None

    @cached_property
    def mix_weights(self) -> dict[str, float]:
        """The weights of the sources that ``--mix`` names."""
        return parse_mix(self.mix)

    @cached_property
    def resolved(self) -> TrainSettings:
        """Defaults, coverage's length limit, the DeepSpeed config's numbers, what was typed.

        ``check`` refuses conflicts between the last two.
        """
        limit = self.run.read().get("data", {}).get("max_length")
        counted = {} if limit is None else {"max_length": limit}
        decided = settings_from(
            self.user_config or {}, self.settings, self.processes, str(self.deepspeed_config)
        )
        return TrainSettings(**{**counted, **decided, **self.settings})

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """run.json, which coverage wrote."""
        self.run.step("coverage")
        return self.run.read()

    @property
    def aux_layer_ids(self) -> tuple[int, int, int] | None:
        """The three hidden_states indices: those typed, or of the draft to go on from."""
        typed = common.parse_aux_layers(self.aux_layers)
        return typed if self.start is None else self.start.aux_layer_ids

    @cached_property
    def start(self) -> StartDraft | None:
        """The draft to go on from, if one was named."""
        from vtrim.cli.train_start import read_start_of

        return read_start_of(self)

    @property
    def target_name(self) -> str:
        """The target: the one typed, else the run's."""
        known: str | None = self.manifest["target"]["name"]
        if self.target is None and known is None:
            raise OptionError(
                "the run was counted with --tokenizer only; name the model with --target."
            )
        return self.target or str(known)

    def draft_vocab(self) -> DraftVocab:
        """The vocabulary to train for; refuses one made for other counts."""
        size = int(self.manifest["target"]["vocab_size"])
        if self.vocab == "full":
            return DraftVocab.full(size)
        if self.vocab == "draft" and self.start is None:
            raise OptionError("--vocab draft: is that of --init-from DRAFT, which was not given.")
        if self.start and (self.vocab == "draft" or not (self.vocab or self.run.vocab.exists())):
            return self.start.source.vocab
        path = Path(self.vocab) if self.vocab else self.run.require(self.run.vocab, "search")
        found = DraftVocab.load(path)
        if self.vocab is None and self.run.coverage.exists():
            from vtrim.trimming.coverage import Coverage

            check_match(
                "coverage behind the vocabulary",
                _metadata(path).get("coverage_fingerprint"),
                Coverage.load(self.run.coverage).for_target(size).fingerprint,
                str(self.run.coverage),
                "Run `vtrim search` again: the counts have changed since.",
            )
        check_match(
            "target vocabulary",
            size,
            found.target_vocab_size,
            str(path),
            "Run `vtrim search` again for this run.",
        )
        told = _metadata(path).get("tokenizer_fingerprint")
        if told is not None:  # an imported one may not know
            check_match(
                "tokenizer behind the vocabulary",
                self.manifest["target"]["tokenizer_fingerprint"],
                told,
                str(path),
                "Its ids mean other tokens: run `vtrim search` for this run.",
            )
        return found


def check_options(call: TrainCall, world_size: int) -> None:
    """Refuses options that could work in no run folder."""
    check_optimizer(call.resolved)
    if "muon_lr" in call.settings and call.resolved.optimizer != "muon":
        raise OptionError("--muon-lr: only --optimizer muon has one. Leave it out.")
    if call.resolved.shard_target and world_size == 1:
        raise OptionError(
            "--shard-target with one process: there is nothing to spread over. Give --num-gpus, or "
            "leave it out."
        )
    if call.resolved.shard_target and call.resolved.decode_eval:
        raise OptionError(
            "--decode-eval with --shard-target: one process decodes, but none holds the target "
            "whole. Leave one of the two out."
        )
    if call.user_config is not None:
        common.hush_deepspeed()
    deepspeed_config(call.resolved, world_size, call.user_config, str(call.deepspeed_config))
    _ = call.aux_layer_ids, call.mix_weights
    if call.draft_config is not None:
        draft_overrides(call.draft_config)


def _metadata(path: Path) -> dict[str, str]:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        return dict(file.metadata() or {})


def draft_overrides(path: Path) -> dict[str, Any]:
    """The draft's own dimensions from a JSON file.

    Raises:
        InputError: it is not an object, or names what the draft shares with its target.
    """
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: a draft config is one JSON object.")
    for key in value:
        if key not in _FREE_DIMENSIONS:
            raise InputError(
                f"{path}: '{key}' cannot differ from the target's (the draft shares its embedding "
                f"and head). Free: {', '.join(_FREE_DIMENSIONS)}."
            )
    return value
