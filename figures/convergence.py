"""Figure: loss above the optimum against the training step, per task, for the best head of each family."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from figures import panels, style, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from figures.inputs import Results

FLOOR = 1e-6  # losses below this, exact zeros among them, are drawn here; float32 losses mean little below it
DASHES: dict[str, Any] = {"fox": (0, (3.2, 1.4))}  # plateaus of FoX and softmax often coincide: both stay visible
COLUMNS = ["train_task", "head", "dim", "learning_rate", "step", "n", "q25", "median", "q75"]


def draw(results: Results, *, dim: int | None = None) -> Drawing:
    """One panel per task; median and quartile band over seeds.

    Every family is shown by its head and dimension with the least validation loss, or, with `dim`, by its best head of
    that dimension.
    """
    best = results.best_dimension(by="family", dim=dim)
    table = results.of(results.frames.curves, best)[COLUMNS].rename(columns={"train_task": "task"})
    if table.empty:
        raise InputError(f"convergence: {results.frames.origin}: expected learning curves")
    tasks = panels.tasks_in_order(table["task"])
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = style.new_figure(style.DOUBLE_COLUMN, 0.1 + rows * 2.1)
    axes = panels.panel_grid(
        figure, rows, columns, left=0.52, right=0.40, top=0.26, bottom=0.40, between_columns=0.42, between_rows=0.62
    )
    limits = max(FLOOR, float(table["q25"].min())) / 1.6, float(table["q75"].max()) * 2.2
    for index, (panel, task) in enumerate(zip(axes, tasks)):
        draw_task(panel, table[table["task"] == task], best[best["task"] == task])
        panel.set_ylim(*limits)
        name_curves(panel)
        style.panel_title(panel, "abcdefghij"[index], task)
        panel.set_xlabel("training step")
        if index % columns:
            panel.tick_params(axis="y", labelleft=False)
        else:
            panel.set_ylabel("loss above the optimum (nats)")
    for unused in axes[len(tasks) :]:
        unused.remove()
    return Drawing(figure, caption(results, table, best, dim), table)


def draw_task(axes: Axes, table: pd.DataFrame, best: pd.DataFrame) -> None:
    """One curve per family, the level of chance, and where the smoothing of the penalty ends."""
    for order, head in enumerate(reversed(style.in_order(table["head"]))):
        mine = table[table["head"] == head].sort_values("step")
        drawn = style.look(head)
        low, middle, high = (mine[name].clip(lower=FLOOR) for name in ("q25", "median", "q75"))
        axes.fill_between(mine["step"], low, high, color=drawn.colour, alpha=0.2, linewidth=0)
        axes.plot(
            mine["step"], middle, color=drawn.colour, linestyle=DASHES.get(drawn.family, "-"), linewidth=1.3,
            zorder=3 + order, label=f"{drawn.name}, $d={mine['dim'].iloc[0]:g}$",
        )  # fmt: skip
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xlim(0, float(table["step"].max()))
    mark_chance(axes, best)
    mark_smoothing(axes, best)
    style.quiet_grid(axes)


def mark_chance(axes: Axes, best: pd.DataFrame) -> None:
    """The loss of a reader that weights all keys seen so far equally."""
    if "chance_excess_loss_1x" in best:
        level = float(best["chance_excess_loss_1x"].iloc[0])
        axes.axhline(level, color=style.INK, linewidth=0.7, dashes=(1, 1.4), zorder=1)
        panels.name_level(axes, "chance", level)


def name_curves(axes: Axes) -> None:
    """The legend goes to the right end, into the widest gap between the lines there; FPA is named first."""
    import numpy as np

    handles, labels = axes.get_legend_handles_labels()
    ends = [float(np.asarray(line.get_ydata())[-1]) for line in axes.lines if line.get_transform() == axes.transData]
    edges = np.sort(np.log(np.array([*axes.get_ylim(), *ends])))
    widest = int(np.argmax(np.diff(edges)))
    middle = (edges[widest : widest + 2].mean() - edges[0]) / (edges[-1] - edges[0])
    axes.legend(
        handles[::-1], labels[::-1], loc="center right", bbox_to_anchor=(1.0, middle), fontsize=7, handlelength=1.5,
        labelspacing=0.25, borderaxespad=0.2,
    )  # fmt: skip


def mark_smoothing(axes: Axes, best: pd.DataFrame) -> None:
    """A tick on the top edge at the step at which FPA's penalty stops being smoothed, read from the recipe."""
    for config in best["config"]:
        cell = json.loads(config)
        recipe = cell["recipe"]
        if cell["head"]["kind"] == "fpa" and recipe["smoothing"] > 0:
            until = recipe["steps"] * recipe["smoothing_until"]
            axes.axvline(until, 0.89, 1, color=style.QUIET, linewidth=0.6, zorder=1)
            axes.annotate(
                "penalty smoothed", (until, 0.99), xycoords=("data", "axes fraction"), xytext=(-3, 0),
                textcoords="offset points", ha="right", va="top", fontsize=7, color=style.QUIET,
            )  # fmt: skip


def caption(results: Results, table: pd.DataFrame, best: pd.DataFrame, dim: int | None) -> str:
    """What the figure shows; the last medians are said in numbers."""
    last = table[table["step"] == table.groupby(["task", "head"])["step"].transform("max")]
    last = last.sort_values(["task", "head"])
    ends = [
        f"{style.look(head).name} {median:.2g} ({task})"
        for task, head, median in zip(last["task"], last["head"], last["median"])
    ]
    chosen = (
        "the head and dimension with the lowest median validation loss"
        if dim is None
        else f"its best head of dimension {dim}"
    )
    return words.paragraph(f"""
        **Learning curves.** Validation loss above the optimum (the entropy of the uniform distribution on the
        target) against the training step: median and quartile band over n = {words.count_range(table["n"])}
        seeds. Every family is shown by {chosen}. {words.rates(results)} Dotted: chance, a reader that weights all
        keys seen so far equally. The mark at the top: FPA's penalty is smoothed up to there. Values below
        {FLOOR:g} are drawn at {FLOOR:g}. Medians at the last step: {", ".join(ends)}.
    """)
