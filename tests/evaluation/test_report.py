from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vtrim.artifacts import Run, write_json
from vtrim.errors import InputError
from vtrim.evaluation.report.document import of_run
from vtrim.evaluation.report.facts import Facts, read_facts
from vtrim.evaluation.report.figures_run import MAX_POINTS, binned, drift_figure
from vtrim.evaluation.report.page import html, script_json
from vtrim.evaluation.report.rules import measured_rules
from vtrim.evaluation.report.tables import SPEED_COLUMNS, flat, speed_rows, tiles
from vtrim.evaluation.report.write import write_report
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.search import search
from vtrim.trimming.settings import parse_settings

SHAPE = DraftShape(
    hidden_size=64,
    target_hidden_size=64,
    intermediate_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    target_vocab_size=2000,
    num_target_layers=8,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=256,
)
EVIL = '</script><img src=x onerror="fail()"><b>{{ 7 * 7 }}</b>'


def add_coverage(run: Run, target: str = "toy") -> Coverage:
    counts = (60_000 / np.arange(1, 2001) ** 1.1).astype(np.int64)
    coverage = Coverage(
        counts=counts,
        heldout_counts=counts // 20,
        target_vocab_size=2000,
        tokenizer_length=1990,
        tokenizer_fingerprint="sha256:aa",
        data_fingerprint="sha256:bb",
        stop_ids=(1990 - 1,),
        rows_used=100,
    )
    coverage.save(run.coverage)
    run.update(target={"name": target, "vocab_size": 2000}, data={"files": [{"path": "a.jsonl"}]})
    run.record("coverage", {"tokens": coverage.total})
    return coverage


def add_search(run: Run, coverage: Coverage) -> dict[str, Any]:
    result = search(coverage, SHAPE, parse_settings(alpha="0.6", cmin="0.8", num_trials=20))
    content: dict[str, Any] = json.loads(json.dumps(result.to_json()))
    write_json(run.search, content)
    run.record("search", {"k": content["k"]})
    return content


def add_training(run: Run, steps: int = 60) -> None:
    lines = []
    for step in range(1, steps + 1):
        accuracy = [0.5 - 20 / (40 + step), 0.4 - 16 / (40 + step)]
        lines.append({"kind": "train", "step": step, "loss": 8 - step / 20, "accuracy": accuracy})
        if step % 20 == 0:
            held = {"kind": "heldout", "step": step, "loss": 7.5 - step / 30}
            lines.append({**held, "joint_prefix": 1 + step / 100, "accuracy": accuracy})
    run.train.mkdir(parents=True)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run.train / "metrics.jsonl").write_text(text, encoding="utf-8")
    run.record("train-draft", {"steps": steps, "draft_fingerprint": "sha256:cc"})


def rule(length: float, speed: float) -> dict[str, Any]:
    return {
        "acceptance_length": length,
        "acceptance_by_position": [0.5, 0.25, 0.1],
        "tokens_per_second": speed,
        "speedup": speed / 10,
        "speedup_interval": [speed / 10 - 0.05, speed / 10 + 0.05],
        "shares": {"draft": 0.3, "verify": 0.6, "accept": 0.05, "other": 0.05},
        "off_argmax_share": 0.0,
        "accept_reasons": {"js": 3},
    }


def add_evals(run: Run, lossy_name: str = "dropmatch") -> None:
    settings = {"num_draft_tokens": 3, "temperature": 0.0}
    exact = {**rule(1.5, 11.0), "acceptor": "greedy", "lossless": True, "prompts": 8}
    exact |= {"plain_tokens_per_second": 10.0, "identical_to_plain": 0.75, "settings": settings}
    lossy = {**rule(1.9, 13.0), "acceptor": "dropmatch", "lossless": False, "prompts": 8}
    lossy |= {"exact": rule(1.48, 10.8), "plain_tokens_per_second": 10.1, "settings": settings}
    lossy |= {"off_argmax_share": 0.07, "agreement": 0.9, "identical_to_plain": 0.1}
    lossy |= {"head_histogram": {"3": 1, "4": 2, "5": 17}, "provenance": {"draft": "sha256:cc"}}
    write_json(run.eval / "greedy.json", exact)
    write_json(run.eval / f"{lossy_name}.json", lossy)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


