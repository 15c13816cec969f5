"""Claim: an FPA head with a recency bias looks symbols up in nested scopes, shadowing included; FoX and softmax do not.

Heads trained on the answers of scoped-lookup alone: nothing tells them where to attend. Head dimension against number
of symbols, read at 1 to 8 times the training length; then the uses of names in real Python files, without retraining.

Success of a seed, on fresh test sequences of the training length: at 0.99 of the queries or more the answer is right,
and at as many the binding in force has more weight than any other position. The optimum is 1; a guessed value is right
once in 8, and what readers reach that lack a part of the task (the newest binding of the symbol, live or dead; a random
live one; the most frequent value) is in `lab.tasks.scoped_lookup.LOOKUP_SHORTCUTS` and in the figure.

What a single head can represent. Let o be bound before n, both of one symbol: their content is the same.

- Softmax (by distance) and FoX: in `o [ n ? ?` and `o [ n ] ?` the last query stands at the same place and asks for n,
  then for o, but the ratio of the two weights is the same (frozen-ratio in THEORY.md): one of the two is wrong.
- FPA without positions fails too, for any field, level and dimension: no numbers do all of `o n ?`, `o [ n ?` and
  `o [ n ?...? ] ?`. The last asks for o, so n must have the larger penalty. With free levels or a direct field both
  levels are equal, and the minimum since o is never the higher one. With a walk, level = walk + c, it takes n above o:
  A + k > 0 for the increments A of [ and k of a binding. If a query moves the walk by r <= 0, the first sequence makes
  k < 0 and the second A + k < 0. If r > 0, many queries lift the walk out of reach of the ] : n keeps the penalty
  max(0, c - r) that the second sequence made smaller than that of o, whose penalty cannot fall.
- FPA with a recency bias does all of them at any bounded length: open and close move the walk by more than recency ever
  adds, content counts for more than both. The range of the logits grows with the length (with gates: with the number of
  bindings), so what is learned at 48 tokens reaches only as far as its margins.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.presets import planned, read_at, settings
from lab.heads.config import head_config
from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig
from lab.training.recipe import Recipe

NAME = "scoped_lookup"
BASELINES = ("softmax-none", "softmax-alibi", "softmax-relative", "fox-gate0", "fox-gate4")
WITH_RECENCY = ("fpa-walk-offset-gate", "fpa-walk-offset-alibi")
FPA_FORMS = (*WITH_RECENCY, "fpa-walk-tied-gate", "fpa-walk-tied-alibi", "fpa-walk-tied")

# Higher than elsewhere in the lab: the margins that shadowing needs are wide. The baselines choose between five rates,
# and have up to eight times the dimension at which FPA is compared with them.
RATE = 0.3
FACTORS = (1, 2, 4, 8)
SEQUENCES = 64
# The heads that also read files: of this dimension, and trained with this many symbols.
READERS = {"fpa-walk-offset-gate": 4, "fpa-walk-offset-alibi": 4, "fox-gate0": 8}
READ_SYMBOLS = 16
# What FoX reads: gates never favour an older binding, so it picks the newest one everywhere, which a sample confirms.
SAMPLE = {"max_files": 100}
LONGER = (48, 96, 192)
# Three times the steps of the recipe, at (dimension, symbols) of the places where FPA misses seeds by it, and a lower
# rate to choose; baselines at the largest of them, with the rates that they have everywhere.
PATIENT_STEPS = 2400
PATIENT_RATES = (0.1, RATE)
PATIENT = {**dict.fromkeys(WITH_RECENCY, ((2, 16), (4, 32), (8, 32))), **dict.fromkeys(BASELINES, ((8, 32),))}

PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": 8,
        "fpa": {"fpa-walk-offset-gate": (1, 4), "fpa-walk-tied-alibi": (4,), "fpa-walk-tied": (4,)},
        "symbols": (4, 16),
        "baselines": ("softmax-alibi", "fox-gate0"),
        "baseline_dims": {4: (8,), 16: (8,)},
        "rates": (RATE,),
        "longer": (),
        "patient": {},
        "files": ({"max_files": 24, "max_tokens": 2000},),
    },
    "paper": {
        "seeds": 32,
        "fpa": {**dict.fromkeys(WITH_RECENCY, (1, 2, 4, 8)), **dict.fromkeys(FPA_FORMS[2:], (4,))},
        "symbols": (4, 16, 32),
        "baselines": BASELINES,
        "baseline_dims": {4: (8,), 16: (2, 8, 32), 32: (8,)},
        "rates": (0.01, 0.03, 0.1, RATE, 1.0),
        "longer": WITH_RECENCY,
        "patient": PATIENT,
        # Python's own scopes; and indented blocks, whose bindings die sooner.
        "files": ({"max_files": 360}, {"scopes": "indent", "max_files": 100}),
    },
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
    return planned(NAME, preset, _cells(chosen), chosen["seeds"] if seeds is None else seeds, heads, dims)


def _cells(chosen: dict[str, Any]) -> Iterator[Cell]:
    for head, dims in chosen["fpa"].items():
        for symbols in chosen["symbols"] if head in WITH_RECENCY else (READ_SYMBOLS,):
            for dim in dims:
                yield _cell(head, dim, symbols, Recipe(learning_rate=RATE), chosen["files"])
    for head in chosen["longer"]:
        recipe = Recipe(learning_rate=RATE, lengths=LONGER)
        yield _cell(head, READERS[head], READ_SYMBOLS, recipe, chosen["files"])
    for head in chosen["baselines"]:
        files = [{**options, **SAMPLE} for options in chosen["files"]]
        for symbols, dims in chosen["baseline_dims"].items():
            for dim in dims:
                for rate in chosen["rates"]:
                    yield _cell(head, dim, symbols, Recipe(learning_rate=rate), files)
    for head, places in chosen["patient"].items():
        for dim, symbols in places:
            for rate in chosen["rates"] if head in chosen["baselines"] else PATIENT_RATES:
                yield _cell(head, dim, symbols, Recipe(learning_rate=rate, steps=PATIENT_STEPS), ())


def _cell(head: str, dim: int, symbols: int, recipe: Recipe, files: Sequence[dict[str, Any]]) -> Cell:
    task = TaskConfig(name="scoped-lookup", options={"symbols": symbols})
    evaluations = read_at(task, FACTORS, SEQUENCES)
    if symbols == READ_SYMBOLS and dim == READERS.get(head):
        sources = (TaskConfig(name="source-lookup", options={"symbols": symbols, **options}) for options in files)
        evaluations += tuple(Evaluation(task=source) for source in sources)
    return Cell(experiment=NAME, task=task, head=head_config(head, dim), recipe=recipe, evaluations=evaluations)
