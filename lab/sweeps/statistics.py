"""From rows per seed to the numbers that are reported: chosen learning rates, success counts, intervals, quartiles."""

import json
from collections.abc import Collection
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import betaincinv

from lab.errors import InputError
from lab.heads.config import FpaConfig
from lab.sweeps.chance import chance_level
from lab.sweeps.completeness import Missing, missing_cells, missing_seeds, present_config, with_planned
from lab.sweeps.frames import Frames
from lab.sweeps.plan import Plan, TaskConfig
from lab.sweeps.quartiles import QUARTILES, quantiles
from lab.training.recipe import Recipe

__all__ = ["Missing", "chosen_cells", "clopper_pearson", "missing_cells", "success_counts", "summarise"]

METRICS = ("tv", "exact", "excess_loss")
MEASURED = (*METRICS, "success", "length")
_NO_ROWS = np.empty((0, len(MEASURED)))
_NO_QUARTILES = np.full((len(QUARTILES), len(METRICS)), np.nan)
# What tells the rows of a summary apart.
ROW = ["experiment", "preset", "task", "head", "dim", "variant"]


@lru_cache(maxsize=4096)
def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval for a success rate (Clopper and Pearson, Biometrika 26, 1934).

    It covers the true rate with at least the given confidence. Nothing observed says nothing: (0, 1) for n = 0.

    >>> clopper_pearson(0, 16)[1].__round__(4)
    0.2059
    """
    if not 0 <= successes <= n or not 0 < confidence < 1:
        raise ValueError(f"expected 0 <= successes <= n and 0 < confidence < 1, got {successes}, {n}, {confidence}")
    tail = (1 - confidence) / 2
    # Quantiles of the beta distribution. scipy.stats has them too, and takes half a second to import.
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return low, high


def success_counts(succeeded: ArrayLike, confidence: float = 0.95) -> dict[str, Any]:
    """n, successes, low and high of seeds, each 1 (it succeeds) or 0; the interval is `clopper_pearson`'s."""
    flags = np.asarray(succeeded)
    n, successes = len(flags), int(flags.sum())
    low, high = clopper_pearson(successes, n, confidence)
    return {"n": n, "successes": successes, "low": low, "high": high}


def chosen_cells(frames: Frames) -> pd.DataFrame:
    """Of cells that differ only in their learning rate, the one with the lowest median validation loss over seeds.

    Cells that compare their rates are all chosen. Ties go to the lower rate; a loss that is not a number is the worst.
    One row per group, with the columns of `frames.cells` and: variant (what else tells cells of equal task, head and
    dim apart, such as "smoothing=0"), rates (the grid, as text), validation_loss.

    Raises InputError when there are several rates with results and no validation rows to choose by.
    """
    cells = _grouped(frames)
    _check_choice(cells, frames)
    order = cells.assign(loss=cells["validation_loss"].fillna(np.inf))
    order = order.sort_values([*ROW, "group", "loss", "learning_rate"], kind="stable")
    best = order.drop_duplicates(["experiment", "preset", "group"])
    return best.drop(columns=["group", "loss"]).reset_index(drop=True)


