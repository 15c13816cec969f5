"""length: the drift, the counts and the quartiles by hand, as the figure and the remarks show them."""

from dataclasses import replace

import numpy as np
import pytest

from experiments import length
from figures import build, style
from figures.drift import sums
from figures.inputs import Results, load
from lab.cli.results import remarked_tables, remarks, scope_rates
from lab.errors import InputError
from lab.sweeps import CellResult, Curves, InlineExecutor, Plan, Store, clopper_pearson, load_frames, run

SEEDS = 3


def made_up(cell, seeds, progress) -> CellResult:
    """Seed s holds up to 4^(s + 1) times the training length; its walk sinks by s + 1 percent, its window is s + 1."""
    rows, learned = [], []
    for seed in seeds:
        for evaluation in cell.evaluations:
            for long in evaluation.lengths:
                factor = long / cell.task.make().train_length
                holds = factor <= 4 ** (seed + 1)
                place = {"task": evaluation.task.label, "split": evaluation.split, "length": long, "factor": factor}
                numbers = dict.fromkeys(("mass", "window_mean", "gap_mean", "loss", "excess_loss"), 0.5)
                numbers |= {"window_max": seed + 1, "gap_min": -np.inf if seed == 0 and not holds else 5.0 + seed}
                numbers |= {"tv": 0.01, "exact": 1.0 if holds else 0.5}
                rows.append({"seed": seed, "queries": 9, "success": int(holds), **place, **numbers})
            if evaluation.task.name == "source-scopes":
                place = {"task": evaluation.task.label, "split": "test", "length": 0, "factor": 0.0}
                rows.append({"seed": seed, "queries": 9, "success": 0, **place, **numbers, "exact": 0.9 + 0.02 * seed})
        if cell.task.name in length.PAIRS and cell.head.field == "walk":
            rise, fall = length.PAIRS[cell.task.name]
            for token, value in ((rise, 2.0 - 0.02 * (seed + 1)), (fall, -2.0)):
                learned.append({"seed": seed, "name": "increment", "token": token, "value": value})
    return CellResult(rows, 7, Curves(np.array([0, 1]), np.zeros((len(seeds), 2))), learned)


def stored(path, preset):
    whole = length.plan(preset, seeds=SEEDS)
    with Store(path) as store:
        run(Plan("length", preset, whole.cells, range(SEEDS)), store, InlineExecutor(), run_unit=made_up)
    return path


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("length") / "store.sqlite", "paper")


@pytest.mark.filterwarnings("error")
def test_measured_counts_every_length_by_itself(paper):
    table = length.measured(load_frames(paper))
    assert len(table) == 39 * 7
    assert table.groupby("factor")["successes"].agg(set).to_dict() == {
        1: {3}, 2: {3}, 4: {3}, 8: {2}, 16: {2}, 32: {1}, 64: {1}
    }  # fmt: skip
    far = table[table["factor"] == 64]
    assert {(row.low, row.high) for row in far.itertuples()} == {clopper_pearson(1, 3)}
    assert set(far["window_max_median"]) == {2}
    assert set(far["gap_min_q25"]) == {-np.inf}
    walks = far[far["form"] != "free"]
    assert walks["drift_median"].to_numpy() == pytest.approx(-0.02)
    assert far.loc[far["form"] == "free", "drift_median"].isna().all()
    assert set(far["recipe"]) == set(length.RECIPE_NAMES)


def test_the_figure_draws_those_rows(paper):
    results, missing = load(paper, "length")
    with style.paper():
        drawn = build.draw("drift", results, 0)
    assert missing == []
    titles = [axes.get_title(loc="left") for axes in drawn.figure.axes]
    assert [title.split("  ")[1] for title in titles[:4]] == [
        "nested-scope, trained at 32", "trained at 64", "largest window (nats)", "least gap (nats)",
    ]  # fmt: skip
    rows = drawn.rows
    mine = rows[(rows["task"] == "nested-scope") & (rows["trained_at"] == 64) & (rows["sum_dtype"] == "float64")]
    assert len(drawn.figure.axes[1].lines) == mine.groupby(["form", "recipe"]).ngroups == 4
    for line in drawn.figure.axes[1].lines:
        assert line.get_ydata() == pytest.approx([1, 1, 1, 2 / 3, 2 / 3, 1 / 3, 1 / 3])
    assert "nested-scope trained at 64, tied, the recipe: 1 of 3" in drawn.caption
    assert "float32 changes the successes by no seed, at the 28 points compared" in drawn.caption


def test_sums_are_compared_where_both_were_measured(paper):
    """Of incomplete results: float32 without its float64, and nothing but float32."""
    frames = load_frames(paper)
    table = length.measured(frames)
    wide, narrow = table["sum_dtype"] == "float64", table["sum_dtype"] == "float32"
    assert sums(table[narrow]) == sums(table[wide]) == ""
    walks = (table["task"] == "nested-scope") & (table["recipe"] == "")
    assert "at the 14 points compared" in sums(table[narrow | (wide & walks)])
    text = frames.cells["config"].str
    cells = frames.cells[text.contains('"sum_dtype":"float32"') | text.contains('"name":"leveled-dips"')]
    with style.paper():
        drawn = build.draw("drift", Results(frames.of(cells["cell"].tolist())), 0)
        assert "Summing the walk in float32" not in drawn.caption
        assert len(drawn.figure.axes) == 4
        of_float32 = frames.cells.loc[text.contains('"sum_dtype":"float32"'), "cell"].tolist()
        with pytest.raises(InputError, match="expected heads whose walk is summed in float64"):
            build.draw("drift", Results(frames.of(of_float32)), 0)


def test_results_say_where_it_breaks(paper):
    frames = load_frames(paper, ["length"], tables=("evaluations", *remarked_tables("length")))
    lines = remarks("length", frames)
    [line] = [line for line in lines if line.startswith("subset-drop, 16   tied   the recipe")]
    counts = "3 3 3 3 2 2 1 1 0.01–0.91"
    assert " ".join(line.split()[5:]) == f"{counts} 0.0100 > 0.0100 2.0000 > 2.0000 6.00 > 6.00 -2.000"
    blocks = lines[lines.index("") + 1 :]
    blocks = blocks[blocks.index("") + 2 :]
    assert {line.split()[0] for line in blocks} == {"nested-scope,"}
    assert {tuple(line.split()[-2:]) for line in blocks} == {("0.920", "0.900")}
    assert sum("walk summed in float32" in line for line in lines) == 4 + 2


def test_a_seed_that_read_no_number_in_files_is_not_left_out(paper):
    frames = load_frames(paper, ["length"], tables=("evaluations", *remarked_tables("length")))
    assert set(scope_rates(frames).values()) == {0.92}
    rows = frames.evaluations
    spoilt = replace(frames, evaluations=rows.assign(exact=rows["exact"].mask(rows["seed"] == 0)))
    assert np.isnan(list(scope_rates(spoilt).values())).all()
    assert {tuple(line.split()[-2:]) for line in remarks("length", spoilt)[-4:]} == {("nan", "nan")}


def test_one_training_length_is_drawn_once(tmp_path):
    results, _ = load(stored(tmp_path / "quick.sqlite", "quick"), "length")
    with style.paper():
        drawn = build.draw("drift", results, 0)
    assert len(drawn.figure.axes) == 9
