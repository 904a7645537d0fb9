"""What arXiv:2603.03333 reports, as printed there."""

from __future__ import annotations

HEADS = {  # Table 1: HumanEval pass@1 of five single heads by p, Llama-3.1-70B
    0.1: (81.1, 78.7, 81.1, 86.0, 77.4),
    0.2: (80.5, 81.1, 80.5, 81.1, 78.7),
    0.3: (78.7, 81.1, 75.6, 77.4, 79.9),
    0.4: (76.2, 79.3, 80.5, 73.2, 76.2),
    0.5: (78.7, 65.2, 73.8, 64.0, 70.1),
}
NO_DROPOUT = 81.7
VOTES = {  # Table 2: Llama-3.1-70B on HumanEval; share of positions [%], mean probability
    1: (0.00, 0.255),
    2: (0.14, 0.325),
    3: (0.82, 0.460),
    4: (0.54, 0.517),
    5: (98.40, 0.939),
}
DIVERGENCE = {  # Table 3: mean JS of draft and of heads to the centroid [nats]
    "js": (0.0254, 0.0313),
    "majority": (0.0097, 0.0014),
}
CYCLE = {"naive": (0.17, "0.17 of 104 ms"), "js": (1.64, "1.74 of 106 ms")}  # Table 4 [%]
# Table 6: speed-up over SD at L = 5, acceptance length, score; without and with DropMatch (JS)
Cell = tuple[float, float, float]
STANDARD_PAIRS: dict[tuple[str, int], dict[str, tuple[Cell, Cell]]] = {
    ("Llama-3.1 8B for 70B", 5): {
        "gsm8k": ((1.0, 4.97, 94.69), (1.10, 5.50, 94.29)),
        "mmlu": ((1.0, 4.02, 85.94), (1.09, 4.43, 85.50)),
        "ifeval": ((1.0, 4.12, 85.60), (1.10, 4.48, 85.24)),
        "humaneval": ((1.0, 5.40, 81.70), (1.00, 5.57, 79.89)),
    },
    ("Llama-3.1 8B for 70B", 10): {
        "gsm8k": ((1.02, 7.62, 95.40), (1.22, 9.20, 93.90)),
        "mmlu": ((0.86, 5.25, 86.06), (1.02, 6.06, 85.34)),
        "ifeval": ((0.87, 5.47, 86.86), (0.99, 6.34, 86.17)),
        "humaneval": ((1.13, 8.87, 81.70), (1.12, 9.38, 78.70)),
    },
    ("Qwen3 4B for 32B", 5): {
        "gsm8k": ((1.0, 5.06, 86.20), (1.07, 5.66, 87.49)),
        "mmlu": ((1.0, 4.62, 83.21), (1.05, 5.15, 82.15)),
        "ifeval": ((1.0, 3.40, 80.72), (1.19, 4.22, 78.24)),
        "humaneval": ((1.0, 5.09, 90.4), (1.00, 5.27, 90.9)),
    },
    ("Qwen3 4B for 32B", 10): {
        "gsm8k": ((0.96, 7.87, 86.20), (1.13, 9.78, 86.58)),
        "mmlu": ((1.12, 6.48, 83.26), (1.49, 8.60, 82.06)),
        "ifeval": ((0.72, 4.04, 82.31), (0.98, 5.67, 81.60)),
        "humaneval": ((1.31, 8.11, 92.1), (1.39, 8.72, 90.2)),
    },
}
# Table 7: Llama-3.3-70B, EAGLE-3 tree: speed-up over plain, acceptance length, score; naive
EAGLE3_TREES: dict[int, dict[str, tuple[Cell, Cell]]] = {
    5: {
        "gsm8k": ((4.19, 5.82, 78.75), (4.32, 6.09, 78.75)),
        "mt_bench": ((3.90, 5.37, 8.47), (4.13, 5.86, 8.45)),
        "alpaca": ((4.31, 5.83, 50.0), (4.47, 6.30, 55.0)),
    },
    7: {
        "gsm8k": ((4.65, 6.71, 78.75), (4.86, 7.07, 81.25)),
        "mt_bench": ((4.18, 5.81, 8.43), (4.52, 6.58, 8.46)),
        "alpaca": ((4.75, 6.59, 51.3), (5.02, 7.25, 56.0)),
    },
    9: {
        "gsm8k": ((4.68, 6.71, 78.75), (5.03, 7.48, 80.00)),
        "mt_bench": ((4.24, 6.06, 8.48), (4.62, 6.89, 8.59)),
        "alpaca": ((4.92, 6.89, 50.6), (5.27, 7.74, 52.0)),
    },
}
FOREIGN = {"standard": 4.85, "EAGLE3": 1.46, "standard+DM": 5.24}  # Table 10: KoMT-Bench, L = 7


def gains(table: dict[str, tuple[Cell, Cell]], *sets: str) -> dict[str, tuple[float, float, float]]:
    """Acceptance length without and with DropMatch, and its speed-up over the same draft."""
    return {
        name: (own[1], its[1], its[0] / own[0])
        for name, (own, its) in table.items()
        if name in sets
    }


STANDARD = gains(STANDARD_PAIRS["Llama-3.1 8B for 70B", 5], "gsm8k", "humaneval")
EAGLE3 = gains(EAGLE3_TREES[5], "gsm8k", "mt_bench")
