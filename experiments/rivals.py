"""Other ways to evict a chosen key, or to do without: where does each stand beside FPA?

Selective Attention (arXiv 2410.02703) subtracts accumulated selections from later logits: it can evict a chosen key too
(rivals in THEORY.md). As published a selection counts from the *next* row on, so the row of a closing bracket still
sees what the bracket kills; "selective-same" counts it from its own row on. Stick-breaking attention (arXiv 2410.17980)
gives newer keys first choice. Two layers of softmax or FoX heads, with or without a hidden layer between, ask whether
depth escapes what a single layer cannot do; only the last layer's attention is supervised. Single softmax and FoX heads
and FPA in the form that fits stand beside them.

Same sequences, steps and batch for all. Learning rates are chosen on validation data, per task, head and dimension:
two for single layers, three for two layers; FPA keeps the recipe's one. Matrices of attention are held whole, so the
dimensions are few and the lengths at most 8 times the training length.

Success of a seed: exact-set rate >= 0.99 and mean total variation <= 0.05 on fresh test sequences.
"""

from collections.abc import Iterator, Sequence
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
        "rates": (0.1,),
        "deep_rates": (0.01,),
        "factors": (1, 2),
    },
    "paper": {
        "seeds": 32,
        "dims": {"nested-scope": (4, 16), "leveled-dips": (4,), "subset-drop": (4,)},
        "single": SINGLE,
        "baselines": BASELINES,
        "deep": DEEP,
        "deep_dims": (16,),
        "rates": (0.01, 0.1),
        "deep_rates": (0.003, 0.01, 0.03),
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
    yield _cell(task, FITTING[task], 1, RATE, chosen["factors"])
    for label in (*chosen["single"], *chosen["baselines"]):
        for dim in chosen["dims"][task]:
            for rate in chosen["rates"]:
                yield _cell(task, label, dim, rate, chosen["factors"])
    if task == "nested-scope":
        for label in chosen["deep"]:
            for dim in chosen["deep_dims"]:
                for rate in chosen["deep_rates"]:
                    yield _cell(task, label, dim, rate, chosen["factors"])


def _cell(task: str, label: str, dim: int, rate: float, factors: Sequence[int]) -> Cell:
    config = TaskConfig(name=task)
    length, near, far = config.make().train_length, TEST_SEQUENCES[task], FAR_SEQUENCES[task]
    return Cell(
        experiment=NAME,
        task=config,
        head=head_config(label, dim),
        recipe=Recipe(learning_rate=rate),
        evaluations=(
            Evaluation(task=config, split="validation", lengths=(length,), sequences=near),
            Evaluation(task=config, lengths=(length,), sequences=near),
            Evaluation(task=config, lengths=tuple(f * length for f in factors if f > 1), sequences=far),
        ),
    )
