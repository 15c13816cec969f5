"""Panels at exact places and legends by head family: the parts that several figures share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from figures import style

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def panel_grid(
    figure: Figure, rows: int, columns: int, *, left: float, right: float, top: float, bottom: float,
    between_columns: float, between_rows: float,
) -> list[Axes]:  # fmt: skip
    """Equal panels, row by row; every length in inches. Margins stay the same when fonts or labels change."""
    width, height = figure.get_size_inches()
    wide = (width - left - right - between_columns * (columns - 1)) / columns
    high = (height - top - bottom - between_rows * (rows - 1)) / rows
    return [
        figure.add_axes(
            (
                (left + column * (wide + between_columns)) / width,
                (height - top - high - row * (high + between_rows)) / height,
                wide / width,
                high / height,
            )
        )
        for row in range(rows)
        for column in range(columns)
    ]


def legend_rows(labels: Sequence[str]) -> int:
    """Lines of text that family_legend takes: a family of more than three heads is set in two columns or more."""
    if len(families(labels)) == 1:
        return -(-len(labels) // 4)
    sizes = [sum(style.family_of(label) == family for label in labels) for family in families(labels)]
    return min(3, max(sizes, default=1))


def families(labels: Sequence[str]) -> list[str]:
    """Families in the order of the figures."""
    return list(dict.fromkeys(style.family_of(label) for label in style.in_order(labels)))


def family_legend(figure: Figure, labels: Sequence[str], *, left: float, top: float, lines: bool = False) -> None:
    """Heads grouped by family, side by side along the top edge; `left` and `top` in inches from the top left corner."""
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    depth = legend_rows(labels)
    for family in families(labels):
        members = [label for label in style.in_order(labels) if style.family_of(label) == family]
        handles = []
        for label in members:
            head = style.look(label)
            handles.append(Line2D([], [], **head.marker, linestyle=head.line if lines else "none", label=head.name))
        legend = figure.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(left / width, 1 - top / height),
            ncols=-(-len(members) // depth),
            labelspacing=0.3,
            borderaxespad=0.0,
            handlelength=2.6 if lines else 0.8,
        )
        box = legend.get_window_extent(figure.canvas.get_renderer())  # type: ignore[attr-defined]
        left += box.width / figure.dpi + 0.22


def note(axes: Axes, text: str, *, x: float, y: float, **options: object) -> None:
    """A quiet remark in axes coordinates."""
    axes.text(x, y, text, transform=axes.transAxes, fontsize=7, color=style.QUIET, **options)  # type: ignore[arg-type]


def name_level(axes: Axes, text: str, level: float) -> None:
    """Names a horizontal line at its right end, outside the axes, where no data is."""
    axes.annotate(
        text, (1, level), xycoords=("axes fraction", "data"), xytext=(3, 0), textcoords="offset points",
        fontsize=7, color=style.QUIET, va="center", annotation_clip=False,
    )  # fmt: skip


def dodge(count: int, pitch: float) -> np.ndarray:
    """Offsets of `count` neighbours around 0, `pitch` apart."""
    import numpy as np

    return (np.arange(count) - (count - 1) / 2) * pitch


def spread(values: np.ndarray, reach: float) -> np.ndarray:
    """Sideways offsets in [-reach, reach] that keep equal values apart: by rank in a fixed order, never by chance.

    Golden-ratio steps fill the interval evenly whatever the number of points.
    """
    import numpy as np

    order = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return (np.modf((order + 1) * 0.6180339887498949)[0] * 2 - 1) * reach


def tasks_in_order(names: pd.Series) -> list[str]:
    """The lab's own tasks first, in the order in which its texts speak of them, then others by name."""
    known = ["nested-scope", "leveled-dips", "subset-drop", "subset-free", "scoped-lookup", "passkey"]
    return sorted(set(names), key=lambda name: (known.index(name) if name in known else len(known), name))


def panel_row(
    figure: Figure, shares: Sequence[float], *, left: float, right: float, top: float, bottom: float, between: float
) -> list[Axes]:
    """Panels side by side whose widths are in the ratio of `shares`; lengths in inches."""
    width, height = figure.get_size_inches()
    room = width - left - right - between * (len(shares) - 1)
    axes = []
    for share in shares:
        wide = room * share / sum(shares)
        axes.append(figure.add_axes((left / width, bottom / height, wide / width, (height - top - bottom) / height)))
        left += wide + between
    return axes
