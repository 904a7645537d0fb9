from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.curve import exact_share
from vtrim.trimming.sample import SampleBuilder


def make(
    counts: list[int],
    heldout: list[int] | None = None,
    stop_ids: tuple[int, ...] = (),
    tokenizer_length: int | None = None,
) -> Coverage:
    return Coverage(
        counts=np.array(counts, dtype=np.int64),
        heldout_counts=np.array(heldout or [0] * len(counts), dtype=np.int64),
        target_vocab_size=len(counts),
        tokenizer_length=len(counts) if tokenizer_length is None else tokenizer_length,
        tokenizer_fingerprint="sha256:t",
        data_fingerprint="sha256:d",
        stop_ids=stop_ids,
        rows_used=7,
        rows_skipped={"unknown role": 2},
        rows_heldout=1,
    )


def test_tokens_rank_by_count_and_then_by_id() -> None:
    curve = make([3, 5, 3, 0, 5]).curve()
    assert curve.order.tolist() == [1, 4, 0, 2, 3]
    assert [curve.covered(k) for k in range(6)] == [0, 5, 10, 13, 16, 16]


@pytest.mark.parametrize("scale", [1, 2**40, 2**58])
def test_the_ranking_does_not_depend_on_how_large_the_counts_are(scale: int) -> None:
    curve = make([3 * scale, 5 * scale, 3 * scale, 0, 5 * scale, 1]).curve()
    assert curve.order.tolist() == [1, 4, 0, 2, 5, 3]


def test_forced_tokens_take_the_first_seats_and_k_includes_them() -> None:
    curve = make([3, 5, 3, 0, 5], stop_ids=(3,)).curve(keep=[2, 3])
    assert curve.forced == [3, 2]
    assert curve.order.tolist() == [3, 2, 1, 4, 0]
    assert [curve.covered(k) for k in (1, 2, 3)] == [0, 3, 8]


def test_padding_rows_are_never_seated_even_if_they_were_counted() -> None:
    curve = make([3, 5, 0, 9], tokenizer_length=3).curve()
    assert curve.max_k == 3
    assert curve.order.tolist() == [1, 0, 2]
    assert curve.coverage(3) == 8 / 17


def test_fewer_seen_tokens_than_seats_are_filled_with_the_lowest_unused_ids_and_counted() -> None:
    curve = make([0, 0, 4, 0, 1, 0], stop_ids=(5,)).curve()
    assert curve.ids(5) == [0, 1, 2, 4, 5]
    assert [curve.num_filled(k) for k in (1, 3, 4, 5)] == [0, 0, 1, 2]


def test_more_seats_than_ids_are_refused() -> None:
    with pytest.raises(OptionError, match="1 to 2 ids"):
        make([1, 1, 0], tokenizer_length=2).curve().ids(3)


@pytest.mark.parametrize("token", [-1, 2, 99])
def test_an_id_to_keep_that_is_no_token_is_refused(token: int) -> None:
    with pytest.raises(OptionError, match=rf"--keep {token}: not a token id.*0 to 1"):
        make([1, 1, 0], tokenizer_length=2).curve(keep=[token])


def test_the_smallest_size_of_a_share_is_exact_where_floats_are_not() -> None:
    curve = make([40, 25, 15, 10, 4, 2, 2, 2]).curve()
    assert [curve.smallest_k(share) for share in (0, "0.40", 0.94, "0.95", 1)] == [0, 1, 5, 6, 8]
    assert make([1] * 10).curve().smallest_k(0.3) == 3  # 0.3 * 10 > 3 in binary floats


def test_a_share_that_no_size_reaches_has_no_smallest_size() -> None:
    assert make([3, 5, 0, 9], tokenizer_length=3).curve().smallest_k("0.5") is None


def test_heldout_coverage_is_of_seats_chosen_without_the_heldout_rows() -> None:
    # with the held-out rows id 2 ranks first; without them it was never seen
    curve = make([4, 3, 6], heldout=[0, 1, 6]).curve()
    assert curve.ids(1) == [2]
    assert [curve.heldout_coverage(k) for k in (1, 2, 3)] == [0, 1 / 7, 1]


def test_without_heldout_rows_there_is_no_heldout_coverage() -> None:
    assert make([4, 3]).curve().heldout_coverage(1) is None


