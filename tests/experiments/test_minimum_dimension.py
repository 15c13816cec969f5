"""The plan of minimum_dimension, its frontiers against the theory's own code, and the figure and remarks on them."""

import dataclasses
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from experiments import minimum_dimension as experiment
from experiments.minimum_dimension import FPA, HEADS, NOTIONS, ONE_GATE, PER_SLOT, SOFTMAX
from figures import make_figures
from lab.cli import results as results_command
from lab.sweeps import CellResult, Curves, InlineExecutor, Plan, Store, load_frames, run
from lab.training.family_starts import construction
from proofs_check.baselines import Free
from proofs_check.bounds.lower import ONE_GATE as ONE
from proofs_check.bounds.lower import PER_SLOT as EACH
from proofs_check.bounds.lower import Head
from proofs_check.certificates import Certificates
from tests.proofs_check.baselines.definitions import all_subsets


def test_the_paper_preset_is_the_whole_grid_and_the_starts_near_constructions():
    cells = experiment.plan("paper").cells
    random = [cell for cell in cells if cell.recipe.start == "random"]
    grid = Counter((cell.task.make().keys, cell.head.dim, cell.head.label, cell.task.make().tokens) for cell in random)
    assert len(grid) == 9 * 11 * 4
    recipes = {SOFTMAX: 1, ONE_GATE: 5, PER_SLOT: 5, FPA: 2}
    for (keys, dim, *kind), cells_there in grid.items():
        assert cells_there == 3 * (recipes[tuple(kind)] if dim <= keys else 1)
    near = [cell for cell in cells if cell.recipe.start == "construction"]
    assert len(near) == 9 * 2 * 3
    for cell in near:
        if cell.task.make().keys < 8:
            assert cell.head.dim == construction(cell.task.make())[0].dimension
    assert len(experiment.plan("paper").seeds) == 32
    for cell in cells:
        assert cell.task.make().query == ("fixed" if cell.head.kind == "fpa" else "free")
        assert [evaluation.task for evaluation in cell.evaluations] == [cell.task]


@pytest.mark.parametrize("keys", [2, 3, 4, 5, 6])
def test_the_frontiers_are_those_of_the_checker(keys):
    spec = all_subsets(keys)
    free = Free(spec, Certificates(spec), False)
    kinds = {SOFTMAX: Head(), ONE_GATE: Head("fox", ONE), PER_SLOT: Head("fox", EACH)}
    for kind, head in kinds.items():
        for notion in ("separation", "window"):
            entry = free.entry(head, notion)
            assert entry["upper"] == experiment.known_dimension(kind, notion, keys), (kind, notion)
            assert entry["lower"] == experiment.lower_bound(kind, notion, keys), (kind, notion)
        exact = free.entry(head, "uniform")
        assert exact["lower"] == exact["upper"] == keys - 1
        assert experiment.exact_dimension(kind, "uniform", keys) in (keys - 1, None)


def test_total_variation_bounds_windows_and_gaps_as_stated():
    def window(n):
        return Fraction(1, n) + Fraction(1, 20), Fraction(1, n) - Fraction(1, 20)

    for keys in range(2, 11):
        high, low = window(keys)
        gap = (Fraction(1, keys - 1) - Fraction(1, 20)) / Fraction(1, 20)
        assert (gap * low > high) == (keys <= 7), keys
    assert [experiment.lower_bound(PER_SLOT, "uniform", n) for n in range(2, 11)] == [1, 1, 2, 2, 3, 3, 3, 3, 3]
    assert [experiment.lower_bound(ONE_GATE, "uniform", n) for n in range(2, 11)] == [1, 1, 2, 2, 3, 3, 3, 4, 4]
    for kind in HEADS:
        for notion in NOTIONS:
            for keys in range(2, 11):
                proved, known = (f(kind, notion, keys) for f in (experiment.lower_bound, experiment.known_dimension))
                assert 0 <= proved <= known <= keys - 1


def made_up(cell, seeds, progress):
    """Every seed succeeds from one dimension above the known one on; at it, seed 0 alone; near constructions, all."""
    task = cell.task.make()
    kind = (cell.head.label, task.tokens)
    above = cell.head.dim - experiment.known_dimension(kind, task.notion, task.keys)
    if kind == ONE_GATE and task.notion == "uniform":
        above -= 1
    rows = []
    for seed in seeds:
        success = above > 0 or (above == 0 and seed == 0) or kind == FPA or cell.recipe.start == "construction"
        place = {"task": cell.task.label, "split": "test", "length": task.keys, "factor": 1.0, "queries": task.targets}
        names = ("loss", "excess_loss", "tv", "exact", "mass", "window_mean", "window_max", "gap_mean", "gap_min")
        rows.append({"seed": seed, **place, **dict.fromkeys(names, 0.1), "success": int(success)})
    return CellResult(rows, 5, Curves(np.array([0, 9]), np.ones((len(seeds), 2), np.float32)))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("minimum") / "made_up.sqlite"
    whole = experiment.plan("quick", seeds=2)
    cells = [cell for cell in whole.cells if cell.task.make().keys < 5]
    with Store(path) as opened:
        run(Plan(whole.name, whole.preset, cells, whole.seeds, block=2), opened, InlineExecutor(), run_unit=made_up)
    return path


