"""Running servers as engines, against real HTTP servers that answer as vLLM and SGLang do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vtrim.decoding.generation import GenerationSettings
from vtrim.errors import InputError, MismatchError, OptionError
from vtrim.evaluation.engines.counters import counters
from vtrim.evaluation.engines.opening import ServerAddress, check_roles, open_server
from vtrim.evaluation.engines.reply import Batch, EngineCounts
from vtrim.evaluation.engines.served import generations_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from fake_server import Answer, FakeServer, events, serving
from fake_vllm import counted_on, vllm_server

SETTINGS = GenerationSettings(
    max_new_tokens=8, stop_ids=frozenset({2}), temperature=0.0, num_draft_tokens=3, seed=7
)
PROMPT = [5, 6]


def opened(server: FakeServer, *, only_vllm: bool = False, **more: Any) -> Any:
    where = {"option": "--server", "model": None, "key": None, "timeout": 5.0, **more}
    return open_server(ServerAddress(url=server.url, **where), only_vllm=only_vllm)


def streamed(*values: dict[str, Any], **answer: Any) -> Callable[..., Answer]:
    return lambda _body, _count: Answer(body=events(*values), **answer)


def chunk(text: str, ids: list[int] | None = None, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"text": text, "token_ids": ids, "finish_reason": reason}]}


def usage(tokens: int, prompt: int = 2) -> dict[str, Any]:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": tokens}}


def test_a_vllm_server_gives_ids_rounds_and_its_own_counts() -> None:
    with vllm_server(kept=2) as server:
        engine = opened(server, only_vllm=True)
        assert (engine.info.name, engine.info.version) == ("vllm", "0.32.0")
        assert engine.info.drafts is True
        batch = engine.decode([PROMPT], SETTINGS, 4)
        sent = server.asked[0]
    assert sent["prompt"] == PROMPT  # ids: no server's template or tokenizer is asked
    assert (sent["stop_token_ids"], sent["ignore_eos"]) == ([2], True)
    assert (sent["seed"], sent["max_tokens"]) == (11, 8)
    assert (sent["repetition_penalty"], sent["top_k"]) == (1.0, -1)  # not the model's own defaults
    (reply,) = batch.replies
    assert reply.tokens == tuple(counted_on(PROMPT, 8))
    assert reply.with_first == 1
    # 7 tokens behind the first, 3 a round: 3, 3, 1
    assert batch.counts == EngineCounts(rounds=3, drafted=9, accepted=6, by_position=(3, 3, 0))
    (made,) = generations_of(batch)
    assert (made.emitted, made.rounds) == (7, 3)


def test_counts_are_those_of_one_batch_and_others_tokens_are_noticed() -> None:
    with vllm_server() as server:
        engine = opened(server)
        assert engine.decode([PROMPT], SETTINGS, 0).counts.rounds == 4
        assert engine.decode([PROMPT, [9]], SETTINGS, 0).counts.rounds == 8
        assert engine.other_tokens == 0
        record = server.counters
        page = server.pages["/metrics"]

        def busy() -> Answer:
            record.foreign += 5
            return page()

        server.pages["/metrics"] = busy
        engine.decode([PROMPT], SETTINGS, 0)
        assert engine.other_tokens == 5


def test_a_reply_has_no_more_tokens_than_the_server_has_positions_for() -> None:
    with vllm_server(max_model_len=6) as server:
        (reply,) = opened(server).decode([PROMPT], SETTINGS, 0).replies
    assert reply.num_tokens == 4


def test_counters_that_do_not_move_are_another_server_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtrim.evaluation.engines.vllm_server._PATIENCE", 0.05)
    with vllm_server() as server:
        page = server.counters.page().encode()
        server.pages["/metrics"] = lambda: Answer(body=page)
        with pytest.raises(InputError, match="grew by 0 for 8 tokens"):
            opened(server).decode([PROMPT], SETTINGS, 0)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "many"])
def test_a_counter_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(InputError, match=f"vllm:generation_tokens is .?{value[1:]}"):
        counters(f"vllm:generation_tokens_total {value}\n", ("vllm:generation_tokens",), "here")


def test_counters_of_several_engines_are_added_up_by_position() -> None:
    page = (
        '# HELP a_total b\na_total{engine="0",position="1"} 2.0\n'
        'a_total{engine="1",position="1"} 3.0 1700000000\na_created{engine="0"} 9\n'
        'a_total{x="a} b\\"",position="0"} 1e2\n'
    )
    assert counters(page, ("a",), "here") == {"a": {"1": 5.0, "0": 100.0}}


def test_a_vllm_server_without_metrics_is_refused_by_name() -> None:
    refused = pytest.raises(InputError, match=r"no counters of vLLM .*--disable-log-stats")
    with serving(streamed(), owned_by="vllm") as server, refused:
        opened(server)


def test_the_model_must_be_the_server_s_and_be_chosen_among_several() -> None:
    with serving(streamed(), "a", "b") as server:
        with pytest.raises(OptionError, match=r"--server-model c: .* serves a, b\."):
            opened(server, model="c")
        with pytest.raises(OptionError, match="serves a, b: choose one with --server-model"):
            opened(server)
        assert opened(server, model="b").model == "b"


def test_a_server_that_is_down_or_none_is_refused_in_one_line() -> None:
    with serving(streamed()) as server:
        pass
    with pytest.raises(InputError, match=r"the connection failed .*Is the server running") as found:
        opened(server)
    assert "\n" not in str(found.value)
    with serving(streamed()) as server:
        server.pages["/v1/models"] = lambda: Answer(body={"hello": 1})
        with pytest.raises(InputError, match="no OpenAI-compatible server"):
            opened(server)
    with pytest.raises(OptionError, match="--plain-server here: write it as"):
        open_server(
            ServerAddress(url="here", option="--plain-server", model=None, key=None, timeout=1.0),
            only_vllm=False,
        )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(500, {"error": {"message": "out of memory"}}), "answered 500: out of memory"),
        (Answer(404, {"message": "no such model"}), "answered 404: no such model"),
        (Answer(400, {"error": "prompt must be text"}), "answered 400: prompt must be text"),
        (Answer(401, {"error": "who are you"}), "answered 401: who are you Set OPENAI_API_KEY"),
        (Answer(hang_up=True), "the connection failed"),
        (Answer(wait=1.0), r"nothing came for 0\.2 s \(--request-timeout\)"),
        (Answer(body=events(chunk("a", [1]), usage(2)), cut=30), "half-way|failed"),
        (Answer(body=b"data: {cut\n\n"), "an event is no JSON: {cut"),
        (Answer(body=events({"error": {"message": "engine died"}})), "engine died"),
        (Answer(body=events(chunk("a", [1]), usage(1))), "does not say why it ends"),
        (Answer(body=events(chunk("a", None, "stop"))), "does not count the tokens"),
        (Answer(body=events(chunk("a", [1], "stop"), usage(1, prompt=3))), "has read 3"),
    ],
)
def test_an_answer_that_cannot_be_used_ends_in_one_line(answer: Answer, said: str) -> None:
    with serving(lambda _body, _count: answer, owned_by="someone") as server:
        engine = opened(server)
        engine.http.timeout = 0.2 if answer.wait else 5.0
        with pytest.raises(InputError, match=said) as found:
            engine.decode([PROMPT], SETTINGS, 0)
    assert "\n" not in str(found.value)


def test_a_key_is_sent_and_never_shown() -> None:
    refusal = Answer(403, {"error": "sk-secret is not known"})
    with serving(lambda _body, _count: refusal) as server:
        with pytest.raises(InputError, match=r"\*\*\* is not known") as found:
            opened(server, key="sk-secret").decode([PROMPT], SETTINGS, 0)
        assert server.headers[-1]["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in str(found.value)


def test_an_unknown_server_is_asked_in_plain_words_and_its_usage_counts() -> None:
    said = [chunk("one"), chunk(" two"), chunk(" three", None, "length"), usage(3)]
    with serving(streamed(*said), owned_by="someone") as server:
        engine = opened(server)
        (reply,) = engine.decode([PROMPT], SETTINGS, 0).replies
        assert set(server.asked[0]) == {
            "model", "prompt", "max_tokens", "temperature", "top_p", "seed", "stream",
            "stream_options",
        }  # fmt: skip
    assert (reply.text, reply.num_tokens, reply.tokens) == ("one two three", 3, None)
    assert (reply.rounds, engine.info.drafts) == (None, None)


def test_tensorrt_llm_tells_the_mean_tokens_of_an_iteration() -> None:
    last = chunk("b", None, "length")
    last["choices"][0]["avg_decoded_tokens_per_iter"] = 2.5
    with serving(streamed(chunk("a"), last, usage(10)), owned_by="tensorrt_llm") as server:
        (reply,) = opened(server).decode([PROMPT], SETTINGS, 0).replies
        assert server.asked[0]["stop_token_ids"] == [2]
    assert reply.rounds == 4


@pytest.mark.parametrize("so_far", [True, False])
def test_sglang_counts_the_verifications_of_each_reply(so_far: bool) -> None:
    def event(end: int, reason: Any = None) -> dict[str, Any]:
        start = 0 if so_far else {1: 0, 3: 1, 4: 3}[end]
        meta = {"completion_tokens": end, "prompt_tokens": 2, "spec_verify_ct": end - 2}
        ids = [11, 12, 13, 14][start:end]
        return {
            "text": "abcd"[start:end],
            "output_ids": ids,
            "meta_info": {**meta, "finish_reason": reason},
        }

    stream = streamed(event(1), event(3), event(4, {"type": "length", "length": 4}))
    with serving(stream, owned_by="sglang") as server:
        server.pages["/server_info"] = lambda: Answer(
            body={
                "version": "0.5.23",
                "speculative_algorithm": "EAGLE3",
                "speculative_accept_threshold_single": 1.0,
                "speculative_accept_threshold_acc": 0.9,
                "context_length": 64,
            }
        )
        engine = opened(server)
        (reply,) = engine.decode([PROMPT], SETTINGS, 0).replies
        sent = server.asked[0]
    assert sent["input_ids"] == PROMPT
    assert sent["sampling_params"]["stop_token_ids"] == [2]
    assert (engine.info.version, engine.info.drafts, engine.info.lossless) == (
        "0.5.23",
        True,
        False,
    )
    assert (reply.tokens, reply.text) == ((11, 12, 13, 14), "abcd")
    assert (reply.rounds, reply.finish_reason) == (2, "length")


def test_servers_that_do_not_belong_together_are_refused() -> None:
    with vllm_server() as one, vllm_server(drafts=False) as other:
        with_draft, without = opened(one), opened(other)
        check_roles(with_draft, without)
        with pytest.raises(MismatchError, match="decodes without a draft"):
            check_roles(without, None)
        with pytest.raises(MismatchError, match="decodes with a draft; start one without"):
            check_roles(with_draft, with_draft)
        other.pages["/version"] = lambda: Answer(body={"version": "0.9"})
        with pytest.raises(MismatchError, match=r"is vllm 0\.9, not vllm 0\.32\.0"):
            check_roles(with_draft, opened(other))


def test_of_replies_sent_at_once_each_has_its_share_of_their_time() -> None:
    with vllm_server() as server:
        batch = opened(server).decode([PROMPT, [9]], SETTINGS, 0)
    made = generations_of(batch)
    assert made[0].decode_seconds == made[1].decode_seconds
    assert sum(one.rounds for one in made) == 8


def test_a_reply_in_one_piece_is_timed_whole() -> None:
    with serving(streamed(chunk("abc", [1, 2, 3], "length"), usage(3)), owned_by="x") as server:
        batch = opened(server).decode([PROMPT], SETTINGS, 0)
    (reply,), (made,) = batch.replies, generations_of(batch)
    assert reply.with_first == 3
    assert made.decode_seconds == reply.prefill_seconds > 0
    assert made.seconds["prefill"] == 0
    assert generations_of(Batch((), None)) == []
