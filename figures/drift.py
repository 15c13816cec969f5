"""Figure: how far beyond the training length the target sets hold, and what goes first, by recipe and level form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from figures import panels, style, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from figures.inputs import Results

# What a recipe changes -> its colour; Okabe and Ito's palette again.
COLOURS = {
    "": "#0072B2",
    "lengths": "#009E73",
    "steps": "#E69F00",
    "smoothing": "#D55E00",
    "smoothing_until": "#CC79A7",
}
FORM_DASHES: dict[str, Any] = {"tied": (0, (3.2, 1.4)), "offset": "-", "free": "-"}
WINDOW_FLOOR = 1e-3  # smaller windows are drawn here: float32 parameters mean little below it
WINDOW_TICKS = (0.001, 0.01, 0.1, 1, 10)
GAP_TICKS = (-30, -10, -3, 0, 3, 10)
APART = 0.15  # octaves between recipes side by side in the panels of successes


def draw(results: Results) -> Drawing:
    """A row per task: seeds that succeed after training at every length, then the largest window and the least gap."""
    from experiments.length import measured

    table = measured(results.frames)
    if table.empty:
        raise InputError(f"drift: {results.frames.origin}: expected test evaluations")
    drawn = table[table["sum_dtype"] == "float64"]
    if drawn.empty:
        raise InputError(f"drift: {results.frames.origin}: expected heads whose walk is summed in float64")
    tasks = panels.tasks_in_order(drawn["task"])
    trained = {task: sorted(set(drawn.loc[drawn["task"] == task, "trained_at"])) for task in tasks}
    columns = max(map(len, trained.values())) + 2
    figure = style.new_figure(style.DOUBLE_COLUMN, 0.62 + 1.52 * len(tasks))
    axes = panels.panel_grid(
        figure, len(tasks), columns, left=0.46, right=0.10, top=0.66, bottom=0.40,
        between_columns=0.46, between_rows=0.42,
    )  # fmt: skip
    for row, (task, lengths) in enumerate(trained.items()):
        own = axes[columns * row : columns * (row + 1)]
        draw_row(own, drawn[drawn["task"] == task], lengths)
        titles = [f"trained at {length}" for length in lengths] + ["largest window (nats)", "least gap (nats)"]
        for panel, title in zip(own, [f"{task}, {titles[0]}", *titles[1:]]):
            style.panel_title(panel, "abcdefghijklmnop"[axes.index(panel)], title)
            if row == len(tasks) - 1:
                panel.set_xlabel("length / training length")
    legend(figure)
    return Drawing(figure, caption(table), table)


def draw_row(axes: list[Axes], table: pd.DataFrame, lengths: Sequence[int]) -> None:
    """Successes at every training length, windows and gaps at the shortest."""
    windows, gaps = axes[-2:]
    for panel, trained_at in zip(axes, lengths):
        draw_successes(panel, table[table["trained_at"] == trained_at])
    for panel, name in ((windows, "window_max"), (gaps, "gap_min")):
        for mine, look, _ in lines(table[table["trained_at"] == lengths[0]]):
            low, middle, high = (mine[f"{name}_{label}"] for label in ("q25", "median", "q75"))
            if name == "window_max":
                low, middle, high = (values.clip(lower=WINDOW_FLOOR) for values in (low, middle, high))
            panel.fill_between(mine["factor"], low, high, color=look["color"], alpha=0.15, linewidth=0)
            panel.plot(mine["factor"], middle, **look)
    windows.set_yscale("log")
    only_ticks(windows, WINDOW_TICKS)
    gaps.set_yscale("symlog", linthresh=3.0)
    gaps.set_ylim(min(0.0, gaps.get_ylim()[0]), max(10.0, gaps.get_ylim()[1]))
    only_ticks(gaps, GAP_TICKS)
    gaps.axhline(0, color=style.INK, linewidth=0.6)
    axes[0].set_ylabel("seeds that succeed")
    for panel in axes:
        factors = sorted(set(table["factor"]))
        panel.set_xscale("log", base=2)
        panel.set_xticks(factors[::2], [f"{factor:g}\N{MULTIPLICATION SIGN}" for factor in factors[::2]])
        panel.minorticks_off()
        style.quiet_grid(panel)


def draw_successes(axes: Axes, table: pd.DataFrame) -> None:
    """Shares with their intervals; recipes stand side by side, for many are the same."""
    for mine, look, place in lines(table):
        at = mine["factor"] * 2.0 ** (APART * place)
        axes.vlines(at, mine["low"], mine["high"], color=look["color"], linewidth=0.6, alpha=0.45)
        axes.plot(at, mine["successes"] / mine["n"], **look, clip_on=False)
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])


def only_ticks(axes: Axes, values: Sequence[float]) -> None:
    """Plain numbers at those of `values` that the axis shows."""
    low, high = axes.get_ylim()
    kept = [value for value in values if low <= value <= high]
    axes.set_yticks(kept, [f"{value:g}".replace("-", "\N{MINUS SIGN}") for value in kept])
    axes.set_ylim(low, high)


def lines(table: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, dict[str, Any], float]]:
    """Of one recipe and form, the rows by factor, keywords of the line, and the recipe's place about 0."""
    places = dict(zip(COLOURS, panels.dodge(len(COLOURS), 1.0)))
    for recipe, colour in reversed(COLOURS.items()):
        for form in ("tied", "offset", "free"):
            mine = table[(table["recipe"] == recipe) & (table["form"] == form)].sort_values("factor")
            if len(mine):
                look = {"color": colour, "linestyle": FORM_DASHES[form], "marker": "o", "markersize": 2.0}
                if form == "tied":
                    look["markerfacecolor"] = "white"
                yield mine, {**look, "linewidth": 1.0, "markeredgewidth": 0.7}, float(places[recipe])


