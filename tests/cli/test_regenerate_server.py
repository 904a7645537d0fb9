"""``vtrim regenerate --server`` against a real HTTP server that fails in scripted ways."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.decoding import http_json

sys.path.insert(0, str(Path(__file__).parents[1]))
from fake_server import Answer, FakeServer, completion, echo, serving

NUMBER = 40
Vtrim = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def quick_and_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_json, "FIRST_WAIT", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Rows "say 0" .. "say 39", the odd ones with a source and an old reply."""
    rows = []
    for number in range(NUMBER):
        turns = [{"role": "user", "content": f"say {number}"}]
        if number % 2:
            turns.append({"role": "assistant", "content": "old"})
        rows.append({"messages": turns, **({"source": "odd"} if number % 2 else {})})
    path = tmp_path / "prompts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def said(rows: list[dict[str, Any]]) -> list[str]:
    return [row["messages"][-1]["content"] for row in rows]


ALL = [f"SAY {number}" for number in range(NUMBER)]


def number_of(body: dict[str, Any]) -> int:
    return int(body["messages"][-1]["content"].split()[1])


def with_ids(body: dict[str, Any], _count: int) -> Answer:
    """Tells ids, as vLLM does."""
    number = number_of(body)
    found = completion(f"SAY {number}", prompt_token_ids=[1, number])
    found["choices"][0]["token_ids"] = [number, 2]
    return Answer(body=found)


