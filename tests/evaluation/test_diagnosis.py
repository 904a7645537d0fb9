"""What the rule saw beside its paper, from a literal result."""

from __future__ import annotations

from typing import Any

from vtrim.evaluation.diagnosis import diagnosis

RESULT: dict[str, Any] = {
    "agreement_by_head": [0.9, 0.8],
    "clean_probability_by_head": [0.5, 0.4],
    "head_histogram": {"1": 1, "2": 3},
    "head_probability": {"1": 0.25, "2": 0.75},
    "js_by_verdict": {
        "js": {"positions": 2, "draft": 0.1, "farthest_head": 0.3, "heads": 0.2},
        "rejected": {"positions": 1, "draft": 0.5, "farthest_head": 0.2, "heads": 0.1},
    },
    "criteria": {"full": 4},
    "shares": {"draft": 0.2, "verify": 0.6, "accept": 0.15, "other": 0.05},
    "verdicts": {"js": 3, "rejected": 1},
    "total_variation": 0.25,
}


def test_every_quantity_stands_beside_the_paper_s() -> None:
    lines = {(line.table, line.what): (line.here, line.paper) for line in diagnosis(RESULT)}
    assert lines["1", "heads at the clean arg-max (paper: Pass@1)"][0] == "0.900, 0.800"
    assert lines["2", "2 of the heads agree"] == (
        "75.00 %, mean p 0.750",
        "0.14 %, mean p 0.325",
    )
    assert lines["3", "mean JS [nats], js"] == (
        "draft 0.1000, heads 0.2000, farthest 0.3000",
        "draft 0.0254, heads 0.0313",
    )
    assert lines["3", "mean JS [nats], rejected"][1] == ""
    assert lines["4", "time of acceptance"] == ("15.00 % of a round", "1.64 % of a forward")
    assert lines["", "positions: js"] == ("75.00 %", "")
    assert lines["", "total variation from the target's law"][0] == "0.250"


def test_naive_acceptance_has_an_overhead_of_its_own_in_the_paper() -> None:
    found = [line.paper for line in diagnosis({**RESULT, "criteria": {"naive": 4}})]
    assert "0.17 % of a forward" in found


def test_more_heads_than_the_paper_s_5_have_nothing_to_stand_beside() -> None:
    votes = {"head_histogram": {"2": 1, "7": 1}, "head_probability": {}}
    lines = [line for line in diagnosis({**RESULT, **votes}) if line.table == "2"]
    assert [(line.here, line.paper) for line in lines] == [("50.00 %", ""), ("50.00 %", "")]


def test_where_nothing_was_judged_nothing_is_said_but_the_time() -> None:
    empty = dict.fromkeys(RESULT) | {name: {} for name in ("head_histogram", "head_probability")}
    empty |= {"js_by_verdict": {}, "criteria": {}, "verdicts": {}, "shares": RESULT["shares"]}
    assert [line.table for line in diagnosis(empty)] == ["4"]
