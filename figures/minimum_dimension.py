"""Figure: which dimension it takes to read every subset of n keys, by head and notion: training and theory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures import panels, style, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from figures.inputs import Results

NOTIONS = ("separation", "window", "uniform")
NOTION_NAMES = {
    "separation": "separation",
    "window": r"window, $\Delta \geq 4\eta$",
    "uniform": r"uniform, TV $\leq$ 0.05",
}
KNOWN: dict[str, Any] = {"color": style.INK, "linewidth": 1.1, "linestyle": "-"}
PROVED: dict[str, Any] = {"color": style.INK, "linewidth": 0.9, "linestyle": (0, (2.2, 1.4))}
EXACT: dict[str, Any] = {"color": style.INK, "linewidth": 0.9, "linestyle": (0, (0.8, 1.2))}


def draw(results: Results) -> Drawing:
    """A row per notion, a column per head; keys to the right, dimensions upwards, the colour is the success rate."""
    from experiments.minimum_dimension import HEAD_NAMES, counted

    table = counted(results.frames)
    if table.empty:
        raise InputError(f"minimum_dimension: {results.frames.origin}: expected results on subset-free")
    heads = [name for name in HEAD_NAMES.values() if name in set(table["head"])]
    notions = [name for name in NOTIONS if name in set(table["notion"])]
    figure = style.new_figure(style.DOUBLE_COLUMN, 0.99 + 1.52 * len(notions))
    axes = panels.panel_grid(
        figure, len(notions), len(heads), left=0.62, right=0.08, top=0.71, bottom=0.38,
        between_columns=0.16, between_rows=0.16,
    )  # fmt: skip
    for row, notion in enumerate(notions):
        for column, head in enumerate(heads):
            panel = axes[row * len(heads) + column]
            draw_panel(panel, table[(table["head"] == head) & (table["notion"] == notion)])
            limits(panel, table)
            if row == 0:
                style.panel_title(panel, "abcdefgh"[column], head)
            if row == len(notions) - 1:
                panel.set_xlabel("keys")
            else:
                panel.set_xticklabels([])
            if column == 0:
                panel.set_ylabel(f"{NOTION_NAMES[notion]}\ndimension")
            else:
                panel.set_yticklabels([])
    legend(figure, int(table["n"].max()))
    return Drawing(figure, caption(table), with_frontiers(table))


def with_frontiers(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of the figure with `experiments.minimum_dimension.frontiers` beside them.

    short: by how much the first success from random starts is above the known construction; empty without a success.
    """
    from experiments.minimum_dimension import frontiers

    edges = frontiers(table)[["head", "notion", "keys", "some", "all"]]
    edges["short"] = edges["some"] - table.groupby(["head", "notion", "keys"], sort=False)["known"].first().to_numpy()
    edges["short"] = edges["short"].astype("Int64").mask(edges["some"] < 0)
    return table.merge(edges, on=["head", "notion", "keys"])


def shades(label: str) -> Colormap:
    """White for no seed, the colour of the head's family for all."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(label, ["#FFFFFF", style.look(label).colour])


def draw_panel(axes: Axes, table: pd.DataFrame) -> None:
    """Squares for random starts, rings for starts near a construction, and the frontiers of the theory."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    random = table[table["start"] == "random"]
    squares = [Rectangle((n - 0.5, d - 0.5), 1, 1) for n, d in zip(random["keys"], random["dim"])]
    colours = shades(str(table["label"].iloc[0]))
    field = PatchCollection(squares, facecolor=colours(random["successes"] / random["n"]), edgecolor=style.FAINT)
    field.set_linewidth(0.3)
    axes.add_collection(field)
    edges = table.drop_duplicates("keys").sort_values("keys")
    for name, look in (("known", KNOWN), ("proved", PROVED)):
        if name == "known" or (edges["proved"] != edges["known"]).any():
            stairs(axes, edges["keys"].tolist(), edges[name].tolist(), look)
    if (table["exact"] >= 0).any():
        stairs(axes, edges["keys"].tolist(), edges["exact"].tolist(), EXACT)
    near = table[table["start"] == "construction"]
    share = near["successes"] / near["n"]
    for kept, face in ((share == 1, style.INK), ((share > 0) & (share < 1), style.FAILED), (share == 0, "white")):
        axes.plot(
            near.loc[kept, "keys"], near.loc[kept, "dim"], linestyle="none", marker="o", markersize=2.6,
            markerfacecolor=face, markeredgecolor=style.INK, markeredgewidth=0.6, zorder=5,
        )  # fmt: skip


