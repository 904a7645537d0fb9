from __future__ import annotations

from typing import Any

from vtrim.evaluation.sweep_page import drift_figure, render, score_figure
from vtrim.evaluation.sweep_rows import plain_score, rows


def point(speedup: float | None, drift: float, score: float | None, **knobs: Any) -> dict[str, Any]:
    return {
        "knobs": knobs,
        "tokens_per_second": 20.0,
        "speedup": speedup,
        "speedup_interval": [1.0, 1.5],
        "acceptance_length": 2.0,
        "off_argmax_share": drift,
        "drift": drift,
        "mean_log_prob": -0.5,
        "score": score,
        "plain_score": None if score is None else 0.5,
    }


def result(points: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    base = {
        "acceptor": "dropmatch",
        "drafter": "eagle",
        "prompts": 2,
        "max_new_tokens": 8,
        "temperature": 0.0,
        "drift_measure": "share",
        "baseline": "Beside plain.",
        "points": points,
        "front": [0, 1],
        "score_front": [1],
        "made_with": {"target": "small"},
    }
    return {**base, **more}


POINTS = [
    point(1.25, 0.0, 0.5, p_drop=0.01, num_draft_tokens=3),
    point(2.0, 0.25, 1.0, p_drop="auto", num_draft_tokens=5),
    point(None, 0.5, 0.0, p_drop=0.123456, num_draft_tokens=5),
]


def test_rows_go_from_fast_to_slow_with_the_fronts_marked() -> None:
    assert [list(row.values()) for row in rows(result(POINTS))] == [
        ["*+ auto, 5", "20.0", "2.00", "1.00-1.50", "2.00", "25.0 %", "-0.500", "100 %"],
        ["* 0.01, 3", "20.0", "1.25", "1.00-1.50", "2.00", "0.0 %", "-0.500", "50 %"],
        ["0.1235, 5", "20.0", "-", "1.00-1.50", "2.00", "50.0 %", "-0.500", "0 %"],
    ]
    assert next(iter(rows(result(POINTS))[0])) == "p_drop, L"
    assert plain_score(result(POINTS)) == 0.5


def test_without_answers_there_is_no_score_anywhere() -> None:
    points = [{**one, "score": None, "plain_score": None} for one in POINTS]
    without = result(points, score_front=[])
    assert "score" not in rows(without)[0]
    assert plain_score(without) is None
    assert "section-score" not in render(without)
    assert "section-score" in render(result(POINTS))


def test_figures_show_known_points_and_join_the_front() -> None:
    known, front = drift_figure(result(POINTS))["data"]
    assert (known["x"], known["y"]) == ([1.25, 2.0], [0.0, 0.25])
    assert (front["x"], front["y"]) == ([1.25, 2.0], [0.0, 0.25])
    assert known["text"][1] == "p_drop=auto num_draft_tokens=5"
    _, front, plain = score_figure(result(POINTS))["data"]
    assert (front["x"], front["y"]) == ([2.0], [1.0])
    assert (plain["x"], plain["y"]) == ([1.0], [0.5])


def test_text_of_the_run_cannot_become_markup() -> None:
    text = "</script><b>{{ 7 * 7 }}"
    page = render(result([{**POINTS[0], "knobs": {"criterion": text}}], front=[0], score_front=[]))
    table = page.split("<tbody>")[1].split("</tbody>")[0]
    assert "&lt;/script&gt;&lt;b&gt;{{ 7 * 7 }}" in table
    assert text not in page