def test_saving_and_loading_keeps_everything(tmp_path: Path) -> None:
    before = make([4, 0, 3], heldout=[1, 0, 0], stop_ids=(1, 2), tokenizer_length=3)
    before.save(tmp_path / "coverage.npz")
    after = Coverage.load(tmp_path / "coverage.npz")
    for name in ("counts", "heldout_counts"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    for name in ("target_vocab_size", "tokenizer_length", "tokenizer_fingerprint", "stop_ids"):
        assert getattr(after, name) == getattr(before, name)
    assert (after.rows_used, after.rows_heldout, after.rows_skipped) == (7, 1, {"unknown role": 2})
    assert (after.data_fingerprint, after.fingerprint) == ("sha256:d", before.fingerprint)


def rich(scale: int, data: str) -> Coverage:
    """Counts with everything an artefact may hold."""
    counts = np.array([4, 0, 3], dtype=np.int64) * scale
    builder = SampleBuilder()
    builder.add(10 * scale, np.array([0, 2, 2], dtype=np.int64))
    return replace(
        make(counts.tolist()),
        data_fingerprint=data,
        by_source={"chat": counts - 1 * (counts > 0), f"s{scale}": 1 * (counts > 0)},
        sample=builder.build(),
        generated_counts=np.array([0, scale, 0], dtype=np.int64),
        generated_rows=scale,
        generated_fingerprint=f"g{data}",
        rows_by_kind={"messages": 7 * scale},
        straddling=scale,
    )


def test_sources_sample_and_generated_counts_are_saved_and_loaded(tmp_path: Path) -> None:
    before = rich(2, "a")
    before.save(tmp_path / "coverage.npz")
    after = Coverage.load(tmp_path / "coverage.npz")
    assert after.fingerprint == before.fingerprint
    assert after.by_source is not None
    assert {name: counts.tolist() for name, counts in after.by_source.items()} == {
        "chat": [7, 0, 5],
        "s2": [1, 0, 1],
    }
    assert [ids.tolist() for ids in after.sample.conversations()] == [[0, 2, 2]]
    assert after.generated_counts is not None
    assert after.generated_counts.tolist() == [0, 2, 0]
    assert (after.generated_rows, after.straddling, after.rows_by_kind) == (2, 2, {"messages": 14})


def test_everything_merges_in_any_order() -> None:
    parts = [rich(1, "a"), rich(2, "b"), rich(3, "c")]
    one = parts[0].merge(parts[1]).merge(parts[2])
    assert one.fingerprint == parts[2].merge(parts[0]).merge(parts[1]).fingerprint
    assert one.by_source is not None
    assert sorted(one.by_source) == ["chat", "s1", "s2", "s3"]
    assert sum(counts.sum() for counts in one.by_source.values()) == one.total
    assert one.sample.keys.tolist() == [10, 20, 30]
    assert one.generated_counts is not None
    assert one.generated_counts.tolist() == [0, 6, 0]
    assert one.generated_fingerprint == "ga+gb+gc"


def test_data_with_and_without_a_source_column_merge_under_no_name() -> None:
    merged = make([1, 0, 2]).merge(rich(1, "a"))
    assert merged.by_source is not None
    assert merged.by_source[""].tolist() == [1, 0, 2]


def test_too_many_sources_are_a_fact_that_is_saved(tmp_path: Path) -> None:
    replace(make([1]), by_source=None).save(tmp_path / "coverage.npz")
    loaded = Coverage.load(tmp_path / "coverage.npz")
    assert loaded.by_source is None


def test_shards_of_a_file_merge_to_the_artefact_of_the_file() -> None:
    whole = make([5, 2, 3])
    shards = [
        replace(
            make(counts), data_fingerprint=f"sha256:d#{n}/2", rows_used=rows, rows_heldout=n - 1
        )
        for n, counts, rows in ((1, [5, 0, 1], 3), (2, [0, 2, 2], 4))
    ]
    halves = [replace(shard, rows_skipped={"unknown role": 1}) for shard in shards]
    assert halves[1].merge(halves[0]).fingerprint == whole.fingerprint
    with pytest.raises(MismatchError, match="count twice"):
        halves[0].merge(whole)


def test_equal_content_gives_equal_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make([4, 0, 3]).save(tmp_path / "a.npz")
    monkeypatch.setattr("time.time", lambda: 2e9)
    same = replace(make([4, 0, 3]), rows_skipped={"unknown role": 2})
    same.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_the_artefact_is_a_plain_npz_without_pickles(tmp_path: Path) -> None:
    make([4, 0, 3]).save(tmp_path / "coverage.npz")
    with np.load(tmp_path / "coverage.npz", allow_pickle=False) as arrays:
        samples = [f"sample_{name}" for name in ("ids", "keys", "lengths", "times")]
        sources = [f"source_{name}" for name in ("counts", "ids", "sizes")]
        assert sorted(arrays) == ["counts", "heldout_counts", "meta", *samples, *sources]
        assert arrays["counts"].dtype == np.int64


def test_a_cut_file_is_incomplete_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "coverage.npz"
    make([4, 0, 3]).save(path)
    whole = path.read_bytes()
    for size in range(0, len(whole), 7):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"coverage\.npz: incomplete"):
            Coverage.load(path)


