"""softmax-shatter: sets of keys whose every subset is read need a content dimension of their own (THEORY.md).

Heads with logits q . k_j + b_j, any key vectors and biases, a free q per query, separation. Let A be a set of v keys.

* A is *shattered* if for every subset B but the empty one and A itself some query reads of A exactly B. Then d >= v -
  1.
* A is *shattered by halves* if for every such B some query reads of A exactly B or exactly A without B. Then d >= v -
  2, and d >= v - 1 if there are no biases.

Proof (Radon). If d < v - 1 there is c != 0 on A with sum c_j = 0 and sum c_j k_j = 0. Let P = {c > 0} and N = {c <
0}, neither of them empty. If a query reads P and nothing of N, with a threshold t between the logits of the keys it
reads and the others, then 0 < sum c_j (q . k_j + b_j - t) = c . b; if it reads N and nothing of P, then c . b < 0.
Shattered: both queries exist. By halves without biases: one exists, and c . b = 0. By halves with biases: put them
into the content, (k_j, b_j), with a last coordinate of q that is always 1.                                         QED

The empty set and A itself need no query: a threshold above or below all logits gives them. All subsets of n keys: n
keys are shattered, so d >= n - 1. All sets of at most k of 2k + 1 keys: shattered by halves, so d >= 2k - 1, and 2k
without biases.

FoX: the gates after a key join its bias where they are the same for all these queries, up to what all keys of A share.
With gates per slot that is so for the keys of one block; with one gate for all drops it is enough that the queries
have the same number of drops between two neighbours of A. All subsets, dips after each key, one gate: the queries that
read exactly one key of each pair (2m - 1, 2m) have m - m' drops between the keys 2m' - 1 and 2m - 1 and read any of
these, so d >= ceil(n / 2) - 1.

The search goes through the sets of keys in order, each extended by later keys; a subset of a shattered set is
shattered, so nothing is missed. It stops at `goal` keys, where an upper bound is met, or when its budget is spent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from proofs_check.bounds.cases import Cases, Ints

BUDGET = 50_000_000  # entries of rows looked at, STEP more for each look
STEP = 500
LARGE_BUDGET = 400_000_000  # the same up to EXACT_KEYS keys
EXACT_KEYS = 20
ALL = slice(None)

Traces = Literal["all", "half"]


@dataclass(frozen=True)
class Shattered:
    """Keys, and queries, one per trace. `exact`: no larger set of keys is shattered (or the goal is met)."""

    keys: tuple[int, ...]
    queries: tuple[int, ...]
    traces: Traces
    exact: bool

    def dimension(self, biases: bool = True) -> int:
        """The bound on the content dimension."""
        return max(0, len(self.keys) - 1 - (self.traces == "half" and biases))


def shattered(
    cases: Cases, traces: Traces = "all", *, head: str = "softmax", counted: bool = False, goal: int | None = None
) -> Shattered:
    """The largest set of keys found to be shattered, of at least `goal` keys if there is one.

    FoX: within blocks or histories, for any gates; with `counted` for one gate for all drops, of a family.
    """
    budget = LARGE_BUDGET if cases.keys <= EXACT_KEYS else BUDGET
    limit = cases.keys if goal is None else min(goal, cases.keys)
    best: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    exact = True
    counted = counted and head == "fox" and cases.block is not None
    for queries, keys in [(ALL, ALL)] if counted else cases.frozen(head):
        search = _Search(cases, traces == "half", counted, limit, best, budget)
        rows = np.arange(cases.queries)[queries]
        search.extend((), rows, np.zeros(len(rows), np.int64), np.arange(cases.keys)[keys].tolist())
        best, budget, exact = search.best, search.budget, exact and search.budget >= 0
        if len(best[0]) >= limit:
            break
    return Shattered(*best, traces, exact or len(best[0]) >= limit)


class _Search:
    """Depth first; `best` is the largest set so far with its queries.

    A set that is to grow to t keys needs not one query per trace but as many as there are traces of the t keys that
    extend it: what cannot be bettered is cut early by counting.
    """

    def __init__(self, cases: Cases, half: bool, counted: bool, limit: int, best, budget: int):
        self.cases, self.half, self.counted, self.limit = cases, half, counted, limit
        self.best, self.budget = best, budget
        self.reads = np.ascontiguousarray(cases.alive.T)

    def extend(self, chosen: tuple[int, ...], queries: Ints, trace: Ints, candidates: list[int]) -> None:
        """Tries the candidates, in order, after the chosen keys, whose traces these queries have."""
        size = len(chosen) + 1
        if not candidates or self.done():
            return
        parts = (
            list(self.by_drops(chosen, queries, trace, candidates))
            if self.counted and chosen
            else [(key, queries, trace) for key in self.together(size, queries, trace, candidates)]
        )
        for at, (key, rows, before) in enumerate(parts):
            left = sorted({k for k, _, _ in parts[at:]})
            if len(chosen) + len(left) <= len(self.best[0]) or self.done():
                return
            here = self.cases.present[rows, key]
            rows, longer = rows[here], before[here] * 2 + self.cases.alive[rows[here], key]
            if not self.good(np.bincount(longer, minlength=2**size), size):
                continue  # good enough when it was listed, and bettered since
            if size > len(self.best[0]):
                self.best = (*chosen, key), self.queries(rows, longer, size)
            self.extend((*chosen, key), rows, longer, [k for k in left if k > key])

    def done(self) -> bool:
        return self.budget < 0 or len(self.best[0]) >= self.limit

    def together(self, size: int, queries: Ints, trace: Ints, candidates: list[int]) -> list[int]:
        """The candidates with which all traces are there."""
        self.budget -= (len(queries) + 2**size) * len(candidates) + STEP
        offset = np.arange(0, len(candidates) * 2**size, 2**size)[:, None]
        cell = self.reads[candidates][:, queries] + (trace * 2 + offset)
        if self.cases.block is None:
            cell = cell[self.cases.present.T[candidates][:, queries]]
        counts = np.bincount(cell.ravel(), minlength=len(candidates) * 2**size).reshape(len(candidates), -1)
        good = self.good(counts, size)
        return [key for key, yes in zip(candidates, good) if yes]

    def by_drops(self, chosen: tuple[int, ...], queries: Ints, trace: Ints, candidates: list[int]):
        """The same for the queries with each number of drops since the last key."""
        size = len(chosen) + 1
        for key in candidates:
            drops = self.cases.drops(chosen[-1], key)[queries]
            most = int(drops.max()) + 1
            self.budget -= len(queries) + most * 2**size + STEP
            cell = drops * 2**size + trace * 2 + self.cases.alive[queries, key]
            counts = np.bincount(cell, minlength=most * 2**size).reshape(most, -1)
            for count in np.flatnonzero(self.good(counts, size)):
                same = drops == count
                yield key, queries[same], trace[same]

    def good(self, counts: Ints, size: int):
        """Whether there are as many queries for each trace as a set better than the best one needs."""
        need = 2 ** (max(size, len(self.best[0]) + 1) - size)
        if self.half:
            counts = counts + counts[..., ::-1]
            return (counts[..., 1:-1] >= need).all(-1) & (counts[..., 0] >= need - 1)
        return (counts[..., 1:-1] >= need).all(-1) & (counts[..., 0] >= need - 1) & (counts[..., -1] >= need - 1)

    def queries(self, queries: Ints, trace: Ints, size: int) -> tuple[int, ...]:
        """One query for each trace, or for one trace of each two complements."""
        values, first = np.unique(trace, return_index=True)
        by_trace = dict(zip(values.tolist(), queries[first].tolist()))
        last = 2**size - 1
        if self.half:
            return tuple(by_trace[t] if t in by_trace else by_trace[last - t] for t in range(1, (last + 1) // 2))
        return tuple(by_trace[t] for t in range(1, last))


def radon(keys: Sequence[Sequence[int | Fraction]]) -> list[Fraction] | None:
    """c != 0 with sum c_j = 0 and sum c_j k_j = 0, None if the keys are affinely independent.

    No target that holds {c > 0} and avoids {c < 0} is separated by a head with these keys and biases b with c . b <= 0.
    """
    from flint import fmpq, fmpq_mat

    rows: list[tuple[int | Fraction, ...]] = [(1,) * len(keys), *zip(*keys)]
    entries = [fmpq(x.numerator, x.denominator) for row in rows for x in row]
    reduced, rank = fmpq_mat(len(rows), len(keys), entries).rref()
    pivots = [next(j for j in range(len(keys)) if reduced[i, j] != 0) for i in range(rank)]
    free = next((j for j in range(len(keys)) if j not in pivots), None)
    if free is None:
        return None
    vector = [Fraction(0)] * len(keys)
    vector[free] = Fraction(1)
    for row, column in enumerate(pivots):
        vector[column] = -Fraction(int(reduced[row, free].p), int(reduced[row, free].q))
    return vector
