"""Figure: how many seeds succeed, per task, head and head dimension, with exact intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import panels, style, words
from figures.drawing import Drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from figures.inputs import Results

COLUMNS = ["task", "head", "dim", "learning_rate", "n", "successes", "low", "high"]
GAP = 1.2  # between dimensions, in widths of a head's lane
LANE = 5.0  # the least width of a lane in points; sets whether panels can stand side by side


def draw(results: Results) -> Drawing:
    """One panel per task; heads of one dimension stand side by side in lanes, so that none covers another."""
    table = results.summary[COLUMNS].copy()
    table.insert(6, "fraction", table["successes"] / table["n"])
    tasks = panels.tasks_in_order(table["task"])
    heads = style.in_order(table["head"])
    lanes = max(width_in_lanes(table[table["task"] == task]) for task in tasks)
    columns = min(3, len(tasks)) if lanes * LANE < 72 * 1.6 else 1
    rows = -(-len(tasks) // columns)
    legend = 0.06 + 0.135 * panels.legend_rows(heads)
    figure = style.new_figure(style.DOUBLE_COLUMN, legend + 0.12 + rows * (1.3 if columns == 1 else 1.8))
    axes = panels.panel_grid(
        figure, rows, columns, left=0.56, right=0.40, top=legend + 0.3, bottom=0.40,
        between_columns=0.76, between_rows=0.44,
    )  # fmt: skip
    for index, (panel, task) in enumerate(zip(axes, tasks)):
        draw_task(panel, table[table["task"] == task])
        style.panel_title(panel, "abcdefghij"[index], task)
        if index % columns:
            panel.set_ylabel("")
        if index + columns >= len(tasks):
            panel.set_xlabel("head dimension")
    for unused in axes[len(tasks) :]:
        unused.remove()
    panels.family_legend(figure, heads, left=0.56, top=0.06)
    return Drawing(figure, caption(results, table), table)


def lanes_of(table: pd.DataFrame) -> dict[tuple[int, str], float]:
    """Where each (dim, head) stands: neighbours 1 apart, dimensions GAP further."""
    place = 0.0
    lanes: dict[tuple[int, str], float] = {}
    for dim in sorted(set(table["dim"].tolist())):
        for head in style.in_order(table.loc[table["dim"] == dim, "head"]):
            lanes[dim, head] = place
            place += 1
        place += GAP
    return lanes


def width_in_lanes(table: pd.DataFrame) -> float:
    """Width of a panel, in lanes."""
    return max(lanes_of(table).values()) + 1 + GAP


def draw_task(axes: Axes, table: pd.DataFrame) -> None:
    """Markers at the fraction of seeds, bars over the 95% interval; every second dimension is shaded."""
    lanes = lanes_of(table)
    for head in style.in_order(table["head"]):
        mine = table[table["head"] == head].sort_values("dim")
        x = [lanes[dim, head] for dim in mine["dim"]]
        drawn = style.look(head)
        axes.vlines(x, mine["low"], mine["high"], color=drawn.colour, linewidth=0.9, alpha=0.65)
        axes.plot(x, mine["fraction"], **drawn.marker, linestyle="none", clip_on=False, zorder=4, label=head)
    dims = sorted({dim for dim, _ in lanes})
    middles = []
    for index, dim in enumerate(dims):
        places = [place for (of, _), place in lanes.items() if of == dim]
        left, right = min(places) - 0.5 - GAP / 2, max(places) + 0.5 + GAP / 2
        middles.append((left + right) / 2)
        if index % 2 == 0:
            axes.axvspan(left, right, color="#F3F3F3", linewidth=0, zorder=0)
    axes.set_xlim(-0.5 - GAP / 2, max(lanes.values()) + 0.5 + GAP / 2)
    axes.set_xticks(middles, [f"{dim:g}" for dim in dims])
    axes.tick_params(axis="x", length=0)
    axes.set_ylim(-0.05, 1.05)
    panels.name_level(axes, "chance", 0)
    axes.axhline(0, color=style.QUIET, linewidth=0.7, dashes=(1.5, 2), zorder=1)
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
        axes.set_ylabel("share of seeds")


def caption(results: Results, table: pd.DataFrame) -> str:
    """What the figure shows, with n and the method of its intervals."""
    return words.paragraph(f"""
        **Seeds that find their target sets.** Share of seeds that succeed, per task, head and head dimension;
        heads of one dimension stand side by side. {words.SUCCESS} n = {words.count_range(table["n"])} seeds per
        point; bars: Clopper–Pearson 95% intervals. {words.rates(results)} Chance: {words.chance(results)}, so a
        reader that weights all keys seen so far equally succeeds on no seed (dotted line). {words.counts(table)}
    """)
