"""The page of the domain experiment: every number comes from the runs."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from vtrim.artifacts import write_json
from vtrim.trimming.coverage import Coverage
from vtrim.vocab import DraftVocab

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
PAGE = BENCHMARKS / "domains" / "page.py"
PROMPTS, ROWS = 6, 100
KEPT = {"general": [1, 2, 3, 9], "tools": [1, 2, 3, 4, 5], "full": list(range(ROWS))}


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The scripts of benchmarks/domains."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "results"))
    monkeypatch.syspath_prepend(str(BENCHMARKS / "domains"))
    import domain_measured  # type: ignore[import-not-found]
    import domain_record  # type: ignore[import-not-found]

    spec = importlib.util.spec_from_file_location("domains_page", PAGE)
    assert spec is not None
    assert spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    return {"page": page, "record": domain_record, "measured": domain_measured}


def result(seconds: list[float], rounds: int = 10) -> dict[str, Any]:
    """What ``vtrim eval`` writes, as far as it is read: 20 tokens a prompt, plain in 4 s."""
    prompt = {"prompt_tokens": 7, "tokens": 21, "rounds": rounds, "plain_tokens": 21}
    return {
        "per_prompt": [{**prompt, "seconds": s, "plain_seconds": 4.0} for s in seconds],
        "acceptance_by_position": [0.5, 0.25, 0.125],
        "shares": {"draft": 0.25, "verify": 0.7, "accept": 0.04, "other": 0.01},
        "identical_to_plain": 1.0,
        "temperature": 0.0,
        "dtype": "bfloat16",
        "device": "cpu",
        "num_draft_tokens": 3,
        "batch_size": 1,
        "clock": "cpu",
        "settings": {"acceptor": {"name": "greedy"}, "max_new_tokens": 96, "threads": 1},
        "provenance": {
            "vtrim": "1",
            "target": "smollm2",
            "target_config_fingerprint": "sha256:1",
            "prompts_fingerprint": "sha256:2",
            "forward": "lean",
            "torch": "2",
            "machine": "x86_64",
        },
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Runs of run.py: the whole vocabulary takes 2 s a prompt, the own one 1 s, in three repeats.

    The third repeat of each was on a machine that something else slowed down.
    """
    for domain, vocab in (("general", "general"), ("general", "full"), ("tools", "tools"),
                          ("tools", "full"), ("tools", "general")):  # fmt: skip
        save_run(tmp_path / "runs" / f"{domain}-{vocab}", domain, KEPT[vocab])
        for repeat in range(3):
            slow = 5.0 if repeat == 2 else 1.0
            seconds = slow * (2.0 if vocab == "full" else 1.0)
            name = f"{domain}-{vocab}--{domain}--{repeat}.json"
            one = result([seconds] * PROMPTS, 10 if vocab == "full" else 16)
            write_json(tmp_path / "results" / name, one)
    return tmp_path


def save_run(run: Path, domain: str, kept: list[int]) -> None:
    """A run folder, as far as it is read: 90 tokens that k* covers and 10 that it does not."""
    counts = np.zeros(ROWS, dtype=np.int64)
    counts[[1, 2, 3]], counts[7] = 30, 10
    vocab, chosen = DraftVocab.of(kept, ROWS), DraftVocab.of(KEPT[domain], ROWS)
    (run / "draft").mkdir(parents=True)
    Coverage(
        counts=counts, heldout_counts=counts // 10, target_vocab_size=ROWS, tokenizer_length=ROWS,
        tokenizer_fingerprint="", data_fingerprint="", stop_ids=(), rows_used=20, rows_heldout=1,
    ).save(run / "coverage.npz")  # fmt: skip
    tensors = {} if vocab.is_full else {"d2t": vocab.d2t}
    save_file({"head": np.zeros(1), **tensors}, run / "draft" / "model.safetensors")
    write_json(run / "draft" / "config.json", {"vocab_size": ROWS})
    search = {
        "alpha": 0.6, "cmin": 0.95, "flops_full": 1000, "flops_per_row": 8,
        "heldout_coverage": 0.8, "vocab_fingerprint": chosen.fingerprint,
    }  # fmt: skip
    trained = {
        "steps": 9, "tokens": 900, "seconds": 60.0, "heldout_joint_prefix": 1.5, "oov_share": 0.1,
        "draft_fingerprint": "", "settings": {},
    }  # fmt: skip
    write_json(run / "run.json", {"steps": {"search": search, "train-draft": trained}})


