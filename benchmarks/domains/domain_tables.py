"""The tables of docs/results/domains.md as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from domain_measured import LATENCY, LENGTH, SPEEDUP, THROUGHPUT, TITLES, Cell, Measured, Quantity
from tabular import DIFFERS, between, change, change_between, number, percent, prose, table

# arXiv:2603.05210: k, change in latency, in throughput, in accepted length, what differs there
PAPER = {
    "general": (
        "13,264 of 128,256", "-", "+2.2 to +6.7 %", "not known",
        "Llama-3.1-8B on an A100 in SGLang; five benchmarks outside the counted data; "
        "drafts of Open-PerfectBlend",
    ),
    "tools": ("4,380 of 128,256", "-9.1 %", "+10.0 %", "not known", "the same; data not known"),
    "ner": ("6,521 of 128,256", "-16.4 %", "+19.6 %", "unchanged", "the same; data not known"),
}  # fmt: skip

REPRODUCE = """
## Again on your machine

    python benchmarks/domains/prepare.py ../shared/data DIR
    vtrim regenerate DIR/DOMAIN/prompts.jsonl -o DIR/DOMAIN/replies.jsonl --target smollm2 \\
        --max-new-tokens N   # general 160, tools 128, ner 96
    python benchmarks/domains/run.py train DIR
    python benchmarks/domains/run.py eval DIR
    python benchmarks/domains/page.py DIR

`page.py DIR` folds the runs into `benchmarks/results/domains.json`; without DIR it writes this page
from that file.
"""


def introduction(measured: Measured) -> str:
    """What was measured on what."""
    facts = measured.facts
    cells = {name: measured.cell(name, measured.vocabs(name)[0]) for name in measured.domains}
    prompts = ", ".join(f"{cell.num_prompts} ({TITLES[name]})" for name, cell in cells.items())
    repeats = max(len(cell.repeats) for cell in cells.values())
    one = next(iter(measured.drafts.values()))
    told = f"""The paper's question (arXiv:2603.05210): what does a draft with k* tokens decode
like against the same draft with the whole vocabulary? {facts["target"]} (135 M parameters),
{facts["dtype"]}, {facts["forward"]} forward, threads: {facts["threads"]}, {facts["acceptor"]}
acceptance, chains of {facts["num_draft_tokens"]} drafted tokens, at most
{facts["max_new_tokens"]} tokens a reply, batch {facts["batch_size"]}, vtrim {facts["vtrim"]}, torch
{facts["torch"]}. k* is what `vtrim search --alpha {one["alpha"]:g} --cmin {one["cmin"]:g}` gave on
a domain's replies, which the target wrote itself. All drafts of a domain were trained on the same
replies in the same order, for as many passes, with the same settings; only the vocabulary differs.

Prompts: the demo's own (general chat), BFCL rows whose prompt has at most 1,200 characters
(function calling), sentences of CrossNER, WNUT17 and wikigold (NER). So small a
target seldom writes the calls or lists it is asked for: a domain here is what it says to such
prompts.

Held-out prompts: {prompts}. Each draft decoded its domain's in {repeats} processes, one process at
a time, the drafts' order turned from repeat to repeat; in each process plain decoding and the draft
took turns. {CLOCKS[facts["clock"]]} *Latency*: time of the rounds for each token they gave;
*throughput* its inverse; prefill left out of both. *Accepted length*: tokens a round, the target's
own included. Times of a prompt are medians over the repeats. **Intervals**: 95 %, paired bootstrap
over prompts (the same prompts are drawn for both sides of a comparison). The machine ran other work
meanwhile, so the *speed-up over plain decoding in the same process* is the steadier measure."""
    return f"# Results: a trimmed vocabulary in three domains\n\n{prose(told)}"


CLOCKS = {
    "cpu": "Times are CPU time of the process: with one thread what an idle machine takes.",
    "wall": "Times are wall-clock times.",
}


def gain_table(measured: Measured) -> str:
    """k* against the whole vocabulary, beside the paper's rows."""
    columns = ["domain", "", "k", "latency a token", "throughput", "speed-up over plain", "p"]
    columns += ["accepted length", DIFFERS]
    rows = []
    for domain in measured.domains:
        k, latency, throughput, length, differs = PAPER[domain]
        rows.append([TITLES[domain], "paper", k, latency, throughput, "-", "-", length, differs])
        found = measured.compared(domain, "own")
        if found is not None:
            cells = [
                f"{change(found.change(of))} ({change_between(found.bounds(of))})"
                for of in (LATENCY, THROUGHPUT, SPEEDUP, LENGTH)
            ]
            size = f"{measured.size(domain, 'own'):,} of {measured.total(domain):,}"
            cells.insert(3, p_value(found.p_value(SPEEDUP)))
            rows.append([TITLES[domain], "here", size, *cells, OURS])
    return f"""## k* against the whole vocabulary

{table(columns, rows, words=2)}

Change of the trimmed draft against the whole-vocabulary draft of the same domain, with 95 %
intervals. *p*: how often chance alone would give such a difference of the speed-up over plain
decoding (paired permutation of prompts)."""


