"""What raises the accepted length of a draft per CPU second? One row of the study a call.

    python study.py optimizer=muon muon_lr=0.04 k=4096 tokens=157000 --cpu 120 \
        --data replies.jsonl --store DIR --prompts prompts.jsonl

The step, the data plan, the optimiser (DeepSpeed's engine) and the decoding are vtrim's own; only
the loop is short, so that the budget can be CPU seconds of training, whatever else the machine
does. Target states come from the feature store (its cost is printed apart). ``settings`` are
fields of TrainSettings; ``k`` and ``tokens`` (reply tokens of the data that are used) besides.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vtrim.chat.render import Renderer
from vtrim.decoding.acceptors.greedy import Greedy
from vtrim.decoding.chain import ChainDrafter
from vtrim.decoding.engine import Engine
from vtrim.decoding.generation import GenerationSettings
from vtrim.models.draft import Eagle3Draft
from vtrim.models.hub import load_config, load_tokenizer
from vtrim.models.layout import draft_config, save_draft
from vtrim.models.target import Target, load_target
from vtrim.shape import DraftShape
from vtrim.training.batch import TrainSample
from vtrim.training.data import Split
from vtrim.training.ds_config import deepspeed_config
from vtrim.training.feeder import Feeder
from vtrim.training.heldout import evaluate
from vtrim.training.init import new_draft
from vtrim.training.launch import join_group
from vtrim.training.optimizer import Rates, make_engine
from vtrim.training.schedule import Schedule
from vtrim.training.settings import TrainSettings
from vtrim.training.states import OnlineStates
from vtrim.training.store import FeatureStore
from vtrim.training.store_source import DiskStates
from vtrim.training.teacher import Teacher
from vtrim.training.ttt import TTTModel, step_coefficients
from vtrim.vocab import DraftVocab

HELDOUT, DRAFTED, NEW_TOKENS = 48, 3, 64
RECIPE = {
    "ttt_steps": 3, "optimizer": "muon", "muon_lr": 0.04, "learning_rate": 3e-3, "warmup": 0.05,
    "micro_batch": 8, "eval_samples": HELDOUT, "dtype": "bf16", "max_length": 1024,
}  # fmt: skip


def read_samples(paths: list[Path], tokens: int) -> Split:
    """Recorded replies (``vtrim regenerate``), shuffled: some held out, then up to ``tokens``."""
    rows: list[tuple[Any, Any]] = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            mask = np.array(row["loss_mask"], dtype=np.bool_)
            if mask.sum() >= 3:
                rows.append((np.array(row["input_ids"], dtype=np.int64), mask))
    order = np.random.default_rng(7).permutation(len(rows))
    heldout = [TrainSample(*rows[j], index) for index, j in enumerate(order[:HELDOUT])]
    train: list[TrainSample] = []
    seen = 0
    for j in order[HELDOUT:]:
        if seen >= tokens:
            break
        train.append(TrainSample(*rows[j], len(train)))
        seen += int(rows[j][1].sum())
    return Split(train, heldout, 0)


def choose_vocab(split: Split, k: int, size: int) -> tuple[DraftVocab, float]:
    """The k most frequent reply tokens of the training rows, and the share they cover."""
    counts = np.zeros(size, dtype=np.int64)
    for sample in split.train:
        np.add.at(counts, sample.ids[sample.loss_mask], 1)
    order = np.argsort(-counts, kind="stable")[:k]
    vocab = DraftVocab.full(size) if k >= size else DraftVocab.of(order.tolist(), size)
    return vocab, float(counts[order].sum() / counts.sum())


def train(feeder: Feeder, model: TTTModel, settings: TrainSettings, cpu: float) -> dict[str, Any]:
    """Trains for ``cpu`` seconds of CPU time; steps, reply tokens and seconds that it took."""
    config = deepspeed_config(settings, 1, None)
    engine = make_engine(model, settings, config, None)
    rates, schedule = Rates(engine), Schedule(settings, 1)
    begun, step, tokens, spent = time.process_time(), 0, 0, 0.0
    while spent < cpu:
        rates.set(schedule.rate_factor(spent / cpu))
        work = feeder.work(step)
        rows, features = feeder.batch(work.micro[0], work.seeds[0])
        out = engine(rows, features, step_coefficients(work.divisors, settings.decay))
        engine.backward(out.total)
        engine.step()
        step, tokens, spent = step + 1, tokens + work.tokens, time.process_time() - begun
    return {"steps": step, "tokens": tokens, "cpu_seconds": round(spent, 1)}


def decode(draft: Eagle3Draft, target: Target, prompts: Path, count: int) -> dict[str, Any]:
    """Accepted length of greedy decoding, chain of 3, over chat prompts."""
    renderer = Renderer(load_tokenizer(target.name))
    engine = Engine(target, ChainDrafter(draft, target.embedding))
    stops = frozenset([2])
    settings = GenerationSettings(
        max_new_tokens=NEW_TOKENS, stop_ids=stops, temperature=0.0, num_draft_tokens=DRAFTED, seed=0
    )
    emitted = rounds = 0
    accepted = np.zeros(DRAFTED + 1)
    for line in prompts.read_text(encoding="utf-8").splitlines()[:count]:
        ids = renderer.prompt_ids(json.loads(line)["messages"])
        reply = engine.decode(ids, settings, Greedy(), prompt=0)
        emitted, rounds = emitted + reply.emitted, rounds + reply.rounds
        for number in reply.accepted:
            accepted[: number + 1] += 1
    return {
        "tau": round(emitted / rounds, 4),
        "by_position": [round(float(a), 3) for a in accepted[1:] / accepted[0]],
    }


def main() -> None:
    """One row of the study, printed as a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--num-prompts", type=int, default=24)
    parser.add_argument("--cpu", type=float, default=120)
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--name", default="row")
    parser.add_argument("--save", type=Path, help="keeps the draft in this folder")
    parser.add_argument("changes", nargs="*", help="k=4096 tokens=157000 loss=kl ...")
    arguments = parser.parse_args()
    sys.stdout.write(json.dumps(measure(arguments)) + "\n")


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains and decodes one draft."""
    typed = {k: _value(v) for k, v in (change.split("=", 1) for change in arguments.changes)}
    k, tokens = int(typed.pop("k", 4096)), int(typed.pop("tokens", 157_000))
    settings = TrainSettings(**{**RECIPE, **typed})
    split = read_samples(arguments.data, tokens)
    join_group("cpu")
    torch.set_num_threads(1)
    target = load_target(arguments.target, dtype=torch.bfloat16)
    identity = {
        "target_config": arguments.target,
        "target_weights": arguments.target,
        "aux_layer_ids": list(target.aux_layer_ids),
        "dtype": "bf16",
    }
    store = FeatureStore(arguments.store, identity)
    source = DiskStates(OnlineStates(target), store, target.device)
    begun = time.process_time()
    for start in range(0, len(split.train), 32):
        source.states(split.train[start : start + 32])
    source.states(split.heldout, heldout=True)
    features = time.process_time() - begun
    vocab, coverage = choose_vocab(split, k, target.vocab_size)
    shape = DraftShape.from_target_config(load_config(arguments.target))
    draft = new_draft(target, shape, vocab, settings.head_init, settings.seed)
    teacher = Teacher(target, torch.from_numpy(vocab.ids), torch.bfloat16, source)
    feeder = Feeder(
        split, teacher, settings, rank=0, world=1, micro_batch=settings.micro_batch, accum=1
    )
    model = TTTModel(draft, settings, teacher.logits)
    trained = train(feeder, model, settings, arguments.cpu)
    with torch.no_grad():
        held = evaluate(model, feeder.heldout(), settings.decay)
        if held is None:
            raise SystemExit("no held-out row to measure")
        decoded = decode(model.draft, target, arguments.prompts, arguments.num_prompts)
    source.close()
    if arguments.save:
        facts = {"target": arguments.target, "study": arguments.name, **trained, **decoded}
        config = draft_config(shape, vocab, None, load_config(arguments.target), facts)
        save_draft(arguments.save, model.draft, vocab, config, json.dumps(facts))
    return {
        "name": arguments.name,
        "changes": arguments.changes,
        "k": vocab.size,
        "coverage": round(coverage, 4),
        "rows": len(split.train),
        "reply_tokens": split.reply_tokens,
        "feature_cpu_seconds": round(features, 1),
        **trained,
        "joint_prefix": round(held.joint_prefix, 4),
        "accuracy": [round(a, 3) for a in held.accuracy],
        **decoded,
        "settings": dataclasses.asdict(settings),
    }


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == "__main__":
    main()
