from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vtrim.artifacts import Run, write_json
from vtrim.errors import InputError
from vtrim.evaluation.report.explorer import NEAR, explorer, static_sizes
from vtrim.evaluation.report.facts import read_facts
from vtrim.evaluation.report.page import script_json
from vtrim.evaluation.report.reasons import reason_tables
from vtrim.evaluation.report.write import write_report
from vtrim.flops.times import StepTimes
from vtrim.shape import DraftShape
from vtrim.trimming.analysis import first_miss, heldout_interval
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.sample import HeldoutSample
from vtrim.trimming.search import search
from vtrim.trimming.settings import parse_settings
from vtrim.vocab import DraftVocab

ROWS, USABLE, STOP, RARE_STOP = 2000, 1990, 0, 1989
SHAPE = DraftShape(
    hidden_size=64,
    target_hidden_size=64,
    intermediate_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    target_vocab_size=ROWS,
    num_target_layers=8,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=256,
)
TIMES = StepTimes(
    verify_s=0.03,
    plain_s=0.026,
    draft_base_s=0.002,
    draft_per_row_s=2e-6,
    num_draft_tokens=3,
    batch=1,
    source="measured: a machine",
)
EVIL = '</script><img src=x onerror="fail()">\u202e'


def counted(**changes: Any) -> Coverage:
    """A Zipf law over 1,900 ids, two sources, and 30 held-out conversations."""
    rng = np.random.default_rng(1)
    counts = np.zeros(ROWS, dtype=np.int64)
    counts[:1900] = 60_000 / np.arange(1, 1901) ** 1.1
    ids = rng.choice(1900, size=(30, 40), p=counts[:1900] / counts.sum())
    heldout = np.bincount(ids.ravel(), minlength=ROWS).astype(np.int64)
    chat = counts // 3
    found = Coverage(
        counts=counts + heldout,
        heldout_counts=heldout,
        target_vocab_size=ROWS,
        tokenizer_length=USABLE,
        tokenizer_fingerprint="sha256:aa",
        data_fingerprint="sha256:bb",
        stop_ids=(STOP, RARE_STOP),
        rows_used=600,
        rows_heldout=30,
        by_source={"chat": chat, "code": counts + heldout - chat},
        sample=HeldoutSample(
            keys=np.arange(30),
            times=np.ones(30, dtype=np.int64),
            lengths=np.full(30, 40),
            ids=ids.ravel(),
        ),
    )
    return replace(found, **changes)


def keep(run: Run, coverage: Coverage, texts: bool = True) -> None:
    coverage.save(run.coverage)
    run.update(target={"name": "toy", "vocab_size": ROWS}, data={"files": []})
    run.record("coverage", {"tokens": coverage.total})
    if texts:
        write_json(run.token_texts, {str(i): f" w{i}" for i in range(1900)} | {"1989": EVIL})


def searched(run: Run, coverage: Coverage, **options: Any) -> dict[str, Any]:
    times = TIMES if options.get("objective") == "throughput" else None
    settings = parse_settings(cmin="0.8", num_trials=20, **options)
    result = search(coverage, SHAPE, settings, times=times)
    content: dict[str, Any] = json.loads(json.dumps(result.to_json()))
    write_json(run.search, content)
    run.record("search", {"k": content["k"]})
    return content


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.fixture
def coverage(run: Run) -> Coverage:
    found = counted()
    keep(run, found)
    return found


def shown(run: Run) -> dict[str, Any]:
    found = explorer(read_facts(run))
    assert found is not None
    return found


