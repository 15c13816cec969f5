"""forster: matrices of signs with a small norm need many dimensions, shattered or not (THEORY.md).

Separation, free queries, any biases. Let M have a row per query and a column per key, +1 where the query reads the
key and -1 where not. The numbers q . k_j + b_j - t, t a threshold between read and unread, have these signs and are a
matrix of rank at most d + 2 (d + 1 without biases). Forster (2002, A linear lower bound on the unbounded error
probabilistic communication complexity): a matrix of m x n numbers with the signs of M has rank at least sqrt(m n) /
|M|, |M| its greatest singular value. So d >= sqrt(m n) / |M| - 2.

A random family has |M| near sqrt(m) + sqrt(n), a Hadamard matrix sqrt(n): d >= sqrt(n) - 2, where at most log2(n) keys
are shattered. The norm is found in floating point, rounded up to a fraction, and checked exactly: norm * I - M Mᵀ is
positive definite.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt

import numpy as np

from proofs_check.bounds.cases import Cases

MAX_SIDE = 80  # of the matrix whose definiteness is checked


@dataclass(frozen=True)
class SmallNorm:
    """Keys, queries, and a number a little above |M|^2."""

    keys: tuple[int, ...]
    queries: tuple[int, ...]
    norm: Fraction

    def dimension(self, biases: bool = True) -> int:
        """The bound on the content dimension."""
        square = len(self.keys) * len(self.queries) / self.norm
        return max(0, isqrt(ceil(square) - 1) + 1 - (2 if biases else 1))


def forster(cases: Cases, *, head: str = "softmax") -> SmallNorm | None:
    """The bound of all keys that some queries read and others do not, for queries before which all of them stand."""
    best: SmallNorm | None = None
    for queries, keys in cases.frozen(head):
        alive = cases.alive[np.ix_(queries, keys)]
        mixed = keys[alive.any(0) & ~alive.all(0)]
        rows = queries[cases.present[np.ix_(queries, mixed)].all(1)]
        if not (len(mixed) >= 2 and len(rows) >= 2 and min(len(mixed), len(rows)) <= MAX_SIDE):
            continue
        signs = np.where(cases.alive[np.ix_(rows, mixed)], 1.0, -1.0)
        norm = Fraction(ceil(np.linalg.norm(signs, 2) ** 2 * 1000 + 1), 1000)
        found = SmallNorm(tuple(mixed.tolist()), tuple(rows.tolist()), norm)
        if best is None or found.dimension() > best.dimension():
            best = found
    return best
