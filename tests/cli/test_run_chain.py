"""From a recipe to command lines, and which steps have to run again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.artifacts import Run, read_json, write_json
from vtrim.cli.chain import Step, chain_steps
from vtrim.cli.chain_keys import COMMANDS, EVERYWHERE, NOT_KEYS, READS, WRITES, keys_of, options_of
from vtrim.cli.chain_run import pick_steps, plan_chain, run_chain
from vtrim.cli.chain_state import is_written, made_from, note_begun, note_done, outputs_of, why
from vtrim.config import load_recipe
from vtrim.errors import InputError, OptionError

RECIPE = """name: a
target: smollm2
data: chat.jsonl
search: {cmin: 0.9}
train: {max_steps: 4, lr: 1e-3}
eval:
  - {name: exact, temperature: 0.0}
  - {acceptor: dropmatch, prompts: prompts.jsonl}
"""

Chain = Callable[..., list[Step]]


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    """chain(*overrides) -> the steps of a recipe in a folder with its files."""
    (tmp_path / "chat.jsonl").write_text('{"prompt": "a", "completion": "b"}\n')
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "a"}\n')
    (tmp_path / "a.yaml").write_text(RECIPE)

    def steps(*overrides: str) -> list[Step]:
        recipe = load_recipe(tmp_path / "a.yaml", overrides)
        return chain_steps(recipe, Run(tmp_path / "run"))

    return steps


READ_BY = ("coverage", "train-draft", "eval exact", "eval dropmatch")  # the target


@pytest.mark.parametrize("command", COMMANDS.values())
def test_every_option_of_a_command_is_a_key_or_named_as_none(command: str) -> None:
    options = set(options_of(command))
    argument = {"prompts"} if command == "regenerate" else set()
    none = (EVERYWHERE & options) | NOT_KEYS.get(command, set())
    assert set(keys_of(command)) - argument == options - none
    assert NOT_KEYS.get(command, set()) <= options


@pytest.mark.parametrize("command", COMMANDS.values())
def test_every_option_that_takes_a_path_is_known_to_be_read_or_written(command: str) -> None:
    from vtrim.cli.main import app

    named = {(c.name or "").replace("_", "-"): c.callback for c in app.registered_commands}
    callback = named[command]
    assert callback is not None
    hints = inspect.get_annotations(inspect.unwrap(callback), eval_str=True)
    signature = inspect.signature(callback)
    options = {option.name: key for key, option in options_of(command).items()}
    paths = set()
    for name in signature.parameters:
        if "Path" in repr(hints.get(name)) and name in options:
            paths.add(options[name])
    told = READS.get(command, set()) | WRITES.get(command, set())
    assert paths - EVERYWHERE - NOT_KEYS.get(command, set()) <= told


def test_each_step_is_the_command_that_a_user_would_type(chain: Chain, tmp_path: Path) -> None:
    assert [step.line.replace(str(tmp_path), ".") for step in chain()] == [
        "vtrim coverage ./chat.jsonl --target smollm2 --run ./run",
        "vtrim search --cmin 0.9 --run ./run",
        "vtrim train-draft --max-steps 4 --lr 1e-3 --run ./run",
        "vtrim eval --name exact --temperature 0.0 --run ./run",
        "vtrim eval --acceptor dropmatch --prompts ./prompts.jsonl --run ./run",
        "vtrim report --run ./run",
    ]
    assert [step.name for step in chain()][3:5] == ["eval exact", "eval dropmatch"]


@pytest.mark.parametrize(
    ("override", "name"),
    [
        ("eval.dropmatch.drafter=ngram", "eval dropmatch-ngram"),
        ("eval.dropmatch.tree=[9, 2, 3]", "eval dropmatch-tree"),
        ("eval.dropmatch.skip_layers=1-2", "eval dropmatch-model"),
        ("eval.exact.drafter=ngram", "eval exact"),
    ],
)
def test_an_evaluation_is_told_by_its_rule_and_drafter(
    chain: Chain, override: str, name: str
) -> None:
    assert name in [step.name for step in chain(override)]


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.packing=true", "--packing"),
        ("train.packing=no", "--no-packing"),
        ("train.mix={code: 2, chat: 0.5}", "--mix code=2 --mix chat=0.5"),
        ("train.mix=[code=2]", "--mix code=2"),
        ("train.aux_layers=[2, 15, 27]", "--aux-layers 2,15,27"),
        ("train.cache_features=features", "--cache-features ./run/features"),
        ("train.vocab=full", "--vocab full"),
        ("train.lr=", "--max-steps 4 --run"),
        ("train.lr=null", "--max-steps 4 --run"),
        ("search.keep=[3, 5]", "--keep 3 --keep 5"),
        ("search.storage=sqlite:///t.db", "--storage sqlite:///t.db"),
        ("search.storage=t.journal", "--storage ./run/t.journal"),
        ("coverage.map={user: q, assistant: a}", "--map user=q --map assistant=a"),
        ("coverage.skip_bad_rows=false", "chat.jsonl --target"),
        ("eval.exact.tree=[9, 2, 3]", "--tree 9,2,3"),
        ("eval.exact.num_draft_tokens=auto", "--num-draft-tokens auto"),
        ("eval.exact.stop=[END, '###']", "--stop END --stop '###'"),
        ("eval.exact.fast_forward=false", "--no-fast-forward"),
        ("eval.exact.draft_model=org/small", "--draft-model org/small"),
        ("eval.dropmatch.p_drop=auto", "--p-drop auto"),
        ("eval.dropmatch.knob={target_agreement: 0.95}", "--knob target_agreement=0.95"),
        ("report.output=page.html", "report --output ./run/page.html"),
        ("data=elsewhere.jsonl", "coverage elsewhere.jsonl"),
    ],
)
def test_a_value_becomes_the_words_of_its_option(
    chain: Chain, tmp_path: Path, override: str, words: str
) -> None:
    lines = "\n".join(step.line for step in chain(override)).replace(str(tmp_path), ".")
    assert words in lines


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.lrr=1", "unknown key. Did you mean 'lr'"),
        ("train.kmin=1", "unknown key. Known: aux_layers"),
        ("train.lr=fast", "--lr"),
        ("train.run=x", "not for a recipe"),
        ("train.plan=true", "not for a recipe"),
        ("train.target=x", "stands at the top"),
        ("train.packing=maybe", "true or false"),
        ("train.init_from=nowhere", "nowhere: no such file"),
        ("eval.exact.prompts=none.jsonl", "none.jsonl: no such file"),
        ("eval.exact.draft_vocab=none.safetensors", "none.safetensors: no such file"),
        ("eval.name=same", "stands twice"),
        ("coverage.processes=0", "processes"),
        ("data=[]", "name data"),
        ("regenerate.seed=1", "prompts"),
    ],
)
def test_what_a_command_does_not_take_is_refused_where_it_stands(
    chain: Chain, override: str, words: str
) -> None:
    with pytest.raises(InputError, match=words) as refused:
        chain(override)
    assert override.split("=")[0].split(".")[-1] in str(refused.value)


def test_a_mistake_in_the_file_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a\ntarget: b\ndata: c\ntrain:\n  max_steps: 4\n  lr: x\n")
    with pytest.raises(InputError, match=r"a.yaml:6: train.lr: .*--lr"):
        chain_steps(load_recipe(path), Run(tmp_path))


def test_replies_get_another_file_when_prompts_or_settings_differ(
    chain: Chain, tmp_path: Path
) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "a"}\n')
    prompts = f"regenerate.prompts={tmp_path / 'p.jsonl'}"

    def output(*more: str) -> Path:
        first, second, *_ = chain(prompts, *more)
        assert first.command == "regenerate"
        assert second.options["data"][0] == str(first.options["output"])
        return Path(first.options["output"])

    plain = output()
    assert plain == output("regenerate.offline=true")
    assert plain.parent == tmp_path / "run"
    assert len({plain, output("regenerate.seed=2"), output("target=other")}) == 3
    (tmp_path / "p.jsonl").write_text('{"prompt": "b"}\n')
    assert plain != output()


def test_replies_of_another_target_under_the_same_name_get_another_file(
    chain: Chain, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "config.json").write_text("{}")
    typed = (f"target={target}", f"regenerate.prompts={tmp_path / 'prompts.jsonl'}")
    first = chain(*typed)[0].options["output"]
    assert first == chain(*typed)[0].options["output"]
    (target / "config.json").write_text('{"a": 1}')
    assert first != chain(*typed)[0].options["output"]


def test_replies_follow_what_stands_in_a_template(chain: Chain, tmp_path: Path) -> None:
    template = tmp_path / "t.jinja"
    typed = (
        f"regenerate.prompts={tmp_path / 'prompts.jsonl'}",
        f"regenerate.template={template}",
    )
    template.write_text("a")
    first = chain(*typed)[0].options["output"]
    template.write_text("b")
    assert first != chain(*typed)[0].options["output"]


def test_replies_that_are_whole_and_not_noted_are_not_written_again(
    chain: Chain, tmp_path: Path
) -> None:
    run, typed = Run(tmp_path / "run"), f"regenerate.prompts={tmp_path / 'prompts.jsonl'}"
    step = chain(typed)[0]
    note_begun(step, run, made_from(step, run))
    assert not is_written(step, run)
    Path(step.options["output"]).write_text("{}\n")
    assert is_written(step, run)
    assert plan_chain([step], [step], run, force=False)[0]["status"] == "unchanged"
    (done,) = run_chain([step], [step], run)  # would be refused: the file exists already
    assert done["status"] == "unchanged"
    other = chain(typed, "regenerate.seed=3")[0]
    note_begun(other, run, made_from(other, run))
    assert run_chain([step], [step], run)[0]["status"] == "unchanged"
    Path(step.options["output"]).write_text("edited\n")
    assert not is_written(step, run)
    assert reasons([step], run)["regenerate"].endswith("is not what it made")


def test_a_server_is_told_the_target_to_check_its_ids_against(chain: Chain, tmp_path: Path) -> None:
    typed = (
        "regenerate.prompts=" + str(tmp_path / "prompts.jsonl"),
        "regenerate.server=http://h:1",
    )
    assert "--target smollm2" in chain(*typed)[0].line


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ([], ["coverage", "search", "train-draft", "eval exact", "eval dropmatch", "report"]),
        (["train-draft"], ["train-draft"]),
        (["train"], ["train-draft"]),
        (["eval"], ["eval exact", "eval dropmatch"]),
        (["report", "eval dropmatch"], ["eval dropmatch", "report"]),
    ],
)
def test_only_names_steps(chain: Chain, only: list[str], names: list[str]) -> None:
    assert [step.name for step in pick_steps(chain(), only)] == names


def test_only_refuses_a_step_that_is_not_there(chain: Chain) -> None:
    with pytest.raises(OptionError, match=r"--only tain: .*train-draft"):
        pick_steps(chain(), ["tain"])


@pytest.fixture
def finished(chain: Chain, tmp_path: Path) -> Run:
    """A run folder in which every step has been noted as done, with made-up artefacts."""
    run = Run(tmp_path / "run")
    run.update(target={"vocab_size": 8}, data={"files": [{"path": "x", "fingerprint": "f"}]})
    for step in chain():
        made = made_from(step, run)
        note_begun(step, run, made)
        for name in outputs_of(step, run):
            (run.root / name).parent.mkdir(parents=True, exist_ok=True)
            (run.root / name).write_text(f"made by {step.name}")
        note_done(step, run, 1.0)
    return run


def reasons(steps: list[Step], run: Run) -> dict[str, str]:
    """Which steps have to run, and why."""
    found = {step.name: why(step, run, made_from(step, run)) for step in steps}
    return {name: reason for name, reason in found.items() if reason}


def test_nothing_has_to_run_where_nothing_has_changed(chain: Chain, finished: Run) -> None:
    assert reasons(chain(), finished) == {}


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.lr=2e-3", {"train-draft": "lr changed"}),
        ("train.lr=0.001", {}),
        ("train.lr=", {"train-draft": "lr changed"}),
        ("train.save_every=7", {}),
        ("train.grad_accum=2", {"train-draft": "micro-batches a step changed"}),
        ("train.seed=7", {"train-draft": "seed changed"}),
        ("coverage.processes=1", {}),
        ("report.output=other.html", {"report": "output changed"}),
        ("search.alpha=0.5", {"search": "alpha changed"}),
        ("eval.exact.seed=1", {"eval exact": "seed changed"}),
        ("eval.exact.batch_size=4", {"eval exact": "batch_size changed"}),
        ("eval.exact.engine=vllm", {"eval exact": "engine changed"}),
        ("eval.exact.request_timeout=9", {}),
        ("eval.exact.task=gsm8k", {"eval exact": "task changed"}),
        ("coverage.engine=dask", {}),
        (
            "target=other",
            dict.fromkeys(READ_BY, "target changed"),
        ),
    ],
)
def test_a_changed_option_makes_its_step_run(
    chain: Chain, finished: Run, override: str, expected: dict[str, str]
) -> None:
    assert reasons(chain(override), finished) == expected


def test_processes_that_share_the_same_micro_batches_train_the_same_draft(
    chain: Chain, finished: Run
) -> None:
    train = chain("train.grad_accum=4")[2]
    made = made_from(train, finished)
    assert made == made_from(chain("train.num_gpus=2", "train.grad_accum=2")[2], finished)
    assert made != made_from(chain("train.num_gpus=2")[2], finished)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("chat.jsonl", {"coverage": "data changed"}),
        ("prompts.jsonl", {"eval dropmatch": "prompts changed"}),
        (
            "run/vocab.safetensors",
            {
                "search": "vocab.safetensors is not what it made",
                "train-draft": "vocab.safetensors changed",
            },
        ),
        (
            "run/draft/model.safetensors",
            {
                "train-draft": "draft/model.safetensors is not what it made",
                "eval exact": "draft/model.safetensors changed",
                "eval dropmatch": "draft/model.safetensors changed",
                "report": "draft/model.safetensors changed",
            },
        ),
        ("run/report.html", {"report": "report.html is not what it made"}),
    ],
)
def test_changed_content_makes_what_reads_it_run(
    chain: Chain, finished: Run, tmp_path: Path, changed: str, expected: dict[str, str]
) -> None:
    with (tmp_path / changed).open("a") as file:
        file.write('{"prompt": "c", "completion": "d"}\n')
    assert reasons(chain(), finished) == expected


def test_what_was_moved_is_not_changed(finished: Run, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("chat.jsonl", "prompts.jsonl"):
        (tmp_path / name).rename(moved / name)
    (moved / "a.yaml").write_text(RECIPE)
    steps = chain_steps(load_recipe(moved / "a.yaml"), finished)
    assert reasons(steps, finished) == {}


def test_a_step_that_was_begun_and_not_ended_is_unfinished(chain: Chain, finished: Run) -> None:
    train = chain()[2]
    note_begun(train, finished, made_from(train, finished))
    assert reasons(chain(), finished) == {"train-draft": "unfinished"}


def test_a_plan_says_what_would_run_and_why(chain: Chain, finished: Run) -> None:
    finished.train.mkdir()
    steps = chain("train.lr=1")
    planned = plan_chain(steps, steps, finished, force=False)
    assert [one["status"] for one in planned] == [
        "unchanged",
        "unchanged",
        "lr changed",
        *["unchanged, if train-draft makes the same again"] * 3,
    ]
    assert planned[2]["command"].endswith("--restart")
    unfinished = chain()[2]
    note_begun(unfinished, finished, made_from(unfinished, finished))
    assert "--restart" not in plan_chain(steps, steps, finished, force=False)[2]["command"]
    assert "--restart" in plan_chain(steps, steps, finished, force=True)[2]["command"]


def test_a_damaged_note_in_run_json_is_refused(chain: Chain, finished: Run) -> None:
    manifest: dict[str, Any] = read_json(finished.manifest)
    write_json(finished.manifest, {**manifest, "chain": {"search": []}})
    with pytest.raises(InputError, match=r"damaged: 'chain.search'"):
        reasons(chain(), finished)
