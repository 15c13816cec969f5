"""Figure: how first passages evict keys, beside the biases of FoX and FPA on the same tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from figures import style, words
from figures.drawing import Drawing

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# One character a token: brackets open and close a scope, letters are keys. The last dip kills four keys at once.
SEQUENCE = "A(BC(D)E(F(G))H)"
INCREMENTS = {"(": 1.0, ")": -1.0}  # keys leave the walk where it is: the numbers of claim nested-scope
ALIVE = "#FBF0C4"  # the colour of bias 0
LOG_GATES = {")": -1.0}  # FoX on the same tokens: closing decays everything before it


@dataclass(frozen=True)
class Example:
    """Everything drawn. Matrices are (query, key), NaN above the diagonal; deaths is seq_len where a key never dies."""

    tokens: str
    walk: np.ndarray
    deaths: np.ndarray
    fpa_bias: np.ndarray
    fox_bias: np.ndarray
    targets: np.ndarray

    @property
    def keys(self) -> list[int]:
        """Positions that hold keys."""
        return [position for position, token in enumerate(self.tokens) if token.isalpha()]

    def live(self, query: int) -> list[int]:
        """Keys alive at this query, the oldest first: the stack, bottom to top."""
        return [key for key in self.keys if self.targets[query, key]]


def example(tokens: str = SEQUENCE) -> Example:
    """The walk with tied levels, both bias matrices (penalty scale 1) and the keys of the scopes still open."""
    import numpy as np
    import torch

    from lab.ops import reference

    length = len(tokens)
    walk = np.cumsum([INCREMENTS.get(token, 0.0) for token in tokens])
    field = torch.from_numpy(walk)
    log_gate = torch.tensor([LOG_GATES.get(token, 0.0) for token in tokens], dtype=torch.float64)
    nothing = torch.zeros(length, 1, dtype=torch.float64)  # queries and keys: only the bias is left of the logits
    future = np.triu(np.ones((length, length), dtype=bool), 1)
    fox_bias = np.where(future, np.nan, reference.fox_logits(nothing, nothing, log_gate).numpy())
    fpa_bias = np.where(future, np.nan, -reference.penalty(field, field).numpy())
    deaths = scope_ends(tokens)
    positions = np.arange(length)
    is_key = np.array([token.isalpha() for token in tokens])
    targets = is_key & (positions[None, :] <= positions[:, None]) & (positions[:, None] < deaths[None, :])
    return Example(tokens, walk, deaths, fpa_bias, fox_bias, targets)


def scope_ends(tokens: str) -> np.ndarray:
    """Where the scope around each position closes (seq_len: never), read off the brackets, not off the walk."""
    import numpy as np

    ends = np.full(len(tokens), len(tokens))
    scopes: list[list[int]] = [[]]
    for position, token in enumerate(tokens):
        if token == "(":
            scopes.append([])
        elif token == ")":
            ends[scopes.pop()] = position
        else:
            scopes[-1].append(position)
    return ends


def draw() -> Drawing:
    """Walk and live stack on the left, the two bias matrices on the right."""
    shown = example()
    width, height = style.DOUBLE_COLUMN, 2.45
    figure = style.new_figure(width, height)

    def axes_at(name: str, left: float, bottom: float, wide: float, high: float) -> Axes:
        return figure.add_axes((left / width, bottom / height, wide / width, high / height), label=name)

    walk = axes_at("walk", 0.36, 1.10, 2.74, 1.14)
    stack = axes_at("stack", 0.36, 0.06, 2.74, 0.84)
    fox = axes_at("fox", 3.40, 0.44, 1.64, 1.64)
    fpa = axes_at("fpa", 5.15, 0.44, 1.64, 1.64)
    draw_walk(walk, shown)
    draw_stack(stack, shown)
    deepest = round(-np_nanmin(shown.fox_bias, shown.fpa_bias))
    draw_matrix(fox, shown, shown.fox_bias, deepest)
    draw_matrix(fpa, shown, shown.fpa_bias, deepest)
    fox.set_ylabel("query $i$")
    draw_keys_legend(fox)
    draw_scale(axes_at("scale", 6.02, 1.93, 0.74, 0.10), deepest)
    place_titles(figure, height)
    return Drawing(figure, caption(shown), rows(shown))


def place_titles(figure: Figure, height: float) -> None:
    """The three panel titles on one line."""
    titles = {
        0.06: r"$\bf{a}$  Field $u_t$, levels and first passages",
        3.32: r"$\bf{b}$  FoX bias $c_i-c_j$",
        5.08: r"$\bf{c}$  FPA bias $-\max(0,\,\ell_j-m_{ij})$",
    }
    for left, text in titles.items():
        figure.text(left / style.DOUBLE_COLUMN, 1 - 0.05 / height, text, fontsize=8.5, va="top")


def np_nanmin(*matrices: np.ndarray) -> float:
    """The smallest number of all the matrices, NaN aside."""
    import numpy as np

    return min(float(np.nanmin(matrix)) for matrix in matrices)


def draw_walk(axes: Axes, shown: Example) -> None:
    """The walk in steps; a dashed line carries each key's level to the position where the walk first falls below it."""
    import numpy as np

    colour = style.FAMILY_COLOURS["fpa"]
    length = len(shown.tokens)
    axes.stairs(shown.walk, np.arange(length + 1) - 0.5, baseline=None, color=colour, linewidth=1.4, zorder=3)
    for key in shown.keys:
        level = shown.walk[key]
        axes.plot(key, level, "o", markersize=8.4, color="white", markeredgecolor=colour, markeredgewidth=0.9, zorder=5)
        axes.text(key, level, shown.tokens[key], ha="center", va="center", fontsize=6.5, zorder=6)
    for level, death in sorted({(float(shown.walk[key]), int(shown.deaths[key])) for key in shown.keys}):
        oldest = min(key for key in shown.keys if shown.walk[key] == level and shown.deaths[key] == death)
        span = [oldest, min(death, length - 0.5)]
        axes.plot(span, [level, level], color=style.INK, linewidth=0.7, dashes=(2.4, 1.8), zorder=2)
    for death in sorted({int(shown.deaths[key]) for key in shown.keys} - {length}):
        draw_passage(axes, shown, death)
    axes.set(xlim=(-0.6, length - 0.4), ylim=(-0.4, shown.walk.max() + 0.8), ylabel="height")
    axes.set_yticks(np.arange(shown.walk.max() + 1))
    axes.tick_params(axis="x", length=0, labelbottom=False)
    axes.spines["bottom"].set_visible(False)