def p_value(value: float | None) -> str:
    """0.0312 -> 0.031."""
    if value is None:
        return "-"
    return "< 0.001" if value < 0.001 else number(value, 3)


OURS = (
    "a 135 M target on one CPU core, vtrim's own loop; drafts trained briefly; prompts held out of "
    "the same data"
)


def length_table(measured: Measured) -> str:
    """Every draft on its domain."""
    columns = ["domain", "vocabulary", "k", "accepted length", "95 %", "by position"]
    columns += ["ms a token", "95 %", "tokens/s", "95 %", "speed-up over plain", "95 %"]
    columns += ["drafting's share"]
    rows = []
    for domain in measured.domains:
        for vocab in measured.vocabs(domain):
            cell = measured.cell(domain, vocab)
            size = f"{measured.size(domain, vocab):,}"
            rows.append([TITLES[domain], named(vocab), size, *_numbers(cell)])
    return f"""## Every draft on its domain's held-out prompts

{table(columns, rows, words=2)}"""


def named(vocab: str) -> str:
    """A vocabulary in words."""
    return {"full": "whole", "own": "its own k*", "general": "general chat's k*"}[vocab]


def _numbers(cell: Cell) -> list[str]:
    positions = ", ".join(number(share) for share in cell.repeats[0]["by_position"])
    cells = [number(cell.value(LENGTH), 3), between(cell.bounds(LENGTH)), positions]
    digits: Sequence[tuple[Quantity, int]] = ((LATENCY, 1), (THROUGHPUT, 1), (SPEEDUP, 2))
    for of, places in digits:
        cells += [number(cell.value(of), places), between(cell.bounds(of), places)]
    return [*cells, percent(cell.mean_share("draft"))]


def general_table(measured: Measured) -> str:
    """The general vocabulary in the other domains; nothing where it was not measured."""
    columns = ["domain", "against", "k", "C of held-out replies", "throughput"]
    columns += ["speed-up over plain", "accepted length"]
    rows = []
    for domain in measured.domains:
        for other in ("full", "own"):
            found = measured.compared(domain, "general", other)
            if found is None:
                continue
            sizes = [measured.size(domain, vocab) for vocab in ("general", other)]
            cells = [
                f"{change(found.change(of))} ({change_between(found.bounds(of))})"
                for of in (THROUGHPUT, SPEEDUP, LENGTH)
            ]
            shares = [
                percent(measured.draft(domain, vocab)["heldout_coverage"], 2)
                for vocab in ("general", other)
            ]
            against = f"{sizes[0]:,} against {sizes[1]:,}", " against ".join(shares)
            rows.append([TITLES[domain], named(other), *against, *cells])
    if not rows:
        return ""
    return f"""## General chat's vocabulary in the other domains

The draft is trained on the domain's replies; its vocabulary is the one that general chat's replies
gave.

{table(columns, rows, words=2)}"""


