"""Readers in place of heads: shortcuts that know less than a task asks for, and the optimum."""

from collections.abc import Callable

import numpy as np

from lab.errors import InputError, nearest
from lab.tasks.base import Batch, Task
from lab.tasks.scoped_lookup import LOOKUP_SHORTCUTS, LookupBatch, ScopedLookup
from lab.tasks.shortcuts import SHORTCUTS

OPTIMUM = "optimum"


def reader_names(task: Task) -> tuple[str, ...]:
    """The readers of a task, the optimum first."""
    return (OPTIMUM, *(LOOKUP_SHORTCUTS if isinstance(task, ScopedLookup) else SHORTCUTS))


def reader_weights(name: str, task: Task, batch: Batch) -> np.ndarray:
    """The attention weights (..., seq_len, seq_len) of a reader of target sets. InputError for an unknown name."""
    readers: dict[str, Callable[[Task, Batch], np.ndarray]] = {OPTIMUM: optimum, **SHORTCUTS}
    _known(name, readers)
    return readers[name](task, batch)


def optimum(task: Task, batch: Batch) -> np.ndarray:
    """The same weight on every key of the target; rows without a target are 0."""
    targets = batch.targets()
    return targets / np.maximum(targets.sum(-1, keepdims=True), 1)


def reader_answers(name: str, batch: LookupBatch) -> np.ndarray:
    """How likely a reader of lookups answers every scored row right, (..., seq_len). InputError for an unknown name."""
    _known(name, {OPTIMUM: None, **LOOKUP_SHORTCUTS})
    return np.ones(batch.tokens.shape) if name == OPTIMUM else LOOKUP_SHORTCUTS[name](batch)


def _known(name, readers) -> None:
    if name not in readers:
        raise InputError(f"reader: unknown name {name!r}{nearest(name, readers)}")
