"""A whole quick sweep, per trained seed, beside the same training as a plain loop with one seed per process.

Both sides use all cores: the sweep by its workers, the plain loops by as many processes as there are cores, with one
thread each. The sweep is run as a user runs it, from the start of its process to its end. Of the plain side a sample
of seeds is run, as many from every task and kind of head, and their times are weighted by how many seeds of the
sweep are of that task and kind.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from lab.bench.measure import Found, Settings, Tell, ratio
from lab.sweeps.executors import ONE_THREAD
from lab.sweeps.plan import Cell, Plan

EXPERIMENT, PRESET = "target_sets", "quick"
# Pairs of (whole sweep, sample of the plain side); every sample has one seed of every task and kind of head.
PAIRS = 2

Stratum = tuple[str, str]


def run(settings: Settings, tell: Tell) -> Found:
    """The sweep and the sample in turns."""
    plan = import_module(f"experiments.{EXPERIMENT}").plan(PRESET)
    seeds = len(plan.cells) * len(plan.seeds)
    turns = 1 if settings.quick else PAIRS
    whole, inside, rows = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tell(0.0, "compiling what is not compiled yet")
        warm_up(plan)
        files = source_files(plan, folder)
        for turn in range(turns):
            tell(turn / turns, f"the whole quick sweep, {seeds} seeds")
            ours = sweep_seconds(folder / f"{turn}.sqlite", settings.threads) / seeds
            tell((turn + 0.5) / turns, "one seed per process, a sample")
            timed = plain_seconds(sample(plan, turn), files, settings.threads)
            whole.append((ours, weighted(plan, timed, "process_seconds") / settings.threads))
            inside.append((ours, weighted(plan, timed, "seconds") / settings.threads))
            rows += [{"turn": turn, "sweep_seconds": ours * seeds, **vars(one)} for one in timed]
    detail = f"seconds per trained seed, {seeds} against {len(rows)} seeds"
    first = f"quick {EXPERIMENT} sweep"
    found = Found(tables={"plain loops": rows})
    found.results = [
        ratio("sweep", (first, "one process per seed"), whole, bar="1/15", aim="1/40", detail=detail),
        ratio("sweep", (first, "one process per seed, its start left out"), inside, detail="per trained seed"),
    ]
    found.notes.append(
        "sweep: of the plain side one seed of every task and kind of head is run per turn, "
        f"{settings.threads} at a time, and weighted by the seeds of that kind in the sweep"
    )
    found.notes.append(
        f"sweep: how long a whole paper preset takes, fpa-lab sweep {EXPERIMENT} --preset paper --profile says"
    )
    return found


def warm_up(plan: Plan) -> None:
    """One step and all evaluations of every stratum, so that nothing is compiled while it is timed."""
    from lab.training import run_cell

    for kind in sorted({stratum(cell) for cell in plan.cells}):
        cell = next(cell for cell in plan.cells if stratum(cell) == kind)
        run_cell(cell.model_copy(update={"recipe": cell.recipe.model_copy(update={"steps": 1})}), plan.seeds[:1])


def sweep_seconds(store: Path, workers: int) -> float:
    """From the start of `fpa-lab sweep` to its end, into a new store. RuntimeError with what it said when it fails."""
    command = [sys.executable, "-P", "-m", "lab", "sweep", EXPERIMENT, "--preset", PRESET]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--store", str(store), "--workers", str(workers)], env=_environment(), check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{EXPERIMENT} {PRESET}: exit status {done.returncode}: {done.stderr[-1000:]}")
    return time.perf_counter() - start


def stratum(cell: Cell) -> Stratum:
    """What the time of a plain loop depends on: the task it trains on, and the kind of head."""
    return cell.task.name, cell.head.kind


def sample(plan: Plan, turn: int) -> list[tuple[Cell, int]]:
    """One cell and seed of every stratum, other ones every turn, in mixed order."""
    chosen = []
    draw = random.Random(turn)
    for kind in sorted({stratum(cell) for cell in plan.cells}):
        cells = [cell for cell in plan.cells if stratum(cell) == kind]
        chosen.append((draw.choice(cells), plan.seeds[turn % len(plan.seeds)]))
    draw.shuffle(chosen)
    return chosen


@dataclass(frozen=True)
class Plain:
    """One plain loop: the whole process, and what it took after its imports."""

    task: str
    kind: str
    cell: str
    seed: int
    process_seconds: float
    seconds: float


def plain_seconds(chosen: list[tuple[Cell, int]], files: Path, processes: int) -> list[Plain]:
    """Runs the loops, `processes` at a time."""
    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(lambda one: _plain(one[0], one[1], files), chosen))


def _plain(cell: Cell, seed: int, files: Path) -> Plain:
    config = files.with_name(f"{cell.id}.json")
    config.write_text(cell.config, encoding="utf-8")
    start = time.perf_counter()
    answer = run_plain(config, seed, files)
    return Plain(*stratum(cell), cell.label, seed, time.perf_counter() - start, answer["seconds"])


def run_plain(config: Path, seed: int, files: Path) -> dict[str, Any]:
    """One process of `lab.bench.plain_loop`, with one thread."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lab.bench.plain_loop", str(config), str(seed), str(files)], check=True,
        env={**_environment(), **ONE_THREAD}, stdout=subprocess.PIPE,
    )  # fmt: skip
    return json.loads(done.stdout)


def weighted(plan: Plan, timed: list[Plain], which: str) -> float:
    """Mean seconds of a seed of the plan, every stratum weighted by its cells."""
    cells = Counter(stratum(cell) for cell in plan.cells)
    times = {(one.task, one.kind): getattr(one, which) for one in timed}
    return sum(cells[kind] * times[kind] for kind in cells) / sum(cells.values())


def source_files(plan: Plan, folder: Path) -> Path:
    """The source files of the plan's evaluations as arrays: parsed once, outside of what is timed."""
    import numpy as np

    from lab.bench.plain_loop import PARTS

    arrays: dict[str, Any] = {}
    task = next((e.task for cell in plan.cells for e in cell.evaluations if e.task.name == "source-scopes"), None)
    for n, file in enumerate(task.make().files() if task else ()):
        arrays |= {f"{part}{n}": getattr(file.batch, part) for part in PARTS}
    path = folder / "files.npz"
    np.savez(path, **arrays)
    return path


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folder or os.getcwd() for folder in sys.path)}
