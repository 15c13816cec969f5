"""Damaged stores: every command says so in one line, and what is readable is saved, in whole units."""

import json
import random
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import sweeps_fakes
from sweeps_fakes import make_plan, quick_unit

from lab.cli import run as command
from lab.heads import head_config
from lab.heads.base import make_head
from lab.heads.config import CONFIGS, ReaderConfig
from lab.sweeps import Cell, Evaluation, InlineExecutor, Plan, Store, StoreError, TaskConfig, export, run, status
from lab.sweeps.carve import carve
from lab.sweeps.salvage import LEARNS_PER_TOKEN, OF_A_SEED, OF_FILES, _asked, _fits, salvage
from lab.tasks import TASKS
from lab.tasks.source_scopes import SourceScopes
from lab.training.recipe import Recipe

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


# --- nothing of its kind is left to compare a unit with ---

SOURCE = """
def outer(a):
    b = a
    if a:
        def inner(b):
            a = b
            return a + b
        c = inner(b)
    d = a
    return b + c + d + a
"""


def alone(kind: str, folder: Path) -> Cell:
    """A cell that trains in a moment, of a kind of unit that has rows of its own."""
    task, head, evaluations = {
        "target sets": ("nested-scope", head_config("fpa-walk-offset", 1), ("source-scopes",)),
        "lookup": ("scoped-lookup", head_config("fpa-walk-offset-gate", 1), ("source-lookup",)),
        "family": ("subset-free", head_config("softmax-none", 1), ()),
        "reader": ("nested-scope", ReaderConfig(name="chance"), ("source-scopes",)),
    }[kind]
    (folder / "file.py").write_text(SOURCE)
    files = [TaskConfig(name=name, options={"path": str(folder / "file.py")}) for name in evaluations]
    own, length = TaskConfig(name=task), TaskConfig(name=task).make().train_length
    lengths = (length,) if kind == "family" else (length, 2 * length, 3 * length)
    return Cell(
        experiment="fake",
        task=own,
        head=head,
        recipe=Recipe(steps=1, batch=1),
        evaluations=(
            Evaluation(task=own, split="validation", sequences=8),
            Evaluation(task=own, lengths=lengths, sequences=8),
            *(Evaluation(task=task, sequences=1) for task in files),
        ),
    )


def tree(data: bytes, number: int, start: int = 0) -> list[int]:
    """The pages of a tree that hold rows, or entries of an index."""
    page = data[(number - 1) * PAGE : number * PAGE]
    if page[start] in (10, 13):
        return [number]
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    pointers = [int.from_bytes(page[start + 12 + 2 * n : start + 14 + 2 * n], "big") for n in range(count)]
    below = [int.from_bytes(page[at : at + 4], "big") for at in (*pointers, start + 8)]
    return [leaf for child in below for leaf in tree(data, child)] + ([number] if page[start] == 2 else [])


@pytest.mark.parametrize("kind", ["target sets", "lookup", "family", "reader"])
def test_a_lone_unit_that_lost_a_page_of_any_table_is_lost(kind, tmp_path):
    path, plan = tmp_path / "lab.sqlite", Plan("fake", "quick", [alone(kind, tmp_path)], [0], 1)
    with Store(path) as store:
        assert run(plan, store, InlineExecutor()).computed == 1
        roots = dict(store.rows("SELECT name, rootpage FROM sqlite_master"))
        filled = {name for name in (*OF_A_SEED, "files") if store.rows(f"SELECT count(*) FROM {name}") != [(0,)]}
    none = {"family": {"parameters", "files"}, "reader": {"curves", "files"}}
    assert filled == {*OF_A_SEED, "files"} - none.get(kind, set())
    assert salvage(path, tmp_path / "whole.sqlite").units == 1
    data = path.read_bytes()
    tried = 0
    for name in sorted(filled):
        index = tree(data, roots[f"sqlite_autoindex_{name}_1"])
        for page in tree(data, roots[name]):
            for blanks in ([page], [page, *index]):
                tried += 1
                damaged, out = tmp_path / f"damaged{tried}.sqlite", tmp_path / f"saved{tried}.sqlite"
                damaged.write_bytes(blanked(data, blanks))
                saved = salvage(damaged, out)
                assert (saved.units, [seeds for _, seeds in saved.lost]) == (0, [(0,)]), (name, page, blanks)
                assert str(saved).startswith("0 units with 0 seeds saved; 1 seeds lost in part or whole")
                with Store(out, write=False) as store:
                    assert store.done() == {}
                    assert plan.units(store.done()) == plan.units()
    assert tried >= 2 * len(filled)


