"""A new store from what is readable of a damaged one: whole units only, so that nothing in it is half a result."""

import hashlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.sweeps import results
from lab.sweeps.carve import Value, carve, missing_pages
from lab.sweeps.plan import TaskConfig
from lab.sweeps.store import Store, StoreError
from lab.sweeps.store_file import explained, transaction

Row = tuple[Value, ...]
Owner = tuple[str, tuple[Any, Any]]  # a table, and the cell and seed that rows of it are of; for files, cell and unit

_TEXT, _MAYBE = (str,), (float, int, type(None))
_RESULT = {int: (int,), float: _MAYBE, str: _TEXT}


def _kinds(*first: tuple[type, ...], columns: Mapping[str, type]) -> tuple[tuple[type, ...], ...]:
    return (*first, *(_RESULT[kind] for kind in columns.values()))


# What the values of a row may be. No two tables are alike in this, which is how a row says whose it is. A number that
# is no number is stored as nothing, and a whole one as an integer.
_NUMBERED = (type(None),)
TABLES: dict[str, tuple[tuple[type, ...], ...]] = {
    "cells": (_TEXT,) * 4 + ((int,), _MAYBE, _TEXT, _TEXT, (int, type(None))),
    "members": (_TEXT,) * 4,
    "plans": (_NUMBERED, _TEXT, _TEXT, _TEXT),
    "units": (_TEXT, _TEXT, _TEXT, _MAYBE, _TEXT, (bytes, type(None))),
    "failures": (_TEXT, _TEXT, _TEXT, (int,), _TEXT),
    "curves": (_TEXT, (int,), (bytes,), (bytes,)),
    "evaluations": _kinds(_TEXT, columns=results.EVALUATIONS),
    "parameters": _kinds(_TEXT, columns=results.PARAMETERS),
    "files": _kinds(_TEXT, _TEXT, columns=results.FILES),
}
OF_A_SEED = ("evaluations", "parameters", "curves")
NO_PRESET = "rescued"

# The primary key by which a table is indexed, and behind which the index has the number of the row.
KEYS: dict[str, tuple[type, ...]] = {
    "curves": (str, int),
    "evaluations": (str, int, str, str, int),
    "parameters": (str, int, str, str),
    "files": (str, str, str),
}

# What the unit functions of `lab.training` hand back, as far as a configuration alone says it.
OF_FILES = ("source-scopes", "source-lookup")
LEARNS_PER_TOKEN = ("fox", "fox_relative", "fpa", "fpa_recency")
COUNTS_DUPLICATES = "chance"
LOOKUP_READINGS = ("shadowed", "outlived", "in force", "live keys")
FILE_READINGS = tuple(
    "/".join(filter(None, (group, shortcut)))
    for group in ("", "shadowed", "outlived")
    for shortcut in ("", "most recent binding", "random live binding")
)


@dataclass(frozen=True)
class Salvage:
    """What was saved, and what is known to be lost: seeds of which something was readable, but not everything.

    Units of which nothing is left are in no list; `fpa-lab status` on the new store counts what is missing.
    """

    units: int
    seeds: int
    lost: tuple[tuple[str, tuple[int, ...]], ...]  # label of the cell, seeds
    missing_pages: int
    pages: int

    def __str__(self) -> str:
        saved = f"{self.units} units with {self.seeds} seeds saved"
        pages = f"{self.missing_pages} of {self.pages} pages are blank or cut off"
        return f"{saved}; {sum(len(seeds) for _, seeds in self.lost)} seeds lost in part or whole; {pages}"


