"""Rational linear algebra, no more than the checkers need. A vector is a list of whole numbers and fractions."""

from collections.abc import Sequence
from fractions import Fraction

Number = int | Fraction
Vector = Sequence[Number]


def dot(left: Vector, right: Vector) -> Number:
    """Their product; zeros cost nothing."""
    return sum((a * b for a, b in zip(left, right) if a and b), 0)


def positive_definite(matrix: Sequence[Sequence[int]]) -> bool:
    """Whether a symmetric matrix of whole numbers is: whether all pivots d of its LDLᵀ are above 0.

    The divisions are exact (Bareiss): after step k, m[k][k] is the leading minor d_1 ... d_k of size k.
    """
    m, previous = [list(row) for row in matrix], 1
    for k in range(len(m)):
        if m[k][k] <= 0:
            return False
        for i in range(k + 1, len(m)):
            for j in range(k + 1, i + 1):
                m[i][j] = m[j][i] = (m[i][j] * m[k][k] - m[i][k] * m[k][j]) // previous
        previous = m[k][k]
    return True
