import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from sweeps_fakes import make_cell, make_plan

from lab.errors import InputError
from lab.heads import head_config
from lab.sweeps import Cell, Evaluation, Plan, TaskConfig
from lab.sweeps import plan as plan_module

HERE = str(Path(__file__).parent)
HEAD = head_config("fpa-walk-tied", 2)


def cell_with(**changes) -> Cell:
    return Cell(**{"experiment": "e", "task": {"name": "nested-scope"}, "head": HEAD, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": {"stepz": 1}}, "cell: recipe.stepz: unknown key; did you mean steps?"),
        ({"expermient": "x"}, "cell: expermient: unknown key; did you mean experiment?"),
        (
            {"head": {"kind": "fpa", "dim": 1, "feild": "walk"}},
            "cell: head.fpa.feild: unknown key; did you mean field?",
        ),
        ({"head": {"kind": "fox", "dim": -1}}, "cell: head.fox.dim: Input should be greater than or equal to 0"),
        ({"task": {"name": "nested"}}, "did you mean nested-scope?"),
        ({"task": {"nmae": "nested-scope"}}, "task: "),
        ({"task": {"name": "nested-scope", "options": {"maxdepth": 2}}}, "did you mean max_depth?"),
        (
            {"evaluations": [{"task": {"name": "nested-scope"}, "length": [4]}]},
            "length: unknown key; did you mean lengths?",
        ),
        ({"evaluations": [{"task": {"name": "nested-scope"}, "lengths": [0]}]}, "lengths: [0]: expected"),
        ({"experiment": ""}, "cell: experiment: "),
    ],
)
def test_mistakes_are_one_line_naming_the_field(changes, message):
    with pytest.raises(InputError) as error:
        cell_with(**changes)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_cells_are_frozen():
    with pytest.raises(ValidationError):
        make_cell().experiment = "other"


def test_id_follows_every_part_of_the_configuration():
    base = cell_with()
    changes = [
        {"experiment": "f"},
        {"task": {"name": "subset-drop"}},
        {"task": {"name": "nested-scope", "options": {"max_depth": 3}}},
        {"head": head_config("fpa-walk-tied", 3)},
        {"head": head_config("fpa-walk-tied", 2, penalty_scale=2.0)},
        {"recipe": {"learning_rate": 0.051}},
        {"evaluations": [{"task": {"name": "nested-scope"}, "sequences": 65}]},
    ]
    ids = {base.id, *(cell_with(**change).id for change in changes)}
    assert len(ids) == 1 + len(changes)
    assert all(len(name) == 16 and set(name) <= set("0123456789abcdef") for name in ids)


def test_id_is_that_of_an_equal_cell_from_json_or_pickle():
    cell = cell_with(task={"name": "nested-scope", "options": {"max_depth": 3}}, recipe={"learning_rate": 1})
    for copy in (Cell.model_validate_json(cell.config), pickle.loads(pickle.dumps(cell))):
        assert copy == cell
        assert copy.id == cell.id


def test_a_changed_copy_has_an_id_of_its_own():
    cell = cell_with()
    assert cell.id  # worked out before the copy is made
    assert cell.model_copy(update={"experiment": "f"}).id == cell_with(experiment="f").id != cell.id
    assert cell.model_copy().id == cell.id


@pytest.fixture
def new_versions():
    """Versions are worked out once in a process; here again, before and after."""
    plan_module._version.cache_clear()
    yield
    plan_module._version.cache_clear()


def test_id_follows_the_code(monkeypatch, new_versions):
    before = cell_with().id
    plan_module._version.cache_clear()
    monkeypatch.setattr(plan_module, "code_version", lambda tasks, head: f"other {tasks} {head}")
    changed = cell_with(evaluations=[{"task": {"name": "subset-drop"}}, {"task": {"name": "nested-scope"}}])
    assert changed.code == "other ['nested-scope', 'subset-drop'] fpa"
    assert cell_with().id != before


def test_id_follows_the_data_of_tasks_of_files(monkeypatch, new_versions):
    codes = []
    for data in ("old files", "new files", "old files"):
        monkeypatch.setattr("lab.tasks.NestedScope.data_version", lambda task, data=data: data, raising=False)
        plan_module._version.cache_clear()
        codes.append(cell_with().code)
        assert cell_with(task={"name": "subset-drop"}).code not in codes
    assert codes[0] == codes[2] != codes[1]