def salvage(path: Path, out: Path) -> Salvage:
    """Writes the whole units of the damaged store at `path` to a new store at `out`. `path` is not changed.

    A unit is whole when it has the rows that its configuration asks for, those that others of its kind have, and those
    that the indexes name. In doubt it is lost: a sweep on the new store computes the rest.
    Raises StoreError when `path` cannot be read, holds nothing of a store, or when there is something at `out`.
    """
    if out.exists():
        raise StoreError(f"{out}: exists already; name a new file to save to")
    try:
        tables, indexed = _read(path)
        pages = missing_pages(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from None
    if not tables["units"] and not tables["cells"]:
        raise StoreError(f"{path}: holds nothing that could be saved")
    whole, lost = _sorted_out(tables, indexed)
    _write(tables, whole, out)
    seeds = sum(len(_list(unit[2])) for unit in whole.values())
    return Salvage(len(whole), seeds, lost, *pages)


def _read(path: Path) -> tuple[dict[str, dict[Any, Row]], dict[Owner, set[Row]]]:
    """Rows by table and key, and the rows that indexes name, by owner.

    Cells and units whose id is not the hash of what they hold are damaged.
    """
    found: dict[str, dict[Any, Row]] = {name: {} for name in TABLES}
    indexed: dict[Owner, set[Row]] = defaultdict(set)
    for number, row in sorted(carve(path), key=lambda numbered: numbered[0] or 0):
        name = _table(row) if number is not None else _index(row)
        if name is not None and number is not None:
            found[name][_key(name, number, row)] = (number, *row[1:]) if name == "plans" else row
        elif name is not None:
            indexed[name, (row[0], row[1])].add(row[2:-1])
    for name, parts in (("cells", {"code": 7, "config": 6}), ("units", {"cell": 1, "seeds": 2})):
        found[name] = {key: row for key, row in found[name].items() if key == _id(row, parts)}
    return found, indexed


def _table(row: Row) -> str | None:
    for name, kinds in TABLES.items():
        if len(row) == len(kinds) and all(isinstance(value, kind) for value, kind in zip(row, kinds)):
            return None if row[0] in ("table", "index") else name  # these are of SQLite itself
    return None


def _index(entry: Row) -> str | None:
    """The table whose index has such entries."""
    kinds = tuple(map(type, entry))
    return next((name for name, key in KEYS.items() if kinds == (*key, int)), None)


def _key(name: str, number: int, row: Row) -> Any:
    """What identifies a row in its table."""
    if name == "plans":
        return number
    if name == "evaluations":
        cell, seed, task, split, length, *_ = row
        return cell, seed, task, split, length
    return row[: {"members": 3, "curves": 2, "parameters": 4, "files": 12}[name]] if name not in _BY_FIRST else row[0]


_BY_FIRST = ("cells", "units", "failures")


def _list(text: Value) -> Any:
    return json.loads(str(text))


def _id(row: Row, parts: Mapping[str, int]) -> str | None:
    """The id that a cell or unit of these values has; None when they are not what a store holds."""
    values: dict[str, Any] = {name: row[column] for name, column in parts.items()}
    try:
        values |= {"seeds": _list(values["seeds"])} if "seeds" in parts else {}
    except ValueError:
        return None
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _sorted_out(
    tables: dict[str, dict[Any, Row]], indexed: Mapping[Owner, set[Row]]
) -> tuple[dict[str, Row], tuple[tuple[str, tuple[int, ...]], ...]]:
    """The units that are whole, and by cell the seeds that are not but have left traces."""
    rows = _rows_by_owner(tables)
    usual = _usual_rows(tables["cells"], rows)
    whole: dict[str, Row] = {}
    traces: dict[str, set[int]] = defaultdict(set)
    for name, owner in rows:
        if name in OF_A_SEED:
            traces[owner[0]].add(owner[1])
    for unit, row in tables["units"].items():
        cell, seeds = str(row[1]), _list(row[2])
        traces[cell].update(seeds)
        of = tables["cells"].get(cell)
        if of is None:
            continue  # nothing says what the unit was to have
        asked = _asked(str(of[6]))
        owners = [(name, (cell, seed)) for name in OF_A_SEED for seed in seeds] + [("files", (cell, unit))]
        if all(
            usual.get(_group(of, name), set()) | indexed.get((name, owner), set()) <= rows.get((name, owner), set())
            and all(any(_fits(row, wanted) for row in rows.get((name, owner), ())) for wanted in asked[name])
            for name, owner in owners
        ):
            whole[unit] = row
    for row in whole.values():
        traces[str(row[1])] -= set(_list(row[2]))
    return whole, tuple((_label(tables, cell), tuple(sorted(seeds))) for cell, seeds in sorted(traces.items()) if seeds)


def _rows_by_owner(tables: dict[str, dict[Any, Row]]) -> dict[Owner, set[Row]]:
    """What tells the rows of one seed of a cell apart (of one unit, for files), by table and owner."""
    rows: dict[Owner, set[Row]] = defaultdict(set)
    for name in OF_A_SEED:
        for key in tables[name]:
            rows[name, key[:2]].add(key[2:])
    for row in tables["files"].values():
        rows["files", (row[1], row[0])].add((row[2],))
    return dict(rows)


def _usual_rows(cells: dict[str, Row], rows: Mapping[Owner, set[Row]]) -> dict[Any, set[Row]]:
    """What the owners of a kind of cell have between them: a seed that lacks some of it has lost it."""
    usual: dict[Any, set[Row]] = defaultdict(set)
    for (name, (cell, _)), keys in rows.items():
        if cell in cells:
            usual[_group(cells[cell], name)] |= keys
    return dict(usual)


def _group(cell: Row, name: str) -> Any:
    """Cells that have the same rows in a table: of one experiment, task, head and code; for readings, read alike."""
    read = json.dumps(json.loads(str(cell[6]))["evaluations"]) if name in ("evaluations", "files") else ""
    return (name, *cell[1:4], cell[7], read)


def _asked(config: str) -> dict[str, set[Row]]:
    """By table, what rows of a seed (for files, of a unit) a configuration asks for; None stands for any value."""
    cell = json.loads(config)
    kind, task = cell["head"]["kind"], cell["task"]["name"]
    trained = kind != "reader"
    files = trained and any(evaluation["task"]["name"] in OF_FILES for evaluation in cell["evaluations"])
    learned = task != "subset-free" if kind in LEARNS_PER_TOKEN else cell["head"].get("name") == COUNTS_DUPLICATES
    return {
        "evaluations": {row for evaluation in cell["evaluations"] for row in _readings(evaluation, task, trained)},
        "parameters": {(None, None)} if learned else set(),
        "curves": {()} if trained else set(),
        "files": {(None,)} if files else set(),
    }


def _readings(evaluation: dict[str, Any], trained_on: str, trained: bool) -> set[Row]:
    """Task, split and length of the rows of an evaluation. Readers, which are not trained, read all tasks alike."""
    label, split = TaskConfig.model_construct(**evaluation["task"]).label, evaluation["split"]
    lengths: tuple[int | None, ...] = tuple(evaluation["lengths"]) or (None,)
    if trained and evaluation["task"]["name"] in OF_FILES:
        names = FILE_READINGS if trained_on == "scoped-lookup" else ("",)
        return {(_named(label, name), split, 0) for name in names}
    if trained and trained_on == "subset-free":
        return {(label, split, None)}  # the one length that there is, whatever is asked for
    rows: set[Row] = {(label, split, length) for length in lengths}
    if trained and trained_on == "scoped-lookup" and split == "test":
        ends = {None} if None in lengths else {min(evaluation["lengths"]), max(evaluation["lengths"])}
        rows |= {(_named(label, name), split, length) for name in LOOKUP_READINGS for length in ends}
    return rows


def _named(label: str, reading: str) -> str:
    return f"{label}/{reading}" if reading else label


def _fits(row: Row, wanted: Row) -> bool:
    return all(value is None or value == own for own, value in zip(row, wanted))


def _label(tables: dict[str, dict[Any, Row]], cell: str) -> str:
    row = tables["cells"].get(cell)
    if row is None:
        return f"cell {cell}"
    experiment, task, head, dim, rate = map(str, row[1:6])
    return f"{experiment}: {task} {head} dim {dim} rate {rate}"


def _write(tables: dict[str, dict[Any, Row]], whole: dict[str, Row], out: Path) -> None:
    kept = {(row[1], seed): unit for unit, row in whole.items() for seed in _list(row[2])}
    with Store(out) as store, explained(out), transaction(store.connection):
        db = store.connection
        _insert(db, "cells", tables["cells"].values())
        _insert(db, "units", whole.values())
        _insert(db, "done", [(cell, seed, unit) for (cell, seed), unit in kept.items()])
        for name in OF_A_SEED:
            _insert(db, name, [row for row in tables[name].values() if (row[0], row[1]) in kept])
        _insert(db, "files", [row for row in tables["files"].values() if row[0] in whole])
        _insert(db, "failures", [row for row in tables["failures"].values() if row[1] in tables["cells"]])
        _insert(db, "plans", tables["plans"].values())
        _insert(db, "members", tables["members"].values())
        _insert(db, "members", _lost_members(tables))
        _insert(db, "plans", _lost_plans(tables, kept))


def _insert(db: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    for row in rows:
        db.execute(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(row))})", row)


