"""One unit of a sweep, start to end: train a block of seeds, read every evaluation, hand back the rows."""

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module

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

# Share of a unit's progress that training takes; the rest is reading.
_TRAINING_SHARE = 0.7


def run_cell(cell: Cell, seeds: Sequence[int], progress: Progress | None = None, *, device: str = "cpu") -> CellResult:
    """Trains the cell's head for every seed and measures it; the same numbers whatever block the seeds are in."""
    elsewhere = READ_ONLY if cell.head.kind == "reader" else TRAINED_ELSEWHERE.get(cell.task.name)
    if elsewhere:
        return import_module(elsewhere).run_cell(cell, seeds, progress, device=device)
    if cell.recipe.start != "random":
        raise InputError(f"{cell.task.label}: start: {cell.recipe.start}: expected random; only subset-free has others")
    report = progress or (lambda fraction: None)
    task = cell.task.make()
    steps = cell.recipe.steps
    timers = Timers()
    trained = train(
        task,
        cell.head,
        cell.recipe,
        seeds,
        device=device,
        on_step=lambda step, losses: report(_TRAINING_SHARE * step / steps) if step % 20 == 0 else None,
        timers=timers,
    )
    evaluations: list[dict] = []
    files: list[dict] = []
    for n, evaluation in enumerate(cell.evaluations, 1):
        read = evaluation.task.make()
        with timers("metrics"):
            if isinstance(read, SourceScopes):
                rows, of_files = _read_files(trained, evaluation, read)
                files += of_files
            else:
                rows = _read_lengths(trained, evaluation, read)
        evaluations += rows
        report(_TRAINING_SHARE + (1 - _TRAINING_SHARE) * n / len(cell.evaluations))
    return CellResult(
        evaluations=evaluations,
        parameters_per_seed=sum(trained.head.parameter_count().values()),
        curves=Curves(np.array(trained.curve_steps), trained.curve),
        parameters=_parameters(trained, task),
        files=files,
        weights=trained.head.state_bytes(),
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


def _read_files(trained: Trained, evaluation: Evaluation, task: SourceScopes) -> tuple[list[dict], list[dict]]:
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
