"""Damaged stores: every command says so in one line, and what is readable is saved, in whole units."""

import random
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
import sweeps_fakes
from sweeps_fakes import make_plan, quick_unit

from lab.cli import run as command
from lab.sweeps import InlineExecutor, Store, StoreError, export, run, status
from lab.sweeps.carve import carve
from lab.sweeps.salvage import OF_A_SEED, salvage

PAGE = 4096
PLAN = make_plan(seeds=24, block=4)  # 72 units


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A store with everything of PLAN, no log beside it; tests work on copies."""
    path = tmp_path_factory.mktemp("whole") / "lab.sqlite"
    with Store(path) as store:
        run(PLAN, store, InlineExecutor(), run_unit=big_unit)
    assert not path.with_name("lab.sqlite-wal").exists()
    return path


def big_unit(cell, seeds, progress=None):
    """With weights that need more than a page."""
    return replace(quick_unit(cell, seeds), weights=random.Random(cell.config).randbytes(3 * PAGE))


@pytest.fixture
def damaged(whole, tmp_path) -> Path:
    return shutil.copy(whole, tmp_path / "damaged.sqlite")


def everything(path: Path) -> dict[str, list]:
    with Store(path, write=False) as store:
        names = ("cells", "members", "plans", "units", "done", "failures", "files", *OF_A_SEED)
        return {name: sorted(store.rows(f"SELECT * FROM {name}"), key=repr) for name in names}


def check_saved(whole: Path, saved: Path) -> int:
    """Every unit of a saved store is as it was; returns how many there are. A sweep then computes the rest."""
    before, after = everything(whole), everything(saved)
    kept = {unit for unit, *_ in after["units"]}
    of_kept = {(cell, seed) for cell, seed, unit in before["done"] if unit in kept}
    assert after["units"] == [row for row in before["units"] if row[0] in kept]
    assert after["done"] == [row for row in before["done"] if row[2] in kept]
    assert after["files"] == [row for row in before["files"] if row[0] in kept]
    for name in OF_A_SEED:
        assert after[name] == [row for row in before[name] if (row[0], row[1]) in of_kept], name
    with Store(saved) as store:
        report = run(PLAN, store, InlineExecutor(), run_unit=big_unit)
        assert (report.computed, report.reused) == (72 - len(kept), len(kept))
    mended = everything(saved)
    assert all(mended[name] == before[name] for name in ("cells", "members", "done", "files", *OF_A_SEED))
    return len(kept)


def test_a_whole_store_is_saved_whole(whole, tmp_path):
    saved = salvage(whole, tmp_path / "saved.sqlite")
    assert (saved.units, saved.seeds, saved.lost, saved.missing_pages) == (72, 72 * 4, (), 0)
    assert everything(tmp_path / "saved.sqlite") == everything(whole)


@pytest.mark.parametrize("filling", ["zeros", "noise", "another page"])
@pytest.mark.parametrize("seed", range(4))
def test_overwritten_pages_cost_the_units_they_held(whole, damaged, filling, seed):
    draw = random.Random(f"{filling} {seed}")
    data = bytearray(damaged.read_bytes())
    # Of trees: within a long value, one page looks as good as another.
    trees = [page for page in range(1, len(data) // PAGE) if data[page * PAGE] in (2, 5, 10, 13)]
    for page in draw.sample(trees, 3):
        other = draw.choice(trees) * PAGE
        fill = {"zeros": bytes(PAGE), "noise": draw.randbytes(PAGE), "another page": data[other : other + PAGE]}
        data[page * PAGE : (page + 1) * PAGE] = fill[filling]
    damaged.write_bytes(data)
    out = damaged.with_name("saved.sqlite")
    saved = salvage(damaged, out)
    assert check_saved(whole, out) == saved.units
    assert saved.units >= 72 - 25  # a page of evaluations holds rows of two units at most, one of curves of eight
    assert saved.missing_pages == (3 if filling == "zeros" else 0)
    assert damaged.read_bytes() == data


@pytest.mark.parametrize("kept", [0.97, 0.5, 0.1])
def test_a_file_that_was_cut_off_keeps_what_came_first(whole, damaged, kept):
    data = damaged.read_bytes()
    damaged.write_bytes(data[: int(len(data) * kept) + 100])
    with pytest.raises(StoreError, match="is damaged; restore a copy, or save what is readable"):
        everything(damaged)
    saved = salvage(damaged, damaged.with_name("saved.sqlite"))
    assert saved.missing_pages == pytest.approx((1 - kept) * len(data) / PAGE, abs=2)
    assert check_saved(whole, damaged.with_name("saved.sqlite")) == saved.units
    assert saved.units > 72 * kept - 10


def test_without_its_first_page_a_file_is_still_read(whole, damaged):
    data = bytearray(damaged.read_bytes())
    data[:PAGE] = bytes(PAGE)
    damaged.write_bytes(data)
    with pytest.raises(StoreError, match="not an SQLite file"):
        Store(damaged)
    assert salvage(damaged, damaged.with_name("saved.sqlite")).units == 72
    assert check_saved(whole, damaged.with_name("saved.sqlite")) == 72


def test_what_is_in_the_log_alone_is_saved_too(tmp_path):
    """A driver that was killed leaves the newest units in the log."""
    path = tmp_path / "lab.sqlite"
    with Store(path) as store:
        store.connection.execute("PRAGMA wal_autocheckpoint = 0")
        run(PLAN, store, InlineExecutor(), run_unit=big_unit)
        copies = [shutil.copy(file, tmp_path / f"copy{file.name[3:]}") for file in (path, Path(f"{path}-wal"))]
    copy, log = map(Path, copies)
    assert log.stat().st_size > 100 * PAGE
    assert salvage(copy, tmp_path / "saved.sqlite").units == 72
    assert check_saved(path, tmp_path / "saved.sqlite") == 72
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    half = salvage(copy, tmp_path / "half.sqlite")
    assert 20 < half.units < 60
    assert half.lost == ()  # the log ends with a transaction, or what is cut off does not count
    assert check_saved(path, tmp_path / "half.sqlite") == half.units


def test_lost_plans_and_members_are_made_up_for(whole, damaged):
    with sqlite3.connect(damaged) as db:
        db.execute("DELETE FROM plans")
        db.execute("DELETE FROM members WHERE rowid % 2")
    db.close()
    out = damaged.with_name("saved.sqlite")
    salvage(damaged, out)
    with Store(out, write=False) as store:
        asked = store.asked("fake")
        assert (asked.preset, asked.seeds) == ("quick", PLAN.seeds)
        assert sum(row.done for row in status(store, asked)) == 72 * 4


def test_failures_are_saved(damaged):
    with Store(damaged) as store:
        more = make_plan(seeds=28, block=4)
        run(more, store, InlineExecutor(), run_unit=sweeps_fakes.failing_unit)
        failures = store.failures()
    assert failures
    salvage(damaged, damaged.with_name("saved.sqlite"))
    with Store(damaged.with_name("saved.sqlite"), write=False) as store:
        assert store.failures() == failures


def test_a_value_of_every_kind_is_carved(tmp_path):
    values = [None, 0, 1, -1, 127, 2**15, -(2**23), 2**31, 2**40, -(2**62), 0.5, "", "ä" * 9000, b"", bytes(5000)]
    path = tmp_path / "kinds.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE kinds (a, b)")
        db.executemany("INSERT INTO kinds VALUES (?, 'x')", [(value,) for value in values])
    db.close()
    found = {number: row[0] for number, row in carve(path) if row[-1] == "x"}
    assert [found[number] for number in sorted(found)] == values


def test_what_was_deleted_stays_deleted(damaged):
    with sqlite3.connect(damaged) as db:
        db.execute("DELETE FROM units WHERE rowid <= 40")
    db.close()
    assert salvage(damaged, damaged.with_name("saved.sqlite")).units == 32


@pytest.mark.parametrize("arguments", [["sweep", "target_sets"], ["status"], ["results", "fake"], ["export", "fake"]])
def test_every_command_says_in_one_line_that_a_file_is_damaged(damaged, capfd, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    data = damaged.read_bytes()
    damaged.write_bytes(data[: len(data) // 3])
    assert command([*arguments, "--store", str(damaged)]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"{damaged}: is damaged; restore a copy, or save what is readable: fpa-lab export NAME --salvage NEW" in err


def test_a_sweep_does_not_start_on_a_damaged_page(whole, damaged):
    """Opening a store reads few of its pages: a sweep looks at all of them before it computes for hours."""
    data = bytearray(damaged.read_bytes())
    with sqlite3.connect(whole) as db:
        [[page]] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'files'")
    db.close()
    data[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)
    damaged.write_bytes(data)
    with Store(damaged) as store, pytest.raises(StoreError, match="is damaged"), store.driver():
        pass


def test_export_of_what_is_readable(whole, damaged, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = damaged.read_bytes()
    damaged.write_bytes(data[: len(data) // 2])
    arguments = ["export", "fake", "--store", str(damaged), "--salvage", "saved.sqlite", "--out", "csv"]
    assert command(arguments) == 1
    out, err = capfd.readouterr()
    assert out == "csv/fake\n"
    assert "saved.sqlite: " in err
    assert "pages are blank or cut off" in err
    with Store("saved.sqlite") as store:
        [folder] = export(store, ["fake"], "again")
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in Path("csv/fake").iterdir()
    }
    assert command(arguments) == 2
    assert "saved.sqlite: exists already; name a new file to save to" in capfd.readouterr().err
    nothing = ["export", "fake", "--store", "csv/fake/cells.csv", "--salvage", "other.sqlite"]
    assert command(nothing) == 2
    assert "csv/fake/cells.csv: holds nothing that could be saved" in capfd.readouterr().err
    assert command(["export", "fake", "--store", str(whole), "--salvage", "copy.sqlite"]) == 0
    assert not Path("other.sqlite").exists()
