"""Figure: heads that a sceptic would name, on the tasks of target sets, at the same budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import panels, style, success_rows, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from figures.inputs import Results

COLUMNS = ["task", "head", "dim", "learning_rate", "parameters_per_seed", *success_rows.COUNTS]


def draw(results: Results) -> Drawing:
    """One panel per task, one row per head, at its dimension with the least validation loss."""
    table = measured(results)
    tasks = panels.tasks_in_order(table["task"])
    heads = style.in_order(table["head"])
    names = {head: style.look(head).name for head in heads}
    groups: dict[str, list[str]] = {}
    for head in heads:
        groups.setdefault(group_of(head), []).append(names[head])
    figure, axes = success_rows.new_rows(groups, tasks, left=2.25)
    where = {name: at for (_, name), at in success_rows.places(groups).items()}
    factors = sorted(set(table["factor"]))
    for panel, task in zip(axes, tasks):
        mine = table[table["task"] == task]
        for _, row in mine[mine["factor"].isin((factors[0], factors[-1]))].iterrows():
            look, near = style.look(row["head"]), row["factor"] == factors[0]
            success_rows.draw_point(panel, where[look.name], row, colour=look.colour, near=near)
            if near:
                success_rows.write_count(panel, where[look.name], row)
    success_rows.legend(figure, factors[0], factors[-1])
    return Drawing(figure, caption(results, table, factors), table)


def group_of(head: str) -> str:
    """The group of rows that a head stands in."""
    return "two layers" if head.split("-")[0].endswith("2") else style.FAMILY_NAMES[style.family_of(head)]


def measured(results: Results) -> pd.DataFrame:
    """One row per task, head and factor of the training length."""
    best = results.best_dimension(by="head")
    if best.empty:
        raise InputError(f"rivals: {results.frames.origin}: expected results of rivals")
    cells = results.frames.cells[results.frames.cells["cell"].isin(set(best["cell"]))]
    table = success_rows.counted(results.frames, cells)
    return table.sort_values(["task", "head", "factor"], kind="stable")[COLUMNS].reset_index(drop=True)


def caption(results: Results, table: pd.DataFrame, factors: list[float]) -> str:
    """What the figure shows; exact-set rates of heads without a success are said in numbers."""
    near = table[table["factor"] == factors[0]]
    rates = [
        f"{style.look(row['head']).name} {row['exact_median']:.2f} ({row['task']})"
        for _, row in near[near["successes"] == 0].iterrows()
    ]
    return words.paragraph(f"""
        **Rivals.** Seeds that succeed, per task and head, at {words.BEST_DIMENSION}: Selective Attention (arXiv
        2410.02703; a selection counts from the next row on, as published, or from its own), stick-breaking attention
        (arXiv 2410.17980), two layers of softmax or FoX heads on a residual stream, with or without a hidden layer
        between, and single heads. Same training sequences, steps and batch for all. {words.SUCCESS} Discs: at
        {factors[0]:g}x the training length, counts beside them; rings: at {factors[-1]:g}x. n =
        {words.count_range(near["n"])} seeds per point; bars: Clopper–Pearson 95% intervals. {words.rates(results)}
        Chance: {words.chance(results)}, so a reader that weights all keys seen so far equally succeeds on no seed.
        {words.counts(near)} Median exact-set rates of heads without a success: {"; ".join(rates) or "none"}.
    """)
