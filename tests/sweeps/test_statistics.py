import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sweeps_fakes import make_cell, make_plan, quick_unit

from lab.errors import InputError
from lab.sweeps import (
    Evaluation,
    InlineExecutor,
    Plan,
    TaskConfig,
    chosen_cells,
    clopper_pearson,
    load_frames,
    missing_cells,
    run,
    summarise,
)
from lab.sweeps.chance import chance_level
from lab.sweeps.completeness import present_config
from lab.sweeps.quartiles import median, quantiles


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # Closed forms at the ends: 1 - (alpha/2)^(1/n) and its mirror image.
        (0, 10, 0.0, 1 - 0.025**0.1),
        (10, 10, 0.025**0.1, 1.0),
        (0, 1, 0.0, 0.975),
        # Tabulated (Newcombe, Statistics in Medicine 17, 1998, table I: "exact").
        (81, 263, 0.2527, 0.3676),
        (15, 148, 0.0578, 0.1617),
        (0, 20, 0.0, 0.1684),
        (1, 29, 0.0009, 0.1776),
        (0, 0, 0.0, 1.0),
    ],
)
def test_clopper_pearson(successes, n, low, high):
    assert clopper_pearson(successes, n) == pytest.approx((low, high), abs=6e-5)


def test_clopper_pearson_covers_what_it_says():
    """At each end of the interval the observation is exactly as improbable as the tail allows."""
    for successes, n in ((3, 16), (31, 32), (16, 32)):
        low, high = clopper_pearson(successes, n, 0.9)
        assert binom.sf(successes - 1, n, low) == pytest.approx(0.05)
        assert binom.cdf(successes, n, high) == pytest.approx(0.05)


@pytest.mark.parametrize("arguments", [(5, 4), (-1, 4), (1, 4, 1.0)])
def test_clopper_pearson_refuses(arguments):
    with pytest.raises(ValueError, match="expected 0 <= successes <= n"):
        clopper_pearson(*arguments)


def with_metrics(metrics):
    """A unit function whose rows have `metrics(cell, seed, split, factor)` instead of the fake numbers."""

    def unit(cell, seeds, progress):
        result = quick_unit(cell, seeds)
        rows = [{**row, **metrics(cell, row["seed"], row["split"], row["factor"])} for row in result.evaluations]
        return replace(result, evaluations=rows)

    return unit


def best_at(rate):
    """Validation says `rate`; test says the opposite, which must not matter."""

    def metrics(cell, seed, split, factor):
        distance = abs(cell.recipe.learning_rate - rate)
        return {"loss": 1 + distance + 0.01 * seed if split == "validation" else 1 - distance}

    return with_metrics(metrics)


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
def test_the_learning_rate_is_chosen_on_validation_data(store, rate):
    run(make_plan(), store, InlineExecutor(), run_unit=best_at(rate))
    chosen = chosen_cells(load_frames(store))
    assert chosen["learning_rate"].tolist() == [rate] * 4
    assert set(chosen["rates"]) == {"0.01, 0.05, 0.2"}
    assert chosen["validation_loss"].tolist() == pytest.approx([1.035] * 4)  # the median over seeds 0 to 7


@pytest.mark.filterwarnings("error")
def test_quartiles_of_infinities_are_infinities():
    losses = np.array([[1.0, 2.0, 3.0, 4.0, 5.0], [1, 2, 3, 4, np.inf], [1, np.inf, np.inf, np.inf, np.inf]])
    assert quantiles(losses.T).T.tolist() == [[2, 3, 4], [2, 3, 4], [np.inf] * 3]
    even = np.array([[1.0, 2.0, np.inf, np.inf], [-np.inf, 1.0, 2.0, 3.0], [np.nan, 1.0, np.inf, 2.0]])
    assert quantiles(even, axis=1).T[0].tolist() == [1.75, np.inf, np.inf]
    assert quantiles(even, axis=1).T[1].tolist() == [-np.inf, 1.5, 2.25]
    assert np.isnan(quantiles(even, axis=1).T[2]).all()


@pytest.mark.filterwarnings("error")
def test_the_median_of_seeds_one_of_which_is_no_number_is_none():
    assert np.isnan(median(pd.Series([np.nan, 1.0, 1.0])))
    assert (median([3, 1, 2]), median([1.0, np.inf])) == (2.0, np.inf)


@pytest.mark.filterwarnings("error")
def test_a_reader_of_infinite_loss_is_summarised_without_a_warning(store):
    run(make_plan(), store, InlineExecutor(), run_unit=with_metrics(lambda *_: {"loss": np.inf, "excess_loss": np.inf}))
    table = summarise(load_frames(store))
    assert set(table["excess_loss_1x_median"]) == {np.inf}
    assert table["below_chance_1x"].all()


