"""What figures of results are drawn from: frames of a store or a folder, and the cells chosen on validation data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from figures import style

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Results:
    """Frames and, for every (task, head, dim), the cell whose learning rate was chosen on validation data.

    `chosen` has the columns task, head, dim, cell, learning_rate, config, validation_loss, n, successes, low, high.
    """

    frames: Any
    chosen: pd.DataFrame

    def best_dimension(self, by: Literal["head", "family"], dim: int | None = None) -> pd.DataFrame:
        """Of every head (or family of heads) in every task, the chosen cell with the least validation loss.

        At equal losses the smaller dimension wins. `dim` restricts the choice to one dimension.
        """
        table = self.chosen if dim is None else self.chosen[self.chosen["dim"] == dim]
        table = table.assign(family=table["head"].map(style.family_of))
        table = table.sort_values(["validation_loss", "dim", "head"], kind="stable")
        return table.drop_duplicates(["task", by]).sort_values(["task", "head"]).reset_index(drop=True)

    @staticmethod
    def of(frame: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
        """The rows of one of the frames that belong to the chosen cells."""
        return frame[frame["cell"].isin(set(chosen["cell"]))]

    def successes(self, chosen: pd.DataFrame) -> pd.DataFrame:
        """cell, seed, success of the chosen cells: on test sequences of the training length."""
        test = self.of(self.frames.evaluations, chosen)
        test = test[(test["split"] == "test") & (test["task"] == test["train_task"]) & (test["factor"] == 1)]
        return test[["cell", "seed", "success"]].reset_index(drop=True)
