"""late-dips-limit: with dips only at the end First Passage Attention takes half a dimension per key (THEORY.md).

All keys come first, then the dips, then the query; free queries of content dimension d, any fixed keys, biases, field
and levels, dips free per target; separation.

Claim. At most (n + 1) * (C(n,0) + C(n,1) + ... + C(n,d+2)) sets of n keys are read, the empty one included.

Proof. Let c_j be the least field value over the keys after j, and m the least over the dips. The penalty of key j is
lambda max(0, level_j - min(c_j, m)) = p_j + lambda max(0, e_j - m), with e_j = min(level_j, c_j) and p_j the same for
all targets. Let D be the keys with e_j > m: one of at most n + 1 sets, since D holds the keys of largest e. Given D
and a threshold t between the read and the other keys, key j is read exactly if

    q . k_j + lambda m [j in D] - t + (b_j - p_j - lambda e_j [j in D]) > 0.

The last bracket is fixed, the rest is linear in the d + 2 numbers q, lambda m and t. Such sets of signs have VC
dimension at most d + 2, so there are at most sum C(n,i), i <= d + 2, of them (Sauer, Shelah).                     QED

For all 2^n subsets: by Hoeffding the sum is at most 2^n exp(-2 (n/2 - d - 2)^2 / n) while d + 2 <= n / 2, so

    d >= n / 2 - 2 - sqrt(n ln(n + 1) / 2).

So the order of the dips carries the information that the content does not: with a dip after each key d = 0 suffices
(constant-dimension).
"""

from math import comb


def most_sets(keys: int, dimension: int) -> int:
    """How many sets of that many keys a head of that content dimension reads at most, the empty set included."""
    return (keys + 1) * sum(comb(keys, size) for size in range(min(keys, dimension + 2) + 1))


def least_dimension(keys: int, targets: int) -> int:
    """The least content dimension that so many different targets over that many keys leave possible."""
    return next(dimension for dimension in range(keys) if targets <= most_sets(keys, dimension))
