"""The figure of lookups, and the table of names in files, from made-up results whose numbers are known."""

from dataclasses import replace

import pytest

from figures import build, style
from figures.inputs import Results
from figures.scoped_lookup import lengths, most_compared, settings_of
from lab.cli.results import print_summary
from lab.errors import InputError
from lab.heads.config import head_config
from lab.sweeps import Cell, CellResult, Evaluation, InlineExecutor, Plan, Store, TaskConfig, clopper_pearson, run
from lab.sweeps.frames import load_frames
from lab.sweeps.lookups import file_accuracies
from lab.sweeps.statistics import summarise
from lab.training.recipe import Recipe

FILES = TaskConfig(name="source-lookup", options={"symbols": 4, "max_files": 1})
# Right answers at the training length, by head; seed s has s thousandths less.
RIGHT = {"fpa-walk-offset-gate": 1.0, "fpa-walk-offset-alibi": 0.995, "fox-gate0": 0.8}
USES = {"": 1000, "shadowed": 200, "outlived": 10}


def cell(head, dim, symbols, **recipe):
    task = TaskConfig(name="scoped-lookup", options={"symbols": symbols, "train_length": 12})
    evaluations = (
        Evaluation(task=task, split="validation", lengths=(12,)),
        Evaluation(task=task, lengths=(12, 24)),
        *((Evaluation(task=FILES),) if symbols == 4 else ()),
    )
    config = head_config(head, dim)
    return Cell(experiment="scoped_lookup", task=task, head=config, recipe=Recipe(**recipe), evaluations=evaluations)


def made_up(cell, seeds, progress):
    rows = []
    right = RIGHT.get(cell.head.label, 0.9) - 0.1 * (cell.head.dim == 1)
    right = min(1.0, right + 0.15 * (cell.recipe.steps > Recipe().steps))
    numbers = dict.fromkeys(("tv", "mass", "window_mean", "window_max", "gap_mean", "gap_min"), 0.5)

    def row(seed, label, split, length, exact, queries=100):
        place = {"seed": seed, "task": label, "split": split, "length": length, "factor": length / 12}
        own = {"exact": exact, "success": int(exact >= 0.99), "loss": 1 - exact, "excess_loss": 1 - exact}
        rows.append({**place, "queries": queries, **numbers, **own})

    for seed in seeds:
        label, exact = cell.task.label, right - seed / 1000
        row(seed, label, "validation", 12, exact)
        row(seed, label, "test", 12, exact)
        row(seed, label, "test", 24, exact - 0.2)
        row(seed, f"{label}/in force", "test", 12, exact - 0.001)
        for evaluation in cell.evaluations[2:]:
            for group, uses in USES.items():
                of_group = evaluation.task.label + (f"/{group}" if group else "")
                row(seed, of_group, "test", 0, exact, uses)
                row(seed, f"{of_group}/most recent binding", "test", 0, 0.9, uses)
                row(seed, f"{of_group}/random live binding", "test", 0, 0.4, uses)
    return CellResult(rows, 7)


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    cells = [cell(head, dim, symbols) for head in RIGHT for dim in (1, 4) for symbols in (3, 4)]
    cells.append(cell("fpa-walk-offset-gate", 4, 4, lengths=(12, 24)))
    cells += [cell(head, 1, 4, steps=3 * Recipe().steps) for head in RIGHT]  # the best of all, and not drawn
    path = tmp_path_factory.mktemp("lookups") / "made-up.sqlite"
    with Store(path) as store:
        run(Plan("scoped_lookup", "quick", cells, range(4), block=4), store, InlineExecutor(), run_unit=made_up)
    return load_frames(path)


@pytest.fixture(scope="module")
def drawn(frames):
    with style.paper():
        return build.draw("scoped_lookup", Results(frames), 0)


def part(drawn, name):
    return drawn.rows[drawn.rows["panel"] == name]


def test_successes_are_counted_per_head_symbols_and_dimension(drawn):
    found = part(drawn, "success").set_index(["head", "symbols", "dim"])["successes"].to_dict()
    # gates: 1.0, 0.999, 0.998, 0.997 at dimension 4; ALiBi: 0.995 .. 0.992; a tenth less at dimension 1
    expected = {"fpa-walk-offset-gate": 4, "fpa-walk-offset-alibi": 4}
    assert found == {(h, s, d): n * (d == 4) for h, n in expected.items() for s in (3, 4) for d in (1, 4)}


def test_every_head_stands_at_its_best_dimension_with_its_seeds(drawn):
    rows = part(drawn, "heads")
    assert rows.groupby("head")["dim"].agg(set).to_dict() == {head: {4} for head in RIGHT}
    for head, right in RIGHT.items():
        mine = rows[rows["head"] == head].sort_values("seed")
        assert mine["exact"].tolist() == pytest.approx([right - seed / 1000 for seed in range(4)])
        assert mine["most_weight"].tolist() == pytest.approx([right - 0.001 - seed / 1000 for seed in range(4)])
    [axes] = [axes for axes in drawn.figure.axes if "every head" in axes.get_title(loc="left")]
    dots = {line.get_label(): sorted(line.get_xdata()) for line in axes.lines}
    assert dots["fox-gate0"] == pytest.approx([0.797, 0.798, 0.799, 0.8])
    assert dots["chance"] == [1 / 8, 1 / 8]