def test_successes_are_counted_per_head_notion_keys_and_start(store):
    table = experiment.counted(load_frames(store))
    assert len(table) == 3 * (4 * 3 * 5 + 2 * 3)
    row = table[
        (table["head"] == "FoX, gate per slot")
        & (table["notion"] == "window")
        & (table["keys"] == 4)
        & (table["dim"] == 2)
    ].sort_values("start")
    assert row["start"].tolist() == ["construction", "random"]
    assert row["successes"].tolist() == [2, 1]
    assert row["n"].tolist() == [2, 2]
    assert row["known"].tolist() == [2, 2]
    assert row["high"].iloc[0] == 1.0


def test_of_several_recipes_the_one_with_most_successes_counts(tmp_path):
    """Made up: the longer of two recipes finds what the shorter does not, and both find the rest."""
    cells = [
        experiment._cell(PER_SLOT, 4, "window", dim, recipe) for dim in (1, 2) for recipe in experiment.GRID[3::-3]
    ]

    def finds(cell, seeds, progress):
        whole = made_up(cell, seeds, progress)
        for row in whole.evaluations:
            row["success"] = int(cell.head.dim == 2 or (cell.recipe.steps == 6000 and row["seed"] == 0))
        return whole

    with Store(tmp_path / "recipes.sqlite") as opened:
        run(Plan("minimum_dimension", "paper", cells, (0, 1)), opened, InlineExecutor(), run_unit=finds)
    table = experiment.counted(load_frames(tmp_path / "recipes.sqlite"))
    assert table[["dim", "recipes", "steps", "successes"]].to_numpy().tolist() == [[1, 2, 6000, 1], [2, 2, 1500, 2]]
    assert experiment.frontiers(table)[["some", "all"]].to_numpy().tolist() == [[1, 2]]


def test_nothing_measured_yet_is_no_remark(store):
    frames = load_frames(store)
    nothing = dataclasses.replace(frames, evaluations=frames.evaluations[:0])
    assert experiment.remarks(nothing) == []


def test_frontiers_and_exceptions(store):
    edges = experiment.frontiers(experiment.counted(load_frames(store)))
    at = edges.set_index(["head", "notion", "keys"])
    softmax = at.loc["softmax", "window", 4]
    assert (softmax["proved"], softmax["known"], softmax["some"], softmax["all"]) == (3, 3, 3, 4)
    shifted = at.loc["FoX, one gate", "uniform", 4]
    assert (shifted["known"], shifted["some"], shifted["all"]) == (2, 3, 4)
    assert (shifted["near"], shifted["near_n"]) == (2, 2)
    lines = experiment.exceptions(edges)
    assert "short by 1: FoX, one gate, uniform, 4 keys: first success at 3, known 2; near it 2 of 2 succeed" in lines
    assert len(lines) == 3
    below = edges.assign(some=edges["some"].where(edges["head"] != "softmax", 0))
    assert sum(line.startswith("BELOW THE BOUND") for line in experiment.exceptions(below)) == 9
    never = edges.assign(some=-1)
    assert sum(line.startswith("not found") for line in experiment.exceptions(never)) == len(edges)


def test_results_print_the_frontiers_and_what_falls_short(store, capsys):
    results_command.results("minimum_dimension", "table", str(store), None, False)
    printed = capsys.readouterr().out
    assert "least gap at least 4" in printed
    assert "short by 1: FoX, one gate, uniform, 3 keys: first success at 2, known 1; near it 2 of 2 succeed" in printed
    line = next(line for line in printed.splitlines() if line.startswith("softmax") and " some " in line)
    assert line.split()[-3:] == ["1", "2", "3"]


def test_the_figure_draws_every_square_and_says_what_it_shows(store, tmp_path):
    import pandas as pd

    paths = make_figures(["minimum_dimension"], store, ["svg"], tmp_path)
    rows = pd.read_csv(tmp_path / "minimum_dimension.csv")
    assert len(rows) == 3 * (4 * 3 * 5 + 2 * 3)
    shifted = rows[(rows["head"] == "FoX, one gate") & (rows["notion"] == "uniform")]
    assert set(shifted["short"]) == {1}
    assert set(rows.loc[rows["head"] == "FPA, fixed query", "short"]) == {0}
    caption = (tmp_path / "minimum_dimension.md").read_text()
    assert "Of 18 combinations" in caption
    assert "3 have no success from random starts" in caption
    assert "all seeds succeed in 3 of these" in caption
    assert "with a success: 0." in caption
    again = make_figures(["minimum_dimension"], store, ["svg"], tmp_path / "again")
    assert [path.read_bytes() for path in paths[:2]] == [path.read_bytes() for path in again[:2]]


def test_shades_and_lines_are_those_of_the_rows(store):
    from figures import style
    from figures.inputs import load
    from figures.minimum_dimension import draw

    with style.paper():
        drawing = draw(load(store, "minimum_dimension")[0])
    panel = drawing.figure.axes[4]  # second row, softmax: window
    (squares,) = panel.collections
    shown = {}
    for path, colour in zip(squares.get_paths(), squares.get_facecolor(), strict=True):
        centre = path.get_extents()
        shown[round((centre.x0 + centre.x1) / 2), round((centre.y0 + centre.y1) / 2)] = tuple(colour)
    assert len(shown) == 15
    white, full = (1.0, 1.0, 1.0, 1.0), shown[2, 4]
    assert full != white
    assert {at for at, colour in shown.items() if colour == white} == {(n, d) for n in (2, 3, 4) for d in range(n - 1)}
    assert shown[3, 2] not in (white, full)
    stairs = panel.lines[0].get_xydata().tolist()
    assert stairs == [[1.5, 0.5], [2.5, 0.5], [2.5, 1.5], [3.5, 1.5], [3.5, 2.5], [4.5, 2.5]]
