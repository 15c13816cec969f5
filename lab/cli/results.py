"""`fpa-lab results`: the summary. `fpa-lab figures`: draw it. `fpa-lab export`: give it away."""

import json
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lab.cli.console import print_json, print_table, working
from lab.cli.errors import say
from lab.cli.options import DEFAULT_STORE, StoreFile, words
from lab.errors import InputError, nearest

if TYPE_CHECKING:
    import pandas as pd

    from lab.sweeps import Frames

FORMATS = ("table", "csv", "json")
SOURCE_SCOPES = "source-scopes"
LONGEST_LABEL = 64  # of a task in the table; a family of key sets can have pages of options
TARGETS_FOUND = "A seed succeeds when exact >= 0.99 and TV <= 0.05 on fresh test sequences at 1x."
OF_READERS = ", readers"
# Of tasks that ask for something else, and of readers that are not judged as heads are.
SUCCESS = {
    "scoped-lookup": (
        "exact: share of right answers; TV: 1 less the weight on the binding in force.\nA seed succeeds "
        "when exact >= 0.99 and that binding has the most weight at >= 0.99 of the queries, on test sequences at 1x."
    ),
    "subset-free": (
        "TV and exact are means over subsets. A seed succeeds when every subset is read:\nseparation, gap above 0; "
        "window, least gap at least 4 times the largest window; uniform (the default), TV at most 0.05."
    ),
    f"subset-free{OF_READERS}": (
        "TV and exact are means over sampled sequences. A seed succeeds when exact >= 0.99\n"
        "and TV <= 0.05 in that mean; trained heads have to read every subset."
    ),
}


def results(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An experiment, such as target_sets.")],
    format: Annotated[str, typer.Option(metavar="FORMAT", help="table, csv or json; the last two hold all.")] = "table",
    source: Annotated[
        str, typer.Option("--source", "--store", metavar="FILE", help="A store, a folder of CSVs, or `published`.")
    ] = str(DEFAULT_STORE),
    preset: Annotated[
        str | None, typer.Option(metavar="PRESET", help="Of a store that holds several.", show_default="run last")
    ] = None,
    best: Annotated[bool, typer.Option("--best", help="Each head at the dimension of least validation loss.")] = False,
) -> int:
    """Show what was measured, with n, interval and chance.

    One row per task, head and dimension, at the learning rate with the lowest median validation loss. Exit status
    1 when cells or seeds of the plan are missing.

    \b
    Examples:
      fpa-lab results target_sets --source published --best
      fpa-lab results target_sets --format csv > summary.csv
    """
    if format not in FORMATS:
        raise InputError(f"--format: unknown format {format}{nearest(format, FORMATS)}")
    from lab.sweeps import load_frames, summarise

    path = published_folder() if source == "published" else Path(source)
    with working("reading results"):
        frames = load_frames(path, [name], preset=preset, tables=("evaluations", *remarked_tables(name)))
        if frames.cells.empty:
            raise InputError(f"{path}: {name}: nothing is computed yet; fpa-lab sweep {name}")
        missing = missing_cells(path, name, frames)
        summary = summarise(frames, chance_at=_tested_factors(frames) if format == "table" else None)
        summary = best_dimensions(summary) if best else summary
    if format == "csv":
        print(summary.drop(columns="config").to_csv(index=False, lineterminator="\n"), end="")
    elif format == "json":
        print_json(summary.drop(columns="config").to_dict("records"))
    else:
        print_summary(summary, frames)
        for line in remarks(name, frames):
            print(line)
    for cell in missing[:5]:
        say(f"incomplete: {cell}")
    if len(missing) > 5:
        where = "; see fpa-lab status" if path.is_file() else ""
        say(f"incomplete: and {len(missing) - 5} more cells{where}")
    return int(bool(missing))


def remarks(name: str, frames: "Frames") -> list[str]:
    """What an experiment has to say below its table: its module may have a function `remarks(frames)`."""
    make = getattr(_module(name), "remarks", None)
    return make(frames) if make else []


