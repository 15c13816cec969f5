"""What `fpa-lab demo` trains: the claim of target_sets on a scale that can be watched, about a minute on two cores.

Per task the form of FPA that fits it at dimension 1, and softmax (learned relative bias) and FoX heads at dimensions 1
and 8, 8 seeds each, at the recipe's learning rate and half its steps. A grid of rates is what target_sets is for.
"""

from collections.abc import Iterator, Sequence

from experiments.target_sets import FITTING, TASKS, TEST_SEQUENCES
from lab.errors import InputError, nearest
from lab.heads.config import head_config
from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig
from lab.training.recipe import Recipe

NAME = "demo"
BASELINES = ("softmax-relative", "fox-gate4")
BASELINE_DIMS = (1, 8)
FACTORS = (1, 2, 4, 8)
FILES = 40
SEEDS = 8
RECIPE = Recipe(steps=Recipe().steps // 2)


def plan(
    preset: str = "quick",
    seeds: int | None = None,
    heads: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
) -> Plan:
    """The cells of the demo, for seeds 0 .. seeds-1; `heads` and `dims` keep only those.

    Raises InputError for another preset than quick or an unknown head, or when nothing is left.
    """
    if preset != "quick":
        raise InputError(f"--preset: unknown preset {preset!r}{nearest(preset, ['quick'])}")
    known = {*BASELINES, *FITTING.values()}
    for label in heads or ():
        if label not in known:
            raise InputError(f"--head: {label!r} is no head of {NAME}{nearest(label, known)}")
    cells = [cell for cell in _cells() if cell.head.label in (heads or known) and (not dims or cell.head.dim in dims)]
    if not cells:
        raise InputError(f"{NAME}: has no cell with these heads and dimensions")
    return Plan(name=NAME, preset=preset, cells=cells, seeds=range(SEEDS if seeds is None else seeds), block=SEEDS)


def _cells() -> Iterator[Cell]:
    for task in TASKS:
        heads = [head_config(label, dim) for label in BASELINES for dim in BASELINE_DIMS]
        for head in (*heads, head_config(FITTING[task], 1)):
            config = TaskConfig(name=task)
            yield Cell(experiment=NAME, task=config, head=head, recipe=RECIPE, evaluations=_evaluations(config))


def _evaluations(task: TaskConfig) -> tuple[Evaluation, ...]:
    length, sequences = task.make().train_length, TEST_SEQUENCES[task.name]
    own = (
        Evaluation(task=task, split="validation", lengths=(length,), sequences=sequences),
        Evaluation(task=task, split="test", lengths=tuple(f * length for f in FACTORS), sequences=sequences),
    )
    files = Evaluation(task=TaskConfig(name="source-scopes", options={"max_files": FILES}))
    return (*own, files) if task.name == "nested-scope" else own
