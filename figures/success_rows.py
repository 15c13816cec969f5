"""Rows of settings or heads against columns of tasks: the share of seeds that succeed, near and far, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from figures import panels, style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lab.sweeps.frames import Frames

ROW_HEIGHT = 0.158  # inches
HEADING = 0.55  # of a row: the space above a group
TOP, BOTTOM, RIGHT = 0.46, 0.36, 0.34
COUNTS = ["factor", "n", "successes", "low", "high", "exact_median", "tv_median"]


def counted(frames: Frames, cells: pd.DataFrame) -> pd.DataFrame:
    """The columns of `cells`, repeated for every factor of the training length, with COUNTS over seeds of test data."""
    import pandas as pd

    from lab.sweeps.quartiles import median
    from lab.sweeps.statistics import success_counts

    tests = frames.evaluations
    tests = tests[(tests["split"] == "test") & (tests["task"] == tests["train_task"])]
    rows = []
    for (cell, factor), seeds in tests[tests["cell"].isin(set(cells["cell"]))].groupby(["cell", "factor"]):
        medians = {f"{name}_median": median(seeds[name]) for name in ("exact", "tv")}
        rows.append({"cell": cell, "factor": factor, **success_counts(seeds["success"]), **medians})
    return cells.merge(pd.DataFrame(rows, columns=["cell", *COUNTS]), on="cell")


def places(groups: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], float]:
    """How far below the top every (group, row) stands, in rows; groups are set apart."""
    found, below = {}, 0.0
    for group, rows in groups.items():
        for row in rows:
            found[group, row] = below
            below += 1
        below += HEADING
    return found


def new_rows(groups: Mapping[str, Sequence[str]], tasks: Sequence[str], left: float) -> tuple[Figure, list[Axes]]:
    """A figure with a panel per task, row names at the left and group names further left, flush."""
    where = places(groups)
    height = TOP + BOTTOM + ROW_HEIGHT * (max(where.values()) + 1.3)
    figure = style.new_figure(style.DOUBLE_COLUMN, height)
    axes = panels.panel_row(figure, [1] * len(tasks), left=left, right=RIGHT, top=TOP, bottom=BOTTOM, between=0.40)
    for index, (panel, task) in enumerate(zip(axes, tasks)):
        panel.set_xlim(-0.04, 1.04)
        panel.set_ylim(max(where.values()) + 0.65, -0.65)
        panel.set_yticks(list(where.values()), [row for _, row in where] if index == 0 else [])
        panel.tick_params(axis="y", length=0)
        panel.set_xlabel("share of seeds that succeed")
        panel.spines["left"].set_visible(False)
        style.quiet_grid(panel, "x")
        style.panel_title(panel, "abcdefgh"[index], task)
    for group, rows in groups.items():
        at = where[group, rows[0]]
        axes[0].annotate(
            group, (0, at), xycoords=("axes fraction", "data"), xytext=(-72 * left + 4, 0), textcoords="offset points",
            va="center", ha="left", fontsize=7.5, annotation_clip=False,
        )  # fmt: skip
        if at:
            for panel in axes:
                panel.axhline(at - 0.5 - HEADING / 2, color=style.FAINT, linewidth=0.5, zorder=0)
    return figure, axes


def draw_point(axes: Axes, at: float, row: Any, *, colour: str, near: bool) -> None:
    """One share with its interval: a disc at the training length, a ring just below it farther on."""
    y = at - 0.13 if near else at + 0.19
    axes.hlines(y, row["low"], row["high"], color=colour, linewidth=0.9 if near else 0.7, alpha=0.65 if near else 0.5)
    axes.plot(
        [row["successes"] / row["n"]], [y], "o", color=colour, markersize=3.4 if near else 2.8,
        markerfacecolor=colour if near else "white", markeredgecolor=colour, markeredgewidth=0.8, clip_on=False,
        zorder=4, linestyle="none",
    )  # fmt: skip


def write_count(axes: Axes, at: float, row: Any) -> None:
    """The number of seeds, at the right end."""
    axes.annotate(
        f"{int(row['successes'])}/{int(row['n'])}", (1, at), xycoords=("axes fraction", "data"), xytext=(5, 0),
        textcoords="offset points", fontsize=6, color=style.QUIET, va="center", annotation_clip=False,
    )  # fmt: skip


def legend(figure: Figure, near: float, far: float, colour: str = style.INK) -> None:
    """What discs and rings mean, along the top edge."""
    from matplotlib.lines import Line2D

    common: dict[str, Any] = {"color": colour, "marker": "o", "linestyle": "-", "linewidth": 0.9}
    handles = [
        Line2D([], [], markersize=3.4, label=f"at {near:g}x the training length", **common),
        Line2D([], [], markersize=2.8, markerfacecolor="white", label=f"at {far:g}x", **common),
    ]
    figure.legend(handles=handles, loc="upper right", ncols=2, bbox_to_anchor=(0.99, 0.995), borderaxespad=0.0)
