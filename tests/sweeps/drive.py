"""A driver to be killed: `python drive.py STORE UNIT_FUNCTION WORKERS` runs the fake plan and prints the report.

FAKE_SEEDS makes the plan longer; FAKE_CLOCK sets the clock of the driver: seconds added, and seconds per second.
"""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sweeps_fakes import make_plan

from lab.sweeps import Interrupted, LocalExecutor, Store, run


def set_clock(added: float, pace: float) -> None:
    """`time.time` as a clock that is wrong, and runs backwards when `pace` is negative."""
    real = time.time
    start = real()
    time.time = lambda: start + added + pace * (real() - start)
    time.time_ns = lambda: int(1e9 * time.time())


def main() -> int:
    path, unit, workers = sys.argv[1:]
    if "FAKE_CLOCK" in os.environ:
        set_clock(*map(float, os.environ["FAKE_CLOCK"].split()))
    plan = make_plan(seeds=int(os.environ.get("FAKE_SEEDS", "8")))
    with Store(path) as store:
        try:
            report = run(plan, store, LocalExecutor(int(workers)), run_unit=f"sweeps_fakes:{unit}")
        except Interrupted as interrupted:
            print(interrupted.report)
            return 130
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
