"""One unit of a sweep of scoped-lookup: train a block of seeds on answers, read every evaluation."""

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from lab.errors import InputError
from lab.sweeps.plan import Cell, Evaluation
from lab.sweeps.results import CellResult, Progress
from lab.tasks.scoped_lookup import ALL, GROUPS, LOOKUP_SHORTCUTS, LookupBatch, ScopedLookup
from lab.tasks.source_lookup import LookupFile, SourceLookup
from lab.training.cells import Rows, train_and_read
from lab.training.lookup import TrainedLookup, found_reading, lookup_rows, read_lookup, train_lookup
from lab.training.metrics import Reading

# Readers of files that know less, by the name of their rows.
FILE_SHORTCUTS = ("most recent binding", "random live binding")


def run_cell(cell: Cell, seeds: Sequence[int], progress: Progress | None = None, *, device: str = "cpu") -> CellResult:
    """As `lab.training.run_cell`; what the rows mean is said in `lab.training.lookup`. InputError for other devices."""
    if device != "cpu":
        raise InputError(f"--device: {device}: scoped-lookup is trained on the CPU alone")
    task = cell.task.make()

    def read(trained: TrainedLookup, evaluation: Evaluation) -> Rows:
        on = evaluation.task.make()
        if isinstance(on, SourceLookup):
            return _read_files(trained, evaluation, on, task)
        return _read_lengths(trained, evaluation, on), []

    return train_and_read(
        cell,
        progress,
        partial(train_lookup, task, cell.head, cell.recipe, seeds),
        read,
        lambda trained: _parameters(trained, task),
    )


def _named(task: str, reading: str) -> str:
    return f"{task}/{reading}" if reading else task


def _read_lengths(trained: TrainedLookup, evaluation: Evaluation, task: ScopedLookup) -> list[dict]:
    """All readings at the shortest and the longest length, at others and on validation data the answer alone."""
    rows = []
    lengths = evaluation.lengths or (task.train_length,)
    for length in lengths:
        whole = evaluation.split == "test" and length in (min(lengths), max(lengths))
        sizes: dict[str, Any] = {"sequences": evaluation.sequences, "length": length}
        readings = read_lookup(trained, task, evaluation.split, **sizes)
        place = {"split": evaluation.split, "length": length, "factor": length / task.train_length}
        for name, of_seeds in readings.items():
            if whole or not name:
                rows += _rows(trained, of_seeds, {"task": _named(evaluation.task.label, name), **place})
    return rows


def _rows(trained: TrainedLookup, readings: Sequence[Reading], place: dict) -> list[dict]:
    """One row per seed, of those whose sequences hold such queries."""
    pairs = zip(trained.head.seeds, readings, strict=True)
    return [{"seed": seed, **place, **reading.row()} for seed, reading in pairs if reading.queries]


@lru_cache(maxsize=2)
def _corpus(read: SourceLookup) -> list[tuple[LookupFile, dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Files, their groups of queries, and what shortcuts get right, at the rows that are scored.

    Worked out once per process: a sweep reads the same corpus with every cell.
    """
    found = []
    for file in read.files():
        scored = file.batch.queries > 0
        groups = {name: file.batch.group(name)[scored] for name in GROUPS}
        right = {name: LOOKUP_SHORTCUTS[name](file.batch)[scored] for name in FILE_SHORTCUTS}
        found.append((file, groups, right))
    return found


def _read_files(trained: TrainedLookup, evaluation: Evaluation, read: SourceLookup, task: ScopedLookup) -> Rows:
    """Every seed on every file: rows per seed over all files, rows of the shortcuts, and one row per file."""
    if read.symbols != task.symbols:
        raise InputError(f"{read.name}: symbols: {read.symbols}: expected the {task.symbols} that the head knows")
    corpus, parts, rows_of_files = _corpus(read), [], []
    for file, groups, _ in corpus:
        parts.append(_read_file(trained, file.batch)[:, file.batch.queries > 0])
        name = file.name if read.scopes == "python" else f"{file.name} ({read.scopes})"
        rows_of_files.append({"file": name, **_file_row(file, [found_reading(one, groups[ALL]) for one in parts[-1]])})
    seen = np.concatenate(parts, axis=1)
    place = {"split": evaluation.split, "length": 0, "factor": 0.0}
    rows = []
    for name in GROUPS:
        label = _named(evaluation.task.label, "" if name == ALL else name)
        group = np.concatenate([groups[name] for _, groups, _ in corpus])
        rows += _rows(trained, [found_reading(one, group) for one in seen], {"task": label, **place})
        for shortcut in FILE_SHORTCUTS:
            reading = _shortcut_reading(np.concatenate([right[shortcut] for _, _, right in corpus]), group)
            rows += _rows(trained, [reading] * len(seen), {"task": _named(label, shortcut), **place})
    return rows, rows_of_files


def _read_file(trained: TrainedLookup, batch: LookupBatch) -> np.ndarray:
    """Metrics (seeds, length, columns) of one file, whose arrays have no leading axes."""
    shape = (len(trained.head.seeds), 1, batch.seq_len)
    arrays = (np.broadcast_to(getattr(batch, field.name), shape) for field in fields(batch))
    return lookup_rows(trained.head, None, LookupBatch(*(array.copy() for array in arrays)))[:, 0]


def _shortcut_reading(right: np.ndarray, queries: np.ndarray) -> Reading:
    """How often a reader without weights is right, in the place where heads have their exact rate."""
    exact = float(np.average(right, weights=queries)) if queries.any() else float("nan")
    nothing = dict.fromkeys(("loss", "excess_loss", "window_mean", "window_max", "gap_mean", "gap_min"), 0.0)
    return Reading(queries=int(queries.sum()), exact=exact, mass=exact, tv=1 - exact, **nothing)


def _file_row(file: LookupFile, readings: Sequence[Reading]) -> dict:
    rates = np.array([reading.exact for reading in readings])
    return {
        "seq_len": file.batch.seq_len,
        "scopes": file.scopes,
        "queries": readings[0].queries,
        "seeds": len(rates),
        "exact_mean": float(rates.mean()),
        "exact_min": float(rates.min()),
        "tv_mean": float(np.mean([reading.tv for reading in readings])),
        "perfect": int((rates == 1).sum()),
    }


def _parameters(trained: TrainedLookup, task: ScopedLookup) -> list[dict]:
    """Per token, the mean over the symbols: "bind" and "use" stand for the tokens of all of them."""
    kinds = ["bind"] * task.symbols + ["open", "close"] + ["use"] * task.symbols
    rows = []
    for name, values in trained.head.token_parameters().items():
        for s, seed in enumerate(trained.head.seeds):
            for kind in dict.fromkeys(kinds):
                of_kind = [t for t, other in enumerate(kinds) if other == kind]
                value = float(values[s, torch.tensor(of_kind)].detach().double().mean())
                rows.append({"seed": seed, "name": name, "token": kind, "value": value})
    return rows
