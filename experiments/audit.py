"""Can the tasks be done by less than what they ask for, and does training see what it is tested on?

For every task of the lab, on fresh test sequences of the training length:

readers     what `lab.heads.reader` reaches: the optimum (the target itself), chance, and the shortcuts (position only,
            token counts, last-k window, nearest key of each type; for lookups: values and bindings chosen without
            scopes, or without recency). In leveled-dips token counts are no shortcut but a solution, with gates for
            every type of key.
duplicates  how many sequences of a seed occur twice, within and between train, validation and test, token for token.
            Splits never share a random key, so what is counted is chance: unavoidable where there are few sequences.
control     the head that fits the task, trained as ever and trained on the targets of another sequence of its batch
            (lookups: on the answers of other queries). Success must vanish: what remains would be a leak.

Tasks of files are one corpus for all splits, read by heads trained on nested-scope and scoped-lookup: there is nothing
to audit. subset-free is a finite family, trained on and tested whole, so all its sequences are duplicates and it has no
control; of custom key sets one small family stands for all.

Success: exact-set rate >= 0.99 and mean total variation <= 0.05; for lookups as experiments.scoped_lookup says.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from experiments.presets import planned, read_at, settings
from experiments.scoped_lookup import RATE as LOOKUP_RATE
from experiments.target_sets import FITTING, TEST_SEQUENCES
from lab.heads.config import HeadConfig, ReaderConfig, head_config
from lab.sweeps.plan import Cell, Plan, TaskConfig
from lab.training.recipe import Recipe

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
