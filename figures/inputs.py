"""What figures of results are drawn from: frames of a store or a folder, and the cells chosen on validation data."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from figures import style
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from lab.sweeps.frames import Frames
    from lab.sweeps.plan import Plan

EXPERIMENT = "target_sets"  # drawn where a source holds several experiments
PUBLISHED = "published"  # the source that comes with the lab
BENCH = "bench"  # stands for what `fpa-lab bench` measured, which is no experiment


@dataclass(frozen=True)
class Results:
    """The frames of one experiment."""

    frames: Frames

    @cached_property
    def summary(self) -> pd.DataFrame:
        """`lab.sweeps.statistics.summarise`: one row per task, head and dim, at its chosen learning rate.

        Raises InputError when cells of one task, head and dimension differ in more than their learning rate.
        """
        from lab.sweeps.statistics import summarise

        table = summarise(self.frames)
        twice = table[table.duplicated(["task", "head", "dim"])]
        if len(twice):
            row = twice.iloc[0]
            raise InputError(
                f"{self.frames.origin}: {row['task']} {row['head']} dim {row['dim']}: several variants "
                f"({row['variant']}); figures draw results of one recipe"
            )
        return table

    def best_dimension(self, by: Literal["head", "family"], dim: int | None = None) -> pd.DataFrame:
        """Of every head (or family of heads) in every task, the row of the summary with the least validation loss.

        At equal losses the smaller dimension wins. `dim` restricts the choice to one dimension.
        """
        table = self.summary if dim is None else self.summary[self.summary["dim"] == dim]
        if table.empty:
            raise InputError(f"{self.frames.origin}: expected results of dimension {dim}")
        table = table.assign(family=table["head"].map(style.family_of))
        table = table.sort_values(["validation_loss", "dim", "head"], kind="stable")
        return table.drop_duplicates(["task", by]).sort_values(["task", "head"]).reset_index(drop=True)

    @cached_property
    def steps(self) -> pd.Series:
        """The training steps of every cell, in the order of `frames.cells`."""
        return self.frames.cells["config"].map(lambda config: int(json.loads(config)["recipe"]["steps"]))

    def trained_for(self, steps: int) -> Results:
        """The results of the cells that were trained for so many steps."""
        return replace(self, frames=self.frames.of(self.frames.cells.loc[self.steps == steps, "cell"].tolist()))

    @staticmethod
    def of(frame: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
        """The rows of one of the frames that belong to the chosen cells."""
        return frame[frame["cell"].isin(set(chosen["cell"]))]

    def tests(self, chosen: pd.DataFrame) -> pd.DataFrame:
        """One row per seed and length of the chosen cells, on test sequences of the task that they were trained on."""
        rows = self.of(self.frames.evaluations, chosen)
        return rows[(rows["split"] == "test") & (rows["task"] == rows["train_task"])]


def load(source: str | PathLike[str], experiment: str | None = None) -> tuple[Results, list[str]]:
    """The results of one experiment, and one line for every cell that its plan asked for and the source lacks.

    Without a name that is target_sets, or the only experiment there is. Raises InputError when the source cannot be
    read, is empty, lacks the experiment, or holds several but not target_sets.
    """
    from lab.sweeps.completeness import missing_cells
    from lab.sweeps.frames import load_frames

    published = os.fspath(source) == PUBLISHED
    path = published_folder(experiment or EXPERIMENT) if published else Path(source)
    frames = load_frames(path, [experiment] if experiment else None)
    name = experiment or experiment_of(frames.cells, os.fspath(path))
    of_one = frames.of(frames.cells.loc[frames.cells["experiment"] == name, "cell"].tolist())
    return Results(of_one), [str(cell) for cell in missing_cells(planned(path, name, of_one), of_one)]


def held(source: str | PathLike[str]) -> list[str]:
    """The experiments that a source has results of, without reading them."""
    from lab.sweeps.published import MANIFEST, read_manifest
    from lab.sweeps.store import Store

    path = published_folder("") if os.fspath(source) == PUBLISHED else Path(source)
    if not path.is_dir():
        with Store(path, write=False) as store:
            return [name for (name,) in store.rows("SELECT DISTINCT experiment FROM plans ORDER BY experiment")]
    manifests = [path / MANIFEST] if (path / MANIFEST).is_file() else sorted(path.glob(f"*/{MANIFEST}"))
    measured = [BENCH] if bench_folder(path).is_dir() else []
    return [read_manifest(file).experiment for file in manifests] + measured


def bench_folder(path: Path) -> Path:
    """Where the tables of `fpa-lab bench` are: the folder itself, or, beside results, its folder bench."""
    from lab.bench.document import SUMMARY

    return path if (path / SUMMARY).is_file() else path / BENCH


def experiment_of(cells: pd.DataFrame, origin: str) -> str:
    """The experiment to draw: target_sets, or the only one that there is."""
    names = sorted(set(cells["experiment"]))
    if not names:
        raise InputError(f"{origin}: holds no results yet; fpa-lab sweep makes them")
    if len(names) > 1 and EXPERIMENT not in names:
        raise InputError(f"{origin}: holds {', '.join(names)}; export one (fpa-lab export NAME) and name its folder")
    return EXPERIMENT if EXPERIMENT in names else names[0]


def published_folder(name: str) -> Path:
    """The committed results of an experiment, beside its module wherever the packages are installed."""
    import experiments

    return Path(experiments.__path__[0]) / PUBLISHED / name


def planned(path: Path, name: str, frames: Frames) -> Plan:
    """What the results at `path` should consist of.

    A store keeps what was asked of it, under the preset that the frames are of. A folder does not, so it is held
    against the experiment's own plan for its preset, or, for an experiment that the lab does not know, against its own
    cells: each should have every seed.
    """
    from lab.sweeps.plan import Cell, Plan
    from lab.sweeps.store import Store

    preset = next(iter(frames.cells["preset"]), None)  # none: nothing of what ran last is computed
    if path.is_file():
        with Store(path, write=False) as store:
            return store.asked(name, preset)
    from experiments import EXPERIMENTS

    if preset is None:
        raise InputError(f"{path}: holds no results of {name}")
    if name in EXPERIMENTS:
        cells = import_module(EXPERIMENTS[name]).plan(preset).cells
    else:
        cells = [Cell.model_validate_json(config) for config in frames.cells["config"]]
    return Plan(name=name, preset=preset, cells=cells, seeds=sorted(set(frames.evaluations["seed"].tolist())))
