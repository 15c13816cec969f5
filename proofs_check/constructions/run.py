"""Runs each construction as a real head on a task's own sequences, for growing lengths and every format.

A format *fails* at a length when the total variation to the target of some query exceeds FAILURE there. Lengths are in
the task's unit (keys of subset-drop, tokens of nested-scope).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lab.errors import InputError, nearest
from lab.tasks import Batch, Task, make_task
from proofs_check.constructions.any_eviction import any_eviction
from proofs_check.constructions.constant_dimension import constant_dimension
from proofs_check.constructions.nested_scope import nested_scope
from proofs_check.constructions.realise import FORMATS, max_tv, realise
from proofs_check.constructions.token_head import TokenHead

EPSILON = 1e-6
FAILURE = 0.01
MAX_QUERIES = 64  # of each sequence, its last ones
TASK_OF = {"constant-dimension": "subset-drop", "nested-scope": "nested-scope", "any-eviction": "leveled-dips"}


@dataclass(frozen=True)
class Measurement:
    """The greatest total variation over all queries looked at, of sequences of that length."""

    construction: str
    format: str
    length: int
    tokens: int
    queries: int
    max_tv: float


def measure(construction: str, lengths: Iterable[int], *, sequences: int = 4, seed: int = 0) -> list[Measurement]:
    """One measurement per length and format, on test sequences of the construction's task (TASK_OF).

    any-eviction gets a head of its own for every sequence, from the death times; the others have one head for all.
    Raises `InputError` for an unknown construction.
    """
    if construction not in TASK_OF:
        raise InputError(f"construction: unknown name {construction!r}{nearest(construction, TASK_OF)}")
    task = make_task(TASK_OF[construction])
    results = []
    for length in lengths:
        batch = task.sample("test", [seed], 0, sequences, length=length)[0]
        for name, dtype in FORMATS.items():
            runs = [_run(head, tokens, one, dtype) for head, tokens, one in _cases(construction, task, batch)]
            looked_at = int((batch.queries[:, -MAX_QUERIES:] > 0).sum())
            results.append(Measurement(construction, name, length, batch.seq_len, looked_at, max(runs)))
    return results


def failures(measurements: Sequence[Measurement]) -> dict[str, int | None]:
    """For each format the least measured length at which it fails, None if it never does."""
    failed: dict[str, int | None] = {m.format: None for m in measurements}
    for m in sorted(measurements, key=lambda m: -m.length):
        if m.max_tv > FAILURE:
            failed[m.format] = m.length
    return failed


def _cases(construction: str, task: Task, batch: Batch) -> Iterable[tuple[TokenHead, np.ndarray, Batch]]:
    """Each head with the sequences it reads: token numbers (batch, length) and the batch that holds their targets."""
    if construction == "any-eviction":
        positions = np.arange(batch.seq_len)[None]
        for row in range(len(batch.tokens)):
            yield any_eviction(batch.death[row].tolist()), positions, batch[row : row + 1]
        return
    head = constant_dimension() if construction == "constant-dimension" else nested_scope()
    number = np.array([head.vocabulary.index(token) for token in task.vocabulary])
    yield head, number[batch.tokens], batch


def _run(construction: TokenHead, tokens: np.ndarray, batch: Batch, dtype: torch.dtype) -> float:
    head = realise(construction, batch.seq_len, EPSILON, dtype)
    position = np.arange(batch.seq_len)
    rows = position[-MAX_QUERIES:, None]
    targets = (position <= rows) & (rows < batch.death[:, None, :]) & (batch.queries[:, -MAX_QUERIES:, None] > 0)
    return max_tv(head, torch.from_numpy(tokens), torch.from_numpy(targets))