def _presets(tables: dict[str, dict[Any, Row]]) -> dict[str, str]:
    """By experiment the preset that ran last, as far as that can still be read."""
    known = {str(row[0]): str(row[1]) for row in tables["members"].values()}
    return known | {str(row[1]): str(row[2]) for _, row in sorted(tables["plans"].items())}


def _lost_members(tables: dict[str, dict[Any, Row]]) -> list[Row]:
    """Cells that no readable preset names belong to the one that ran last; of equal ones, the newest."""
    presets = _presets(tables)
    named = {row[3] for row in tables["members"].values()}
    newest_first = [row for row in reversed(tables["cells"].values()) if row[0] not in named]
    return [(row[1], presets.get(str(row[1]), NO_PRESET), row[6], row[0]) for row in newest_first]


def _lost_plans(tables: dict[str, dict[Any, Row]], kept: Mapping[tuple[Value, int], str]) -> list[Row]:
    """For experiments of which no plan is left, one of the seeds that are saved."""
    presets, planned = _presets(tables), {row[1] for row in tables["plans"].values()}
    seeds: dict[str, set[int]] = defaultdict(set)
    for cell, seed in kept:
        seeds[str(tables["cells"][str(cell)][1])].add(seed)
    lost = sorted(set(seeds) - planned)
    return [(None, name, presets.get(name, NO_PRESET), json.dumps(sorted(seeds[name]))) for name in lost]
