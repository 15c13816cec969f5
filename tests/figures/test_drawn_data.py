"""What is drawn is what the rows say: the artists' own data, read back."""

import re
from dataclasses import replace
from itertools import accumulate, product

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb

from figures import build, mechanism, style, success_rows, words
from figures.inputs import Results
from lab.errors import InputError
from lab.sweeps import clopper_pearson


def drawing(name, results=None):
    with style.paper():
        return build.draw(name, results, 0)


def panel(figure, task):
    """The axes whose title ends with this text."""
    [axes] = [axes for axes in figure.axes if axes.get_title(loc="left").endswith(task)]
    return axes


def line(axes, label):
    [found] = [line for line in axes.lines if line.get_label() == label]
    return found


def bars(axes, colour):
    """Ends (low, high) of the vertical bars of a colour, left to right."""
    segments = [
        segment
        for artist in axes.collections
        if isinstance(artist, LineCollection) and to_rgb(artist.get_color()[0]) == pytest.approx(to_rgb(colour))
        for segment in artist.get_segments()
    ]
    return [(segment[0][1], segment[1][1]) for segment in sorted(segments, key=lambda segment: segment[0][0])]


# --- mechanism, against the definition in plain Python ---

TOKENS = mechanism.SEQUENCE
FIELD = list(accumulate({"(": 1, ")": -1}.get(token, 0) for token in TOKENS))


def axes_named(figure, name):
    [axes] = [axes for axes in figure.axes if axes.get_label() == name]
    return axes


@pytest.mark.parametrize(
    ("name", "bias"),
    [
        ("fox", lambda i, j: -TOKENS[j + 1 : i + 1].count(")")),
        ("fpa", lambda i, j: -max([0, *(FIELD[j] - u for u in FIELD[j + 1 : i + 1])])),
    ],
)
def test_mechanism_matrices_equal_the_definition(name, bias):
    [image] = axes_named(drawing("mechanism").figure, name).images
    drawn = np.ma.filled(image.get_array(), np.nan)
    for i, j in product(range(len(TOKENS)), repeat=2):
        if j > i:
            assert np.isnan(drawn[i, j]), (i, j)
        else:
            assert drawn[i, j] == bias(i, j), (i, j)


def test_mechanism_shares_one_colour_scale_in_which_only_zero_is_the_alive_colour():
    figure = drawing("mechanism").figure
    colours = [image.to_rgba(-np.arange(5.0)) for name in ("fox", "fpa") for image in axes_named(figure, name).images]
    assert np.array_equal(*colours)
    alive = np.all(np.isclose(colours[0][:, :3], to_rgb(mechanism.ALIVE), atol=1e-6), axis=1)
    assert alive.tolist() == [True, False, False, False, False]


def test_mechanism_dots_are_the_keys_of_open_scopes_and_the_zeros_of_fpa():
    figure = drawing("mechanism").figure
    depth = [0, *accumulate({"(": 1, ")": -1}.get(token, 0) for token in TOKENS)]
    expected = {
        (i, j)
        for i in range(len(TOKENS))
        for j in range(i + 1)
        if TOKENS[j].isalpha() and min(depth[j + 1 : i + 2]) >= depth[j + 1]
    }
    for name in ("fox", "fpa"):
        dots = [line for line in axes_named(figure, name).lines if line.get_marker() == "o"]
        drawn = {(int(y), int(x)) for dot in dots for x, y in dot.get_xydata() if x == int(x)}
        assert drawn == expected, name
    shown = mechanism.example()
    is_key = np.array([token.isalpha() for token in TOKENS])
    assert {(int(i), int(j)) for i, j in np.argwhere((shown.fpa_bias == 0) & is_key)} == expected


