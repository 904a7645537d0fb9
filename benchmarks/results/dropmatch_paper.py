"""What arXiv:2603.03333 reports, as printed there."""

from __future__ import annotations

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
STANDARD = {  # Table 6: 8B/70B at L = 5: acceptance length of SD and SD+DM, and its speed-up
    "gsm8k": (4.97, 5.50, 1.10),
    "humaneval": (5.40, 5.57, 1.00),
}
EAGLE3 = {  # Table 7: Llama-3.3-70B at L = 5: acceptance length and speed-up without and with DM
    "gsm8k": (5.82, 6.09, 4.32 / 4.19),
    "mt_bench": (5.37, 5.86, 4.13 / 3.90),
}
FOREIGN = {"standard": 4.85, "EAGLE3": 1.46, "standard+DM": 5.24}  # Table 10: KoMT-Bench, L = 7
