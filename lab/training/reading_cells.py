"""One unit of a sweep without training: what a reader reaches on a task, and how often sequences repeat."""

from collections.abc import Sequence
from importlib import import_module

import numpy as np

from lab.sweeps.plan import Cell
from lab.sweeps.results import CellResult, Progress
from lab.tasks.base import Batch, Task, count_duplicates
from lab.tasks.scoped_lookup import LookupBatch
from lab.training.metrics import Reading, read_weights

# Imported by name: this package matters to every cell, the readers to cells of readers alone (lab.sweeps.code_version).
READERS = "lab.heads.reader"
# Of every split of a seed, the sequences that are compared token for token.
COMPARED = 512
# The reader whose cell counts the duplicates of its task.
COUNTING = "chance"


def run_cell(cell: Cell, seeds: Sequence[int], progress: Progress | None = None, *, device: str = "cpu") -> CellResult:
    """As `lab.training.cells.run_cell`. The cell of the reader "chance" has duplicates among its parameters.

    Those are counts of `lab.tasks.count_duplicates`, token "test in train" and so on, and how many were "compared".
    """
    report, name = progress or (lambda fraction: None), cell.head.name  # type: ignore[union-attr]
    rows = []
    for n, evaluation in enumerate(cell.evaluations, 1):
        task = evaluation.task.make()
        for length in evaluation.lengths or (task.train_length,):
            place = {"task": evaluation.task.label, "split": evaluation.split, "length": length}
            place["factor"] = length / task.train_length
            batch = task.sample(evaluation.split, seeds, 0, evaluation.sequences, length=length)
            readings = zip(seeds, read(name, task, batch), strict=True)
            rows += [{"seed": seed, **place, **reading.row()} for seed, reading in readings]
        report(n / len(cell.evaluations))
    repeated = duplicates(cell.task.make(), seeds) if name == COUNTING else []
    return CellResult(evaluations=rows, parameters=repeated)


def read(name: str, task: Task, batch: Batch) -> list[Reading]:
    """One Reading per seed of a batch of lead shape (seeds, sequences)."""
    readers = import_module(READERS)
    if isinstance(batch, LookupBatch):
        right = readers.reader_answers(name, batch)
        return [answered(right[s], batch.queries[s]) for s in range(len(right))]
    weights = readers.reader_weights(name, task, batch)
    return [read_weights(weights[s], batch[s]) for s in range(len(weights))]


def answered(right: np.ndarray, queries: np.ndarray) -> Reading:
    """A reader of lookups has no weights: how often it is right stands where heads have their exact rate, tv is 1 - it.

    What it lacks is not a number.
    """
    exact = float(np.average(right, weights=queries))
    unknown = dict.fromkeys(("loss", "excess_loss", "window_mean", "window_max", "gap_mean", "gap_min"), float("nan"))
    return Reading(queries=int(queries.sum()), tv=1 - exact, exact=exact, mass=exact, **unknown)


def duplicates(task: Task, seeds: Sequence[int]) -> list[dict]:
    """Rows of the table of parameters: sequences of each seed that were seen before, within splits and between them."""
    return [
        {"seed": seed, "name": "duplicates", "token": where, "value": float(count)}
        for seed in seeds
        for where, count in {**count_duplicates(task, COMPARED, seed=seed), "compared": COMPARED}.items()
    ]