def test_a_flipped_byte_of_a_count_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "coverage.npz"
    make([4, 0, 3]).save(path)
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(np.int64(4).tobytes())] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="incomplete"):
        Coverage.load(path)


def test_a_foreign_file_is_refused_in_one_line(tmp_path: Path) -> None:
    npz, npy, text = io.BytesIO(), tmp_path / "b.npz", tmp_path / "c.npz"
    np.savez(npz, weights=np.zeros(3))
    (tmp_path / "a.npz").write_bytes(npz.getvalue())
    np.save(npy.with_suffix(".npy"), np.zeros(3))
    npy.with_suffix(".npy").rename(npy)
    text.write_text("not an array")
    for path in (tmp_path / "a.npz", npy, text):
        with pytest.raises(InputError, match=f"{path.name}: incomplete or not a vtrim coverage"):
            Coverage.load(path)


def test_an_artefact_of_another_version_is_refused_as_that(tmp_path: Path) -> None:
    path = tmp_path / "coverage.npz"
    make([4, 0, 3]).save(path)
    later = path.read_bytes().replace(
        "vtrim-coverage-2".encode("utf-32-le"), "vtrim-coverage-9".encode("utf-32-le")
    )
    with zipfile.ZipFile(io.BytesIO(later)) as archive:
        members = {info.filename: _raw(archive, info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    message = r"written by another version of vtrim \(format vtrim-coverage-9; .* again\.$"
    with pytest.raises(InputError, match=message):
        Coverage.load(path)


def _raw(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The stored bytes of a member whose checksum no longer holds."""
    assert archive.fp is not None
    archive.fp.seek(info.header_offset + 30 + len(info.filename))
    return archive.fp.read(info.file_size)


def test_a_missing_file_names_the_command_that_makes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file\. Run `vtrim coverage`"):
        Coverage.load(tmp_path / "coverage.npz")


@pytest.mark.parametrize(
    ("heldout", "stop_ids"), [([5, 0, 0], ()), ([-1, 0, 0], ()), ([0, 0, 0], (3,))]
)
def test_counts_that_cannot_be_are_refused(heldout: list[int], stop_ids: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        make([4, 0, 3], heldout=heldout, stop_ids=stop_ids)


def test_merged_counts_are_those_of_one_run_in_any_order() -> None:
    a = make([4, 0, 3], heldout=[1, 0, 0], stop_ids=(1,))
    b = replace(make([1, 1, 0]), data_fingerprint="sha256:a", rows_skipped={"empty": 1})
    c = replace(make([0, 2, 5], heldout=[0, 0, 2]), data_fingerprint="sha256:c")
    merged = a.merge(b)
    assert merged.counts.tolist() == [5, 1, 3]
    assert merged.rows_used == 14
    assert merged.rows_skipped == {"empty": 1, "unknown role": 2}
    assert merged.data_fingerprint == "sha256:a+sha256:d"
    assert merged.fingerprint == b.merge(a).fingerprint
    assert a.merge(b).merge(c).fingerprint == a.merge(c.merge(b)).fingerprint


def test_counts_of_two_tokenizers_do_not_add_up() -> None:
    other = replace(make([1, 1, 0]), tokenizer_fingerprint="sha256:other")
    with pytest.raises(MismatchError, match="tokenizer_fingerprint differs"):
        make([4, 0, 3]).merge(other)


def test_counts_of_a_tokenizer_alone_are_padded_to_the_targets_rows() -> None:
    padded = make([4, 0, 3], heldout=[1, 0, 0]).for_target(5)
    assert padded.counts.tolist() == [4, 0, 3, 0, 0]
    assert padded.heldout_counts.tolist() == [1, 0, 0, 0, 0]
    assert (padded.target_vocab_size, padded.curve().max_k) == (5, 3)


def test_a_target_with_fewer_rows_than_the_tokenizer_never_gets_an_id_without_a_row() -> None:
    assert make([4, 3, 0]).for_target(2).curve().max_k == 2
    with pytest.raises(MismatchError, match="2 rows, but token id 2 was counted"):
        make([4, 0, 3]).for_target(2)


def test_the_ties_file_gives_the_known_curve_and_ids(
    word_coverage: Callable[..., Coverage],
) -> None:
    for name in ("g11_ties.jsonl", "g11_ties_reversed.jsonl"):
        coverage = word_coverage(name)
        curve = coverage.curve()
        assert (coverage.total, coverage.distinct) == (100, 8)
        assert [curve.covered(k) for k in range(1, 9)] == [40, 65, 80, 90, 94, 96, 98, 100]
        assert curve.ids(6) == [0, 5, 6, 20, 21, 22]
        assert (curve.coverage(20), curve.num_filled(20)) == (1.0, 12)
        assert max(curve.ids(54)) == 53
        assert 51 not in curve.ids(5)


def test_the_ties_file_with_its_stop_token_pinned_gives_the_known_curve(
    word_coverage: Callable[..., Coverage],
) -> None:
    curve = word_coverage("g11_ties.jsonl", stop_ids=(51,)).curve()
    assert [curve.covered(k) for k in range(1, 9)] == [2, 42, 67, 82, 92, 96, 98, 100]
    assert all(51 in curve.ids(k) for k in range(1, 55))


@pytest.mark.parametrize("stop_ids", [(), (51,)])
def test_the_bulk_file_gives_the_known_sizes(
    word_coverage: Callable[..., Coverage], stop_ids: tuple[int, ...]
) -> None:
    coverage = word_coverage("g11_bulk.jsonl", stop_ids=stop_ids)
    curve = coverage.curve()
    assert (coverage.total, coverage.distinct) == (8751, 48)
    shares = ("0.90", "0.95", "0.99", "1.0")
    assert [curve.smallest_k(share) for share in shares] == [21, 31, 44, 48]
    assert [curve.covered(k) for k in (20, 30, 31, 40)] == [7855, 8286, 8318, 8584]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=30), st.data())
def test_every_size_keeps_the_most_frequent_tokens(counts: list[int], data: st.DataObject) -> None:
    limit = data.draw(st.integers(1, len(counts)))
    curve = make(counts, tokenizer_length=limit).curve()
    ranked = sorted(range(limit), key=lambda token: (-counts[token], token))
    assert curve.order.tolist() == ranked
    for k in range(1, limit + 1):
        assert curve.ids(k) == sorted(ranked[:k])
        assert curve.covered(k) == sum(counts[token] for token in ranked[:k])


@pytest.mark.parametrize(
    ("typed", "exact"),
    [("0.95", Fraction(19, 20)), (0.95, Fraction(19, 20)), ("6/10", Fraction(3, 5)), (1, 1)],
)
def test_a_share_is_the_decimal_that_was_typed(typed: str | float, exact: Fraction) -> None:
    assert exact_share(typed) == exact


@pytest.mark.parametrize("typed", ["nan", "inf", "", "x", "1/0", float("nan"), float("inf")])
def test_what_is_not_a_number_is_no_share(typed: str | float) -> None:
    with pytest.raises(ValueError, match="not a number"):
        exact_share(typed)


@pytest.mark.parametrize("token", [-1, 4])
def test_a_sample_with_ids_beyond_the_rows_is_refused(token: int) -> None:
    builder = SampleBuilder()
    builder.add(1, np.array([0, token], dtype=np.int64))
    with pytest.raises(InputError, match="sample has ids outside the 4 rows"):
        replace(make([1, 2, 3, 4]), sample=builder.build())


def test_generated_tokens_without_a_row_are_refused_too() -> None:
    generated = np.array([0, 0, 0, 5], dtype=np.int64)
    counted = replace(make([1, 2, 0, 0]), generated_counts=generated)
    with pytest.raises(MismatchError, match="has 3 rows, but token id 3 was counted"):
        counted.for_target(3)