def remarked_tables(name: str) -> tuple[str, ...]:
    """The tables that those remarks need besides `cells` and `evaluations`: REMARKS_READ of the module, if there is."""
    return getattr(_module(name), "REMARKS_READ", ())


def _module(name: str) -> ModuleType | None:
    from experiments import EXPERIMENTS

    return import_module(EXPERIMENTS[name]) if name in EXPERIMENTS else None


def best_dimensions(summary: "pd.DataFrame") -> "pd.DataFrame":
    """Of every head in every task, the row with the least median validation loss; the least dimension at equal ones."""
    by_loss = summary.sort_values(["validation_loss", "dim"], kind="stable")
    return by_loss.drop_duplicates(["task", "head", "variant"]).sort_values(["task", "head", "variant"])


def published_folder() -> Path:
    """Where the results that come with the lab are, wherever it is installed."""
    import experiments

    return Path(experiments.__path__[0]) / "published"


def missing_cells(path: Path, name: str, frames: "Frames") -> list[str]:
    """One line for every cell that was asked for and is not in the results, wholly or some seeds of it."""
    from figures.inputs import planned
    from lab.sweeps import missing_cells as lacking

    return [str(cell) for cell in lacking(planned(path, name, frames), frames)]


def print_summary(summary: "pd.DataFrame", frames: "Frames") -> None:
    """The table people read: success and its interval, TV, exact-set rates at 1x and far beyond, chance."""
    factors = shown_factors(_factors(summary))
    variants = summary["variant"].str.len().gt(0).any()
    files = scope_rates(frames)
    header = ["task", "head", *(["variant"] if variants else []), "dim", "rate", "seeds", "successes", "95% interval"]
    header += ["TV", *(f"exact {factor:g}x" for factor in factors), *(["real files"] if files else [])]
    header += ["chance TV", "chance exact"]
    labels = short_labels(summary["task"])
    records = summary.to_dict("records")
    rows = [_row({**row, "task": labels[row["task"]]}, factors, bool(variants), files) for row in records]
    print_table(header, rows, left=3 if variants else 2)
    for label, short in labels.items():
        if short != label:
            print(f"{short}: {label.partition('[')[2].removesuffix(']')}")
    print("\n".join(meanings(judged(summary))))
    if any(below_chance(row, factor) for row in records for factor in factors):
        print("↓: below chance, the loss there is above that of a reader that weights all keys so far equally.")
    for line in rate_notes(summary):
        print(line)
    if files:
        print("real files: exact-set rate over the scopes of Python files, without retraining.")
    print_shortcuts(summary)
    print_lookups(frames)


def short_labels(labels: Iterable[str]) -> dict[str, str]:
    """How the table calls its tasks, in its order: long options are left out where the name says which task it is."""
    known = list(dict.fromkeys(labels))
    names = [label.partition("[")[0] for label in known]
    return {
        label: f"{name}[…]" if len(label) > LONGEST_LABEL and names.count(name) == 1 else label
        for label, name in zip(known, names)
    }


def judged(summary: "pd.DataFrame") -> list[str]:
    """What `meanings` is to explain: the tasks, and apart from them readers where another rule is for these."""
    found = []
    for label, head in zip(summary["task"], summary["head"]):
        of_readers = label.partition("[")[0] + OF_READERS
        found.append(of_readers if head.startswith("reader") and of_readers in SUCCESS else label)
    return found


def rate_notes(summary: "pd.DataFrame") -> list[str]:
    """How rates were chosen, and how many rows stand at an edge of their grid; nothing where there is no grid."""
    chosen = zip(summary["learning_rate"], (rates.split(", ") for rates in summary["rates"]))
    at_edge = [f"{rate:g}" in (grid[0], grid[-1]) for rate, grid in chosen if len(grid) > 1]
    if not at_edge:
        return []
    lines = ["rate: the learning rate with the lowest median validation loss, of the grid in --format csv."]
    edge = f"{sum(at_edge)} of {len(at_edge)} rows with a grid stand at an edge of it: beyond it a rate may do better."
    return [*lines, edge] if any(at_edge) else lines


