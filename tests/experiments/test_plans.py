"""What the experiments promise to sweep, in numbers that a reader can count."""

import importlib
from collections import Counter

import pytest

from experiments import EXPERIMENTS
from experiments.target_sets import BASELINES, FITTING, FPA_FORMS, TASKS, plan
from lab.errors import InputError


def test_the_paper_preset_holds_every_head_dimension_and_rate():
    cells = plan("paper").cells
    assert (
        *("softmax-none", "softmax-alibi", "softmax-relative", "softmax-rope"),
        *("fox-gate0", "fox-gate4"),
    ) == BASELINES
    per_task = Counter(cell.task.name for cell in cells)
    # 6 baselines x 7 dimensions x 4 rates, and 6 forms of FPA x 3 dimensions at one rate
    assert per_task == dict.fromkeys(TASKS, 6 * 7 * 4 + 6 * 3)
    assert {cell.head.dim for cell in cells if cell.head.kind != "fpa"} == {1, 2, 4, 8, 16, 32, 64}
    assert {cell.head.dim for cell in cells if cell.head.kind == "fpa"} == {1, 2, 4}
    assert len(plan("paper").seeds) == 32


def test_every_cell_is_validated_and_tested_at_the_training_length():
    for cell in plan("paper").cells:
        train_length = cell.task.make().train_length
        own = [evaluation for evaluation in cell.evaluations if evaluation.task == cell.task]
        assert {evaluation.split for evaluation in own} == {"validation", "test"}
        assert all(train_length in evaluation.lengths for evaluation in own)
        test = next(evaluation for evaluation in own if evaluation.split == "test")
        assert test.lengths == tuple(factor * train_length for factor in (1, 2, 4, 8, 16))
        reads_files = any(evaluation.task.name == "source-scopes" for evaluation in cell.evaluations)
        assert reads_files == (cell.task.name == "nested-scope")


def test_the_form_that_fits_is_in_every_preset():
    for preset in ("quick", "paper"):
        heads = {(cell.task.name, cell.head.label) for cell in plan(preset).cells}
        assert set(FITTING.items()) <= heads
    assert set(FITTING.values()) <= set(FPA_FORMS)


def test_heads_and_dimensions_filter_the_plan():
    cells = plan("paper", seeds=3, heads=["fox-gate4"], dims=[2, 64]).cells
    assert {(cell.head.label, cell.head.dim) for cell in cells} == {("fox-gate4", 2), ("fox-gate4", 64)}
    assert plan("paper", seeds=3).seeds == (0, 1, 2)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_running_some_heads_leaves_the_others_in_the_results(name):
    make = importlib.import_module(EXPERIMENTS[name]).plan
    whole = make("quick")
    some = make("quick", heads=[whole.cells[0].head.label])
    assert len(some.cells) < len(whole.cells)
    assert (whole.part, some.part) == (False, True)
    everything = make("quick", dims=sorted({cell.head.dim for cell in whole.cells}))
    assert everything == whole


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_plan_refuses_what_it_does_not_know(name):
    make = importlib.import_module(EXPERIMENTS[name]).plan
    with pytest.raises(InputError, match="--preset: unknown preset 'papr'; did you mean paper"):
        make("papr")
    with pytest.raises(InputError, match="did you mean fpa-walk-tied"):
        make("quick", heads=["fpa-walk-tide"])
    with pytest.raises(InputError, match="dim: 3 is not in it; valid: 1"):
        make("quick", dims=[1, 3])


def test_walk_drift_reads_both_level_forms_far_beyond_training():
    from experiments import walk_drift

    cells = walk_drift.plan("paper").cells
    assert Counter(cell.head.label for cell in cells) == dict.fromkeys(walk_drift.HEADS, len(walk_drift.RECIPES))
    for cell in cells:
        lengths = [n for e in cell.evaluations if e.split == "test" for n in e.lengths]
        assert lengths == [factor * cell.task.make().train_length for factor in (1, 4, 16, 64, 128)]
