"""few-sets: a few sets that each drop one key alone need about as many dimensions as keys, robustly (THEORY.md).

Let a query read all of m keys A, and let for each l in A some query read all of A but l. With any biases and free
queries, window at most r times the gap:

    d >= m / (1 + (m - 1) r^2) - 1.

Proof. Take from the logits of each of the m queries, on A, those of the query that reads all, and shift each row by a
constant so that the lowest logits of the keys that its query reads and of A at the other cancel. What is left is a
matrix with diagonal <= -gap and all other entries at most the window in size, of rank at most d + 1: biases cancel,
and the shifts are one more dimension. Scale each row to the diagonal -1. For any m x m matrix, trace^2 <= rank *
(sum of all squared entries), since the trace is at most the sum of the singular values. So m^2 <= (d + 1) (m + m (m -
1) r^2).                                                                                                            QED

It asks nothing of norms and stays linear for windows that are small, not zero: r = 0.01 and m = 1000 give d >= 909.
For r = 0 it is m - 1, which face-chain gives from no more. FoX: gates are the same where the tokens between the keys
are, so A lies in one block of a family.

The search extends sets of keys in order; a subset of a good set is good.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np

from proofs_check.bounds.cases import Cases, Ints

BUDGET = 20_000_000


@dataclass(frozen=True)
class FewSets:
    """A query that reads all the keys, and for each key one that reads all the others only."""

    keys: tuple[int, ...]
    base: int
    queries: tuple[int, ...]

    def dimension(self, ratio: Fraction) -> int:
        """The bound on the content dimension at a window of at most `ratio` of the gap."""
        return least_dimension(len(self.keys), ratio)


def least_dimension(keys: int, ratio: Fraction) -> int:
    """m / (1 + (m - 1) r^2) - 1, rounded up."""
    return ceil(keys / (1 + (keys - 1) * Fraction(ratio) ** 2)) - 1


def few_sets(cases: Cases, *, head: str = "softmax") -> FewSets | None:
    """The most keys found that are each dropped alone; None if no query drops a key that another one reads."""
    best: FewSets | None = None
    budget = BUDGET
    for queries, keys in cases.frozen(head):
        alive, dead = cases.alive[np.ix_(queries, keys)], cases.dead[np.ix_(queries, keys)]
        order = np.argsort(-alive.sum(1), kind="stable")
        for base in order.tolist():
            candidates = np.flatnonzero(alive[base] & dead.any(0)).tolist()
            found = 0 if best is None else len(best.keys)
            if len(candidates) <= found or budget < 0:
                continue
            search = _Search(alive, dead, found, budget)
            search.extend((), [], candidates)
            budget = search.budget
            if search.best is not None:
                chosen, rows = search.best
                best = FewSets(
                    tuple(keys[list(chosen)].tolist()), int(queries[base]), tuple(queries[list(rows)].tolist())
                )
    return best


class _Search:
    def __init__(self, alive, dead, found: int, budget: int):
        self.alive, self.dead, self.most, self.budget = alive, dead, found, budget
        self.best: tuple[tuple[int, ...], list[int]] | None = None

    def extend(self, chosen: tuple[int, ...], rows: list[Ints], candidates: list[int]) -> None:
        """`rows` has for each chosen key the queries that drop it alone."""
        if len(chosen) > self.most:
            self.most, self.best = len(chosen), (chosen, [int(row[0]) for row in rows])
        for at, key in enumerate(candidates):
            if len(chosen) + len(candidates) - at <= self.most or self.budget < 0:
                return
            self.budget -= self.alive.shape[0] * (len(chosen) + 1)
            others = self.alive[:, list(chosen)].all(1) if chosen else True
            longer = [row[self.alive[row, key]] for row in rows] + [np.flatnonzero(self.dead[:, key] & others)]
            if all(len(row) for row in longer):
                self.extend((*chosen, key), longer, candidates[at + 1 :])