def test_rows_come_in_the_order_of_the_prompts_whatever_finishes_first(
    vtrim: Vtrim, prompts: Path, tmp_path: Path
) -> None:
    draw, output = random.Random(1), tmp_path / "out.jsonl"

    def shuffled(body: dict[str, Any], count: int) -> Answer:
        answer = echo(body, count)
        answer.wait = draw.random() / 20
        return answer

    with serving(shuffled) as server:
        code, out, err = vtrim(
            "regenerate", prompts, "-o", output, "--server", server.url, "--concurrency", 8,
            "--json",
        )  # fmt: skip
    assert code == 0, err
    rows = rows_of(output)
    assert said(rows) == ALL
    assert [row["messages"][:-1] for row in rows] == [
        [{"role": "user", "content": f"say {number}"}] for number in range(NUMBER)
    ]
    assert [row.get("source") for row in rows] == [None, "odd"] * (NUMBER // 2)
    assert {row["finish_reason"] for row in rows} == {"stop"}
    assert not any("input_ids" in row for row in rows)
    assert 2 <= server.most_at_once <= 8
    result = json.loads(out)
    assert (result["rows"], result["rows_resumed"], result["rows_skipped"]) == (NUMBER, 0, {})
    assert (result["reply_tokens"], result["stopped_share"]) == (2 * NUMBER, 1.0)
    assert (result["model"], result["rows_with_token_ids"]) == ("tiny", 0)
    assert result["artifact"] == str(output)
    assert f"0 rows with token ids as the server told them, {NUMBER} without" in err
    assert sorted(tmp_path.iterdir()) == [output, prompts]


def test_ids_and_mask_are_recorded_where_the_server_tells_them(
    vtrim: Vtrim, prompts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    with serving(with_ids) as server:
        code, out, err = vtrim(
            "regenerate", prompts, "-o", output, "--server", server.url, "--json"
        )
    assert code == 0, err
    for number, row in enumerate(rows_of(output)):
        assert row["input_ids"] == [1, number, number, 2]
        assert row["loss_mask"] == [0, 0, 1, 1]
    assert json.loads(out)["rows_with_token_ids"] == NUMBER


def spelling(tokenizer: Any) -> Any:
    """Answers with ids of that tokenizer, the second and all later rows with text."""

    def script(_body: dict[str, Any], count: int) -> Answer:
        text = "" if count == 1 else " the  cat"
        found = completion(text, prompt_token_ids=[1])
        found["choices"][0]["token_ids"] = [*tokenizer.encode("the cat"), tokenizer.eos_token_id]
        return Answer(body=found)

    return script


def test_ids_of_the_servers_model_are_held_against_the_target_that_is_named(
    vtrim: Vtrim, prompts: Path, tiny_target: Path, tmp_path: Path
) -> None:
    from vtrim.models.hub import load_tokenizer

    output = tmp_path / "out.jsonl"
    tokenizer = load_tokenizer(str(tiny_target))
    line = ["regenerate", prompts, "-o", output, "--target", tiny_target, "--concurrency", 1]
    with serving(spelling(tokenizer)) as server:
        code, _, err = vtrim(*line, "--server", server.url)
    assert code == 0, err
    assert len(rows_of(output)) == NUMBER
    output.unlink()
    for script in (with_ids, with_ids_of_a_larger_table):
        with serving(script) as server:
            code, out, err = vtrim(*line, "--server", server.url)
        assert (code, out) == (2, "")
        assert err.splitlines()[-1].startswith(
            "error: tiny: the server's token ids are not of the target's tokenizer: 'SAY 0' reads "
        )
        assert not output.exists()


def with_ids_of_a_larger_table(body: dict[str, Any], count: int) -> Answer:
    answer = with_ids(body, count)
    assert isinstance(answer.body, dict)
    answer.body["choices"][0]["token_ids"] = [100_000]
    return answer


def stop_at(count: int) -> Any:
    """Answers ``count`` rows with ids, then no more."""

    def script(body: dict[str, Any], so_far: int) -> Answer:
        if so_far > count:
            return Answer(401, {"error": {"message": "key expired"}})
        return with_ids(body, so_far)

    return script


def test_a_run_that_the_server_ended_goes_on_with_the_rows_that_are_missing(
    vtrim: Vtrim, prompts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"
    line = ["regenerate", prompts, "-o", output, "--concurrency", 4, "--json", "--server"]
    with serving(stop_at(11)) as server:
        code, out, err = vtrim(*line, server.url)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith(
        "answered 401: key expired Set OPENAI_API_KEY to a valid key."
    )
    assert not output.exists()
    with serving(with_ids) as again:  # at another address, as a new server would be
        code, out, err = vtrim(*line, again.url)
    assert code == 0, err
    result = json.loads(out)
    assert 8 <= result["rows_resumed"] <= 11
    assert len(again.asked) == NUMBER - result["rows_resumed"]
    assert (result["rows"], result["rows_with_token_ids"]) == (NUMBER, NUMBER)
    assert said(rows_of(output)) == ALL


@pytest.mark.slow
def test_a_killed_run_goes_on_without_a_lost_or_a_second_reply(
    prompts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"

    def slow(body: dict[str, Any], count: int) -> Answer:
        answer = with_ids(body, count)
        answer.wait = 0.05
        return answer

    with serving(slow) as server:
        command = [
            str(Path(sys.executable).with_name("vtrim")), "regenerate", str(prompts),
            "-o", str(output), "--server", server.url, "--concurrency", "3",
        ]  # fmt: skip
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _wait_for(server, 14)
        process.kill()
        assert process.wait(30) == -signal.SIGKILL
        assert not output.exists()
        finished = len((tmp_path / "out.jsonl.part").read_text().splitlines()) - 1
        assert 8 <= finished < NUMBER
        done = subprocess.run(command, env={**os.environ}, check=False, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert said(rows_of(output)) == ALL
    asked = Counter(number_of(body) for body in server.asked)
    assert sum(asked.values()) <= NUMBER + 3 + 1, "only what was in flight is asked again"


def _wait_for(server: FakeServer, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(server.asked) < count:
        assert time.monotonic() < deadline, "the server was not asked"
        time.sleep(0.005)


@pytest.mark.slow
def test_an_interrupt_ends_at_once_though_replies_are_in_flight(
    prompts: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.jsonl"

    def stuck(body: dict[str, Any], count: int) -> Answer:
        answer = echo(body, count)
        answer.wait = 0 if count <= 5 else 60
        return answer

    with serving(stuck) as server:
        process = subprocess.Popen(
            [
                str(Path(sys.executable).with_name("vtrim")), "regenerate", str(prompts),
                "-o", str(output), "--server", server.url, "--concurrency", "4",
            ],
            stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
        _wait_for(server, 9)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "error: interrupted; finished work is kept."
    assert len((tmp_path / "out.jsonl.part").read_text().splitlines()) == 1 + 5


def test_replies_of_other_settings_or_another_model_are_not_mixed_in(
    vtrim: Vtrim, prompts: Path, tmp_path: Path
) -> None:
    line = ["regenerate", prompts, "-o", tmp_path / "out.jsonl"]
    with serving(stop_at(5)) as server:
        assert vtrim(*line, "--server", server.url)[0] == 2
    with serving(echo, "tiny", "other") as server:
        served = [*line, "--server", server.url, "--model"]
        for options, words in (
            (["tiny", "--temperature", "0.7"], "temperature differs: 0.7 here, 0.0 in"),
            (["other"], "target differs: other here, tiny in"),
        ):
            code, out, err = vtrim(*served, *options)
            assert (code, out) == (2, "")
            assert words in err.splitlines()[-1]


def test_a_server_that_is_busy_for_a_while_costs_retries_and_no_row(
    vtrim: Vtrim, prompts: Path, tmp_path: Path
) -> None:
    def busy(body: dict[str, Any], count: int) -> Answer:
        if count % 3 == 0:
            return Answer(503, {"message": "warming up"}, headers={"Retry-After": "0"})
        return echo(body, count)

    output = tmp_path / "out.jsonl"
    with serving(busy) as server:
        code, out, err = vtrim(
            "regenerate", prompts, "-o", output, "--server", server.url, "--json"
        )
    assert code == 0, err
    assert said(rows_of(output)) == ALL
    assert json.loads(out)["retries"] == len(server.asked) - NUMBER > 0
    assert err.count("answered 503: warming up; trying again") == 1


def test_a_row_that_the_server_refuses_is_skipped_with_its_place_and_reason(
    vtrim: Vtrim, prompts: Path, tmp_path: Path
) -> None:
    def picky(body: dict[str, Any], count: int) -> Answer:
        if number_of(body) == 7:
            return Answer(400, {"error": {"message": "maximum context length is 8 tokens"}})
        return echo(body, count)

    output = tmp_path / "out.jsonl"
    with serving(picky) as server:
        code, out, err = vtrim(
            "regenerate", prompts, "-o", output, "--server", server.url, "--json"
        )
    assert code == 0, err
    assert said(rows_of(output)) == ALL[:7] + ALL[8:]
    assert json.loads(out)["rows_skipped"] == {"refused by the server": 1}
    assert f"({prompts}:8: maximum context length is 8 tokens)" in err


@pytest.mark.parametrize("number", [3, NUMBER])
def test_a_server_that_refuses_everything_stops_the_run_with_its_own_words(
    vtrim: Vtrim, prompts: Path, tmp_path: Path, number: int
) -> None:
    refusal = Answer(400, {"error": {"message": "temperature must be 1"}})
    with serving(lambda *_: refusal) as server:
        code, out, err = vtrim(
            "regenerate", prompts, "-o", tmp_path / "out.jsonl", "--server", server.url,
            "--num-prompts", number, "--concurrency", 2,
        )  # fmt: skip
    assert (code, out) == (2, "")
    assert "temperature must be 1" in err.splitlines()[-1]
    assert len(server.asked) <= 22


def test_cut_replies_are_told_by_their_finish_reason_and_counted(
    vtrim: Vtrim, prompts: Path, tmp_path: Path
) -> None:
    def cut(body: dict[str, Any], _count: int) -> Answer:
        return Answer(body=completion("x", "length" if number_of(body) < 10 else "stop"))

    output = tmp_path / "out.jsonl"
    with serving(cut) as server:
        code, out, err = vtrim(
            "regenerate", prompts, "-o", output, "--server", server.url, "--json"
        )
    assert code == 0
    assert [row["finish_reason"] for row in rows_of(output)] == ["length"] * 10 + ["stop"] * 30
    assert json.loads(out)["stopped_share"] == 0.75
    assert "--max-new-tokens" in err


def test_a_model_that_is_not_served_is_refused_with_those_that_are(
    vtrim: Vtrim, prompts: Path, tmp_path: Path
) -> None:
    line = ["regenerate", prompts, "-o", tmp_path / "out.jsonl", "--model", "big", "--server"]
    with serving(echo, "small", "large") as server:
        code, out, err = vtrim(*line, server.url)
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith("It serves: small, large.")
    assert list(tmp_path.iterdir()) == [prompts]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--server", "here:8000"], "--server here:8000: write it as http://HOST:PORT"),
        (["--server", "http://h", "--revision", "x"], "--revision: has no effect here"),
        (["--server", "http://h", "--batch-size", "8"], "--batch-size: has no effect here"),
        (["--server", "http://h", "--concurrency", "0"], "--concurrency"),
        (["--server", "http://h", "--request-timeout", "0"], "--request-timeout"),
        (["--model", "m"], "--model: has no effect here (it needs --server URL)"),
        (["--concurrency", "8"], "--concurrency: has no effect here"),
    ],
)
def test_options_that_do_not_fit_are_one_line(
    vtrim: Vtrim, prompts: Path, tmp_path: Path, options: list[str], words: str
) -> None:
    code, out, err = vtrim("regenerate", prompts, "-o", tmp_path / "out.jsonl", *options)
    assert (code, out) == (2, "")
    assert words in err.splitlines()[-1]
    assert err.splitlines()[-1].startswith("error: ")


def test_the_key_of_the_environment_is_sent_and_shown_nowhere(
    vtrim: Vtrim, prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    output = tmp_path / "out.jsonl"

    def nosy(body: dict[str, Any], count: int) -> Answer:
        if count == 30:
            return Answer(500, {"message": "who is sk-very-secret?"})
        return echo(body, count)

    with serving(nosy) as server:
        code, out, err = vtrim("regenerate", prompts, "-o", output, "--server", server.url)
    assert code == 0
    assert {one["Authorization"] for one in server.headers} == {"Bearer sk-very-secret"}
    assert "who is ***?" in err
    assert "sk-very" not in out + err + output.read_text()
