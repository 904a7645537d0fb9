"""``vtrim eval`` whose seconds are CPU seconds of the process, for machines that do other work.

    OMP_NUM_THREADS=1 python benchmarks/domains/cpu_eval.py eval ... --json

With one thread that is what an idle machine takes, but for the caches that others empty.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

from vtrim.cli.main import main
from vtrim.decoding import stopwatch

if __name__ == "__main__":
    stopwatch.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
    main()
