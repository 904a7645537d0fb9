"""Writes docs/results/dropmatch.md.

python benchmarks/results/dropmatch.py a.jsonl b.jsonl   # folds rows of dropmatch_run.py first
python benchmarks/results/dropmatch.py [--out FILE]      # from the rows folded before
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import dropmatch_tables as tables
from dropmatch_record import fold, unfold
from dropmatch_rows import Measured, read
from dropmatch_sets import CRITERIA, HEADS, P_DROPS, SETS, rules_of
from tabular import page_of

HERE = Path(__file__).resolve().parent
RECORD = HERE / "dropmatch.json"


def main() -> None:
    """Folds new rows where files are named, then writes the page; refuses files without rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, nargs="*", help="files of dropmatch_run.py")
    page_file = HERE.parents[1] / "docs" / "results" / "dropmatch.md"
    parser.add_argument("--out", type=Path, default=page_file)
    options = parser.parse_args()
    if options.rows:
        RECORD.write_text(fold([read(path) for path in options.rows]), encoding="utf-8")
    options.out.write_text(page(recorded()), encoding="utf-8")
    sys.stderr.write(f"{options.out}\n")


def recorded() -> list[Measured]:
    """The rows folded before, a drafter each."""
    return unfold(json.loads(RECORD.read_text(encoding="utf-8")))


def page(measured: Sequence[Measured]) -> str:
    """The whole page as Markdown; every number comes from the rows or from the paper."""
    parts = [
        introduction(measured),
        DIFFERENCES,
        *(summary(one) for one in measured),
        f"## Do the heads agree? (Table 2)\n\n{VOTES}\n\n{tables.votes_table(measured)}",
        f"## How far the laws lie (Table 3)\n\n{DIVERGENCE}\n\n{tables.divergence_table(measured)}",
        f"## What acceptance costs (Table 4)\n\n{CYCLE}\n\n{tables.cycle_table(measured)}",
        f"## What it adds (Tables 6 and 7)\n\n{GAIN}\n\n{tables.gain_table(measured)}",
        f"## Out of the draft's domain (Table 10)\n\n{FOREIGN}\n\n{tables.foreign_table(measured)}",
        *(f"## Every set: {one.title}\n\n{tables.set_tables(one)}" for one in measured),
        REPRODUCE,
    ]
    return page_of(parts)


def introduction(measured: Sequence[Measured]) -> str:
    """What was measured on what."""
    first = measured[0].facts
    sets = ", ".join(SETS[name].title for name in measured[0].sets)
    drafters = "\n".join(f"- *{one.title}*: {one.facts['drafter']['told']}" for one in measured)
    length = first["num_draft_tokens"]
    noises = ", ".join(str(p) for p in P_DROPS)
    return f"""# Results: DropMatch on a small target

{first["target"]} (135 M parameters), {first["dtype"]}, greedy, chains of {length} drafted tokens,
at most {first["tokens"]} tokens a reply, {first["forward"]} forward, one thread of
{first["processor"]}, torch {first["torch"]}, vtrim {first["vtrim"]}.
Prompts: the first rows of {sets}; the column
*prompts* says how many. Rules: plain decoding, exact (greedy) matching, and DropMatch's
{", ".join(CRITERIA)} at p {noises} with {HEADS} heads. All rules of a prompt were decoded one after
the other, their order turning from prompt to prompt. Times are CPU time of the one-threaded
process, so what else runs on the machine counts less; the prefill, and with it the choice of p
under `auto`, is left out.

{drafters}

*Tokens/round*: emitted tokens per target forward, the target's own included. *Speed-up*: over
plain decoding of the same prompts in the same process; *over greedy*: over exact matching with the
same draft. *Off arg-max*: emitted tokens that are not the target's own choice after the text before
them; *log p change*: mean log p of the emitted tokens less that of plain decoding's [nats]; *same
as plain*: share of a reply before it first leaves plain decoding's (in bf16, ties between batch
shapes part exact matching from it too). *Acceptance*: its share of the rounds' time. **A speed-up
of a rule with drift is no gain by itself**: the text is another one."""


DIFFERENCES = """
## What differs from the paper

- The target has 135 M parameters, not 70 B; its heads agree far less under the same noise, so the
  paper's p 0.3 is shown beside smaller ones and beside `auto` (the most noise at which the heads
  still choose the clean arg-max at 90 % of the prompt's last 64 positions; chosen for each prompt
  alone).
- The drafts are a chain of a small EAGLE-3 draft trained on one core and the target itself with
  blocks left out; the paper has an 8B model and EAGLE-3 trees.
- One CPU core at batch 1, not four A100; replies are cut, so no task score is given. The paper's
  Table 1 (score of single heads) is therefore not repeated; the share of heads at the clean
  arg-max stands for it.
- Prompts: MGSM (de, zh, ja) stands for KoMT-Bench as text out of the draft's domain. HumanEval
  prompts are asked as a chat turn.
- After a rejection the target's clean arg-max is emitted and a token equal to it is always kept;
  the paper says neither.
"""

VOTES = (
    "Share of judged positions by the number of heads that share the most frequent arg-max, on "
    "HumanEval (Algorithm 1, K 5), and the centroid's mean probability of that token."
)
DIVERGENCE = (
    "Mean Jensen-Shannon divergence [nats] to the centroid on HumanEval, by what Algorithm 1 said: "
    "accepted by JS, by majority, as the clean arg-max, or rejected. The paper gives one number "
    "for the heads; the rule compares with the farthest one."
)
CYCLE = (
    "Share of the rounds' time over all sets, DropMatch at p 0.3 and K 5 (the share depends little "
    "on p). The paper's shares are of a 70B's forward on four GPUs."
)
GAIN = (
    "The same draft with and without DropMatch. *Time ratio*: tokens per second over exact "
    "matching. The paper's rows are at its own L; it reports task scores, not drift."
)
FOREIGN = (
    "The drafts here have seen English text mostly; so has the target, whose own replies in these "
    "languages are poor. *Off arg-max there*: of naive at auto, of naive and of full at p 0.3."
)
REPRODUCE = """
## Again on your machine

    export OMP_NUM_THREADS=1
    python benchmarks/results/dropmatch_run.py --draft vtrim-run/draft --out a.jsonl
    python benchmarks/results/dropmatch_run.py --skip-layers LAYERS --out b.jsonl
    python benchmarks/results/dropmatch.py a.jsonl b.jsonl

Each generation is written as it ends; the same call goes on where it was stopped. The last call
keeps what the page needs in `benchmarks/results/dropmatch.json`; without files it writes the page
from there.
"""


def summary(measured: Measured) -> str:
    """All sets together."""
    rules = rules_of("mt_bench")  # those that all sets have
    return f"""## {measured.title}: all sets together

{tables.rule_table(measured, measured.sets, rules)}"""


if __name__ == "__main__":
    main()
