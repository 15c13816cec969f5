"""Figure: looking symbols up in nested scopes: dimension and symbols, where each head stops, length, and real files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from figures import panels, style, words
from figures.drawing import Drawing
from lab.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.axes import Axes

    from figures.inputs import Results

TASK = "scoped-lookup"
# Fewer symbols are darker.
SHADES = ("#003A5D", "#0072B2", "#56B4E9", "#A6D5F2")
# The heads whose dimension is drawn against the number of symbols, and in which files and lengths are compared.
FORMS = {"fpa-walk-offset-gate": "FPA with gates", "fpa-walk-offset-alibi": "FPA with ALiBi"}
FILE_GROUPS = {"": "all", "shadowed": "shadowed", "outlived": "newest dead"}
READER_LOOKS = {"most recent binding": ("D", style.QUIET), "random live binding": ("x", style.QUIET)}


def draw(results: Results) -> Drawing:
    """Top: success by dimension and symbols, then right answers by length. Bottom: every head, and source files."""
    import pandas as pd

    from lab.training.recipe import Recipe

    results = results.trained_for(Recipe().steps)
    table = settings_of(results)
    if table.empty:
        raise InputError(f"scoped_lookup: {results.frames.origin}: expected results on {TASK}")
    compared = most_compared(table)
    parts = {
        "success": successes(results, table),
        "heads": answers(results, table, compared),
        "length": lengths(results, table, compared),
        "files": files(results),
    }
    figure = style.new_figure(style.DOUBLE_COLUMN, 5.0)
    height = figure.get_size_inches()[1]
    top = panels.panel_row(figure, (1, 1, 1.25), left=0.46, right=0.12, top=0.3, bottom=height - 2.05, between=0.46)
    bottom = panels.panel_row(figure, (1, 1), left=1.42, right=0.12, top=2.95, bottom=0.42, between=1.42)
    for axes, (head, title) in zip(top, FORMS.items()):
        draw_success(axes, parts["success"][parts["success"]["head"] == head])
        style.panel_title(axes, "ab"[top.index(axes)], title)
    top[0].set_ylabel("seeds that succeed")
    draw_lengths(top[2], parts["length"])
    style.panel_title(top[2], "c", f"beyond the training length, {compared} symbols")
    draw_heads(bottom[0], parts["heads"])
    mark_shortcuts(bottom[0], shortcuts(reference_config(results, compared), train_length(results, compared)))
    bottom[0].set_title(rf"$\bf{{d}}$  every head, {compared} symbols", pad=16)
    draw_files(bottom[1], parts["files"])
    style.panel_title(bottom[1], "e", "names in Python files")
    rows = pd.concat([part.assign(panel=name) for name, part in parts.items()], ignore_index=True)
    return Drawing(figure, caption(results, parts, compared), rows[["panel", *(c for c in rows if c != "panel")]])


def settings_of(results: Results) -> pd.DataFrame:
    """The chosen cells, with the number of symbols they are trained on and whether longer sequences were among them."""
    from lab.sweeps.plan import TaskConfig
    from lab.sweeps.statistics import summarise

    table = summarise(results.frames)
    table = table[table["task"].str.startswith(TASK)]
    configs = [json.loads(config) for config in table["config"]]
    symbols = [TaskConfig(**config["task"]).make().symbols for config in configs]
    return table.assign(symbols=symbols, longer=[bool(config["recipe"]["lengths"]) for config in configs])


def most_compared(table: pd.DataFrame) -> int:
    """The number of symbols with which most heads were trained; the larger one of several."""
    counts = table.groupby("symbols")["head"].nunique()
    return int(counts[counts == counts.max()].index.max())


def successes(results: Results, table: pd.DataFrame) -> pd.DataFrame:
    """Seeds that succeed, by head, symbols and dimension; `summarise` counted them."""
    kept = table[table["head"].isin(list(FORMS)) & ~table["longer"]]
    columns = ["head", "symbols", "dim", "learning_rate", "n", "successes", "low", "high"]
    found = kept[columns].sort_values(["head", "symbols", "dim"], ignore_index=True)
    return found.assign(fraction=found["successes"] / found["n"])


def answers(results: Results, table: pd.DataFrame, symbols: int) -> pd.DataFrame:
    """Right answers of every seed at the training length: each head at the dimension of least validation loss."""
    kept = table[(table["symbols"] == symbols) & ~table["longer"]].sort_values(["validation_loss", "dim"])
    best = kept.drop_duplicates("head")
    rows = results.tests(best)
    rows = rows[rows["factor"] == 1]
    weight = by_seed(results, best, "in force")
    found = rows[["head", "dim", "learning_rate", "seed", "exact", "mass", "success"]].copy()
    found["most_weight"] = weight.reindex(list(zip(rows["cell"], rows["seed"]))).to_numpy()
    return found.sort_values(["head", "seed"], ignore_index=True)


def by_seed(results: Results, chosen: pd.DataFrame, reading: str) -> pd.Series:
    """What another reading of the same sequences found exact, by cell and seed, at the training length."""
    rows = results.of(results.frames.evaluations, chosen)
    rows = rows[(rows["task"] == rows["train_task"] + f"/{reading}") & (rows["factor"] == 1)]
    return rows.set_index(["cell", "seed"])["exact"]


def lengths(results: Results, table: pd.DataFrame, symbols: int) -> pd.DataFrame:
    """Median and quartiles over seeds of the right answers by length: FPA, and the best FoX and softmax heads."""
    import pandas as pd

    from lab.sweeps.quartiles import QUARTILES, quantiles

    kept = table[table["symbols"] == symbols].sort_values(["validation_loss", "dim"])
    kept = kept.assign(family=kept["head"].map(style.family_of))
    forms = kept[kept["head"].isin(list(FORMS))].drop_duplicates(["head", "longer"])
    others = kept[kept["family"] != "fpa"].drop_duplicates("family")
    chosen = pd.concat([forms, others])
    rows = []
    for cell, head, dim, longer in zip(chosen["cell"], chosen["head"], chosen["dim"], chosen["longer"]):
        mine = results.tests(chosen[chosen["cell"] == cell])
        for factor, seeds in mine.groupby("factor"):
            quartiles = dict(zip(QUARTILES, quantiles(seeds["exact"].to_numpy())))
            rows.append({"head": head, "dim": dim, "longer": longer, "factor": factor, "n": len(seeds), **quartiles})
    measured = results.tests(kept)
    for factor, length in sorted(set(zip(measured["factor"], measured["length"]))):
        level = shortcuts(kept["config"].iloc[0], length)["most recent binding"]
        rows.append({"head": "most recent binding", "factor": factor, "median": level})
    return pd.DataFrame(rows, columns=["head", "dim", "longer", "factor", "n", *QUARTILES])


def shortcuts(config: str, length: int) -> dict[str, float]:
    """Right answers of the readers that know less, on the test sequences of that length of a cell's task."""
    from lab.sweeps.lookups import shortcut_levels
    from lab.sweeps.plan import TaskConfig

    return shortcut_levels(TaskConfig(**json.loads(config)["task"]), length)


