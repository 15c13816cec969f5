"""Running a plan: what is stored already is reused, the rest is computed and stored unit by unit."""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from lab.errors import InputError
from lab.profiling import Timers, shares
from lab.sweeps.executors import Executor, RunUnit, Update
from lab.sweeps.plan import Plan, Unit
from lab.sweeps.store import Failure, Store

RUN_CELL = "lab.sweeps.unit:run_unit"


@dataclass
class Report:
    """Units of a plan: computed and reused are stored now, failed ones are not and are tried again next time.

    `timers`: where the time went, in the units (summed over workers) and in the store (in this process).
    `worker_seconds`: how long the run took, times the number of workers.
    """

    total: int
    reused: int
    computed: int = 0
    failed: int = 0
    failures: list[Failure] = field(default_factory=list)
    timers: Timers = field(default_factory=Timers, repr=False, compare=False)
    worker_seconds: float = 0.0

    @property
    def remaining(self) -> int:
        return self.total - self.reused - self.computed - self.failed

    def profile(self) -> dict[str, float]:
        """Seconds by phase; "other" is the rest of `worker_seconds`: starting workers, waiting for them, and so on."""
        return shares(self.timers.seconds, self.worker_seconds)

    def __str__(self) -> str:
        left = f", {self.remaining} left" if self.remaining else ""
        return f"{self.computed} computed, {self.reused} reused, {self.failed} failed{left}"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C. Every unit that `report` counts as computed is stored; running the plan again does the rest."""

    def __init__(self, report: Report):
        super().__init__(str(report))
        self.report = report


@dataclass(frozen=True)
class Event:
    """Progress, for a display. "begin" comes first, with the counts before any work.

    `fraction` in [0, 1] is of the work that was missing at the start, counted in seeds; `eta_seconds` is None as long
    as nothing is known.
    """

    kind: Literal["begin", "started", "progress", "done", "failed"]
    report: Report
    unit: Unit | None = None
    fraction: float = 0.0
    eta_seconds: float | None = None
    traceback: str = ""


def run(
    plan: Plan,
    store: Store,
    executor: Executor,
    on_event: Callable[[Event], None] | None = None,
    *,
    run_unit: RunUnit | str = RUN_CELL,
) -> Report:
    """Computes what the store lacks of a plan, one transaction per finished unit.

    A unit that raises is stored as failed with its traceback; the others go on, and the next run tries it again.
    Raises Interrupted on Ctrl-C; StoreError when another driver is at work; StoreFull when the disk is full. After
    each of them everything stored so far is kept, and running again computes only the rest.
    """
    with store.driver():
        store.record(plan)
        units = plan.units(store.done())
        total = len(plan.blocks()) * len(plan.cells)
        book = _Book(store, units, Report(total, total - len(units)), on_event or (lambda event: None))
        try:
            book.on_event(Event("begin", replace(book.report)))
            executor.run(run_unit, units, book.enter)
        except KeyboardInterrupt:  # it may have come between storing a unit and counting it
            book.report.computed = len(units) - len(plan.units(store.done()))
            raise Interrupted(book.report) from None
        book.report.worker_seconds = executor.workers * (time.monotonic() - book.start)
        book.report.failures = store.failures(cell.id for cell in plan.cells)
        return book.report


class _Book:
    """Stores what an executor reports and keeps count."""

    def __init__(self, store: Store, units: list[Unit], report: Report, on_event: Callable[[Event], None]):
        self.store = store
        self.report = report
        self.on_event = on_event
        self.start = time.monotonic()
        self.work = sum(len(unit.seeds) for unit in units)
        self.fractions: dict[str, float] = {}
        self.progressed = 0.0  # in seeds

    def enter(self, update: Update) -> None:
        kind, trace = update.kind, update.traceback
        if update.result is not None:
            try:
                with self.report.timers("store"):
                    self.store.finish(update.unit, update.result, update.seconds, update.environment)
                self.report.timers.add(update.result.profile)
                self.report.computed += 1
            except InputError:  # the store itself is in trouble
                raise
            except Exception:  # a result that does not fit its unit: a bug of the unit function
                kind, trace = "failed", traceback.format_exc()
        if kind == "failed":
            self.store.fail(update.unit, trace)
            self.report.failed += 1
        self._progress(update.unit, 1.0 if kind in ("done", "failed") else update.fraction)
        self._tell(kind, update.unit, trace)

    def _progress(self, unit: Unit, fraction: float) -> None:
        self.progressed += (fraction - self.fractions.get(unit.id, 0.0)) * len(unit.seeds)
        self.fractions[unit.id] = fraction

    def _tell(self, kind: Literal["started", "progress", "done", "failed"], unit: Unit, trace: str) -> None:
        fraction = self.progressed / self.work
        elapsed = time.monotonic() - self.start
        eta = elapsed * (1 - fraction) / fraction if fraction > 0 else None
        self.on_event(Event(kind, replace(self.report), unit, fraction, eta, trace))
