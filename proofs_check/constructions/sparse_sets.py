"""sparse-sets: few keys, or few runs of keys, take few dimensions however many keys there are (THEORY.md).

Give key j the number x_j = j and the content (x_j, x_j^2, ..., x_j^(2k-1)), and the bias -x_j^(2k). A query can then
be any polynomial with leading term -x^(2k), up to what all keys share.

* Sets of at most k keys, uniform: -prod (x - x_s)^2 over s in S, one factor repeated if there are fewer than k. It is
  0 on S and at most -1 elsewhere. So d = 2k - 1 with biases; without them put the leading term into the content: 2k.
  Both are least if there are 2k + 1 keys or more (softmax-shatter, by halves).
* Sets of at most r runs of neighbours, separation: -prod (x - l)(x - u) over the ends of the runs, half a step outside:
  positive within the runs, negative elsewhere; pairs of factors with roots beyond all keys fill up. d = 2r - 1, and the
  same, with the signs turned, for sets that leave out at most r runs: [n] and all [n] without one key take d = 1.
"""

from collections.abc import Sequence

import numpy as np

from proofs_check.bounds.cases import Bools, Cases
from proofs_check.constructions.linear_head import LinearHead, fits

MAX_DEGREE = 24


def sparse(cases: Cases, below: int) -> LinearHead | None:
    """Uniform, for sets of few keys; None if its dimension is not below that number."""
    most = int(cases.alive.sum(1).max())
    if 2 * most > min(MAX_DEGREE, below) or not fits(cases, 2 * most):
        return None
    place = np.arange(cases.keys) - cases.keys // 2
    roots = [
        sorted([*place[row].tolist()] * 2 + [int(place[row][0])] * int(2 * (most - row.sum()))) for row in cases.alive
    ]
    return _polynomials(f"moment curve of degree {2 * most}", place.tolist(), roots, -1)


def runs(cases: Cases, below: int) -> LinearHead | None:
    """Separation, for sets of few runs of neighbours, or that leave out few; None as for `sparse`."""
    options = []
    for wanted, sign in ((cases.alive, -1), (cases.dead, 1)):
        ends = [_ends(row) for row in wanted]
        options.append((max(len(found) for found in ends), sign, ends))
    degree, sign, ends = min(options)
    degree = max(degree, 2)
    if degree > min(MAX_DEGREE, below) or not fits(cases, degree) or cases.block is None:
        return None
    place = [2 * key - cases.keys for key in range(cases.keys)]
    beyond = 2 * cases.keys
    roots = [[2 * at - 1 - cases.keys for at in found] + [beyond] * (degree - len(found)) for found in ends]
    return _polynomials(f"runs of keys, degree {degree}", place, roots, sign)


def _ends(row: Bools) -> list[int]:
    """Where the runs of a row begin and end: the keys before which it changes."""
    padded = np.concatenate([[False], row, [False]])
    return np.flatnonzero(padded[1:] != padded[:-1]).tolist()


def _polynomials(name: str, place: Sequence[int], roots: list[list[int]], sign: int) -> LinearHead:
    """Queries sign * prod (x - root), their leading term as the bias."""
    degree = len(roots[0])
    keys = [[x**power for power in range(1, degree)] for x in place]
    queries = []
    for own in roots:
        poly = [1]  # coefficients, the constant first
        for root in own:
            poly = [a - root * b for a, b in zip([0, *poly], [*poly, 0])]
        queries.append([sign * c for c in poly[1:-1]])
    return LinearHead(name, keys, [sign * x**degree for x in place], queries)
