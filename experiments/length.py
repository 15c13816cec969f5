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

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from experiments.presets import planned, settings
from lab.heads.config import head_config
from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig
from lab.training.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd

    from lab.sweeps.frames import Frames

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
REMARKS_READ = ("parameters",)  # where the increments are
# The increments that should cancel: what lifts the walk, and what lets it fall again.
PAIRS = {"nested-scope": ("open", "close"), "subset-drop": ("key", "drop")}
SETTINGS = ["task", "trained_at", "form", "recipe", "sum_dtype"]
# What a recipe changes -> what it is called.
RECIPE_NAMES = {
    "": "the recipe",
    "lengths": "lengths 1, 2, 4 mixed",
    "steps": "three times the steps",
    "smoothing": "smoothing twice as strong",
    "smoothing_until": "smoothing to the end",
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


def measured(frames: "Frames") -> "pd.DataFrame":
    """One row per cell and factor of the training length: SETTINGS, factor, n, successes, low, high, and quartiles.

    Those are over seeds (window_max_q25, ..._median, ..._q75): of tv and exact, of the largest window and the least
    gap, and of the drift, what a pair of increments that should cancel adds up to as a share of the fall (negative: the
    walk sinks; not a number where the field is no walk).
    """
    import pandas as pd

    from lab.sweeps.quartiles import QUARTILES, quantiles
    from lab.sweeps.statistics import success_counts

    settings = pd.DataFrame([_settings(config) for config in frames.cells["config"]])
    settings["cell"] = frames.cells["cell"].to_numpy()
    tests = frames.evaluations
    tests = tests[(tests["split"] == "test") & (tests["task"] == tests["train_task"])]
    tests = tests.drop(columns=["task", "head"]).merge(settings, on="cell")
    known = _drifts(frames, settings)
    tests["drift"] = [known.get(key, float("nan")) for key in zip(tests["cell"], tests["seed"])]
    rows = []
    for keys, seeds in tests.groupby([*SETTINGS, "factor"], sort=True):
        row = dict(zip([*SETTINGS, "factor"], keys)) | success_counts(seeds["success"])
        for name in ("tv", "exact", "window_max", "gap_min", "drift"):
            found = quantiles(seeds[name].to_numpy())
            row |= {f"{name}_{label}": float(value) for label, value in zip(QUARTILES, found)}
        rows.append(row)
    return pd.DataFrame(rows)


def _drifts(frames: "Frames", settings: "pd.DataFrame") -> dict[Any, float]:
    """By cell and seed, (rise + fall) / |fall| of the learned increments."""
    learned = frames.parameters
    learned = learned[learned["name"] == "increment"].pivot(index=["cell", "seed"], columns="token", values="value")
    found: dict[Any, float] = {}
    for task, (rise, fall) in PAIRS.items():
        mine = learned[learned.index.isin(settings.loc[settings["task"] == task, "cell"], level="cell")]
        if len(mine):
            found |= ((mine[rise] + mine[fall]) / mine[fall].abs()).to_dict()
    return found


def _settings(config: str) -> dict[str, Any]:
    """What tells the cells of this experiment apart, from the stored configuration."""
    cell = json.loads(config)
    default = Recipe().model_dump(mode="json")
    changed = [name for name, value in cell["recipe"].items() if value != default.get(name)]
    task = TaskConfig(**cell["task"])
    return {
        "task": task.name,
        "trained_at": task.make().train_length,
        "recipe": "+".join(changed),
        "form": cell["head"]["level"],
        "sum_dtype": cell["head"].get("sum_dtype", "float64"),
    }


def remarks(frames: "Frames") -> list[str]:
    """For `fpa-lab results`: seeds that succeed at every length, and the worst query's window and gap near and far."""
    table = measured(frames)
    if table.empty:
        return []
    factors = sorted(set(table["factor"]))
    lines = [
        "",
        "Seeds that succeed, of n, at every length by itself, and the 95% interval at the greatest. TV, and of a",
        "seed's worst query the window (largest spread of the target's logits) and the gap (least distance to all",
        "else): medians over seeds, at the least > at the greatest length. drift: what increments that should cancel",
        "add up to, in percent of the fall (below 0 the walk sinks), median over seeds.",
        f"{'task, trained at':17} {'levels':6} {'recipe':25} {'n':>3} "
        + " ".join(f"{f'{factor:g}x':>3}" for factor in factors)
        + f"  {'interval':9}  {'TV':15}  {'window':16}  {'gap':13}  {'drift':>7}",
    ]
    order = table.assign(place=table["task"].map(list(FORMS).index))
    order = order.sort_values(["place", *SETTINGS[1:], "factor"], ascending=[True] * 4 + [False, True])
    lines += [_line(rows) for _, rows in order.groupby(SETTINGS, sort=False)]
    blocks = _blocks(frames)
    if blocks:
        lines += ["", "Exact-set rate on the indented blocks of Python files, median and least over seeds:"]
        cells = order.drop_duplicates(SETTINGS)
        lines += [
            f"{_start(row)}  {blocks[key]}"
            for key, row in cells.set_index(SETTINGS, drop=False).iterrows()
            if key in blocks
        ]
    return lines


def _blocks(frames: "Frames") -> dict[Any, str]:
    """By SETTINGS, what the heads reach on source files that they read."""
    from lab.sweeps.quartiles import quantiles

    rates = frames.evaluations[frames.evaluations["task"].str.startswith("source-scopes")].groupby("cell")["exact"]
    found = {}
    for cell, exact in rates:
        least, middle = quantiles(exact.to_numpy(), (0, 0.5))
        found[cell] = f"{middle:.3f}  {least:.3f}"
    configs = zip(frames.cells["cell"], frames.cells["config"])
    return {
        tuple(_settings(config)[name] for name in SETTINGS): found[cell] for cell, config in configs if cell in found
    }


def _start(row: "pd.Series") -> str:
    """How the lines of the remarks call a cell."""
    summed = "" if row["sum_dtype"] == "float64" else f"walk summed in {row['sum_dtype']}"
    recipe = summed or RECIPE_NAMES.get(row["recipe"], row["recipe"])
    return f"{row['task'] + ', ' + str(row['trained_at']):17} {row['form']:6} {recipe:25}"


def _line(rows: "pd.DataFrame") -> str:
    """A line of the remarks, of the rows of one cell in order of the factor."""
    first, last = rows.iloc[0], rows.iloc[-1]
    tv, window, gap = (
        f"{first[f'{name}_median']:.{digits}f} > {last[f'{name}_median']:.{digits}f}"
        for name, digits in (("tv", 4), ("window_max", 4), ("gap_min", 2))
    )
    return (
        f"{_start(last)} {int(last['n']):>3} "
        + " ".join(f"{int(successes):>3}" for successes in rows["successes"])
        + f"  {last['low']:.2f}\N{EN DASH}{last['high']:.2f}  {tv:15}  {window:16}  {gap:13}"
        + ("" if math.isnan(last["drift_median"]) else f"  {100 * last['drift_median']:>7.3f}")
    ).rstrip()
