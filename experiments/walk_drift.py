"""Claim (walk-drift in THEORY.md): learned increments never match exactly, so a walk drifts. Which recipe holds?

nested-scope heads with tied and with offset levels, trained by the recipe and by variants of it, read at 1 to 128 times
the training length and on the indented blocks of the standard library, nested deeper than what they were trained on.

A closed scope moves the walk by rho = increment(open) + increment(close). A sinking walk taxes the keys still in scope
in proportion to the pairs closed since; a rising one harms nobody until the rise reaches the fall that kills. Success
of a seed: exact-set rate >= 0.99 and mean total variation <= 0.05, at every length by itself.
"""

from collections.abc import Sequence

from experiments.presets import planned, settings
from lab.heads.config import head_config
from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig
from lab.training.recipe import Recipe

NAME = "walk_drift"
HEADS = ("fpa-walk-tied", "fpa-walk-offset")
# The recipe of the lab first, then what one might try against drift.
RECIPES = (
    Recipe(),
    Recipe(lengths=(32, 64, 128)),
    Recipe(smoothing_until=1.0),
    Recipe(smoothing=2.0),
    Recipe(steps=2400),
)
PRESETS = {"quick": (8, RECIPES[:2]), "paper": (32, RECIPES)}
TRAIN_LENGTH = 32


def plan(
    preset: str = "quick",
    seeds: int | None = None,
    heads: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
) -> Plan:
    """The cells of a preset, for seeds 0 .. seeds-1; `heads` and `dims` keep only those.

    Raises InputError for an unknown preset, and for heads and dimensions that the preset lacks.
    """
    count, recipes = settings(PRESETS, preset)
    cells = [
        Cell(
            experiment=NAME,
            task=TaskConfig(name="nested-scope"),
            head=head_config(label, 1),
            recipe=recipe,
            evaluations=_evaluations(),
        )
        for label in HEADS
        for recipe in recipes
    ]
    return planned(NAME, preset, cells, count if seeds is None else seeds, heads, dims, block=16)


def _evaluations() -> tuple[Evaluation, ...]:
    task = TaskConfig(name="nested-scope")
    near, far = (TRAIN_LENGTH, 4 * TRAIN_LENGTH), (16 * TRAIN_LENGTH, 64 * TRAIN_LENGTH, 128 * TRAIN_LENGTH)
    return (
        Evaluation(task=task, split="validation", lengths=(TRAIN_LENGTH,), sequences=64),
        Evaluation(task=task, split="test", lengths=near, sequences=64),
        Evaluation(task=task, split="test", lengths=far, sequences=8),
        Evaluation(task=TaskConfig(name="source-scopes", options={"scopes": "indent"})),
    )
