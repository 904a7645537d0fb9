from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vtrim.chat.conversation import Origin, conversation_of
from vtrim.chat.preview import Piece, preview_of, visible
from vtrim.chat.render import Renderer

MADE = ["a", "é", "漢", "🙂", " ", "  ", "\n", "\t", "½", "<|im_end|>", "e\u0301", "word 12"]
TEXTS = st.lists(st.sampled_from(MADE), max_size=9).map("".join)


def texts(pieces: tuple[Piece, ...], kind: str) -> list[str]:
    """The text of each run of pieces of a kind."""
    runs: list[str] = []
    before = None
    for piece in pieces:
        if piece.kind == kind:
            runs += [piece.text] if before != kind else []
            runs[-1] += piece.text if before == kind else ""
        before = piece.kind
    return runs


def test_the_pieces_say_what_is_prompt_and_what_is_counted(bpe: Callable, talk: Callable) -> None:
    row = talk(("user", "q"), ("assistant", "one"), ("user", "r"), ("assistant", "two"))
    found = preview_of(Renderer(bpe("llama3", "chatml")), row)
    [sample] = found.samples
    assert sample.pieces == (
        Piece("<|im_start|>", "prompt", True),
        Piece("user\nq", "prompt", False),
        Piece("<|im_end|>", "prompt", True),
        Piece("\n", "prompt", False),
        Piece("<|im_start|>", "prompt", True),
        Piece("assistant\n", "prompt", False),
        Piece("one", "counted", False),
        Piece("<|im_end|>", "counted", True),
        Piece("\n", "prompt", False),
        Piece("<|im_start|>", "prompt", True),
        Piece("user\nr", "prompt", False),
        Piece("<|im_end|>", "prompt", True),
        Piece("\n", "prompt", False),
        Piece("<|im_start|>", "prompt", True),
        Piece("assistant\n", "prompt", False),
        Piece("two", "counted", False),
        Piece("<|im_end|>", "counted", True),
        Piece("\n", "prompt", False),
    )
    assert found.skipped is None


