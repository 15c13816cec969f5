"""What `results audit` says below its table: counted by hand, of a small sweep of its own cells."""

from dataclasses import replace

import pytest

from experiments import audit
from lab.cli.results import remarked_tables, remarks
from lab.sweeps import InlineExecutor, Store, load_frames, run
from lab.tasks import count_duplicates, make_task
from lab.training import run_cell

SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def frames(tmp_path_factory):
    """The readers "chance", and the two controls of nested-scope made up: 3 seeds succeed, permuted 1 of 3."""

    def unit(cell, seeds, progress=None):
        if cell.head.kind == "reader":
            return run_cell(cell, seeds)
        chance = cell.model_copy(update={"head": audit.ReaderConfig(name="chance")})
        made_up = run_cell(chance, seeds)
        good = 1 if cell.recipe.permute_targets else 3
        for row in made_up.evaluations:
            row |= {"success": int(row["seed"] < good), "exact": 0.25 + 0.25 * (row["seed"] < good)}
        return replace(made_up, parameters=[])

    whole = audit.plan("quick")
    cells = [cell for cell in whole.cells if cell.head.kind != "reader" or cell.head.label == "reader-chance"]
    path = tmp_path_factory.mktemp("audit") / "store.sqlite"
    with Store(path) as store:
        run(replace(whole, cells=cells, seeds=SEEDS), store, InlineExecutor(), run_unit=unit)
    return load_frames(path, ["audit"], tables=("evaluations", *remarked_tables("audit")))


def test_duplicates_of_all_seeds_are_added_up(frames):
    table = audit.duplicates(frames)
    assert {label.partition("[")[0] for label in table.index} == set(audit.TASKS)
    by_hand = [count_duplicates(make_task("subset-drop"), 512, seed=seed) for seed in SEEDS]
    assert table.loc["subset-drop", "compared"] == 512 * len(SEEDS)
    for place in audit.PLACES:
        assert table.loc["subset-drop", place] == sum(counted[place] for counted in by_hand)
        assert table.loc["nested-scope", place] == 0
    assert table.loc["subset-drop", "test in train"] > 0


def test_controls_are_counted_apart_from_readers(frames):
    [own, permuted] = audit.controls(frames).to_dict("records")
    assert (own["task"], own["permuted"], own["n"], own["successes"]) == ("nested-scope", False, 3, 3)
    assert (permuted["permuted"], permuted["successes"], permuted["exact_max"]) == (True, 1, 0.5)
    assert permuted["low"] < 1 / 3 < permuted["high"]


def test_results_say_both(frames):
    text = "\n".join(remarks("audit", frames))
    assert "of 1,536 sequences of every split" in text
    assert "subset-free" in text
    assert "1,536 (100.00%)" in text
    assert "permuted 1/3 seeds" in text
    assert "own 3/3 seeds" in text
