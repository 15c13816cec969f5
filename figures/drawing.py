"""What a figure module hands back: the figure, the caption written for its data, and the rows that were drawn."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawing:
    """One finished figure.

    `rows` holds every number that the figure shows, one mark a row; it is written beside the figure as NAME.csv, and
    its hash stands in the caption, so that anyone can tell whether two figures show the same data.
    """

    figure: Figure
    caption: str
    rows: pd.DataFrame


def csv_bytes(rows: pd.DataFrame) -> bytes:
    """The rows as CSV: nine significant digits, Unix line ends, the same bytes on every platform."""
    return rows.to_csv(index=False, float_format="%.9g", lineterminator="\n").encode("utf-8")


def data_hash(rows: pd.DataFrame) -> str:
    """sha256 of the CSV, in hexadecimal: what `sha256sum NAME.csv` prints."""
    return hashlib.sha256(csv_bytes(rows)).hexdigest()