def test_id_is_the_same_in_another_process():
    program = f"import sys; sys.path.insert(0, {HERE!r}); import sweeps_fakes as f; print(f.make_cell().id)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == make_cell().id


def test_options_at_their_defaults_make_no_difference():
    task = TaskConfig(name="nested-scope")
    default = task.make().options()
    assert TaskConfig(name="nested-scope", options=default) == task
    assert task.label == "nested-scope"
    deeper = TaskConfig(name="nested-scope", options={**default, "max_depth": default["max_depth"] + 1})
    assert deeper.label == f"nested-scope[max_depth={default['max_depth'] + 1}]"
    assert deeper.make().options()["max_depth"] == default["max_depth"] + 1


def test_units_are_cells_times_blocks():
    plan = make_plan(seeds=10, block=4)
    units = plan.units()
    assert plan.blocks() == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9)]
    assert len(units) == len({unit.id for unit in units}) == 3 * len(plan.cells)
    covered = [(unit.cell.id, seed) for unit in units for seed in unit.seeds]
    assert sorted(covered) == sorted((cell.id, seed) for cell in plan.cells for seed in range(10))


def test_units_shrink_to_what_is_missing_however_it_was_cut():
    plan = make_plan(seeds=8, block=4)
    first, second = plan.cells[0].id, plan.cells[1].id
    units = plan.units({first: {0, 1, 2, 3, 5}, second: set(range(8))})
    assert [unit.seeds for unit in units if unit.cell.id == first] == [(4, 6, 7)]
    assert not [unit for unit in units if unit.cell.id == second]
    assert len(units) == 1 + 2 * (len(plan.cells) - 2)


def test_more_seeds_leave_full_blocks_as_they_are():
    few, many = make_plan(seeds=8), make_plan(seeds=12)
    assert {unit.id for unit in few.units()} < {unit.id for unit in many.units()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"block": 0}, "block"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"seeds": [-1]}, "seeds"),
        ({"cells": [make_cell(), make_cell()]}, "stands twice: subset-drop softmax-none dim 1 rate 0.05"),
        ({"name": "other"}, "experiment fake"),
    ],
)
def test_plans_refuse(arguments, message):
    with pytest.raises(InputError, match=message):
        Plan(**{"name": "fake", "preset": "quick", "cells": [make_cell()], "seeds": [0], **arguments})


def test_select_is_a_part():
    plan = make_plan()
    part = plan.select(heads=["fpa-walk-tied"], dims=[2])
    assert part.part
    assert {(cell.head.label, cell.head.dim) for cell in part.cells} == {("fpa-walk-tied", 2)}
    assert not plan.select().part
    with pytest.raises(InputError, match="did you mean fpa-walk-tied"):
        plan.select(heads=["fpa-walk-tide"])
    with pytest.raises(InputError, match="dim: 7 is not in it; valid: 1, 2"):
        plan.select(dims=[1, 7])
    with pytest.raises(InputError, match="no cell has both"):
        Plan("fake", "quick", [make_cell("fox-gate4", 8), make_cell("fpa-walk-tied", 1)], [0]).select(
            ["fox-gate4"], [1]
        )


def test_labels_tell_cells_apart():
    assert make_cell("fox-gate4", 8, 0.01).label == "subset-drop fox-gate4 dim 8 rate 0.01"
    assert make_cell(smoothing=0.0, lengths=(4, 8)).label.endswith(" rate 0.05 lengths=[4,8] smoothing=0.0")


def test_evaluation_defaults():
    evaluation = Evaluation(task=TaskConfig(name="subset-drop"))
    assert (evaluation.split, evaluation.lengths, evaluation.sequences) == ("test", (), 64)


def test_planning_imports_neither_torch_nor_pandas():
    program = f"import sys; sys.path.insert(0, {HERE!r}); import sweeps_fakes as f; f.make_plan().units()[0].id"
    check = f"{program}; print(sorted({{'torch', 'pandas'}} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
