"""Figure: how far beyond the training length the target sets hold, and what goes first, by recipe and level form."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from figures import panels, style, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from figures.inputs import Results

# What a recipe changes -> its name and colour; Okabe and Ito's palette again.
RECIPES = {
    "": ("the recipe", "#0072B2"),
    "lengths": ("lengths 1, 2, 4 mixed", "#009E73"),
    "steps": ("three times the steps", "#E69F00"),
    "smoothing": ("smoothing twice as strong", "#D55E00"),
    "smoothing_until": ("smoothing to the end", "#CC79A7"),
}
FORM_DASHES: dict[str, Any] = {"tied": (0, (3.2, 1.4)), "offset": "-", "free": "-"}
WINDOW_FLOOR = 1e-3  # smaller windows are drawn here: float32 parameters mean little below it
# The increments that should cancel: what lifts the walk, and what lets it fall again.
PAIRS = {"nested-scope": ("open", "close"), "subset-drop": ("key", "drop")}
KEYS = ["task", "trained_at", "recipe", "form", "sum_dtype", "factor"]


def draw(results: Results) -> Drawing:
    """A row per task: seeds that succeed after training at either length, then the largest window and the least gap."""
    table = measured(results)
    tasks = panels.tasks_in_order(table["task"])
    figure = style.new_figure(style.DOUBLE_COLUMN, 0.62 + 1.52 * len(tasks))
    axes = panels.panel_grid(
        figure, len(tasks), 4, left=0.46, right=0.10, top=0.66, bottom=0.40, between_columns=0.42, between_rows=0.42
    )
    drawn = table[table["sum_dtype"] == "float64"]
    for row, task in enumerate(tasks):
        mine = drawn[drawn["task"] == task]
        shorter, longer = min(mine["trained_at"]), max(mine["trained_at"])
        draw_row(axes[4 * row : 4 * row + 4], mine, shorter, longer)
        for panel, text in zip(
            axes[4 * row : 4 * row + 4],
            (f"{task}, trained at {shorter}", f"trained at {longer}", "largest window", "least gap"),
        ):
            style.panel_title(panel, "abcdefghijklmnop"[axes.index(panel)], text)
            if row == len(tasks) - 1:
                panel.set_xlabel("length / training length")
    legend(figure)
    return Drawing(figure, caption(table), table)


def measured(results: Results) -> pd.DataFrame:
    """One row per cell and factor: successes with their interval, and quartiles over seeds.

    The quartiles are of a seed's largest window and least gap, and of its drift: what a pair of increments that should
    cancel adds up to, as a share of the fall (negative: the walk sinks).
    """
    import pandas as pd

    from lab.sweeps.statistics import clopper_pearson

    settings = pd.DataFrame([described(config) for config in results.frames.cells["config"]])
    settings["cell"] = results.frames.cells["cell"].to_numpy()
    tests = results.tests(results.frames.cells).drop(columns=["task", "head"]).merge(settings, on="cell")
    if tests.empty:
        raise InputError(f"drift: {results.frames.origin}: expected test evaluations")
    tests["drift"] = tests.set_index(["cell", "seed"]).index.map(drifts(results, settings))
    rows = []
    for keys, seeds in tests.groupby(KEYS, sort=True):
        n, successes = len(seeds), int(seeds["success"].sum())
        low, high = clopper_pearson(successes, n)
        row = dict(zip(KEYS, keys)) | {"n": n, "successes": successes, "low": low, "high": high}
        for name in ("window_max", "gap_min", "drift"):
            for label, share in (("q25", 0.25), ("median", 0.5), ("q75", 0.75)):
                row[f"{name}_{label}"] = float(seeds[name].quantile(share))
        rows.append(row)
    return pd.DataFrame(rows)


def drifts(results: Results, settings: pd.DataFrame) -> dict[Any, float]:
    """By cell and seed, (rise + fall) / |fall| of the learned increments; nothing for a field that is no walk."""
    learned = results.frames.parameters
    learned = learned[learned["name"] == "increment"].pivot(index=["cell", "seed"], columns="token", values="value")
    parts = []
    for task, (rise, fall) in PAIRS.items():
        mine = learned[learned.index.isin(settings.loc[settings["task"] == task, "cell"], level="cell")]
        if len(mine):
            parts.append((mine[rise] + mine[fall]) / mine[fall].abs())
    return {key: value for part in parts for key, value in part.items()}


def described(config: str) -> dict[str, Any]:
    """What tells the cells of this experiment apart, from the stored configuration."""
    from lab.sweeps.plan import TaskConfig
    from lab.training.recipe import Recipe

    cell = json.loads(config)
    default = Recipe().model_dump(mode="json")
    changed = [name for name, value in cell["recipe"].items() if value != default.get(name)]
    task = TaskConfig(**cell["task"])
    return {
        "task": task.name,
        "trained_at": task.make().train_length,
        "recipe": "+".join(changed),
        "form": cell["head"]["level"],
        "sum_dtype": cell["head"].get("sum_dtype", "float64"),
    }


def draw_row(axes: list[Axes], table: pd.DataFrame, shorter: int, longer: int) -> None:
    """Successes at both training lengths, windows and gaps at the shorter."""
    for panel, trained_at in zip(axes, (shorter, longer)):
        for mine, look in lines(table[table["trained_at"] == trained_at]):
            panel.plot(mine["factor"], mine["successes"] / mine["n"], **look, clip_on=False)
        panel.set_ylim(-0.03, 1.03)
        panel.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    for panel, name in zip(axes[2:], ("window_max", "gap_min")):
        for mine, look in lines(table[table["trained_at"] == shorter]):
            low, middle, high = (mine[f"{name}_{label}"] for label in ("q25", "median", "q75"))
            if name == "window_max":
                low, middle, high = (values.clip(lower=WINDOW_FLOOR) for values in (low, middle, high))
            panel.fill_between(mine["factor"], low, high, color=look["color"], alpha=0.15, linewidth=0)
            panel.plot(mine["factor"], middle, **look)
    axes[2].set_yscale("log")
    axes[2].minorticks_off()
    axes[3].set_yscale("symlog", linthresh=1.0)
    axes[3].minorticks_off()
    axes[3].axhline(0, color=style.INK, linewidth=0.6)
    axes[0].set_ylabel("seeds that succeed")
    axes[2].set_ylabel("nats")
    for panel in axes:
        factors = sorted(set(table["factor"]))
        panel.set_xscale("log", base=2)
        panel.set_xticks(factors[::2], [f"{factor:g}\N{MULTIPLICATION SIGN}" for factor in factors[::2]])
        panel.minorticks_off()
        style.quiet_grid(panel)


def lines(table: pd.DataFrame):
    """(rows of one recipe and form by factor, keywords of its line)."""
    for recipe, (_, colour) in reversed(RECIPES.items()):
        for form in ("tied", "offset", "free"):
            mine = table[(table["recipe"] == recipe) & (table["form"] == form)].sort_values("factor")
            if len(mine):
                look = {"color": colour, "linestyle": FORM_DASHES[form], "marker": "o", "markersize": 2.0}
                yield mine, {**look, "linewidth": 1.0}


def legend(figure: Figure) -> None:
    """Recipes by colour, forms by dash, along the top edge."""
    from matplotlib.lines import Line2D

    colours = [Line2D([], [], color=colour, label=name) for name, colour in RECIPES.values()]
    dashes = [
        Line2D([], [], color=style.INK, linestyle=FORM_DASHES["offset"], label="offset levels (free on leveled-dips)"),
        Line2D([], [], color=style.INK, linestyle=FORM_DASHES["tied"], label="tied levels"),
    ]
    width, height = figure.get_size_inches()
    figure.legend(
        handles=[*colours, *dashes], loc="upper left", bbox_to_anchor=(0.46 / width, 1 - 0.06 / height), ncols=4,
        labelspacing=0.3, borderaxespad=0.0, handlelength=2.4,
    )  # fmt: skip


def caption(table: pd.DataFrame) -> str:
    """What the figure shows; what failed at the greatest length is said in numbers."""
    last = table[(table["factor"] == table["factor"].max()) & (table["sum_dtype"] == "float64")]
    failing = [
        f"{task} trained at {length}, {form}, {RECIPES.get(recipe, (recipe, ''))[0]}: {successes} of {n}"
        for task, length, form, recipe, successes, n in zip(
            last["task"], last["trained_at"], last["form"], last["recipe"], last["successes"], last["n"]
        )
        if successes < n
    ]
    return words.paragraph(f"""
        **What breaks beyond the training length.** FPA heads of dimension 1 read without retraining at 1 to
        {table["factor"].max():g} times the length trained at; n = {words.count_range(table["n"])} seeds each. Left:
        share of seeds that succeed (exact-set rate of at least 0.99 and mean total variation of at most 0.05) at that
        length by itself. Right, for the shorter training length, median and quartiles over seeds of the worst query
        of a seed: the largest spread of the target's logits (values below {WINDOW_FLOOR:g} are drawn there) and the
        least gap between the target and everything else. A sinking walk widens the window and takes it from the gap;
        a rising one leaves the window and spares what should die. Not 32 of 32 at
        {table["factor"].max():g} times: {"; ".join(failing) or "none"}. {sums(table)}
    """)


def sums(table: pd.DataFrame) -> str:
    """What summing the walk in float32 changed: the largest difference of the successes at equal settings."""
    names = [name for name in KEYS if name != "sum_dtype"]
    wide, narrow = (
        table[table["sum_dtype"] == dtype].set_index(names)["successes"] for dtype in ("float64", "float32")
    )
    if narrow.empty:
        return ""
    change = (narrow - wide.reindex(narrow.index)).abs()
    most = int(change.max())
    seeds = "no seed" if most == 0 else f"{most} seeds at most" if most > 1 else "one seed at most"
    return f"Summing the walk in float32 changes the successes by {seeds}, at the {len(narrow)} points compared."
