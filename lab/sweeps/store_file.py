"""Opening the file of a store: the schema, whose file it is, and errors of SQLite in one clear line."""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from lab.errors import InputError
from lab.sweeps import results

APPLICATION_ID = 0x46504131  # "FPA1", in the header of the file
VERSION = 1
BUSY_SECONDS = 30.0

_SQL_TYPES = {int: "INTEGER", float: "REAL", str: "TEXT"}


def _table(name: str, columns: Mapping[str, type], first: str, last: str) -> str:
    typed = ", ".join(f"{column} {_SQL_TYPES[kind]}" for column, kind in columns.items())
    return f"CREATE TABLE {name} ({first}, {typed}, {last})"


SCHEMA = (
    """CREATE TABLE cells (cell TEXT PRIMARY KEY, experiment TEXT, task TEXT, head TEXT, dim INTEGER,
       learning_rate REAL, config TEXT, code TEXT, parameters_per_seed INTEGER)""",
    # Which cells an experiment consists of under a preset. A configuration has one cell: that of its newest code.
    """CREATE TABLE members (experiment TEXT, preset TEXT, config TEXT, cell TEXT,
       PRIMARY KEY (experiment, preset, config))""",
    "CREATE TABLE plans (number INTEGER PRIMARY KEY AUTOINCREMENT, experiment TEXT, preset TEXT, seeds TEXT)",
    "CREATE TABLE drivers (number INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT, process INTEGER)",
    """CREATE TABLE units (unit TEXT PRIMARY KEY, cell TEXT, seeds TEXT, seconds REAL, environment TEXT,
       weights BLOB)""",
    "CREATE TABLE done (cell TEXT, seed INTEGER, unit TEXT, PRIMARY KEY (cell, seed)) WITHOUT ROWID",
    "CREATE TABLE failures (unit TEXT PRIMARY KEY, cell TEXT, seeds TEXT, attempts INTEGER, traceback TEXT)",
    "CREATE TABLE curves (cell TEXT, seed INTEGER, steps BLOB, excess_loss BLOB, PRIMARY KEY (cell, seed))",
    _table("evaluations", results.EVALUATIONS, "cell TEXT", "PRIMARY KEY (cell, seed, task, split, length)"),
    _table("parameters", results.PARAMETERS, "cell TEXT", "PRIMARY KEY (cell, seed, name, token)"),
    _table("files", results.FILES, "unit TEXT, cell TEXT", "PRIMARY KEY (cell, unit, file)"),
)

_KEPT = "finished units are kept; free some space and run the same command again"
_FULL = {
    sqlite3.SQLITE_FULL: f"the disk is full; {_KEPT}",
    sqlite3.SQLITE_IOERR: f"cannot be written (disk full, quota, or file size limit); {_KEPT}",
}
_REASONS = {
    sqlite3.SQLITE_NOTADB: "is not a store of the lab (not an SQLite file); choose another --store",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore a copy, or save what is readable: fpa-lab export NAME --salvage NEW",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; is its folder writable?",
    sqlite3.SQLITE_READONLY: "cannot be written; are the file and its folder writable?",
    sqlite3.SQLITE_BUSY: "is locked by another process; try again",
}


class StoreError(InputError):
    """The store cannot be used; one line says which file, why, and what to do."""


class StoreFull(StoreError):
    """The disk is full, or a quota or size limit is reached. What was stored before is intact."""


