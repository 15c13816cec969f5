"""The unit function of real sweeps: training, by the code that the cell's identity names and no other."""

from collections.abc import Sequence

from lab.sweeps.plan import Cell
from lab.sweeps.results import CellResult, Progress


def run_unit(cell: Cell, seeds: Sequence[int], progress: Progress | None = None) -> CellResult:
    """`lab.training.run_cell`, unless source files were edited between planning and the start of this worker.

    Raises RuntimeError then: the result would be stored under the name of code that did not compute it.
    """
    if cell.model_copy().code != cell.code:  # a copy works its version out anew, in this process
        raise RuntimeError("the code that this cell depends on changed after the sweep was planned; start it again")
    from lab.training import run_cell

    return run_cell(cell, seeds, progress)
