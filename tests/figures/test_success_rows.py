"""ablations and rivals: what is drawn is what the rows say, for made-up results of the real plans."""

import dataclasses

import numpy as np
import pytest

from figures import build, style
from figures.inputs import load
from lab.sweeps import CellResult, Curves, InlineExecutor, Store, clopper_pearson, run

SEEDS = 4


def made_up(cell, seeds, progress) -> CellResult:
    """Seeds 0, 1, ... succeed, as many as the learning rate and the head say; at longer sequences one fewer."""
    share = {"fpa": 4, "selective": 3}.get(cell.head.kind, 0)
    if cell.recipe.smoothing == 0:
        share = 2
    rows = []
    for seed in seeds:
        for evaluation in cell.evaluations:
            for length in evaluation.lengths:
                factor = length / cell.task.make().train_length
                succeeds = seed < share - (factor > 1)
                loss = 0.1 if succeeds else 1.0
                place = {"task": evaluation.task.label, "split": evaluation.split, "length": length, "factor": factor}
                numbers = dict.fromkeys(("mass", "window_mean", "window_max", "gap_mean", "gap_min"), 0.5)
                numbers |= {"loss": loss, "excess_loss": loss, "tv": 1 - succeeds, "exact": 0.25 + 0.75 * succeeds}
                rows.append({"seed": seed, "queries": 9, "success": int(succeeds), **place, **numbers})
    return CellResult(rows, 7, Curves(np.array([0, 1]), np.zeros((len(seeds), 2))))


@pytest.fixture(scope="module")
def drawings(tmp_path_factory):
    """Both figures, from a store that holds both experiments."""
    from experiments import ablations, rivals

    path = tmp_path_factory.mktemp("rows") / "store.sqlite"
    with Store(path) as store:
        for module in (ablations, rivals):
            run(module.plan("quick", seeds=SEEDS), store, InlineExecutor(), run_unit=made_up)
    found = {}
    for name in ("ablations", "rivals"):
        results, missing = load(path, name)
        assert missing == []
        with style.paper():
            found[name] = build.draw(name, results, 0)
    return found


def points(axes, *, near):
    """Share by height, of discs or of rings."""
    lines = [line for line in axes.lines if line.get_marker() == "o"]
    return {
        round(line.get_ydata()[0] + (0.13 if near else -0.19), 6): line.get_xdata()[0]
        for line in lines
        if (line.get_markerfacecolor() != "white") == near
    }


@pytest.mark.parametrize("name", ["ablations", "rivals"])
def test_a_share_and_its_interval_stand_in_the_row_of_their_name(drawings, name):
    figure, rows = drawings[name].figure, drawings[name].rows
    for task in dict.fromkeys(rows["task"]):
        [axes] = [axes for axes in figure.axes if axes.get_title(loc="left").endswith(task)]
        for near, factor in ((True, rows["factor"].min()), (False, rows["factor"].max())):
            mine = rows[(rows["task"] == task) & (rows["factor"] == factor)]
            assert sorted(points(axes, near=near).values()) == sorted(mine["successes"] / mine["n"])
        for _, row in rows[rows["task"] == task].iterrows():
            assert (row["low"], row["high"]) == clopper_pearson(int(row["successes"]), int(row["n"]))
        counts = [text.get_text() for text in axes.texts if "/" in text.get_text()]
        near = rows[(rows["task"] == task) & (rows["factor"] == rows["factor"].min())]
        assert sorted(counts) == sorted(f"{row['successes']}/{row['n']}" for _, row in near.iterrows())


def test_ablations_name_every_change_by_its_group(drawings):
    rows = drawings["ablations"].rows
    near = rows[(rows["factor"] == 1) & (rows["task"] == "nested-scope")].set_index(["group", "setting"])["successes"]
    assert near["the recipe", ""] == 4
    assert near["smoothing", r"$\tau$ = 0"] == 2
    assert near["drift, no smoothing", "mean = \N{MINUS SIGN}0.1"] == 2
    assert near["learning rate", "0.01"] == 4
    assert near["penalty scale", r"$\lambda$ = 0.1"] == 4
    assert near["another form", "walk tied"] == 4
    caption = drawings["ablations"].caption
    assert "n = 4 seeds" in caption
    assert (
        "The recipe itself: 4 of 4 (nested-scope, fpa-walk-offset), 4 of 4 (leveled-dips, fpa-direct-free)" in caption
    )
    at_1x, at_8x = caption.split("Settings that lose seeds at 1x: ")[1].split("lose none there, but at 8x: ")
    assert "smoothing tau = 0: 2 of 4 (nested-scope)" in at_1x
    assert "learning rate 0.01" not in at_1x
    assert "learning rate 0.01: 3 of 4 (leveled-dips)" in at_8x
    assert "smoothing tau = 0:" not in at_8x


def test_ablations_list_other_forms_in_the_order_of_the_figures(drawings):
    rows, axes = drawings["ablations"].rows, drawings["ablations"].figure.axes[0]
    heads = style.in_order(rows.loc[rows["group"] == "another form", "head"])
    names = [style.HEAD_NAMES[head].removeprefix("FPA ") for head in heads]
    assert [label.get_text() for label in axes.get_yticklabels()][-len(names) :] == names


def test_rivals_are_grouped_and_counted(drawings):
    figure, rows = drawings["rivals"].figure, drawings["rivals"].rows
    groups = [text.get_text() for text in figure.axes[0].texts if "/" not in text.get_text()]
    assert groups == ["FPA", "FoX", "softmax", "selective attention", "stick-breaking", "two layers"]
    near = rows[rows["factor"] == 1]
    assert set(near.loc[near["head"].str.startswith("selective"), "successes"]) == {3}
    assert "selective relative 9 of 12" not in drawings["rivals"].caption
    assert "selective relative 3 of 4 (nested-scope)" in drawings["rivals"].caption
    assert "stick-breaking 0.25 (leveled-dips)" in drawings["rivals"].caption


def test_rivals_trained_longer_have_rows_of_their_own(tmp_path):
    """Only cells of the usual budget are chosen between."""
    from experiments import rivals

    plan = rivals.plan("quick", seeds=SEEDS, heads=["selective-same-relative", "fox-gate0"])
    [cell] = [c for c in plan.cells if c.task.name == "nested-scope" and c.head.label == "selective-same-relative"]
    longer = cell.model_copy(update={"recipe": cell.recipe.model_copy(update={"steps": rivals.LONGER})})
    whole = dataclasses.replace(plan, cells=[*plan.cells, longer])
    with Store(tmp_path / "store.sqlite") as store:
        run(whole, store, InlineExecutor(), run_unit=made_up)
    results, _ = load(tmp_path / "store.sqlite", "rivals")
    with style.paper():
        drawing = build.draw("rivals", results, 0)
    mine = drawing.rows[(drawing.rows["task"] == "nested-scope") & (drawing.rows["factor"] == 1)]
    assert list(zip(mine["head"], mine["steps"])) == [
        ("fox-gate0", 800), ("selective-same-relative", 800), ("selective-same-relative", 3200)
    ]  # fmt: skip
    labels = [label.get_text() for label in drawing.figure.axes[0].get_yticklabels()]
    assert [label for label in labels if label.endswith(", 4x steps")] == [f"{labels[-2]}, 4x steps"]
