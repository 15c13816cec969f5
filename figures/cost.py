"""Figure: how time and memory grow with the length, the keys, the head dimension and the seeds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from figures import panels, style, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Rows of growth.csv that a panel shows, its title, and what is on its axis.
PANELS = (
    ("time", "T", ("attention",), "attention, forward and backward", "length $T$"),
    ("memory", "T", ("attention",), "attention, forward", "length $T$"),
    ("time", "T", ("step",), "training step by position", "length $T$"),
    ("time", "d", ("step", "attention"), "head dimension", "head dimension $d$"),
    ("time", "n", ("training",), "training step by token", "keys $n$ of subset-drop"),
    ("time", "seeds", ("step", "training"), "seeds trained at once", "seeds"),
)
# Last word of an operation -> colour, marker, filling, line, name.
LOOKS: dict[str, tuple[str, str, str, Any, str]] = {
    "fpa": (style.FAMILY_COLOURS["fpa"], "o", style.SOLID, "-", "FPA"),
    "softmax": (style.FAMILY_COLOURS["softmax"], "s", style.SOLID, "-", "softmax"),
    "sdpa": (style.FAMILY_COLOURS["softmax"], "s", style.SOLID, "-", "softmax (SDPA)"),
    "ordinary": (style.FAMILY_COLOURS["fpa"], "o", style.OPEN, (0, (4, 1.6)), "FPA, ordinary operations"),
}
# Where a panel shows two kinds of operation, the first is drawn as above and the second dotted.
SECOND = {"attention": ("D", "FPA attention"), "training": ("D", "FPA by token")}
COLUMNS = ["quantity", "operation", "variable", "size", "median", "low", "high", "n", "unit", "fixed"]


@dataclass(frozen=True)
class Bench:
    """What `fpa-lab bench growth --tables DIR` wrote: sizes, exponents, and what it ran on."""

    growth: pd.DataFrame
    summary: dict[str, Any]
    origin: str


def load(source: str | PathLike[str]) -> Bench:
    """From a folder of tables, or "published". InputError when it lacks them or they do not belong together."""
    import pandas as pd

    from figures.inputs import PUBLISHED, bench_folder, published_folder
    from lab.bench.document import read_tables

    folder = bench_folder(published_folder("") if os.fspath(source) == PUBLISHED else Path(source))
    summary, tables = read_tables(folder)
    for name in ("growth", "exponents"):
        if not tables.get(name):
            raise InputError(f"{folder}: holds no {name}.csv; fpa-lab bench growth --tables {folder} makes it")
    series = ["quantity", "operation", "variable"]
    fits = pd.DataFrame(tables["exponents"]).rename(columns={"low": "fit_low", "high": "fit_high", "from": "fit_from"})
    growth = pd.DataFrame(tables["growth"])[COLUMNS].merge(
        fits[[*series, "exponent", "fit_low", "fit_high", "fit_from"]], on=series, how="left", validate="many_to_one"
    )
    numbers = ["size", "median", "low", "high", "n", "exponent", "fit_low", "fit_high", "fit_from"]
    growth[numbers] = growth[numbers].apply(pd.to_numeric)
    return Bench(growth, summary, str(folder))


def draw(bench: Bench) -> Drawing:
    """Six panels, logarithmic both ways; the exponent of every line stands in the legend."""
    import pandas as pd

    figure = style.new_figure(style.DOUBLE_COLUMN, 4.3)
    axes = panels.panel_grid(
        figure, 2, 3, left=0.48, right=0.08, top=0.26, bottom=0.40, between_columns=0.54, between_rows=0.66
    )
    shown = []
    for panel, letter, (quantity, variable, kinds, title, label) in zip(axes, "abcdef", PANELS):
        rows = bench.growth[(bench.growth["quantity"] == quantity) & (bench.growth["variable"] == variable)]
        rows = rows[rows["operation"].str.split().str[0].isin(kinds)]
        if rows.empty:
            raise InputError(f"{bench.origin}: growth.csv: no rows of {quantity} over {variable}")
        draw_panel(panel, rows, kinds)
        style.panel_title(panel, letter, title)
        panel.set_xlabel(label)
        panel.set_ylabel(f"{quantity} ({rows['unit'].iloc[0]})", labelpad=2)
        shown.append(rows.assign(panel=letter))
    return Drawing(figure, caption(bench, shown), pd.concat(shown, ignore_index=True))


def draw_panel(axes: Axes, rows: pd.DataFrame, kinds: tuple[str, ...]) -> None:
    """One line per operation with the interval of its medians."""
    for operation in dict.fromkeys(rows["operation"]):
        mine = rows[rows["operation"] == operation].sort_values("size")
        kind, _, which = operation.partition(" ")
        colour, marker, filling, line, name = LOOKS[which]
        if kind != kinds[0]:
            (marker, name), line, filling = SECOND[kind], (0, (1.2, 1.2)), style.LIGHT
        face = colour if filling == style.SOLID else "white"
        middle, low, high = (mine[column] for column in ("median", "low", "high"))
        axes.vlines(mine["size"], low, high, color=colour, linewidth=0.8)
        axes.plot(
            mine["size"], middle, color=colour, marker=marker, markersize=3.0, markerfacecolor=face, linestyle=line,
            linewidth=1.1, markeredgewidth=0.8, label=f"{name}, {mine['exponent'].iloc[0]:.2f}",
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** (0.14 * len(set(rows["operation"]))))
    style.quiet_grid(axes)
    axes.legend(
        loc="upper left", handlelength=1.8, labelspacing=0.25, borderaxespad=0.1, fontsize=7, frameon=True,
        facecolor="white", edgecolor="none", framealpha=1.0,
    )  # fmt: skip


def caption(bench: Bench, shown: list[pd.DataFrame]) -> str:
    """What was measured on what, and the intervals of the exponents."""
    import pandas as pd

    machine, threads = bench.summary["machine"], bench.summary["threads"]
    quick = " A quick run: few turns and sizes." if bench.summary["quick"] else ""
    times = pd.concat(shown)
    turns = words.count_range(times.loc[times["quantity"] == "time", "n"])
    return words.paragraph(f"""
        **Cost.** Time and memory against size on {machine["processor"]}, {machine["cores"]} cores, {threads} threads:
        median of n = {turns} turns and its interval; memory of one call, all that it takes, inputs included. The
        number beside a name is the exponent of the size, from a least-squares line through the logarithms over the
        upper sizes.
        (a) and (b): one sequence, one head of dimension 64; (c) and (d): 16 seeds, 16 sequences each, dimension 4 in
        (c) and length 64 in (d), attention of length 1024; (e): data, forward and backward of 16 seeds; (f): length
        64 by position, 16 keys by token. Ordinary operations: cummin on the materialised matrix, autograd.
        Exponents with 95% intervals: {"; ".join(exponents(bench.growth))}. Measured by
        {bench.summary["command"]}.{quick}
    """)


def exponents(growth: pd.DataFrame) -> list[str]:
    """ "time of step fpa in T 1.98 (1.90 to 2.06)", for every series."""
    texts = []
    for (quantity, operation, variable), rows in growth.groupby(["quantity", "operation", "variable"], sort=False):
        row = rows.iloc[0]
        low, high = row["fit_low"], row["fit_high"]
        interval = f" ({low:.2f} to {high:.2f})" if low == low else ""  # two sizes have no interval
        texts.append(f"{quantity} of {operation} in {variable} {row['exponent']:.2f}{interval}")
    return texts
