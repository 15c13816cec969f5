"""Claim (fox-table in THEORY.md): the content dimension that reading every subset takes grows with the number of keys
for softmax and FoX heads, and not for FPA. How much of that do trained heads show?

All 2^n - 1 non-empty subsets of n keys, dips after each key (K1 D1 ... Kn Dn Q; only keys are attended to). Softmax
and FoX heads get a learned bias per key, which the theory grants them, and a query vector of their own for every
subset; FPA heads get one query vector for all. Every step sees all subsets. A seed succeeds if in the end, in float64,
all of them are read at once:

    separation   gap above 0 for every subset
    window       least gap at least 4 times the largest window
    uniform      total variation from uniform at most 0.05 for every subset (the optimum is 0)

Each head is trained for each notion by itself, by a loss that fits it (`lab.training.families`).

FoX heads are trained by five recipes (rates and numbers of steps), FPA by two; softmax needs no more than one, which
finds every head that is not proved impossible. Of the recipes of a head, notion, number of keys and dimension that with
the most successes counts: the question is what can be found, and the choice favours the baselines. FoX heads also start
near a construction of the least dimension that is known to do, which tells what is not found from what cannot be
represented.

Chance is 0, in every notion: as all subsets have to be read at once, a reader that weights all keys equally, or goes by
positions or by the newest keys, succeeds never: it reads the same of {1}, {2} and {1, 2}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from experiments.presets import planned, settings
from lab.heads.config import HeadConfig, head_config
from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig
from lab.tasks.subset_free import NOTIONS
from lab.training.recipe import Recipe

if TYPE_CHECKING:
    import pandas as pd

    from lab.sweeps import Frames

NAME = "minimum_dimension"

# Head, and how many drop tokens there are: one gate for all drops, or one per slot.
SOFTMAX, ONE_GATE, PER_SLOT = ("softmax-relative", "shared"), ("fox-relative", "shared"), ("fox-relative", "per-slot")
FPA = ("fpa-walk-offset", "shared")
HEADS = (SOFTMAX, ONE_GATE, PER_SLOT, FPA)
HEAD_NAMES = {SOFTMAX: "softmax", ONE_GATE: "FoX, one gate", PER_SLOT: "FoX, gate per slot", FPA: "FPA, fixed query"}

# Windows need far-apart numbers, so large steps; FPA keeps the lab's recipe, and is given more steps beside it.
BASELINE = Recipe(steps=1500, learning_rate=0.3)
GRID = (
    BASELINE,
    Recipe(steps=1500, learning_rate=0.1),
    Recipe(steps=1500, learning_rate=1.0),
    Recipe(steps=6000, learning_rate=0.1),
    Recipe(steps=6000, learning_rate=0.3),
)
NEAR = Recipe(steps=1500, learning_rate=0.03, start="construction")
RECIPES = {SOFTMAX: (BASELINE,), ONE_GATE: GRID, PER_SLOT: GRID, FPA: (Recipe(), Recipe(steps=3200))}

PRESETS: dict[str, dict[str, Any]] = {
    "quick": {"seeds": 8, "keys": (2, 3, 4, 5), "dims": range(5), "recipes": 1},
    "paper": {"seeds": 32, "keys": range(2, 11), "dims": range(11), "recipes": None},
}


def known_dimension(head: tuple[str, str], notion: str, keys: int) -> int:
    """The least dimension for which THEORY.md has a construction: all subsets, dips after each key.

    uniform stands for total variation 0.05, for which small windows are enough; exactly uniform takes FoX keys - 1.
    """
    if head == FPA:
        return 0
    if head == SOFTMAX:
        return keys - 1
    if notion == "separation":
        return -(-keys // 2) - 1 if head == ONE_GATE else 0
    return -(-2 * keys // 3) - 1 if head == ONE_GATE else keys // 2


def lower_bound(head: tuple[str, str], notion: str, keys: int) -> int:
    """The dimension below which THEORY.md proves that no head of the kind reads all subsets.

    Total variation 0.05 bounds the weights: of s keys read each has 1/s - 0.05 to 1/s + 0.05, any other at most 0.05.
    So for s <= 9 it separates. And fox-pairs holds with the window log((1/n + 0.05) / (1/n - 0.05)) of n keys read and
    the gap log((1/s - 0.05) / 0.05) of s = n - 1, which is larger for n <= 7; with more keys, for the first seven.
    """
    if head == FPA:
        return 0
    if head == SOFTMAX:
        return keys - 1
    if notion == "window":
        return keys // 2
    separated = -(-keys // 2) - 1 if head == ONE_GATE else 0
    return max(separated, min(keys, 7) // 2) if notion == "uniform" else separated


def exact_dimension(head: tuple[str, str], notion: str, keys: int) -> int | None:
    """The least dimension that reads exactly uniformly, where that is more than `known_dimension`: face-chain."""
    return keys - 1 if notion == "uniform" and head in (ONE_GATE, PER_SLOT) else None


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
    return planned(NAME, preset, _cells(chosen), chosen["seeds"] if seeds is None else seeds, heads, dims)


def _cells(chosen: dict[str, Any]) -> Iterator[Cell]:
    for keys in chosen["keys"]:
        for kind in HEADS:
            for notion in NOTIONS:
                for dim in chosen["dims"]:
                    # With more dimensions than keys the first recipe finds what there is.
                    for recipe in RECIPES[kind][: chosen["recipes"] if dim <= keys else 1]:
                        yield _cell(kind, keys, notion, dim, recipe)
                if kind in (ONE_GATE, PER_SLOT):
                    yield _cell(kind, keys, notion, known_dimension(kind, notion, keys), NEAR)


def _cell(kind: tuple[str, str], keys: int, notion: str, dim: int, recipe: Recipe) -> Cell:
    task = TaskConfig(name="subset-free", options=_options(kind, keys, notion))
    head: HeadConfig = head_config(kind[0], dim)
    evaluation = Evaluation(task=task, lengths=(keys,), sequences=2**keys - 1)
    return Cell(experiment=NAME, task=task, head=head, recipe=recipe, evaluations=(evaluation,), compare_rates=True)


def _options(kind: tuple[str, str], keys: int, notion: str) -> dict[str, object]:
    return {"keys": keys, "tokens": kind[1], "notion": notion, "query": "fixed" if kind == FPA else "free"}


def counted(frames: Frames) -> pd.DataFrame:
    """Successes by head, notion, keys, start and dim, of the recipe that has most of them.

    Columns besides those: label and tokens (of the head), steps and learning_rate of that recipe, recipes (how many
    were tried), n, successes, low, high (Clopper-Pearson), and known, proved, exact (`known_dimension`, `lower_bound`,
    `exact_dimension`; -1 for none). Recipes with as many successes: fewest steps, then the lowest rate.
    """
    import pandas as pd

    from lab.sweeps.statistics import success_counts

    tests = frames.evaluations[frames.evaluations["task"] == frames.evaluations["train_task"]]
    found = {cell: success_counts(seeds) for cell, seeds in tests.groupby("cell")["success"]}
    rows = []
    tasks: dict[str, Any] = {}
    cells = frames.cells
    for cell, label, head, config in zip(cells["cell"], cells["task"], cells["head"], cells["config"]):
        if cell not in found:
            continue
        data = json.loads(config)
        task = tasks[label] = tasks.get(label) or TaskConfig(**data["task"]).make()
        kind = (str(head), task.tokens)
        rows.append(
            {
                "head": HEAD_NAMES[kind], "label": head, "tokens": task.tokens,
                "notion": task.notion, "keys": task.keys,
                "start": data["recipe"].get("start", "random"), "dim": int(data["head"]["dim"]),
                "steps": int(data["recipe"]["steps"]), "learning_rate": float(data["recipe"]["learning_rate"]),
                **found[cell],
                "known": known_dimension(kind, task.notion, task.keys),
                "proved": lower_bound(kind, task.notion, task.keys),
                "exact": -1 if (exact := exact_dimension(kind, task.notion, task.keys)) is None else exact,
            }
        )  # fmt: skip
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    order = {"head": list(HEAD_NAMES.values()), "notion": list(NOTIONS)}
    place = ["head", "notion", "keys", "start", "dim"]
    table["recipes"] = table.groupby(place)["n"].transform("size")
    table = table.sort_values(["successes", "steps", "learning_rate"], ascending=[False, True, True], kind="stable")
    table = table.drop_duplicates(place)
    keys = table.assign(**{name: table[name].map(of.index) for name, of in order.items()})
    return table.loc[keys.sort_values(["head", "notion", "keys", "start", "dim"]).index].reset_index(drop=True)


def frontiers(table: pd.DataFrame) -> pd.DataFrame:
    """From `counted`, by head, notion and keys, where success begins.

    some, all: the least dimension with a success, and from which on every dimension has all, of random starts;
    -1 where there is none. near, near_n: successes and seeds that started near the construction of dimension known.
    """
    import pandas as pd

    groups: dict[tuple[str, str, int], list[dict[Any, Any]]] = {}
    for row in table.to_dict("records"):
        groups.setdefault((row["head"], row["notion"], row["keys"]), []).append(row)
    rows = []
    for (head, notion, keys), group in groups.items():
        random = {row["dim"]: row for row in group if row["start"] == "random"}
        near = [row for row in group if row["start"] == "construction"]
        short = max((dim for dim, row in random.items() if row["successes"] < row["n"]), default=-1)
        rows.append(
            {
                "head": head, "notion": notion, "keys": keys,
                "proved": group[0]["proved"], "known": group[0]["known"],
                "some": min((dim for dim, row in random.items() if row["successes"]), default=-1),
                "all": min((dim for dim in random if dim > short), default=-1),
                "near": sum(row["successes"] for row in near), "near_n": sum(row["n"] for row in near),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def remarks(frames: Frames) -> list[str]:
    """For `fpa-lab results`: the frontiers that were found beside those of the theory, one line per head and notion."""
    table = counted(frames)
    if table.empty:
        return []
    edges = frontiers(table)
    keys = sorted(set(edges["keys"]))
    width = max(len(name) for name in HEAD_NAMES.values())
    lines = [
        "",
        "Least content dimension by number of keys. proved: none below; known: a construction has it; some, all: from",
        "random starts a seed succeeds, all do from there on, by the best recipe for each dimension; near: seeds that",
        "succeed from near the construction.",
        f"{'':{width}}  {'':10}  {'keys':>8} " + " ".join(f"{n:>5}" for n in keys),
    ]
    for (head, notion), group in edges.groupby(["head", "notion"], sort=False):
        by_keys = group.set_index("keys")
        for name in ("proved", "known", "some", "all", "near"):
            if name == "near" and not by_keys["near_n"].any():
                continue
            texts = [_text(by_keys, name, n) for n in keys]
            lines.append(f"{head:{width}}  {notion:10}  {name:>8} " + " ".join(f"{text:>5}" for text in texts))
    return [*lines, *exceptions(edges)]


def _text(by_keys: pd.DataFrame, name: str, keys: int) -> str:
    if keys not in by_keys.index:
        return ""
    row = by_keys.loc[keys]
    if name == "near":
        return f"{row['near']}/{row['near_n']}" if row["near_n"] else ""
    return "none" if row[name] < 0 else str(row[name])


def exceptions(edges: pd.DataFrame) -> list[str]:
    """Where training stops short of a known construction, by how much; and any success below a proved bound."""
    lines = []
    for row in edges.to_dict("records"):
        where = f"{row['head']}, {row['notion']}, {row['keys']} keys"
        if 0 <= row["some"] < row["proved"]:
            lines.append(f"BELOW THE BOUND: {where}: success at dimension {row['some']}, proved {row['proved']}")
        near = f"; near it {row['near']} of {row['near_n']} succeed" if row["near_n"] else ""
        if row["some"] < 0:
            lines.append(f"not found: {where}: a construction of dimension {row['known']} exists{near}")
        elif row["some"] > row["known"]:
            gap = row["some"] - row["known"]
            lines.append(f"short by {gap}: {where}: first success at {row['some']}, known {row['known']}{near}")
        elif row["some"] < row["known"]:
            lines.append(f"better than known: {where}: success at {row['some']}, known {row['known']}")
    return lines
