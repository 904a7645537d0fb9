"""Several runs side by side, and the formats besides the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vtrim.artifacts import Run, write_json
from vtrim.errors import InputError, OptionError
from vtrim.evaluation.report.document import of_run
from vtrim.evaluation.report.facts import Facts, read_facts
from vtrim.evaluation.report.markdown import markdown, plain
from vtrim.evaluation.report.page import html, script_json
from vtrim.evaluation.report.versus import labels, of_runs
from vtrim.evaluation.report.versus_grids import crossed_grid
from vtrim.evaluation.report.write import write_report
from vtrim.shape import DraftShape
from vtrim.trimming.coverage import Coverage
from vtrim.trimming.search import search
from vtrim.trimming.settings import parse_settings
from vtrim.vocab import DraftVocab

ROWS = 400
SHAPE = DraftShape(
    hidden_size=16,
    target_hidden_size=16,
    intermediate_size=32,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=8,
    target_vocab_size=ROWS,
    num_target_layers=8,
    rms_norm_eps=1e-5,
    rope_theta=1e4,
    max_position_embeddings=256,
)
EVIL = "</script>|<b>*bold*</b>`{{ 7 * 7 }}"


def made(folder: Path, *, shift: int = 0, tokenizer: str = "sha256:aa", alpha: str = "0.6") -> Run:
    """A run that is counted, searched and trained. shift: of the ids that its text prefers."""
    run = Run(folder)
    counts = np.roll((9000 / np.arange(1, ROWS + 1) ** 1.3).astype(np.int64), shift)
    coverage = Coverage(
        counts=counts,
        heldout_counts=counts // 20,
        target_vocab_size=ROWS,
        tokenizer_length=ROWS,
        tokenizer_fingerprint=tokenizer,
        data_fingerprint="sha256:bb",
        stop_ids=(),
        rows_used=10,
    )
    coverage.save(run.coverage)
    run.update(target={"name": "toy"}, data={"files": [{"path": f"{folder.name}.jsonl"}]})
    settings = parse_settings(alpha=alpha, cmin="0.5", num_trials=5)
    found = search(coverage, SHAPE, settings)
    write_json(run.search, found.to_json())
    DraftVocab.of(coverage.curve().ids(found.to_json()["k"]), ROWS).save(run.vocab)
    run.record("train-draft", {"tokens": 5000, "settings": {"learning_rate": shift + 1}})
    return run


def evaluated(run: Run, *, seconds: float, dtype: str = "float32", prompts: int = 6) -> None:
    """An exact result whose prompts can be told apart."""
    rows = [
        {"origin": f"a.jsonl:{i}", "prompt": f"p{i}", "prompt_tokens": 4, "emitted": 20 + i,
         "rounds": 10, "seconds": seconds, "plain_emitted": 20, "plain_seconds": 2.0,
         "log_prob": -3.0}
        for i in range(prompts)
    ]  # fmt: skip
    write_json(
        run.eval / "greedy.json",
        {
            "acceptor": "greedy", "lossless": True, "prompts": prompts, "per_prompt": rows,
            "acceptance_length": 2.2, "tokens_per_second": 22 / seconds, "speedup": 2 / seconds,
            "plain_tokens_per_second": 10.0, "acceptance_by_position": [0.6, 0.3],
            "drafter": "eagle", "plain": {}, "temperature": 0.0, "off_argmax_share": 0.0,
            "settings": {"temperature": 0.0, "num_draft_tokens": 3, "dtype": dtype},
        },
    )  # fmt: skip


@pytest.fixture
def pair(tmp_path: Path) -> list[Run]:
    first, second = made(tmp_path / "talk"), made(tmp_path / "code", shift=7, alpha="0.8")
    evaluated(first, seconds=1.0)
    evaluated(second, seconds=0.5)
    return [first, second]


def facts_of(runs: list[Run]) -> list[Facts]:
    return [read_facts(run) for run in runs]


def table(document: Any, name: str) -> list[list[str]]:
    (grid,) = [grid for one in document.sections for grid in one.grids if grid.name == name]
    return [list(grid.columns), *grid.rows]


def test_each_run_has_a_column_with_what_it_came_to(pair: list[Run]) -> None:
    header, *rows = table(of_runs(facts_of(pair)), "runs")
    assert header == ["", "talk", "code"]
    found = {row[0]: row[1:] for row in rows}
    sizes = [json.loads(run.search.read_text())["k"] for run in pair]
    assert found["data"] == ["talk.jsonl", "code.jsonl"]
    assert found["vocabulary k*"] == [f"{k:,} of 400" for k in sizes]
    assert found["exact tokens/s"] == ["22.0", "44.0"]


def test_settings_that_are_the_same_are_not_listed(pair: list[Run]) -> None:
    rows = {row[0]: row[1:] for row in table(of_runs(facts_of(pair)), "differing")[1:]}
    assert rows["search.alpha"] == ["0.6", "0.8"]
    assert rows["train-draft.learning_rate"] == ["1", "8"]
    assert not {"search.cmin", "target.name", "eval.temperature"} & set(rows)


def test_each_vocabulary_is_put_to_each_text(pair: list[Run]) -> None:
    facts = facts_of(pair)
    grid = crossed_grid(dict(zip(labels(facts), facts, strict=True)))
    assert grid is not None
    for one, row in zip(facts, grid.rows, strict=True):
        assert one.vocab is not None
        for other, cell in zip(facts, row[2:], strict=True):
            assert other.coverage is not None
            kept = other.coverage.counts[one.vocab.ids].sum() / other.coverage.counts.sum()
            assert cell == f"{100 * kept:.1f} %"


def test_texts_of_other_tokenizers_are_not_put_to_it(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b", tokenizer="sha256:other")]
    assert "crossed" not in {
        grid.name for one in of_runs(facts_of(runs)).sections for grid in one.grids
    }


def test_results_on_the_same_prompts_are_compared_in_words(pair: list[Run]) -> None:
    _, *rows = table(of_runs(facts_of(pair)), "compared")
    assert {row[0] for row in rows} == {"code"}
    assert any("code decodes 45.0 tokens/s, talk 22.5" in row[1] for row in rows)


def test_results_that_cannot_be_compared_are_said_first(pair: list[Run]) -> None:
    evaluated(pair[1], seconds=0.5, dtype="bfloat16", prompts=5)
    document = of_runs(facts_of(pair))
    assert document.notes[:2] == [
        "Lengths and speeds were measured with different prompts.",
        "Lengths and speeds were measured with different dtype: talk float32, code bfloat16.",
    ]
    (row,) = table(document, "compared")[1:]
    assert row[1].startswith("Not compared: ")
    assert "other prompts" in row[1]


def test_a_run_that_has_only_begun_stands_beside_a_finished_one(
    pair: list[Run], tmp_path: Path
) -> None:
    begun = Run(tmp_path / "begun")
    begun.update(target={"name": "toy"})
    result = write_report([begun, pair[0]], tmp_path / "both.html")
    assert "begun: search" in result["missing"]
    assert {"speed", "coverage", "utility"} <= set(result["plots"])
    page = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert f"vtrim search --alpha 0.6 --cmin 0.95 --run {begun.root}" in page
    alone = write_report([begun, Run(begun.root.parent / "talk")], tmp_path / "both.md")
    assert alone["plots"] == []


def test_runs_are_called_by_their_folders_or_by_whole_paths_where_those_are_alike(
    tmp_path: Path, pair: list[Run]
) -> None:
    other = Run(tmp_path / "elsewhere" / "talk")
    other.update(target={"name": "toy"})
    assert labels(facts_of(pair)) == ["talk", "code"]
    assert labels(facts_of([pair[0], other])) == [str(pair[0].root), str(other.root)]
    with pytest.raises(OptionError, match="named twice"):
        labels(facts_of([pair[0], pair[0]]))


def test_a_folder_without_a_run_among_several_is_refused_and_nothing_is_written(
    pair: list[Run], tmp_path: Path
) -> None:
    output = tmp_path / "out.html"
    with pytest.raises(InputError, match="no run here"):
        write_report([pair[0], Run(tmp_path / "nothing")], output)
    assert not output.exists()


def test_markdown_says_what_the_page_says_in_tables(pair: list[Run]) -> None:
    document = of_run(read_facts(pair[0]), pair[0].root)
    text = markdown(document)
    assert text.startswith("# toy\n")
    for title in ("## Headline", "### All measurements", "### Acceptance by position",
                  "### Coverage by text", "## Settings and provenance"):  # fmt: skip
        assert f"\n{title}\n" in text
    tables = re.findall(r"(?:^\|.*\|\n)+", text, re.M)
    assert len(tables) > 6
    for lines in (one.splitlines() for one in tables):
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
        assert len(widths) == 1, lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", r"a\|b"),
        ("run_a_b", "run_a_b"),
        ("_x_ *y*", r"\_x\_ \*y\*"),
        ("[x](y) <b> &amp;", r"\[x\](y) \<b\> \&amp;"),
        ("two\nlines", "two lines"),
    ],
)
def test_text_is_no_markup_in_markdown(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_names_cannot_break_out_of_any_format(tmp_path: Path) -> None:
    runs = [made(tmp_path / "a"), made(tmp_path / "b")]
    runs[0].update(target={"name": EVIL})
    evaluated(runs[0], seconds=1.0)
    write_json(runs[0].eval / "x.json", {"acceptor": EVIL, "lossless": False})
    document = of_runs(facts_of(runs))
    page = html(document)
    assert EVIL not in page
    assert page.count("</script>") == 3
    assert "<b>" not in markdown(document).replace(r"\<b\>", "")


def test_json_holds_the_numbers_themselves(pair: list[Run], tmp_path: Path) -> None:
    one, both = tmp_path / "one.json", tmp_path / "both.json"
    write_report(pair[:1], one)
    found = json.loads(one.read_text(encoding="utf-8"))
    assert found["search"]["k"] == json.loads(pair[0].search.read_text())["k"]
    assert found["evals"]["greedy"]["acceptance_length"] == 2.2
    assert "curve" not in found["search"]
    assert {"headline", "tables", "notes", "missing", "steps"} <= set(found)
    write_report(pair, both)
    found = json.loads(both.read_text(encoding="utf-8"))
    assert list(found["reports"]) == ["talk", "code"]
    assert found["reports"]["code"]["evals"]["greedy"]["prompts"] == 6


def test_a_loss_that_is_no_number_leaves_a_hole_and_not_an_empty_page(
    pair: list[Run], tmp_path: Path
) -> None:
    lines = [{"kind": "train", "step": step, "loss": loss, "accuracy": [0.1]}
             for step, loss in ((1, 5.0), (2, float("nan")), (3, float("inf")))]  # fmt: skip
    pair[0].train.mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (pair[0].train / "metrics.jsonl").write_text(text, encoding="utf-8")
    document = of_run(read_facts(pair[0]), tmp_path)
    (loss,) = [plot for one in document.sections for plot in one.plots if plot.name == "loss"]
    drawn = json.loads(script_json(loss.figure), parse_constant=pytest.fail)
    assert drawn["data"][0]["y"] == [5.0, None, None]


@pytest.mark.parametrize(
    ("name", "kind", "made_kind"),
    [
        ("a.html", None, "html"),
        ("a.MD", None, "md"),
        ("a", None, "html"),
        ("a.txt", "json", "json"),
    ],
)
def test_the_format_is_the_one_asked_for_else_that_of_the_name(
    pair: list[Run], tmp_path: Path, name: str, kind: str | None, made_kind: str
) -> None:
    assert write_report(pair[:1], tmp_path / name, kind)["format"] == made_kind
    first = (tmp_path / name).read_text(encoding="utf-8")[0]
    assert first == {"html": "<", "md": "#", "json": "{"}[made_kind]


def test_an_unknown_format_is_refused(pair: list[Run]) -> None:
    with pytest.raises(OptionError, match=r"--format pdf: unknown\. Known: html, md, json"):
        write_report(pair[:1], None, "pdf")
    assert not pair[0].report.exists()
