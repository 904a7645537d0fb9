"""The words of docs/results/training.md."""

from __future__ import annotations

from collections.abc import Mapping

INTRODUCTION = """
# What raises accepted length per CPU second

SmolLM2-135M, an EAGLE-3 draft, one core. Every row below is one draft: trained for the same CPU
seconds on the same replies, then decoded greedily (chains of 3, 24 prompts that no data set here
holds, 64 tokens each, bf16). *Decoded acceptance length* is tokens a round, the target's own
included.

## The recipe against EAGLE parity and against the full vocabulary

90 CPU seconds of training, target states cached before; 157,000 reply tokens that the target wrote
at temperature 0.7. *The recipe*: Muon 0.04 (AdamW 3e-3 for head and norms), 8 conversations a step,
3 unroll steps, exact chain mask, divisor rows, head from the target, k 4,096. *EAGLE parity* is the
same with `--mask-alignment eagle --divisor bt --head random`; *full vocabulary* the same with
`--vocab full`.
"""

CHANGES = """
## One change at a time

The same budget, one seed; differences below about 0.02 are within what another seed gives.
*Greedy replies*: the same target and prompts at temperature 0; their joint prefix is of other
held-out rows.
"""


def lessons(tau: Mapping[str, str]) -> str:
    """What the rows say; tau: decoded length of each row."""
    return f"""
- **Steps count at this budget.** Whatever makes a step cheaper buys more of them: k 2,048
  ({tau["k2048"]}) beats 4,096 ({tau["base42"]}) although it covers less; 2 unroll steps give
  {tau["ttt2"]}, 1 gives {tau["ttt1"]}, 3 give {tau["base42"]} and 5 give {tau["ttt5"]}.
- **Replies at temperature 0** are easier to learn and nearer to greedy decoding than those at 0.7
  ({tau["t0"]} against {tau["base42"]}). More of them (240,000 tokens: {tau["t0more"]}) gave
  more, half as many at 0.7 ({tau["tok80"]}) no less: 90 seconds see fewer tokens than either holds.
- **Muon's rate**: 0.08 and 0.16 lead at 90 seconds ({tau["muon08"]}, {tau["muon16"]}), 0.02 trails
  ({tau["muon02"]}). With three times the training 0.08 did not lead (below; that row saw a fifth
  fewer tokens on a busier machine, so it decides little). 0.04 stays.
- **AdamW** at 3e-3 ({tau["adam3"]}) is close to Muon after 90 seconds, at 1e-3 behind
  ({tau["adam1"]}; it takes more steps in the time: Muon's orthogonalisation is a fifth of a step
  here); at three times the tokens Muon is ahead ([decisions](../decisions.md)).
- **A frozen head** ({tau["frozen"]}) costs nothing here: it saves the head's gradient and its
  optimiser state. A random one gives {tau["headrandom"]}.
- 4 conversations a step instead of 8 give {tau["mb4"]}; the loss lk-lambda ({tau["lklambda"]}) is
  level with soft cross-entropy.
- The mask one row early, the divisor and a random head together cost about 0.02 (first table).
- Starting the draft's layer by regression on target states did not pay
  ([decisions](../decisions.md))."""


MONEY = """
## Acceptance for the money

The point to beat was a sketch's (measured elsewhere, on a Xeon with AMX): 157,000 reply tokens of
the target at temperature 0.7, 520 CPU seconds on one core including the target's states, decoded
greedy acceptance length 1.53 at chains of 3 (by position 0.36, 0.13, 0.05).
"""

PASSED = """
One seed each, the recipe otherwise. The first row was measured some commits before the second, both
before samples went through the target one by one on a CPU. So the sketch is passed, by little.

With greedy replies instead, and with more time (one seed each; the first two rows' states lay in
the store):
"""

REPRODUCE = """
The last row's states took another 346 s for what the store did not hold (all of them: about 1,000 s
at the rate above), so it stands for somewhat more than an hour of one core. The aims of 1.8 in the
sketch's time and 2.3 in an hour are not reached.

## Again on your machine

`benchmarks/training/study.py` measures one row and prints it; the rows here lie in
`benchmarks/results/training.json`, from which `benchmarks/results/training_page.py` writes this
page. The replies are `vtrim regenerate recipes/demo/prompts.jsonl --temperature 0.7 --seed 1
--max-new-tokens 256` (its first 1,298 rows; for *greedy replies* at temperature 0), the prompts
decoded `recipes/demo/heldout_prompts.jsonl`. CPU seconds were counted on a machine that ran other
work, which costs some per cent of speed, not the same for every row.
"""
