"""One unit of a sweep, start to end: train a block of seeds, read every evaluation, hand back the rows."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from lab.errors import InputError
from lab.ops.reading import READ_COLUMNS
from lab.profiling import Timers
from lab.sweeps.plan import Cell, Evaluation
from lab.sweeps.results import CellResult, Curves, Progress
from lab.tasks.base import Task
from lab.tasks.source_scopes import SourceFile, SourceScopes
from lab.training.ensemble import Trained, train
from lab.training.metrics import merge, read_sequence, read_task

# Tasks that are not trained against target sets: the module whose `run_cell`, of this one's signature, does it.
TRAINED_ELSEWHERE = {
    "scoped-lookup": "lab.training.lookup_cells",
    "subset-free": "lab.training.families",
}

# Cells in which nothing is trained: what readers reach that are no heads.
READ_ONLY = "lab.training.reading_cells"

# Of an evaluation: one row per seed, and one per file.
Rows = tuple[list[dict], list[dict]]

# Share of a unit's progress that training takes; the rest is reading.
_TRAINING_SHARE = 0.7


def run_cell(cell: Cell, seeds: Sequence[int], progress: Progress | None = None, *, device: str = "cpu") -> CellResult:
    """Trains the cell's head for every seed and measures it; the same numbers whatever block the seeds are in."""
    elsewhere = READ_ONLY if cell.head.kind == "reader" else TRAINED_ELSEWHERE.get(cell.task.name)
    if elsewhere:
        return import_module(elsewhere).run_cell(cell, seeds, progress, device=device)
    if cell.recipe.start != "random":
        raise InputError(f"{cell.task.label}: start: {cell.recipe.start}: expected random; only subset-free has others")
    task = cell.task.make()

    def read(trained: Trained, evaluation: Evaluation) -> Rows:
        on = evaluation.task.make()
        if isinstance(on, SourceScopes):
            return _read_files(trained, evaluation, on)
        return _read_lengths(trained, evaluation, on), []

    return train_and_read(
        cell,
        progress,
        partial(train, task, cell.head, cell.recipe, seeds, device=device),
        read,
        lambda trained: _parameters(trained, task),
    )


def train_and_read(
    cell: Cell,
    progress: Progress | None,
    trainer: Callable[..., Any],
    read: Callable[[Any, Evaluation], Rows],
    parameters: Callable[[Any], list[dict]],
) -> CellResult:
    """A unit around what differs between kinds of task.

    trainer: called with on_step and timers, gives the trained ensemble (`Trained` or its like). read: rows of an
    evaluation, per seed and per file. parameters: rows of what the heads have learned.
    """
    report, steps, timers = progress or (lambda fraction: None), cell.recipe.steps, Timers()
    trained = trainer(
        on_step=lambda step, losses: report(_TRAINING_SHARE * step / steps) if step % 20 == 0 else None,
        timers=timers,
    )
    evaluations: list[dict] = []
    files: list[dict] = []
    for n, evaluation in enumerate(cell.evaluations, 1):
        with timers("metrics"):
            rows, of_files = read(trained, evaluation)
        evaluations += rows
        files += of_files
        report(_TRAINING_SHARE + (1 - _TRAINING_SHARE) * n / len(cell.evaluations))
    return CellResult(
        evaluations=evaluations,
        parameters_per_seed=sum(trained.parameter_count().values()),
        curves=Curves(np.array(trained.curve_steps), trained.curve),
        parameters=parameters(trained),
        files=files,
        weights=trained.state_bytes(),
        profile=timers.seconds,
    )


def _read_lengths(trained: Trained, evaluation: Evaluation, task: Task) -> list[dict]:
    rows = []
    for length in evaluation.lengths or (task.train_length,):
        readings = read_task(trained.head, task, evaluation.split, sequences=evaluation.sequences, length=length)
        factor = length / task.train_length
        place = {"task": evaluation.task.label, "split": evaluation.split, "length": length, "factor": factor}
        rows += [{"seed": s, **place, **r.row()} for s, r in zip(trained.head.seeds, readings, strict=True)]
    return rows


@lru_cache(maxsize=4)
def _files(task: SourceScopes) -> list[SourceFile]:
    """Parsed once per process: a sweep reads the same corpus with every cell."""
    return task.files()


def _read_files(trained: Trained, evaluation: Evaluation, task: SourceScopes) -> Rows:
    """Every seed on every file: one row per seed over all files, and one row per file over all seeds."""
    queries, exact, tv = (READ_COLUMNS.index(name) for name in ("queries", "exact", "tv"))
    parts, rows = [], []
    for file in _files(task):
        part = read_sequence(trained.head, file.batch)
        parts.append(part)
        n = part[0][:, queries]
        if not n[0]:
            continue
        rate = part[0][:, exact] / n
        rows.append(
            {
                "file": file.name,
                "seq_len": file.batch.tokens.shape[-1],
                "scopes": file.scopes,
                "queries": int(n[0]),
                "seeds": len(rate),
                "exact_mean": float(rate.mean()),
                "exact_min": float(rate.min()),
                "tv_mean": float((part[0][:, tv] / n).mean()),
                "perfect": int((part[0][:, exact] == n).sum()),
            }
        )
    place = {"task": evaluation.task.label, "split": evaluation.split, "length": 0, "factor": 0.0}
    readings = merge(parts, trained.head.seeds)
    return [{"seed": s, **place, **r.row()} for s, r in zip(trained.head.seeds, readings, strict=True)], rows


def _parameters(trained: Trained, task: Task) -> list[dict]:
    return [
        {"seed": seed, "name": name, "token": token, "value": float(values[s, t].detach())}
        for name, values in trained.head.token_parameters().items()
        for s, seed in enumerate(trained.head.seeds)
        for t, token in enumerate(task.vocabulary)
    ]
