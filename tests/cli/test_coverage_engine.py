"""How work is cut into pieces, and what happens when a faster way differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vtrim.chat.feed import FastPathDiffers
from vtrim.chat.gigatoken import NotProved
from vtrim.chat.read import ReadOptions, Shard
from vtrim.chat.sources import Source
from vtrim.cli import coverage_engine
from vtrim.cli.coverage_engine import Job, count_all
from vtrim.cli.coverage_part import Reading, TokenizerSpec
from vtrim.trimming.coverage import Coverage

MEGABYTE = 2**20


def source(name: str, size: int) -> Source:
    return Source(name=name, format="jsonl", size=size)


def job(*sources: Source, shard: Shard | None = None, **more: Any) -> Job:
    nothing = np.zeros(8, dtype=np.int64)
    blank = Coverage(
        counts=nothing,
        heldout_counts=nothing,
        target_vocab_size=8,
        tokenizer_length=8,
        tokenizer_fingerprint="sha256:t",
        data_fingerprint="",
    )
    spec = TokenizerSpec(
        source="t", revision=None, trust_remote_code=False, offline=False, template=None
    )
    reading = Reading(options=ReadOptions(shard=shard), encoder=more.pop("encoder", "tokenizers"))
    return Job(
        tokenizer=None, spec=spec, blank=blank, sources=sources, generated=(), reading=reading,
        **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("names", "shard", "processes"),
    [
        ([("a.jsonl", 13)], None, 1),
        ([("a.jsonl", 63)], None, 1),
        ([("a.jsonl", 64)], None, 2),
        ([("a.jsonl", 40), ("b.jsonl", 60)], None, 3),
        ([("a.jsonl", 9000)], None, 8),
        ([("a.jsonl", 256)], Shard(1, 4), 2),
        ([("a.jsonl.gz", 16)], None, 2),
        ([("a.parquet", 32)], None, 4),
    ],
)
def test_as_many_processes_count_as_the_data_pays_for(
    monkeypatch: pytest.MonkeyPatch,
    names: list[tuple[str, int]],
    shard: Shard | None,
    processes: int,
) -> None:
    monkeypatch.setattr(coverage_engine, "available_cpus", lambda: 8)
    sources = [source(name, size * MEGABYTE) for name, size in names]
    assert job(*sources, shard=shard).num_processes == processes
    assert job(*sources, shard=shard, processes=3).num_processes == 3


@pytest.mark.parametrize("shard", [None, Shard(0, 2), Shard(2, 3)])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_pieces_hold_each_row_of_the_shard_once(shard: Shard | None, parts: int) -> None:
    sources = [source("a", 100), source("b", 30), source("c", 0)]
    specs = job(*sources, shard=shard).specs(parts, full=False)
    assert parts == 1 or len(specs) >= parts
    rows = [
        (one.name, row)
        for spec in specs
        for one in spec.sources
        for row in range(60)
        if (spec.reading.options.shard or Shard(0, 1)).owns(row)
    ]
    expected = [
        (name, row) for name in "abc" for row in range(60) if (shard or Shard(0, 1)).owns(row)
    ]
    assert sorted(rows) == expected


def test_generated_text_is_cut_too_and_needs_no_map() -> None:
    whole = job(source("a", 10))
    options = replace(whole.reading.options, columns={"user": "q", "assistant": "a"})
    whole = replace(
        whole, generated=(source("g", 10),), reading=replace(whole.reading, options=options)
    )
    specs = whole.specs(2, full=False)
    assert [(spec.generated, str(spec.reading.options.shard)) for spec in specs] == [
        (False, "1/2"),
        (False, "2/2"),
        (True, "1/2"),
        (True, "2/2"),
    ]
    assert [bool(spec.reading.options.columns) for spec in specs] == [True, True, False, False]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ([], [("auto", False)]),
        ([FastPathDiffers("a:1", "tokenizers")], [("auto", False), ("auto", True)]),
        (
            [FastPathDiffers("a:1", "gigatoken"), FastPathDiffers("a:1", "tokenizers")],
            [("auto", False), ("tokenizers", False), ("tokenizers", True)],
        ),
        ([NotProved("it fails.")], [("auto", False), ("tokenizers", False)]),
    ],
)
def test_a_way_that_differs_gives_place_to_a_slower_one(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[Exception], expected: list[tuple[str, bool]]
) -> None:
    tried = []

    def count(this: Job, *, full: bool) -> str:
        tried.append((this.reading.encoder, full))
        if len(tried) <= len(outcomes):
            raise outcomes[len(tried) - 1]
        return "counts"

    monkeypatch.setattr(coverage_engine, "_count", count)
    assert count_all(job(source("a", 1), encoder="auto")) == "counts"
    assert tried == expected


def test_an_encoder_that_was_asked_for_and_fails_stops_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def count(_job: Job, *, full: bool) -> str:
        raise NotProved(f"it fails, {full}.")

    monkeypatch.setattr(coverage_engine, "_count", count)
    with pytest.raises(NotProved):
        count_all(job(source("a", 1), encoder="gigatoken"))
