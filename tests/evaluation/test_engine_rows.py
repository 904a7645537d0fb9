"""Prompts through engines in turn: order, what is kept of an unfinished measurement, numbers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from vtrim.chat.conversation import Origin
from vtrim.decoding.generation import GenerationSettings
from vtrim.errors import InputError, MismatchError
from vtrim.evaluation.engines.part import PartFile
from vtrim.evaluation.engines.reply import Batch, EngineCounts, EngineInfo, EngineReply
from vtrim.evaluation.engines.result import EngineMeasurement
from vtrim.evaluation.engines.rows import Said, Schedule, ask, write_greedily
from vtrim.evaluation.prompts import Prompt

SETTINGS = GenerationSettings(
    max_new_tokens=7, stop_ids=frozenset(), temperature=0.5, num_draft_tokens=3, seed=0
)
PROMPTS = [Prompt((i, i + 1), Origin("p.jsonl", i + 1)) for i in range(6)]


@dataclass
class Fake:
    """Says n tokens in (n - 1) / each rounds of 0.1 s; log: shared, who was asked what."""

    name: str
    log: list[Any]
    each: int = 1
    fails_at: int = -1
    text: str | None = None
    counted: bool = True
    asked: list[GenerationSettings] = field(default_factory=list)

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(name="fake", version="1", settings={"a": 1}, own_length="its own")

    def decode(
        self, prompts: Sequence[Sequence[int]], settings: GenerationSettings, first: int
    ) -> Batch:
        assert 0 <= first < len(PROMPTS)
        if len(self.asked) == self.fails_at:
            raise InputError("the server is down.")
        self.asked.append(settings)
        self.log.append((self.name, [ids[0] for ids in prompts]))
        count = settings.max_new_tokens
        rounds = (count - 1) // self.each
        reply = EngineReply(
            tokens=tuple(range(count)),
            text=self.text,
            num_tokens=count,
            with_first=1,
            rounds=None if self.counted and self.each > 1 else count - 1,
            prefill_seconds=1.0,
            seconds=0.1 * rounds,
            finish_reason="length",
        )
        all_rounds = rounds * len(prompts)
        counts = EngineCounts(
            rounds=all_rounds,
            drafted=3 * all_rounds,
            accepted=2 * all_rounds,
            by_position=(all_rounds, all_rounds, 0),
        )
        return Batch((reply,) * len(prompts), counts if self.counted and self.each > 1 else None)


def pair(log: list[Any], **chosen: Any) -> dict[str, Fake]:
    return {"plain": Fake("plain", log), "chosen": Fake("chosen", log, each=3, **chosen)}


def schedule(**more: Any) -> Schedule:
    return Schedule(**{"batch_size": 1, "repeats": 1, **more})


def said_by(engines: dict[str, Fake], part: PartFile, how: Schedule | None = None) -> Said:
    return ask(engines, PROMPTS, SETTINGS, how or schedule(), part, lambda _: None)


def measured(said: Said, engines: dict[str, Fake], **more: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"temperature": 0.0, "batch_size": 1, "vocab": None, **more}
    infos = {name: engine.info for name, engine in engines.items()}
    return EngineMeasurement(prompts=PROMPTS, said=said, infos=infos, **options).result()


def test_engines_take_turns_and_warm_up_first(tmp_path: Path) -> None:
    log: list[Any] = []
    engines = pair(log)
    said_by(engines, PartFile(tmp_path / "part", {}))
    assert log[:2] == [("plain", [0]), ("chosen", [0])]  # for nothing
    order = ["plain", "chosen", "chosen", "plain", "plain", "chosen"]
    assert [name for name, _ in log[2:8]] == order
    assert engines["plain"].asked[0].max_new_tokens == 7
    log.clear()
    said_by(pair(log), PartFile(tmp_path / "twice", {}), schedule(repeats=2, batch_size=3))
    assert log[2:] == [
        ("plain", [0, 1, 2]), ("chosen", [0, 1, 2]), ("chosen", [3, 4, 5]), ("plain", [3, 4, 5]),
        ("chosen", [0, 1, 2]), ("plain", [0, 1, 2]), ("plain", [3, 4, 5]), ("chosen", [3, 4, 5]),
    ]  # fmt: skip


def test_finished_prompts_outlast_a_server_that_goes_down(tmp_path: Path) -> None:
    log: list[Any] = []
    path, key = tmp_path / "eval" / "part", {"draft": 1}
    broken = pair(log, fails_at=4)
    with pytest.raises(InputError, match=r"p\.jsonl:4, chosen decoding: the server is down"):
        said_by(broken, PartFile(path, key))
    log.clear()
    part = PartFile(path, key)
    assert part.found == 3
    again = said_by(pair(log), part)
    assert [ids for _, ids in log] == [[3], [3], [3], [3], [4], [4], [5], [5]]
    log.clear()
    whole = said_by(pair(log), PartFile(tmp_path / "whole", key))
    assert again.pairs == whole.pairs


def test_a_cut_line_is_asked_again_and_another_measurement_s_file_is_written_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "part"
    said_by(pair([]), PartFile(path, {"draft": 1}))
    assert len(path.read_text().splitlines()) == 7
    whole = path.read_text()
    path.write_text(whole[:-20])
    again = PartFile(path, {"draft": 1})
    assert again.found == 5
    said_by(pair([]), again)
    assert path.read_text().splitlines()[:6] == whole.splitlines()[:6]
    assert PartFile(path, {"draft": 1}).found == 6  # not glued to what was cut
    other = PartFile(path, {"draft": 2})
    assert other.found == 0
    said_by(pair([]), other)
    assert PartFile(path, {"draft": 2}).found == 6


def test_the_numbers_are_those_of_local_decoding(tmp_path: Path) -> None:
    engines = pair([])
    result = measured(said_by(engines, PartFile(tmp_path / "part", {})), engines)
    # 6 prompts, 7 tokens each: 6 of them in 2 rounds of 3, 0.2 s; plain in 0.6 s
    assert (result["tokens"], result["rounds"]) == (42, 12)
    assert result["acceptance_length"] == 3.0
    assert result["acceptance_length_interval"] == (3.0, 3.0)
    assert result["tokens_per_second"] == pytest.approx(30)
    assert result["speedup"] == pytest.approx(3)
    assert result["speedup_interval"] == pytest.approx((3, 3))
    assert result["acceptance_by_position"] == [1.0, 1.0, 0.0]
    assert (result["drafted"], result["accepted"]) == (36, 24)
    assert result["identical_to_plain"] == 1.0
    assert result["engine"]["acceptance_length"] == 3.0  # 1 + 24 / 12
    assert result["engine"]["acceptance_length_is"] == "its own"
    row = result["per_prompt"][0]
    assert (row["origin"], row["rounds"], row["seconds"]) == ("p.jsonl:1", 2, pytest.approx(0.2))
    assert (row["plain_seconds"], row["log_prob"]) == (pytest.approx(0.6), None)
    json.dumps(result, allow_nan=False)


def test_without_a_plain_engine_there_is_no_speed_up(tmp_path: Path) -> None:
    engines = {"chosen": Fake("chosen", [], each=3)}
    result = measured(said_by(engines, PartFile(tmp_path / "part", {})), engines)
    assert result["acceptance_length"] == 3.0
    unknown = ("speedup", "speedup_interval", "plain_tokens_per_second", "identical_to_plain")
    assert [result[name] for name in (*unknown, "plain")] == [None] * 5
    assert result["per_prompt"][0]["plain_seconds"] is None


def test_an_engine_that_counts_nothing_has_no_acceptance_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = pair([], counted=False)
    del engines["chosen"]
    engines["chosen"] = silent = Fake("chosen", [])
    decode = silent.decode

    def without_rounds(*asked: Any) -> Batch:
        batch = decode(*asked)
        plain = [{**vars(reply), "rounds": None} for reply in batch.replies]
        return Batch(tuple(EngineReply(**one) for one in plain))

    monkeypatch.setattr(silent, "decode", without_rounds)
    result = measured(said_by(engines, PartFile(tmp_path / "part", {})), engines)
    names = ("acceptance_length", "acceptance_length_interval", "rounds")
    assert [result[name] for name in names] == [None] * 3
    assert result["acceptance_by_position"] == []
    assert result["engine"]["acceptance_length"] is None
    assert result["speedup"] == pytest.approx(1)
    json.dumps(result, allow_nan=False)


def test_of_prompts_sent_at_once_the_rounds_are_known_together_only(tmp_path: Path) -> None:
    engines = pair([])
    how = schedule(batch_size=2, repeats=3)
    said = said_by(engines, PartFile(tmp_path / "part", {}), how)
    result = measured(said, engines, batch_size=2)
    assert result["acceptance_length"] == 3.0
    assert result["per_prompt"][0]["rounds"] is None
    assert (result["repeats"], len(result["by_repeat"])) == (3, 3)
    assert result["noise"]["plain_spread"] == pytest.approx(0)
    assert result["tokens_per_second"] == pytest.approx(60)  # two at a time


def test_ids_that_do_not_spell_the_text_are_another_model_s(tmp_path: Path) -> None:
    engines = pair([], text="green gold")
    part = PartFile(tmp_path / "part", {})
    good = schedule(decode=lambda _: "<s> Green Gold".lower())
    said_by(engines, part, good)
    bad = schedule(decode=lambda _: "owl")
    with pytest.raises(MismatchError, match="'greengold' reads 'owl' there"):
        said_by(engines, PartFile(tmp_path / "other", {}), bad)


def test_a_reply_before_a_later_turn_is_greedy() -> None:
    engine = Fake("plain", [], text="yes")
    prompt = Prompt((1,), Origin("p", 1), max_new_tokens=3, stop=("\n",))
    assert write_greedily(engine, prompt, SETTINGS) == ((0, 1, 2), "yes")
    (settings,) = engine.asked
    assert (settings.temperature, settings.max_new_tokens) == (0.0, 3)
    assert settings.stop_strings == ("\n",)