def files(results: Results) -> pd.DataFrame:
    """The accuracies on source files; readers that know less once, heads per cell."""
    from lab.sweeps.lookups import HEAD, file_accuracies

    table = file_accuracies(results.frames)
    less = table["reader"] != HEAD
    table = table[~(less & table.duplicated(["corpus", "group", "reader"]))].drop(columns="cell")
    for name, nothing in (("head", ""), ("dim", 0), ("variant", "")):
        table[name] = table[name].where(table["reader"] == HEAD, nothing)
    return table.sort_values(["corpus", "group", "reader", "head", "variant"], ignore_index=True)


def draw_success(axes: Axes, table: pd.DataFrame) -> None:
    """Fraction of seeds and its interval by dimension, one line for each number of symbols."""
    counts = sorted(set(table["symbols"]))
    for shade, symbols in zip(SHADES, counts):
        mine = table[table["symbols"] == symbols].sort_values("dim")
        x = mine["dim"] * 2 ** (0.09 * (counts.index(symbols) - (len(counts) - 1) / 2))
        axes.vlines(x, mine["low"], mine["high"], color=shade, linewidth=0.9, alpha=0.65)
        axes.plot(x, mine["fraction"], "o-", color=shade, clip_on=False, label=f"{symbols} symbols", linewidth=0.9)
    axes.set_xscale("log", base=2)
    dims = sorted(set(table["dim"]))
    axes.set_xticks(dims, [str(dim) for dim in dims])
    axes.minorticks_off()
    axes.set_ylim(-0.03, 1.03)
    axes.set_yticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.set_xlabel("head dimension")
    if table.empty:
        panels.note(axes, "not in this preset", x=0.5, y=0.5, ha="center")
    else:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 0.04), handlelength=1.0, labelspacing=0.25)
    style.quiet_grid(axes)