def test_ties_go_to_the_lower_rate_and_divergence_loses(store):
    def metrics(cell, seed, split, factor):
        return {"loss": np.nan if cell.recipe.learning_rate == 0.01 else 1.0}

    run(make_plan(), store, InlineExecutor(), run_unit=with_metrics(metrics))
    assert chosen_cells(load_frames(store))["learning_rate"].tolist() == [0.05] * 4


def test_the_median_is_over_seeds(store):
    """Most seeds of 0.05 do well and one is terrible: the median prefers it, the mean would not."""

    def metrics(cell, seed, split, factor):
        good = 0.1 if seed else 1000.0
        return {"loss": good if cell.recipe.learning_rate == 0.05 else 1.0}

    run(make_plan(), store, InlineExecutor(), run_unit=with_metrics(metrics))
    assert chosen_cells(load_frames(store))["learning_rate"].tolist() == [0.05] * 4


def test_several_rates_without_validation_rows_are_no_choice(store):
    def unseen(cell, seeds, progress):
        result = quick_unit(cell, seeds)
        return replace(result, evaluations=[row for row in result.evaluations if row["split"] == "test"])

    run(make_plan(seeds=1), store, InlineExecutor(), run_unit=unseen)
    with pytest.raises(InputError, match="no validation rows to choose a learning rate by"):
        summarise(load_frames(store))


def test_a_single_rate_needs_no_choice(store):
    run(Plan("fake", "quick", [make_cell()], [0]), store, InlineExecutor(), run_unit=quick_unit)
    assert summarise(load_frames(store))["rates"].tolist() == ["0.05"]


def test_cells_that_compare_their_rates_stand_beside_each_other(store):
    cells = [cell.model_copy(update={"compare_rates": True}) for cell in make_plan().cells]
    run(Plan("fake", "quick", cells, range(2)), store, InlineExecutor(), run_unit=best_at(0.05))
    table = summarise(load_frames(store))
    assert table["learning_rate"].tolist() == [0.01, 0.05, 0.2] * 4
    assert table["rates"].tolist() == ["0.01", "0.05", "0.2"] * 4


def test_a_setting_of_the_head_is_named_where_it_is_not_the_default(store):
    cell = make_cell("fpa-walk-tied")
    scaled = cell.model_copy(update={"head": cell.head.model_copy(update={"penalty_scale": 3.0})})
    run(Plan("fake", "quick", [cell, scaled], [0]), store, InlineExecutor(), run_unit=quick_unit)
    assert sorted(summarise(load_frames(store))["variant"]) == ["", "penalty_scale=3.0"]


def test_results_from_before_an_option_existed_are_complete():
    """A stored configuration without the newest options is the one that has them at their defaults."""
    cell = make_cell()
    old = json.loads(cell.config)
    del old["recipe"]["initial_drift"], old["recipe"]["permute_targets"], old["compare_rates"]
    assert present_config(json.dumps(old)) == cell.config


def test_a_summary_counts_and_measures_at_every_factor(store):
    def metrics(cell, seed, split, factor):
        return {"success": int(seed < 8 - factor), "tv": seed / 10 * factor, "exact": 1.0, "loss": 1.0}

    plan = make_plan()
    run(plan, store, InlineExecutor(), run_unit=with_metrics(metrics))
    table = summarise(load_frames(store), plan)
    assert table[["head", "dim"]].values.tolist() == [
        ["fpa-walk-tied", 1],
        ["fpa-walk-tied", 2],
        ["softmax-none", 1],
        ["softmax-none", 2],
    ]
    row = table.iloc[0]
    assert (row["n"], row["successes"], row["missing"]) == (8, 7, 0)
    assert (row["low"], row["high"]) == clopper_pearson(7, 8)
    assert (row["successes_1x"], row["successes_2x"], row["successes_8x"]) == (7, 6, 0)
    assert (row["low_8x"], row["high_8x"]) == clopper_pearson(0, 8)
    assert [row[f"tv_2x_{q}"] for q in ("q25", "median", "q75")] == pytest.approx([0.35, 0.7, 1.05])
    assert (row["exact_8x_median"], row["parameters_per_seed"]) == (1.0, 6)
    assert row["chance_tv_1x"] == chance_level(plan.cells[0].task, 4)["tv"]


