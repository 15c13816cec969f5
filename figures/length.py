"""Figure: exact-set rate on sequences longer than those trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import panels, style
from figures.drawing import Drawing

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from figures.inputs import Results


def draw(results: Results) -> Drawing:
    """One panel per task; median over seeds, quartile bars, one faint dot per seed. Each head at its best dimension."""
    import pandas as pd

    best = results.best_dimension(by="head")
    test = results.of(results.frames.evaluations, best)
    test = test[(test["split"] == "test") & (test["task"] == test["train_task"]) & (test["factor"] >= 1)]
    seeds = test[["train_task", "head", "dim", "factor", "seed", "exact"]].rename(columns={"train_task": "task"})
    grouped = seeds.groupby(["task", "head", "dim", "factor"])["exact"]
    table = pd.DataFrame(
        {"n": grouped.size(), "q25": grouped.quantile(0.25), "median": grouped.median(), "q75": grouped.quantile(0.75)}
    ).reset_index()
    tasks = panels.tasks_in_order(table["task"])
    heads = style.in_order(table["head"])
    legend = 0.06 + 0.135 * panels.legend_rows(heads)
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = style.new_figure(style.DOUBLE_COLUMN, legend + 0.3 + rows * 2.0)
    axes = panels.panel_grid(
        figure,
        rows,
        columns,
        left=0.42,
        right=0.06,
        top=legend + 0.3,
        bottom=0.40,
        between_columns=0.3,
        between_rows=0.6,
    )
    for panel, (letter, task) in zip(axes, zip("abcdefghij", tasks)):
        draw_task(panel, table[table["task"] == task], seeds[seeds["task"] == task])
        style.panel_title(panel, letter, task)
        panel.set_xlabel("length / training length")
    for unused in axes[len(tasks) :]:
        unused.remove()
    for panel in axes[::columns]:
        panel.set_ylabel("exact-set rate")
    panels.family_legend(figure, heads, left=0.42, top=0.06, lines=True)
    return Drawing(figure, caption(table), table)


def draw_task(axes: Axes, table: pd.DataFrame, seeds: pd.DataFrame) -> None:
    """Heads stand side by side at each length, so that equal rates stay visible."""
    heads, factors = style.in_order(table["head"]), sorted(table["factor"].unique())
    offsets = dict(zip(heads, panels.dodge(len(heads), 0.72 / len(heads))))
    place = {factor: index for index, factor in enumerate(factors)}
    for head in reversed(heads):
        mine = table[table["head"] == head].sort_values("factor")
        dots = seeds[seeds["head"] == head]
        drawn = style.look(head)
        x = [place[factor] + offsets[head] for factor in mine["factor"]]
        cloud = [place[factor] + offsets[head] for factor in dots["factor"]]
        axes.plot(
            cloud, dots["exact"], ".", color=drawn.colour, alpha=0.18, markersize=2.2, markeredgewidth=0, zorder=2
        )
        axes.vlines(x, mine["q25"], mine["q75"], color=drawn.colour, linewidth=1.6, alpha=0.5, zorder=3)
        axes.plot(
            x, mine["median"], **drawn.marker, linestyle=drawn.line, linewidth=0.7, clip_on=False, zorder=4, label=head,
        )  # fmt: skip
    axes.set_xlim(-0.5, len(factors) - 0.5)
    axes.set_xticks(range(len(factors)), [f"{factor:g}\N{MULTIPLICATION SIGN}" for factor in factors])
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    style.quiet_grid(axes)


def caption(table: pd.DataFrame) -> str:
    return ""
