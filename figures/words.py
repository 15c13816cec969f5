"""Sentences that several captions share, with their numbers taken from the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import panels, style

if TYPE_CHECKING:
    import pandas as pd

    from figures.inputs import Results

SUCCESS = (
    "A seed succeeds when, on fresh test sequences of the training length, its exact-set rate is at least 0.99 and "
    "its mean total variation distance to the uniform distribution on the target at most 0.05."
)
BEST_DIMENSION = "the head dimension with the lowest median validation loss"


def paragraph(text: str) -> str:
    """One line of text with single spaces, from lines indented as code is."""
    return " ".join(text.split())


def count_range(counts: pd.Series) -> str:
    """ "32", or "16 to 32" when points differ; "0" where there are none."""
    if counts.empty:
        return "0"
    low, high = int(counts.min()), int(counts.max())
    return f"{low}" if low == high else f"{low} to {high}"


def listing(items: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def rates(results: Results) -> str:
    """How learning rates were chosen, family by family."""
    cells = results.frames.cells.assign(family=results.frames.cells["head"].map(style.family_of))
    grids: dict[str, list[str]] = {}
    for family in panels.families(cells["head"].tolist()):
        values = sorted(set(cells.loc[cells["family"] == family, "learning_rate"]))
        grids.setdefault(", ".join(f"{value:g}" for value in values), []).append(style.FAMILY_NAMES.get(family, family))
    texts = [
        f"{listing(names)} {'one of' if ',' in grid else ''} {grid}".replace("  ", " ") for grid, names in grids.items()
    ]
    return f"Learning rates, per task, head and dimension, by median validation loss: {'; '.join(texts)}."


def chance(results: Results, metric: str = "exact", what: str = "exact-set rate") -> str:
    """The chance level of every task at the training length: "exact-set rate 0.1 (nested-scope) and ..."."""
    summary, column = results.summary, f"chance_{metric}_1x"
    if column not in summary:
        return f"{what} not measured at the training length"
    levels = [
        f"{summary.loc[summary['task'] == task, column].iloc[0]:.2g} ({task})"
        for task in panels.tasks_in_order(summary["task"])
    ]
    return f"{what} {listing(levels)}"


def counts(table: pd.DataFrame) -> str:
    """Seeds that succeed, per task and head over its dimensions; what never succeeds is counted together."""
    texts, never = [], 0
    for task in panels.tasks_in_order(table["task"]):
        for head in style.in_order(table["head"]):
            mine = table[(table["task"] == task) & (table["head"] == head)]
            successes, n = int(mine["successes"].sum()), int(mine["n"].sum())
            if successes:
                texts.append(f"{style.HEAD_NAMES.get(head, head)} {successes} of {n} ({task})")
            else:
                never += n
    found = f"{listing(texts)}; " if texts else ""
    return f"Over all dimensions shown, seeds that succeed: {found}of every other head 0 of {never}."
