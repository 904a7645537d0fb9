"""What can draft, by name, with each drafter's options.

A new drafter is a file in this package, a class of options here and a line in ``DRAFTERS``. Nothing
here needs torch until a drafter is made.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from vtrim.decoding.draft_size import TreeShape, check_confidence
from vtrim.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from vtrim.decoding.protocol import Drafter
    from vtrim.models.draft import Eagle3Draft
    from vtrim.models.target import Target
    from vtrim.vocab import DraftVocab


@dataclass(frozen=True, kw_only=True)
class EagleOptions:
    """A chain drafted by a trained EAGLE-3 draft.

    min_confidence: a chain ends with the token that takes the product of its draft probabilities
    below it; 0 never.
    """

    name: ClassVar[str] = "eagle"
    needs_draft: ClassVar[bool] = True
    min_confidence: float = 0.0

    def __post_init__(self) -> None:
        """Raises: OptionError when a value is out of range."""
        check_confidence(self.min_confidence)


@dataclass(frozen=True, kw_only=True)
class TreeOptions:
    """A dynamic tree of an EAGLE-3 draft: nodes verified, root included; levels; branches."""

    name: ClassVar[str] = "tree"
    needs_draft: ClassVar[bool] = True
    total_token: int = 60
    depth: int = 6
    top_k: int = 10

    def __post_init__(self) -> None:
        """Raises: OptionError when no tree has this shape."""
        TreeShape(self.total_token, self.depth, self.top_k)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """A chain drafted by a smaller causal LM of the same tokenizer, or by part of the target.

    draft_model: its name or folder; None is the target itself. skip_layers: decoder blocks left
    out, counted from 0. draft_vocab: file of the head rows it may draft from; None is all of them.
    """

    name: ClassVar[str] = "model"
    needs_draft: ClassVar[bool] = False
    draft_model: str | None = None
    skip_layers: tuple[int, ...] = ()
    draft_vocab: Path | None = None
    min_confidence: float = 0.0

    def __post_init__(self) -> None:
        """Raises: OptionError when the whole target would draft, or a value is out of range."""
        check_confidence(self.min_confidence)
        if self.draft_model is None and not self.skip_layers:
            raise OptionError(
                "--drafter model: name a smaller model with --draft-model, or leave blocks of the "
                "target out with --skip-layers."
            )
        if (
            len(set(self.skip_layers)) < len(self.skip_layers)
            or min(self.skip_layers, default=0) < 0
        ):
            raise OptionError(
                f"--skip-layers {_list(self.skip_layers)}: give each block once, counted from 0."
            )


@dataclass(frozen=True, kw_only=True)
class NgramOptions:
    """A copy of what followed the sequence's last tokens earlier; needs no model."""

    name: ClassVar[str] = "ngram"
    needs_draft: ClassVar[bool] = False
    max_ngram: int = 3
    min_ngram: int = 1

    def __post_init__(self) -> None:
        """Raises: OptionError when these are no lengths."""
        if self.min_ngram < 1:
            raise OptionError(f"--min-ngram {self.min_ngram}: at least 1 token is looked up.")
        if self.max_ngram < self.min_ngram:
            raise OptionError(
                f"--max-ngram {self.max_ngram}: give {self.min_ngram} (the shortest looked up) or "
                "more."
            )


DrafterOptions = EagleOptions | TreeOptions | ModelOptions | NgramOptions

DRAFTERS: dict[str, type[DrafterOptions]] = {
    options.name: options for options in (EagleOptions, TreeOptions, ModelOptions, NgramOptions)
}


def drafter_options(name: str, **typed: Any) -> DrafterOptions:
    """The options of the drafter of that name; those that are None keep their default.

    Raises:
        OptionError: the name or an option is unknown, or a value is out of range.
    """
    if name not in DRAFTERS:
        raise OptionError(
            f"unknown drafter '{name}'.{did_you_mean(name, DRAFTERS)} Known: {_list(DRAFTERS)}."
        )
    options = DRAFTERS[name]
    known = [field.name for field in fields(options)]
    given = {option: value for option, value in typed.items() if value is not None}
    for option in given:
        if option not in known:
            raise OptionError(
                f"drafter {name}: unknown option '{option}'.{did_you_mean(option, known)} "
                f"Its options: {_list(known)}."
            )
    return options(**given)


def make_drafter(
    options: DrafterOptions,
    target: Target,
    *,
    draft: Eagle3Draft | None = None,
    model: Target | None = None,
    vocab: DraftVocab | None = None,
) -> Drafter:
    """The drafter with these options for a loaded target.

    draft: of ``eagle`` and ``tree``; model: of ``model`` (None: the target), vocab its head rows.

    Raises:
        OptionError: a draft is needed and there is none, or a block to skip does not exist.
        MismatchError: draft and target do not share their ids.
    """
    if isinstance(options, NgramOptions):
        from vtrim.decoding.ngram import NgramDrafter

        return NgramDrafter(target.device, options.max_ngram, options.min_ngram)
    if isinstance(options, ModelOptions):
        from vtrim.decoding.second_model import ModelDrafter
        from vtrim.models.skipping import without_layers

        drafting = model or target
        if options.skip_layers:
            drafting = without_layers(drafting, options.skip_layers)
        return ModelDrafter(drafting, target, vocab, min_confidence=options.min_confidence)
    if draft is None:
        raise OptionError(
            f"--drafter {options.name}: needs a trained draft; name one with --draft."
        )
    if isinstance(options, TreeOptions):
        from vtrim.decoding.tree import TreeDrafter

        shape = TreeShape(options.total_token, options.depth, options.top_k)
        return TreeDrafter(draft, target.embedding, shape)
    from vtrim.decoding.chain import ChainDrafter

    return ChainDrafter(draft, target.embedding, min_confidence=options.min_confidence)


def _list(values: Any) -> str:
    return ", ".join(map(str, values)) or "none"
