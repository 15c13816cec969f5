"""fox-table: FoX heads that read any targets over n keys with fewer dimensions than keys (THEORY.md).

Dips after each key, K1 D1 ... Kn Dn Q; free queries; the logit of key j is q . k_j + b_j - (gates of the drops from j
on). Up to what all keys share that is q . k_j + b_j + (gates of the drops before j), the form used below; s_j = 1 if
j is dropped. The rows of the table, with what shows the lower bounds:

    notion       gates                least d              here
    uniform      one per slot         n - 1                softmax                          (face-chain)
    window       one per slot         floor(n / 2)         `window_per_slot`                (fox-pairs)
    window       one for all drops    floor(n / 2) to      `window_one_gate`: ceil(2n / 3) - 1
    separation   one for all drops    ceil(n / 2) - 1      `simple_upper.groups`, g = 2n    (softmax-shatter, counted)
    separation   one per slot         0                    `separation_per_slot`: its gap is 2^(1-n) of the largest gate
    any          dips at the end      as softmax

window_per_slot. Let the keys be 0, 1, ..., n - 1, E the window, D > 2 E, and D - E the gap. Coordinate i = 1, 2, ...
of -k_j is 0 for j < 2i - 1, E / D for j = 2i - 1, and 1 for j >= 2i; gates g_0 = D + E, g_(2i-1) = D^2 / E, g_(2i) =
D; query q_i = g_(2i-1) s_(2i-1) + g_(2i) s_(2i). Beyond key 2i coordinate i takes away exactly the gates of 2i - 1
and 2i. What is left is 0 for key 0, and, all after key 0 moved up by g_0 s_0, for key 2i: -D s_(2i); for key 2i - 1:
-(D s_(2i-1) + E s_(2i)). So read keys lie between -E and 0 and the others at most at -D; key 0, if it is dropped,
lies D + E below.

window_one_gate. Three neighbours a, b, c share one coordinate u with 0, e, 1 at them and 0 at all other keys, one gate
g = 1 / e, no biases. Logits of b and c relative to a, u being the query's coordinate: e u + g s_a, u + g (s_a + s_b).

    read      {a,b,c}  {a,b}   {a,c}   {b,c}    {a}        {b}             {c}
    u         0        -1      -g      0        -g - 1     -1              0
    a, b, c   0,0,0    0,-e,-1 0,-1,0  0,g,g    0,-1-e,-1  0,g-e,g-1       0,g,2g

Within a triple the read keys lie at most e below their highest, the others at least 1 - e. Between triples a
coordinate that is 0 before and 1 after moves all that follows, so that the highest read key of each triple comes to
0, and a triple of which none is read below -1. So the window is at most e and the gap at least 1 - 2 e. Triples take
2 (n / 3) - 1 coordinates; one key more takes the move only, two keys are a triple without c.

separation_per_slot. No content: gates g_l = 2^(n-l), biases b_j = -(sum of g_l over l < j) / 2. The logit is the sum of
+-g_l / 2 over l < j, + if l is dropped: a key after l lies above l if l is dropped, and below if it is read, since
all later gates together are smaller. A binary search tree in the gates; precision must be part of any claim.
"""

from fractions import Fraction

import numpy as np

from proofs_check.bounds.cases import Cases
from proofs_check.constructions.linear_head import LinearHead, Number, fits

MAX_TREE = 300  # keys of a search tree whose numbers fit in a certificate


def window_per_slot(cases: Cases, ratio: Fraction) -> LinearHead | None:
    """floor(n / 2) dimensions; needs dips after each key and a ratio above 0."""
    n = cases.keys
    size = n // 2
    if not cases.dips_after_each_key or ratio <= 0 or not fits(cases, size):
        return None
    window = ratio.numerator
    depth = ratio.denominator + ratio.numerator  # its gap is depth - window
    shape = Fraction(window, depth)
    gates: list[Number] = [depth + window]
    gates += [Fraction(depth**2, window) if key % 2 else depth for key in range(1, n)]
    keys = [[0 if j < 2 * i - 1 else -shape if j == 2 * i - 1 else -1 for i in range(1, size + 1)] for j in range(n)]
    paid = np.where(cases.alive, 0, np.array([*gates, 0], object)[:n])
    pairs = [paid[:, 2 * i - 1] + (paid[:, 2 * i] if 2 * i < n else 0) for i in range(1, size + 1)]
    queries = np.stack(pairs, axis=1).tolist() if pairs else [[]] * cases.queries
    return LinearHead("pairs of keys, gates per slot", keys, [0] * n, queries, gates)


def window_one_gate(cases: Cases, ratio: Fraction) -> LinearHead | None:
    """ceil(2n / 3) - 1 dimensions; needs dips after each key and a ratio above 0."""
    n = cases.keys
    triples, moves = (n + 1) // 3, -(-n // 3) - 1
    if not cases.dips_after_each_key or ratio <= 0 or not fits(cases, triples + moves):
        return None
    small = Fraction(ratio.numerator, ratio.denominator + 2 * ratio.numerator)
    gate = 1 / small
    shape = (0, small, 1)
    keys = [
        [shape[j % 3] if j // 3 == t else 0 for t in range(triples)] + [int(j // 3 > t) for t in range(moves)]
        for j in range(n)
    ]
    queries = [_triples(row.tolist(), gate, small, triples, moves) for row in cases.alive]
    return LinearHead("triples of keys, one gate", keys, [0] * n, queries, [gate] * n)


def _triples(alive: list[bool], gate: Fraction, small: Fraction, triples: int, moves: int) -> list[Number]:
    """The query of a target: u of each triple, then the moves."""
    inner: list[Number] = []
    height: list[Number] = []  # of the highest read key of each triple
    drops = 0
    for start in range(0, len(alive), 3):
        own = alive[start : start + 3]
        a, b, c = (*own, False, False)[:3]
        u: Number = 0
        if a:
            u = 0 if b and c else -1 if b else -gate if c else -gate - 1
        elif b and not c:
            u = -1
        shape: tuple[Number, ...] = (0, small, 1)
        logits = [s * u + gate * (drops + own[:at].count(False)) for at, s in zip(range(len(own)), shape)]
        read = [x for x, kept in zip(logits, own) if kept]
        if len(own) > 1:
            inner.append(u)
        height.append(max(read) if read else max(logits) + 1)
        drops += own.count(False)
    return inner + [height[at] - height[at + 1] for at in range(moves)] if triples == len(inner) else []


def separation_per_slot(cases: Cases) -> LinearHead | None:
    """No content at all; needs dips after each key."""
    n = cases.keys
    if not cases.dips_after_each_key or n > MAX_TREE:
        return None
    gates = [2 ** (n - key) for key in range(n)]
    biases = [-sum(gates[:key]) // 2 for key in range(n)]
    return LinearHead("a search tree in the gates", [[]] * n, biases, [[]] * cases.queries, gates)
