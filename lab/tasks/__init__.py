"""What heads are asked: one task per file, `base.py` says what a task is; `kernels` draw the sequences.

>>> from lab.tasks import make_task
>>> task = make_task("nested-scope", max_depth=2)
>>> batch = task.sample("test", seeds=[0, 1], start=0, count=3, length=8)
>>> batch.tokens.shape
(2, 3, 8)
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

from lab.errors import InputError, nearest
from lab.kernel_cache import drop_stale
from lab.tasks.base import SPLITS, Batch, Task, count_duplicates
from lab.tasks.custom import Custom
from lab.tasks.leveled_dips import LeveledDips
from lab.tasks.nested_scope import NestedScope
from lab.tasks.scoped_lookup import ScopedLookup
from lab.tasks.source_lookup import SourceLookup
from lab.tasks.source_scopes import SourceScopes
from lab.tasks.subset_drop import SubsetDrop
from lab.tasks.subset_free import SubsetFree

__all__ = ["SPLITS", "TASKS", "Batch", "Task", "count_duplicates", "make_task"]

# Of the source that is imported here, whatever is edited later.
SOURCES = drop_stale(Path(__file__).parents[1])

TASKS: dict[str, type[Task]] = {
    NestedScope.name: NestedScope,
    LeveledDips.name: LeveledDips,
    SubsetDrop.name: SubsetDrop,
    SubsetFree.name: SubsetFree,
    Custom.name: Custom,
    SourceScopes.name: SourceScopes,
    ScopedLookup.name: ScopedLookup,
    SourceLookup.name: SourceLookup,
}


def make_task(name: str, /, **options: Any) -> Task:
    """The task of that name with these options; those not given keep their defaults.

    Errors: InputError, with the nearest valid name for an unknown task or option, and naming task and field
    for a bad value.
    """
    if name not in TASKS:
        raise InputError(f"task: unknown name {name!r}{nearest(name, TASKS)}")
    valid = [field.name for field in fields(TASKS[name])]  # type: ignore[arg-type]
    for option in options:
        if option not in valid:
            raise InputError(f"{name}: unknown option {option!r}{nearest(option, valid)}")
    return TASKS[name](**options)