def test_quartiles_are_those_of_the_rows_of_their_cell_and_factor(store):
    """Of cells with unequally many seeds, which are worked out together where they have equally many."""
    plan = make_plan(seeds=3)
    run(plan, store, InlineExecutor(), run_unit=quick_unit)
    run(replace(plan, cells=plan.cells[:6], seeds=range(7), part=True), store, InlineExecutor(), run_unit=quick_unit)
    frames = load_frames(store)
    table = summarise(frames)
    assert sorted(table["n"]) == [3, 3, 7, 7]
    for row in table.to_dict("records"):
        for factor in (1, 2, 8):
            rows = frames.evaluations.query("cell == @row['cell'] and split == 'test' and factor == @factor")
            for metric in ("tv", "exact", "excess_loss"):
                shown = [row[f"{metric}_{factor}x_{label}"] for label in ("q25", "median", "q75")]
                assert shown == np.quantile(rows[metric], (0.25, 0.5, 0.75)).tolist()


def test_a_grid_is_listed_in_order_however_it_was_computed(store):
    plan = make_plan(seeds=2)
    run(replace(plan, cells=plan.cells[1:3]), store, InlineExecutor(), run_unit=quick_unit)
    assert set(summarise(load_frames(store))["rates"]) == {"0.05, 0.2"}
    assert set(summarise(load_frames(store), plan)["rates"]) == {"0.01, 0.05, 0.2"}


def test_a_head_that_loses_to_the_uniform_reader_is_flagged(store):
    """At 1x just above one hundredth over the chance loss, at 2x just below, at 8x far below."""
    plan = make_plan()
    chance = {f: chance_level(plan.cells[0].task, 4 * f)["excess_loss"] for f in (1, 2, 8)}
    times = {1: 1.02, 2: 1.005, 8: 0.1}

    def metrics(cell, seed, split, factor):
        return {"excess_loss": times[factor] * chance[factor], "loss": 1.0}

    run(plan, store, InlineExecutor(), run_unit=with_metrics(metrics))
    row = summarise(load_frames(store), plan).iloc[0]
    assert [row[f"below_chance_{f}x"] for f in (1, 2, 8)] == [True, False, False]


def test_a_seed_that_is_no_number_is_not_left_out(store):
    def metrics(cell, seed, split, factor):
        return {"tv": np.nan if seed == 0 else 0.0, "loss": 1.0, "success": int(seed > 0)}

    run(make_plan(), store, InlineExecutor(), run_unit=with_metrics(metrics))
    row = summarise(load_frames(store)).iloc[0]
    assert np.isnan(row["tv_1x_median"])
    assert (row["n"], row["successes"]) == (8, 7)


def test_what_is_missing_is_reported(store):
    plan = make_plan()
    some = replace(plan, cells=plan.cells[:5], seeds=range(6))  # softmax: dim 1 whole grid, dim 2 two rates of three
    run(some, store, InlineExecutor(), run_unit=quick_unit)
    frames = load_frames(store)
    table = summarise(frames, plan).set_index(["head", "dim"])
    assert table["n"].to_dict() == {
        ("fpa-walk-tied", 1): 0,
        ("fpa-walk-tied", 2): 0,
        ("softmax-none", 1): 6,
        ("softmax-none", 2): 6,
    }
    assert table["missing"].tolist() == [24, 24, 6, 12]
    nothing = table.loc[("fpa-walk-tied", 1)]
    assert (nothing["successes"], nothing["low"], nothing["high"]) == (0, 0.0, 1.0)
    assert np.isnan(nothing["tv_1x_median"])
    assert set(table["rates"]) == {"0.01, 0.05, 0.2"}

    lacking = missing_cells(plan, frames)
    assert [str(cell) for cell in lacking[4:7]] == [
        "subset-drop softmax-none dim 2 rate 0.05: 2 of 8 seeds missing",
        "subset-drop softmax-none dim 2 rate 0.2: 8 of 8 seeds missing",
        "subset-drop fpa-walk-tied dim 1 rate 0.01: 8 of 8 seeds missing",
    ]
    run(plan, store, InlineExecutor(), run_unit=quick_unit)
    assert missing_cells(plan, load_frames(store)) == []


def test_nothing_at_all_is_a_summary_of_zeros(store, plan):
    table = summarise(load_frames(store), plan)
    assert table["n"].tolist() == [0] * 4
    assert table["missing"].tolist() == [24] * 4
    assert len(missing_cells(plan, load_frames(store))) == 12


def test_results_stay_complete_when_code_moves_on(store, monkeypatch):
    run(make_plan(), store, InlineExecutor(), run_unit=quick_unit)
    frames = load_frames(store)
    monkeypatch.setattr("lab.sweeps.plan._version", lambda tasks, head: "newer")
    assert missing_cells(make_plan(), frames) == []
    older = frames.cells["config"].str.replace('"early_stop":0.0,', "")  # written before that option existed
    assert (older != frames.cells["config"]).all()
    assert missing_cells(make_plan(), replace(frames, cells=frames.cells.assign(config=older))) == []


