import gc
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from math import ceil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load
from sweeps_fakes import make_cell, make_plan, quick_unit

from lab.errors import InputError
from lab.sweeps import (
    InlineExecutor,
    LocalExecutor,
    Plan,
    Store,
    StoreError,
    StoreFull,
    Unit,
    load_frames,
    run,
    status,
)
from lab.sweeps.frames import CELLS_AT_ONCE
from lab.sweeps.weights import metadata_of
from lab.training.recipe import Recipe


def test_a_new_store_says_what_it_is(tmp_path):
    path = tmp_path / "new" / "folder" / "lab.sqlite"
    Store(path).close()
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA application_id").fetchone()[0] == 0x46504131
    assert raw.execute("PRAGMA user_version").fetchone()[0] == 1
    assert raw.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    raw.close()
    Store(path).close()
    Store(path, write=False).close()


def foreign(path):
    raw = sqlite3.connect(path)
    raw.execute("CREATE TABLE other (x)")
    raw.commit()
    raw.close()


def newer(path):
    Store(path).close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 2")
    raw.close()


def damaged(path):
    Store(path).close()
    content = bytearray(path.read_bytes())
    content[100:4096] = bytes(len(content[100:4096]))
    path.write_bytes(content)


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("cell,seed\n1,2\n"), "not an SQLite file"),
        (lambda path: path.write_bytes(b"SQLite format 3\0 and then nonsense" * 40), "not"),
        (foreign, "no store of the lab"),
        (newer, "newer lab (format 2, this one reads 1)"),
        (damaged, "damaged"),
        (lambda path: path.mkdir(), "is a folder"),
    ],
)
def test_what_is_no_store_is_refused_in_one_line(tmp_path, make, message, write):
    path = tmp_path / "file"
    make(path)
    with pytest.raises(StoreError) as error:
        Store(path, write=write)
    assert message in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)
    assert isinstance(error.value, InputError)


def test_refusing_changes_nothing(tmp_path):
    path = tmp_path / "file"
    foreign(path)
    before = path.read_bytes()
    with pytest.raises(StoreError):
        Store(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["file"]


def test_reading_creates_nothing(tmp_path):
    with pytest.raises(StoreError, match="no such store"):
        Store(tmp_path / "lab.sqlite", write=False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("make", ["file-as-folder", "no-permission"])
def test_a_folder_that_cannot_be_written(tmp_path, make):
    if make == "file-as-folder":
        (tmp_path / "results").write_text("")
        folder = tmp_path / "results"
    else:
        folder = locked_folder(tmp_path)
    with pytest.raises(StoreError) as error:
        Store(folder / "lab.sqlite")
    assert str(error.value).startswith(f"{folder / 'lab.sqlite'}: cannot be opened")


def locked_folder(tmp_path):
    """A folder without write permission; the superuser ignores permissions, but not those of /proc."""
    if os.geteuid() == 0:
        return type(tmp_path)("/proc")
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    return folder


def test_an_unfinished_creation_is_taken_up(tmp_path):
    """A driver killed before the tables stand leaves an empty file, or one in WAL mode without tables."""
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    Store(empty).close()
    started = tmp_path / "started.sqlite"
    raw = sqlite3.connect(started)
    raw.execute("PRAGMA journal_mode = WAL")
    raw.close()
    Store(started).close()


def test_readers_see_finished_units_while_a_driver_writes(store, plan):
    first, second = plan.units()[:2]
    with store.driver(), Store(store.path, write=False) as reader:
        store.finish(first, quick_unit(first.cell, first.seeds), 1.0)
        assert reader.done() == {first.cell.id: frozenset(first.seeds)}
        store.connection.execute("BEGIN IMMEDIATE")
        store.connection.execute("DELETE FROM done")
        assert reader.done() == {first.cell.id: frozenset(first.seeds)}
        store.connection.execute("ROLLBACK")
        store.finish(second, quick_unit(second.cell, second.seeds), 1.0)
        assert len(reader.done()) == 2
        with pytest.raises(StoreError, match="cannot be written"):
            reader.finish(first, quick_unit(first.cell, first.seeds), 1.0)


def test_a_second_driver_is_refused_and_a_dead_one_is_not_in_the_way(store):
    script = "import sys, time; from lab.sweeps import Store\n"
    script += f"with Store({str(store.path)!r}).driver():\n print('ready', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n"
        with (
            pytest.raises(StoreError, match=f"another sweep \\(process {child.pid} on .*\\) is writing"),
            store.driver(),
        ):
            pass
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    with store.driver():
        pass
    with Store(store.path) as again, again.driver(), pytest.raises(StoreError), store.driver():
        pass


def test_a_unit_is_stored_whole_or_not_at_all(store, plan):
    unit = plan.units()[0]
    result = quick_unit(unit.cell, unit.seeds)
    rows = [*result.files, dict(result.files[0])]  # the same file twice breaks a key, after most is written
    with pytest.raises(sqlite3.IntegrityError):
        store.finish(unit, replace(result, files=rows), 1.0)
    tables = ("units", "done", "evaluations", "parameters", "files", "curves")
    assert all(store.rows(f"SELECT count(*) FROM {table}") == [(0,)] for table in tables)
    store.finish(unit, result, 1.0)
    assert store.done() == {unit.cell.id: frozenset(unit.seeds)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"evaluations": []}, "no row for seeds"),
        ({"parameters": [{"seed": 99, "name": "level", "token": "key", "value": 0.0}]}, r"rows for seeds \[99\]"),
        ({"parameters": [{"seed": 0, "name": "level", "value": 0.0}]}, "columns token"),
        ({"files": [{**quick_unit(make_cell(), [0]).files[0], "seeds": 5}]}, "over 4 seeds"),
    ],
)
def test_results_that_do_not_fit_are_refused(store, plan, change, message):
    unit = plan.units()[0]
    with pytest.raises(ValueError, match=message):
        store.finish(unit, replace(quick_unit(unit.cell, unit.seeds), **change), 1.0)
    assert store.done() == {}


