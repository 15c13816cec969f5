"""How every figure of the lab looks: physical sizes, one colour per head family, fonts, and the way files are written.

The same rows give the same bytes: fonts come with matplotlib, the user's matplotlibrc is not read, ids in SVG are
salted with a fixed word, and no file carries a date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import InputError, nearest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DOUBLE_COLUMN = 6.8  # inches
PNG_DPI = 300
FORMATS = ("pdf", "svg", "png")

INK = "#222222"
QUIET = "#6F6F6F"  # axes, notes, reference lines
FAINT = "#D9D9D9"  # hair lines
FAILED = "#ABABAB"  # seeds that do not succeed

# Okabe and Ito's palette: distinct in the three common kinds of colour blindness, and in grey print by marker.
FAMILY_COLOURS = {
    "fpa": "#0072B2",
    "fox": "#D55E00",
    "softmax": "#009E73",
    "selective": "#CC79A7",
    "stick": "#56B4E9",
}
FAMILY_NAMES = {
    "fpa": "FPA",
    "fox": "FoX",
    "softmax": "softmax",
    "selective": "selective attention",
    "stick": "stick-breaking",
}
OTHER_COLOUR = "#56453A"  # a family this module has not heard of

# Within a family heads share the colour. Shape tells the family (and for FPA the field) apart, filling the rest.
SOLID, OPEN, LIGHT = "solid", "open", "light"
HEAD_MARKERS = {
    "fpa-walk-tied": ("o", SOLID),
    "fpa-walk-offset": ("o", OPEN),
    "fpa-walk-free": ("o", LIGHT),
    "fpa-direct-tied": ("D", SOLID),
    "fpa-direct-offset": ("D", OPEN),
    "fpa-direct-free": ("D", LIGHT),
    "fpa-walk-tied-alibi": ("h", SOLID),
    "fpa-walk-offset-alibi": ("h", OPEN),
    "fpa-walk-tied-gate": ("*", SOLID),
    "fpa-walk-offset-gate": ("*", OPEN),
    "fox-gate0": ("v", SOLID),
    "fox-gate4": ("^", OPEN),
    "fox-relative": ("<", LIGHT),
    "softmax-none": ("s", SOLID),
    "softmax-alibi": ("s", OPEN),
    "softmax-relative": ("P", SOLID),
    "softmax-rope": ("X", LIGHT),
    "selective-none": ("H", SOLID),
    "selective-relative": ("d", SOLID),
    "selective-rope": ("d", OPEN),
    "selective-same-relative": ("H", OPEN),
    "selective-same-rope": ("d", LIGHT),
    "stick-breaking": (">", SOLID),
    "stick-breaking-strict": (">", OPEN),
    "softmax2-relative": ("P", OPEN),
    "softmax2-relative-mlp": ("P", LIGHT),
    "softmax2-rope": ("X", SOLID),
    "softmax2-rope-mlp": ("X", OPEN),
    "fox2-gate0": ("v", OPEN),
    "fox2-gate0-mlp": ("v", LIGHT),
    "fox2-gate4": ("^", SOLID),
    "fox2-gate4-mlp": ("^", LIGHT),
}
DASHES: dict[str, Any] = {SOLID: "-", OPEN: (0, (4, 1.6)), LIGHT: (0, (1.2, 1.2))}
HEAD_NAMES = {
    "fpa-walk-tied": "FPA walk tied",
    "fpa-walk-offset": "FPA walk offset",
    "fpa-walk-free": "FPA walk free",
    "fpa-direct-tied": "FPA direct tied",
    "fpa-direct-offset": "FPA direct offset",
    "fpa-direct-free": "FPA direct free",
    "fpa-walk-tied-alibi": "FPA walk tied, ALiBi",
    "fpa-walk-offset-alibi": "FPA walk offset, ALiBi",
    "fpa-walk-tied-gate": "FPA walk tied, gate",
    "fpa-walk-offset-gate": "FPA walk offset, gate",
    "fox-gate0": "FoX gate bias 0",
    "fox-gate4": "FoX gate bias 4",
    "fox-relative": "FoX relative",
    "softmax-none": "softmax",
    "softmax-alibi": "softmax ALiBi",
    "softmax-relative": "softmax relative",
    "softmax-rope": "softmax RoPE",
    "selective-none": "selective",
    "selective-relative": "selective relative",
    "selective-rope": "selective RoPE",
    "selective-same-relative": "selective relative, own row",
    "selective-same-rope": "selective RoPE, own row",
    "stick-breaking": "stick-breaking",
    "stick-breaking-strict": "stick-breaking, strict",
    "softmax2-relative": "2 softmax relative",
    "softmax2-relative-mlp": "2 softmax relative, MLP",
    "softmax2-rope": "2 softmax RoPE",
    "softmax2-rope-mlp": "2 softmax RoPE, MLP",
    "fox2-gate0": "2 FoX gate bias 0",
    "fox2-gate0-mlp": "2 FoX gate bias 0, MLP",
    "fox2-gate4": "2 FoX gate bias 4",
    "fox2-gate4-mlp": "2 FoX gate bias 4, MLP",
}

STYLE: dict[str, Any] = {
    "font.family": "serif",
    "font.serif": ["STIXGeneral"],  # comes with matplotlib, so the glyphs are the same everywhere
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "legend.fontsize": 7.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": QUIET,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlepad": 5.0,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.borderpad": 0.0,
    "legend.columnspacing": 1.4,
    "legend.handletextpad": 0.5,
    "figure.dpi": 100.0,
    "savefig.dpi": PNG_DPI,
    "pdf.fonttype": 42,  # TrueType, as publishers ask; text stays text
    "ps.fonttype": 42,
    "pdf.compression": 6,
    "svg.fonttype": "path",  # glyphs as outlines: looks the same where the font is not installed
    "svg.hashsalt": "first-passage-attention-lab",
}
# None removes what matplotlib would otherwise write on its own.
METADATA: dict[str, dict[str, Any]] = {
    "pdf": {"CreationDate": None, "ModDate": None},
    "svg": {"Date": None},
    "png": {"Software": None},
}


@contextmanager
def paper() -> Iterator[None]:
    """The lab's style over matplotlib's own defaults (never over a user's matplotlibrc), restored on leaving."""
    from matplotlib import style

    with style.context(["default", STYLE], after_reset=True):
        yield


@dataclass(frozen=True)
class HeadLook:
    """How one head is drawn in every figure."""

    label: str
    family: str
    name: str
    colour: str
    shape: str
    filling: str

    @property
    def face(self) -> Any:
        """Colour inside the marker."""
        from matplotlib.colors import to_rgb

        if self.filling == LIGHT:
            return tuple(1 - 0.42 * (1 - part) for part in to_rgb(self.colour))
        return self.colour if self.filling == SOLID else "white"

    @property
    def marker(self) -> dict[str, Any]:
        """Keywords of a Line2D that draw the marker."""
        return {
            "color": self.colour,
            "marker": self.shape,
            "markersize": 3.0 if self.shape == "D" else 3.4 if self.shape in "so" else 4.0,
            "markerfacecolor": self.face,
            "markeredgecolor": self.colour,
            "markeredgewidth": 0.8,
        }

    @property
    def line(self) -> Any:
        """The line style that goes with the marker's filling."""
        return DASHES[self.filling]


def family_of(label: str) -> str:
    """The family of a head label: "fpa-walk-tied" -> "fpa". Two layers are of the family of their heads."""
    return label.split("-", 1)[0].removesuffix("2")


def look(label: str) -> HeadLook:
    """Colour by family, marker by head; an unknown head gets a pentagon and its own label as name."""
    family = family_of(label)
    shape, filling = HEAD_MARKERS.get(label, ("p", SOLID))
    return HeadLook(
        label, family, HEAD_NAMES.get(label, label), FAMILY_COLOURS.get(family, OTHER_COLOUR), shape, filling
    )


def in_order(labels: Iterable[str]) -> list[str]:
    """Heads in the order of the lab's figures: FPA, FoX, softmax, then any others by name."""
    known = list(HEAD_NAMES)
    return sorted(set(labels), key=lambda label: (known.index(label) if label in known else len(known), label))


def new_figure(width: float, height: float) -> Figure:
    """A figure of exactly this size in inches on the Agg canvas, without pyplot's global list of figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def panel_title(axes: Axes, letter: str, text: str) -> None:
    """Panel letter in bold, then the title, flush left."""
    axes.set_title(rf"$\bf{{{letter}}}$  {text}")


def quiet_grid(axes: Axes, axis: str = "y") -> None:
    """Hair lines behind the data, along one axis only."""
    axes.grid(axis=axis, color=FAINT, linewidth=0.5)  # type: ignore[arg-type]


def stamp_partial(figure: Figure, missing: int) -> None:
    """Says across the figure that cells are missing, so that nobody mistakes it for the finished one."""
    figure.text(
        0.5, 0.5, "PARTIAL", fontsize=40, fontweight="bold", color="#C00000", alpha=0.16, rotation=18,
        ha="center", va="center", zorder=100,
    )  # fmt: skip
    figure.text(
        0.995, 0.995, f"PARTIAL: {missing} cells missing", fontsize=7, fontweight="bold", color="#C00000",
        ha="right", va="top", zorder=101,
    )  # fmt: skip


def check_formats(formats: Sequence[str]) -> list[str]:
    """Formats without duplicates, in the order asked for; InputError names the first unknown one."""
    if not formats:
        raise InputError(f"figures: --format: expected at least one of {', '.join(FORMATS)}")
    for name in formats:
        if name not in FORMATS:
            raise InputError(f"figures: --format: unknown format {name!r}{nearest(name, FORMATS)}")
    return list(dict.fromkeys(formats))


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str]) -> list[Path]:
    """Writes folder/name.FORMAT for each format; the same figure gives the same bytes on every call.

    OSError is left to the caller, who knows what was being asked for.
    """
    paths = []
    for extension in check_formats(formats):
        path = folder / f"{name}.{extension}"
        with paper():
            figure.savefig(path, format=extension, metadata=METADATA[extension])
        paths.append(path)
    return paths