def draw_lengths(axes: Axes, table: pd.DataFrame) -> None:
    """Median and quartiles over seeds; dashed after training at mixed lengths; the newest binding as a grey line."""
    for (reader, longer), mine in table.groupby(["head", "longer"], dropna=False, sort=False):
        mine, head = mine.sort_values("factor"), str(reader)
        known = head in style.HEAD_NAMES
        look: dict[str, Any] = {"color": style.look(head).colour if known else style.QUIET, "linewidth": 1.0}
        marker = style.look(head).marker if known else {"marker": ""}
        name = style.look(head).name if known else "newest binding"
        dashed = {"linestyle": (0, (3.2, 1.4)) if longer is True or not known else "-"}
        label = "_nolegend_" if longer is True else name  # the dash says the rest
        axes.plot(mine["factor"], mine["median"], **{**marker, **look, **dashed}, label=label, clip_on=False)
        if known:
            axes.fill_between(mine["factor"], mine["q25"], mine["q75"], color=look["color"], alpha=0.15, linewidth=0)
    factors = sorted(set(table["factor"]))
    axes.set_xscale("log", base=2)
    axes.set_xticks(factors, [f"{factor:g}\N{MULTIPLICATION SIGN}" for factor in factors])
    axes.minorticks_off()
    axes.set_ylim(0.2, 1.01)
    axes.set_ylabel("right answers")
    axes.set_xlabel("length / training length")
    axes.legend(loc="lower left", fontsize=6.0, handlelength=1.8, labelspacing=0.2)
    style.quiet_grid(axes)


def draw_heads(axes: Axes, table: pd.DataFrame) -> None:
    """One dot per seed, a bar at the median; lines at what readers reach that know less."""
    from lab.sweeps.quartiles import median

    heads = style.in_order(table["head"])
    for row, head in enumerate(heads):
        mine = table[table["head"] == head]
        exact: np.ndarray = mine["exact"].to_numpy()
        drawn = style.look(head)
        axes.plot(
            exact, row + panels.spread(exact, 0.28), "o", color=drawn.colour, alpha=0.5, markersize=2.2,
            markeredgewidth=0, linestyle="none", clip_on=False, label=head,
        )  # fmt: skip
        axes.plot([median(exact)] * 2, [row - 0.36, row + 0.36], color=style.INK, linewidth=1.0)
    labels = [f"{style.look(head).name}, $d={table.loc[table['head'] == head, 'dim'].iloc[0]:g}$" for head in heads]
    axes.set_yticks(range(len(heads)), labels)
    axes.set_ylim(len(heads) - 0.4, -0.6)
    axes.set_xlim(0.0, 1.01)
    axes.set_xlabel("right answers, one dot per seed")
    style.quiet_grid(axes, "x")


def mark_shortcuts(axes: Axes, levels: dict[str, float]) -> None:
    """A quiet vertical line for each reader that knows less, named above the panel."""
    for number, (name, level) in enumerate(levels.items()):
        axes.axvline(level, color=style.QUIET, linewidth=0.7, linestyle=(0, (1.2, 1.2)), zorder=0, label=name)
        axes.annotate(
            name.removesuffix(" binding").removesuffix(" value"), (level, 1), xycoords=("data", "axes fraction"),
            xytext=(0, 1 + 6 * (number % 2)), textcoords="offset points", fontsize=6, color=style.QUIET, ha="center",
        )  # fmt: skip


def draw_files(axes: Axes, table: pd.DataFrame) -> None:
    """For each corpus and group of uses: heads at their median over seeds, and the readers that know less."""
    if table.empty:
        panels.note(axes, "no head read files", x=0.5, y=0.5, ha="center")
        return
    lines = [(corpus, group) for corpus in drawn_corpora(table) for group in FILE_GROUPS]
    for row, (corpus, group) in enumerate(lines):
        mine = table[(table["corpus"] == corpus) & (table["group"] == group)]
        places = row + panels.dodge(len(mine), 0.13)
        for place, one in zip(places, mine.to_dict("records")):
            colour, marker = file_look(one)
            axes.hlines(place, one["low"], one["high"], color=colour, linewidth=0.8, alpha=0.65)
            axes.plot([one["median"]], [place], linestyle="none", clip_on=False, **marker)
    labels = []
    for corpus, group in lines:
        uses = table.loc[(table["corpus"] == corpus) & (table["group"] == group), "uses"]
        kind = "blocks" if "scopes=indent" in corpus else "scopes"
        labels.append(f"{kind}, {FILE_GROUPS[group]}: {int(uses.iloc[0]) if len(uses) else 0:,}")
    axes.set_yticks(range(len(lines)), labels)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("share of uses with the right binding")
    style.quiet_grid(axes, "x")