def test_mechanism_stack_shows_the_live_keys_of_every_position():
    texts = axes_named(drawing("mechanism").figure, "stack").texts
    stacks = ["".join(t.get_text() for t in texts if t.get_position()[0] == i) for i in range(len(TOKENS))]
    assert stacks[5] == "ABCD"
    assert stacks[6] == "ABC"
    assert stacks[11] == "ABCEFG"
    assert stacks[15] == "A"


def test_mechanism_crosses_stand_at_first_passages():
    crosses = [line for line in axes_named(drawing("mechanism").figure, "walk").lines if line.get_marker() == "x"]
    drawn = {(int(line.get_xdata()[0]), float(line.get_ydata()[0])) for line in crosses}
    assert drawn == {(6, 2.0), (12, 3.0), (13, 2.0), (15, 1.0)}
    for position, level in drawn:
        assert FIELD[position] < level <= FIELD[position - 1]


# --- figures of results, against the rows they came from ---


def test_success_fractions_and_intervals_are_those_of_the_rows(results):
    figure = drawing("success", results).figure
    rows = results.frames.evaluations
    rows = rows[(rows["split"] == "test") & (rows["factor"] == 1) & (rows["task"] == rows["train_task"])]
    for task in ("nested-scope", "leveled-dips", "subset-drop"):
        axes, intervals = panel(figure, task), {}
        for head in sorted(set(rows.loc[rows["train_task"] == task, "head"])):
            # Both learning rates of a baseline have the same successes, so the choice does not matter here.
            mine = rows[(rows["train_task"] == task) & (rows["head"] == head)]
            counts = mine.groupby("dim")["success"].mean() * 4
            assert counts.tolist() == ([3, 4] if counts.max() else [0, 0])
            drawn = line(axes, head)
            assert drawn.get_ydata().tolist() == (counts / 4).tolist(), (task, head)
            for x, successes in zip(drawn.get_xdata(), counts):
                intervals.setdefault(style.look(head).colour, {})[x] = clopper_pearson(int(successes), 4)
        for colour, expected in intervals.items():
            ends = [expected[x] for x in sorted(expected)]
            assert np.allclose(bars(axes, colour), ends), (task, colour)


def test_medians_of_rows_of_settings_leave_no_seed_out(results):
    """A seed that is no number succeeds nowhere and takes the median with it, rather than flatter the others."""
    rows = results.frames.evaluations
    spoilt = rows.assign(exact=rows["exact"].mask(rows["seed"] == 0))
    cells = results.frames.cells[["cell", "head"]]
    table = success_rows.counted(replace(results.frames, evaluations=spoilt), cells)
    assert len(table) == 2 * len(cells)
    assert table["exact_median"].isna().all()
    assert table["tv_median"].notna().all()
    whole = success_rows.counted(results.frames, cells)
    assert whole["exact_median"].notna().all()
    assert {(row.low, row.high) for row in whole.itertuples() if row.successes == 3} == {clopper_pearson(3, 4)}


def test_no_marker_of_the_success_figure_hides_another(results):
    figure = drawing("success", results).figure
    figure.canvas.draw()
    for axes in figure.axes:
        points = [axes.transData.transform(line.get_xydata()) for line in axes.lines if line.get_marker() != "None"]
        x = np.sort(np.concatenate(points)[:, 0])
        assert np.diff(x).min() > style.look("softmax-none").marker["markersize"] * figure.dpi / 72


def test_success_ticks_count_seeds(results):
    axes = panel(drawing("success", results).figure, "nested-scope")
    assert [label.get_text() for label in axes.get_yticklabels()] == ["0/4", "1/4", "2/4", "3/4", "4/4"]


