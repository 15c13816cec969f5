"""Figure: heads trained on short nested-scope sequences reading the scopes of source files, without retraining."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures import panels, style, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from figures.inputs import Results

BINS_PER_DECADE = 3


def draw(results: Results) -> Drawing:
    """One panel per head: every FPA level form, then the best FoX and the best softmax head; one dot per file."""
    best = results.best_dimension(by="head")
    best = best[best["cell"].isin(set(results.frames.files["cell"]))]
    if best.empty:
        raise InputError(f"source_scopes: {results.frames.origin}: expected results on source files")
    best = best[best["head"].isin(heads_shown(best))]
    files = results.of(results.frames.files, best)
    table = files[
        ["head", "dim", "file", "seq_len", "scopes", "queries", "seeds", "exact_mean", "exact_min", "perfect"]
    ]
    table = table.sort_values(["head", "dim", "seq_len", "file"])
    heads = style.in_order(table["head"])
    columns = len(heads) if len(heads) <= 4 else 3
    rows = -(-len(heads) // columns)
    figure = style.new_figure(style.DOUBLE_COLUMN, 0.1 + rows * 1.95)
    axes = panels.panel_grid(
        figure, rows, columns, left=0.42, right=0.08, top=0.26, bottom=0.40, between_columns=0.16, between_rows=0.5
    )
    limits = float(table["seq_len"].min()) / 1.3, float(table["seq_len"].max()) * 1.3
    for index, (panel, head) in enumerate(zip(axes, heads)):
        mine = table[table["head"] == head]
        draw_head(panel, mine)
        panel.set_xlim(*limits)
        style.panel_title(panel, "abcdefghij"[index], f"{style.look(head).name}, $d={mine['dim'].iloc[0]:g}$")
        if index + columns >= len(heads):
            panel.set_xlabel("tokens in the file")
        if index % columns:
            panel.tick_params(axis="y", labelleft=False)
        else:
            panel.set_ylabel("exact-set rate")
    for unused in axes[len(heads) :]:
        unused.remove()
    return Drawing(figure, caption(results, table), table)


def heads_shown(best: pd.DataFrame) -> list[str]:
    """All FPA heads and, of every other family, the one with the least validation loss."""
    ordered = best.sort_values("validation_loss")
    others: dict[str, str] = {}
    for head in ordered["head"]:
        if style.family_of(head) != "fpa":
            others.setdefault(style.family_of(head), head)
    return [head for head in style.in_order(best["head"]) if style.family_of(head) == "fpa"] + list(others.values())


def draw_head(axes: Axes, table: pd.DataFrame) -> None:
    """Files as dots (mean over seeds), and over them the median and quartiles of files in bins of equal log length."""
    drawn = style.look(table["head"].iloc[0])
    axes.plot(
        table["seq_len"], table["exact_mean"], "o", color=drawn.colour, alpha=0.3, markersize=2.4, markeredgewidth=0,
        linestyle="none", clip_on=False, label="files",
    )  # fmt: skip
    bins = binned(table)
    axes.plot(
        bins["seq_len"], bins["median"], color=style.INK, marker=drawn.shape, markerfacecolor="white", markersize=3.6,
        markeredgewidth=0.8, linewidth=0.9, clip_on=False, zorder=5, label="median",
    )  # fmt: skip
    axes.vlines(bins["seq_len"], bins["q25"], bins["q75"], color=style.INK, linewidth=0.9, zorder=4)
    axes.set_xscale("log")
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "", "0.5", "", "1"])
    perfect = int((table["perfect"] == table["seeds"]).sum())
    low = table["exact_mean"].median() < 0.5  # the note goes where the files are not
    place: dict[str, Any] = (
        {"x": 0.96, "y": 0.95, "ha": "right", "va": "top"} if low else {"x": 0.04, "y": 0.05, "va": "bottom"}
    )
    panels.note(axes, f"every seed exact:\n{perfect} of {len(table)} files", **place)
    style.quiet_grid(axes)


def binned(table: pd.DataFrame) -> pd.DataFrame:
    """Median and quartiles of the files in bins of equal log length, each drawn at its geometric mean."""
    import numpy as np
    import pandas as pd

    steps = np.floor(np.log10(table["seq_len"]) * BINS_PER_DECADE)
    grouped = table.groupby(steps)
    rates = grouped["exact_mean"]
    lengths = np.exp(np.log(table["seq_len"]).groupby(steps).mean())
    bins = {"seq_len": lengths, "n": rates.size(), "q25": rates.quantile(0.25), "median": rates.median()}
    return pd.DataFrame({**bins, "q75": rates.quantile(0.75)}).reset_index(drop=True)


def caption(results: Results, table: pd.DataFrame) -> str:
    """What the figure shows; how many files every seed reads exactly is said per head."""
    files = table.drop_duplicates("file")
    exact = [
        f"{style.look(head).name} {int((mine['perfect'] == mine['seeds']).sum())} of {len(mine)}"
        for head, mine in ((head, table[table["head"] == head]) for head in style.in_order(table["head"]))
    ]
    return words.paragraph(f"""
        **Scopes of real source files.** Heads trained on short nested-scope sequences read the scopes of
        {len(files)} Python files ({files["seq_len"].min():,} to {files["seq_len"].max():,} tokens, median
        {files["seq_len"].median():,.0f}) without retraining: share of queries (uses of a name) at which a head
        reads exactly the names in scope. One dot per file, the mean over n = {words.count_range(table["seeds"])}
        seeds; open marks: median and quartiles of files in bins of equal log length. Shown are all FPA heads
        and, of every other family, the head with the lowest validation loss on nested-scope, each at
        {words.BEST_DIMENSION}. {words.rates(results)} Chance: a reader that weights all keys so far equally is
        exact only before the first scope with a key closes. Files that every seed reads exactly, at every
        query: {", ".join(exact)}.
    """)
