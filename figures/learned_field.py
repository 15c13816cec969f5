"""Figure: the increments, fields and levels that seeds learned, against those of the theory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from figures import panels, style, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from figures.inputs import Results


@dataclass(frozen=True)
class WalkTheory:
    """Increments in units of a, the step of the walk: a seed's a is half the difference of its steps up and down."""

    up: str
    down: str
    increments: dict[str, int]
    # Offsets of a key at which closing a scope kills its keys and nothing else, in units of a (claim walk-drift).
    offsets: tuple[float, float] | None = None


# Claims nested-scope and constant-dimension of THEORY.md.
WALKS = {
    "nested-scope": WalkTheory("open", "close", {"open": 1, "close": -1, "key": 0}, offsets=(-1.0, 0.0)),
    "subset-drop": WalkTheory("key", "drop", {"key": 1, "drop": -1, "keep": 0, "query": 0}),
}
LEVELED = "leveled-dips"
SEED = ["task", "head", "dim", "seed"]
COLUMNS = [*SEED, "success", "name", "token", "place", "raw", "step", "value", "theory"]


def draw(results: Results) -> Drawing:
    """One panel per task whose theory is known; one dot per seed, at each FPA head's best dimension.

    Heads of which no seed succeeds learned no field to speak of: the caption names them.
    """
    import pandas as pd

    best = results.best_dimension(by="head")
    best = best[(best["head"].map(style.family_of) == "fpa") & best["task"].map(task_name).isin({*WALKS, LEVELED})]
    learned, failed = best[best["successes"] > 0], best[best["successes"] == 0]
    if learned.empty:
        raise InputError("learned_field: expected results of an FPA head that a seed trained with success")
    parameters = with_success(results, learned)
    tables = []
    for task in panels.tasks_in_order(parameters["task"]):
        mine = parameters[parameters["task"] == task]
        tables.append(leveled_rows(mine) if task_name(task) == LEVELED else walk_rows(mine, WALKS[task_name(task)]))
    tables = [table for table in tables if len(table)]
    rows = pd.concat(tables, ignore_index=True)
    heads = style.in_order(rows["head"])
    legend = 0.06 + 0.135 * panels.legend_rows(heads)
    figure = style.new_figure(style.DOUBLE_COLUMN, legend + 2.1)
    widths = [table["place"].nunique() + 0.6 for table in tables]
    axes = panels.panel_row(figure, widths, left=0.42, right=0.05, top=legend + 0.3, bottom=0.36, between=0.46)
    for index, (panel, table) in enumerate(zip(axes, tables)):
        task = str(table["task"].iloc[0])
        style.panel_title(panel, "abcdefghij"[index], task)
        draw_dots(panel, table)
        panel.set_ylim(*limits(table))
        if task_name(task) == LEVELED:
            finish_leveled(panel, table)
        else:
            finish_walk(panel, table, WALKS[task_name(task)])
    panels.family_legend(figure, heads, left=0.42, top=0.06)
    return Drawing(figure, caption(rows, failed), rows)


def task_name(label: str) -> str:
    """The task without its options: "nested-scope[max_depth=8]" -> "nested-scope"."""
    return label.split("[", 1)[0]


def with_success(results: Results, learned: pd.DataFrame) -> pd.DataFrame:
    """The parameters of the chosen cells, and whether their seed succeeds."""
    parameters = results.of(results.frames.parameters, learned).rename(columns={"train_task": "task"})
    tests = results.tests(learned)
    return parameters.merge(tests.loc[tests["factor"] == 1, ["cell", "seed", "success"]], on=["cell", "seed"])


def walk_rows(parameters: pd.DataFrame, theory: WalkTheory) -> pd.DataFrame:
    """Increments, and offsets of the key, of the heads with a walk, in units of each seed's own step."""
    import pandas as pd

    order = {token: place for place, token in enumerate(theory.increments)}
    increments = parameters[(parameters["name"] == "increment") & parameters["token"].isin(order)]
    offsets = parameters[(parameters["name"] == "offset") & (parameters["token"] == "key")]
    offsets = offsets[offsets["head"].isin(set(increments["head"]))]
    wide = increments.pivot_table(index=SEED, columns="token", values="value")
    step = ((wide[theory.up] - wide[theory.down]) / 2).rename("step")
    table = pd.concat([increments, offsets]).rename(columns={"value": "raw"}).join(step, on=SEED)
    table["value"] = table["raw"] / table["step"]
    is_offset = table["name"] == "offset"
    table["place"] = table["token"].map(order).mask(is_offset, len(order))
    table["theory"] = table["token"].map(theory.increments).astype(float).mask(is_offset)
    return published(table)


