"""What one finished unit hands back: rows for the typed tables of the store. Imports neither torch nor pandas."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# Called by a unit function now and then with the fraction of its work that is done, in [0, 1].
Progress = Callable[[float], None]

# Names and Python types of the columns of every table, without the leading `cell`.
EVALUATIONS: dict[str, type] = {
    "seed": int,
    "task": str,  # the label of the task that was evaluated, which need not be the one trained on
    "split": str,  # "validation" chooses the learning rate, "test" is reported
    "length": int,
    "factor": float,  # length over the task's training length; 0 for tasks of files
    "queries": int,
    "loss": float,
    "excess_loss": float,  # above the optimum
    "tv": float,
    "exact": float,
    "mass": float,
    "window_mean": float,
    "window_max": float,
    "gap_mean": float,
    "gap_min": float,
    "success": int,  # 1 when exact >= 0.99 and tv <= 0.05
}
PARAMETERS: dict[str, type] = {"seed": int, "name": str, "token": str, "value": float}
FILES: dict[str, type] = {
    "file": str,
    "seq_len": int,
    "scopes": int,
    "queries": int,
    "seeds": int,  # how many seeds the means below are over
    "exact_mean": float,
    "exact_min": float,
    "tv_mean": float,
    "perfect": int,  # seeds with every query of the file exact
}

# Stored and published alike, so that a store and its export hold equal numbers. Far below any spread over seeds.
SIGNIFICANT_DIGITS = 6


@dataclass(frozen=True)
class Curves:
    """Learning curves of a block of seeds: `steps` int (P,), `excess_loss` float32 (seeds, P)."""

    steps: np.ndarray
    excess_loss: np.ndarray


@dataclass(frozen=True)
class CellResult:
    """What `run_unit(cell, seeds, progress)` returns for one cell and one block of seeds.

    `evaluations`, `parameters`, `files`: one dictionary per row, with exactly the columns of the tables above.
    `evaluations` holds at least one row per seed; rows with split "validation" choose the learning rate.
    `curves`: seeds in the order of the block, or None. `weights`: safetensors bytes whose every tensor has the
    leading axis len(seeds), or None. `parameters_per_seed`: numbers that one seed trains. `profile`: seconds by phase
    (`lab.profiling`), which nobody stores.
    """

    evaluations: Sequence[Mapping[str, Any]]
    parameters_per_seed: int = 0
    curves: Curves | None = None
    parameters: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    files: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    weights: bytes | None = None
    profile: Mapping[str, float] = field(default_factory=dict)


def table_rows(
    name: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, type], *, digits: bool = True
) -> list[tuple[Any, ...]]:
    """Rows as tuples in column order, plain Python values, floats rounded to the published digits unless told not to.

    Raises ValueError when a row has other columns than the table: the unit function is wrong, not the user.
    """
    for row in rows:
        if row.keys() != columns.keys():
            wrong = sorted(row.keys() ^ columns.keys())
            raise ValueError(f"{name}: a row lacks or adds the columns {', '.join(wrong)}")
    plain = {int: int, str: str, float: rounded if digits else float}
    return [tuple(plain[kind](row[column]) for column, kind in columns.items()) for row in rows]


def rounded(value: float) -> float:
    """`value` to the published number of significant digits.

    >>> rounded(0.123456789)
    0.123457
    """
    return float(f"{float(value):.{SIGNIFICANT_DIGITS}g}")


def check_result(result: CellResult, seeds: Sequence[int]) -> None:
    """Raises ValueError when a result does not fit its block of seeds, before anything of it is stored."""
    missing = set(seeds) - {int(row["seed"]) for row in result.evaluations}
    if missing:
        raise ValueError(f"evaluations: no row for seeds {sorted(missing)}")
    for name, rows in (("evaluations", result.evaluations), ("parameters", result.parameters)):
        stray = {int(row["seed"]) for row in rows} - set(seeds)
        if stray:
            raise ValueError(f"{name}: rows for seeds {sorted(stray)}, which are not in the block")
    if result.curves is not None and result.curves.excess_loss.shape != (len(seeds), len(result.curves.steps)):
        raise ValueError(f"curves: shape {result.curves.excess_loss.shape}, expected (seeds, steps)")
    if any(int(row["seeds"]) != len(seeds) for row in result.files):
        raise ValueError(f"files: every row of this block is over {len(seeds)} seeds")