def meanings(labels: Iterable[str]) -> list[str]:
    """What the columns mean and when a seed succeeds, once; by task where tasks differ in that."""
    tasks: dict[str, list[str]] = {}
    for name in dict.fromkeys(label.partition("[")[0] for label in labels):
        tasks.setdefault(SUCCESS.get(name, TARGETS_FOUND), []).append(name)
    if len(tasks) == 1:
        return [f"Medians over seeds. {text}" for text in tasks]
    return ["Medians over seeds.", *(f"{', '.join(names)}: {text}" for text, names in tasks.items())]


def print_shortcuts(summary: "pd.DataFrame") -> None:
    """What readers that know less answer right at the training length; nothing where no head looks symbols up."""
    from lab.sweeps import TaskConfig
    from lab.sweeps.lookups import shortcut_levels

    for row in summary.drop_duplicates("task").to_dict("records"):
        if row["task"].startswith("scoped-lookup"):
            task = TaskConfig(**json.loads(row["config"])["task"])
            levels = shortcut_levels(task, task.make().train_length)
            listed = ", ".join(f"{name} {level:.3f}" for name, level in levels.items())
            print(f"{row['task']}, readers that know less, right answers at 1x: {listed}")


def print_lookups(frames: "Frames") -> None:
    """Which binding heads pick for the names in source files; nothing where no head read any."""
    from lab.sweeps.lookups import GROUPS, file_accuracies

    table = file_accuracies(frames)
    if table.empty:
        return
    rows = []
    for row in _first_of_readers(table).to_dict("records"):
        ranges = (f"{row[low]:.4f}–{row[high]:.4f}" for low, high in (("least", "most"), ("low", "high")))
        rows.append([row["corpus"], GROUPS[row["group"]], row["uses"], *_reader(row), f"{row['median']:.4f}", *ranges])
    header = ["corpus", "uses of names", "uses", "reader", "dim", "right", "over seeds", "95% interval"]
    print_table(header, rows, left=2)
    print("Which binding a name in a Python file refers to, among those of that name; heads are not retrained.")


def _first_of_readers(table: "pd.DataFrame") -> "pd.DataFrame":
    """Readers that know less are the same beside every head: one row of each is enough."""
    less = table["reader"] != "head"
    return table[~(less & table.duplicated(["corpus", "group", "reader"]))].sort_values(
        ["corpus", "group", "median"], kind="stable"
    )


def _reader(row: dict[Any, Any]) -> list[Any]:
    if row["reader"] != "head":
        return [row["reader"], ""]
    return [f"{row['head']} {row['variant']}".strip(), row["dim"]]


def shown_factors(measured: Sequence[float]) -> list[float]:
    """The training length and 8 times that, or the longest that was measured; what there is, without those."""
    far = 8.0 if 8.0 in measured else max(measured, default=1.0)
    return [factor for factor in dict.fromkeys((1.0, far)) if factor in measured] or list(measured[:1])


def _tested_factors(frames: "Frames") -> list[float]:
    """The lengths of the table: at these the chance line is shown."""
    rows = frames.evaluations
    tests = rows[(rows["split"] == "test") & (rows["task"] == rows["train_task"])]
    return shown_factors(sorted(set(tests["factor"]) - {0.0}))


def _factors(summary: "pd.DataFrame") -> list[float]:
    names = [column for column in summary.columns if column.startswith("n_") and column.endswith("x")]
    return sorted(factor for factor in (float(name[2:-1]) for name in names) if factor > 0)


def _row(row: dict[Any, Any], factors: Sequence[float], variants: bool, files: dict[str, float]) -> list[Any]:
    first = f"{factors[0]:g}x" if factors else "1x"
    cells = [row["task"], row["head"], *([row["variant"]] if variants else []), row["dim"]]
    cells += [f"{row['learning_rate']:g}", row["n"], row["successes"], f"{row['low']:.2f}–{row['high']:.2f}"]
    cells += [row.get(f"tv_{first}_median"), *(_exact(row, factor) for factor in factors)]
    cells += [files.get(row["cell"])] if files else []
    return [*cells, row.get(f"chance_tv_{first}"), row.get(f"chance_exact_{first}")]


