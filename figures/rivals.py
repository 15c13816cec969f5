"""Figure: heads that a sceptic would name, on the tasks of target sets, at the same budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import panels, style, success_rows, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from figures.inputs import Results

COLUMNS = ["task", "head", "dim", "learning_rate", "steps", "parameters_per_seed", *success_rows.COUNTS]


def draw(results: Results) -> Drawing:
    """One panel per task, one row per head, at its dimension with the least validation loss; longer training apart."""
    usual, table = results.trained_for(results.steps.min()), measured(results)
    tasks = panels.tasks_in_order(table["task"])
    least = table["steps"].min()
    table = table.assign(row=[row_of(head, steps / least) for head, steps in zip(table["head"], table["steps"])])
    groups: dict[str, list[str]] = {}
    for head in style.in_order(table["head"]):
        rows = table[table["head"] == head].sort_values("steps", kind="stable")["row"]
        groups.setdefault(group_of(head), []).extend(dict.fromkeys(rows))
    figure, axes = success_rows.new_rows(groups, tasks, left=2.25)
    where = {name: at for (_, name), at in success_rows.places(groups).items()}
    factors = sorted(set(table["factor"]))
    for panel, task in zip(axes, tasks):
        mine = table[table["task"] == task]
        for _, row in mine[mine["factor"].isin((factors[0], factors[-1]))].iterrows():
            near = row["factor"] == factors[0]
            success_rows.draw_point(panel, where[row["row"]], row, colour=style.look(row["head"]).colour, near=near)
            if near:
                success_rows.write_count(panel, where[row["row"]], row)
    success_rows.legend(figure, factors[0], factors[-1])
    return Drawing(figure, caption(usual, table, factors), table[COLUMNS])


def row_of(head: str, longer: float) -> str:
    """What a row is called."""
    name = style.look(head).name
    return name if longer == 1 else f"{name}, {longer:g}x steps"


def group_of(head: str) -> str:
    """The group of rows that a head stands in."""
    return "two layers" if head.split("-")[0].endswith("2") else style.FAMILY_NAMES[style.family_of(head)]


def measured(results: Results) -> pd.DataFrame:
    """One row per task, head, number of steps and factor of the training length.

    Rates and dimensions are chosen among cells of the usual budget, the least; the others are trained longer.
    """
    if results.frames.cells.empty:
        raise InputError(f"rivals: {results.frames.origin}: expected results of rivals")
    cells = results.frames.cells.assign(steps=results.steps)
    best = results.trained_for(results.steps.min()).best_dimension(by="head")
    chosen = cells[cells["cell"].isin(set(best["cell"])) | (cells["steps"] > cells["steps"].min())]
    table = success_rows.counted(results.frames, chosen)
    return table.sort_values(["task", "head", "steps", "factor"], kind="stable")[COLUMNS].reset_index(drop=True)


def caption(results: Results, table: pd.DataFrame, factors: list[float]) -> str:
    """What the figure shows; exact-set rates of heads without a success are said in numbers."""
    near = table[table["factor"] == factors[0]]
    rates = [
        f"{row['row']} {row['exact_median']:.2f} ({row['task']})" for _, row in near[near["successes"] == 0].iterrows()
    ]
    return words.paragraph(f"""
        **Rivals.** Seeds that succeed, per task and head, at {words.BEST_DIMENSION}: Selective Attention (arXiv
        2410.02703; a selection counts from the next row on, as published, or from its own), stick-breaking attention
        (arXiv 2410.17980), two layers of softmax or FoX heads on a residual stream, with or without a hidden layer
        between, and single heads. Same training sequences, steps and batch for all; rows that name more steps are at a
        rate of the grid. By design stick-breaking gives newer keys first choice and cannot weigh an unknown number of
        keys alike, and a selection that counts from the next row on misses rows that are their own dip.
        {words.SUCCESS} Discs: at
        {factors[0]:g}x the training length, counts beside them; rings: at {factors[-1]:g}x. n =
        {words.count_range(near["n"])} seeds per point; bars: Clopper–Pearson 95% intervals. {words.rates(results)}
        Chance: {words.chance(results)}, so a reader that weights all keys seen so far equally succeeds on no seed.
        {words.counts(near[near["steps"] == near["steps"].min()])}
        Median exact-set rates of heads without a success: {"; ".join(rates) or "none"}.
    """)
