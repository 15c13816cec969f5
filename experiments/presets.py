"""What the plans of several experiments have in common."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from lab.errors import InputError, nearest
from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig

Settings = TypeVar("Settings")


def settings(presets: Mapping[str, Settings], preset: str) -> Settings:
    """What a preset asks for. Raises InputError, with the nearest valid name, for an unknown one."""
    if preset not in presets:
        raise InputError(f"--preset: unknown preset {preset!r}{nearest(preset, presets)}")
    return presets[preset]


def planned(
    name: str,
    preset: str,
    cells: Iterable[Cell],
    seeds: int,
    heads: Sequence[str] | None,
    dims: Sequence[int] | None,
    *,
    block: int = 32,
) -> Plan:
    """The plan of these cells for seeds 0 .. seeds-1, or the part of it with these heads and dimensions.

    Raises InputError for heads and dimensions that no cell has.
    """
    return Plan(name, preset, tuple(cells), range(seeds), block=block).select(heads or (), dims or ())


def read_at(task: TaskConfig, factors: Sequence[int], sequences: int) -> tuple[Evaluation, ...]:
    """Validation sequences of the training length, and test sequences of these multiples of it."""
    length = task.make().train_length
    return (
        Evaluation(task=task, split="validation", lengths=(length,), sequences=sequences),
        Evaluation(task=task, split="test", lengths=tuple(factor * length for factor in factors), sequences=sequences),
    )
