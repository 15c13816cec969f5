"""How trained heads look names up in source files, from result rows: beside readers that know less, with intervals."""

import json
import math
from functools import lru_cache

import pandas as pd

from lab.sweeps.chance import SEEDS, SEQUENCES
from lab.sweeps.frames import Frames
from lab.sweeps.kept import kept_on_disk
from lab.sweeps.plan import TaskConfig
from lab.sweeps.quartiles import quantiles
from lab.sweeps.statistics import chosen_cells, clopper_pearson

TASK = "source-lookup"
# Groups of uses by what stands behind the task's name, and in words.
GROUPS = {
    "": "all uses",
    "shadowed": "two live bindings or more",
    "outlived": "newest binding dead",
}
HEAD = "head"
COLUMNS = (
    *("cell", "head", "dim", "variant", "corpus", "group", "reader"),
    *("uses", "n", "least", "median", "most", "low", "high"),
)


def shortcut_levels(task: TaskConfig, length: int) -> dict[str, float]:
    """Right answers of readers that know less than scoped-lookup asks for, on the sequences heads are tested on."""
    text = json.dumps(task.model_dump(), sort_keys=True)
    return dict(_levels(text, task.data_version, length, SEEDS, SEQUENCES))


@lru_cache(maxsize=64)
@kept_on_disk
def _levels(task: str, data_version: str | None, length: int, seeds: int, sequences: int) -> dict[str, float]:
    """`data_version` tells answers about other files apart."""
    from lab.tasks.scoped_lookup import LOOKUP_SHORTCUTS, shortcut_accuracy

    batch = TaskConfig(**json.loads(task)).make().sample("test", range(seeds), 0, sequences, length=length)
    return {name: shortcut_accuracy(name, batch) for name in LOOKUP_SHORTCUTS}


def file_accuracies(frames: Frames) -> pd.DataFrame:
    """One row per chosen cell that read files, corpus, group of uses and reader, in COLUMNS; empty where none did.

    reader     "head", or one that knows less: "most recent binding", "random live binding"
    uses       how many uses of names the group holds
    n          seeds; least, median, most: their share of uses at which the binding in force is picked
               (no numbers where a seed has none)
    low, high  Clopper-Pearson interval of the median seed; uses are taken as independent, which those of one file are
               not, so for another corpus the interval is wider
    """
    rows = frames.evaluations[frames.tasks_of(TASK)]
    if rows.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    about = {row["cell"]: row for row in chosen_cells(frames).to_dict("records")}
    found = []
    for (cell, task), seeds in rows[rows["cell"].isin(list(about))].groupby(["cell", "task"], sort=True):
        corpus, *names = str(task).split("/")
        group, reader = _told_apart(names)
        uses = int(seeds["queries"].iloc[0])
        least, median, most = quantiles(seeds["exact"].to_numpy(), (0, 0.5, 1))
        known = not math.isnan(median)
        low, high = clopper_pearson(round(median * uses), uses) if known else (math.nan, math.nan)
        place = [cell, *(about[cell][name] for name in ("head", "dim", "variant")), corpus, group, reader]
        found.append([*place, uses, len(seeds), least, median, most, low, high])
    return pd.DataFrame(found, columns=list(COLUMNS))


def _told_apart(names: list[str]) -> tuple[str, str]:
    """The group and the reader that stand behind the task's name, each of which may be left out."""
    group = next((name for name in names if name in GROUPS), "")
    return group, next((name for name in names if name not in GROUPS), HEAD)
