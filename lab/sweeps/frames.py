"""Results as pandas tables, the same from a store and from published CSVs."""

import gc
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lab.errors import InputError, nearest
from lab.sweeps import results
from lab.sweeps.quartiles import quantiles
from lab.sweeps.store import Store

# Columns of the tables as they are stored and published; Frames adds those of JOINED to all but `cells`.
CELLS: dict[str, type] = {
    "cell": str,
    "experiment": str,
    "preset": str,
    "task": str,
    "head": str,
    "dim": int,
    "learning_rate": float,
    "parameters_per_seed": int,
    "code": str,
    "config": str,
}
CURVES: dict[str, type] = {"cell": str, "step": int, "n": int, "q25": float, "median": float, "q75": float}
COLUMNS: dict[str, dict[str, type]] = {
    "cells": CELLS,
    "evaluations": {"cell": str, **results.EVALUATIONS},
    "curves": CURVES,
    "parameters": {"cell": str, **results.PARAMETERS},
    "files": {"cell": str, **results.FILES},
}
# Cells whose rows are read by one query: what they become is then still in the processor's cache, and a question for
# every cell would take longer than its answer.
CELLS_AT_ONCE = 32
JOINED = {"train_task": "task", "head": "head", "dim": "dim", "learning_rate": "learning_rate"}
# Rows of a table are sorted by these, so that equal results are equal tables whatever the order of computing.
ORDER = {
    "cells": ["experiment", "preset", "task", "head", "dim", "learning_rate", "config", "cell"],
    "evaluations": ["cell", "task", "split", "length", "seed"],
    "curves": ["cell", "step"],
    "parameters": ["cell", "name", "token", "seed"],
    "files": ["cell", "file"],
}


@dataclass(frozen=True)
class Frames:
    """The results of some experiments.

    cells        cell, experiment, preset, task, head, dim, learning_rate, parameters_per_seed, code, config (JSON)
    evaluations  cell, seed, task, split, length, factor, queries, loss, ..., success (`results.EVALUATIONS`)
    curves       cell, step, n, q25, median, q75: quartiles over n seeds of the loss above the optimum
    parameters   cell, seed, name, token, value
    files        cell, file, seq_len, scopes, queries, seeds, exact_mean, exact_min, tv_mean, perfect

    All but `cells` carry train_task, head, dim and learning_rate of their cell too. `origin` says where the rows are
    from, for messages.
    """

    cells: pd.DataFrame
    evaluations: pd.DataFrame
    curves: pd.DataFrame
    parameters: pd.DataFrame
    files: pd.DataFrame
    origin: str = ""

    def of(self, cells: Sequence[str]) -> "Frames":
        """The rows of these cells alone."""
        kept = {name: frame[frame["cell"].isin(cells)].reset_index(drop=True) for name, frame in self.tables().items()}
        return Frames(**kept, origin=self.origin)

    def tasks_of(self, name: str) -> pd.Series:
        """Which rows of `evaluations` are of tasks whose label starts so; of many rows, few labels are looked at."""
        labels = self.evaluations["task"]
        return labels.isin([label for label in labels.unique() if label.startswith(name)])

    def tables(self) -> dict[str, pd.DataFrame]:
        return {name: getattr(self, name) for name in COLUMNS}


def load_frames(
    source: Store | str | os.PathLike[str],
    names: Sequence[str] | None = None,
    *,
    preset: str | None = None,
    tables: Collection[str] = tuple(COLUMNS),
) -> Frames:
    """Results of the experiments `names` (all by default) from a store or a folder of published CSVs.

    A folder is one published experiment, with its manifest.json, or holds several. From a store come the cells of
    every experiment as it was last run under `preset`; by default under the preset that was run last. Only the `tables`
    that are named are read, and `cells`; the others are empty.

    Raises InputError when the source is neither, an experiment is not in it, there is no such table, or a published
    file that is read is not what its manifest says.
    """
    for name in tables:
        if name not in COLUMNS:
            raise InputError(f"tables: unknown table {name}{nearest(name, COLUMNS)}")
    if isinstance(source, Store):
        return _from_store(source, names, preset, tables)
    path = Path(source)
    if path.is_dir():
        from lab.sweeps.published import read_published

        return read_published(path, names, preset, tables)
    with Store(path, write=False) as store:
        return _from_store(store, names, preset, tables)


def build(tables: dict[str, pd.DataFrame], origin: str) -> Frames:
    """Frames from tables with the columns of COLUMNS: typed, sorted, cell columns joined."""
    plain = {name: _typed(tables[name], columns).sort_values(ORDER[name]) for name, columns in COLUMNS.items()}
    cells = plain["cells"].reset_index(drop=True)
    about = cells.drop_duplicates("cell").set_index("cell")[list(JOINED.values())].set_axis(list(JOINED), axis=1)
    joined = {"cells": cells}
    for name in list(COLUMNS)[1:]:
        frame = plain[name].reset_index(drop=True)
        joined[name] = pd.concat([frame, about.reindex(frame["cell"]).reset_index(drop=True)], axis=1)
    return Frames(**joined, origin=origin)


_KINDS: dict[type, Any] = {int: np.int64, float: np.float64, str: object}


def _typed(frame: pd.DataFrame, columns: dict[str, type]) -> pd.DataFrame:
    kinds: dict[type, Any] = {int: "int64", float: "float64", str: "str"}
    return frame[list(columns)].astype({column: kinds[kind] for column, kind in columns.items()})