def draft_table(measured: Measured) -> str:
    """How each draft came to be."""
    columns = ["domain", "vocabulary", "k", "reply tokens", "C", "C held out", "steps"]
    columns += ["tokens seen", "training", "held-out joint prefix", "out of vocabulary"]
    rows = []
    for domain in measured.domains:
        for vocab in measured.vocabs(domain):
            one = measured.draft(domain, vocab)
            shares = [percent(one[name], 2) for name in ("coverage", "heldout_coverage")]
            counts = [f"{one['steps']:,}", f"{one['tokens']:,}", f"{one['seconds']:,.0f} s"]
            last = [number(one["heldout_joint_prefix"], 3), percent(one["oov_share"], 2)]
            head = [TITLES[domain], named(vocab), f"{one['k']:,}", f"{one['reply_tokens']:,}"]
            rows.append([*head, *shares, *counts, *last])
    return f"""## The drafts

{table(columns, rows, words=2)}

*C*: share of the domain's reply tokens in the vocabulary, on all replies (in sample for its own k*)
and on the held-out 5 % of conversations. *Joint prefix*: the training side's estimate of the
accepted length. Training seconds are of a machine that others used."""


def prediction_table(measured: Measured) -> str:
    """What the cost model foretold, against the time that was taken."""
    columns = ["domain", "vocabulary", "k", "FLOPs of a draft token saved, R(k)"]
    columns += ["drafting time saved a round", "C(k) of held-out replies", "accepted length"]
    columns += ["speed-up foretold, equal length", "foretold, measured length", "measured"]
    rows = []
    for domain in measured.domains:
        for vocab in measured.vocabs(domain):
            found = measured.compared(domain, vocab)
            if found is None or vocab == "full":
                continue
            one = measured.draft(domain, vocab)
            saved = one["flops_per_row"] * (one["target_vocab_size"] - one["k"]) / one["flops_full"]
            times = [drafting(cell) for cell in (found.one, found.other)]
            lengths = [cell.value(LENGTH) for cell in (found.one, found.other)]
            faster = 1 / (1 - found.other.mean_share("draft") * saved)
            cells = [percent(saved), percent(1 - times[0] / times[1])]
            cells += [percent(one["heldout_coverage"]), change(found.change(LENGTH))]
            cells += [change(faster - 1), change(faster * lengths[0] / lengths[1] - 1)]
            cells.append(change(found.change(SPEEDUP)))
            rows.append([TITLES[domain], named(vocab), f"{one['k']:,}", *cells])
    return f"""## Foretold and measured

{table(columns, rows, words=2)}

R(k) and C(k) are the two terms of `vtrim search`'s utility. *Drafting time* is taken as a multiple
of a plain token's in the same process. *Foretold*: the whole-vocabulary draft's round with R(k)
less drafting time, with as many tokens a round as it or as the trimmed draft really had. C(k)
bounds the acceptance rate on the target's own replies: a draft cannot be right about a token that
it cannot say. Accepted length can rise all the same: fewer tokens to tell apart are easier to
learn."""


def drafting(cell: Cell) -> float:
    """Time of drafting in a round, in plain tokens of the same processes."""
    columns = cell.columns
    token = columns["plain_seconds"].sum() / columns["plain_emitted"].sum()
    seconds = cell.mean_share("draft") * columns["seconds"].sum() / columns["rounds"].sum()
    return float(seconds / token)


def noise_table(measured: Measured) -> str:
    """What the same plain decoding gave in all processes of a domain."""
    columns = ["domain", "processes", "plain tokens/s, slowest", "median", "fastest"]
    columns += ["prompts with other rounds in a repeat"]
    rows = []
    for domain in measured.domains:
        cells = [measured.cell(domain, vocab) for vocab in measured.vocabs(domain)]
        speeds = [
            sum(one["plain_emitted"]) / sum(one["plain_seconds"])
            for cell in cells
            for one in cell.repeats
        ]
        spread = [number(float(q), 1) for q in np.quantile(speeds, (0, 0.5, 1))]
        changed = ", ".join(str(cell.changed_replies) for cell in cells)
        rows.append([TITLES[domain], str(len(speeds)), *spread, changed])
    return f"""## Noise of the machine

{table(columns, rows)}

The same work by the same code: what plain decoding differs by between processes, a comparison of
latencies can differ by too. The speed-up over plain decoding does not have this part."""
