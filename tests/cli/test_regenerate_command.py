from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vtrim.cli.main import main
from vtrim.cli.regenerate_rows import parse_shard
from vtrim.errors import OptionError

REPLY = "red blue green gold"  # what target_chain says to every chat prompt


def run(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return int(stopped.value.code or 0)


def write_rows(path: Path, *prompts: str, **extras: Any) -> Path:
    rows = [{"messages": [{"role": "user", "content": text}], **extras} for text in prompts]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_row_gets_the_targets_reply_with_ids_and_mask(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.jsonl"
    prompts = inputs / "g20_chat_prompts.jsonl"
    code = run("regenerate", prompts, "-o", output, "--target", inputs / "target_chain", "--json")
    assert code == 0
    printed = capsys.readouterr().out
    result = json.loads(printed)
    rows = read_rows(output)
    assert result["rows"] == len(rows) == len(read_rows(prompts))
    assert (result["stopped_share"], result["rows_skipped"]) == (1.0, {})
    assert result["reply_tokens"] == 5 * len(rows)
    for row, prompt in zip(rows, read_rows(prompts), strict=True):
        assert row["messages"][:-1] == prompt["messages"]
        assert row["messages"][-1] == {"role": "assistant", "content": REPLY}
        assert row["loss_mask"][-6:] == [0, 1, 1, 1, 1, 1]
        assert row["input_ids"][-1] == 51
        assert row["finish_reason"] == "stop"


def test_a_prompt_that_is_empty_or_too_long_stops_only_its_row(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = write_rows(tmp_path / "p.jsonl", "red blue", "cat " * 160, " ", source="[/]")
    output = tmp_path / "out.jsonl"
    assert run("regenerate", prompts, "-o", output, "--target", inputs / "target_chain") == 0
    [row] = read_rows(output)
    assert (row["messages"][-1]["content"], row["source"]) == (REPLY, "[/]")
    notes = capsys.readouterr().err
    assert "skipped empty prompt: 1" in notes
    assert f"skipped prompt too long: 1 ({prompts}:2: " in notes


def test_a_row_of_rendered_text_is_named_as_such(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = write_rows(tmp_path / "p.jsonl", "red blue")
    with prompts.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"text": "<|user|> red <|assistant|> blue"}) + "\n")
    output = tmp_path / "out.jsonl"
    assert run("regenerate", prompts, "-o", output, "--target", inputs / "target_chain") == 0
    assert f"skipped already rendered text: 1 ({prompts}:2: " in capsys.readouterr().err


def test_nothing_usable_stops_the_run(
    inputs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = write_rows(tmp_path / "p.jsonl", "", " ")
    output = tmp_path / "out.jsonl"
    assert run("regenerate", prompts, "-o", output, "--target", inputs / "target_chain") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1].startswith("error: ")
    assert not output.exists()


def test_shards_together_hold_every_row_once(inputs: Path, tmp_path: Path) -> None:
    prompts = write_rows(tmp_path / "p.jsonl", "red", "one", "two", "the cat", "dog")
    texts = []
    for shard in ("1/2", "2/2"):
        output = tmp_path / f"{shard[0]}.jsonl"
        options = ("-o", output, "--target", inputs / "target_chain", "--shard", shard)
        assert run("regenerate", prompts, *options) == 0
        texts.append([row["messages"][0]["content"] for row in read_rows(output)])
    assert texts == [["red", "two", "dog"], ["one", "the cat"]]


def test_only_the_first_rows_are_answered_when_asked(inputs: Path, tmp_path: Path) -> None:
    prompts = write_rows(tmp_path / "p.jsonl", "red", "one", "two")
    output = tmp_path / "out.jsonl"
    options = ("-o", output, "--target", inputs / "target_chain", "--num-prompts", "2")
    assert run("regenerate", prompts, *options) == 0
    assert len(read_rows(output)) == 2


def test_the_last_reply_of_a_row_is_replaced(inputs: Path, tmp_path: Path) -> None:
    row = {
        "messages": [
            {"role": "user", "content": "the cat"},
            {"role": "assistant", "content": "owl"},
        ]
    }
    prompts = tmp_path / "p.json"
    prompts.write_text(json.dumps([row]), encoding="utf-8")
    output = tmp_path / "out.jsonl"
    assert run("regenerate", prompts, "-o", output, "--target", inputs / "target_chain") == 0
    contents = [message["content"] for message in read_rows(output)[0]["messages"]]
    assert contents == ["the cat", REPLY]


def test_an_output_that_exists_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text("mine", encoding="utf-8")
    assert run("regenerate", tmp_path / "p.jsonl", "-o", output) == 2
    assert "exists already" in capsys.readouterr().err
    assert output.read_text(encoding="utf-8") == "mine"


def test_a_template_of_ones_own_renders_the_prompt(inputs: Path, tmp_path: Path) -> None:
    template = tmp_path / "chat.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}", encoding="utf-8")
    prompts, output = write_rows(tmp_path / "p.jsonl", "the cat"), tmp_path / "out.jsonl"
    options = ("-o", output, "--target", inputs / "target_chain", "--template", template)
    assert run("regenerate", prompts, *options) == 0
    [row] = read_rows(output)
    assert row["messages"][-1]["content"] == "dog fox owl"


@pytest.mark.parametrize(
    "options",
    [
        ("--top-p", "0"),
        ("--top-p", "1.5"),
        ("--shard", "3/2"),
        ("--temperature", "-1"),
        ("--temperature", "nan"),
        ("--temperature", "inf"),
        ("--request-timeout", "nan"),
    ],
)
def test_options_out_of_range_are_one_line_and_exit_code_2(
    options: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("regenerate", tmp_path / "p.jsonl", "-o", tmp_path / "o.jsonl", *options) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "1", "0/2", "3/2", "a/b", "1/2/3"])
def test_a_shard_is_written_as_i_of_n(text: str) -> None:
    with pytest.raises(OptionError, match="--shard"):
        parse_shard(text)
    assert parse_shard("2/3") == (2, 3)
