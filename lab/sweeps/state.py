"""How far a plan is: seeds done, failed and missing, cell by cell."""

from dataclasses import dataclass

from lab.sweeps.plan import Plan
from lab.sweeps.store import Store


@dataclass(frozen=True)
class CellStatus:
    """Seeds of one cell of a plan: `done + failed + missing` is their number. `traceback` is of the last failure."""

    experiment: str
    preset: str
    cell: str
    label: str
    done: int
    failed: int
    missing: int
    traceback: str = ""


def status(store: Store | None, plan: Plan) -> list[CellStatus]:
    """The state of every cell of a plan, in the plan's order; without a store everything is missing."""
    done = store.done() if store else {}
    failed: dict[str, set[int]] = {}
    traces: dict[str, str] = {}
    for failure in store.failures() if store else []:
        failed.setdefault(failure.cell, set()).update(failure.seeds)
        traces[failure.cell] = failure.traceback
    rows = []
    for cell in plan.cells:
        stored = set(plan.seeds) & set(done.get(cell.id, ()))
        broken = set(plan.seeds) & failed.get(cell.id, set()) - stored
        missing = len(plan.seeds) - len(stored) - len(broken)
        trace = traces.get(cell.id, "") if broken else ""
        rows.append(CellStatus(plan.name, plan.preset, cell.id, cell.label, len(stored), len(broken), missing, trace))
    return rows
