"""One module per figure; every figure of results is drawn from stored rows and never trains anything.

    make_figures(["success"], source="published", formats=["pdf"], out="figures-out")

writes the figure, the rows it shows and its caption.
"""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

__all__ = ["FIGURES", "Incomplete", "make_figures"]

# Name -> module with a function draw(...) -> figures.drawing.Drawing.
FIGURES = {
    "mechanism": "figures.mechanism",
    "convergence": "figures.convergence",
    "success": "figures.success",
    "length": "figures.length",
    "learned_field": "figures.learned_field",
    "source_scopes": "figures.source_scopes",
    "drift": "figures.drift",
    "scoped_lookup": "figures.scoped_lookup",
    "minimum_dimension": "figures.minimum_dimension",
    "ablations": "figures.ablations",
    "rivals": "figures.rivals",
    "cost": "figures.cost",
}
# These explain; they need no results.
WITHOUT_RESULTS = frozenset({"mechanism"})
# Figure -> the experiment whose results it shows, where not target_sets; "bench" is what `fpa-lab bench` measured.
EXPERIMENT_OF: dict[str, str] = {
    "drift": "length",
    "scoped_lookup": "scoped_lookup",
    "minimum_dimension": "minimum_dimension",
    "ablations": "ablations",
    "rivals": "rivals",
    "cost": "bench",
}


class Incomplete(Exception):
    """Results lack cells that their plan asked for: exit status 1. `missing` has one line per cell."""

    def __init__(self, source: str, missing: Sequence[str]):
        self.missing = list(missing)
        super().__init__(f"{source}: {len(self.missing)} cells missing (draw anyway with --partial)")


def make_figures(
    names: Sequence[str] = (),
    source: str | PathLike[str] = "published",
    formats: Sequence[str] = ("pdf", "svg", "png"),
    out: str | PathLike[str] = "figures-out",
    partial: bool = False,
) -> list[Path]:
    """Draws the named figures (when none is named, all that the source has results for) into `out`, made when missing.

    source: "published" for the results that come with the lab, else a store or a folder of exported results. For each
    figure NAME, writes NAME.FORMAT, the rows it shows as NAME.csv, and its caption as NAME.md; returns all paths in
    that order. The same rows give the same bytes. Nothing is written unless every figure can be drawn.

    Raises InputError for an unknown name or format, for a source or `out` that cannot be used, and for results
    that hold no row of a figure; Incomplete when the source lacks cells of its plan, unless `partial`, which
    stamps PARTIAL on the figures instead.
    """
    from figures.build import build

    return build(list(names), source, list(formats), Path(out), partial)
