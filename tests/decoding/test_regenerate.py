from __future__ import annotations

import gzip
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from vtrim.decoding.batch import BatchDecoder, Reply, Sampling, invert
from vtrim.decoding.regenerate import (
    PartFile,
    Request,
    before_last_reply,
    chat_row,
    regenerate_rows,
)
from vtrim.errors import InputError, MismatchError
from vtrim.models.target import Target, load_target

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.4,
}
PROMPTS = [
    (row, [1 + (7 * row + j) % 38 for j in range(length)])
    for row, length in enumerate([3, 11, 1, 6, 19, 2, 8, 8, 30, 5, 4])
]
STOP = (7, 11)


@pytest.fixture(scope="module", params=["llama", "sliding"])
def target(request: pytest.FixtureRequest) -> Target:
    torch.manual_seed(5)
    if request.param == "llama":
        return Target(LlamaForCausalLM(LlamaConfig(**SIZES)), "tiny")
    return Target(MistralForCausalLM(MistralConfig(**SIZES, sliding_window=6)), "tiny")


def sampling(**changes: Any) -> Sampling:
    return Sampling(**{"max_new_tokens": 20, "temperature": 0.0, "top_p": 1.0, "seed": 3} | changes)


def alone(target: Target, prompt: list[int], budget: int, stop: tuple[int, ...]) -> list[int]:
    """Slow reference: the whole sequence through the model for every token, no cache."""
    ids = list(prompt)
    while len(ids) < len(prompt) + budget:
        ids.append(int(target.model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] in stop:
            break
    return ids[len(prompt) :]


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_batched_greedy_replies_equal_those_of_each_prompt_alone(
    target: Target, batch_size: int
) -> None:
    decoder = BatchDecoder(target, STOP, sampling(), batch_size)
    replies = {reply.row: reply for reply in decoder.decode(PROMPTS)}
    assert sorted(replies) == [row for row, _ in PROMPTS]
    for row, prompt in PROMPTS:
        expected = alone(target, prompt, 20, STOP)
        assert replies[row].ids == expected
        assert replies[row].finish_reason == ("stop" if expected[-1] in STOP else "length")
    assert {reply.finish_reason for reply in replies.values()} == {"stop", "length"}


def test_the_cursor_may_wrap_without_changing_a_reply(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtrim.decoding.slots.SLACK", 2)
    decoder = BatchDecoder(target, STOP, sampling(), 4)
    for reply in decoder.decode(PROMPTS):
        assert reply.ids == alone(target, dict(PROMPTS)[reply.row], 20, STOP)


def test_a_reply_ends_where_the_context_ends(target: Target) -> None:
    prompt = [1 + j % 38 for j in range(61)]
    [reply] = BatchDecoder(target, (), sampling(), 4).decode([(0, prompt)])
    assert (len(reply.ids), reply.finish_reason) == (3, "length")


def test_a_target_with_other_layers_than_attention_is_refused_by_name(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ["linear_attention", "full_attention"]
    monkeypatch.setattr(target.config, "layer_types", kinds, raising=False)
    with pytest.raises(InputError, match="tiny: has layers of type linear_attention;"):
        BatchDecoder(target, STOP, sampling(), 4)


def test_sampled_replies_depend_on_seed_and_row_not_on_the_batch(target: Target) -> None:
    def decode(batch_size: int, seed: int) -> dict[int, list[int]]:
        decoder = BatchDecoder(target, STOP, sampling(temperature=1.0, seed=seed), batch_size)
        return {reply.row: reply.ids for reply in decoder.decode(PROMPTS)}

    assert decode(2, 0) == decode(16, 0)
    assert decode(16, 0) != decode(16, 1)


def test_real_chat_replies_equal_those_of_each_prompt_alone(data: Path) -> None:
    target = load_target(str(data / "model" / "stories260k"))
    prompts = [(row, [1, *range(10 + row, 14 + 3 * row)]) for row in range(6)]
    for reply in BatchDecoder(target, (2,), sampling(), 3).decode(prompts):
        assert reply.ids == alone(target, dict(prompts)[reply.row], 20, (2,))


WEIGHTS = torch.tensor([[0.4, 0.1, 0.0, 0.5]])


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 0), (0.39, 0), (0.41, 1), (0.49, 1), (0.51, 3), (1 - 2**-53, 3)]
)
def test_a_token_is_where_the_uniform_falls_in_the_cumulative_law(
    uniform: float, token: int
) -> None:
    assert invert(WEIGHTS, torch.tensor([uniform], dtype=torch.float64)).tolist() == [token]


def test_a_uniform_rounded_up_to_one_never_finds_a_token_of_weight_0() -> None:
    weights = torch.tensor([[0.5, 0.5, 0.0, 0.0]])
    assert invert(weights, torch.tensor([1.0])).tolist() == [1]


class CountingDecoder:
    """Replies with the prompt reversed and remembers what it was asked."""

    batch_size = 2

    def __init__(self, fail_after: int | None = None) -> None:
        self.asked: list[int] = []
        self.fail_after = fail_after

    def decode(self, prompts: list[tuple[int, list[int]]]) -> Any:
        for row, ids in reversed(prompts):
            if self.fail_after is not None and len(self.asked) == self.fail_after:
                raise KeyboardInterrupt
            self.asked.append(row)
            yield Reply(row, [*reversed(ids), 0], "stop")


def requests(count: int = 5) -> list[Request]:
    message = {"role": "user", "content": "é [/]"}
    return [Request(row, [message], [row + 1, 9]) for row in range(count)]


