"""The page of DropMatch's results: every number comes from the rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
FACTS = {
    "target": "small",
    "drafter": {"title": "EAGLE-3", "told": "a chain"},
    "tokens": 64,
    "num_draft_tokens": 3,
    "dtype": "bfloat16",
    "forward": "lean",
    "torch": "2",
    "vtrim": "1",
    "processor": "a core",
}
HEADS = {
    "positions": 10,
    "p_drop": 0.05,
    "agreement": 0.5,
    "head_histogram": {"4": 4, "5": 6},
    "head_probability": {"4": 0.25, "5": 0.75},
    "js_by_verdict": {
        "js": {"positions": 3, "draft": 0.03, "farthest_head": 0.05, "heads": 0.02},
    },
}


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripts of benchmarks/results."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import dropmatch  # type: ignore[import-not-found]
    import dropmatch_record  # type: ignore[import-not-found]
    import dropmatch_rows  # type: ignore[import-not-found]
    import dropmatch_run  # type: ignore[import-not-found]
    import dropmatch_sets  # type: ignore[import-not-found]

    return {
        "page": dropmatch.page,
        "fold": dropmatch_record.fold,
        "unfold": dropmatch_record.unfold,
        "read": dropmatch_rows.read,
        "rules": dropmatch_sets.rules_of,
        "work": dropmatch_run.work,
        "read_rows": dropmatch_run.read_rows,
        "common_prefix": dropmatch_run.common_prefix,
        "blocks": dropmatch_run.blocks_of,
    }


@pytest.fixture
def made(modules: Any) -> Callable[..., list[dict[str, Any]]]:
    """made(set, prompt) -> a line a rule: 60 tokens in 30 rounds and 2 s; plain in 60 and 3 s."""

    def lines(name: str, prompt: int) -> list[dict[str, Any]]:
        found = []
        for rule in modules["rules"](name):
            plain = rule.criterion == "plain"
            line: dict[str, Any] = {
                "set": name,
                "prompt": prompt,
                "rule": rule.key,
                "emitted": 60,
                "rounds": 60 if plain else 30,
                "off_argmax": 0 if plain else 6,
                "log_prob": -30.0 if plain else -60.0,
                "seconds": {"prefill": 9.0, "verify": 2.5 if plain else 1.5, "accept": 0.5},
            }
            line |= {"reply": [1, 2]} if plain else {"prefix": 0.25, "heads": HEADS}
            found.append(line)
        return found

    return lines


def written(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in [FACTS, *lines]))
    return path


def test_a_row_sums_over_prompts_and_compares_with_plain_decoding_of_the_same(
    modules: Any, made: Callable[..., Any], tmp_path: Path
) -> None:
    lines = made("gsm8k", 0) + made("gsm8k", 1)
    lines[1]["rounds"] = 10  # greedy, prompt 0
    row = modules["read"](written(tmp_path / "a.jsonl", lines)).row("greedy", "gsm8k")
    assert row.prompts == 2
    assert row.length == 120 / 40
    assert row.speed == 30
    assert row.speedup == 1.5
    assert row.off_argmax == 0.1
    assert row.log_prob_change == -0.5
    assert row.prefix == 0.25
    assert row.share("accept") == 0.25


def test_the_page_shows_the_rows_beside_the_paper_s_numbers(
    modules: Any, made: Callable[..., Any], tmp_path: Path
) -> None:
    lines = [line for name in ("gsm8k", "humaneval", "mgsm_de") for line in made(name, 0)]
    page = modules["page"]([modules["read"](written(tmp_path / "a.jsonl", lines))])
    assert (
        "| full | 0.3 | 5 | 3 | 2.00 | 30.0 | 1.50 | 1.00 | 10.0 % | -0.500 | 25 % | 25.0 % |"
        in page
    )
    assert "| full | 0.3 | 8 | 1 | 2.00 |" in page
    assert "| plain |  |  | 3 | 1.00 | 20.0 | 1.00 |" in page
    assert "| EAGLE-3 | 0.3 | 10 | 0.00 % | 0.00 % | 0.00 % | 40.00 % | 60.00 % |" in page
    assert "98.40 %" in page
    assert "| EAGLE-3 | 0.3 | js | 3 | 0.0300 | 0.0200 | 0.0500 |" in page
    assert "| EAGLE-3 | MGSM de | 2.00 |" in page
    assert "diagnose" not in page
    assert "| full | auto (0.050) | 5 |" in page


def test_folded_rows_give_the_same_page_without_replies(
    modules: Any, made: Callable[..., Any], tmp_path: Path
) -> None:
    lines = [line for name in ("gsm8k", "humaneval") for line in made(name, 0) + made(name, 1)]
    lines[3]["emitted"] = 61
    measured = [modules["read"](written(tmp_path / "a.jsonl", lines))]
    folded = modules["fold"](measured)
    assert "reply" not in folded
    assert modules["page"](modules["unfold"](json.loads(folded))) == modules["page"](measured)


def test_prompts_that_not_all_rules_have_decoded_are_left_out(
    modules: Any, made: Callable[..., Any], tmp_path: Path
) -> None:
    lines = made("mt_bench", 0) + made("mt_bench", 1)[:-1]
    measured = modules["read"](written(tmp_path / "a.jsonl", lines))
    assert measured.row("greedy", "mt_bench").prompts == 1


@pytest.mark.parametrize("content", [None, "", json.dumps(FACTS) + "\n"])
def test_without_rows_there_is_no_page(content: str | None, modules: Any, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit, match="Run dropmatch_run"):
        modules["read"](path)


def test_the_rows_go_on_behind_a_cut_line_and_are_refused_for_other_inputs(
    modules: Any, made: Callable[..., Any], tmp_path: Path
) -> None:
    path = written(tmp_path / "a.jsonl", made("mt_bench", 0))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"set": "mt')
    found = modules["read_rows"](path, FACTS)
    assert path.read_bytes() == whole
    assert len(found) == len(made("mt_bench", 0))
    assert ("mt_bench", 0, "plain") in found
    with pytest.raises(SystemExit, match="tokens 64, now 32"):
        modules["read_rows"](path, {**FACTS, "tokens": 32})


def test_each_prompt_is_decoded_by_all_rules_before_the_next_one_and_plain_first(
    modules: Any,
) -> None:
    order = list(modules["work"](["mt_bench", "gsm8k"], 2))
    assert [place[:2] for place in dict.fromkeys((n, i) for n, i, _ in order)] == [
        ("mt_bench", 0), ("gsm8k", 0), ("mt_bench", 1), ("gsm8k", 1),
    ]  # fmt: skip
    firsts = [rule.key for i, (n, p, rule) in enumerate(order) if order[i - 1][:2] != (n, p)]
    assert firsts == ["plain"] * 4
    keys = [[rule.key for n, p, rule in order if (n, p) == ("gsm8k", at)] for at in (0, 1)]
    assert keys[0] != keys[1]
    assert sorted(keys[0]) == sorted(keys[1]) == sorted({r.key for r in modules["rules"]("gsm8k")})


def test_the_common_prefix_is_told_as_a_share_of_the_longer_reply(modules: Any) -> None:
    assert modules["common_prefix"]([1, 2, 3, 4], [1, 2, 9]) == 0.5
    assert modules["common_prefix"]([1, 2], [1, 2, 3, 4]) == 0.5
    assert modules["common_prefix"]([1, 2], [1, 2]) == 1.0


def test_blocks_are_listed_from_numbers_and_ranges(modules: Any) -> None:
    assert modules["blocks"]("3,5,10-12") == [3, 5, 10, 11, 12]
