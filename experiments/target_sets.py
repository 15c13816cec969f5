"""Claim: FPA heads find the target sets on every seed; softmax and FoX heads find them on none.

Trained heads of one layer on nested-scope, leveled-dips and subset-drop, many seeds each, read at 1 to 16 times the
training length; the heads trained on nested-scope then read the scopes of real Python files, without retraining.

Success of a seed: exact-set rate >= 0.99 and mean total variation <= 0.05 on fresh test sequences of the training
length. Baselines are given every head dimension up to 64 and, per (task, head, dimension), the learning rate of a grid
that has the lowest median validation loss; FPA keeps the recipe's one rate. FPA is run in every form: in the form that
fits a task (FITTING below) it should succeed, in the others the reader sees what the form is for.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.presets import planned, settings
from lab.heads.config import LABELS, head_config
from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig
from lab.training.recipe import Recipe

NAME = "target_sets"
TASKS = ("nested-scope", "leveled-dips", "subset-drop")
BASELINES = tuple(label for label, options in LABELS.items() if options["kind"] in ("softmax", "fox"))
FPA_FORMS = tuple(label for label, options in LABELS.items() if options["kind"] == "fpa")

# The form in which THEORY.md says a head of constant dimension does the task, and which training finds.
FITTING = {"nested-scope": "fpa-walk-offset", "leveled-dips": "fpa-direct-free", "subset-drop": "fpa-walk-offset"}

RATE = Recipe().learning_rate
# Multiples of the training length at which every head is read.
FACTORS = (1, 2, 4, 8, 16)
# A sequence of subset-drop holds one query, those of the others about one per token.
TEST_SEQUENCES = {"nested-scope": 64, "leveled-dips": 64, "subset-drop": 512}

PRESETS: dict[str, dict[str, Any]] = {
    "quick": {
        "seeds": 16,
        "heads": {
            "nested-scope": ("softmax-none", "softmax-relative", "fox-gate0", "fpa-walk-tied", "fpa-walk-offset"),
            "leveled-dips": ("softmax-relative", "fox-gate0", "fpa-direct-free"),
            "subset-drop": ("softmax-relative", "fox-gate0", "fpa-walk-offset"),
        },
        "baseline_dims": (1, 8),
        "fpa_dims": (1,),
        "rates": (0.01, RATE),
        "factors": (1, 2, 4, 8),
        "files": 40,
    },
    "paper": {
        "seeds": 32,
        "heads": dict.fromkeys(TASKS, (*BASELINES, *FPA_FORMS)),
        "baseline_dims": (1, 2, 4, 8, 16, 32, 64),
        "fpa_dims": (1, 2, 4),
        "rates": (0.01, 0.03, RATE, 0.3, 1.0, 3.0),
        "factors": FACTORS,
        "files": None,
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
    for task, labels in chosen["heads"].items():
        for label in labels:
            is_fpa = label in FPA_FORMS
            for dim in chosen["fpa_dims"] if is_fpa else chosen["baseline_dims"]:
                for rate in (RATE,) if is_fpa else chosen["rates"]:
                    yield Cell(
                        experiment=NAME,
                        task=TaskConfig(name=task),
                        head=head_config(label, dim),
                        recipe=Recipe(learning_rate=rate),
                        evaluations=_evaluations(task, chosen["factors"], chosen["files"]),
                    )


def _evaluations(task: str, factors: Sequence[int], files: int | None) -> tuple[Evaluation, ...]:
    config = TaskConfig(name=task)
    length, sequences = config.make().train_length, TEST_SEQUENCES[task]
    found = [
        Evaluation(task=config, split="validation", lengths=(length,), sequences=sequences),
        Evaluation(task=config, split="test", lengths=tuple(f * length for f in factors), sequences=sequences),
    ]
    if task == "nested-scope":
        found.append(Evaluation(task=TaskConfig(name="source-scopes", options={"max_files": files} if files else {})))
    return tuple(found)
