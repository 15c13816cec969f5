"""What a plan asks for and a set of results lacks, so that nothing is dropped in silence."""

import dataclasses
from dataclasses import dataclass
from functools import lru_cache

import pandas as pd

from lab.errors import InputError
from lab.sweeps.frames import CELLS, Frames
from lab.sweeps.plan import Cell, Plan


@dataclass(frozen=True)
class Missing:
    """A cell of a plan of which `missing` of `seeds` seeds are not in the results."""

    label: str
    missing: int
    seeds: int

    def __str__(self) -> str:
        return f"{self.label}: {self.missing} of {self.seeds} seeds missing"


def missing_cells(plan: Plan, frames: Frames) -> list[Missing]:
    """The cells of a plan that the frames lack, wholly or some seeds of; in the plan's order, empty when complete.

    Cells are compared by configuration, not by code version: published results stay complete when code moves on.
    """
    lacking = missing_seeds(plan, frames)
    return [Missing(cell.label, lacking[cell.config], len(plan.seeds)) for cell in plan.cells if lacking[cell.config]]


def missing_seeds(plan: Plan, frames: Frames) -> dict[str, int]:
    """How many of the plan's seeds the frames lack, by the configuration of its cells."""
    seeds = frames.evaluations.groupby("cell")["seed"].agg(set).to_dict()
    planned = dict.fromkeys(cell.config for cell in plan.cells)
    have: dict[str, set[int]] = {}
    for cell, config in zip(frames.cells["cell"], frames.cells["config"]):
        present = config if config in planned else present_config(config)  # that of a plan is today's already
        have.setdefault(present, set()).update(seeds.get(cell, ()))
    return {config: len(set(plan.seeds) - have.get(config, set())) for config in planned}


@lru_cache(maxsize=4096)
def present_config(config: str) -> str:
    """A stored configuration as the lab writes it today: options added since then have their defaults."""
    try:
        return Cell.model_validate_json(config).config
    except InputError:  # an option that no longer exists; it then equals no cell of a plan
        return config


def with_planned(plan: Plan, frames: Frames) -> Frames:
    """The frames with a row in `cells` for every cell of the plan, also for those without results."""
    known = {present_config(config) for config in frames.cells["config"]}
    planned = [
        (cell.id, cell.experiment, plan.preset, cell.task.label, cell.head.label, cell.head.dim,
         cell.recipe.learning_rate, 0, cell.code, cell.config)
        for cell in plan.cells
        if cell.config not in known
    ]  # fmt: skip
    if not planned:
        return frames
    cells = pd.concat([frames.cells, pd.DataFrame(planned, columns=list(CELLS))], ignore_index=True)
    return dataclasses.replace(frames, cells=cells.astype(frames.cells.dtypes.to_dict()))
