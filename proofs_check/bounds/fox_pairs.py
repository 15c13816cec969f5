"""fox-pairs: differences of two logits, shattered, need a dimension per pair whatever the gates (THEORY.md).

Window smaller than the gap, free queries, any biases; FoX with a gate per slot. The difference of the logits of two
keys x, y is at least the gap if a query reads x and not y, within the window if it reads both, and at most -gap if it
reads y only. It is q . (k_x - k_y) + (b_x - b_y) - (gates of the drops between x and y). Take queries that have the
same tokens between x and y: the last two terms are fixed. If each of v pairs takes two of the three values, and the
queries all 2^v combinations, then d >= v.

Proof. A number between the two values of a pair, taken from its difference, leaves q . u_i + c_i, positive or
negative as the combination says. If v > d there is a != 0 with sum a_i u_i = 0, so sum a_i (q . u_i + c_i) is the
same for all q; but the combination of the signs of a makes it positive, and the opposite one negative.             QED

All subsets of n keys, dips after each key: the pairs (1, 2), (3, 4), ... with all odd keys read, so d >= floor(n / 2);
tight (`constructions.fox_table`). Softmax: any two different targets of a family give a pair, so a fixed window alone
takes d >= 1, even for a chain; keys read beside one that is always read are shattered with d >= v, not v - 1.

The search adds pairs in order. It is cut by a budget, and every set of pairs found counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from proofs_check.bounds.cases import Bools, Cases, Ints

BUDGET = 10_000_000  # entries of rows looked at, STEP more for each look
STEP = 500
MAX_OPTIONS = 3_000  # pairs with tokens and values that are tried, near keys first
NEIGHBOURS = 20  # up to this many keys all pairs are tried, beyond it neighbours only

# Which of the two keys a query reads, for each of the two values of a pair.
VALUES = (((True, True), (True, False)), ((True, True), (False, True)), ((True, False), (False, True)))


@dataclass(frozen=True)
class Pairs:
    """Pairs of keys x < y, and a query for each combination of their values."""

    pairs: tuple[tuple[int, int], ...]
    queries: tuple[int, ...]

    @property
    def dimension(self) -> int:
        """The bound on the content dimension."""
        return len(self.pairs)


def fox_pairs(cases: Cases, *, head: str = "fox", goal: int | None = None) -> Pairs:
    """The most pairs found, at least `goal` if so many are found; none of them is a bound of 0."""
    search = _Search(cases, head, cases.keys if goal is None else goal)
    rows = np.arange(cases.queries)
    search.extend((), rows, np.zeros(len(rows), np.int64), search.options(rows))
    return search.best


@dataclass(frozen=True, eq=False)
class _Option:
    """A pair with its two values: of the queries in `fits`, those in `second` take the second one."""

    pair: tuple[int, int]
    fits: Bools
    second: Bools


class _Search:
    def __init__(self, cases: Cases, head: str, goal: int):
        self.cases, self.head, self.goal, self.budget = cases, head, goal, BUDGET
        self.best = Pairs((), (0,))

    def options(self, rows: Ints) -> list[_Option]:
        """All pairs, each with all tokens between its keys and all two values that are met."""
        found: list[_Option] = []
        n = self.cases.keys
        gaps = range(1, n if n <= NEIGHBOURS else 2)
        for x, y in ((x, x + gap) for gap in gaps for x in range(n - gap)):
            for same in self.tokens(rows, x, y) if len(found) < MAX_OPTIONS else ():
                for first, second in VALUES:
                    a, b = (
                        same & (self.cases.alive[:, x] == value[0]) & (self.cases.alive[:, y] == value[1])
                        for value in (first, second)
                    )
                    if a.any() and b.any():
                        found.append(_Option((x, y), a | b, b))
        return found

    def tokens(self, rows: Ints, x: int, y: int) -> Iterator[Bools]:
        """Queries with both keys, once for each way the tokens between them can be."""
        here = self.cases.present[:, x] & self.cases.present[:, y]
        if self.head == "softmax":
            yield here
            return
        tokens = self.cases.tokens(x, y, rows)
        for value in np.unique(tokens[here]):
            yield here & (tokens == value)

    def extend(self, chosen: tuple[tuple[int, int], ...], rows: Ints, trace: Ints, options: list[_Option]) -> None:
        for at, option in enumerate(options):
            if self.budget < 0 or self.best.dimension >= self.goal or 2 ** (len(chosen) + 1) > len(rows):
                return
            self.budget -= len(rows) + STEP
            fits = option.fits[rows]
            part = rows[fits]
            longer = trace[fits] * 2 + option.second[part]
            values, first = np.unique(longer, return_index=True)
            if len(values) < 2 ** (len(chosen) + 1):
                continue
            pairs = (*chosen, option.pair)
            if len(pairs) > self.best.dimension:
                self.best = Pairs(pairs, tuple(part[first].tolist()))
            self.extend(pairs, part, longer, options[at + 1 :])
