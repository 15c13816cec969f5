"""chains: a window takes one dimension, at an exponential price; uniform weights take one per step (THEORY.md).

Let the sets be S_1 > S_2 > ... > S_n, strictly decreasing. Uniform weights take d >= n - 1 (face-chain). Separation
takes 0: a bias that falls along the order in which keys leave. A window takes 1 and no more, whatever its ratio: let
key j leave at step t_j, X > 1, and at step i

    logit of j = -X^(i - t_j)        q_i = -X^i,  k_j = X^(-t_j),  no biases.

Keys that are still read have i < t_j, so their logits lie between -1/X and 0; the others have i >= t_j, at most -1. The
window is at most 1/X and the gap at least 1 - 1/X, so X = 1 + 1/ratio. "Dimension grows with the number of keys"
is therefore false for chains unless weights are to be uniform or numbers bounded: the numbers reach X^n.

In general let the keys be cut into G chains (`simple_upper`): one such dimension per chain, d = G.

The price. After n steps the formats hold no such numbers any more: `breaking_length` gives the first n at which the
head, run in a format, misses its window.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from proofs_check.bounds.cases import Cases
from proofs_check.constructions.linear_head import LinearHead, Number
from proofs_check.constructions.simple_upper import groups

MAX_STEPS = 300  # of a chain, so that its numbers stay within the digits of a certificate


def chain_windows(cases: Cases, ratio: Fraction) -> LinearHead | None:
    """One dimension per chain of keys, window at most `ratio` of the gap; None if some chain is too long."""
    cover = groups(cases, "separation")
    if cover is None or ratio <= 0:
        return None
    base = 1 + 1 / Fraction(ratio)
    base = Fraction(-(-base.numerator // base.denominator))
    kind = np.array([next((at for at, x in enumerate(key) if x), cover.dimension) for key in cover.keys])
    place = np.array(
        [_places(np.array(cover.biases)[kind == group]).get(bias, 0) for group, bias in _members(kind, cover)]
    )
    if place.max() > MAX_STEPS:
        return None
    count = cover.dimension + 1
    keys = [[base ** -int(at) if group == own else 0 for own in range(count)] for group, at in zip(kind, place)]
    last = np.stack([np.where(cases.dead & (kind == group), place, -1).max(1) for group in range(count)], axis=1)
    queries = [[-(base ** int(at)) if at >= 0 else 0 for at in row] for row in last]
    return LinearHead("one dimension per chain of keys", keys, [0] * cases.keys, queries)


def _members(kind, cover: LinearHead):
    return zip(kind.tolist(), cover.biases)


def _places(biases) -> dict[Number, int]:
    """Place of each bias in the order of a chain, the first to leave at 0."""
    return {bias: at for at, bias in enumerate(sorted(set(biases.tolist())))}


def magnitude(steps: int, ratio: Fraction) -> Fraction:
    """The largest number, X^steps, that the head of a chain of that many steps needs."""
    return (1 + 1 / Fraction(ratio)) ** steps


def breaking_length(rounded: Callable[[np.ndarray], np.ndarray], ratio: Fraction, longest: int = 2000) -> int | None:
    """The least n at which the head of a chain of n keys misses its window in a format; None up to `longest`.

    `rounded` rounds an array of float64 to the format. Queries, keys and products are rounded, as a head would.
    """
    base = float(1 + 1 / Fraction(ratio))
    for n in range(2, longest + 1):
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            steps = np.arange(n, dtype=np.float64)
            keys, queries = rounded(base**-steps), rounded(-(base ** steps[:-1]))  # the last key never leaves
            logits = rounded(queries[:, None] * keys)
            alive = steps[:-1, None] < steps
            read, rest = np.where(alive, logits, np.nan), np.where(alive, np.nan, logits)
            low, high = np.nanmin(read, axis=1), np.nanmax(read, axis=1)
            gap = low - np.nanmax(rest, axis=1)
            good = (gap > 0) & (high - low <= float(ratio) * gap * (1 + 2**-6))
        if not good.all():
            return n
    return None