@pytest.mark.parametrize("split", ["llama3", "o200k", "gpt2"])
@pytest.mark.parametrize("template", ["chatml", "trimmed", "think", "bare", "spaced"])
@given(user=TEXTS, reply=TEXTS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_pieces_of_a_sample_are_its_text_and_its_numbers_those_of_its_mask(
    bpe: Callable, talk: Callable, split: str, template: str, user: str, reply: str
) -> None:
    renderer = Renderer(bpe(split, template))
    row = talk(("user", user), ("assistant", reply))
    for sample, masked in zip(preview_of(renderer, row).samples, renderer.masked(row), strict=True):
        assert "".join(piece.text for piece in sample.pieces) == masked.text
        assert sample.num_counted == masked.mask.sum()
        assert sample.num_tokens == masked.ids.size


@pytest.mark.parametrize("split", ["llama3", "gpt2"])
def test_recorded_ids_that_are_parts_of_characters_give_whole_ones(
    bpe: Callable, split: str
) -> None:
    tokenizer = bpe(split, "chatml")
    text = "<|im_start|>naïve 漢字 🙂👩‍💻 ½<|im_end|> the \n end"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    row = {"input_ids": ids, "loss_mask": [0] * 3 + [1] * (len(ids) - 3)}
    [sample] = preview_of(
        Renderer(tokenizer), conversation_of(row, Origin("made.jsonl", 1))
    ).samples
    assert "".join(piece.text for piece in sample.pieces) == text
    assert (sample.rule, sample.num_counted) == ("recorded", len(ids) - 3)


def test_a_cut_character_at_the_end_of_recorded_ids_is_shown_as_one_sign(bpe: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    ids = tokenizer("a🙂", add_special_tokens=False)["input_ids"][:-1]
    row = {"input_ids": ids, "loss_mask": [1] * len(ids)}
    [sample] = preview_of(
        Renderer(tokenizer), conversation_of(row, Origin("made.jsonl", 1))
    ).samples
    assert sample.pieces[0].text.startswith("a\ufffd")


def test_tokens_beyond_the_limit_are_cut_and_not_counted(bpe: Callable, talk: Callable) -> None:
    tokenizer = bpe("llama3", "chatml")
    whole = preview_of(Renderer(tokenizer), talk(("user", "q"), ("assistant", "the the the")))
    limit = whole.samples[0].num_tokens - 3
    row = talk(("user", "q"), ("assistant", "the the the"))
    [sample] = preview_of(Renderer(tokenizer, max_length=limit), row).samples
    assert texts(sample.pieces, "counted") == ["the the"]
    assert texts(sample.pieces, "cut") == [" the<|im_end|>\n"]
    assert (sample.num_tokens, sample.num_counted) == (limit, whole.samples[0].num_counted - 2)


def test_a_token_that_reaches_into_the_reply_is_straddling(bpe: Callable, talk: Callable) -> None:
    renderer = Renderer(bpe("llama3", "chatml"))
    [sample] = preview_of(renderer, talk(("user", "q"), ("assistant", "\n\n# a"))).samples
    assert texts(sample.pieces, "straddling") == ["\n\n\n"]
    assert texts(sample.pieces, "counted") == ["# a<|im_end|>"]
    assert renderer.straddling == 0  # a preview adds nothing to the tallies


@pytest.mark.parametrize(
    ("template", "rule"), [("chatml", "render boundary"), ("marked", "generation marks")]
)
def test_a_sample_says_which_rule_made_its_mask(
    bpe: Callable, talk: Callable, template: str, rule: str
) -> None:
    renderer = Renderer(bpe("llama3", template))
    assert preview_of(renderer, talk(("user", "q"), ("assistant", "a"))).samples[0].rule == rule
    text = "<|im_start|>assistant\na<|im_end|>"
    rendered = conversation_of({"text": text}, Origin("made.jsonl", 1))
    assert preview_of(renderer, rendered).samples[0].rule == "rendered text"


def test_a_conversation_that_cannot_be_used_says_why(bpe: Callable, talk: Callable) -> None:
    refused = preview_of(Renderer(bpe("llama3", "alternating")), talk(("assistant", "hi")))
    assert refused.samples == ()
    assert "roles must alternate" in str(refused.skipped)
    short = Renderer(bpe("llama3", "chatml"), max_length=3)
    assert preview_of(short, talk(("user", "q"), ("assistant", "a"))).skipped == (
        "no reply token within --max-length 3"
    )
    alone = Renderer(bpe("llama3", "chatml"))
    assert preview_of(alone, talk(("user", "q"))).skipped == "no reply token"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "a↵\nb"),
        ("a\tb\r\x1b[31m\x00", "a␉b␍␛[31m␀"),
        ("\x7f\x85\u202e\ufeff\u2028", "\\u{7f}\\u{85}\\u{202e}\\u{feff}\\u{2028}"),
        ("👩‍💻 é 漢", "👩‍💻 é 漢"),
    ],
)
def test_control_characters_are_made_visible(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize("name", ["deepseek_v3", "gemma3", "llama3_1", "qwen3", "smollm2"])
def test_the_pieces_of_a_real_sample_are_its_text(
    big_tokenizers: Callable[[str], Any], name: str, talk: Callable
) -> None:
    renderer = Renderer(big_tokenizers(name))
    row = talk(("user", "  x  \n\n"), ("assistant", "naïve  漢字 🙂👩‍💻\n\n  ½ e\u0301 "))
    [sample] = preview_of(renderer, row).samples
    [masked] = renderer.masked(row)
    assert "".join(piece.text for piece in sample.pieces) == masked.text
    assert "漢字 🙂👩‍💻" in "".join(texts(sample.pieces, "counted"))
