"""Other ways to evict a chosen key, or to do without: where does each stand beside FPA?

Selective Attention (arXiv 2410.02703) subtracts accumulated selections from later logits: it can evict a chosen key too
(rivals in THEORY.md). As published a selection counts from the *next* row on, so the row of a closing bracket still
sees what the bracket kills; "selective-same" counts it from its own row on. Stick-breaking attention (arXiv 2410.17980)
gives newer keys first choice. Two layers of softmax or FoX heads, with or without a hidden layer between, ask whether
depth escapes what a single layer cannot do; only the last layer's attention is supervised. Single softmax and FoX heads
and FPA in the form that fits stand beside them.

Same sequences, steps and batch for all. Learning rates are chosen on validation data, per task, head and dimension: of
six for single rivals, four for two layers, four for single softmax and FoX heads, which have a finer grid in
target_sets; FPA keeps the recipe's one. Rivals that come nearest are trained four times as long too, at their rate.
Matrices of attention are held whole, so the dimensions are few and the lengths at most 8 times the training length.

Success of a seed: exact-set rate >= 0.99 and mean total variation <= 0.05 on fresh test sequences.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from experiments.presets import planned, settings
from experiments.target_sets import FITTING, RATE, TASKS, TEST_SEQUENCES
from lab.heads.config import head_config
from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig
from lab.training.recipe import Recipe

NAME = "rivals"
SINGLE = ("selective-relative", "selective-same-relative", "stick-breaking")
BASELINES = ("softmax-alibi", "softmax-rope", "fox-gate0")
DEEP = ("softmax2-relative", "softmax2-rope", "fox2-gate0", "softmax2-relative-mlp", "fox2-gate0-mlp")
FACTORS = (1, 2, 4, 8)
# Head, dimension and rate (the one that validation chose) of what is trained LONGER steps too.
PATIENT = {
    "nested-scope": (
        ("selective-same-relative", 4, 0.01),
        ("softmax2-rope", 16, 0.03),
        ("fox2-gate0", 16, 0.03),
    ),
    "leveled-dips": (("selective-same-relative", 4, 0.3),),
    "subset-drop": (("selective-same-relative", 4, 0.03),),
}
LONGER = 4 * Recipe().steps
# Sequences of one query each, read whole: fewer of them where they are long.
FAR_SEQUENCES = {"nested-scope": 64, "leveled-dips": 64, "subset-drop": 128}

PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": 4,
        "dims": dict.fromkeys(TASKS, (4,)),
        "single": SINGLE,
        "baselines": ("softmax-rope", "fox-gate0"),
        "deep": ("softmax2-relative", "fox2-gate0"),
        "deep_dims": (4,),
        "single_rates": (0.03,),
        "rates": (0.1,),
        "deep_rates": (0.01,),
        "patient": False,
        "factors": (1, 2),
    },
    "paper": {
        "seeds": 32,
        "dims": {"nested-scope": (4, 16), "leveled-dips": (4,), "subset-drop": (4,)},
        "single": SINGLE,
        "baselines": BASELINES,
        "deep": DEEP,
        "deep_dims": (16,),
        "single_rates": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
        "rates": (0.01, 0.1, 0.3, 1.0),
        "deep_rates": (0.003, 0.01, 0.03, 0.1),
        "patient": True,
        "factors": FACTORS,
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
    cells = (cell for task in TASKS for cell in _cells(task, chosen))
    # Small blocks: matrices of eight seeds stay in the cache.
    return planned(NAME, preset, cells, chosen["seeds"] if seeds is None else seeds, heads, dims, block=8)


def _cells(task: str, chosen: dict[str, Any]) -> Iterator[Cell]:
    factors = chosen["factors"]
    yield _cell(task, FITTING[task], 1, RATE, factors)
    for kind, rates in (("single", "single_rates"), ("baselines", "rates")):
        for label, dim, rate in product(chosen[kind], chosen["dims"][task], chosen[rates]):
            yield _cell(task, label, dim, rate, factors)
    if task == "nested-scope":
        for label, dim, rate in product(chosen["deep"], chosen["deep_dims"], chosen["deep_rates"]):
            yield _cell(task, label, dim, rate, factors)
    if chosen["patient"]:
        for label, dim, rate in PATIENT[task]:
            yield _cell(task, label, dim, rate, factors, steps=LONGER)


def _cell(task: str, label: str, dim: int, rate: float, factors: Sequence[int], steps: int | None = None) -> Cell:
    config = TaskConfig(name=task)
    length, near, far = config.make().train_length, TEST_SEQUENCES[task], FAR_SEQUENCES[task]
    return Cell(
        experiment=NAME,
        task=config,
        head=head_config(label, dim),
        recipe=Recipe(learning_rate=rate) if steps is None else Recipe(learning_rate=rate, steps=steps),
        evaluations=(
            Evaluation(task=config, split="validation", lengths=(length,), sequences=near),
            Evaluation(task=config, lengths=(length,), sequences=near),
            Evaluation(task=config, lengths=tuple(f * length for f in factors if f > 1), sequences=far),
        ),
    )