def _exact(row: dict[Any, Any], factor: float) -> Any:
    """The exact-set rate at a length, marked where the head does worse there than a reader that forgets nothing."""
    rate = row.get(f"exact_{factor:g}x_median")
    return f"↓ {rate:.3f}" if below_chance(row, factor) else rate


def below_chance(row: dict[Any, Any], factor: float) -> bool:
    """Whether the loss at a length is above that of a reader that weights all keys so far equally."""
    return row.get(f"below_chance_{factor:g}x") is True


def scope_rates(frames: "Frames") -> dict[str, float]:
    """By cell, the median over seeds of the exact-set rate on real source files; empty when nobody read any."""
    from lab.sweeps.quartiles import median

    rows = frames.evaluations
    rows = rows[frames.tasks_of(SOURCE_SCOPES)]
    rows = rows[~rows["train_task"].str.startswith(SOURCE_SCOPES)]
    return {str(cell): median(exact) for cell, exact in rows.groupby("cell")["exact"]}


def figures(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Figures; all by default.")] = None,
    source: Annotated[
        str, typer.Option(metavar="FILE", help="`published`, a store, or a folder of CSVs.")
    ] = "published",
    format: Annotated[
        list[str] | None, typer.Option(metavar="F,...", help="pdf, svg or png.", show_default="all")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the figures go.")] = Path("figures-out"),
    partial: Annotated[bool, typer.Option("--partial", help="Draw incomplete results, and stamp the figure.")] = False,
) -> int:
    """Draw the figures from stored results; nothing is trained.

    Beside each figure stand the rows it shows (CSV) and its caption (Markdown) with their hash and the command.
    Exit status 1, with the missing cells, when the results are incomplete.

    \b
    Examples:
      fpa-lab figures
      fpa-lab figures success length --source results/lab.sqlite --format pdf --out paper/figures
    """
    from figures import Incomplete, make_figures

    try:
        with working("drawing"):
            paths = make_figures(words(names), source, words(format, "--format") or ("pdf", "svg", "png"), out, partial)
    except Incomplete as incomplete:
        say(str(incomplete))
        for line in incomplete.missing:
            say(f"missing: {line}")
        return 1
    for path in paths:
        print(path)
    return 0


def export(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Experiments, such as target_sets.")],
    store: StoreFile = DEFAULT_STORE,
    preset: Annotated[
        str | None, typer.Option(metavar="PRESET", help="Of a store that holds several.", show_default="run last")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Each experiment gets a folder in it.")] = Path("exported"),
    salvage: Annotated[
        Path | None,
        typer.Option(metavar="NEW", help="Of a damaged store: save what is readable to a new one, and export that."),
    ] = None,
) -> int:
    """Write results as CSV files with a manifest.

    The manifest has the command, the code versions, the environments, and rows and sha256 of every file. This is what
    experiments/published holds. With --salvage the exit status is 1 when something is known to be lost; a sweep on the
    new store computes what is missing.

    \b
    Examples:
      fpa-lab export target_sets
      fpa-lab export target_sets --preset paper --out experiments/published
      fpa-lab export target_sets --store damaged.sqlite --salvage saved.sqlite
    """
    from lab.sweeps import Store
    from lab.sweeps import export as write

    experiments = words(names)
    lost = salvage is not None and _salvage(store, salvage)
    with Store(salvage or store, write=False) as opened:
        folders = write(opened, experiments, out, preset=preset)
    for folder in folders:
        print(folder)
    return int(lost)


def _salvage(damaged: Path, new: Path) -> bool:
    """Saves what is readable of a store, says what is not, and returns whether that is anything."""
    from lab.sweeps.salvage import salvage

    with working("reading every page"):
        saved = salvage(damaged, new)
    say(f"{new}: {saved}")
    for label, seeds in saved.lost:
        say(f"lost: {label}: {len(seeds)} seeds, from {min(seeds)} to {max(seeds)}")
    return bool(saved.lost or saved.missing_pages)