def test_variants_are_told_apart(store):
    cells = [make_cell(smoothing=smoothing) for smoothing in (0.0, 1.0)] + [make_cell(dim=2)]
    run(Plan("fake", "quick", cells, range(3)), store, InlineExecutor(), run_unit=quick_unit)
    table = summarise(load_frames(store))
    assert table[["dim", "variant", "n"]].values.tolist() == [
        [1, "", 3],
        [1, "smoothing=0.0", 3],
        [2, "", 3],
    ]


def test_every_variant_of_several_is_named(store):
    cells = [make_cell(), make_cell(batch=8), make_cell(batch=9, steps=5)]  # the last alone has other steps
    run(Plan("fake", "quick", cells, range(2)), store, InlineExecutor(), run_unit=quick_unit)
    frames = load_frames(store)
    assert sorted(summarise(frames)["variant"]) == ["", "batch=8", "batch=9 steps=5"]
    # One stored by a version of the lab that had no such option has none.
    config = frames.cells["config"]
    older = config.where(config.str.contains('"batch":[89]'), config.str.replace('"batch":16,', ""))
    frames = replace(frames, cells=frames.cells.assign(config=older))
    assert sorted(summarise(frames)["variant"]) == ["batch=", "batch=8", "batch=9 steps=5"]


def test_evaluation_on_another_task(store):
    other = TaskConfig(name="nested-scope")
    cell = make_cell()
    cell = cell.model_copy(update={"evaluations": (*cell.evaluations, Evaluation(task=other, lengths=(8,)))})

    def unit(cell, seeds, progress):
        result = quick_unit(cell, seeds)
        place = {"task": "nested-scope", "length": 8, "factor": 0.25, "success": 0}
        rows = [{**row, **place} for row in result.evaluations if (row["split"], row["factor"]) == ("test", 1)]
        return replace(result, evaluations=[*result.evaluations, *rows])

    def only_there(cell, seeds, progress):
        return unit(cell, seeds, progress) if len(cell.evaluations) > 1 else quick_unit(cell, seeds)

    alone = make_cell("fpa-walk-tied")  # trained on the same task, and not evaluated there
    run(Plan("fake", "quick", [alone, cell], range(4)), store, InlineExecutor(), run_unit=only_there)
    table = summarise(load_frames(store), evaluated_on="nested-scope")
    assert table["n"].tolist() == [0, 4]
    row = table.iloc[1]
    assert (row["n"], row["successes"], row["n_0.25x"]) == (4, 0, 4)
    assert row["chance_tv_0.25x"] == chance_level(other, 8)["tv"]
    assert "tv_1x_median" not in row


@pytest.mark.parametrize("name", ["nested-scope", "leveled-dips", "subset-drop"])
def test_chance_is_the_uniform_reader(name):
    """Against the dense definition: equal weights on the keys so far, total variation and keys above half uniform."""
    task = TaskConfig(name=name).make()
    batch = task.sample("test", range(32), 0, 3, length=6)
    positions = np.arange(batch.seq_len)
    seen = (batch.death[..., None, :] > 0) & (positions <= positions[:, None])
    weights = seen / np.maximum(1, seen.sum(-1, keepdims=True))
    targets = batch.targets()
    rows = batch.queries > 0
    uniform = targets[rows] / targets[rows].sum(-1, keepdims=True)
    ratio = np.where(uniform > 0, uniform, 1) / np.where(uniform > 0, weights[rows], 1)
    expected = {
        "tv": 0.5 * np.abs(weights[rows] - uniform).sum(-1),
        "exact": ((weights[rows] > uniform.max(-1, keepdims=True) / 2) == targets[rows]).all(-1),
        "excess_loss": (uniform * np.log(ratio)).sum(-1),
    }
    level = chance_level(TaskConfig(name=name), 6, sequences=3)
    for metric, values in expected.items():
        assert level[metric] == pytest.approx(np.average(values, weights=batch.queries[rows]))


def test_summaries_of_a_store_and_of_its_export_agree(store, tmp_path):
    from lab.sweeps import export

    plan = make_plan()
    run(plan, store, InlineExecutor(), run_unit=quick_unit)
    [folder] = export(store, ["fake"], tmp_path)
    pd.testing.assert_frame_equal(summarise(load_frames(store), plan), summarise(load_frames(folder), plan))
