"""Where a target's config comes from: a file, a folder, the hub or the built-in target."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtrim.artifacts import read_object
from vtrim.errors import InputError
from vtrim.shape import DraftShape


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model as it was named on the command line."""

    name: str
    revision: str | None = None
    trust_remote_code: bool = False
    offline: bool = False

    def config(self) -> dict[str, Any]:
        """The model's config, complete enough to shape a draft.

        A local ``config.json`` is read as it is; only where it leaves dimensions to its model
        class, or the name is not a local one, transformers is loaded to fill them in.

        Raises:
            InputError: there is no such model, or its config names no dimensions.
        """
        path = Path(self.name)
        file = path / "config.json" if path.is_dir() else path
        if not file.is_file():
            if file.suffix == ".json":
                raise InputError(f"{file}: no such file.")
            return self._load(self.name)
        config = read_object(file)
        try:
            DraftShape.from_target_config(config)
        except InputError as incomplete:
            if "model_type" not in config:
                raise InputError(f"{file}: {incomplete}") from incomplete
            return self._load(str(file))
        return config

    def loaded_config(self) -> dict[str, Any]:
        """The whole config as transformers reads it: what a run folder keeps of its target."""
        return self._load(self.name)

    def _load(self, name: str) -> dict[str, Any]:
        from vtrim.models.hub import load_config

        return load_config(
            name,
            revision=self.revision,
            trust_remote_code=self.trust_remote_code,
            offline=self.offline,
        )
