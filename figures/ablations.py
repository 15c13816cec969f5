"""Figure: seeds that succeed when one setting of the recipe, or the form of the head, is changed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from figures import panels, style, success_rows, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from figures.inputs import Results

RECIPE, FORM = "the recipe", "another form"
FORMS = style.in_order(label for label in style.HEAD_NAMES if label.startswith("fpa"))
# What a configuration changes -> the group of rows it stands in, in the order of the figure.
GROUPS: dict[tuple[str, ...], str] = {
    (): RECIPE,
    ("smoothing",): "smoothing",
    ("initial_scale",): "initial scale",
    ("initial_drift",): "initial drift",
    ("initial_drift", "smoothing"): "drift, no smoothing",
    ("learning_rate",): "learning rate",
    ("penalty_scale",): "penalty scale",
    ("form",): FORM,
}
COLUMNS = ["task", "group", "setting", "head", "dim", "learning_rate", *success_rows.COUNTS]


def draw(results: Results) -> Drawing:
    """One panel per task; a row per setting, the recipe itself on top."""
    table = measured(results)
    tasks = panels.tasks_in_order(table["task"])
    rows = table.assign(form=table["head"].map(FORMS.index)).sort_values("form", kind="stable")
    groups = {
        group: list(dict.fromkeys((rows if group == FORM else table).loc[table["group"] == group, "setting"]))
        for group in GROUPS.values()
        if (table["group"] == group).any()
    }
    figure, axes = success_rows.new_rows(groups, tasks, left=1.62)
    where = success_rows.places(groups)
    factors = sorted(set(table["factor"]))
    for panel, task in zip(axes, tasks):
        for _, row in table[table["task"] == task].iterrows():
            at, near = where[row["group"], row["setting"]], row["factor"] == factors[0]
            if row["factor"] in (factors[0], factors[-1]):
                success_rows.draw_point(panel, at, row, colour=style.FAMILY_COLOURS["fpa"], near=near)
            if near:
                success_rows.write_count(panel, at, row)
    success_rows.legend(figure, factors[0], factors[-1], style.FAMILY_COLOURS["fpa"])
    return Drawing(figure, caption(table, factors), table)


def measured(results: Results) -> pd.DataFrame:
    """One row per task, setting and factor of the training length, in the order of the figure."""
    import pandas as pd

    cells = results.frames.cells
    if cells.empty:
        raise InputError(f"ablations: {results.frames.origin}: expected results of ablations")
    changes = [changed(json.loads(config)) for config in cells["config"]]
    order = {group: place for place, group in enumerate(GROUPS.values())}
    about = pd.DataFrame(
        {
            "group": [GROUPS[tuple(sorted(change))] for change in changes],
            "setting": [name_of(change) for change in changes],
            "value": [
                next((float(v) for v in change.values() if isinstance(v, int | float)), 0.0) for change in changes
            ],
        },
        index=cells.index,
    )
    table = success_rows.counted(results.frames, cells.join(about))
    tasks = panels.tasks_in_order(table["task"])
    table = table.assign(
        place=table["group"].map(order), at=table["task"].map(tasks.index), form=table["head"].map(FORMS.index)
    )
    return table.sort_values(["at", "place", "value", "form", "factor"], kind="stable")[COLUMNS].reset_index(drop=True)


def changed(config: dict[str, Any]) -> dict[str, Any]:
    """In what a stored configuration differs from the recipe and from the form that fits its task."""
    from experiments.target_sets import FITTING
    from lab.heads.config import LABELS, FpaConfig
    from lab.training.recipe import Recipe

    recipe = Recipe.model_validate(config["recipe"]).model_dump(exclude_defaults=True)
    head = FpaConfig.model_validate(config["head"])
    plain = {} if head.penalty_scale == 1 else {"penalty_scale": head.penalty_scale}
    form = {} if head.label == FITTING[config["task"]["name"]] else {"form": head.label}
    assert head.label in LABELS
    return {**recipe, **plain, **form}


def name_of(change: dict[str, Any]) -> str:
    """The name of a row: the value of what is changed, with the symbol that the theory has for it."""
    if not change:
        return ""
    if "form" in change:
        return style.HEAD_NAMES.get(change["form"], change["form"]).removeprefix("FPA ")
    symbols = {"smoothing": r"$\tau$", "initial_scale": "std", "initial_drift": "mean", "penalty_scale": r"$\lambda$"}
    [name] = [key for key in change if len(change) == 1 or key == "initial_drift"]
    value = f"{change[name]:g}".replace("-", "\N{MINUS SIGN}")
    return f"{symbols[name]} = {value}" if name in symbols else value


def said_plainly(row: Any) -> str:
    """The group and the setting of a row, without TeX."""
    return f"{row['group']} {row['setting']}".strip().replace("$", "").replace("\\", "")


def caption(table: pd.DataFrame, factors: list[float]) -> str:
    """What the figure shows; what the recipe itself and the settings that lose seeds reach is said in numbers."""
    near, far = (table[table["factor"] == factor].reset_index(drop=True) for factor in (factors[0], factors[-1]))
    own = near[near["group"] == RECIPE]
    said = [f"{counted(row)} ({row['task']}, {row['head']})" for row in own.to_dict("records")]
    lost = near["successes"] < near["n"]
    settings = ~near["group"].isin((RECIPE, FORM))
    later = ~lost & (far["successes"] < far["n"])
    return words.paragraph(f"""
        **What the recipe needs.** Seeds that succeed when one setting is changed and everything else stays: smoothing
        of the penalty (tau at the first step; 0 is none), standard deviation of the initial increments and levels, mean
        of the initial increments of a walk (negative: a walk that falls at the start, as FoX does), learning rate,
        penalty scale, and the forms of field and level other than the one that fits the task. A row is empty where a
        task has no such setting: a direct field has no increments, and the form that fits is no other form.
        {words.SUCCESS} Discs: at {factors[0]:g}x the training length, counts beside them; rings: at {factors[-1]:g}x,
        judged by the same two numbers there. n = {words.count_range(near["n"])} seeds per point; bars:
        Clopper–Pearson 95% intervals. A reader that weights all keys so far equally succeeds on no seed
        (chance: 0). The recipe itself: {words.listing(said)}. Settings that lose seeds at {factors[0]:g}x:
        {listed(near[lost & settings])}. Settings and forms that lose none there, but at {factors[-1]:g}x:
        {listed(far[later])}.
    """)


def listed(rows: pd.DataFrame) -> str:
    """Every row with its count, the least first."""
    records = rows.sort_values("successes", kind="stable").to_dict("records")
    return "; ".join(f"{said_plainly(row)}: {counted(row)} ({row['task']})" for row in records) or "none"


def counted(row: Any) -> str:
    """Seeds that succeed, of how many."""
    return f"{int(row['successes'])} of {int(row['n'])}"