def stairs(axes: Axes, keys: list[int], dims: list[int], look: dict[str, Any]) -> None:
    """The lower edge of the squares of these dimensions: at and above it, heads exist (or are not excluded)."""
    x = [edge for n in keys for edge in (n - 0.5, n + 0.5)]
    y = [d - 0.5 for d in dims for _ in range(2)]
    axes.plot(x, y, zorder=4, clip_on=False, solid_joinstyle="miter", **look)


def limits(axes: Axes, table: pd.DataFrame) -> None:
    keys, dims = sorted(set(table["keys"])), sorted(set(table["dim"]))
    axes.set_xlim(keys[0] - 0.5, keys[-1] + 0.5)
    axes.set_ylim(dims[0] - 0.5, dims[-1] + 0.5)
    axes.set_xticks(keys[::2])
    axes.set_yticks(dims[::2])


def legend(figure: Figure, seeds: int) -> None:
    """What lines, rings and shades mean, along the top edge."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def ring(face: str, label: str) -> Line2D:
        return Line2D(
            [], [], marker="o", linestyle="none", markersize=3.2, markerfacecolor=face, markeredgecolor=style.INK,
            markeredgewidth=0.6, label=label,
        )  # fmt: skip

    handles = [
        Patch(facecolor="white", edgecolor=style.QUIET, linewidth=0.4, label=f"no seed of {seeds}"),
        Patch(facecolor=style.QUIET, edgecolor=style.QUIET, linewidth=0.4, label="all seeds"),
        Line2D([], [], label="known construction", **KNOWN),
        Line2D([], [], label="none below, proved", **PROVED),
        Line2D([], [], label="exactly uniform: known, none below", **EXACT),
        ring(style.INK, "near the construction: all seeds"),
        ring("white", "no seed"),
    ]
    width, height = figure.get_size_inches()
    figure.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.62 / width, 1 - 0.06 / height), ncols=4,
        borderaxespad=0.0, columnspacing=1.0, handlelength=1.4,
    )  # fmt: skip


def tried(table: pd.DataFrame) -> str:
    """How many recipes stand behind a square."""
    most = table[table["start"] == "random"].groupby("head", sort=False)["recipes"].max()
    if (most == 1).all():
        return ""
    counts = ", ".join(f"{head} {number}" for head, number in most.items())
    return f"A square shows the recipe with the most successes of those tried (rates and numbers of steps: {counts})."


def caption(table: pd.DataFrame) -> str:
    """What the figure shows, and where training stops short of the theory."""
    from experiments.minimum_dimension import frontiers

    edges = frontiers(table)
    trained = edges[edges["near_n"] > 0]
    short = trained[(trained["some"] > trained["known"]) | (trained["some"] < 0)]
    held = short[short["near"] == short["near_n"]]
    below = edges[(edges["some"] >= 0) & (edges["some"] < edges["proved"])]
    return words.paragraph(f"""
        **Content dimension that reading every subset takes.** Share of seeds (shade) whose head reads all non-empty
        subsets of its keys at once, by number of keys and content dimension, after training on all of them in every
        step; dips after each key, only keys attended to. Softmax and FoX: a learned bias per key and a query vector
        per subset; FPA: one query vector for all. {tried(table)}
        Separation: gap above 0 for every subset; window: least gap at least 4 times the largest window; uniform: total
        variation at most 0.05 for every subset; each trained for by itself and checked in float64.
        n = {words.count_range(table["n"])} seeds per square; the rows beside the figure have Clopper–Pearson 95%
        intervals. Solid line: least dimension with a known construction; dashed: below it there
        is none, proved; dotted: both at once for exactly uniform weights, a total variation of 0. Circles: FoX heads
        that start near the construction. Of {len(trained)} combinations of FoX head, notion and number of keys,
        {len(short)} have no success from random starts at the construction's dimension; near the construction all
        seeds succeed in {len(held)} of these, so heads exist there that training does not find. Squares below a proved
        bound with a success: {len(below)}. Chance is 0 everywhere.
    """)