def test_convergence_shows_the_best_cell_of_every_family(results):
    figure = drawing("convergence", results).figure
    axes = panel(figure, "nested-scope")
    labels = {text.get_text() for text in axes.get_legend().get_texts()}
    # Dimension 1 and rate 0.05 have the lowest made-up validation losses; ties between heads go by name.
    assert labels == {"FPA walk offset, $d=1$", "FoX gate bias 0, $d=1$", "softmax ALiBi, $d=1$"}
    curves = results.frames.curves
    mine = curves[(curves["train_task"] == "nested-scope") & (curves["head"] == "fox-gate0") & (curves["dim"] == 1)]
    mine = mine[mine["learning_rate"] == 0.05]
    drawn = line(axes, "FoX gate bias 0, $d=1$")
    assert drawn.get_xdata().tolist() == mine["step"].tolist()
    assert drawn.get_ydata().tolist() == mine["median"].tolist()
    assert axes.get_yscale() == "log"


def test_convergence_of_one_dimension(results):
    from figures import convergence

    with style.paper():
        rows = convergence.draw(results, dim=4).rows
        with pytest.raises(InputError, match="dimension 3"):
            convergence.draw(results, dim=3)
    assert set(rows["dim"]) == {4}


def test_length_medians_and_quartiles_are_those_of_the_seeds(results):
    figure = drawing("length", results).figure
    rows = results.frames.evaluations
    rows = rows[(rows["split"] == "test") & (rows["task"] == "nested-scope") & (rows["learning_rate"] == 0.05)]
    rows = rows[rows["dim"] == 1]
    axes = panel(figure, "nested-scope")
    for head in ("fpa-walk-offset", "fox-gate0", "softmax-alibi"):
        quartiles = rows[rows["head"] == head].groupby("factor")["exact"].quantile([0.25, 0.5, 0.75]).unstack()
        assert np.allclose(line(axes, head).get_ydata(), quartiles[0.5]), head
    fox = rows[rows["head"] == "fox-gate0"].groupby("factor")["exact"].quantile([0.25, 0.75]).unstack()
    assert np.allclose(bars(axes, style.look("fox-gate0").colour), fox)


def test_learned_field_is_in_units_of_each_seed(results):
    made = drawing("learned_field", results)
    rows = made.rows[(made.rows["task"] == "nested-scope") & (made.rows["head"] == "fpa-walk-offset")]
    parameters = results.frames.parameters
    for seed in range(4):
        mine = parameters[(parameters["train_task"] == "nested-scope") & (parameters["head"] == "fpa-walk-offset")]
        mine = mine[(mine["dim"] == 1) & (mine["seed"] == seed)].set_index(["name", "token"])["value"]
        step = (mine["increment", "open"] - mine["increment", "close"]) / 2
        drawn = rows[rows["seed"] == seed].set_index(["name", "token"])["value"]
        for name in (("increment", "open"), ("increment", "close"), ("increment", "key"), ("offset", "key")):
            assert drawn[name] == pytest.approx(mine[name] / step), (seed, name)
    assert set(rows["theory"].dropna()) == {1.0, -1.0, 0.0}
    dots = np.concatenate([line.get_ydata() for line in panel(made.figure, "nested-scope").lines])
    assert set(np.round(rows["value"], 9)) <= set(np.round(dots, 9))


def test_learned_levels_stand_in_the_order_of_the_theory(results):
    made = drawing("learned_field", results)
    rows = made.rows[made.rows["task"] == "leveled-dips"]
    assert set(rows["head"]) == {"fpa-direct-free"}
    by_place = rows.drop_duplicates("place").sort_values("place")["token"].tolist()
    assert by_place == ["key1", "dip1", "key2", "dip2", "key3", "dip3", "key4", "dip4", "all keys"]
    for _, seed in rows.groupby("seed"):
        values = seed.sort_values("place")["value"].tolist()
        assert values[:8] == sorted(values[:8])
        assert (values[0], values[6]) == (0.0, 1.0)
    # leveled-dips has no walk that succeeds: it is named in the caption and not drawn.
    assert "FPA walk tied on leveled-dips" in made.caption


def test_failed_seeds_are_grey(results):
    axes = panel(drawing("learned_field", results).figure, "leveled-dips")
    grey = [line for line in axes.lines if to_rgb(line.get_markerfacecolor()) == to_rgb(style.FAILED)]
    assert {len(line.get_ydata()) for line in grey if line.get_marker() == "D"} == {1}  # seed 3 at dimension 1


