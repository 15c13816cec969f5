"""Claim (walk-drift in THEORY.md): learned increments never match exactly, so length finds out what training left.

Heads in the forms that fit nested-scope, leveled-dips and subset-drop, trained at length 32 and at length 64 by the
recipe and by variants of it (at 64, one of them), read at 1 to 64 times that length; the law of the depth is the same
at every length. The heads trained on nested-scope also read the indented blocks of the standard library, nested deeper
than in training.

What can break first: the *margin* (a gap that shrinks or a window that grows as the target does), the *drift* of the
walk (increments that should cancel add up), the *sum* (the walk in float32). A closed scope, or a key and its drop,
moves the walk by rho = the sum of their increments. A sinking walk taxes the live keys in proportion to the pairs
behind them; a rising one harms nobody until the rise reaches the fall that kills. Offset levels, half a step below the
walk, leave room for both (walk-drift says how much).

Success of a seed: exact-set rate >= 0.99 and mean total variation <= 0.05, at every length by itself.
"""

from collections.abc import Iterator, Sequence

from experiments.presets import planned, settings
from lab.heads.config import head_config
from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig
from lab.training.recipe import Recipe

NAME = "length"
FORMS = {
    "nested-scope": ("fpa-walk-tied", "fpa-walk-offset"),
    "leveled-dips": ("fpa-direct-free",),
    "subset-drop": ("fpa-walk-tied", "fpa-walk-offset"),
}
# In each task's own unit: tokens, and keys (two tokens each) for subset-drop.
TRAIN_LENGTHS = {"nested-scope": (32, 64), "leveled-dips": (32, 64), "subset-drop": (16, 32)}
FACTORS = (1, 2, 4, 8, 16, 32, 64)
# Sequences read up to 4 times the training length, and beyond. One of subset-drop holds a single query.
SEQUENCES = {"nested-scope": (64, 8), "leveled-dips": (64, 8), "subset-drop": (512, 128)}
PRESETS = {"quick": 8, "paper": 32}


def plan(
    preset: str = "quick",
    seeds: int | None = None,
    heads: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
) -> Plan:
    """The cells of a preset, for seeds 0 .. seeds-1; `heads` and `dims` keep only those.

    Raises InputError for an unknown preset, and for heads and dimensions that the preset lacks.
    """
    count = settings(PRESETS, preset)
    return planned(NAME, preset, _cells(preset), count if seeds is None else seeds, heads, dims, block=16)


def recipes(length: int) -> tuple[Recipe, ...]:
    """The recipe of the lab first, then what one might try against drift."""
    return (
        Recipe(),
        Recipe(lengths=(length, 2 * length, 4 * length)),
        Recipe(steps=2400),
        Recipe(smoothing=2.0),
        Recipe(smoothing_until=1.0),
    )


def _cells(preset: str) -> Iterator[Cell]:
    for task, forms in FORMS.items():
        for form in forms:
            shorter, longer = TRAIN_LENGTHS[task]
            for recipe in recipes(shorter)[: 2 if preset == "quick" else None]:
                yield _cell(task, form, shorter, recipe)
            if preset == "paper":
                for recipe in recipes(longer)[:2]:
                    yield _cell(task, form, longer, recipe)
                if form.startswith("fpa-walk"):
                    yield _cell(task, form, shorter, Recipe(), sum_dtype="float32")


def _cell(task: str, form: str, length: int, recipe: Recipe, **head: str) -> Cell:
    return Cell(
        experiment=NAME,
        task=_task(task, length),
        head=head_config(form, 1, **head),
        recipe=recipe,
        evaluations=_evaluations(task, length),
    )


def _task(name: str, length: int) -> TaskConfig:
    return TaskConfig(name=name, options={"train_length": length})


def _evaluations(name: str, length: int) -> tuple[Evaluation, ...]:
    task, (near, far) = _task(name, length), SEQUENCES[name]
    found = [
        Evaluation(task=task, split="validation", lengths=(length,), sequences=near),
        Evaluation(task=task, split="test", lengths=tuple(f * length for f in FACTORS if f <= 4), sequences=near),
        Evaluation(task=task, split="test", lengths=tuple(f * length for f in FACTORS if f > 4), sequences=far),
    ]
    if name == "nested-scope":
        found.append(Evaluation(task=TaskConfig(name="source-scopes", options={"scopes": "indent"})))
    return tuple(found)