def draw_passage(axes: Axes, shown: Example, death: int) -> None:
    """A cross where the level of some keys is first passed, named after the keys that die there."""
    killed = [key for key in shown.keys if shown.deaths[key] == death]
    level = shown.walk[killed[0]]
    axes.plot(death, level, "x", markersize=4.6, markeredgewidth=1.3, color=style.INK, zorder=6)
    names = ", ".join(shown.tokens[key] for key in killed)
    if len(killed) == 1:
        axes.text(death - 0.3, level + 0.16, f"{names} dies", fontsize=7, va="bottom")
    else:  # too long to stand above: it goes below the level, left of the dip
        axes.text(death - 0.65, level - 0.3, f"{names} die", fontsize=7, ha="right", va="top")


def draw_stack(axes: Axes, shown: Example) -> None:
    """The live keys at every position, oldest at the bottom, under the tokens themselves."""
    from matplotlib.patches import Rectangle

    colour = style.FAMILY_COLOURS["fpa"]
    length = len(shown.tokens)
    for query in range(length):
        for height, key in enumerate(shown.live(query)):
            alpha = 0.42 if key == query else 0.13
            axes.add_patch(
                Rectangle((query - 0.45, height + 0.05), 0.9, 0.9, facecolor=colour, alpha=alpha, linewidth=0)
            )
            axes.text(query, height + 0.5, shown.tokens[key], ha="center", va="center", fontsize=6)
    tallest = max(len(shown.live(query)) for query in range(length))
    axes.set(xlim=(-0.6, length - 0.4), ylim=(0, tallest), ylabel="live stack", yticks=[])
    axes.set_xticks(range(length), list(shown.tokens), fontsize=8)
    axes.tick_params(axis="x", length=0, labeltop=True, labelbottom=False, pad=3)
    axes.spines[["left", "bottom"]].set_visible(False)