def test_failures_keep_their_traceback_until_the_seeds_succeed(store, plan):
    unit = plan.units()[0]
    store.fail(unit, "Traceback: one")
    store.fail(unit, "Traceback: two")
    [failure] = store.failures()
    assert (failure.attempts, failure.traceback, failure.seeds) == (2, "Traceback: two", unit.seeds)
    assert store.failures([plan.cells[1].id]) == []
    part = Unit(unit.cell, unit.seeds[:2])  # the plan was cut differently meanwhile
    store.finish(part, quick_unit(part.cell, part.seeds), 1.0)
    assert store.failures() == []


def test_weights_come_back_for_any_seeds(store):
    plan = make_plan(seeds=8, block=4)
    run(plan, store, InlineExecutor(), run_unit=quick_unit)
    cell = plan.cells[0]
    whole = store.weights(cell.id, (0, 1, 2, 3))
    assert whole == quick_unit(cell, (0, 1, 2, 3)).weights
    mixed = store.weights(cell.id, (5, 0, 3))
    np.testing.assert_array_equal(load(mixed)["key"][:, 1], [5, 0, 3])
    assert metadata_of(mixed) == {"head": "{}", "seeds": "5,0,3"}
    with pytest.raises(InputError, match="seed 8 is not stored"):
        store.weights(cell.id, (0, 8))
    unit = Unit(cell, (9,))
    store.finish(unit, replace(quick_unit(cell, (9,)), weights=None), 1.0)
    with pytest.raises(InputError, match="without weights"):
        store.weights(cell.id, (9,))


