"""Which parts of the recipe does an FPA head need? One setting is changed at a time, everything else stays.

Heads in the form that fits each task (FITTING of target_sets) at dimension 1, trained by the lab's recipe and by
variants of it: without smoothing of the penalty or with less or more of it; from larger and smaller initial values;
from a walk that falls or rises at the start (only a walk has increments), with and without smoothing; at other
learning rates; with other penalty scales; and in the other forms of field and level, which says what the form is for.

Success of a seed: exact-set rate >= 0.99 and mean total variation <= 0.05 on fresh test sequences, at 1 and at 8 times
the training length. Learning rates are compared here, not chosen.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.presets import planned, read_at, settings
from experiments.target_sets import FITTING, FPA_FORMS, TASKS, TEST_SEQUENCES
from lab.heads.config import head_config
from lab.sweeps.plan import Cell, Plan, TaskConfig
from lab.training.recipe import Recipe

NAME = "ablations"
FACTORS = (1, 8)
DIM = 1

# What each group changes in the recipe, setting by setting; a group of one name is a scale to be drawn in order.
Settings = tuple[Mapping[str, Any], ...]
RECIPES: dict[str, Settings] = {
    "smoothing": tuple({"smoothing": value} for value in (0.0, 0.3, 3.0)),
    "initial scale": tuple({"initial_scale": value} for value in (0.0, 0.01, 0.2, 1.0)),
    "initial drift": tuple({"initial_drift": value} for value in (-0.5, -0.1, 0.1, 0.5)),
    "initial drift, no smoothing": tuple({"initial_drift": value, "smoothing": 0.0} for value in (-0.1, 0.1)),
    "learning rate": tuple({"learning_rate": value} for value in (0.01, 0.03, 0.3, 1.0)),
}
PENALTY_SCALES = (0.1, 0.3, 3.0, 10.0)
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"seeds": 16, "each": 1},  # the first setting of every group
    "paper": {"seeds": 64, "each": None},
}


def plan(
    preset: str = "quick",
    seeds: int | None = None,
    heads: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
) -> Plan:
    """The cells of a preset, for seeds 0 .. seeds-1; `heads` and `dims` keep only those.

    Raises InputError for an unknown preset, and for heads and dimensions that the preset lacks.
    """
    chosen = settings(PRESETS, preset)
    cells = (cell for task in TASKS for cell in _cells(task, chosen["each"]))
    return planned(NAME, preset, cells, chosen["seeds"] if seeds is None else seeds, heads, dims)


def _cells(task: str, each: int | None) -> Iterator[Cell]:
    form = FITTING[task]
    yield _cell(task, form)
    for group, changes in RECIPES.items():
        if group.startswith("initial drift") and not form.startswith("fpa-walk"):
            continue
        for change in changes[:each]:
            yield _cell(task, form, change)
    for scale in PENALTY_SCALES[:each]:
        yield _cell(task, form, penalty_scale=scale)
    for other in [label for label in FPA_FORMS if label != form][:each]:
        yield _cell(task, other)


def _cell(task: str, form: str, recipe: Mapping[str, Any] | None = None, **head: Any) -> Cell:
    config = TaskConfig(name=task)
    return Cell(
        experiment=NAME,
        task=config,
        head=head_config(form, DIM, **head),
        recipe=Recipe(**(recipe or {})),
        evaluations=read_at(config, FACTORS, TEST_SEQUENCES[task]),
        compare_rates=True,
    )
