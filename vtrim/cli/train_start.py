"""``--init-from``: the draft that training goes on from, checked before any model is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtrim.artifacts import read_json
from vtrim.cli import common
from vtrim.cli.trim_target import TrimTarget

if TYPE_CHECKING:
    from vtrim.cli.train_call import TrainCall
    from vtrim.training.init_from import StartDraft
    from vtrim.vocab import Ids


def read_start_of(call: TrainCall) -> StartDraft | None:
    """The draft of ``--init-from``, which fits the run's target and the other options.

    Raises:
        VtrimError: it does not; names what differs.
    """
    if call.init_from is None:
        return None
    from vtrim.cli.train_call import draft_overrides
    from vtrim.training.init_from import check_choices, read_start

    entry = call.manifest["target"]
    target = TrimTarget(
        name=call.target_name,
        revision=entry.get("revision"),
        trust_remote_code=bool(entry.get("trust_remote_code")),
        offline=call.offline,
        config=read_json(call.run.target_config),
        known=True,
    )
    start = read_start(call.init_from, target.to_import(), target.config)
    check_choices(
        start,
        head=call.settings.get("head_init"),
        aux_layers=common.parse_aux_layers(call.aux_layers),
        dimensions=draft_overrides(call.draft_config) if call.draft_config else {},
    )
    return start


def counts_of(call: TrainCall) -> Ids | None:
    """[V] counts of the run's tokens, which weigh the rows that new ones are fitted on."""
    if call.init_from is None or not call.run.coverage.exists():
        return None
    from vtrim.trimming.coverage import Coverage

    size = int(call.manifest["target"]["vocab_size"])
    return Coverage.load(call.run.coverage).for_target(size).counts
