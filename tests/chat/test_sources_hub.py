"""Data sets of the hub: the hub itself is the one thing that is replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vtrim.chat.read import ReadOptions, Shard, read_conversations
from vtrim.chat.skips import SkipLog
from vtrim.chat.sources import Source, expand
from vtrim.errors import InputError

TALKS = [
    {"messages": [{"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"}]}
    for n in range(7)
]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def texts(sources: list[Any], **options: Any) -> list[str]:
    rows = read_conversations(sources, options=ReadOptions(**options), skipped=SkipLog())
    return [row.messages[0]["content"] for row in rows]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A hub that holds the talks under org/talks; the calls of load_dataset."""
    import datasets
    import huggingface_hub

    calls: list[dict[str, Any]] = []

    def load_dataset(path: str, **options: Any) -> Iterator[Any]:
        calls.append({"path": path, **options})
        if options["split"] != "train":
            raise ValueError("Bad split: dev. Available splits: ['train']\nmore")
        return iter([{**row, "tools": None} for row in TALKS])

    class Api:
        def dataset_info(self, name: str) -> Any:
            if name != "org/talks":
                raise ConnectionError("no route to the hub\nmore")
            return SimpleNamespace(sha=COMMIT)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(datasets, "get_dataset_split_names", lambda *_, **__: ["train", "extra"])
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    return calls


def test_a_hub_data_set_is_streamed_at_the_commit_it_had_when_it_was_named(
    hub: list[dict[str, Any]],
) -> None:
    (source,) = expand(["org/talks:en"], split="train")
    assert (source.format, source.revision, source.label) == ("hub", COMMIT, "org/talks[train]")
    again = Source.from_description(json.loads(json.dumps(source.describe())))
    assert again == source
    assert texts([again]) == [f"q{n}" for n in range(7)]
    assert hub == [
        {
            "path": "org/talks",
            "name": "en",
            "split": "train",
            "revision": COMMIT,
            "streaming": True,
        }
    ]
    assert texts([source], shard=Shard(1, 3)) == ["q1", "q4"]
    assert source.describe()["path"] == "org/talks"
    assert source.describe()["bytes"] == 0


@pytest.mark.usefixtures("hub")
def test_a_hub_fingerprint_depends_on_commit_config_and_split() -> None:
    (source,) = expand(["org/talks"], split="train")
    (other,) = expand(["org/talks:en"], split="train")
    assert source.fingerprint() != other.fingerprint()
    assert source.fingerprint().startswith("sha256:")


@pytest.mark.usefixtures("hub")
def test_a_hub_data_set_without_a_split_names_those_there_are() -> None:
    with pytest.raises(InputError, match=r"^org/talks: .*--split; the splits are train, extra\.$"):
        expand(["org/talks"])


@pytest.mark.usefixtures("hub")
def test_a_split_the_hub_does_not_have_stops_the_run_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^org/talks: cannot be loaded .*Available splits") as it:
        texts(expand(["org/talks"], split="dev"))
    assert "\n" not in str(it.value)


@pytest.mark.usefixtures("hub")
def test_a_hub_that_cannot_be_asked_is_no_missing_file_and_offline_has_a_remedy() -> None:
    with pytest.raises(InputError, match=r"org/other: no such file here, and the hub cannot be as"):
        expand(["org/other"], split="train")


def test_a_folder_of_parquet_goes_through_load_dataset_itself(tmp_path: Path) -> None:
    import datasets

    datasets.disable_progress_bars()
    datasets.Dataset.from_list(TALKS).to_parquet(str(tmp_path / "train.parquet"))
    source = Source(name=str(tmp_path), format="hub", split="train")
    assert texts([source]) == [f"q{n}" for n in range(7)]
    with pytest.raises(InputError, match="cannot be loaded from the hub"):
        texts([Source(name=str(tmp_path), format="hub", split="dev")])


def test_offline_the_hub_is_not_asked(hub: list[dict[str, Any]]) -> None:
    with pytest.raises(InputError, match=r"^org/talks: .*--offline .*save_to_disk\(DIR\)\.$"):
        expand(["org/talks"], split="train", offline=True)
    assert hub == []