def drawn_corpora(table: pd.DataFrame) -> list[str]:
    """Of Python's scopes, and of indented blocks, the largest corpus that was read; the others stand in the rows."""
    found = []
    for blocks in (False, True):
        mine = table[(table["corpus"].str.contains("scopes=indent") == blocks) & (table["group"] == "")]
        if len(mine):
            found.append(str(mine.sort_values(["uses", "corpus"])["corpus"].iloc[-1]))
    return found


def file_look(row: dict[Any, Any]) -> tuple[str, dict[str, Any]]:
    """Colour and marker of a reader; heads trained at mixed lengths are filled lightly."""
    if row["reader"] in READER_LOOKS:
        shape, colour = READER_LOOKS[row["reader"]]
        return colour, {"marker": shape, "color": colour, "markersize": 3.4, "markerfacecolor": "white"}
    drawn = style.look(row["head"])
    return drawn.colour, {**drawn.marker, "markerfacecolor": "white" if row["variant"] else drawn.colour}


def caption(results: Results, parts: dict[str, pd.DataFrame], symbols: int) -> str:
    """What is shown, with the counts, the levels of readers that know less, and the files."""
    from lab.sweeps.quartiles import median
    from lab.training.recipe import Recipe

    levels = shortcuts(reference_config(results, symbols), train_length(results, symbols))
    heads = parts["heads"]
    told = [
        f"{style.look(head).name} {int(mine['success'].sum())} of {len(mine)} (median {median(mine['exact']):.3f})"
        for head, mine in ((head, heads[heads["head"] == head]) for head in style.in_order(heads["head"]))
    ]
    less = [f"{name} {level:.2f}" for name, level in levels.items()]
    return words.paragraph(f"""
        **Looking symbols up in nested scopes.** Heads trained on answers alone, for {Recipe().steps} steps; the answer
        is the value of the newest live binding of the symbol asked for. A seed succeeds when, on fresh test sequences
        of the training length, at 0.99 of the queries or more the answer is right, and at as many that binding has
        more weight than any other position. (a, b) Fraction of seeds, with 95% intervals (Clopper-Pearson), n =
        {words.count_range(parts["success"]["n"])}. (c) Right answers by length, median and quartiles over seeds;
        dashed: trained at mixed lengths, and, grey, a reader that takes the newest binding, live or dead. (d) Right
        answers of every seed at the training length, each head at the dimension with the lowest median validation
        loss; seeds that succeed: {words.listing(told)}. Readers that know less: {words.listing(less)}; the optimum is
        1. {files_told(parts["files"])}
    """)


def reader_name(row: dict[Any, Any]) -> str:
    """A head with what its recipe changes, or a reader that knows less."""
    return f"{style.look(row['head']).name} {row['variant']}".strip() if row["head"] else row["reader"]


def files_told(table: pd.DataFrame) -> str:
    """Uses, and who is right how often."""
    if table.empty:
        return ""
    texts = []
    for corpus in drawn_corpora(table):
        for group in FILE_GROUPS:
            mine = table[(table["corpus"] == corpus) & (table["group"] == group)]
            rates = [f"{reader_name(row)} {row['median']:.4f}" for row in mine.to_dict("records")]
            kind = "blocks" if "scopes=indent" in corpus else "scopes"
            texts.append(f"{kind}, {FILE_GROUPS[group]} ({mine['uses'].iloc[0]:,} uses): {words.listing(rates)}")
    return (
        "(e) Uses of names in Python files: how often the binding in force is picked among those of its name, without "
        "retraining; medians over seeds, with intervals that take uses as independent; open marks: trained at mixed "
        f"lengths; grey diamond: the newest binding; grey cross: a random live one. {'; '.join(texts)}. Scopes are "
        "those of Python, blocks whatever is indented; the rows beside the figure hold smaller samples too."
    )


def reference_config(results: Results, symbols: int) -> str:
    """The configuration of some cell with that many symbols."""
    table = settings_of(results)
    return str(table.loc[table["symbols"] == symbols, "config"].iloc[0])


def train_length(results: Results, symbols: int) -> int:
    from lab.sweeps.plan import TaskConfig

    return TaskConfig(**json.loads(reference_config(results, symbols))["task"]).make().train_length