def open_store(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection in autocommit mode to the store at `path`, which a writer creates when it is missing.

    Raises StoreError when the path is no store of the lab, was written by a newer lab, is a folder, or cannot be
    opened.
    """
    _check_file(path, write)
    with explained(path):
        connection = _connect(path) if write else _connect_to_read(path)
        try:
            _check_schema(connection, path, write)
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns what a user can mend into one line; other errors of SQLite pass: they are ours."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte of an extended code is the plain one
        if code in _FULL:
            raise StoreFull(f"{path}: {_FULL[code]}") from None
        if code in _REASONS:
            raise StoreError(f"{path}: {_REASONS[code]}") from None
        raise


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, on Ctrl-C too."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk may have rolled back already
            connection.execute("ROLLBACK")
        raise


def _check_file(path: Path, write: bool) -> None:
    """What can be said before SQLite sees the file."""
    try:
        if path.is_dir():
            raise StoreError(f"{path}: is a folder; expected the file of a store, such as results/lab.sqlite")
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists() and not _log(path).exists():
            raise StoreError(f"{path}: no such store; fpa-lab sweep makes one")
        head = b""
        if path.exists():
            with path.open("rb") as file:
                head = file.read(16)
        log = _log(path)
        if not head and log.exists() and log.stat().st_size:  # SQLite would delete the log
            gone = "is empty" if path.exists() else "is missing"
            raise StoreError(f"{path}: {gone}, but its log {log.name} is not; bring back the file that belongs to it")
    except OSError as error:
        raise StoreError(f"{path}: cannot be opened: {error.strerror}") from None
    if head and head != b"SQLite format 3\0":
        raise StoreError(f"{path}: {_REASONS[sqlite3.SQLITE_NOTADB]}")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    # Every commit reaches the disk: a unit takes seconds to compute and milliseconds to sync.
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _connect_to_read(path: Path) -> sqlite3.Connection:
    """Never creates or changes a store, wherever it is. Where the folder is read only, SQLite cannot keep its notes
    beside the file: it is told that nobody else writes, or, when there is a log to be read too, given a copy of both.
    """
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError:
        connection.close()
        if os.access(path.parent, os.W_OK):
            raise
        log = _log(path)
        if log.exists() and log.stat().st_size:
            return _connect_to_copy(path, log)
        connection = sqlite3.connect(f"{uri}&immutable=1", uri=True, isolation_level=None)
    return connection


class _OnCopy(sqlite3.Connection):
    """A connection to a copy that goes with it."""

    folder: "tempfile.TemporaryDirectory[str]"

    def close(self) -> None:
        super().close()
        self.folder.cleanup()


def _connect_to_copy(path: Path, log: Path) -> sqlite3.Connection:
    folder = tempfile.TemporaryDirectory(prefix="fpa-lab-")
    copy = Path(folder.name) / "lab.sqlite"
    shutil.copyfile(path, copy)
    shutil.copyfile(log, _log(copy))
    connection = sqlite3.connect(copy, isolation_level=None, factory=_OnCopy)
    connection.folder = folder
    connection.execute("PRAGMA query_only = 1")
    return connection


def _log(path: Path) -> Path:
    """What is written first and moved into the file later; it belongs to the store as long as it is there."""
    return path.with_name(f"{path.name}-wal")


def check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Raises StoreError when a page of the file is damaged: better before a sweep than after hours of it."""
    with explained(path):
        [[verdict]] = connection.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != "ok":
        raise StoreError(f"{path}: {_REASONS[sqlite3.SQLITE_CORRUPT]}")


def _check_schema(connection: sqlite3.Connection, path: Path, write: bool) -> None:
    """Creates the tables of a new store; refuses a file that is another program's or a newer lab's."""
    connection.execute("BEGIN")  # one moment for both: another process may be creating them
    of_the_lab = _pragma(connection, "application_id") == APPLICATION_ID
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    connection.execute("COMMIT")
    if not of_the_lab:
        if tables or not write:
            raise StoreError(f"{path}: is an SQLite file, but no store of the lab; choose another --store")
        _create(connection)
    version = _pragma(connection, "user_version")
    if version > VERSION:
        raise StoreError(f"{path}: was written by a newer lab (format {version}, this one reads {VERSION}); upgrade")
    if version != VERSION:
        raise StoreError(f"{path}: has the unknown format {version}, expected {VERSION}; choose another --store")


def _create(connection: sqlite3.Connection) -> None:
    _keep_a_log(connection)
    with transaction(connection):
        if _pragma(connection, "application_id") == APPLICATION_ID:
            return  # another process was first
        for statement in SCHEMA:
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _keep_a_log(connection: sqlite3.Connection) -> None:
    """Readers go on while a driver writes. SQLite needs the file for itself for that, and does not wait for it."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
            time.sleep(0.01)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]