def test_a_full_disk_loses_nothing_that_was_stored(store, plan):
    units = plan.units()
    for unit in units[:3]:
        store.finish(unit, quick_unit(unit.cell, unit.seeds), 1.0)
    pages = store.rows("PRAGMA page_count")[0][0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 20}")
    with pytest.raises(StoreFull, match="the disk is full; finished units are kept"):
        run(plan, store, InlineExecutor(), run_unit=quick_unit)
    kept = sum(map(len, store.done().values()))
    assert 12 <= kept < 8 * len(plan.cells)
    with Store(store.path) as again:  # a new connection has no limit: space was freed
        assert sum(map(len, again.done().values())) == kept
        report = run(plan, again, InlineExecutor(), run_unit=quick_unit)
    assert (report.reused, report.computed) == (kept // 4, len(units) - kept // 4)


def test_a_real_limit_on_file_size_is_one_line(tmp_path):
    """The child may write files of 200 kB; the store outgrows that in the middle of a sweep."""
    path = tmp_path / "lab.sqlite"
    child = subprocess.run(
        [sys.executable, Path(__file__).with_name("drive.py"), path, "quick_unit", "1"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
        capture_output=True,
        text=True,
    )
    assert child.returncode == 1
    last = child.stderr.strip().splitlines()[-1]
    assert last.startswith(f"lab.sweeps.store_file.StoreFull: {path}: cannot be written")
    with Store(path) as store:
        before = sum(map(len, store.done().values()))
        report = run(make_plan(), store, InlineExecutor(), run_unit=quick_unit)
    assert before > 0
    assert report.reused == before // 4
    assert report.remaining == report.failed == 0


# --- stores that come from elsewhere ---


@pytest.fixture
def left_behind(tmp_path, plan):
    """A store as a killed driver leaves it, with units that are in the log alone: its path, and what is stored."""
    path = tmp_path / "there" / "lab.sqlite"
    with Store(path) as store:
        units = plan.units()
        for unit in units[:4]:
            store.finish(unit, quick_unit(unit.cell, unit.seeds), 1.0)
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.record(plan)
        for unit in units[4:10]:
            store.finish(unit, quick_unit(unit.cell, unit.seeds), 1.0)
        copies = tmp_path / "copies"
        copies.mkdir()
        for file in path.parent.iterdir():
            shutil.copy(file, copies / file.name)
    return copies / "lab.sqlite"


def stored_units(path) -> int:
    with Store(path, write=False) as store:
        return len(store.rows("SELECT unit FROM units"))


@pytest.mark.parametrize("left_out", ["nothing", "-shm", "-wal"])
def test_a_store_moved_elsewhere_goes_on(left_behind, tmp_path, plan, left_out, monkeypatch):
    """Under another name, on another host: with its log everything is there, without it what was moved before."""
    here = tmp_path / "hier ü" / "results?#%.sqlite"
    here.parent.mkdir()
    for file in left_behind.parent.iterdir():
        if not file.name.endswith(left_out):
            shutil.copy(file, here.with_name(file.name.replace("lab.sqlite", here.name)))
    monkeypatch.setattr("socket.gethostname", lambda: "another-host")
    monkeypatch.setattr("lab.sweeps.executors.available_cores", lambda: 1)
    kept = 4 if left_out == "-wal" else 10
    assert stored_units(here) == kept
    with Store(here) as store:
        report = run(plan, store, LocalExecutor(), run_unit=quick_unit)
        assert (report.computed, report.reused) == (24 - kept, kept)
        assert store.rows("SELECT host FROM drivers ORDER BY number DESC LIMIT 1") == [("another-host",)]
        assert store.asked("fake").seeds == plan.seeds


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"not a log" * 1000])
def test_logs_and_notes_that_are_nonsense_do_no_harm(left_behind, content):
    """The file without its log is as it was when the log was last moved into it."""
    for ending in ("-wal", "-shm"):
        left_behind.with_name(f"lab.sqlite{ending}").write_bytes(content)
    assert stored_units(left_behind) == 4
    with Store(left_behind) as store:
        assert store.rows("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize("lost", ["emptied", "missing"])
def test_a_log_without_its_file_is_kept(left_behind, write, lost):
    """SQLite would take the empty file for a new one and delete the log."""
    log = left_behind.with_name("lab.sqlite-wal").read_bytes()
    left_behind.unlink()
    if lost == "emptied":
        left_behind.touch()
    with pytest.raises(StoreError, match=r"lab\.sqlite: is (empty|missing), but its log lab\.sqlite-wal is not"):
        Store(left_behind, write=write)
    assert left_behind.with_name("lab.sqlite-wal").read_bytes() == log


def test_a_lock_that_is_none_is_named(store):
    lock = store.path.with_name(f"{store.path.name}-driver")
    lock.write_text("something else altogether")
    with pytest.raises(StoreError) as error, store.driver():
        pass
    assert str(error.value) == f"{lock}: is not the lock of a store, which is an empty file; delete it"


@pytest.mark.parametrize("log", ["with its log", "without a log"])
def test_a_store_in_a_folder_that_is_read_only(left_behind, log):
    """On a backup or another's share: everything is read, nothing is left there, and a sweep is refused."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        for file in left_behind.parent.iterdir():
            shutil.copy(file, folder / file.name)
        (folder / "lab.sqlite-shm").unlink()
        if log == "without a log":
            (folder / "lab.sqlite-wal").unlink()
        names = sorted(os.listdir(folder))
        folder.chmod(0o555)
        try:
            said = as_somebody_else(lambda: f"{stored_units(folder / 'lab.sqlite')} {refusal(folder / 'lab.sqlite')}")
        finally:
            folder.chmod(0o755)
        assert sorted(os.listdir(folder)) == names
    units, _, refused = said.partition(" ")
    assert units == ("10" if log == "with its log" else "4")
    assert refused.startswith(f"{folder}/lab.sqlite: cannot be ")


def refusal(path) -> str:
    try:
        with Store(path) as store, store.driver():
            return "accepted"
    except StoreError as error:
        return str(error)


def as_somebody_else(work) -> str:
    """What `work` returns in a child process; the superuser, whom no permission stops, becomes nobody there."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            os.write(writer, work().encode())
        except BaseException as error:
            os.write(writer, repr(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def test_a_store_of_other_code_keeps_its_results_and_gets_new_ones(store, plan, monkeypatch):
    """The cells are the same, their code is not: nothing is mixed, and nothing of the old is lost."""
    run(plan, store, InlineExecutor(), run_unit=quick_unit)
    with monkeypatch.context() as edited:
        edited.setattr("lab.sweeps.plan._version", lambda tasks, head: "code of another machine")
        other = make_plan()
        report = run(other, store, InlineExecutor(), run_unit=quick_unit)
        assert (report.computed, report.reused) == (24, 0)
        assert {cell.id for cell in store.asked("fake").cells} == {cell.id for cell in other.cells}
    assert run(make_plan(), store, InlineExecutor(), run_unit=quick_unit).reused == 24
    assert store.rows("SELECT count(*) FROM units") == [(48,)]


def test_a_cell_that_this_version_of_the_lab_cannot_read_is_one_line(store, plan):
    run(plan, store, InlineExecutor(), run_unit=quick_unit)
    store.connection.execute("""UPDATE members SET config = replace(config, '"steps"', '"step_count"')""")
    with pytest.raises(InputError) as error:
        store.asked("fake")
    assert str(error.value).startswith(
        f"{store.path}: fake: was made by another version of the lab: cell: recipe.step_"
    )


def test_reading_takes_few_queries_for_many_cells(store, monkeypatch):
    """A summary of a hundred thousand rows is asked for while people wait."""
    plan = make_plan(seeds=2)
    many = [
        cell.model_copy(update={"recipe": Recipe(learning_rate=0.01, steps=k)})
        for k in range(1, 200)
        for cell in plan.cells[:5:4]
    ]
    large = Plan("fake", "quick", many, [0], 1)
    run(large, store, InlineExecutor(), run_unit=quick_unit)
    asked, rows = [], Store.rows
    monkeypatch.setattr(Store, "rows", lambda self, query, *values: asked.append(query) or rows(self, query, *values))
    assert len(load_frames(store).evaluations) == 4 * 398
    assert len(asked) <= 3 + 4 * ceil(398 / CELLS_AT_ONCE)  # of four tables
    asked.clear()
    assert sum(row.done for row in status(store, store.asked("fake"))) == 398
    assert len(asked) < 10
    asked.clear()
    few = load_frames(store, tables=("evaluations",))
    assert len(few.evaluations) == 4 * 398
    assert gc.isenabled()
    assert few.curves.empty
    assert not any("curves" in query for query in asked)