def _from_store(store: Store, names: Sequence[str] | None, preset: str | None, tables: Collection[str]) -> Frames:
    presets = _presets(store, names, preset)
    cells = [
        row for experiment, chosen in sorted(presets.items()) for row in store.rows(_MEMBERS, (experiment, chosen))
    ]
    stored = pd.DataFrame(cells, columns=list(CELLS))
    ids = list(dict.fromkeys(stored["cell"]))
    read: dict[str, pd.DataFrame] = {"cells": stored}
    for name, columns in list(COLUMNS.items())[1:]:
        reader = _READERS.get(name, _select)
        read[name] = reader(store, name, ids) if name in tables else pd.DataFrame(columns=list(columns))
    return build(read, str(store.path))


def _select(store: Store, table: str, cells: Sequence[str]) -> pd.DataFrame:
    columns = COLUMNS[table]
    # By columns whose types are known: from rows, pandas would look at every value to find them out.
    parts = [
        [np.array(values, _KINDS[kind]) for values, kind in zip(zip(*rows), columns.values())]
        for rows in _batches(store, f"SELECT {', '.join(columns)} FROM {table}", cells)
    ]
    if not parts:
        return pd.DataFrame(columns=list(columns))
    return pd.DataFrame({name: np.concatenate(arrays) for name, arrays in zip(columns, zip(*parts))})


def _batches(store: Store, query: str, cells: Sequence[str], order: str = "") -> Iterator[list[Any]]:
    """The rows of these cells, of some cells at a time; never an empty list."""
    collecting = gc.isenabled()
    gc.disable()  # a hundred thousand new tuples would set it searching again and again, for nothing
    try:
        for start in range(0, len(cells), CELLS_AT_ONCE):
            some = cells[start : start + CELLS_AT_ONCE]
            if rows := store.rows(f"{query} WHERE cell IN ({', '.join('?' * len(some))}) {order}", some):
                yield rows
    finally:
        if collecting:
            gc.enable()


_MEMBERS = """SELECT cells.cell, members.experiment, members.preset, task, head, dim, learning_rate,
    parameters_per_seed, code, cells.config FROM members JOIN cells ON cells.cell = members.cell
    WHERE members.experiment = ? AND members.preset = ? AND cells.cell IN (SELECT cell FROM done)"""


def _presets(store: Store, names: Sequence[str] | None, preset: str | None) -> dict[str, str]:
    """The preset to read, by experiment: the one asked for, or the one that was run last."""
    runs = store.rows("SELECT experiment, preset FROM plans ORDER BY number")
    latest = {experiment: ran for experiment, ran in runs if preset in (None, ran)}
    for name in names or ():
        if name not in (known := {experiment for experiment, _ in runs}):
            raise InputError(f"{store.path}: holds no results of {name}{nearest(name, known)}")
        if name not in latest:
            raise InputError(f"{store.path}: {name}: was not run with the preset {preset}")
    return {experiment: ran for experiment, ran in latest.items() if names is None or experiment in names}


def _curves(store: Store, table: str, cells: Sequence[str]) -> pd.DataFrame:
    """Quartiles over seeds at every step."""
    query = "SELECT cell, steps, excess_loss FROM curves"
    seeds = chain.from_iterable(_batches(store, query, cells, "ORDER BY cell, seed"))
    # Cells that have equally many seeds and were measured at the same steps go through numpy together.
    alike: dict[tuple[bytes, int], list[tuple[str, list[bytes]]]] = {}
    for cell, rows in groupby(seeds, key=itemgetter(0)):
        curves = [(steps, values) for _, steps, values in rows]
        alike.setdefault((curves[0][0], len(curves)), []).append((cell, [values for _, values in curves]))
    parts = [_quartiles(np.frombuffer(steps, "<i4"), group) for (steps, _), group in alike.items()]
    return pd.concat(parts) if parts else pd.DataFrame(columns=list(CURVES))


def _quartiles(steps: np.ndarray, curves: Sequence[tuple[str, list[bytes]]]) -> pd.DataFrame:
    """Rows for cells whose seeds have these steps; each curve is float32 bytes, one per seed."""
    seeds = len(curves[0][1])
    values = np.frombuffer(b"".join(row for _, rows in curves for row in rows), "<f4").astype(np.float64)
    quartiles = quantiles(values.reshape(len(curves), seeds, len(steps)), axis=1)
    low, middle, high = ([results.rounded(value) for value in part.ravel()] for part in quartiles)
    data = {
        "cell": np.repeat([cell for cell, _ in curves], len(steps)),
        "step": np.tile(steps, len(curves)),
        "n": seeds,
        "q25": low,
        "median": middle,
        "q75": high,
    }
    return pd.DataFrame(data)


def _files(store: Store, table: str, cells: Sequence[str]) -> pd.DataFrame:
    """Blocks of seeds merged: means weighted by their seeds, minima, and counts added."""
    blocks = _typed(_select(store, table, cells), COLUMNS[table])
    for mean in ("exact_mean", "tv_mean"):
        blocks[mean] *= blocks["seeds"]
    rules = {"seq_len": "first", "scopes": "first", "queries": "first", "exact_min": "min"}
    sums = dict.fromkeys(("seeds", "exact_mean", "tv_mean", "perfect"), "sum")
    merged = blocks.groupby(["cell", "file"], as_index=False, sort=True).agg({**rules, **sums})
    for mean in ("exact_mean", "tv_mean"):
        merged[mean] /= merged["seeds"]
    for column in ("exact_mean", "exact_min", "tv_mean"):
        merged[column] = merged[column].map(results.rounded)
    return merged[list(COLUMNS["files"])]


_READERS = {"curves": _curves, "files": _files}