def summarise(
    frames: Frames,
    plan: Plan | None = None,
    *,
    evaluated_on: str | None = None,
    confidence: float = 0.95,
    chance_at: Collection[float] | None = None,
) -> pd.DataFrame:
    """One row per experiment, preset, task, head, dim and variant, at the learning rate chosen on validation data.

    Columns, besides those of `chosen_cells`:

    n, successes, low, high    seeds, those that succeed, and the exact interval of their rate, on test sequences of
                               the training length (of the least factor where that was not measured)
    n_2x, successes_2x, ...    the same at every factor of the training length, here 2
    tv_2x_median, ..._q25      quartiles over seeds of tv, exact and excess_loss
    chance_tv_2x, ...          the same metrics of a reader that weights all keys so far equally
    below_chance_2x            the median loss is above that reader's, by more than one hundredth of it
    missing                    with a plan: how many seeds of the whole grid of rates are not in the frames

    `evaluated_on` is the label of the task whose test sequences are summarised, by default the task trained on. With a
    plan, a configuration of which nothing is there has a row with n = 0. `chance_at`: the factors at which the chance
    line, which takes sampling sequences, is worth waiting for; all by default.
    """
    everything = frames if plan is None else with_planned(plan, frames)
    chosen = chosen_cells(everything)
    tests = _tests(frames, evaluated_on)
    factors = sorted(set(tests["factor"]))
    measured = _by_cell_and_factor(tests[tests["cell"].isin(chosen["cell"])])
    quartiles = _quartiles(measured)
    tasks: dict[str, TaskConfig] = {}  # thousands of cells are of few tasks
    rows = []
    for cell, label, config in zip(chosen["cell"], chosen["task"], chosen["config"]):
        if evaluated_on or label not in tasks:
            tasks[label] = _task(config, evaluated_on)
        at = {factor: measured.get((cell, factor), _NO_ROWS) for factor in factors}
        spread = {factor: quartiles.get((cell, factor), _NO_QUARTILES) for factor in factors}
        rows.append(_statistics(at, spread, tasks[label], confidence, chance_at))
    table = pd.concat([chosen, pd.DataFrame(rows, index=chosen.index)], axis=1)
    return table if plan is None else table.assign(missing=_missing(plan, everything, chosen))


def _tests(frames: Frames, evaluated_on: str | None) -> pd.DataFrame:
    tests = frames.evaluations[frames.evaluations["split"] == "test"]
    return tests[tests["task"] == (evaluated_on or tests["train_task"])]


def _by_cell_and_factor(tests: pd.DataFrame) -> dict[Any, np.ndarray]:
    """Rows of numbers, columns MEASURED: a paper preset has a thousand such groups, and tables are slow to cut."""
    values = tests[list(MEASURED)].to_numpy(np.float64)
    groups = tests.reset_index(drop=True).groupby(["cell", "factor"], sort=False).indices
    return {key: values[rows] for key, rows in groups.items()}


def _quartiles(measured: dict[Any, np.ndarray]) -> dict[Any, np.ndarray]:
    """Of every group of rows, QUARTILES by METRICS. A seed without a number makes them no number: leaving it out would
    flatter the rest. Groups of equally many rows go through numpy together.
    """
    alike: dict[int, list[Any]] = {}
    for key, rows in measured.items():
        alike.setdefault(len(rows), []).append(key)
    found: dict[Any, np.ndarray] = {}
    for keys in alike.values():
        values = np.stack([measured[key][:, : len(METRICS)] for key in keys])
        found.update(zip(keys, np.moveaxis(quantiles(values, axis=1), 1, 0)))
    return found


def _statistics(
    measured: dict[float, np.ndarray],
    quartiles: dict[float, np.ndarray],
    task: TaskConfig,
    confidence: float,
    chance_at: Collection[float] | None,
) -> dict[str, Any]:
    """The statistics of one cell, from its test rows by factor, columns MEASURED, and their quartiles."""
    first = 1.0 if 1.0 in measured else min(measured, default=None)
    row = success_counts(_succeeded(_NO_ROWS if first is None else measured[first]), confidence)
    for factor, rows in measured.items():
        name = f"{factor:g}x"
        counts = success_counts(_succeeded(rows), confidence)
        row |= {f"{count}_{name}": value for count, value in counts.items()}
        for metric, of_metric in zip(METRICS, quartiles[factor].T):
            row |= {f"{metric}_{name}_{label}": value for label, value in zip(QUARTILES, of_metric)}
        if (
            factor > 0 and len(rows) and (chance_at is None or factor in chance_at)
        ):  # tasks of files have no factor and no length to sample at
            chance = chance_level(task, int(rows[0, MEASURED.index("length")]))
            row |= {f"chance_{metric}_{name}": chance[metric] for metric in METRICS}
            row[f"below_chance_{name}"] = bool(row[f"excess_loss_{name}_median"] > 1.01 * chance["excess_loss"])
    return row


def _succeeded(rows: np.ndarray) -> np.ndarray:
    return rows[:, MEASURED.index("success")]