def blanked(data: bytes, pages) -> bytes:
    left = bytearray(data)
    for page in pages:
        left[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)
    return bytes(left)


@pytest.mark.parametrize("table", ["curves", "parameters"])
def test_seeds_that_lost_what_all_seeds_lost_are_lost(whole, damaged, table):
    """No row of a table is left in the store, of any cell, nor of its index."""
    with sqlite3.connect(whole) as db:
        roots = dict(db.execute("SELECT name, rootpage FROM sqlite_master"))
    db.close()
    data = whole.read_bytes()
    damaged.write_bytes(blanked(data, [*tree(data, roots[table]), *tree(data, roots[f"sqlite_autoindex_{table}_1"])]))
    saved = salvage(damaged, damaged.with_name("saved.sqlite"))
    # Whether softmax heads have parameters per token only their own rows say.
    assert saved.units == {"curves": 0, "parameters": 36}[table]
    assert {label.split()[2] for label, _ in saved.lost} >= {"fpa-walk-tied"}


def test_a_row_that_only_the_index_names_is_lost(whole, damaged):
    """Here no other row tells: no configuration of these cells asks for files."""
    with sqlite3.connect(whole) as db:
        roots = dict(db.execute("SELECT name, rootpage FROM sqlite_master"))
    db.close()
    data = whole.read_bytes()
    damaged.write_bytes(blanked(data, tree(data, roots["files"])))
    saved = salvage(damaged, damaged.with_name("saved.sqlite"))
    assert (saved.units, sum(len(seeds) for _, seeds in saved.lost)) == (0, 12 * 24)


PUBLISHED = sorted(Path(__file__).parents[2].glob("experiments/published/*/cells.csv"))


@pytest.mark.parametrize("cells", PUBLISHED, ids=lambda path: path.parent.name)
def test_what_is_asked_for_is_what_experiments_have(cells):
    """Cells whose learning rate was not chosen are published in part, so not all have all that is asked for."""
    rows = pd.read_csv(cells.with_name("evaluations.csv"), usecols=["cell", "seed", "task", "split", "length"])
    have = {cell: set(zip(of.task, of.split, of.length)) for cell, of in rows[rows.seed == 0].groupby("cell")}
    tables = {name: set(pd.read_csv(cells.with_name(f"{name}.csv"))["cell"]) for name in ("curves", "parameters")}
    grids, complete = set(), set()
    for row in pd.read_csv(cells).itertuples():
        config = json.loads(row.config)
        config["recipe"].pop("learning_rate")
        grid = json.dumps(config)
        grids.add(grid)
        asked = _asked(row.config)
        got = have[row.cell]
        assert all(any(_fits(one, wanted) for wanted in asked["evaluations"]) for one in got)
        if all(any(_fits(one, wanted) for one in got) for wanted in asked["evaluations"]):
            complete.add(grid)
            assert all(bool(asked[name]) == (row.cell in published) for name, published in tables.items())
    assert complete == grids  # of each the cell that was chosen


def test_what_is_said_of_heads_and_tasks_holds():
    assert tuple(name for name, task in TASKS.items() if issubclass(task, SourceScopes)) == OF_FILES
    required = {"position": "none"}
    for kind, config in CONFIGS.items():
        if kind != "reader":
            options = {name: value for name, value in required.items() if name in config.model_fields}
            head = make_head(config(dim=1, **options), 3, [0], max_len=4)
            assert bool(head.token_parameters()) == (kind in LEARNS_PER_TOKEN), kind


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
