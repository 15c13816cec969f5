from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sweeps_fakes import fraction, make_cell, make_plan, quick_unit

from lab.errors import InputError
from lab.sweeps import InlineExecutor, Plan, Store, load_frames, run
from lab.sweeps.frames import COLUMNS, JOINED
from lab.sweeps.results import rounded


@pytest.fixture
def filled(store, plan):
    run(plan, store, InlineExecutor(), run_unit=quick_unit)
    return store


def test_tables_have_their_columns_and_those_of_their_cells(filled, plan):
    frames = load_frames(filled)
    for name, frame in frames.tables().items():
        joined = [] if name == "cells" else list(JOINED)
        assert list(frame.columns) == [*COLUMNS[name], *joined]
    assert len(frames.cells) == 12
    assert len(frames.evaluations) == 12 * 8 * 4
    assert len(frames.parameters) == 12 * 8 * 3
    assert frames.evaluations["dim"].dtype == frames.evaluations["seed"].dtype == np.int64
    cell = plan.cells[7]
    rows = frames.evaluations[frames.evaluations["cell"] == cell.id]
    about = (rows["train_task"].unique(), rows["head"].unique(), rows["dim"].unique(), rows["learning_rate"].unique())
    assert about == (["subset-drop"], ["fpa-walk-tied"], [1], [0.05])


def test_a_path_is_as_good_as_a_store(filled):
    for left, right in zip(load_frames(filled).tables().values(), load_frames(filled.path).tables().values()):
        pd.testing.assert_frame_equal(left, right)


def test_values_are_those_of_the_units(filled, plan):
    cell = plan.cells[3]
    rows = load_frames(filled).evaluations.query("cell == @cell.id and seed == 5 and split == 'test' and factor == 8")
    assert rows["tv"].tolist() == [rounded(fraction(cell.config, 5, "test", 8, "tv"))]


def test_curves_are_quartiles_over_all_blocks(filled, plan):
    cell = plan.cells[0]
    curves = load_frames(filled).curves.query("cell == @cell.id")
    assert curves["step"].tolist() == [0, 10, 20, 30, 40]
    assert set(curves["n"]) == {8}
    values = np.float32([fraction(cell.config, seed, 20) for seed in range(8)])
    expected = [rounded(x) for x in np.quantile(values.astype(float), [0.25, 0.5, 0.75])]
    assert curves.query("step == 20")[["q25", "median", "q75"]].iloc[0].tolist() == expected


def test_files_merge_blocks_of_unequal_size_by_their_seeds(store):
    cell = make_cell()
    run(Plan("fake", "quick", [cell], range(8), block=5), store, InlineExecutor(), run_unit=quick_unit)
    files = load_frames(store).files
    assert files["file"].tolist() == ["pkg/a.py", "pkg/b.py"]
    exact = [fraction(cell.config, seed, "pkg/a.py") for seed in range(8)]
    merged = files.iloc[0]
    assert (merged["seeds"], merged["perfect"]) == (8, sum(x > 0.5 for x in exact))
    assert merged["exact_mean"] == rounded(np.mean(exact))
    assert merged["exact_min"] == rounded(min(exact))
    assert merged["tv_mean"] == rounded(1 - np.mean(exact))
    assert (merged["seq_len"], merged["queries"], merged["scopes"]) == (8, 10, 3)


@pytest.mark.parametrize("block", [1, 3, 8])
def test_frames_do_not_depend_on_blocks_or_order(filled, tmp_path, plan, block):
    with Store(tmp_path / "other.sqlite") as other:
        backwards = replace(plan, cells=plan.cells[::-1], block=block)
        run(backwards, other, InlineExecutor(), run_unit=quick_unit)
        for left, right in zip(load_frames(filled).tables().values(), load_frames(other).tables().values()):
            pd.testing.assert_frame_equal(left, right)


def test_results_that_are_no_numbers_stay_so(store):
    def diverged(cell, seeds, progress):
        result = quick_unit(cell, seeds)
        rows = [{**row, "loss": np.nan, "gap_min": -np.inf} for row in result.evaluations]
        return replace(result, evaluations=rows)

    run(Plan("fake", "quick", [make_cell()], [0]), store, InlineExecutor(), run_unit=diverged)
    frame = load_frames(store).evaluations
    assert frame["loss"].isna().all()
    assert (frame["gap_min"] == -np.inf).all()


def test_which_cells_belong_to_an_experiment(store):
    """The cells of its last whole run under the preset that ran last; parts add to them."""

    def heads():
        return set(load_frames(store).cells["head"])

    plan = make_plan(seeds=1)
    run(plan.select(heads=["softmax-none"]), store, InlineExecutor(), run_unit=quick_unit)
    assert heads() == {"softmax-none"}
    run(plan.select(heads=["fpa-walk-tied"]), store, InlineExecutor(), run_unit=quick_unit)
    assert heads() == {"softmax-none", "fpa-walk-tied"}
    run(replace(plan, cells=[make_cell("fox-gate0")]), store, InlineExecutor(), run_unit=quick_unit)
    assert heads() == {"fox-gate0"}
    paper = replace(plan, preset="paper", cells=[make_cell("fox-gate4")])
    run(paper, store, InlineExecutor(), run_unit=quick_unit)
    assert heads() == {"fox-gate4"}
    assert set(load_frames(store, preset="quick").cells["head"]) == {"fox-gate0"}
    assert set(load_frames(store, ["fake"], preset="paper").cells["preset"]) == {"paper"}


def test_results_of_older_code_make_way(store, monkeypatch):
    plan = make_plan(seeds=1)
    run(plan, store, InlineExecutor(), run_unit=quick_unit)
    old = set(load_frames(store).cells["cell"])
    monkeypatch.setattr("lab.sweeps.plan._version", lambda tasks, head: "newer")
    assert run(make_plan(seeds=1), store, InlineExecutor(), run_unit=quick_unit).computed == 12
    cells = load_frames(store).cells
    assert set(cells["code"]) == {"newer"}
    assert not old & set(cells["cell"])


def test_sources_that_are_none(filled, tmp_path):
    with pytest.raises(InputError, match="holds no results of fak; did you mean fake"):
        load_frames(filled, ["fak"])
    with pytest.raises(InputError, match="fake: was not run with the preset paper"):
        load_frames(filled, ["fake"], preset="paper")
    with pytest.raises(InputError, match="no such store"):
        load_frames(tmp_path / "nothing.sqlite")


def test_a_store_without_results_has_empty_tables(store):
    frames = load_frames(store)
    assert all(frame.empty for frame in frames.tables().values())
    assert list(frames.files.columns) == [*COLUMNS["files"], *JOINED]