def _grouped(frames: Frames) -> pd.DataFrame:
    """`frames.cells` with the columns group, variant, rates and validation_loss."""
    cells = frames.cells.copy()
    configs = [json.loads(text) for text in cells["config"]]
    cells["group"] = [_without_rate(config) for config in configs]
    cells["variant"] = _variants(cells, configs)
    grids: dict[str, list[float]] = {}
    for group, rate in zip(cells["group"], cells["learning_rate"]):
        grids.setdefault(group, []).append(rate)
    cells["rates"] = [", ".join(f"{rate:g}" for rate in sorted(grids[group])) for group in cells["group"]]
    cells["validation_loss"] = cells["cell"].map(_validation_losses(frames)).astype("float64")
    return cells


def _check_choice(cells: pd.DataFrame, frames: Frames) -> None:
    """No choice without validation data: test data must not make it, and neither must the order of the grid."""
    unseen = cells[cells["validation_loss"].isna() & cells["cell"].isin(frames.evaluations["cell"])]
    several = unseen[unseen.duplicated(["experiment", "preset", "group"], keep=False)]
    for cell in several.sort_values(["experiment", "preset", "group"], kind="stable").head(1).to_dict("records"):
        about = f"{cell['experiment']}: {cell['task']} {cell['head']} dim {cell['dim']}"
        raise InputError(f"{frames.origin}: {about}: no validation rows to choose a learning rate by")


def _without_rate(config: dict[str, Any]) -> str:
    """What cells have in common among which a learning rate is chosen."""
    if config.get("compare_rates"):
        return _encode(config)
    recipe = {name: value for name, value in config["recipe"].items() if name != "learning_rate"}
    return _encode({**config, "recipe": recipe})


def _validation_losses(frames: Frames) -> pd.Series:
    """By cell, the median over seeds of the mean validation loss on the task trained on."""
    rows = frames.evaluations
    rows = rows[(rows["split"] == "validation") & (rows["task"] == rows["train_task"])]
    per_seed = rows.assign(loss=rows["loss"].fillna(np.inf)).groupby(["cell", "seed"])["loss"].mean()
    return per_seed.groupby("cell").median()


def _variants(cells: pd.DataFrame, configs: list[dict[str, Any]]) -> list[str]:
    """For every cell, the settings in which it differs from others of equal experiment, task, head and dim.

    A setting at its default is left out, so the recipe itself has the empty text.
    """
    flat = [_flat(config) for config in configs]
    default = {f"recipe.{name}": value for name, value in Recipe().model_dump(mode="json").items()}
    default |= {f"head.{name}": field.default for name, field in FpaConfig.model_fields.items() if name != "dim"}
    texts = [""] * len(flat)
    for rows in cells.reset_index().groupby(["experiment", "preset", "task", "head", "dim"]).indices.values():
        names = sorted({name for i in rows for name in flat[i]})
        first = flat[rows[0]]
        differing = [name for name in names if any(flat[i].get(name) != first.get(name) for i in rows)]
        for i in rows:
            telling = [name for name in differing if name not in flat[i] or flat[i][name] != default.get(name)]
            shown = ((name, _encode(flat[i][name]) if name in flat[i] else "") for name in telling)
            texts[i] = " ".join(f"{name.rpartition('.')[2]}={text}" for name, text in shown)
    return texts


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a configuration but its learning rate, as "recipe.batch": 16."""
    settings = {f"{part}.{name}": value for part in ("head", "recipe") for name, value in config[part].items()}
    settings["evaluations"] = config["evaluations"]
    settings.pop("recipe.learning_rate")
    return settings


_encode = json.JSONEncoder(sort_keys=True).encode


def _task(config: str, label: str | None) -> TaskConfig:
    """The task of that label among those that a cell is evaluated on; by default the one it is trained on."""
    data = json.loads(config)
    trained = TaskConfig(**data["task"])
    others = data["evaluations"] if label else []
    tasks = [trained, *(TaskConfig(**evaluation["task"]) for evaluation in others)]
    return next((task for task in tasks if task.label == label), trained)


def _missing(plan: Plan, frames: Frames, chosen: pd.DataFrame) -> list[int]:
    """For every row of `chosen`, the seeds of its whole grid that the frames lack."""
    lacking: dict[str, int] = {}
    for config, seeds in missing_seeds(plan, frames).items():
        group = _without_rate(json.loads(config))
        lacking[group] = lacking.get(group, 0) + seeds
    return [lacking.get(_without_rate(json.loads(present_config(config))), 0) for config in chosen["config"]]
