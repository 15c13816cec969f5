"""The First Passage Attention lab: heads with forgetting, tasks with exact targets, sweeps over seeds.

>>> import lab
>>> head = lab.make_head(lab.head_config("fpa-walk-tied", dim=1), vocab_size=3, seeds=[0], max_len=32)
>>> sorted(lab.TASKS)[:2]
['custom', 'leveled-dips']

Importing `lab` loads nothing heavy: every name below is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str

    from lab.errors import InputError
    from lab.heads import Head, HeadConfig, head_config, make_head
    from lab.ops.attention import fox_attention, fpa_attention, softmax_attention
    from lab.ops.reference import penalty
    from lab.sweeps.plan import Cell, Evaluation, Plan, TaskConfig
    from lab.tasks import TASKS, Batch, Task, make_task
    from lab.training import Recipe, run_cell, train

_HOME = {
    "InputError": "lab.errors",
    "Head": "lab.heads",
    "HeadConfig": "lab.heads",
    "head_config": "lab.heads",
    "make_head": "lab.heads",
    "softmax_attention": "lab.ops.attention",
    "fox_attention": "lab.ops.attention",
    "fpa_attention": "lab.ops.attention",
    "penalty": "lab.ops.reference",
    "Cell": "lab.sweeps.plan",
    "Evaluation": "lab.sweeps.plan",
    "Plan": "lab.sweeps.plan",
    "TaskConfig": "lab.sweeps.plan",
    "TASKS": "lab.tasks",
    "Batch": "lab.tasks",
    "Task": "lab.tasks",
    "make_task": "lab.tasks",
    "Recipe": "lab.training",
    "run_cell": "lab.training",
    "train": "lab.training",
}

__all__ = ["TASKS", "Batch", "Cell", "Evaluation", "Head", "HeadConfig", "InputError", "Plan", "Recipe", "Task"]
__all__ += ["TaskConfig", "fox_attention", "fpa_attention", "head_config", "make_head", "make_task", "penalty"]
__all__ += ["run_cell", "softmax_attention", "train"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("first-passage-attention-lab")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
