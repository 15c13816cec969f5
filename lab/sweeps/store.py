"""Where results live: one SQLite file, written by one driver, readable by anyone meanwhile.

A unit is stored in one transaction, so killing the driver at any moment loses only the units in flight. The file is
in WAL mode: `lab.sqlite-wal` and `lab.sqlite-shm` beside it belong to it while it is open. `lab.sqlite-driver` is an
empty file whose lock says that a driver is at work; the system drops that lock with the process, however it ends.
"""

import json
import os
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lab.errors import InputError, nearest
from lab.sweeps import results, weights
from lab.sweeps.environment import environment
from lab.sweeps.plan import Cell, Plan, Unit
from lab.sweeps.results import CellResult
from lab.sweeps.store_file import StoreError, StoreFull, check_whole, explained, open_store, transaction

if TYPE_CHECKING:
    from lab.sweeps.frames import Frames

__all__ = ["Failure", "Store", "StoreError", "StoreFull", "load_frames"]


@dataclass(frozen=True)
class Failure:
    """A unit that raised or whose worker died, as it stands until it succeeds."""

    unit: str
    cell: str
    seeds: tuple[int, ...]
    attempts: int
    traceback: str


class Store:
    """The results at `path`. `write=True` creates what is missing; `write=False` needs an existing store.

    Raises StoreError, one clear line, when the path is no store of the lab, was written by a newer lab, is a folder,
    or cannot be read or written.
    """

    def __init__(self, path: str | os.PathLike[str], *, write: bool = True):
        self.path = Path(path)
        self.connection = open_store(self.path, write=write)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- writing: the driver only ---

    @contextmanager
    def driver(self) -> Iterator[None]:
        """Holds the right to write; StoreError, naming the process, when another live one holds it.

        StoreError also when the file is damaged, or the lock is.
        """
        name = Path(f"{self.path}-driver")
        if name.is_file() and name.stat().st_size:
            raise StoreError(f"{name}: is not the lock of a store, which is an empty file; delete it")
        with explained(name):
            lock = sqlite3.connect(name, timeout=0, isolation_level=None)
        try:
            with explained(name):
                self._take(lock)
            check_whole(self.connection, self.path)
            yield
        finally:
            lock.close()

    def _take(self, lock: sqlite3.Connection) -> None:
        try:
            lock.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            latest = self.rows("SELECT process, host FROM drivers ORDER BY number DESC LIMIT 1")
            who = f" (process {latest[0][0]} on {latest[0][1]})" if latest else ""
            raise StoreError(f"{self.path}: another sweep{who} is writing to it; wait for it or stop it") from None
        with self._transaction() as db:
            db.execute("INSERT INTO drivers (host, process) VALUES (?, ?)", (socket.gethostname(), os.getpid()))

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with explained(self.path), transaction(self.connection):
            yield self.connection

    def record(self, plan: Plan) -> None:
        """Notes that a plan is run: its cells become those of its experiment under its preset.

        Cells of an earlier run that the plan no longer has stay in the store, but out of the results. A plan that is
        a part of its experiment only adds.
        """
        with self._transaction() as db:
            if not plan.part:
                db.execute("DELETE FROM members WHERE experiment = ? AND preset = ?", (plan.name, plan.preset))
            db.execute(
                "INSERT INTO plans (experiment, preset, seeds) VALUES (?, ?, ?)",
                (plan.name, plan.preset, json.dumps(plan.seeds)),
            )
            for cell in plan.cells:
                db.execute(
                    "INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?)",
                    (plan.name, plan.preset, cell.config, cell.id),
                )
                db.execute("INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)", _cell_row(cell))

    def finish(self, unit: Unit, result: CellResult, seconds: float, computed_by: str | None = None) -> None:
        """Stores a unit's result in one transaction and forgets its earlier failures.

        `computed_by` is the `environment()` of the process that computed it, when it is not this one's.

        Raises ValueError when the result does not fit the unit, StoreFull when the disk is full; then nothing of it
        is stored.
        """
        results.check_result(result, unit.seeds)
        cell = unit.cell.id
        evaluations = results.table_rows("evaluations", result.evaluations, results.EVALUATIONS)
        parameters = results.table_rows("parameters", result.parameters, results.PARAMETERS)
        files = results.table_rows("files", result.files, results.FILES, digits=False)  # rounded when merged
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)", _cell_row(unit.cell))
            db.execute("UPDATE cells SET parameters_per_seed = ? WHERE cell = ?", (result.parameters_per_seed, cell))
            db.execute(
                "INSERT INTO units VALUES (?, ?, ?, ?, ?, ?)",
                (unit.id, cell, json.dumps(unit.seeds), seconds, computed_by or environment(), result.weights),
            )
            _insert(db, "done", [(cell, seed, unit.id) for seed in unit.seeds])
            _insert(db, "evaluations", [(cell, *row) for row in evaluations])
            _insert(db, "parameters", [(cell, *row) for row in parameters])
            _insert(db, "files", [(unit.id, cell, *row) for row in files])
            _insert(db, "curves", _curve_rows(cell, unit.seeds, result.curves))
            overtaken = [f.unit for f in self.failures([cell]) if set(f.seeds) & set(unit.seeds)]
            db.executemany("DELETE FROM failures WHERE unit = ?", [(name,) for name in overtaken])

    def fail(self, unit: Unit, traceback: str) -> None:
        """Keeps the traceback of a unit that failed; it is tried again at the next run."""
        with self._transaction() as db:
            db.execute(
                """INSERT INTO failures VALUES (?, ?, ?, 1, ?) ON CONFLICT (unit)
                   DO UPDATE SET attempts = attempts + 1, traceback = excluded.traceback""",
                (unit.id, unit.cell.id, json.dumps(unit.seeds), traceback),
            )

    # --- reading: anyone, also while a driver writes ---

    def asked(self, experiment: str, preset: str | None = None) -> Plan:
        """What a store was last asked to compute of an experiment, under a preset or under the one that ran last.

        The cells are those of `record`, as today's code identifies them; the seeds are those of the last run. Raises
        InputError when the store was asked for nothing of it.
        """
        runs = self.rows("SELECT experiment, preset, seeds FROM plans ORDER BY number")
        if experiment not in {name for name, _, _ in runs}:
            known = {name for name, _, _ in runs}
            raise InputError(f"{self.path}: holds no results of {experiment}{nearest(experiment, known)}")
        mine = [(ran, seeds) for name, ran, seeds in runs if name == experiment and preset in (None, ran)]
        if not mine:
            raise InputError(f"{self.path}: {experiment}: was not run with the preset {preset}")
        ran, seeds = mine[-1]
        query = "SELECT config FROM members WHERE experiment = ? AND preset = ? ORDER BY config"
        try:
            cells = [Cell.model_validate_json(config) for (config,) in self.rows(query, (experiment, ran))]
        except InputError as error:  # an option that this version of the lab does not have
            raise InputError(f"{self.path}: {experiment}: was made by another version of the lab: {error}") from None
        return Plan(experiment, ran, cells, json.loads(seeds))

    def done(self) -> dict[str, frozenset[int]]:
        """The seeds that are stored, by cell id."""
        seeds: dict[str, set[int]] = {}
        for cell, seed in self.rows("SELECT cell, seed FROM done"):
            seeds.setdefault(cell, set()).add(seed)
        return {cell: frozenset(stored) for cell, stored in seeds.items()}

    def failures(self, cells: Iterable[str] | None = None) -> list[Failure]:
        """Units that failed and have not succeeded since, of the given cells or of all."""
        wanted = None if cells is None else set(cells)
        return [
            Failure(unit, cell, tuple(json.loads(seeds)), attempts, traceback)
            for unit, cell, seeds, attempts, traceback in self.rows("SELECT * FROM failures ORDER BY unit")
            if wanted is None or cell in wanted
        ]

    def weights(self, cell_id: str, seeds: Sequence[int]) -> bytes:
        """The trained parameters of these seeds, in this order, as safetensors bytes with leading axis len(seeds).

        Raises InputError when a seed is not stored or was stored without weights.
        """
        units = dict(self.rows("SELECT seed, unit FROM done WHERE cell = ?", (cell_id,)))
        parts = []
        for seed in seeds:
            if seed not in units:
                raise InputError(f"{self.path}: cell {cell_id}: seed {seed} is not stored")
            [[block, data]] = self.rows("SELECT seeds, weights FROM units WHERE unit = ?", (units[seed],))
            if data is None:
                raise InputError(f"{self.path}: cell {cell_id}: seed {seed} was stored without weights")
            parts.append((seed, tuple(json.loads(block)), data))
        return weights.gather(parts)

    def rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows that a query gives."""
        with explained(self.path):
            return self.connection.execute(query, values).fetchall()


def load_frames(
    source: "Store | str | os.PathLike[str]", names: Sequence[str] | None = None, **options: Any
) -> "Frames":
    """See `lab.sweeps.frames.load_frames`: named here too, without importing pandas before it is needed."""
    from lab.sweeps import frames

    return frames.load_frames(source, names, **options)


def _cell_row(cell: Cell) -> tuple[Any, ...]:
    head = cell.head
    rate = cell.recipe.learning_rate
    return cell.id, cell.experiment, cell.task.label, head.label, head.dim, rate, cell.config, cell.code


def _curve_rows(cell: str, seeds: Sequence[int], curves: results.Curves | None) -> list[tuple[Any, ...]]:
    if curves is None:
        return []
    steps = np.asarray(curves.steps, "<i4").tobytes()
    values = np.asarray(curves.excess_loss, "<f4")
    return [(cell, seed, steps, row.tobytes()) for seed, row in zip(seeds, values)]


def _insert(db: sqlite3.Connection, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
