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
    # 6 baselines x 7 dimensions x 6 rates, and 6 forms of FPA x 3 dimensions at one rate
    assert per_task == dict.fromkeys(TASKS, 6 * 7 * 6 + 6 * 3)
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
    known = next(cell.head.label for cell in make("quick").cells if cell.head.kind.startswith("fpa"))
    with pytest.raises(InputError, match=f"did you mean {known}"):
        make("quick", heads=[f"{known}e"])
    with pytest.raises(InputError, match=r"dim: 33 is not in it; valid: (0, )?1"):
        make("quick", dims=[1, 33])


def test_length_reads_every_form_and_recipe_from_1_to_64_times_two_training_lengths():
    from experiments import length

    cells = length.plan("paper").cells
    factors = set()
    for cell in cells:
        trained = cell.task.make().train_length
        read = [n for e in cell.evaluations if e.split == "test" and e.task == cell.task for n in e.lengths]
        factors.add(tuple(n / trained for n in read))
        assert (cell.task.name == "nested-scope") == any(e.task.name == "source-scopes" for e in cell.evaluations)
    assert factors == {(1, 2, 4, 8, 16, 32, 64)}
    # 5 forms by 5 recipes at one length and 2 at the other, and the walk in float32 for the 4 that have one
    assert Counter(cell.head.model_dump().get("sum_dtype") for cell in cells) == {"float64": 35, "float32": 4}
    assert all(
        len({cell.task.make().train_length for cell in cells if cell.task.name == name}) == 2 for name in length.FORMS
    )


def test_ablations_change_one_setting_of_the_recipe_at_a_time():
    from experiments import ablations
    from lab.training.recipe import Recipe

    whole = ablations.plan("paper")
    assert len(whole.seeds) == 64
    for task, form in FITTING.items():
        cells = [cell for cell in whole.cells if cell.task.name == task]
        changes = []
        for cell in cells:
            recipe = cell.recipe.model_dump(exclude_defaults=True)
            head = {} if cell.head.penalty_scale == 1 else {"penalty_scale": cell.head.penalty_scale}
            head |= {} if cell.head.label == form else {"form": cell.head.label}
            changes.append(tuple(sorted({**recipe, **head})))
        groups = Counter(changes)
        assert groups.pop(()) == 1  # the recipe itself, in the form that fits
        drift = {("initial_drift",): 4, ("initial_drift", "smoothing"): 2} if form.startswith("fpa-walk") else {}
        once = {("smoothing",): 3, ("initial_scale",): 4, ("learning_rate",): 4, ("penalty_scale",): 4, ("form",): 5}
        assert groups == {**once, **drift}
    assert all(cell.compare_rates for cell in whole.cells)
    assert ablations.plan("quick").cells[0].recipe == Recipe()


def test_rivals_meet_on_the_same_tasks_with_grids_of_rates():
    from experiments import rivals
    from lab.training.recipe import Recipe

    cells = rivals.plan("paper").cells
    rates: dict = {}
    longer = set()
    for cell in cells:
        head = (cell.task.name, cell.head.label, cell.head.dim)
        budget = cell.recipe.model_dump(exclude={"learning_rate"})
        if budget == Recipe().model_dump(exclude={"learning_rate"}):
            rates.setdefault(head, set()).add(cell.recipe.learning_rate)
        else:
            assert budget == Recipe(steps=3200).model_dump(exclude={"learning_rate"})
            longer.add((*head, cell.recipe.learning_rate))
        train_length = cell.task.make().train_length
        tests = [n for e in cell.evaluations if e.split == "test" for n in e.lengths]
        assert tests == [factor * train_length for factor in (1, 2, 4, 8)]
    for task in TASKS:
        labels = {label for name, label, _ in rates if name == task}
        assert {*rivals.SINGLE, *rivals.BASELINES, FITTING[task]} <= labels
        assert (set(rivals.DEEP) <= labels) == (task == "nested-scope")
    for (_, label, _), grid in rates.items():
        few = {0.1} if label.startswith("fpa") else {0.01, 0.1, 0.3, 1.0}
        deep = {0.003, 0.01, 0.03, 0.1}
        single = deep | {0.3, 1.0}
        assert grid == (single if label in rivals.SINGLE else deep if label in rivals.DEEP else few)
    # What is trained longer stands at a rate of the grid, to be held against the same cell with the usual budget.
    assert len(longer) == 5
    assert all(rate in rates[task, label, dim] for task, label, dim, rate in longer)


def test_the_audit_takes_every_task_that_draws_sequences_with_readers_and_controls():
    from experiments import audit
    from lab.tasks import TASKS as REGISTERED

    whole = audit.plan("paper")
    assert {cell.task.name for cell in whole.cells} == {name for name in REGISTERED if not name.startswith("source")}
    readers = Counter(cell.task.name for cell in whole.cells if cell.head.kind == "reader")
    assert readers == {**dict.fromkeys(readers, 6), "scoped-lookup": 5}
    controls = Counter(cell.task.name for cell in whole.cells if cell.recipe.permute_targets)
    assert controls == dict.fromkeys(set(readers) - {"subset-free"}, 1)
    for cell in whole.cells:
        if cell.recipe.permute_targets:
            plain = cell.model_copy(update={"recipe": cell.recipe.model_copy(update={"permute_targets": False})})
            assert plain in whole.cells