@pytest.fixture
def whole_run(run: Run) -> Run:
    add_search(run, add_coverage(run))
    add_training(run)
    add_evals(run)
    return run


class Page(HTMLParser):
    """What a browser would fetch, and the texts that a reader sees."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.script = ""
        self.inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.inside = tag
        for name, value in attrs:
            if name in {"src", "href", "srcset", "data", "action", "poster"} and (
                value is None or not value.startswith("#")
            ):
                self.fetched.append(f"{tag} {name}={value}")

    def handle_endtag(self, tag: str) -> None:
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.script += data
        elif self.inside != "style":
            self.text += data


def read(run: Run) -> str:
    return run.report.read_text(encoding="utf-8")


def page(facts: Facts) -> str:
    return html(of_run(facts, facts.root))


def figures_of(html: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', html, re.S)
    assert found is not None
    drawn: dict[str, Any] = json.loads(found[1])
    return drawn


def test_a_whole_run_gives_every_plot_and_nothing_is_missing(whole_run: Run) -> None:
    result = write_report([whole_run])
    names = ["speed", "drift", "position", "cycle", "heads"]
    names += ["coverage", "utility", "flops", "loss", "accuracy", "prefix"]
    assert result["plots"] == names
    assert result["missing"] == []
    assert result["evals"] == ["greedy", "dropmatch"]
    assert Path(result["artifact"]).stat().st_size == result["bytes"]
    assert sorted(figures_of(read(whole_run))) == sorted(names)


def test_the_page_loads_nothing_from_anywhere(whole_run: Run) -> None:
    write_report([whole_run])
    html = read(whole_run)
    page = Page(html)
    assert page.fetched == []
    assert not {"link", "iframe", "img", "object", "embed"} & set(page.tags)
    assert page.tags.count("script") == 4
    styles = re.findall(r"<style>(.*?)</style>", html, re.S)
    assert "url(" not in styles[0]
    assert "@import" not in styles[0]
    assert "default-src 'none'" in html


def test_plotly_knows_every_key_of_every_figure(whole_run: Run) -> None:
    import plotly.graph_objects as go

    write_report([whole_run])
    for figure in figures_of(read(whole_run)).values():
        assert go.Figure(figure).to_dict()["data"]


def test_the_headline_names_size_coverage_saving_acceptance_and_speeds(whole_run: Run) -> None:
    found = {tile.label: tile for tile in tiles(read_facts(whole_run))}
    content = json.loads(whole_run.search.read_text(encoding="utf-8"))
    assert found["vocabulary k*"].value == f"{content['k']:,}"
    assert found["coverage C(k*)"].value == f"{100 * content['coverage']:.1f} %"
    assert found["acceptance length"].value == "1.48"  # the newest exact measurement
    assert found["plain decoding"].value == "10.1"
    assert found["exact acceptance"].note == "1.08 x plain"
    assert found["lossy: dropmatch"].value == "13.0"
    assert "7.0 % off the target's choice" in found["lossy: dropmatch"].note


def test_the_speed_table_has_a_row_for_each_rule_beside_its_own_baseline(whole_run: Run) -> None:
    rows = speed_rows(read_facts(whole_run))
    assert all(len(row) == len(SPEED_COLUMNS) for row in rows)
    assert [row[:2] for row in rows] == [
        ["greedy", "plain"],
        ["greedy", "greedy (exact)"],
        ["dropmatch", "plain"],
        ["dropmatch", "exact"],
        ["dropmatch", "dropmatch (lossy)"],
    ]
    assert rows[1][9:] == ["1.50", "11.0", "1.10", "1.05 to 1.15", "75.0 %", "0.0 %", ""]


def measured_with(run: Run, name: str, **draft: Any) -> None:
    """Says in a result which draft it was measured with."""
    path = run.eval / f"{name}.json"
    write_json(path, {**json.loads(path.read_text(encoding="utf-8")), "provenance": draft})


def test_the_headline_takes_the_run_s_own_draft_and_the_table_names_the_others(
    whole_run: Run,
) -> None:
    own = {"draft": "run/draft", "draft_fingerprint": "sha256:cc", "draft_vocab_size": 4096}
    other = {"draft": "theirs", "draft_fingerprint": "sha256:dd", "draft_vocab_size": 32000}
    measured_with(whole_run, "greedy", **own)
    measured_with(whole_run, "dropmatch", **other)
    facts = read_facts(whole_run)
    found = {tile.label: tile for tile in tiles(facts)}
    assert found["acceptance length"].value == "1.50"  # the newer dropmatch is of another draft
    assert found["acceptance length"].note.endswith("by a draft of k = 4,096, not k*")
    assert "lossy: dropmatch" not in found
    drafts = {(row[0], *row[2:4]) for row in speed_rows(facts) if row[1] != "plain"}
    assert drafts == {("greedy", "the run's own", "4,096"), ("dropmatch", "theirs", "32,000")}
    assert [note for note in facts.notes if "eval/dropmatch.json" in note]


@pytest.mark.parametrize(
    ("drafter", "more", "cells"),
    [
        ({"name": "ngram"}, {}, ("n-grams", "3")),
        ({"name": "model", "draft_model": "small", "skip_layers": []}, {}, ("small", "3")),
        ({"name": "model", "draft_model": None, "skip_layers": [3, *range(10, 18)]},
         {"adaptive": True}, ("skips 3, 10-17", "auto")),
    ],
)  # fmt: skip
def test_the_speed_table_says_what_drafted_without_a_trained_draft(
    drafter: dict[str, Any], more: dict[str, Any], cells: tuple[str, str], whole_run: Run
) -> None:
    path = whole_run.eval / "greedy.json"
    settings = {"drafter": drafter, "num_draft_tokens": 3, "batch_size": 4, **more}
    result = json.loads(path.read_text(encoding="utf-8")) | {"dtype": "bfloat16"}
    write_json(path, {**result, "settings": settings, "provenance": {"draft": None}})
    row = next(row for row in speed_rows(read_facts(whole_run)) if row[1] == "greedy (exact)")
    named = dict(zip(SPEED_COLUMNS, row, strict=True))
    assert (named["draft"], named["L"]) == cells
    assert (named["dtype"], named["batch"]) == ("bfloat16", "4")


def test_without_a_trained_draft_the_vocabulary_tells_whose_a_result_is(run: Run) -> None:
    content = add_search(run, add_coverage(run))
    add_evals(run)
    measured_with(run, "greedy", draft_fingerprint="x", vocab_fingerprint="sha256:other")
    fitting = content["vocab_fingerprint"]
    measured_with(run, "dropmatch", draft_fingerprint="y", vocab_fingerprint=fitting)
    facts = read_facts(run)
    assert [facts.is_own(result) for result in facts.evals.values()] == [False, True]


def test_a_draft_of_another_vocabulary_than_the_search_s_is_told_first(whole_run: Run) -> None:
    whole_run.record("train-draft", {"draft_fingerprint": "x", "vocab_fingerprint": "sha256:old"})
    write_json(whole_run.draft / "config.json", {"draft_vocab_size": 1234})
    result = write_report([whole_run])
    (note,) = result["notes"]
    assert "trained for another vocabulary (k = 1,234)" in note
    text = Page(read(whole_run)).text
    assert text.index("Before you read the numbers") < text.index("trained for another vocabulary")
    assert "Not in this report yet" not in text


@pytest.mark.parametrize(
    ("steps", "missing", "plots"),
    [
        (1, ["search", "train-draft", "eval"], ["coverage"]),
        (2, ["train-draft", "eval"], ["coverage", "utility", "flops"]),
        (3, ["eval"], ["coverage", "utility", "flops", "loss", "accuracy", "prefix"]),
    ],
)
def test_an_unfinished_run_shows_what_is_there_and_names_the_rest(
    run: Run, steps: int, missing: list[str], plots: list[str]
) -> None:
    coverage = add_coverage(run)
    if steps > 1:
        add_search(run, coverage)
    if steps > 2:
        add_training(run)
    result = write_report([run])
    assert (result["missing"], result["plots"]) == (missing, plots)
    text = Page(read(run)).text
    for name in missing:
        assert f"vtrim {name}" in text


def test_training_that_was_stopped_is_shown_with_its_step(run: Run) -> None:
    add_search(run, add_coverage(run))
    add_training(run)
    manifest = run.read()
    del manifest["steps"]["train-draft"]
    write_json(run.manifest, manifest)
    with (run.train / "metrics.jsonl").open("a", encoding="utf-8") as handle:
        handle.write('{"kind": "train", "step": 61, "lo')
    result = write_report([run])
    assert result["missing"][0] == "train-draft (stopped or running, at step 60)"
    assert "loss" in result["plots"]
    assert "1 line(s) of train/metrics.jsonl could not be read" in Page(read(run)).text


def test_a_folder_without_a_run_is_refused_with_what_to_type(run: Run) -> None:
    with pytest.raises(InputError, match=r"no run here.*vtrim coverage"):
        write_report([run])


def test_a_cut_result_file_is_refused_by_name(whole_run: Run) -> None:
    (whole_run.eval / "greedy.json").write_text('{"acceptor": "gr', encoding="utf-8")
    with pytest.raises(InputError, match=r"greedy\.json: not a whole JSON file"):
        write_report([whole_run])
    assert not whole_run.report.exists()


def test_text_of_the_run_is_shown_as_it_is_and_never_taken_for_markup(run: Run) -> None:
    add_search(run, add_coverage(run, target=EVIL))
    add_training(run)
    add_evals(run, lossy_name="<b onclick=fail()>")
    write_report([run])
    page = Page(read(run))
    assert EVIL in page.text
    assert not {"img", "b"} & set(page.tags)
    assert page.tags.count("script") == 4
    names = {trace["name"] for trace in figures_of(read(run))["position"]["data"]}
    assert "&lt;b onclick=fail()&gt;: exact" in names


def test_json_in_a_script_cannot_end_it() -> None:
    text = script_json({"a": "</script><!-- &"})
    assert not set("<>&") & set(text)
    assert json.loads(text) == {"a": "</script><!-- &"}


def test_a_number_that_was_not_measured_is_a_dash(whole_run: Run) -> None:
    path = whole_run.eval / "greedy.json"
    numbers = dict.fromkeys(rule(1.0, 1.0), None)
    write_json(path, {**numbers, "acceptor": "greedy", "lossless": True})
    facts = read_facts(whole_run)
    row = next(row for row in speed_rows(facts) if row[1] == "greedy (exact)")
    assert row[9:] == ["-", "-", "-", "", "", "-", ""]
    assert page(facts)


def test_a_price_is_drawn_only_where_a_greedy_rule_has_paid_one(whole_run: Run) -> None:
    drawn = drift_figure(measured_rules(read_facts(whole_run).evals))
    assert drawn is not None
    points = {trace["name"]: (*trace["x"], *trace["y"]) for trace in drawn["data"]}
    assert points == {
        "greedy (exact)": (0.0, 1.1),
        "dropmatch: exact": (0.0, 1.08),
        "dropmatch (lossy)": (0.07, 1.3),
    }
    symbols = [trace["marker"]["symbol"] for trace in drawn["data"]]
    assert symbols == ["circle", "circle", "diamond"]
    (whole_run.eval / "dropmatch.json").unlink()
    assert drift_figure(measured_rules(read_facts(whole_run).evals)) is None


@pytest.mark.parametrize(
    ("acceptor", "options", "drafter", "named"),
    [
        ("greedy", {}, "eagle", "greedy (lossy)"),
        ("greedy", {}, "tree", "greedy, tree (lossy)"),
        ("dropmatch", {"p_drop": "auto", "criterion": "full", "heads": 5}, "eagle",
         "dropmatch p auto (lossy)"),
        ("dropmatch", {"p_drop": "auto", "p_drop_chosen": 0.01234}, "eagle",
         "dropmatch p auto (0.0123) (lossy)"),
        ("dropmatch", {"p_drop": 0.1, "criterion": "js"}, "ngram",
         "dropmatch p 0.1 js, ngram (lossy)"),
        ("typical", {"seed": 3, "epsilon": 0.09, "delta": 0.3}, "eagle",
         "typical epsilon 0.09 delta 0.3 (lossy)"),
    ],
)  # fmt: skip
def test_a_rule_is_named_with_its_numbers_and_its_drafter(
    acceptor: str, options: dict[str, Any], drafter: str, named: str
) -> None:
    result = {"acceptor": acceptor, "lossless": False, "drafter": drafter}
    result["settings"] = {"acceptor": {"name": acceptor, **options}}
    (found,) = measured_rules({"x": result})
    assert found.rule == named


def test_a_diagnosed_result_stands_beside_the_paper(whole_run: Run) -> None:
    assert "What DropMatch saw" not in page(read_facts(whole_run))
    path = whole_run.eval / "dropmatch.json"
    seen: dict[str, Any] = dict.fromkeys(
        ("agreement_by_head", "clean_probability_by_head", "total_variation")
    )
    seen |= {"diagnosed": True, "criteria": {"full": 20}, "head_probability": {"5": 0.9}}
    seen |= {"js_by_verdict": {}, "verdicts": {"js": 20}}
    write_json(path, {**json.loads(path.read_text(encoding="utf-8")), **seen})
    text = Page(page(read_facts(whole_run))).text
    for said in ("What DropMatch saw: dropmatch", "85.00 %, mean p 0.900", "98.40 %, mean p 0.939"):
        assert said in text


def test_the_speed_table_shows_the_change_in_log_p(whole_run: Run) -> None:
    path = whole_run.eval / "dropmatch.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, {**result, "log_prob_change": -0.1234})
    assert [row[-1] for row in speed_rows(read_facts(whole_run))] == ["", "", "", "", "-0.123"]


def test_a_lossless_result_counts_once_and_a_lossy_one_with_its_exact_twin() -> None:
    evals: dict[str, dict[str, Any]] = {
        "a": {"acceptor": "rejection", "lossless": True, "exact": None},
        "b": {"acceptor": "dropmatch", "lossless": False, "exact": {"speedup": 1.1}},
    }
    evals["b"]["settings"] = {"acceptor": {"p_drop": 0.05}}
    found = [(rule.label, rule.lossless) for rule in measured_rules(evals)]
    assert found == [
        ("a: rejection (exact)", True),
        ("b: exact", True),
        ("b: dropmatch p 0.05 (lossy)", False),
    ]


def test_a_result_named_after_its_rule_is_named_once() -> None:
    settings = {"acceptor": {"p_drop": 0.02}}
    evals = {"dropmatch": {"acceptor": "dropmatch", "settings": settings, "exact": {}}}
    evals["greedy-2"] = {"acceptor": "greedy", "lossless": True}
    labels = [rule.label for rule in measured_rules(evals)]
    assert labels == ["dropmatch p 0.02 (lossy)", "greedy-2: greedy (exact)"]


def test_long_curves_are_averaged_in_equal_bins() -> None:
    x, y = binned(list(range(1, 4001)), [float(i % 2) for i in range(4000)])
    assert (len(x), x[0], x[-1]) == (MAX_POINTS, 10, 4000)
    assert set(y) == {0.5}
    assert binned([1, 2, 3], [4, 5, 6]) == ([1, 2, 3], [4, 5, 6])


def test_nested_settings_are_flattened_to_dotted_paths() -> None:
    value = {"a": {"b": [1, 2]}, "c": [{"d": None}], "e": {}}
    assert list(flat(value)) == [("a.b", "1, 2"), ("c[0].d", "None")]


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_a_browser_without_network_draws_every_plot_without_an_error(
    whole_run: Run, tmp_path: Path
) -> None:
    result = write_report([whole_run])
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--enable-logging=stderr",
            "--virtual-time-budget=20000",
            "--dump-dom",
            whole_run.report.absolute().as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.count("main-svg") >= len(result["plots"])
    assert "CONSOLE" not in done.stderr