def legend(figure: Figure) -> None:
    """Recipes by colour, forms by dash and filling, along the top edge."""
    from matplotlib.lines import Line2D

    from experiments.length import RECIPE_NAMES

    colours = [Line2D([], [], color=colour, label=RECIPE_NAMES[name]) for name, colour in COLOURS.items()]
    common: dict[str, Any] = {"color": style.INK, "marker": "o", "markersize": 2.0, "markeredgewidth": 0.7}
    dashes = [
        Line2D([], [], linestyle=FORM_DASHES["offset"], label="offset levels (free on leveled-dips)", **common),
        Line2D([], [], linestyle=FORM_DASHES["tied"], markerfacecolor="white", label="tied levels", **common),
    ]
    width, height = figure.get_size_inches()
    figure.legend(
        handles=[*colours, *dashes], loc="upper left", bbox_to_anchor=(0.46 / width, 1 - 0.06 / height), ncols=4,
        labelspacing=0.3, borderaxespad=0.0, handlelength=2.4,
    )  # fmt: skip


def caption(table: pd.DataFrame) -> str:
    """What the figure shows; what fails at the greatest length is said in numbers."""
    from experiments.length import RECIPE_NAMES

    greatest = table["factor"].max()
    last = table[(table["factor"] == greatest) & (table["sum_dtype"] == "float64")]
    failing = [
        f"{row['task']} trained at {row['trained_at']}, {row['form']}, "
        f"{RECIPE_NAMES.get(row['recipe'], row['recipe'])}: {row['successes']} of {row['n']}"
        for row in last[last["successes"] < last["n"]].to_dict("records")
    ]
    return words.paragraph(f"""
        **What breaks beyond the training length.** FPA heads of dimension 1 read without retraining at 1 to
        {greatest:g} times the length trained at (tokens; keys on subset-drop); n = {words.count_range(table["n"])}
        seeds each. Left: share of seeds that succeed (exact-set rate of at least 0.99 and mean total variation of at
        most 0.05) at that length by itself, with Clopper–Pearson 95% intervals; recipes are set apart
        sideways, and at the longer training length only two were trained. A reader that weights all keys so far equally
        succeeds on no seed (chance: 0). Right, for the shorter training length, median and quartiles over seeds of the
        worst query of a seed: the largest spread of the target's logits (values below {WINDOW_FLOOR:g} are drawn
        there) and the least gap between the target and everything else. A sinking walk widens the window and takes it
        from the gap; a rising one leaves the window and spares what should die. Seeds that succeed at {greatest:g}
        times, where not all do: {"; ".join(failing) or "none"}. {sums(table)}
    """)


def sums(table: pd.DataFrame) -> str:
    """What summing the walk in float32 changed: the largest difference of the successes at equal settings."""
    from experiments.length import SETTINGS

    names = [name for name in [*SETTINGS, "factor"] if name != "sum_dtype"]
    wide, narrow = (
        table[table["sum_dtype"] == dtype].set_index(names)["successes"] for dtype in ("float64", "float32")
    )
    change = (narrow - wide.reindex(narrow.index)).abs().dropna()
    if change.empty:
        return ""
    most = int(change.max())
    seeds = "no seed" if most == 0 else f"{most} seeds at most" if most > 1 else "one seed at most"
    return f"Summing the walk in float32 changes the successes by {seeds}, at the {len(change)} points compared."
