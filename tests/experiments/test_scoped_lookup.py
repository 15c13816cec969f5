"""What scoped_lookup promises to sweep."""

from collections import Counter

from experiments import scoped_lookup
from experiments.scoped_lookup import BASELINES, FPA_FORMS, PATIENT_STEPS, RATE, READERS, WITH_RECENCY
from lab.training.recipe import Recipe


def cells():
    return scoped_lookup.plan("paper").cells


def test_fpa_has_one_rate_or_two_and_baselines_choose_between_five():
    rates = {}
    for cell in cells():
        place = (cell.head.label, cell.head.dim, cell.task.label, cell.recipe.steps)
        rates.setdefault(place, Counter())[cell.recipe.learning_rate] += 1
    for (head, dim, task, steps), found in rates.items():
        if head in BASELINES:
            assert found == {0.01: 1, 0.03: 1, 0.1: 1, RATE: 1, 1.0: 1}
        elif steps == PATIENT_STEPS:
            assert found == {0.1: 1, RATE: 1}
        else:  # once by the recipe, and once at mixed lengths where files are read
            longer = head in WITH_RECENCY and dim == READERS[head] and task == "scoped-lookup[symbols=16]"
            assert found == {RATE: 1 + longer}
    assert {cell.head.label for cell in cells()} == {*BASELINES, *FPA_FORMS}


def test_dimensions_and_symbols_are_crossed_for_the_heads_of_the_claim():
    for head in WITH_RECENCY:
        crossed = {(c.head.dim, c.task.make().symbols) for c in cells() if c.head.label == head}
        assert crossed == {(dim, symbols) for dim in (1, 2, 4, 8) for symbols in (4, 16, 32)}
    for head in BASELINES:
        crossed = {(c.head.dim, c.task.make().symbols) for c in cells() if c.head.label == head}
        assert crossed == {(8, 4), (2, 16), (8, 16), (32, 16), (8, 32)}


def test_three_times_the_steps_in_three_places_and_for_baselines_in_one():
    patient = [cell for cell in cells() if cell.recipe.steps != Recipe().steps]
    assert {cell.recipe.steps for cell in patient} == {PATIENT_STEPS} == {3 * Recipe().steps}
    for heads, places in ((WITH_RECENCY, {(2, 16), (4, 32), (8, 32)}), (BASELINES, {(8, 32)})):
        for head in heads:
            mine = {(c.head.dim, c.task.make().symbols) for c in patient if c.head.label == head}
            assert mine == places


def test_heads_are_read_at_every_length_and_some_on_files_written_with_their_symbols():
    for cell in cells():
        lengths = {e.split: e.lengths for e in cell.evaluations if e.task == cell.task}
        assert lengths == {"validation": (48,), "test": (48, 96, 192, 384)}
        files = [e.task for e in cell.evaluations if e.task.name == "source-lookup"]
        reads = cell.head.dim == READERS.get(cell.head.label) and cell.task.make().symbols == 16
        assert [task.make().scopes for task in files] == (["python", "indent"] if reads else [])
        assert all(task.make().symbols == 16 for task in files)
