"""A driver to be killed: `python drive.py STORE UNIT_FUNCTION WORKERS` runs the fake plan and prints the report."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sweeps_fakes import make_plan

from lab.sweeps import Interrupted, LocalExecutor, Store, run


def main() -> int:
    path, unit, workers = sys.argv[1:]
    with Store(path) as store:
        try:
            report = run(make_plan(), store, LocalExecutor(int(workers)), run_unit=f"sweeps_fakes:{unit}")
        except Interrupted as interrupted:
            print(interrupted.report)
            return 130
    print(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