def test_lengths_hold_the_head_trained_at_mixed_lengths_apart(drawn):
    rows = part(drawn, "length")
    heads = rows[rows["head"] != "most recent binding"].groupby(["head", "longer"])["median"].agg(list)
    assert heads["fpa-walk-offset-gate", True] == pytest.approx([0.9985, 0.7985])
    assert heads["fpa-walk-offset-gate", False] == pytest.approx([0.9985, 0.7985])
    assert heads["fox-gate0", False] == pytest.approx([0.7985, 0.5985])
    assert len(rows[rows["head"] == "most recent binding"]) == 2


def test_a_head_alone_that_is_neither_a_form_nor_a_baseline_is_drawn(tmp_path):
    path = tmp_path / "alone.sqlite"
    with Store(path) as store:
        plan = Plan("scoped_lookup", "quick", [cell("fpa-walk-tied", 4, 3)], range(2), block=2)
        run(plan, store, InlineExecutor(), run_unit=made_up)
    with style.paper():
        drawn = build.draw("scoped_lookup", Results(load_frames(path)), 0)
    rows = part(drawn, "length")
    assert rows["head"].tolist() == ["most recent binding"] * 2
    assert rows["factor"].tolist() == [1, 2]
    assert part(drawn, "heads")["head"].tolist() == ["fpa-walk-tied"] * 2
    assert "(Clopper-Pearson), n = 0." in drawn.caption


def test_results_without_lookups_by_the_recipe_are_refused(tmp_path):
    path = tmp_path / "patient.sqlite"
    with Store(path) as store:
        plan = Plan("scoped_lookup", "quick", [cell("fox-gate0", 4, 3, steps=3 * Recipe().steps)], range(2), block=2)
        run(plan, store, InlineExecutor(), run_unit=made_up)
    with pytest.raises(InputError, match=r"patient\.sqlite: expected results on scoped-lookup"):
        build.draw("scoped_lookup", Results(load_frames(path)), 0)


def test_a_seed_that_is_no_number_is_not_left_out_of_medians(frames):
    """What pandas skips would flatter the other seeds."""
    seed = frames.evaluations["seed"] == 0
    spoilt = replace(frames, evaluations=frames.evaluations.assign(exact=frames.evaluations["exact"].mask(seed)))
    table = settings_of(Results(spoilt))
    lines = lengths(Results(spoilt), table, 4)
    assert lines.loc[lines["n"].notna(), ["q25", "median", "q75"]].isna().all(axis=None)
    read = file_accuracies(spoilt)
    assert len(read) == len(file_accuracies(frames))
    assert read[["least", "median", "most", "low", "high"]].isna().all(axis=None)
    with style.paper():
        assert "0 of 4 (median nan)" in build.draw("scoped_lookup", Results(spoilt), 0).caption


def test_files_tell_groups_and_readers_apart(frames, drawn):
    table = file_accuracies(frames)
    mine = table[(table["head"] == "fpa-walk-offset-gate") & (table["dim"] == 4) & (table["variant"] == "")]
    assert set(zip(mine["group"], mine["reader"], mine["uses"])) == {
        (group, reader, uses)
        for group, uses in USES.items()
        for reader in ("head", "most recent binding", "random live binding")
    }
    row = mine[(mine["group"] == "") & (mine["reader"] == "head")].iloc[0]
    assert (row["n"], row["least"], row["median"], row["most"]) == (4, 0.997, pytest.approx(0.9985), 1.0)
    assert (row["low"], row["high"]) == pytest.approx(clopper_pearson(998, 1000))
    # Readers that know less are the same beside every head, and are drawn once; of heads, those by the recipe's steps.
    rows = part(drawn, "files")
    assert (rows["reader"] == "most recent binding").sum() == len(USES)
    assert (rows["reader"] == "head").sum() == len(USES) * (2 * len(RIGHT) + 1)


def test_the_caption_says_what_was_counted(frames, drawn):
    assert most_compared(settings_of(Results(frames))) == 4
    assert "for 800 steps; the answer is the value" in drawn.caption
    assert "n = 4" in drawn.caption
    assert "FPA walk offset, gate 4 of 4 (median 0.998)" in drawn.caption
    assert "FoX gate bias 0 0 of 4 (median 0.798)" in drawn.caption
    assert "newest dead (10 uses)" in drawn.caption


def lines_of(text, part):
    return [line for line in text.splitlines() if part in line]


def test_results_print_answers_and_files_with_what_they_mean(frames, capsys):
    print_summary(summarise(frames), frames)
    printed = capsys.readouterr().out
    assert "exact: share of right answers; TV: 1 less the weight on the binding in force." in printed
    assert "A seed succeeds when exact >= 0.99 and TV <= 0.05" not in printed
    lines = [line for line in lines_of(printed, "newest binding dead") if "fox-gate0" in line]
    assert len(lines) == 3  # one of each dimension, and one of three times the steps
    assert any("0.7985" in line and "0.7970–0.8000" in line for line in lines)
    # Beside the heads of both dimensions, a reader that knows less is printed once per group.
    assert sum("most recent binding" in line for line in lines_of(printed, "source-lookup")) == len(USES)
    assert len(lines_of(printed, "readers that know less, right answers at 1x: chance 0.125")) == 2
