"""softmax-shatter: sets of keys whose every subset is read need a content dimension of their own (THEORY.md).

Heads with logits q . k_j + b_j, any key vectors and biases, a free q per query, separation. Let A be a set of v keys.

* A is *shattered* if for every subset B but the empty one and A itself some query reads of A exactly B. Then d >= v - 1.
* A is *shattered by halves* if for every such B some query reads of A exactly B or exactly A without B. Then d >= v - 2,
  and d >= v - 1 if there are no biases.

Proof (Radon). If d < v - 1 there is c != 0 on A with sum c_j = 0 and sum c_j k_j = 0. Let P = {c > 0} and N = {c < 0},
neither of them empty. If a query reads P and nothing of N, with a threshold t between the logits of the keys it reads
and the others, then 0 < sum c_j (q . k_j + b_j - t) = c . b; if it reads N and nothing of P, then c . b < 0. Shattered: both
queries exist. By halves without biases: one exists, and c . b = 0. By halves with biases: put them into the content,
(k_j, b_j), with a last coordinate of q that is always 1.                                                           QED

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

BUDGET = 100_000_000  # entries of rows looked at
LARGE_BUDGET = 400_000_000  # the same up to EXACT_KEYS keys
EXACT_KEYS = 20

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
    best = Shattered((), (), traces, True)
    if counted and head == "fox" and cases.block is not None:
        parts = [(np.arange(cases.queries), np.arange(cases.keys))]
    else:
        counted, parts = False, list(cases.frozen(head))
    for queries, keys in parts:
        search = _Search(cases, traces, counted, limit, budget)
        search.best = best.keys, best.queries
        search.extend((), queries, np.zeros(len(queries), np.int64), keys.tolist())
        exact = best.exact and not search.cut
        best = Shattered(*search.best, traces, exact or len(search.best[0]) >= limit)
        budget = search.budget
        if len(best.keys) >= limit:
            break
    return best


class _Search:
    """Depth first; `best` is the largest set so far with its queries, `cut` whether the budget ran out."""

    def __init__(self, cases: Cases, traces: Traces, counted: bool, limit: int, budget: int):
        self.cases, self.counted, self.limit, self.budget = cases, counted, limit, budget
        self.half = traces == "half"
        self.best: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        self.cut = False

    def extend(self, chosen: tuple[int, ...], queries: Ints, trace: Ints, candidates: Sequence[int]) -> None:
        """Tries the candidates, in order, after the chosen keys, whose traces these queries have."""
        fits = [(key, part) for key in candidates for part in self.with_key(chosen, queries, trace, key)]
        for at, (key, (part, longer)) in enumerate(fits):
            if len({k for k, _ in fits[at:]}) + len(chosen) <= len(self.best[0]) or self.done():
                return
            keys = (*chosen, key)
            if len(keys) > len(self.best[0]):
                self.best = keys, self.queries(part, longer, len(keys))
            self.extend(keys, part, longer, sorted({k for k, _ in fits[at + 1 :]} - {key}))

    def done(self) -> bool:
        self.cut = self.cut or self.budget < 0
        return self.cut or len(self.best[0]) >= self.limit

    def with_key(self, chosen, queries, trace, key):
        """The queries, in each way that they have the same tokens up to the key, if all their traces are there."""
        size = len(chosen) + 1
        if 2**size - 2 > len(queries) << self.half or self.done():
            return
        self.budget -= len(queries)
        here = self.cases.present[queries, key]
        if not here.all():
            queries, trace = queries[here], trace[here]
        longer = trace * 2 + self.cases.alive[queries, key]
        if not (self.counted and chosen):
            if self.complete(longer, size):
                yield queries, longer
            return
        drops = self.cases.drops(chosen[-1], key)[queries]
        for count in np.unique(drops):
            if self.complete(longer[drops == count], size):
                yield queries[drops == count], longer[drops == count]

    def complete(self, trace: Ints, size: int) -> bool:
        seen = np.zeros(2**size, bool)
        seen[trace] = True
        inner = seen[1:-1]
        return bool((inner | inner[::-1] if self.half else inner).all())

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

    rows = [[1] * len(keys), *([Fraction(x) for x in column] for column in zip(*keys))]
    entries = [fmpq(Fraction(x).numerator, Fraction(x).denominator) for row in rows for x in row]
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
