"""Training of many seeds at once: the recipe, the ensemble trainer, the metrics, and one unit of a sweep."""

from typing import TYPE_CHECKING

from lab.training.recipe import Recipe

if TYPE_CHECKING:
    from lab.training.cells import run_cell
    from lab.training.ensemble import train

__all__ = ["Recipe", "run_cell", "train"]


def __getattr__(name: str):
    if name == "run_cell":
        from lab.training.cells import run_cell

        return run_cell
    if name == "train":
        from lab.training.ensemble import train

        return train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
