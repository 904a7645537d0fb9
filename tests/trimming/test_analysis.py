from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from vtrim.trimming.analysis import (
    TokenCount,
    by_source,
    covered_share,
    cross_coverage,
    forced_effect,
    generated_coverage,
    near_boundary,
)
from vtrim.trimming.coverage import Coverage


def coverage_of(counts: list[int], **changes: Any) -> Coverage:
    size = len(counts)
    found = Coverage(
        counts=np.array(counts, dtype=np.int64),
        heldout_counts=np.zeros(size, dtype=np.int64),
        target_vocab_size=size,
        tokenizer_length=size,
        tokenizer_fingerprint="sha256:a",
        data_fingerprint="sha256:b",
    )
    return replace(found, **changes)


def counts_of(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


# seats: 3 (forced, count 0), then 1, 0, 4, 2, 5
COVERAGE = coverage_of([20, 50, 5, 0, 20, 5], stop_ids=(3,))


def test_the_edge_of_a_vocabulary_is_shown_from_both_sides_without_forced_tokens() -> None:
    found = near_boundary(COVERAGE.curve(), k=3, n=5)
    assert found.inside == (TokenCount(1, 50), TokenCount(0, 20))
    assert found.outside == (TokenCount(4, 20), TokenCount(2, 5), TokenCount(5, 5))
    narrow = near_boundary(COVERAGE.curve(), k=3, n=1)
    assert (narrow.inside, narrow.outside) == ((TokenCount(0, 20),), (TokenCount(4, 20),))


def test_nothing_is_outside_the_largest_vocabulary_nor_inside_one_of_forced_tokens() -> None:
    curve = COVERAGE.curve()
    assert near_boundary(curve, curve.max_k, 3).outside == ()
    assert near_boundary(curve, 1, 3).inside == ()


def test_a_forced_token_pushes_out_the_last_token_by_count() -> None:
    found = forced_effect(COVERAGE.curve(), 3)
    assert found.admitted == (TokenCount(3, 0),)
    assert found.pushed_out == (TokenCount(4, 20),)
    assert found.lost == pytest.approx(0.2)


def test_forced_tokens_that_are_frequent_anyway_change_nothing() -> None:
    found = forced_effect(coverage_of([20, 50, 5], stop_ids=(1, 0)).curve(), 2)
    assert (found.admitted, found.pushed_out, found.lost) == ((), (), 0.0)


def test_forcing_never_gains_coverage_and_swaps_one_for_one() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        counts = rng.integers(0, 6, size=12)
        forced = tuple(int(token) for token in rng.choice(12, size=3, replace=False))
        curve = coverage_of([*counts, 1], stop_ids=forced).curve()
        found = forced_effect(curve, 6)
        assert found.lost >= 0
        assert len(found.admitted) == len(found.pushed_out)
        swapped = sum(t.count for t in found.pushed_out) - sum(t.count for t in found.admitted)
        assert found.lost == pytest.approx(swapped / curve.total)
        assert {token.token for token in found.admitted} <= set(forced)


def test_each_source_is_judged_by_the_vocabulary_of_all() -> None:
    sources = {
        "chat": counts_of(0, 50, 0, 0, 0, 0),
        "code": counts_of(20, 0, 5, 0, 20, 5),
        "empty": counts_of(0, 0, 0, 0, 0, 0),
    }
    coverage = replace(COVERAGE, by_source=sources)
    found = by_source(coverage, coverage.curve(), 3)
    assert [(source.name, source.tokens, source.share) for source in found] == [
        ("chat", 50, 0.5),
        ("code", 50, 0.5),
    ]
    assert [source.coverage for source in found] == [1.0, 0.4]
    average = sum(source.share * source.coverage for source in found)
    assert average == pytest.approx(coverage.curve().coverage(3))


@pytest.mark.parametrize("sources", [{}, None])
def test_without_sources_there_is_nothing_by_source(sources: Any) -> None:
    assert by_source(replace(COVERAGE, by_source=sources), COVERAGE.curve(), 3) == []


def test_generated_text_is_covered_by_seats_that_it_did_not_choose() -> None:
    curve = COVERAGE.curve()
    assert generated_coverage(COVERAGE, curve, 3) is None
    written = replace(COVERAGE, generated_counts=counts_of(1, 1, 8, 0, 0, 0))
    assert generated_coverage(written, written.curve(), 3) == 0.2
    silent = replace(COVERAGE, generated_counts=counts_of(0, 0, 0, 0, 0, 0))
    assert generated_coverage(silent, curve, 3) is None


def test_a_vocabulary_of_one_domain_is_measured_on_the_text_of_another() -> None:
    curves = {
        "a": coverage_of([6, 3, 1, 0]).curve(),
        "b": coverage_of([0, 1, 1, 2]).curve(),
    }
    found = cross_coverage(curves, {"a": 2, "b": 1})
    assert found == {"a": {"a": 0.9, "b": 0.25}, "b": {"a": 0.0, "b": 0.5}}


def test_ids_without_a_row_cover_nothing() -> None:
    assert covered_share([0, 9], counts_of(1, 3)) == 0.25
    assert covered_share([], counts_of(1, 3)) == 0.0
    assert covered_share([0], counts_of(0, 0)) is None
