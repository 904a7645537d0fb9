"""``vtrim eval --engine`` from its command line to its files, with servers that count like vLLM."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.artifacts import Run

sys.path.insert(0, str(Path(__file__).parents[1]))
from fake_server import Answer, serving
from fake_vllm import counted_on, vllm_server

Vtrim = Callable[..., tuple[int, str, str]]
CONTRACT = {
    "acceptor", "lossless", "prompts", "prompts_skipped", "tokens", "acceptance_length",
    "acceptance_by_position", "tokens_per_second", "plain_tokens_per_second", "speedup", "shares",
    "identical_to_plain", "off_argmax_share", "accept_reasons", "artifact", "engine", "settings",
    "provenance", "per_prompt", "drafter", "num_draft_tokens", "temperature", "dtype", "device",
}  # fmt: skip


@pytest.fixture
def target(inputs: Path) -> Path:
    return inputs / "target_chain"


@pytest.fixture
def on_words(tmp_path: Path, target: Path) -> list[object]:
    """The options of one measurement of five prompts, up to 9 tokens each."""
    prompts = target.parent / "g20_prompts.jsonl"
    where = ["--run", tmp_path / "run", "--target", target, "--prompts", prompts]
    return ["eval", *where, "--max-new-tokens", 9]


def test_a_server_with_a_draft_and_one_without_give_the_contract_s_fields(
    vtrim: Vtrim, on_words: list[object], tmp_path: Path
) -> None:
    with vllm_server(kept=3) as drafting, vllm_server(drafts=False) as plain:
        servers = ["--server", drafting.url, "--plain-server", plain.url]
        code, out, err = vtrim(*on_words, "--engine", "vllm", *servers, "--json")
        assert (code, err.count("error")) == (0, 0), err
        assert [body["prompt"] for body in plain.asked] == [
            body["prompt"] for body in drafting.asked
        ]
    result: dict[str, Any] = json.loads(out)
    assert set(result) >= CONTRACT
    assert (result["acceptor"], result["drafter"]) == ("greedy", "the server's")
    assert result["prompts"] == 5
    assert result["acceptance_length"] == 4.0  # 8 tokens in 2 rounds
    assert result["acceptance_by_position"] == [1.0, 1.0, 1.0]
    assert result["num_draft_tokens"] == 3
    assert result["identical_to_plain"] == 1.0
    assert result["engine"]["name"] == "vllm"
    assert result["engine"]["version"] == "0.32.0"
    assert result["engine"]["acceptance_length"] == 4.0
    assert result["engine"]["other_tokens"] == 0
    artifact = tmp_path / "run" / "eval" / "greedy-vllm.json"
    assert json.loads(artifact.read_text()) == result
    assert Run(tmp_path / "run").step("eval")["results"]["greedy-vllm"]["acceptance_length"] == 4.0
    assert [file.name for file in artifact.parent.iterdir()] == ["greedy-vllm.json"]


def test_tasks_are_scored_through_an_engine_too(vtrim: Vtrim, target: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "one", "answer": "two"}\n{"question": "cat", "answer": "x"}\n')
    where = ["eval", "--run", tmp_path / "run", "--target", target, "--max-new-tokens", 5]
    task = [*where, "--task", "jsonl", "--task-data", rows, "--engine", "vllm"]
    with vllm_server() as drafting, vllm_server(drafts=False) as plain:
        alone = vtrim(*task, "--server", drafting.url, "--json")
        page = vtrim("report", "--run", tmp_path / "run")
        servers = ["--server", drafting.url, "--plain-server", plain.url]
        code, out, err = vtrim(*task, *servers, "--json")
        assert code == 0, err
        found = json.loads(out)["tasks"]["jsonl"]
        code, out, _ = vtrim(*task, *servers)
    assert (found["questions"], found["acceptance_length"]) == (2, 2.0)
    assert set(found["scores"]) >= {"plain", "chosen", "change"}
    assert (alone[0], page[0]) == (0, 0), (alone[2], page[2])
    scores = json.loads(alone[1])["tasks"]["jsonl"]["scores"]
    assert (scores["chosen"], scores["change"]) == (found["scores"]["chosen"], None)
    assert "Tasks, decoded by greedy" in out


def test_the_table_says_whose_count_is_whose(vtrim: Vtrim, on_words: list[object]) -> None:
    with vllm_server() as server:
        code, out, err = vtrim(*on_words, "--engine", "openai", "--server", server.url)
    assert code == 0, err
    assert "vllm 0.32.0" in out
    assert "with the draft" in out
    assert "without a draft" not in out
    assert "1 + accepted draft tokens / verifications of a draft" in out
    assert "no --plain-server given: no speed-up" in err


def test_a_server_that_dies_half_way_costs_only_what_it_has_not_answered(
    vtrim: Vtrim, on_words: list[object], tmp_path: Path
) -> None:
    with vllm_server() as server:
        answer = server.script
        server.script = lambda body, count: (
            answer(body, count) if count <= 4 else Answer(503, {"error": "out of memory"})
        )
        call = [*on_words, "--engine", "vllm", "--server", server.url]
        code, out, err = vtrim(*call)
        assert (code, out) == (2, "")
        line = err.splitlines()[-1]
        assert line.startswith("error: ")
        assert "g20_prompts.jsonl:4" in line
        assert "answered 503: out of memory" in line
        server.script = answer
        code, out, err = vtrim(*call, "--json")
        assert code == 0, err
        assert "3 of the prompts were finished earlier" in err
        assert len(server.asked) == 5 + 3  # of the first try; a warm-up and the two that were left
    assert json.loads(out)["prompts"] == 5
    assert len(list((tmp_path / "run" / "eval").iterdir())) == 1


def test_other_requests_on_the_server_are_told(vtrim: Vtrim, on_words: list[object]) -> None:
    with vllm_server() as server:
        page = server.pages["/metrics"]

        def busy() -> Answer:
            server.counters.foreign += 2
            return page()

        server.pages["/metrics"] = busy
        code, out, err = vtrim(*on_words, "--engine", "vllm", "--server", server.url, "--json")
    assert code == 0
    assert json.loads(out)["engine"]["other_tokens"] > 0
    assert "for others meanwhile" in err


def test_a_server_that_is_no_vllm_cannot_be_measured_as_one(
    vtrim: Vtrim, on_words: list[object]
) -> None:
    with serving(lambda _body, _count: Answer(), owned_by="someone") as server:
        code, out, err = vtrim(*on_words, "--engine", "vllm", "--server", server.url)
    assert (code, out) == (2, "")
    assert "no counters of vLLM there" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--engine", "vlm"], "--engine vlm: unknown. Known: local, vllm, openai. Did you mean"),
        (["--server", "http://x:1"], "--server: only with --engine vllm or openai"),
        (["--engine", "openai"], "--engine openai: give the server's address with --server"),
        (
            ["--engine", "vllm", "--plain-server", "http://x:1"],
            "--plain-server: only with --server",
        ),
        (
            ["--engine", "vllm", "--acceptor", "mars"],
            "mars: only with --engine local; vllm accepts",
        ),
        (["--engine", "vllm", "--acceptor", "rejection"], "uses it above temperature 0 only"),
        (["--engine", "vllm", "--tree", "8,2,2"], "--tree: only with --engine local"),
        (["--engine", "vllm", "--drafter", "ngram"], "--drafter ngram: only with --engine local"),
        (["--engine", "vllm", "--device", "cpu"], "--device: only with --engine local"),
        (["--engine", "vllm", "--num-draft-tokens", "auto"], "auto: only with --engine local"),
        (["--engine", "vllm", "--request-timeout", "0"], "--request-timeout 0: give seconds"),
        (
            ["--engine", "vllm", "--server", "http://x:1", "--num-draft-tokens", "2"],
            "--num-draft-tokens: not with --server, which has its own",
        ),
        (
            ["--engine", "vllm", "--server", "http://x:1", "--dtype", "fp32"],
            "--dtype fp32: not with --server",
        ),
        (["--engine", "vllm", "--server", "x"], "--server x: write it as http://HOST:PORT"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_in_one_line(
    options: list[str], said: str, vtrim: Vtrim, on_words: list[object]
) -> None:
    code, out, err = vtrim(*on_words, *options)
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]


@pytest.mark.slow
def test_the_library_decodes_with_the_run_s_draft_and_without(
    vtrim: Vtrim,
    on_words: list[object],
    target: Path,
    random_draft: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "fake_library"))
    draft = random_draft(target, ids=range(0, 54, 2))
    code, out, err = vtrim(*on_words, "--engine", "vllm", "--draft", draft, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert (result["drafter"], result["dtype"], result["device"]) == ("eagle", "auto", "cpu")
    assert result["acceptance_length"] == 2.0  # 8 tokens in 4 rounds
    assert result["identical_to_plain"] == 1.0
    assert result["engine"]["settings"]["speculative"]["model"] == str(draft)
    assert result["engine"]["acceptance_length"] == 2.0
    assert counted_on([3], 2) == [4, 5]
    assert result["generated_coverage"] == pytest.approx(0.5, abs=0.2)  # every second id