def leveled_rows(parameters: pd.DataFrame) -> pd.DataFrame:
    """Levels of keys and field of dips, of heads with a direct field; lowest level 0, highest level 1.

    Key b must survive dip b and die at dip b-1, so the theory's order is key 1, dip 1, key 2, dip 2, ... The last
    place is the lowest field at any key: it must not lie below the highest level, or a key would kill.
    """
    import pandas as pd

    direct = parameters[parameters["head"].str.startswith("fpa-direct")]
    wide = direct.pivot_table(index=[*SEED, "success", "token"], columns="name", values="value")
    wide = wide.reindex(columns=["field", "level", "offset"]).reset_index()
    kind = wide["token"].str.extract(r"^(key|dip)(\d+)$")
    wide["number"] = kind[1].astype(int)
    keys, dips = wide[kind[0] == "key"].copy(), wide[kind[0] == "dip"].copy()
    keys["raw"] = keys["level"].fillna(keys["field"] + keys["offset"].fillna(0.0))
    keys["place"] = 2 * keys["number"] - 2
    dips["raw"] = dips["field"]
    dips["place"] = 2 * dips["number"] - 1
    at_keys = keys.groupby([*SEED, "success"], as_index=False).agg(raw=("field", "min"))
    at_keys = at_keys.assign(token="all keys", place=2 * int(keys["number"].max()))
    table = pd.concat([keys.assign(name="level"), dips.assign(name="field"), at_keys.assign(name="field")])
    ends = keys.groupby(SEED)["raw"].agg(["min", "max"])
    ends["step"] = ends["max"] - ends["min"]
    table = table.join(ends, on=SEED)
    table["value"] = (table["raw"] - table["min"]) / table["step"]
    return published(table.assign(theory=float("nan")))


def published(table: pd.DataFrame) -> pd.DataFrame:
    """One row per dot."""
    return table[COLUMNS].astype({"place": int}).sort_values([*SEED, "place"], ignore_index=True)


def draw_dots(axes: Axes, table: pd.DataFrame) -> None:
    """One dot per seed; heads side by side, equal values fanned out sideways, failed seeds in grey."""
    heads = style.in_order(table["head"])
    width = 0.84 / len(heads)
    offsets = dict(zip(heads, panels.dodge(len(heads), width)))
    for (head, place), group in table.groupby(["head", "place"]):
        head = str(head)
        x = place + offsets[head] + panels.spread(group["value"].to_numpy(), 0.38 * width)
        marker = {**style.look(head).marker, "markersize": 2.5, "markeredgewidth": 0.5}
        failed = group["success"].to_numpy() == 0
        axes.plot(x[~failed], group["value"][~failed], **marker, linestyle="none", zorder=4, clip_on=False)
        grey = dict.fromkeys(("color", "markerfacecolor", "markeredgecolor"), style.FAILED)
        axes.plot(x[failed], group["value"][failed], **{**marker, **grey}, linestyle="none", zorder=3)


def limits(table: pd.DataFrame) -> tuple[float, float]:
    """The range of the seeds that succeed, of the theory, and a margin; a failed seed may lie far outside."""
    shown = [*table.loc[table["success"] == 1, "value"], *table["theory"].dropna()]
    low, high = min(shown), max(shown)
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def finish_walk(axes: Axes, table: pd.DataFrame, theory: WalkTheory) -> None:
    """The theory's line at each token, its range of offsets, and the names of the tokens."""
    for place, value in enumerate(theory.increments.values()):
        axes.plot([place - 0.46, place + 0.46], [value, value], color=style.INK, linewidth=0.7, zorder=2)
    offset_place = len(theory.increments)
    if (table["place"] == offset_place).any():
        axes.axvline(offset_place - 0.5, color=style.FAINT, linewidth=0.6, zorder=1)
        if theory.offsets:
            low, high = theory.offsets
            axes.fill_between(
                [offset_place - 0.4, offset_place + 0.4], low, high, color="#EBEBEB", linewidth=0, zorder=1
            )
    name_places(axes, table)
    axes.set_yticks([-1, 0, 1], ["$-a$", "0", "$+a$"])
    axes.set_ylabel("learned increment")
    style.quiet_grid(axes)


