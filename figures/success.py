"""Figure: how many seeds succeed, per task, head and head dimension, with exact intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import panels, style
from figures.drawing import Drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from figures.inputs import Results

GROUP = 0.84  # share of a dimension's slot that its heads fill
POINTS_PER_HEAD = 5.0  # room a marker needs, in points; sets whether panels stand side by side


def draw(results: Results) -> Drawing:
    """One panel per task; every head has its own lane within the slot of a dimension, so that none covers another."""
    table = results.chosen[["task", "head", "dim", "learning_rate", "n", "successes", "low", "high"]].copy()
    table["fraction"] = table["successes"] / table["n"]
    tasks = panels.tasks_in_order(table["task"])
    heads = style.in_order(table["head"])
    lanes = max(group["head"].nunique() * group["dim"].nunique() for _, group in table.groupby("task"))
    columns = min(3, len(tasks)) if lanes * POINTS_PER_HEAD < 72 * 2.0 else 1
    rows = -(-len(tasks) // columns)
    legend = 0.06 + 0.135 * panels.legend_rows(heads)
    height = legend + rows * 1.3 + 0.12
    figure = style.new_figure(style.DOUBLE_COLUMN, height)
    axes = panels.panel_grid(
        figure, rows, columns, left=0.56, right=0.05, top=legend + 0.3, bottom=0.40,
        between_columns=0.56, between_rows=0.44,
    )  # fmt: skip
    for panel, (letter, task) in zip(axes, zip("abcdefghij", tasks)):
        draw_task(panel, table[table["task"] == task])
        style.panel_title(panel, letter, task)
    for unused in axes[len(tasks) :]:
        unused.remove()
    for panel in axes[max(0, len(tasks) - columns) : len(tasks)]:
        panel.set_xlabel("head dimension")
    panels.family_legend(figure, heads, left=0.56, top=0.06)
    return Drawing(figure, caption(table), table)


def draw_task(axes: Axes, table: pd.DataFrame) -> None:
    """Markers at the fraction of seeds, bars over the 95% interval; every second dimension is shaded."""
    heads, dims = style.in_order(table["head"]), sorted(table["dim"].unique())
    offsets = dict(zip(heads, panels.dodge(len(heads), GROUP / len(heads))))
    slot = {dim: place for place, dim in enumerate(dims)}
    for place in range(0, len(dims), 2):
        axes.axvspan(place - 0.5, place + 0.5, color="#F3F3F3", linewidth=0, zorder=0)
    for head in heads:
        mine = table[table["head"] == head].sort_values("dim")
        x = [slot[dim] + offsets[head] for dim in mine["dim"]]
        drawn = style.look(head)
        axes.vlines(x, mine["low"], mine["high"], color=drawn.colour, linewidth=0.9, alpha=0.65)
        axes.plot(
            x, mine["fraction"], **drawn.marker, linestyle="none", clip_on=False, zorder=4, label=head,
        )  # fmt: skip
    axes.set_xlim(-0.5, len(dims) - 0.5)
    axes.set_xticks(range(len(dims)), [f"{dim:g}" for dim in dims])
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(-0.04, 1.04)
    count_ticks(axes, sorted(table["n"].unique()))
    style.quiet_grid(axes)


def count_ticks(axes: Axes, sizes: list[int]) -> None:
    """0/32, 8/32, ... 32/32 where every point has the same number of seeds, fractions otherwise."""
    quarters = [0.0, 0.25, 0.5, 0.75, 1.0]
    if len(sizes) == 1:
        n = int(sizes[0])
        whole = [share for share in quarters if (share * n).is_integer()]
        axes.set_yticks(whole, [f"{int(share * n)}/{n}" for share in whole])
        axes.set_ylabel("seeds that succeed")
    else:
        axes.set_yticks(quarters)
        axes.set_ylabel("share of seeds that succeed")


def caption(table: pd.DataFrame) -> str:
    """What the figure shows, with n and the method of its intervals."""
    return ""
