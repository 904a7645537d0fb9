"""What ``vtrim search`` does: loads what the run holds, searches, and leaves what it found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from optuna.storages import BaseStorage

from vtrim import __version__
from vtrim.artifacts import Run, read_object, write_json
from vtrim.cli import common
from vtrim.cli.search_target import other_target, own_target
from vtrim.cli.search_times import step_times
from vtrim.cli.search_warnings import coverage_file, note_eval, warn_of_heldout
from vtrim.cli.target_config import ModelSource
from vtrim.errors import OptionError
from vtrim.flops.roofline import find_gpu
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.journal import check_url, open_storage
from vtrim.trimming.search import SearchResult, search
from vtrim.trimming.settings import SearchSettings


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """What was typed. source: a target other than the run's. storage: to go on with."""

    settings: SearchSettings
    source: ModelSource | None
    storage: str | None
    gpu: str | None

    def __post_init__(self) -> None:
        """Refuses options that the objective has no use for, or that name nothing.

        Raises:
            OptionError: one was typed.
        """
        objective = self.settings.objective
        if self.gpu is not None:
            find_gpu(self.gpu)
        if self.gpu is not None and objective != "throughput":
            raise OptionError(
                f"--gpu: --objective {objective} does not use it (only throughput does). Leave it "
                "out."
            )
        if self.storage is not None and objective == "budget":
            raise OptionError(
                "--storage: --objective budget tries no sizes, so there is nothing to keep. Leave "
                "it out."
            )
        if self.storage is not None and not self.storage.strip():
            raise OptionError(
                "--storage: no name. Name a journal file or a URL such as sqlite:///trials.db."
            )
        if self.storage is not None and "://" in self.storage:
            check_url(self.storage)


def run_search(run: Run, request: SearchRequest) -> SearchResult:
    """Searches with a progress bar over the trials; writes vocabulary, search.json and the step."""
    settings = request.settings
    coverage = Coverage.load(coverage_file(run))
    if request.source is None:
        target = own_target(run, coverage)
    else:
        common.hush_libraries()
        target = other_target(run, coverage, request.source)
    settings = replace(settings, keep=(*target.stop_ids, *settings.keep))
    speed = settings.objective == "throughput"
    times = step_times(run, target, settings, request.gpu) if speed else None
    with (
        _storage(run, request) as storage,
        common.progress("searching", settings.num_trials) as advance,
    ):
        result = search(
            coverage,
            target.shape,
            settings,
            on_trial=advance,
            times=times,
            storage=storage,
            additional=request.storage is not None,
        )
    _note_trials(result, request)
    warn_of_heldout(result, coverage)
    target.record(run)
    _write(run, result)
    config = read_object(run.target_config) if target.config is None else target.config
    note_eval(run, result, config)
    return result


@contextmanager
def _storage(run: Run, request: SearchRequest) -> Iterator[BaseStorage | None]:
    """Where the trials are kept: what was named, else the run's own journal."""
    if request.settings.objective == "budget":
        yield None
        return
    with open_storage(request.storage or run.search_journal) as storage:
        if storage.repaired:
            common.warn(storage.repaired)
        yield storage.backend


def _note_trials(result: SearchResult, request: SearchRequest) -> None:
    """Says where the search went on, what it left alone and why it stopped early."""
    log = result.log
    if log is None:
        return
    if request.storage is not None:
        if log.num_resumed:
            new = len(log.trials) - log.num_resumed
            common.note(
                f"{request.storage}: {log.num_resumed} trials of this search found, {new} new "
                f"sizes tried."
            )
        if log.num_other_studies:
            common.note(
                f"{request.storage}: {log.num_other_studies} other searches (other counts or "
                "settings) are in this storage too; they are left alone."
            )
    if log.exhausted:
        common.note(
            f"every size from {result.objective.kmin:,} to {result.objective.kmax:,} is tried: "
            f"{result.objective.num_sizes:,}, fewer than the trials asked for."
        )


def _write(run: Run, result: SearchResult) -> None:
    """Leaves the vocabulary, every trial and a note in the run's manifest."""
    metadata = {
        "tokenizer_fingerprint": result.tokenizer_fingerprint,
        "coverage_fingerprint": result.coverage_fingerprint,
        "vtrim": __version__,
    }
    result.vocab.save(run.vocab, metadata)
    write_json(run.search, result.to_json())
    run.record("search", {**result.summary(), "artifact": str(run.vocab)})
