"""Figure: exact-set rate on sequences longer than those trained on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from figures import panels, style, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from figures.inputs import Results

WIDTH = 0.56  # of a length's place that the heads fill


def draw(results: Results) -> Drawing:
    """One panel per task; median over seeds, quartile bars, one faint dot per seed. Each head at its best dimension."""
    best = results.best_dimension(by="head")
    table = quartiles(best)
    seeds = results.tests(best)[["train_task", "head", "factor", "seed", "exact"]]
    seeds = seeds.rename(columns={"train_task": "task"})
    tasks = panels.tasks_in_order(table["task"])
    heads = style.in_order(table["head"])
    legend = 0.06 + 0.135 * panels.legend_rows(heads)
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    figure = style.new_figure(style.DOUBLE_COLUMN, legend + 0.2 + rows * 2.0)
    axes = panels.panel_grid(
        figure, rows, columns, left=0.40, right=0.40, top=legend + 0.3, bottom=0.40,
        between_columns=0.42, between_rows=0.6,
    )  # fmt: skip
    for index, (panel, task) in enumerate(zip(axes, tasks)):
        draw_task(panel, table[table["task"] == task], seeds[seeds["task"] == task])
        style.panel_title(panel, "abcdefghij"[index], task)
        panel.set_xlabel("length / training length")
        if index % columns:
            panel.tick_params(axis="y", labelleft=False)
        else:
            panel.set_ylabel("exact-set rate")
    for unused in axes[len(tasks) :]:
        unused.remove()
    panels.family_legend(figure, heads, left=0.40, top=0.06, lines=True)
    return Drawing(figure, caption(results, table), table)


def quartiles(best: pd.DataFrame) -> pd.DataFrame:
    """The summary's exact-set rates at every multiple of the training length, one row per head and multiple."""
    import pandas as pd

    factors = sorted(float(found[1]) for name in best.columns if (found := re.fullmatch(r"n_([\d.]+)x", name)))
    parts = []
    for factor in factors:
        at = f"{factor:g}x"
        names = {"n": f"n_{at}", **{name: f"exact_{at}_{name}" for name in ("q25", "median", "q75")}}
        part = best[["task", "head", "dim", "learning_rate"]].assign(factor=factor)
        parts.append(
            part.assign(**{new: best[old] for new, old in names.items()}, chance=best.get(f"chance_exact_{at}"))
        )
    table = pd.concat(parts)
    table = table[(table["factor"] > 0) & (table["n"] > 0)]
    if table.empty:
        raise InputError("length: expected test evaluations at multiples of the training length")
    return table.astype({"n": int}).sort_values(["task", "head", "factor"], ignore_index=True)


def draw_task(axes: Axes, table: pd.DataFrame, seeds: pd.DataFrame) -> None:
    """Heads stand side by side at each length, so that equal rates stay visible."""
    heads, factors = style.in_order(table["head"]), sorted(table["factor"].unique())
    offsets = dict(zip(heads, panels.dodge(len(heads), WIDTH / len(heads))))
    place = {factor: index for index, factor in enumerate(factors)}
    for head in reversed(heads):
        mine = table[table["head"] == head].sort_values("factor")
        dots = seeds[seeds["head"] == head]
        drawn = style.look(head)
        x = [place[factor] + offsets[head] for factor in mine["factor"]]
        cloud = [place[factor] + offsets[head] for factor in dots["factor"]]
        axes.plot(
            cloud, dots["exact"], ".", color=drawn.colour, alpha=0.35, markersize=2.8, markeredgewidth=0, zorder=2
        )
        axes.vlines(x, mine["q25"], mine["q75"], color=drawn.colour, linewidth=1.6, alpha=0.5, zorder=3)
        axes.plot(
            x, mine["median"], **drawn.marker, linestyle=drawn.line, linewidth=0.7, clip_on=False, zorder=4, label=head
        )
    draw_chance(axes, table.drop_duplicates("factor").sort_values("factor"))
    axes.set_xlim(-0.5, len(factors) - 0.5)
    axes.set_xticks(range(len(factors)), [f"{factor:g}\N{MULTIPLICATION SIGN}" for factor in factors])
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    style.quiet_grid(axes)


def draw_chance(axes: Axes, levels: pd.DataFrame) -> None:
    """A dotted step per length, across the whole of its place."""
    for index, level in enumerate(levels["chance"]):
        axes.plot([index - 0.5, index + 0.5], [level, level], color=style.INK, linewidth=0.8, dashes=(1, 1.4), zorder=5)
    panels.name_level(axes, "chance", float(levels["chance"].iloc[-1]))


def caption(results: Results, table: pd.DataFrame) -> str:
    """What the figure shows; the medians at the greatest length are said in full."""
    last = table["factor"].max()
    ends = table[(table["factor"] == last) & (table["median"] >= 0.99)]
    reached = [f"{style.look(head).name} on {task}" for task, head in zip(ends["task"], ends["head"])]
    return words.paragraph(f"""
        **Reading beyond the training length.** Share of queries at which a head reads exactly its target set
        (the keys above half the uniform weight are the target), on fresh test sequences of 1 to {last:g} times
        the training length, without retraining. Median and quartiles over n = {words.count_range(table["n"])}
        seeds; faint dots: seeds. Heads at one length stand side by side; each is shown at
        {words.BEST_DIMENSION}. {words.rates(results)} Dotted: chance, a reader that weights all keys seen so far
        equally, which is exact only while no key has died. Median of at least 0.99 at {last:g} times:
        {words.listing(reached) if reached else "none"}.
    """)
