"""Whole generations: identity with plain decoding, stops, limits, laws."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from vtrim.decoding.acceptors import exact_acceptor, make_acceptor
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings, SequenceState
from vtrim.decoding.protocol import Ask, Proposal, Verdict, Verification
from vtrim.decoding.stops import Stops
from vtrim.errors import InputError, OptionError
from vtrim.models.hub import load_tokenizer
from vtrim.models.layout import load_draft
from vtrim.models.target import Target, load_target

LENGTHS = (1, 2, 3, 5, 8)
DONE = 51


def settings(**changes: Any) -> GenerationSettings:
    values: dict[str, Any] = {
        "max_new_tokens": 12,
        "stop_ids": frozenset({DONE}),
        "temperature": 0.0,
        "num_draft_tokens": 3,
        "seed": 0,
    }
    return GenerationSettings(**(values | changes))


class Oracle:
    """Drafts a known reply, each token replaced by a wrong one with a given chance."""

    context_length = 1 << 20

    def __init__(self, whole: list[int], miss: float, rows: int) -> None:
        self.whole, self.miss, self.rows = whole, miss, rows
        self.dice = random.Random(0)
        self.seen = 0

    def open(self, slots: int, capacity: int) -> None:
        del slots, capacity

    def prefill(self, slot: int, tokens: Sequence[int], aux: Tensor) -> None:
        del slot, tokens
        self.seen = aux.shape[0]

    def propose(
        self, asks: Sequence[Ask], num_draft_tokens: int, *, temperature: float, seed: int
    ) -> list[Proposal]:
        del temperature, seed
        (ask,) = asks
        self.seen += len(ask.fresh)
        start = len(ask.tokens)
        assert self.seen == start - 1
        known = (self.whole + [0] * 64)[start : start + min(num_draft_tokens, ask.room)]
        chain = [
            (token + 1) % self.rows if self.dice.random() < self.miss else token for token in known
        ]
        flat = torch.zeros(len(chain), self.rows).log_softmax(-1)
        return [Proposal(torch.tensor(chain), None, flat, torch.arange(self.rows))]


@pytest.fixture(scope="module")
def load(shared: Path) -> Callable[[str], Target]:
    kept: dict[str, Target] = {}

    def one(name: str) -> Target:
        if name not in kept:
            place = "data/model" if name == "stories260k" else "inputs"
            kept[name] = load_target(str(shared / place / name), dtype=torch.float32)
        return kept[name]

    return one


@pytest.fixture(scope="module")
def words(inputs: Path) -> Any:
    return load_tokenizer(str(inputs / "target_chain"))


@pytest.fixture
def engine(
    load: Callable[[str], Target], random_draft: Callable[..., Path]
) -> Callable[..., Engine]:
    def build(name: str, **options: Any) -> Engine:
        target = load(name)
        draft = load_draft(random_draft(Path(target.name), **options)).model
        return Engine(target, ChainDrafter(draft, target.embedding))

    return build


def generated(target: Target, prompt: list[int], max_new_tokens: int, stop: int) -> list[int]:
    """The reply of transformers' own greedy ``generate``."""
    ids = torch.tensor([prompt])
    out = target.model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=stop,
        pad_token_id=0,
    )
    reply: list[int] = out[0, len(prompt) :].tolist()
    return reply


PROMPTS = {
    "stories260k": [[1, 403, 407], [1], [1, 300, 5, 77, 12, 450, 33]],
    "target_chain": [[0, 5], [7], [50, 3, 8]],
    "target_headdim": [[0, 5], [7], [50, 3, 8]],
    "target_softcap": [[0, 5], [7], list(range(40)) * 2],  # beyond its window of 64
}


@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_greedy_equals_plain_and_transformers_for_every_draft_length(
    name: str, engine: Callable[..., Engine]
) -> None:
    stop = 2 if name == "stories260k" else DONE
    for ids in (range(0, 64, 3), [stop]):
        built = engine(name, ids=ids, seed=1)
        for prompt in PROMPTS[name]:
            budget = 10
            plain = built.decode_plain(prompt, settings(stop_ids={stop}, max_new_tokens=budget))
            assert list(plain.tokens) == generated(built.target, prompt, budget, stop)
            for length in LENGTHS:
                chosen = settings(stop_ids={stop}, max_new_tokens=budget, num_draft_tokens=length)
                reply = built.decode(prompt, chosen, make_acceptor("greedy"))
                assert reply.tokens == plain.tokens
                assert reply.off_argmax == 0


