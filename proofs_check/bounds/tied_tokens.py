"""tied-tokens: one walk increment per token type, for every sequence at once (THEORY.md).

The events of a history name token types. Each type x has one increment d(x), the same wherever it stands; the walk u
adds them up. A key at position j, of type x, has level u_j + o(x): tied levels have every offset o = 0. It is alive at
a query while no position after it, up to the query's, takes the walk below its level. Are there numbers that read
every target?

With c(j, t) the vector that counts the types at positions j+1..t, every demand is linear in the increments d:

    key j is read at or after t           c(j, t) . d - o(x) >= 0
    key j dies at t                       c(j, t) . d - o(x) <= -1       (< 0; all demands may be scaled together)

A key must be alive up to the position `need` of the last query that reads it, and dead by the position `gone` of the
first query after that. Where it dies in between is free: one case per position in (need, gone], "the first position
that dips below it". One position: forced. None (both queries stand at the same position): impossible.

The search is branch and bound. A linear programme (scipy's HiGHS) over the few demands that have mattered so far
proposes the increments of least total size; they are rounded to fractions and *all* rows are replayed with them,
exactly. Demands found violated join the programme; if only undecided deaths are violated, the search branches on the
one with the fewest cases. A programme found infeasible has a Farkas vector: multipliers >= 0 under which the demands
add up to 0 >= (number of deaths > 0). It is rounded and multiplied out exactly too; the solver's word alone is never
taken. The result is numbers that read everything, or a tree of cases with a Farkas vector at every leaf, or
"undecided" when the budget of programmes ends or a float answer cannot be made exact.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proofs_check.keysets import Histories

MAX_PROGRAMMES = 1500  # linear programmes of one search: some ten seconds
MAX_DEPTH = 150  # of cases within cases; the checker reads 200
CUTS = 40  # violated demands that join the programme in one round
DENOMINATORS = (1, 60, 10**4, 10**7)

Levels = Literal["tied", "offset"]
Vector = tuple[int, ...]


class Demand(NamedTuple):
    """A key of a row lives up to a position, or dies there. Rows, keys and positions are counted from 0."""

    row: int
    key: int
    position: int
    dies: bool


@dataclass(frozen=True)
class Found:
    """Whole numbers without a common divisor, for the types in their order; offsets of types that are keys."""

    levels: Levels
    increments: tuple[int, ...]
    offsets: dict[int, int]


@dataclass(frozen=True)
class Farkas:
    """Multipliers > 0 under which the demands add up to a contradiction."""

    multipliers: tuple[tuple[Demand, int], ...]


@dataclass(frozen=True)
class Cases:
    """The key must die in the row at one of these positions first; each is impossible. No position: no case."""

    row: int
    key: int
    cases: "tuple[tuple[int, Reason], ...]"


Reason = Farkas | Cases


@dataclass(frozen=True)
class Conflict:
    """No increments (and offsets, where the levels have them) read every target."""

    levels: Levels
    reason: Reason


@dataclass(frozen=True)
class Undecided:
    """Neither numbers nor a checked reason: why the search ended."""

    levels: Levels
    why: str


@dataclass(frozen=True)
class TokenRow:
    """One sequence. `types`, `event`: the type and the event (from 1) of each position; then one entry per key."""

    types: NDArray[np.int64]
    event: NDArray[np.int64]
    key: NDArray[np.int64]
    push: NDArray[np.int64]
    need: NDArray[np.int64]  # the last position at which it must be alive; its own if no query reads it
    gone: NDArray[np.int64]  # the position by which it must be dead; -1 if no query demands it


def token_rows(spec: Histories) -> list[TokenRow]:
    """The rows of a specification whose events name tokens and that revives no key."""
    assert spec.tokens is not None
    rows = []
    for events in spec.tokens.rows:
        types: list[int] = []
        at: list[int] = []
        fate: dict[int, list[int]] = {}  # key: push, need, gone
        pending: dict[int, None] = {}  # keys that no query has missed yet
        for number, (token, event) in enumerate(events, 1):
            if token is not None:
                types.append(token)
                at.append(number)
            position = len(types) - 1
            if isinstance(event, int):
                fate[event] = [position, position, -1]
                pending[event] = None
            elif event is not None:
                read = set(event)
                for key in event:
                    fate[key][1] = position
                for key in [key for key in pending if key not in read]:
                    fate[key][2] = position
                    del pending[key]
        columns = np.array(list(fate.values()), np.int64).reshape(-1, 3).T
        rows.append(
            TokenRow(np.array(types, np.int64), np.array(at, np.int64), np.array(list(fate), np.int64), *columns)
        )
    return rows


def tied_tokens(
    spec: Histories, levels: Levels = "tied", *, budget: int = MAX_PROGRAMMES
) -> Found | Conflict | Undecided:
    """Increments per token type that read every target of the specification, or why there are none.

    `spec.tokens` must be there and no key revived (`fates`). `budget` bounds the linear programmes. Every answer
    but `Undecided` is exact.
    """
    assert spec.tokens is not None
    search = _Search(token_rows(spec), len(spec.tokens.types), levels, budget)
    try:
        result = search.node(search.rows, {})
    except _Stop as stop:
        return Undecided(levels, str(stop))
    if isinstance(result, Reason):
        return Conflict(levels, result)
    increments, offsets = result[: search.types], result[search.types :]
    return Found(levels, tuple(increments), dict(zip(search.key_types, offsets)))


class _Stop(Exception):
    """The search ends without an answer."""


class _Search:
    def __init__(self, rows: list[TokenRow], types: int, levels: Levels, budget: int):
        self.rows, self.types, self.budget = rows, types, budget
        used = sorted({int(t) for row in rows for t in row.types[row.push]})
        self.key_types = used if levels == "offset" else []
        self.size = types + len(self.key_types)
        self.depth = 0
        self.common: dict[Vector, Demand] = {}  # demands in force in every case
        self.counts = [_counts(row.types, types) for row in rows]

    def node(self, rows: list[TokenRow], local: dict[Vector, Demand]) -> list[int] | Reason:
        """Whole numbers that read these rows, or why there are none. `local`: demands in force in this case only."""
        while True:
            demands = {**self.common, **local}
            point = self.point(demands)
            if point is None:
                return self.farkas(demands)
            violated, open_deaths = self.replay(rows, point)
            if not violated and not open_deaths:
                return point
            new = {vector: d for vector, d in violated.items() if vector not in demands}
            if violated and not new:
                raise _Stop("a programme's answer could not be rounded to fractions")
            if not violated:
                return self.branch(rows, local, point, open_deaths)
            for vector, demand in new.items():
                (self.common if self.in_force_everywhere(demand) else local)[vector] = demand

    def branch(
        self, rows: list[TokenRow], local: dict[Vector, Demand], point: list[int], open_deaths: list[tuple[int, int]]
    ) -> list[int] | Reason:
        """Splits on the undecided death with the fewest positions, the most likely position first."""
        row, at = min(open_deaths, key=lambda d: int(rows[d[0]].gone[d[1]] - rows[d[0]].need[d[1]]))
        old = rows[row]
        window = range(int(old.need[at]) + 1, int(old.gone[at]) + 1)
        heights = self.walk(row, point)
        cases: dict[int, Reason] = {}
        if self.depth == MAX_DEPTH:
            raise _Stop(f"the search came to more than {MAX_DEPTH} cases within each other")
        self.depth += 1
        for position in sorted(window, key=lambda t: (int(heights[t]), t)):
            need, gone = old.need.copy(), old.gone.copy()
            need[at], gone[at] = position - 1, position
            child = [*rows[:row], replace(old, need=need, gone=gone), *rows[row + 1 :]]
            result = self.node(child, dict(local))
            if not isinstance(result, Reason):
                return result
            cases[position] = result
        self.depth -= 1
        return Cases(row, int(old.key[at]), tuple(sorted(cases.items())))

    def in_force_everywhere(self, demand: Demand) -> bool:
        row = self.rows[demand.row]
        at = int(np.flatnonzero(row.key == demand.key)[0])
        if demand.dies:
            return bool(row.need[at] + 1 == row.gone[at])
        return bool(demand.position <= row.need[at])

    # Exact replay.

    def walk(self, row: int, point: Sequence[int]) -> NDArray:
        """The walk's height at every position of a row: int64, or Python's integers where those do not fit."""
        types = self.rows[row].types
        fits = max(map(abs, point), default=0) * (len(types) + 1) < 2**60
        return np.cumsum(np.array(point[: self.types], np.int64 if fits else object)[types])

    def replay(self, rows: list[TokenRow], point: Sequence[int]) -> tuple[dict[Vector, Demand], list[tuple[int, int]]]:
        """Demands that these numbers violate, the worst few of every row, and deaths (row, index) yet to be placed."""
        violated: dict[Vector, Demand] = {}
        open_deaths: list[tuple[int, int]] = []
        offset = np.zeros(self.types, object)
        offset[self.key_types] = point[self.types :]
        for number, row in enumerate(rows):
            heights = self.walk(number, point)
            level = heights[row.push] + offset[row.types[row.push]].astype(heights.dtype)
            below = level - _least(heights, row.push + 1, row.need + 1, high=level)
            for at in np.argsort(-below, kind="stable")[: np.count_nonzero(below > 0)][:CUTS].tolist():
                start, end = row.push[at] + 1, row.need[at] + 1
                self.add(violated, Demand(number, int(row.key[at]), int(start + np.argmin(heights[start:end])), False))
            dying = np.flatnonzero(row.gone >= 0)
            lowest = _least(heights, row.need[dying] + 1, row.gone[dying] + 1, high=level[dying])
            for at in dying[lowest >= level[dying]].tolist():
                if row.gone[at] == row.need[at] + 1:
                    self.add(violated, Demand(number, int(row.key[at]), int(row.gone[at]), True))
                else:
                    open_deaths.append((number, at))
        return dict(list(violated.items())[: 4 * CUTS]), open_deaths

    def add(self, violated: dict[Vector, Demand], demand: Demand) -> None:
        violated.setdefault(self.vector(demand), demand)

    def vector(self, demand: Demand) -> Vector:
        """a with a . (increments, offsets) >= 0, or >= 1 for a death; a death's last entry is 1."""
        row, counts = self.rows[demand.row], self.counts[demand.row]
        push = int(row.push[np.flatnonzero(row.key == demand.key)[0]])
        own = int(row.types[push])
        count = (counts[demand.position + 1] - counts[push + 1]).tolist()
        vector = [*count, *(-int(own == key_type) for key_type in self.key_types)]
        return (*(-v if demand.dies else v for v in vector), int(demand.dies))

    # The solver's hints, made exact.

    def point(self, demands: dict[Vector, Demand]) -> list[int] | None:
        """Whole numbers that meet the demands, those of least total size; None if the solver finds none."""
        if not demands:
            return [0] * self.size
        matrix = np.array(list(demands), np.int64)
        a, b = matrix[:, :-1], matrix[:, -1]
        answer = self.solve(np.ones(2 * self.size), np.hstack([-a, a]), -b, None)
        if answer is None:
            return None
        values = answer[: self.size] - answer[self.size :]
        for denominator in DENOMINATORS:
            fractions = [Fraction(float(v)).limit_denominator(denominator) for v in values]
            if all(_dot(vector, fractions) >= vector[-1] for vector in demands):
                scale = math.lcm(*(f.denominator for f in fractions))
                whole = [int(f * scale) for f in fractions]
                divisor = math.gcd(*whole) or 1
                return [w // divisor for w in whole]
        raise _Stop("a programme's answer could not be rounded to fractions")

    def farkas(self, demands: dict[Vector, Demand]) -> Farkas:
        """Multipliers for demands that the solver finds infeasible."""
        vectors = list(demands)
        matrix = np.array(vectors, np.int64)
        a, deaths = matrix[:, :-1], matrix[:, -1]
        answer = self.solve(-deaths, deaths[None], np.ones(1), a.T)
        if answer is not None:
            support = np.flatnonzero(answer > 1e-9).tolist()
            for multipliers in _null_vectors([vectors[s] for s in support], answer[support]) if support else ():
                total = [sum(m * vectors[s][c] for m, s in zip(multipliers, support)) for c in range(self.size + 1)]
                if min(multipliers) >= 0 and not any(total[:-1]) and total[-1] > 0:
                    return Farkas(tuple((demands[vectors[s]], m) for m, s in zip(multipliers, support) if m))
        raise _Stop("the solver's infeasibility could not be confirmed")

    def solve(self, cost: NDArray, upper: NDArray, bound: NDArray, equal: NDArray | None) -> NDArray | None:
        """min cost . x over x >= 0 with upper x <= bound and equal x = 0: a vertex, None if the solver finds none."""
        from scipy.optimize import linprog

        if not self.budget:
            raise _Stop("the search took more linear programmes than its budget")
        self.budget -= 1
        zero = None if equal is None else np.zeros(len(equal))
        result = linprog(cost, A_ub=upper, b_ub=bound, A_eq=equal, b_eq=zero, method="highs-ds")
        return result.x if result.status == 0 else None


def _dot(vector: Vector, numbers: Sequence[Fraction]) -> Fraction:
    return sum((v * x for v, x in zip(vector, numbers) if v), Fraction(0))


def _counts(types: NDArray[np.int64], size: int) -> NDArray[np.int32]:
    """counts[p, x]: positions before p of type x."""
    counts = np.zeros((len(types) + 1, size), np.int32)
    counts[np.arange(1, len(types) + 1), types] = 1
    return np.cumsum(counts, axis=0, dtype=np.int32)


def _least(heights: NDArray, start: NDArray, end: NDArray, *, high: NDArray) -> NDArray:
    """The least height in each [start, end), `high` where that is empty: by tables of minima over powers of two."""
    least = np.array(high)
    length = end - start
    power = np.zeros(len(length), np.int64)
    power[length > 0] = np.frexp(length[length > 0].astype(float))[1] - 1
    table = heights
    for exponent in range(int(power.max(initial=0)) + 1):
        now = (power == exponent) & (length > 0)
        least[now] = np.minimum(table[start[now]], table[end[now] - 2**exponent])
        table = np.minimum(table[: -(2**exponent)], table[2**exponent :])
    return least


def _null_vectors(vectors: list[Vector], hint: NDArray) -> Iterator[list[int]]:
    """Whole multipliers near the hint's direction under which the vectors' first parts may cancel."""
    for denominator in DENOMINATORS[1:]:
        fractions = [Fraction(float(h)).limit_denominator(denominator) for h in hint]
        scale = math.lcm(*(f.denominator for f in fractions))
        yield [int(f * scale) for f in fractions]
    from sympy import QQ
    from sympy.polys.matrices import DomainMatrix

    columns = DomainMatrix([list(map(QQ, entry)) for entry in zip(*(v[:-1] for v in vectors))], None, QQ)
    kernel = columns.nullspace().to_list()
    if len(kernel) == 1:
        entries = [Fraction(int(e.numerator), int(e.denominator)) for e in kernel[0]]
        scale = math.lcm(*(e.denominator for e in entries)) * (1 if sum(entries) > 0 else -1)
        yield [int(e * scale) for e in entries]
