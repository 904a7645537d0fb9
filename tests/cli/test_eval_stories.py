"""``vtrim eval`` on a real, tiny chat of stories: every drafter, alone and in batches, in fp32."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.cli.main import main

STARTS = ("Once upon a time", "The dog", "One day, Lily", "Tom had a big red ball and")


@pytest.fixture(scope="module")
def setup(data: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options of all calls: the target, and four prompts of different lengths."""
    folder = tmp_path_factory.mktemp("stories")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in STARTS))
    target = data / "model" / "stories260k"
    return [
        "eval", "--run", str(folder / "run"), "--target", str(target), "--prompts", str(prompts),
        "--max-new-tokens", "24", "--dtype", "fp32", "--json",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def draft(data: Path, random_draft: Callable[..., Path]) -> Path:
    return random_draft(data / "model" / "stories260k", ids=range(0, 512, 2))


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("drafter", ["eagle", "tree", "model", "ngram"])
def test_every_drafter_keeps_the_greedy_story(
    drafter: str, size: int, setup: list[str], draft: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "eagle": ["--draft", str(draft)],
        "tree": ["--draft", str(draft), "--tree", "9,2,3"],
        "model": ["--skip-layers", "2"],
        "ngram": ["--drafter", "ngram"],
    }[drafter]
    with pytest.raises(SystemExit) as ended:
        main([*setup, *options, "--batch-size", str(size)])
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err
    result: dict[str, Any] = json.loads(printed.out)
    assert result["drafter"] == drafter
    assert result["identical_to_plain"] == result["plain_prefix_share"] == 1.0
    assert result["log_prob_change"] == pytest.approx(0.0, abs=1e-5)
    assert result["plain_prefix_tokens"] == result["tokens"] / result["prompts"]
    assert result["provenance"]["forward"] == "lean"