def test_a_draft_is_compared_by_the_medians_of_its_repeats(
    modules: dict[str, Any], folder: Path
) -> None:
    module = modules["measured"]
    found = module.Measured(modules["record"].fold(folder))
    cell = found.cell("tools", "own")
    assert len(cell.repeats) == 3
    assert cell.value(module.LENGTH) == 20 / 16
    assert cell.value(module.LATENCY) == 50.0
    assert cell.value(module.SPEEDUP) == 4.0
    compared = found.compared("tools", "own")
    assert compared.change(module.LATENCY) == -0.5
    assert compared.change(module.THROUGHPUT) == 1.0
    assert compared.change(module.LENGTH) == pytest.approx(-0.375)
    assert compared.bounds(module.LATENCY) == (-0.5, -0.5)
    assert compared.p_value(module.LATENCY) == 2 / 2**PROMPTS


def test_the_page_shows_the_domains_beside_the_paper_s_numbers(
    modules: dict[str, Any], folder: Path
) -> None:
    page = modules["page"].page(modules["record"].fold(folder))
    assert "| function calling | paper | 4,380 of 128,256 | -9.1 % | +10.0 % |" in page
    assert (
        "| function calling | here | 5 of 100 | -50.0 % (-50.0 to -50.0 %) "
        "| +100.0 % (+100.0 to +100.0 %) |" in page
    )
    assert "| general chat | its own k\\* | 4 | 1.250 | 1.25 to 1.25 | 0.50, 0.25, 0.12 |" in page
    assert "| general chat | general chat's k\\* |" not in page
    assert "| function calling | whole | 4 against 100 | 90.00 % against 100.00 % |" in page
    assert "| function calling | its own k\\* | 5 | 76.0 % | 68.8 % | 80.0 % | -37.5 % |" in page
    foretold = 1 / (1 - 0.25 * 0.76)  # a quarter of the round is drafting
    assert f"| {100 * foretold - 100:+.1f} % | {62.5 * foretold - 100:+.1f} % | +100.0 % |" in page
    assert "| NER" not in page


def test_held_out_coverage_of_a_vocabulary_chosen_there_is_the_search_s_own(
    modules: dict[str, Any], folder: Path
) -> None:
    drafts = modules["record"].fold(folder)["drafts"]
    assert drafts["tools-tools"]["heldout_coverage"] == 0.8  # chosen without the held-out rows
    assert drafts["tools-general"]["heldout_coverage"] == 0.9
    assert drafts["tools-full"]["heldout_coverage"] == 1.0
    assert drafts["tools-tools"]["coverage"] == 0.9


def test_the_record_keeps_all_that_the_page_needs(modules: dict[str, Any], folder: Path) -> None:
    record = modules["record"].fold(folder)
    page = modules["page"]
    again = json.loads(page.dump(record))
    assert page.page(again) == page.page(record)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda one: one["provenance"].update(prompts_fingerprint="sha256:3"), "prompts"),
        (lambda one: one["provenance"].update(target_config_fingerprint="sha256:3"), "target"),
        (lambda one: one["settings"].update(max_new_tokens=64), "max_new_tokens"),
        (lambda one: one.update(dtype="float32"), "dtype"),
        (lambda one: one.update(clock="wall"), "clock"),
        (lambda one: one["per_prompt"].pop(), "prompt lengths"),
    ],
)
def test_results_that_do_not_belong_together_are_refused(
    change: Callable[[dict[str, Any]], Any], what: str, modules: dict[str, Any], folder: Path
) -> None:
    path = folder / "results" / "tools-tools--tools--1.json"
    one = json.loads(path.read_text())
    change(one)
    write_json(path, one)
    with pytest.raises(SystemExit, match=f"tools-tools--tools--1: {what} differ from those of"):
        modules["record"].fold(folder)


def test_a_folder_without_results_is_refused(modules: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no DRAFT--DOMAIN--REPEAT.json. Run run.py eval."):
        modules["record"].fold(tmp_path)
