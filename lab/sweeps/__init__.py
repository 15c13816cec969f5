"""Sweeps: plan what to compute, run it resumably, read what was measured.

    plan = Plan("scopes", "quick", cells, seeds=range(8), block=4)
    with Store("results/lab.sqlite") as store:
        report = run(plan, store, LocalExecutor())
    table = summarise(load_frames("results/lab.sqlite"), plan)

A name is imported when it is first used: planning needs neither pandas nor scipy, and nothing here needs torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.sweeps.completeness import Missing, missing_cells
    from lab.sweeps.executors import Executor, InlineExecutor, LocalExecutor, Update
    from lab.sweeps.frames import Frames, load_frames
    from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig, Unit
    from lab.sweeps.published import export
    from lab.sweeps.ray_executor import ClusterError, RayExecutor
    from lab.sweeps.results import CellResult, Curves
    from lab.sweeps.runner import Event, Interrupted, Report, run
    from lab.sweeps.state import CellStatus, status
    from lab.sweeps.statistics import chosen_cells, clopper_pearson, summarise
    from lab.sweeps.store import Failure, Store, StoreError, StoreFull

_MODULES = {
    "completeness": ["Missing", "missing_cells"],
    "executors": ["Executor", "InlineExecutor", "LocalExecutor", "Update"],
    "frames": ["Frames", "load_frames"],
    "plan": ["Cell", "Evaluation", "Plan", "TaskConfig", "Unit"],
    "published": ["export"],
    "ray_executor": ["ClusterError", "RayExecutor"],
    "results": ["CellResult", "Curves"],
    "runner": ["Event", "Interrupted", "Report", "run"],
    "state": ["CellStatus", "status"],
    "statistics": ["chosen_cells", "clopper_pearson", "summarise"],
    "store": ["Failure", "Store", "StoreError", "StoreFull"],
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "Cell", "CellResult", "CellStatus", "ClusterError", "Curves", "Evaluation", "Event", "Executor", "Failure",
    "Frames", "InlineExecutor", "Interrupted", "LocalExecutor", "Missing", "Plan", "RayExecutor", "Report", "Store",
    "StoreError", "StoreFull", "TaskConfig", "Unit", "Update", "chosen_cells", "clopper_pearson", "export",
    "load_frames", "missing_cells", "run", "status", "summarise",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
