"""Whether a sweep keeps the cores busy, and whether threads of torch, of the lab's kernels and of the workers pile up.

The same short units are run by one worker, two, and so on to the number of cores. A worker times its own training
steps and looks at its own threads: which of them there are, and which of them use the processor.
"""

import os
import resource
import statistics
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lab.bench.measure import Found, Settings, Tell, estimate
from lab.sweeps.executors import LocalExecutor, Update
from lab.sweeps.plan import Cell, TaskConfig, Unit
from lab.training.recipe import Recipe

PROBE = "lab.bench.threads:probe"
SEEDS, STEPS = 16, 150
UNITS_PER_WORKER = 2
TURNS = 3
# A thread that used this share of what the busiest one used counts as one that works.
WORKS = 0.05


def run(settings: Settings, tell: Tell) -> Found:
    """One row per number of workers, and one of this process with all its threads, as `fpa-lab train` runs."""
    found = Found()
    counts = range(1, settings.threads + 1)
    turns = 1 if settings.quick else TURNS
    crews: dict[int, list[dict[str, Any]]] = {workers: [] for workers in counts}
    for turn in range(turns):
        for workers in counts:
            tell((turn + workers / (len(counts) + 1)) / turns, f"{workers} workers")
            crews[workers].append(_crew(workers))
    alone = crews[1]
    rows = [_row(f"{n} {'worker' if n == 1 else 'workers'}", n, crews[n], alone) for n in counts]
    rows.append(_row("one process, all threads", settings.threads, [_inline() for _ in range(turns)], alone))
    found.tables["threads"] = rows
    if not _PROC.is_dir():
        found.notes.append("threads: threads of a process are counted where there is /proc, which this system lacks")
    return found


def _row(name: str, cores: int, crews: Sequence[dict[str, Any]], alone: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over turns. `busy`: processor time over wall-clock time and cores, while all units are computed."""

    def median(key: str) -> float:
        return estimate([crew[key] for crew in crews]).median

    slower = estimate([crew["step_ms"] / other["step_ms"] for crew, other in zip(crews, alone, strict=True)])
    return {
        "run": name, "cores": cores, "busy": median("cpu") / (median("wall") * cores), "step_ms": median("step_ms"),
        "step_against_alone": slower.median, "low": slower.low, "high": slower.high, "n": slower.n,
        "threads": median("threads"), "threads_working": median("working"),
    }  # fmt: skip


def _crew(workers: int) -> dict[str, Any]:
    """The probes of a sweep with so many workers; wall and processor time from its start to its end."""
    units = [Unit(_cell(), tuple(range(n * SEEDS, (n + 1) * SEEDS))) for n in range(UNITS_PER_WORKER * workers)]
    answers: list[dict[str, Any]] = []

    def report(update: Update) -> None:
        if update.kind == "failed":
            raise RuntimeError(update.traceback)
        if update.kind == "done":
            answers.append(update.result)  # type: ignore[arg-type]

    start, before = time.perf_counter(), _children()
    LocalExecutor(workers).run(PROBE, units, report)
    spent = {"wall": time.perf_counter() - start, "cpu": _children() - before}
    return spent | _together(answers)


def _inline() -> dict[str, Any]:
    """The same in this process, with the threads that it was given."""
    start, before = time.perf_counter(), time.process_time()
    answer = probe(_cell(), range(SEEDS))
    return {"wall": time.perf_counter() - start, "cpu": time.process_time() - before} | _together([answer])


def _together(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    steps = [answer["step_ms"] for answer in answers]
    most = {key: max(answer[key] for answer in answers) for key in ("threads", "working")}
    return {"step_ms": statistics.median(steps), **most}


def _children() -> float:
    """Processor time of the worker processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cell() -> Cell:
    from lab.heads import head_config

    head = head_config("fpa-walk-offset", 1)
    return Cell(experiment="bench", task=TaskConfig(name="nested-scope"), head=head, recipe=Recipe(steps=STEPS))


def probe(cell: Cell, seeds: Sequence[int], progress: Any = None) -> Any:
    """A unit function that trains and hands back what it saw: median step, threads, and how many of them worked."""
    from lab.training import train

    stamps: list[float] = []
    before = _thread_times()
    train(
        cell.task.make(), cell.head, cell.recipe, seeds, on_step=lambda step, losses: stamps.append(time.perf_counter())
    )
    after = _thread_times()
    used = [after[thread] - before.get(thread, 0.0) for thread in after]
    steps = [1e3 * (b - a) for a, b in pairwise(stamps)]
    return {
        "step_ms": statistics.median(steps),
        "threads": len(after) or threading.active_count(),
        "working": sum(time > WORKS * max(used) for time in used) if any(used) else 0,
    }


_PROC = Path("/proc/self/task")


def _thread_times() -> dict[str, float]:
    """Processor seconds of every thread of this process; empty where the system does not tell."""
    times = {}
    for folder in _PROC.iterdir() if _PROC.is_dir() else ():
        try:
            # After the name in brackets, which may hold anything, user and system time are the 12th and 13th field.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        times[folder.name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return times