@pytest.mark.parametrize("miss", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", sorted(PROMPTS))
def test_greedy_equals_plain_however_much_is_accepted(
    name: str, miss: float, load: Callable[[str], Target]
) -> None:
    target = load(name)
    for prompt in PROMPTS[name]:
        wanted = settings(stop_ids=frozenset(), max_new_tokens=18)
        plain = Engine(target).decode_plain(prompt, wanted)
        for length in (1, 3, 8):
            oracle = Oracle([*prompt, *plain.tokens], miss, target.vocab_size)
            chosen = settings(stop_ids=frozenset(), max_new_tokens=18, num_draft_tokens=length)
            reply = Engine(target, oracle).decode(prompt, chosen, make_acceptor("greedy"))
            assert reply.tokens == plain.tokens
            assert reply.rounds + sum(reply.accepted) == reply.emitted == 17
            if miss == 0.0:
                assert reply.accepted == reply.drafted
                assert reply.rounds == -(-17 // (length + 1))
            if miss == 1.0:
                assert set(reply.accepted) == {0}


@pytest.mark.parametrize("length", LENGTHS)
def test_replies_of_g20_end_at_their_stop_token(
    length: int, inputs: Path, words: Any, engine: Callable[..., Engine]
) -> None:
    expected = json.loads((inputs / "g20_greedy_expect.json").read_text())
    prompts = {text: words.encode(text) for text in expected["raw_prompts"]}
    answers = dict(expected["raw_prompts"])
    for line in (inputs / "g20_chat_prompts.jsonl").read_text().splitlines():
        chat = json.loads(line)["messages"]
        ids = words.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
        prompts[str(chat)], answers[str(chat)] = ids, expected["chat_prompt_any"]
    stop_drafts = {
        "done": [DONE],
        "grey": words.encode("grey"),
        "all": None,
    }
    acceptors = [
        make_acceptor("greedy"),
        make_acceptor("rejection"),
        make_acceptor("dropmatch", p_drop=0.0),
    ]
    for ids in stop_drafts.values():
        built = engine("target_chain", ids=ids)
        for key, prompt in prompts.items():
            for acceptor in acceptors:
                reply = built.decode(prompt, settings(num_draft_tokens=length), acceptor)
                assert words.convert_ids_to_tokens(list(reply.tokens)) == answers[key].split()


def test_drafted_tokens_behind_an_accepted_stop_token_count_for_nothing(
    words: Any, engine: Callable[..., Engine]
) -> None:
    built = engine("target_chain", ids=[DONE])
    prompt = words.encode("the cat")  # -> dog fox owl <|done|>
    reply = built.decode(prompt, settings(num_draft_tokens=8), make_acceptor("greedy"))
    assert reply.drafted == (8, 8, 1)
    assert reply.accepted == (0, 0, 1)
    assert reply.reasons == {"argmax": 1}
    assert (reply.rounds, reply.emitted) == (3, 3)


def test_a_prefill_token_that_stops_needs_no_round(
    words: Any, engine: Callable[..., Engine]
) -> None:
    reply = engine("target_chain").decode(words.encode("no"), settings(), make_acceptor("greedy"))
    assert (reply.tokens, reply.rounds, reply.emitted) == ((DONE,), 0, 0)


@pytest.mark.parametrize("budget", range(1, 8))
@pytest.mark.parametrize("length", LENGTHS)
def test_the_token_limit_is_exact_inside_a_block(
    budget: int, length: int, words: Any, load: Callable[[str], Target]
) -> None:
    target, prompt = load("target_chain"), words.encode("yes")
    oracle = Oracle(prompt * 40, 0.0, target.vocab_size)
    chosen = settings(max_new_tokens=budget, num_draft_tokens=length)
    reply = Engine(target, oracle).decode(prompt, chosen, make_acceptor("greedy"))
    assert list(reply.tokens) == prompt * budget
    assert reply.rounds == -(-(budget - 1) // (length + 1))


@pytest.mark.parametrize("length", LENGTHS)
def test_decoding_ends_where_the_context_ends(
    length: int, words: Any, engine: Callable[..., Engine]
) -> None:
    (yes,) = words.encode("yes")
    built = engine("target_chain", ids=[yes])
    for room in range(1, 6):
        prompt = [yes] * (128 - room)
        chosen = settings(max_new_tokens=50, num_draft_tokens=length)
        for reply in (
            built.decode(prompt, chosen, make_acceptor("greedy")),
            built.decode_plain(prompt, chosen),
        ):
            assert list(reply.tokens) == [yes] * room


def test_prompts_that_cannot_be_answered_are_refused(engine: Callable[..., Engine]) -> None:
    built = engine("target_chain")
    for prompt, said in (([], "empty"), ([0] * 128, "128 positions"), ([0, 64], "rows 0 to 63")):
        with pytest.raises(InputError, match=said):
            built.decode_plain(prompt, settings())


def test_the_shorter_context_of_target_and_draft_counts(load: Callable[[str], Target]) -> None:
    oracle = Oracle([], 0.0, 64)
    oracle.context_length = 40
    assert Engine(load("target_chain"), oracle).context_length == 40
    assert Engine(load("target_chain")).context_length == 128


def test_a_padding_id_from_the_target_is_decoded_without_a_crash(
    words: Any, engine: Callable[..., Engine]
) -> None:
    built = engine("target_chain")
    head = built.target.model.lm_head
    kept, head.bias = head.bias, torch.nn.Parameter(torch.zeros(64))
    head.bias.data[60] = 1e4  # a row past the 54 tokens of the tokenizer always wins
    try:
        reply = built.decode(words.encode("the cat"), settings(), make_acceptor("greedy"))
    finally:
        head.bias = kept
    assert reply.tokens == (60,) * 12
    assert isinstance(words.decode(list(reply.tokens)), str)


def test_acceptors_see_the_capped_logits_of_g18(
    inputs: Path, words: Any, load: Callable[[str], Target]
) -> None:
    case = json.loads((inputs / "g18_expect.json").read_text())
    seen: list[Verification] = []

    class Watch:
        name, lossless = "watch", True

        def begin(self, hidden: Tensor, head: Callable[[Tensor], Tensor], prompt: int) -> None:
            del hidden, head, prompt

        def accept(self, proposal: Proposal, view: Verification) -> Verdict:
            seen.append(view)
            return make_acceptor("greedy").accept(proposal, view)

    last = words.convert_tokens_to_ids(case["last_word"])
    oracle = Oracle([last] * 8, 0.0, 64)  # drafts that word, so row 1 is the target's view of it
    chosen = settings(stop_ids=frozenset(), max_new_tokens=4)
    Engine(load("target_softcap"), oracle).decode([0], chosen, Watch())
    law = torch.softmax(seen[0].logits[1], -1)
    for word, logit in case["capped_logits"].items():
        token = words.convert_tokens_to_ids(word)
        assert float(seen[0].logits[1, token]) == pytest.approx(logit, abs=1e-3)
        assert float(law[token]) == pytest.approx(case["probabilities"][word], abs=1e-5)


@pytest.mark.parametrize(
    ("chain", "verdict", "emitted", "drafted", "accepted"),
    [
        ([1, 2, 3], Verdict((0, 1, 2), 4, ("a", "b", "c")), [1, 2, 3, 4], 3, 3),
        ([1, 2, 3], Verdict((0,), 9, ("a",)), [1, 9], 3, 1),
        ([9, 2, 3], Verdict((0, 1, 2), 4, ("a", "b", "c")), [9], 1, 1),
        ([1, 9, 3], Verdict((0, 1), 4, ("a", "b")), [1, 9], 2, 2),
        ([9, 9, 9], Verdict((), 1, ()), [1], 3, 0),
        ([], Verdict((), 9, ()), [9], 0, 0),
    ],
)
def test_commit_cuts_at_the_first_stop_token(
    chain: list[int], verdict: Verdict, emitted: list[int], drafted: int, accepted: int
) -> None:
    sequence = SequenceState([5], prompt_length=1, prompt=0, reply_end=99, aux=torch.zeros(1, 1, 3))
    flat = torch.zeros(len(chain), 16)
    proposal = Proposal(torch.tensor(chain, dtype=torch.long), None, flat, torch.arange(16))
    assert sequence.commit(proposal, verdict, Stops(frozenset({9}), (), None)) == emitted
    assert sequence.tokens == [5, *emitted]
    assert (sequence.drafted, sequence.accepted) == ([drafted], [accepted])
    assert sequence.stopped == (emitted[-1] == 9)
    assert sum(sequence.reasons.values()) == accepted


def within_five_sigma(counts: Counter[int], law: Tensor, draws: int) -> bool:
    sigma = (law * (1 - law) / draws).sqrt()
    seen = torch.tensor([counts[i] for i in range(len(law))]) / draws
    return bool(((seen - law).abs() <= 5 * sigma + 1e-9).all())


def test_the_law_of_g22_is_kept_by_the_whole_engine(
    inputs: Path, words: Any, engine: Callable[..., Engine]
) -> None:
    case = json.loads((inputs / "g22_maybe.json").read_text())
    law = torch.zeros(64)
    for word, share in case["law"].items():
        law[words.convert_tokens_to_ids(word)] = share
    built, prompt = engine("target_chain"), words.encode(case["prompt"])
    acceptor = exact_acceptor(case["temperature"], 0)
    chosen = settings(temperature=case["temperature"], max_new_tokens=case["max_new_tokens"])
    counts = Counter(
        built.decode(prompt, chosen, acceptor, prompt=i).tokens[0] for i in range(case["draws"])
    )
    assert within_five_sigma(counts, law, case["draws"])


@pytest.mark.parametrize(
    ("ids", "draws"),
    [
        pytest.param(range(0, 54, 2), 300, id="trimmed, few"),
        pytest.param(range(0, 54, 2), 4000, id="trimmed", marks=pytest.mark.slow),
        pytest.param(None, 4000, id="full", marks=pytest.mark.slow),
        pytest.param([20], 4000, id="one token", marks=pytest.mark.slow),
    ],
)
def test_tokens_that_went_through_drafting_keep_the_law_too(
    ids: Any, draws: int, words: Any, engine: Callable[..., Engine]
) -> None:
    """At temperature 12 every word follows every word, with a known law of the last word."""
    built, hot = engine("target_chain", ids=ids, seed=3), 12.0
    prompt = words.encode("maybe")
    with torch.inference_mode():
        states = built.target.forward(torch.arange(64)[:, None])
        step = torch.softmax(built.target.logits(states.hidden[:, 0]) / hot, dim=-1)
    chosen = settings(temperature=hot, max_new_tokens=3, num_draft_tokens=2, stop_ids=frozenset())
    acceptor = exact_acceptor(hot, 5)
    second, third = Counter[int](), Counter[int]()
    accepted = 0
    for i in range(draws):
        reply = built.decode(prompt, chosen, acceptor, prompt=i)
        second[reply.tokens[1]] += 1
        third[reply.tokens[2]] += 1
        accepted += sum(reply.accepted)
    assert accepted > 20
    assert within_five_sigma(second, (step @ step)[prompt[-1]], draws)
    assert within_five_sigma(third, (step @ step @ step)[prompt[-1]], draws)


def test_a_generation_depends_on_seed_and_prompt_index_only(
    words: Any, engine: Callable[..., Engine]
) -> None:
    built, prompt = engine("target_chain"), words.encode("maybe")
    hot = settings(temperature=8.0, stop_ids=frozenset())
    acceptor = exact_acceptor(8.0, 0)
    replies = [built.decode(prompt, hot, acceptor, prompt=i).tokens for i in (0, 1, 0)]
    assert replies[0] == replies[2] != replies[1]


def test_every_phase_has_its_time(words: Any, engine: Callable[..., Engine]) -> None:
    built = engine("target_chain")
    reply = built.decode(words.encode("one"), settings(), make_acceptor("greedy"))
    assert list(reply.seconds) == ["prefill", "draft", "verify", "accept", "other"]
    assert reply.decode_seconds == pytest.approx(
        sum(reply.seconds.values()) - reply.seconds["prefill"]
    )


@pytest.mark.parametrize(
    "change",
    [
        {"max_new_tokens": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"num_draft_tokens": -1},
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        settings(**change)
