"""Figure: loss above the optimum against the training step, per task, for the best head of each family."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from figures import panels, style
from figures.drawing import Drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from figures.inputs import Results

FLOOR = 1e-6  # losses below this, exact zeros among them, are drawn here; float32 losses mean little below it


def draw(results: Results, *, dim: int | None = None) -> Drawing:
    """One panel per task; median and quartile band over seeds.

    Every family is shown by its head and dimension with the least validation loss, or, with `dim`, by its best head of
    that dimension.
    """
    best = results.best_dimension(by="family", dim=dim)
    curves = results.of(results.frames.curves, best)
    table = curves[["train_task", "head", "dim", "learning_rate", "step", "n", "q25", "median", "q75"]]
    table = table.rename(columns={"train_task": "task"})
    tasks = panels.tasks_in_order(table["task"])
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = style.new_figure(style.DOUBLE_COLUMN, 0.1 + rows * 2.1)
    axes = panels.panel_grid(
        figure, rows, columns, left=0.52, right=0.14, top=0.26, bottom=0.40, between_columns=0.24, between_rows=0.62
    )
    lowest = max(FLOOR, float(table["q25"].clip(lower=FLOOR).min()))
    highest = float(table["q75"].max())
    smoothing = smoothing_ends(best)
    for index, (panel, task) in enumerate(zip(axes, tasks)):
        mine = table[table["task"] == task]
        draw_task(panel, mine)
        panel.set_ylim(lowest / 1.6, highest * 2.2)
        panel.legend(loc="best", fontsize=7, handlelength=1.1, labelspacing=0.25, borderaxespad=0.4)
        if task in smoothing:
            mark_smoothing(panel, smoothing[task])
        style.panel_title(panel, "abcdefghij"[index], task)
        panel.set_xlabel("training step")
        if index % columns:
            panel.tick_params(axis="y", labelleft=False)
        else:
            panel.set_ylabel("loss above the optimum (nats)")
    for unused in axes[len(tasks) :]:
        unused.remove()
    return Drawing(figure, caption(table), table)


def draw_task(axes: Axes, table: pd.DataFrame) -> None:
    """One curve per family; the legend stands in the lower left, below the curves at their start."""
    for head in style.in_order(table["head"]):
        mine = table[table["head"] == head].sort_values("step")
        drawn = style.look(head)
        band = mine[["q25", "q75"]].clip(lower=FLOOR)
        axes.fill_between(mine["step"], band["q25"], band["q75"], color=drawn.colour, alpha=0.2, linewidth=0)
        name = f"{drawn.name}, $d={mine['dim'].iloc[0]:g}$"
        axes.plot(mine["step"], mine["median"].clip(lower=FLOOR), color=drawn.colour, linewidth=1.3, label=name)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xlim(0, float(table["step"].max()))
    style.quiet_grid(axes)


def smoothing_ends(best: pd.DataFrame) -> dict[str, float]:
    """For each task, the step at which FPA's penalty stops being smoothed, read from the cells' recipes."""
    ends = {}
    for task, config in zip(best["task"], best["config"]):
        cell = json.loads(config)
        recipe = cell["recipe"]
        if cell["head"]["kind"] == "fpa" and recipe["smoothing"] > 0:
            ends[task] = recipe["steps"] * recipe["smoothing_until"]
    return ends


def mark_smoothing(axes: Axes, until: float) -> None:
    """A bar along the top edge over the steps at which the penalty is smoothed."""
    axes.axvline(until, 0.3, color=style.QUIET, linewidth=0.6, dashes=(1.5, 2), zorder=1)
    axes.annotate(
        "smoothed penalty", (until, 0.985), xycoords=("data", "axes fraction"), xytext=(-2, 0),
        textcoords="offset points", ha="right", va="top", fontsize=6.5, color=style.QUIET,
    )  # fmt: skip


def caption(table: pd.DataFrame) -> str:
    return ""