def draw_matrix(axes: Axes, shown: Example, bias: np.ndarray, deepest: int) -> AxesImage:
    """One bias matrix, hair lines between its cells; a dot marks every key that the query should read."""
    import numpy as np

    length = len(shown.tokens)
    image = axes.imshow(bias, cmap=colour_map(deepest), vmin=-deepest - 0.5, vmax=0.5, interpolation="nearest")
    for edge in range(length + 1):
        axes.plot([-0.5, edge - 0.5 if edge == length else edge + 0.5], [edge - 0.5] * 2, color="white", linewidth=0.4)
        axes.plot([edge - 0.5] * 2, [max(edge - 1, 0) - 0.5, length - 0.5], color="white", linewidth=0.4)
    queries, keys = np.nonzero(shown.targets)
    dark = bias[queries, keys] <= -2
    for chosen, ink in ((~dark, style.INK), (dark, "white")):
        axes.plot(keys[chosen], queries[chosen], "o", markersize=2, color=ink, markeredgewidth=0, linestyle="none")
    axes.set_xticks(range(length), list(shown.tokens))
    axes.set_yticks(range(length), list(shown.tokens))
    axes.set(xlim=(-0.5, length - 0.5), ylim=(length - 0.5, -0.5), xlabel="key $j$")
    axes.tick_params(length=0, labelsize=6.5, pad=1.5)
    axes.spines[:].set_visible(False)
    return image


def draw_keys_legend(axes: Axes) -> None:
    """What a dot means, in the empty corner of the triangle."""
    axes.plot([0.49], [0.945], "o", markersize=1.9, color=style.INK, markeredgewidth=0, transform=axes.transAxes)
    axes.text(0.53, 0.99, "keys that the\nquery should\nread", fontsize=7, va="top", transform=axes.transAxes)


def colour_map(deepest: int) -> ListedColormap:
    """One colour per whole number from -deepest to 0: zero is pale yellow, penalties are purple."""
    from matplotlib.colors import LinearSegmentedColormap, ListedColormap, to_hex

    purples = LinearSegmentedColormap.from_list("penalties", ["#35154A", "#7A4A8F", "#CDB1D6"])
    steps = max(deepest - 1, 1)
    colours = [to_hex(purples(step / steps)) for step in range(deepest)]
    return ListedColormap([*colours, ALIVE])


def draw_scale(axes: Axes, deepest: int) -> None:
    """The one colour scale of both matrices, in the empty corner of the second triangle."""
    import numpy as np

    values = np.arange(0, -deepest - 1, -1)
    axes.imshow(values[None, :], cmap=colour_map(deepest), vmin=-deepest - 0.5, vmax=0.5, aspect="auto")
    labels = [f"{value}".replace("-", "\N{MINUS SIGN}") for value in values]
    axes.set_xticks(range(deepest + 1), labels, fontsize=7)
    axes.set_yticks([])
    axes.tick_params(length=0, pad=2)
    axes.spines[:].set_visible(False)
    axes.annotate("alive", (0, 0.5), xytext=(0, -11), textcoords="offset points", fontsize=7, ha="center", va="top")


def caption(shown: Example) -> str:
    """What the figure shows; the zeros at targets are counted."""
    import numpy as np

    targets = int(shown.targets.sum())
    fpa, fox = (int((bias[shown.targets] == 0).sum()) for bias in (shown.fpa_bias, shown.fox_bias))
    dead = np.tril(np.isin(np.arange(len(shown.tokens)), shown.keys)[None, :] & ~shown.targets)
    killed = int((shown.fpa_bias[dead] < 0).sum())
    return words.paragraph(f"""
        **How first passages evict keys.** (a) The field on one nested-scope sequence: *(* raises the walk by 1,
        *)* lowers it by 1, keys (letters) leave it. A key's level is the walk where it stands (tied levels);
        dashed lines carry it to its first passage, the first position where the walk lies below it (cross).
        Below, at every position, the keys still alive, the oldest at the bottom. (b, c) The bias added to the
        content logit of key j at query i on the same tokens, on one colour scale: FoX with log gate −1 at every
        *)* and 0 elsewhere, and FPA with penalty scale 1. Pale yellow is exactly 0. Dots: the keys of scopes
        still open, which the query should read; columns of brackets are masked by content. At these {targets}
        places FPA's bias is 0 in {fpa} and FoX's in {fox}; at the {int(dead.sum())} places of dead keys FPA's is
        negative in {killed}. Computed from the definition: nothing is trained or sampled, so there is no n, interval
        or chance level.
    """)


def rows(shown: Example) -> pd.DataFrame:
    """One row per cell of the causal triangle."""
    import numpy as np
    import pandas as pd

    queries, keys = np.tril_indices(len(shown.tokens))
    return pd.DataFrame(
        {
            "query": queries + 1,
            "key": keys + 1,
            "query_token": [shown.tokens[i] for i in queries],
            "key_token": [shown.tokens[j] for j in keys],
            "field": shown.walk[queries],
            "level": shown.walk[keys],
            "fox_bias": shown.fox_bias[queries, keys],
            "fpa_bias": shown.fpa_bias[queries, keys],
            "target": shown.targets[queries, keys].astype(int),
        }
    )