def write(output: Path, decoder: Any, rows: list[Request], **settings: Any) -> Any:
    part = PartFile(output, settings)
    with closing(part):
        totals = regenerate_rows(rows, decoder, part, lambda ids: str(list(ids)), lambda *_: None)
        part.finish(output, totals.order)
    return totals


def test_rows_come_out_in_the_order_of_the_prompts_with_ids_and_mask(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    write(output, CountingDecoder(), requests())
    lines = output.read_text(encoding="utf-8").splitlines()
    assert lines[0] == (
        '{"messages":[{"role":"user","content":"é [/]"},'
        '{"role":"assistant","content":"[9, 1]"}],'
        '"input_ids":[1,9,9,1,0],"loss_mask":[0,0,1,1,1],"finish_reason":"stop"}'
    )
    assert [json.loads(line)["input_ids"][0] for line in lines] == [1, 2, 3, 4, 5]
    assert list(tmp_path.iterdir()) == [output]


def test_an_interrupted_run_generates_only_what_is_missing(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        write(output, CountingDecoder(fail_after=3), requests())
    assert not output.exists()
    second = CountingDecoder()
    totals = write(output, second, requests())
    assert (totals.resumed, totals.rows, sorted(second.asked)) == (3, 2, [0, 1])
    whole = tmp_path / "whole.jsonl"
    write(whole, CountingDecoder(), requests())
    assert output.read_bytes() == whole.read_bytes()


def test_a_cut_last_line_of_the_part_file_is_generated_again(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        write(output, CountingDecoder(fail_after=3), requests())
    part = tmp_path / "out.jsonl.part"
    part.write_bytes(part.read_bytes()[:-5])
    second = CountingDecoder()
    write(output, second, requests())
    assert sorted(second.asked) == [0, 1, 2]
    assert len(output.read_text(encoding="utf-8").splitlines()) == 5


def test_a_finished_row_whose_prompt_changed_is_generated_again(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        write(output, CountingDecoder(fail_after=4), requests())
    rows = requests()
    rows[4] = Request(4, rows[4].messages, [30, 31], {"source": "news"})
    second = CountingDecoder()
    write(output, second, rows)
    assert sorted(second.asked) == [0, 4]
    last = json.loads(output.read_text(encoding="utf-8").splitlines()[4])
    assert (last["input_ids"], last["source"]) == ([30, 31, 31, 30, 0], "news")


def test_replies_of_other_settings_are_not_mixed_in(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        write(output, CountingDecoder(fail_after=1), requests(), temperature=0.0)
    with pytest.raises(MismatchError, match=r"temperature differs: 0\.7 here, 0\.0 in .*part"):
        write(output, CountingDecoder(), requests(), temperature=0.7)


def test_replies_of_a_server_and_of_a_target_in_this_process_are_not_mixed(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    PartFile(output, {"target": "tiny", "through": "server"}).close()
    with pytest.raises(MismatchError, match=r"through differs: None here, server in .*part"):
        PartFile(output, {"target": "tiny", "dtype": "float32"})


def test_a_gz_name_gives_gzip_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    write(first, CountingDecoder(), requests())
    write(second, CountingDecoder(), requests())
    assert first.read_bytes() == second.read_bytes()
    assert len(gzip.decompress(first.read_bytes()).splitlines()) == 5


def test_the_text_leaves_the_stop_token_out_and_the_ids_keep_it() -> None:
    request = requests(1)[0]
    stopped = chat_row(request, Reply(0, [5, 6, 2], "stop"), lambda ids: repr(list(ids)))
    cut = chat_row(request, Reply(0, [5, 6], "length"), lambda ids: repr(list(ids)))
    assert stopped["messages"][-1]["content"] == cut["messages"][-1]["content"] == "[5, 6]"
    assert stopped["input_ids"][-3:] == [5, 6, 2]
    assert cut["loss_mask"] == [0, 0, 1, 1]


def test_the_prompt_is_all_before_the_closing_reply() -> None:
    user, bot = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}
    assert before_last_reply([user, bot]) == [user]
    assert before_last_reply([user, bot, user]) == [user, bot, user]
    assert before_last_reply([bot]) == []
    assert before_last_reply([]) == []


def test_a_padding_column_never_reaches_a_reply(target: Target) -> None:
    """A long neighbour pads the short row; its hidden state must not leak."""
    short, long = (0, [4, 5]), (1, [1 + j % 38 for j in range(40)])
    pair = {r.row: r.ids for r in BatchDecoder(target, (), sampling(), 2).decode([short, long])}
    [single] = BatchDecoder(target, (), sampling(), 2).decode([short])
    assert pair[0] == single.ids


def test_sampled_first_tokens_have_the_frequencies_of_the_target(target: Target) -> None:
    prompt, draws = [4, 5, 6], 4000
    one = sampling(max_new_tokens=1, temperature=1.0)
    decoder = BatchDecoder(target, (), one, 500)
    replies = decoder.decode([(row, prompt) for row in range(draws)])
    observed = torch.bincount(torch.tensor([r.ids[0] for r in replies]), minlength=40).double()
    logits = target.model(input_ids=torch.tensor([prompt])).logits[0, -1].double()
    expected = logits.softmax(-1) * draws
    common = expected >= 5
    chi2 = ((observed - expected) ** 2 / expected)[common].sum()
    assert float(chi2) < 73.4  # 40 degrees of freedom, p = 0.001