def test_axes_of_the_learned_field_hold_every_seed_that_succeeds_and_the_caption_counts_the_rest(results):
    frames = results.frames
    untouched = drawing("learned_field", results)
    cell = results.summary.loc[results.summary["head"] == "fpa-direct-free", "cell"].iloc[0]
    far = frames.parameters.copy()
    rows = (far["cell"] == cell) & (far["seed"] == 3) & (far["token"] == "dip1") & (far["name"] == "field")
    far.loc[rows, "value"] = -1000.0
    made = drawing("learned_field", Results(replace(frames, parameters=far)))
    before, after = (re.search(r"of 16 failed \(grey; (\d+) ", each.caption)[1] for each in (untouched, made))
    assert int(after) == int(before) + 1
    low, high = panel(made.figure, "leveled-dips").get_ylim()
    mine = made.rows[made.rows["task"] == "leveled-dips"]
    assert mine.loc[mine["success"] == 1, "value"].between(low, high).all()
    assert low > -1


def test_source_scopes_dots_are_the_files(results):
    figure = drawing("source_scopes", results).figure
    shown = [axes.get_title(loc="left").split("  ")[1] for axes in figure.axes]
    assert shown == [
        "FPA walk tied, $d=1$",
        "FPA walk offset, $d=1$",
        "FoX gate bias 0, $d=1$",
        "softmax ALiBi, $d=1$",
    ]
    for axes, expected in ((figure.axes[1], [1.0] * 12), (figure.axes[2], [0.9 / (1 + n) for n in range(12)])):
        dots = line(axes, "files")
        assert dots.get_xdata().tolist() == [30 * 2**n for n in range(12)]
        assert np.allclose(dots.get_ydata(), expected, atol=1e-6)
    assert "every seed exact:\n12 of 12 files" in [text.get_text() for text in figure.axes[1].texts]


def test_binned_medians_cover_every_file_once(results):
    from figures.source_scopes import binned

    files = results.frames.files
    files = files[(files["head"] == "fox-gate0") & (files["dim"] == 1) & (files["learning_rate"] == 0.05)]
    bins = binned(files)
    assert bins["n"].sum() == len(files)
    assert (np.diff(bins["seq_len"]) > 0).all()
    assert (bins["q25"] <= bins["median"]).all()
    assert (bins["median"] <= bins["q75"]).all()


# --- input that has no figure ---


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("convergence", "curves", "expected learning curves"),
        ("source_scopes", "files", "expected results on source files"),
    ],
)
def test_results_without_the_rows_of_a_figure_are_an_input_error(results, name, table, message):
    empty = getattr(results.frames, table).iloc[:0]
    with pytest.raises(InputError, match=message):
        drawing(name, Results(replace(results.frames, **{table: empty})))


def test_results_of_two_recipes_are_an_input_error(results):
    cells = results.frames.cells
    other = cells.iloc[[0]].assign(
        cell="other", config=cells["config"].iloc[0].replace('"smoothing":1.0', '"smoothing":0.0')
    )
    import pandas as pd

    frames = replace(results.frames, cells=pd.concat([cells, other], ignore_index=True))
    with pytest.raises(InputError, match="several variants"):
        drawing("success", Results(frames))


def test_successes_are_counted_per_task_and_head():
    columns = ["task", "head", "dim", "successes", "n"]
    rows = [("a", "fpa-walk-tied", 1, 3, 4), ("a", "fpa-walk-tied", 2, 4, 4), ("a", "fox-gate0", 1, 0, 4)]
    text = words.counts(pd.DataFrame([*rows, ("b", "fpa-walk-tied", 1, 0, 4)], columns=columns))
    assert text.endswith("succeed: FPA walk tied 7 of 8 (a); of every other head 0 of 8.")
