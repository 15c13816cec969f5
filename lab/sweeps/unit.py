"""The unit function of real sweeps: training, by the code that the cell's identity names and no other."""

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module

from lab.sweeps.plan import Cell, version_of
from lab.sweeps.results import CellResult, Progress


def run_unit(cell: Cell, seeds: Sequence[int], progress: Progress | None = None) -> CellResult:
    """`lab.training.run_cell`, unless source files were edited between planning and the first such cell here.

    Raises RuntimeError then: the result would be stored under the name of code that did not compute it.
    """
    # What runs is imported first, and what is edited later is not run: files are read again once in a process.
    import_module("lab.tasks.kernels")
    import_module(f"lab.heads.{cell.head.kind}")
    from lab.training import run_cell

    if _version_here(cell.tasks, cell.head.kind) != cell.code:
        raise RuntimeError("the code that this cell depends on changed after the sweep was planned; start it again")
    return run_cell(cell, seeds, progress)


_version_here = lru_cache(maxsize=1024)(version_of)