class Body(HTMLParser):
    """The texts by the tag they stand in, and all tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, _attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_size_reads_what_the_curve_and_the_search_say(run: Run, coverage: Coverage) -> None:
    content = searched(run, coverage)
    found, curve = shown(run), coverage.curve()
    assert found["k"] == sorted(set(found["k"]))
    assert found["k"][found["start"]] == content["k"]
    assert {content["exact"]["k"], content["tpe"]["k"], 1000} <= set(found["k"])
    drawn = {k: i for i, k in enumerate(content["curve"]["k"])}
    for i, k in enumerate(found["k"]):
        assert found["coverage"][i] == pytest.approx(curve.coverage(k), abs=6e-6)
        assert found["heldout"][i] == pytest.approx(curve.heldout_coverage(k), abs=6e-6)
        if k in drawn:
            for name, series in (("reduction", "flops_reduction"), ("utility", "utility")):
                assert found[name][i] == pytest.approx(content["curve"][series][drawn[k]], abs=6e-6)


def test_usual_sizes_the_run_s_own_and_its_draft_s_can_be_reached(run: Run) -> None:
    rows = 40_000
    found = Coverage(
        counts=np.arange(rows, 0, -1),
        heldout_counts=np.zeros(rows, dtype=np.int64),
        target_vocab_size=rows,
        tokenizer_length=rows,
        tokenizer_fingerprint="sha256:aa",
        data_fingerprint="sha256:bb",
        stop_ids=(STOP,),
        rows_used=1,
    )
    keep(run, found, texts=False)
    DraftVocab.of(range(777), rows).save(run.vocab)
    write_json(run.draft / "config.json", {"draft_vocab_size": 1357})
    assert {4096, 8192, 16_384, 32_000, 32_768, 777, 1357} <= set(shown(run)["k"])


def test_intervals_and_first_misses_are_those_of_the_analysis(run: Run, coverage: Coverage) -> None:
    searched(run, coverage)
    found, curve = shown(run), coverage.curve()
    i = found["start"]
    interval = heldout_interval(coverage, curve, found["k"][i])
    miss = first_miss(coverage, curve, found["k"][i])
    assert interval is not None
    assert miss is not None
    assert (found["low"][i], found["high"][i]) == (round(interval.low, 5), round(interval.high, 5))
    assert found["conversations"] == 30
    assert {row["within"]: row["share"][i] for row in found["misses"]} == pytest.approx(
        miss.within, abs=6e-6
    )


def test_each_text_has_a_row_and_the_rows_weigh_up_to_the_whole(
    run: Run, coverage: Coverage
) -> None:
    written = np.zeros(ROWS, dtype=np.int64)
    written[[1, 1500]] = 3, 1
    keep(run, replace(coverage, generated_counts=written))
    found = shown(run)
    assert [row["name"] for row in found["domains"]] == [
        "all rows",
        "code",
        "chat",
        "written by the target",
    ]
    whole, *parts, generated = found["domains"]
    for i in range(0, len(found["k"]), 17):
        weighed = sum(part["share"] * part["coverage"][i] for part in parts)
        assert weighed == pytest.approx(whole["coverage"][i], abs=2e-5)
    assert (generated["tokens"], generated["share"]) == (4, None)
    assert generated["coverage"][static_sizes(found)[-1]] == 0.75


def test_tokens_next_to_every_size_are_there_with_their_counts(
    run: Run, coverage: Coverage
) -> None:
    found, curve = shown(run), coverage.curve()
    for k in found["k"]:
        for seat in range(max(curve.num_forced, k - NEAR), min(k + NEAR, 1900)):
            token = int(curve.order[seat])
            count = int(coverage.counts[token])
            assert found["seats"][str(seat)] == [token, count, repr(f" w{token}")]


def test_forced_tokens_name_the_seat_that_their_counts_would_give(
    run: Run, coverage: Coverage
) -> None:
    first, rare = shown(run)["forced"]
    assert first == [STOP, int(coverage.counts[STOP]), "' w0'", 1]
    assert rare[:2] == [RARE_STOP, 0]
    assert rare[3] == 1990
    assert "\\u202e" in rare[2]


def test_before_a_search_the_slider_stands_where_95_percent_are_covered(run: Run) -> None:
    keep(run, counted())
    found = shown(run)
    assert found["coverage"][found["start"]] >= 0.95 > found["coverage"][found["start"] - 1]
    assert "utility" not in found
    assert write_report([run])["plots"] == ["coverage", "domains", "misses"]


def test_without_held_out_rows_sources_or_texts_the_rest_is_shown(run: Run) -> None:
    plain = counted(
        heldout_counts=np.zeros(ROWS, dtype=np.int64),
        by_source={},
        sample=HeldoutSample.empty(),
        stop_ids=(),
    )
    keep(run, plain, texts=False)
    found = shown(run)
    assert not {"heldout", "low", "misses", "speed"} & set(found)
    assert {row[2] for row in found["seats"].values()} == {"?"}
    assert write_report([run])["plots"] == ["coverage"]


def test_expected_speed_is_that_of_the_search(run: Run, coverage: Coverage) -> None:
    content = searched(run, coverage, objective="throughput")
    found = shown(run)
    best = found["speed"][found["start"]]
    assert best == pytest.approx(content["value"], rel=1e-3)
    assert found["speed_note"].endswith("measured: a machine")
    titles = [table.title for table in reason_tables(content)]
    assert titles[-1] == "If the draft were accepted more or less"
    write_report([run])
    text = Body(run.report.read_text(encoding="utf-8")).text
    assert "Expected tokens per second with times measured: a machine" in text


def test_times_measured_in_the_run_give_a_speed_beside_the_utility(
    run: Run, coverage: Coverage
) -> None:
    searched(run, coverage)
    rows = [{"tokens": n, "median_s": 0.02 + n / 1000} for n in range(1, 5)]
    machine = {"device_name": "cpu", "dtype": "fp32", "threads": 1, "context": 64}
    machine["num_draft_tokens"] = 3
    fit = {"base_s": 0.002, "per_row_s": 2e-6}
    write_json(run.step_times, {"verify": rows, "draft_fit": fit, **machine})
    assert "measured: cpu" in shown(run)["speed_note"]
    write_json(run.step_times, {"verify": rows[:2], "draft_fit": fit, **machine})
    assert "speed" not in shown(run)


def test_every_named_size_can_be_reached_by_the_slider(run: Run, coverage: Coverage) -> None:
    content = searched(run, coverage)
    tables = reason_tables(content)
    assert [table.title for table in tables] == [
        "Named sizes",
        "If coverage weighed more or less",
    ]
    sizes = set(shown(run)["k"])
    for table in tables:
        assert {k for k, _ in table.rows} <= sizes
        assert all(len(cells) + 1 == len(table.columns) for _, cells in table.rows)


def test_a_search_of_before_there_were_reasons_is_shown_without_them(
    run: Run, coverage: Coverage
) -> None:
    content = searched(run, coverage)
    for name in ("pareto", "alpha_curve", "throughput", "objective"):
        del content[name]
    write_json(run.search, content)
    assert reason_tables(content) == []
    assert "utility" in write_report([run])["plots"]


def test_counts_that_changed_after_the_search_are_said(run: Run, coverage: Coverage) -> None:
    searched(run, coverage)
    keep(run, replace(coverage, rows_used=601))
    write_report([run])
    text = Body(run.report.read_text(encoding="utf-8")).text
    assert "The search is of other counts than those shown here" in text


def test_counts_of_a_smaller_tokenizer_show_the_nearest_size_and_say_what_they_lack(
    run: Run, coverage: Coverage
) -> None:
    content = searched(run, coverage, keep=[1900])
    few = counted(tokenizer_length=120, stop_ids=(STOP,))
    cut = {name: getattr(few, name).copy() for name in ("counts", "heldout_counts")}
    for counts in cut.values():
        counts[120:] = 0
    keep(run, replace(few, **cut, by_source={}, sample=HeldoutSample.empty()))
    found = shown(run)
    assert content["k"] > found["k"][-1] == found["k"][found["start"]] == 120
    assert [token for token, *_ in found["forced"]] == [STOP]
    write_report([run])
    text = Body(run.report.read_text(encoding="utf-8")).text
    assert f"Forced ids {RARE_STOP}, 1900 are left out" in text


def test_a_vocabulary_of_another_origin_than_the_search_is_said(
    run: Run, coverage: Coverage
) -> None:
    content = searched(run, coverage)
    found = DraftVocab.of(coverage.curve().ids(content["k"]), ROWS)
    for vocab, is_said in ((found, False), (DraftVocab.of([1, 2], ROWS), True)):
        vocab.save(run.vocab)
        write_report([run])
        text = Body(run.report.read_text(encoding="utf-8")).text
        assert ("The run's vocabulary of 2 ids is not the one" in text) is is_said


def test_counts_that_cannot_be_read_leave_the_rest_of_a_searched_run(
    run: Run, coverage: Coverage
) -> None:
    searched(run, coverage)
    run.coverage.write_bytes(b"PK")
    result = write_report([run])
    assert result["plots"] == ["coverage", "utility", "flops"]
    html = run.report.read_text(encoding="utf-8")
    assert "Left out is what needs the counts" in Body(html).text
    assert 'id="explorer"' not in html
    run.search.unlink()
    with pytest.raises(InputError, match="coverage"):
        write_report([run])


def test_names_and_tokens_are_never_taken_for_markup(run: Run, coverage: Coverage) -> None:
    sources = dict(zip([EVIL, "code"], (coverage.by_source or {}).values(), strict=True))
    keep(run, replace(coverage, by_source=sources))
    write_report([run])
    html = run.report.read_text(encoding="utf-8")
    body = Body(html)
    assert "img" not in body.tags
    assert body.tags.count("script") == 4
    assert EVIL in body.text
    found = re.search(r'id="explorer-data">(.*?)</script>', html, re.S)
    assert found is not None
    assert json.loads(found[1]) == json.loads(script_json(shown(run)))


def test_the_data_of_a_large_vocabulary_with_many_sources_stays_small(run: Run) -> None:
    counts = (3e6 / (np.arange(1, 128_257) + 3.0) ** 1.05).astype(np.int64)
    parts = {f"source {i:02}": counts // 32 for i in range(31)}
    parts["source 31"] = counts - sum(parts.values())
    large = counted(
        counts=counts,
        heldout_counts=counts // 20,
        target_vocab_size=counts.size,
        tokenizer_length=counts.size,
        by_source=parts,
    )
    keep(run, large)
    assert len(script_json(shown(run))) < 150_000


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
MOVE = """<script>
document.querySelector('#explorer table [data-size="{size}"]').click();
</script></body>"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_in_a_browser_everything_follows_the_slider(
    run: Run, coverage: Coverage, tmp_path: Path
) -> None:
    content = searched(run, coverage)
    write_report([run])
    k = next(row["k"] for row in content["pareto"]["points"] if row["name"] == "C 0.95")
    page = tmp_path / "moved.html"
    html = run.report.read_text(encoding="utf-8")
    page.write_text(html.replace("</body>", MOVE.format(size=k)), encoding="utf-8")
    assert CHROMIUM is not None
    arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    arguments += [f"--user-data-dir={tmp_path / 'profile'}", "--enable-logging=stderr"]
    arguments += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000"]
    done = subprocess.run(
        [CHROMIUM, *arguments, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr
    read = dict(re.findall(r'data-read="(\w+)">([^<]*)<', done.stdout))
    assert read["k"] == f"{k:,}"
    assert read["coverage"] == f"{100 * coverage.curve().coverage(k):.2f} %"
    edge = re.search(r'<tbody id="outside">(.*?)</tbody>', done.stdout, re.S)
    assert edge is not None
    first_outside = int(coverage.curve().order[k])
    assert f"<td>{first_outside}</td>" in edge[1]
    assert edge[1].count("<tr>") == NEAR
