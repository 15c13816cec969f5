"""Can the tasks be done by less than what they ask for, and does training see what it is tested on?

For every task of the lab, on fresh test sequences of the training length:

readers     what `lab.heads.reader` reaches: the optimum (the target itself), chance, and the shortcuts (position only,
            token counts, last-k window, nearest key of each type; for lookups: values and bindings chosen without
            scopes, or without recency). In leveled-dips token counts are no shortcut but a solution, with gates for
            every type of key; in subset-free they reach the exact rate of 1 and a TV about as large as is allowed.
duplicates  how many sequences of a seed occur twice, within and between train, validation and test, token for token.
            Splits never share a random key, so what is counted is chance: unavoidable where there are few sequences.
            Compared are the first 512 of every split, while training takes 12,800: of subset-drop, which has 2^16
            sequences of the training length, it sees 1 - (1 - 2^-16)^12800 = 18% of what it is tested on at 1x.
control     the head that fits the task, trained as ever and trained on the targets of another sequence of its batch
            (lookups: on the answers of other queries). Success must vanish: what remains would be a leak.

Tasks of files are one corpus for all splits, read by heads trained on nested-scope and scoped-lookup: there is nothing
to audit. subset-free is a finite family, trained on and tested whole, so all its sequences are duplicates and it has no
control; of custom key sets one small family stands for all.

Success: exact-set rate >= 0.99 and mean total variation <= 0.05; for lookups as experiments.scoped_lookup says.
"""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from experiments.presets import planned, read_at, settings
from experiments.scoped_lookup import RATE as LOOKUP_RATE
from experiments.target_sets import FITTING, TEST_SEQUENCES
from lab.heads.config import HeadConfig, ReaderConfig, head_config
from lab.sweeps.plan import Cell, Plan, TaskConfig
from lab.training.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd

    from lab.sweeps.frames import Frames

NAME = "audit"
TASKS: dict[str, dict[str, Any]] = {
    "nested-scope": {},
    "leveled-dips": {},
    "subset-drop": {},
    "subset-free": {},
    "scoped-lookup": {"symbols": 4},
    "custom": {"keys": ["a", "b", "c", "d"], "targets": [["a", "c"], ["b"], ["a", "b", "d"], ["c", "d"], ["d"]]},
}
# Head and recipe that do the task, to be tried on permuted targets too.
CONTROLS: dict[str, tuple[HeadConfig, Recipe]] = {
    **{task: (head_config(form, 1), Recipe()) for task, form in FITTING.items()},
    "scoped-lookup": (head_config("fpa-walk-offset-gate", 4), Recipe(learning_rate=LOOKUP_RATE)),
    "custom": (head_config("fpa-walk-offset", 1), Recipe()),
}
SEQUENCES = 64
REMARKS_READ = ("parameters",)  # where the duplicates are
PLACES = ("train", "validation", "test", "validation in train", "test in train", "test in validation")
PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"seeds": 4, "controls": ("nested-scope",)},
    "paper": {"seeds": 32, "controls": tuple(CONTROLS)},
}


def plan(
    preset: str = "quick",
    seeds: int | None = None,
    heads: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
) -> Plan:
    """The cells of a preset, for seeds 0 .. seeds-1; `heads` and `dims` keep only those.

    Raises InputError for an unknown preset, and for heads and dimensions that the preset lacks.
    """
    chosen = settings(PRESETS, preset)
    cells = [cell for task in TASKS for cell in _readers(task)]
    cells += [cell for task in chosen["controls"] for cell in _controls(task)]
    return planned(NAME, preset, cells, chosen["seeds"] if seeds is None else seeds, heads, dims)


def _readers(name: str) -> Iterator[Cell]:
    from lab.heads.reader import reader_names

    task = TaskConfig(name=name, options=TASKS[name])
    for reader in reader_names(task.make()):
        yield _cell(task, ReaderConfig(name=reader), Recipe())


def _controls(name: str) -> Iterator[Cell]:
    task, (head, recipe) = TaskConfig(name=name, options=TASKS[name]), CONTROLS[name]
    for permute in (False, True):
        yield _cell(task, head, recipe.model_copy(update={"permute_targets": permute}))


def _cell(task: TaskConfig, head: HeadConfig, recipe: Recipe) -> Cell:
    evaluations = read_at(task, (1,), TEST_SEQUENCES.get(task.name, SEQUENCES))
    return Cell(experiment=NAME, task=task, head=head, recipe=recipe, evaluations=evaluations)


def duplicates(frames: "Frames") -> "pd.DataFrame":
    """By task: how many sequences of all seeds together were `compared`, per split, and how many occur in PLACES."""
    rows = frames.parameters[frames.parameters["name"] == "duplicates"]
    return rows.pivot_table(index="train_task", columns="token", values="value", aggfunc="sum")


def controls(frames: "Frames") -> "pd.DataFrame":
    """By task and whether targets were permuted: n, successes, low, high and exact_max, of the seeds of heads."""
    import pandas as pd

    from lab.sweeps.statistics import success_counts

    permuted = {cell: json.loads(text)["recipe"]["permute_targets"] for cell, text in _trained(frames)}
    everything = frames.evaluations
    tests = everything[(everything["split"] == "test") & (everything["task"] == everything["train_task"])]
    tests = tests[tests["cell"].isin(permuted)]
    rows = []
    for (task, control), seeds in tests.groupby(["train_task", tests["cell"].map(permuted)]):
        highest = float(seeds["exact"].to_numpy().max())  # no number where a seed is none
        rows.append({"task": task, "permuted": control, **success_counts(seeds["success"]), "exact_max": highest})
    return pd.DataFrame(rows, columns=["task", "permuted", "n", "successes", "low", "high", "exact_max"])


def _trained(frames: "Frames") -> Iterator[tuple[str, str]]:
    """Cell and configuration of every cell that is a head."""
    cells = frames.cells[~frames.cells["head"].str.startswith("reader")]
    return zip(cells["cell"], cells["config"])


def remarks(frames: "Frames") -> list[str]:
    """For `fpa-lab results`: sequences that occur twice, and what remains when targets are permuted."""
    counted, control = duplicates(frames), controls(frames)
    lines = []
    if len(counted):
        most = int(counted["compared"].max())
        lines += [
            "",
            f"Seen before, token for token, of {most:,} sequences of every split (all seeds; each among its own):",
            f"{'':14}" + "".join(f"  {place:>19}" for place in PLACES),
        ]
    for task, row in counted.iterrows():
        shares = (f"{int(row[place]):,} ({row[place] / row['compared']:.2%})" for place in PLACES)
        lines.append(f"{str(task).partition('[')[0]:14}" + "".join(f"  {share:>19}" for share in shares))
    if len(control):
        lines += ["", "Heads trained on the targets of other sequences, beside the same heads trained on their own:"]
    for task, rows in control.groupby("task", sort=False):
        said = [
            f"{'permuted' if row['permuted'] else 'own'} {row['successes']}/{row['n']} seeds "
            f"({row['low']:.2f}–{row['high']:.2f}), highest exact rate {row['exact_max']:.3f}"
            for row in rows.sort_values("permuted", ascending=False).to_dict("records")
        ]
        lines.append(f"{str(task).partition('[')[0]:14}  {'; '.join(said)}")
    return lines