def finish_leveled(axes: Axes, table: pd.DataFrame) -> None:
    """Shading for each level, from the key's place to the place of the dip that it survives."""
    levels = int(table["place"].max()) // 2
    for level in range(0, levels, 2):
        axes.axvspan(2 * level - 0.5, 2 * level + 1.5, color="#F3F3F3", linewidth=0, zorder=0)
    axes.axvline(2 * levels - 0.5, color=style.FAINT, linewidth=0.6, zorder=1)
    name_places(axes, table)
    axes.set_yticks([0, 1])
    axes.set_ylabel("learned level or field")
    style.quiet_grid(axes)


def name_places(axes: Axes, table: pd.DataFrame) -> None:
    """Token names under the dots; "offset" for the last place of a walk, "at keys" for that of levels."""
    first = table.drop_duplicates("place").sort_values("place")
    names = [
        "offset"
        if name == "offset"
        else "at keys"
        if token == "all keys"
        else token.replace("key", "key ").replace("dip", "dip ").strip()
        for name, token in zip(first["name"], first["token"])
    ]
    axes.set_xticks(first["place"], names)
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(float(first["place"].min()) - 0.6, float(first["place"].max()) + 0.6)


def caption(table: pd.DataFrame, failed: pd.DataFrame) -> str:
    """What the figure shows, the drift of the walks, and the margins of the levels."""
    seeds = table.drop_duplicates(SEED)
    cut = sum(int((~mine["value"].between(*limits(mine))).sum()) for _, mine in table.groupby("task"))
    grey = f"grey; {cut} grey dots lie outside the axes"
    out = [f"{style.look(head).name} on {task}" for task, head in zip(failed["task"], failed["head"])]
    return words.paragraph(f"""
        **What seeds learned.** One dot per seed, heads side by side, each at {words.BEST_DIMENSION}; n =
        {words.count_range(seeds.groupby(SEED[:3]).size())} seeds per head, of which
        {int((seeds["success"] == 0).sum())} of {len(seeds)} failed ({grey}). Increments of a walk are in units
        of the seed's own step a, half the difference of its steps up and down; black lines: the theory's +a, −a
        and 0, shaded: the offsets of a key at which nested-scope stays exact. Other numbers realise the same
        sets: on subset-drop *keep* may rise, and a key may start above the walk by what *keep* lifts it. On
        leveled-dips, levels of keys and field of dips run from 0 at the seed's lowest to 1 at its highest level;
        a dip should lie at or above the key of its number and below the next; *at keys* is the lowest field at
        any key, which should not lie below 1.
        {drift(table)}{margins(table)}No interval: every seed is shown. Not shown, since no seed succeeds:
        {words.listing(out) if out else "none"}.
    """)


def drift(table: pd.DataFrame) -> str:
    """How far closing undoes opening: |up + down| / a, median and maximum over the seeds that succeed."""
    texts = []
    for (task, head), mine in table[table["success"] == 1].groupby(["task", "head"]):
        theory = WALKS.get(task_name(str(task)))
        if theory and task_name(str(task)) == "nested-scope":
            wide = mine[mine["name"] == "increment"].pivot_table(index="seed", columns="token", values="value")
            rest = (wide[theory.up] + wide[theory.down]).abs()
            texts.append(f"{style.look(str(head)).name} median {rest.median():.2g}, maximum {rest.max():.2g}")
    return f"Drift of one opened and closed scope on nested-scope, in units of a: {'; '.join(texts)}. " if texts else ""


def margins(table: pd.DataFrame) -> str:
    """Over the seeds that succeed, the least kill and the largest penalty of a survivor, in units of lambda = 1."""
    mine = table[(table["task"].map(task_name) == LEVELED) & (table["success"] == 1)]
    if mine.empty:
        return ""
    wide = mine.pivot_table(index=SEED, columns="place", values="raw").to_numpy()
    keys, dips = wide[:, 0:-1:2], wide[:, 1:-1:2]
    kill = float((keys[:, 1:] - dips[:, :-1]).min())
    left = max(0.0, float((keys - dips).max()), float((keys[:, -1] - wide[:, -1]).max()))
    return f"On leveled-dips, dead keys have penalties of at least {kill:.2g}, live ones of at most {left:.2g}. "
