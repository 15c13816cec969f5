"""dim-search: heads of less dimension than any construction, found by training and made exact (THEORY.md,
construction).

Only a hint comes from floating point. Keys, biases, gates and queries are trained together (a smooth loss that is
zero exactly when every query is read with a gap of 1, conjugate gradients, several seeded starts). What it finds is
turned into fractions and counts only if the exact window and gap are those of the notion. That it finds nothing
proves nothing.

From numbers to fractions. Separation and windows are open conditions: round to ever finer grids until the exact check
passes. Uniform asks for equations, one for each read key of each query, linear in the key and linear in the query.
Put keys and queries in an order in which each meets at most as many earlier partners as it has numbers (if there is
one: always take out next who has the fewest partners left), and go through it: round, project onto the exact
solutions of its equations with those before.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from scipy.optimize import minimize

from proofs_check.bounds.cases import Cases
from proofs_check.bounds.lower import ONE_GATE, Head
from proofs_check.constructions.linear_head import LinearHead, reads, writable

MAX_CELLS = 4_000  # keys times queries of what is trained
STARTS = 6
STEPS = 300
GRIDS = tuple(2**power for power in range(1, 17, 3))


def dim_search(
    cases: Cases, head: Head, notion: str, ratio: Fraction, least: int, most: int, starts: int = STARTS
) -> LinearHead | None:
    """The exact head of the least dimension found, from `least` on and below `most`; None if none was found.

    By halving what is left: where training fails, less is not tried.
    """
    best = None
    while least < most and cases.queries * cases.keys <= MAX_CELLS:
        dimension = (least + most) // 2
        found = attempt(cases, head, notion, ratio, dimension, starts)
        if found is None:
            least = dimension + 1
        else:
            best, most = found, dimension
    return best


def attempt(
    cases: Cases, head: Head, notion: str, ratio: Fraction, dimension: int, starts: int = STARTS, steps: int = STEPS
) -> LinearHead | None:
    """An exact head of that dimension that reads all targets, or None if none was found."""
    trainer = _Trainer(cases, head, notion, ratio, dimension)
    for start in range(starts):
        loss, numbers = trainer.train(np.random.default_rng((dimension, start)), steps)
        if loss > trainer.solved:
            continue
        if notion == "uniform":
            options = [_uniform(trainer, numbers, grid) for grid in GRIDS[1:4]]
        else:
            options = (_rounded(trainer, numbers, grid) for grid in GRIDS)  # type: ignore[assignment]
        for found in options:
            if found is None:
                continue
            window, gap = found.measure(cases)
            if reads((window, gap), notion, ratio) and writable((window, gap or 0)):
                return found
    return None


def nearest(
    cases: Cases, head: Head, ratio: Fraction, dimension: int, starts: int = STARTS, steps: int = STEPS
) -> tuple[float, float, float]:
    """Of heads trained for windows of that ratio: the least loss, and the window and the gap of that head.

    In floating point, to show how near training comes where `attempt` finds nothing. The loss of a head that does it
    is 0; it is scaled to a gap of 1.
    """
    trainer = _Trainer(cases, head, "window", ratio, dimension)
    trainer.half = float(ratio) / 2  # of the window: with no slack, unlike for what is to be rounded
    found = (trainer.train(np.random.default_rng((dimension, start)), steps) for start in range(starts))
    loss, numbers = min(found, key=lambda one: one[0])
    logits = trainer.logits(numbers)
    least = np.where(cases.alive, logits, np.inf).min(1)
    window = (np.where(cases.alive, logits, -np.inf).max(1) - least).max()
    return loss, float(window), float((least - np.where(cases.dead, logits, -np.inf).max(1)).min())


@dataclass
class _Numbers:
    """keys (n, d), biases (n,), gates (n,) or none, queries (m, d), heights (m,) at which read keys stand."""

    keys: np.ndarray
    biases: np.ndarray
    gates: np.ndarray
    queries: np.ndarray
    heights: np.ndarray


class _Trainer:
    """The loss of a kind of heads and its gradient."""

    def __init__(self, cases: Cases, head: Head, notion: str, ratio: Fraction, dimension: int):
        self.cases, self.head, self.notion, self.dimension = cases, head, notion, dimension
        self.half = 0.0 if notion == "uniform" else 0.45 * float(ratio)  # of the window, for a gap of 1
        slack = {"separation": 0.45, "window": 0.04 * float(ratio), "uniform": 1e-3}[notion]
        self.solved = slack**2  # the loss from which fractions are tried
        n, m = cases.keys, cases.queries
        self.after = np.zeros((m, n, 0))  # how often a gate counts against a key
        if head.name == "fox" and cases.block is not None:
            counted = ~cases.alive & (cases.block < cases.slots)
            after = counted[:, None, :] & (cases.block >= cases.block[:, None])
            self.after = (after.sum(2, keepdims=True) if head.gates == ONE_GATE else after).astype(float)
        self.sizes = np.cumsum([n * dimension, n * head.biases, self.after.shape[2], m * dimension])

    def split(self, vector: np.ndarray) -> _Numbers:
        keys, biases, gates, queries, heights = np.split(vector, self.sizes)
        n, m, d = self.cases.keys, self.cases.queries, self.dimension
        return _Numbers(
            keys.reshape(n, d), biases if self.head.biases else np.zeros(n), gates, queries.reshape(m, d), heights
        )

    def train(self, rng: np.random.Generator, steps: int) -> tuple[float, _Numbers]:
        """The least loss found from one start."""
        start = rng.normal(size=self.sizes[-1] + self.cases.queries)
        found = minimize(self.loss, start, jac=True, method="CG", options={"maxiter": steps})
        return float(found.fun), self.split(found.x)

    def logits(self, x: _Numbers) -> np.ndarray:
        """The logit of every key at every query."""
        found = x.queries @ x.keys.T + x.biases
        return found - self.after @ x.gates if len(x.gates) else found

    def loss(self, vector: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum of squares of how far read keys are from their height and others above 1 less, and its gradient."""
        x = self.split(vector)
        off = self.logits(x) - x.heights[:, None]
        if self.notion == "separation":
            read, rest = np.minimum(off - 0.5, 0), np.maximum(off + 0.5, 0)
        else:
            read = np.sign(off) * np.maximum(np.abs(off) - self.half, 0)
            rest = np.maximum(off + 1 + self.half, 0)
        error = np.where(self.cases.alive, read, 0) + np.where(self.cases.dead, rest, 0)
        pull = 2 * error
        gradient = [
            (pull.T @ x.queries).ravel(),
            pull.sum(0) if self.head.biases else np.zeros(0),
            -np.tensordot(pull, self.after, 2) if len(x.gates) else x.gates,
            (pull @ x.keys).ravel(),
            -pull.sum(1),
        ]
        return float((error**2).sum()), np.concatenate(gradient)

    def exact(self, keys, biases, gates, queries) -> LinearHead:
        """The head of exact numbers; one gate stands for all."""
        gates = list(gates) * (self.cases.keys if len(gates) == 1 else 1)
        return LinearHead(f"found by training, {self.notion}", keys, biases, queries, gates)


def _grid(values: np.ndarray, grid: int) -> list[Fraction]:
    return [Fraction(round(float(value) * grid), grid) for value in values]


def _rounded(trainer: _Trainer, x: _Numbers, grid: int) -> LinearHead:
    """All numbers on a grid."""
    keys, queries = [_grid(key, grid) for key in x.keys], [_grid(query, grid) for query in x.queries]
    return trainer.exact(keys, _grid(x.biases, grid), _grid(x.gates, grid), queries)


def _uniform(trainer: _Trainer, x: _Numbers, grid: int) -> LinearHead | None:
    """Numbers near these that read uniformly, one key or query after the other."""
    cases, biases = trainer.cases, trainer.head.biases
    order = _order(cases.alive, trainer.dimension + biases, trainer.dimension + 1)
    if order is None:
        return None
    gates = _grid(x.gates, grid)
    after = [[sum((int(a) * g for a, g in zip(row, gates)), Fraction(0)) for row in query] for query in trainer.after]
    keys: dict[int, list[Fraction]] = {}  # content, bias
    queries: dict[int, list[Fraction]] = {}  # query, height
    for is_key, at in order:
        if is_key:
            near = [*x.keys[at], x.biases[at]] if biases else x.keys[at]
            rows = [
                ([*queries[q][:-1], Fraction(1)][: len(near)], queries[q][-1] + after[q][at])
                for q in queries
                if cases.alive[q, at]
            ]
        else:
            near = [*x.queries[at], x.heights[at]]
            rows = [([*keys[k][:-1], Fraction(-1)], after[at][k] - keys[k][-1]) for k in keys if cases.alive[at, k]]
        solution = _project(rows, np.array(near), grid)
        if solution is None or not writable(solution):
            return None
        if is_key:
            keys[at] = solution if biases else [*solution, Fraction(0)]
        else:
            queries[at] = solution
    content = [keys[k][:-1] for k in range(cases.keys)]
    return trainer.exact(
        content, [keys[k][-1] for k in range(cases.keys)], gates, [queries[q][:-1] for q in range(cases.queries)]
    )


def _order(alive: np.ndarray, of_key: int, of_query: int) -> list[tuple[bool, int]] | None:
    """Keys (True) and queries so that each has at most so many partners before it; None if there is no such order."""
    left = alive.copy()
    numbers = {
        **{(True, k): of_key for k in range(alive.shape[1])},
        **{(False, q): of_query for q in range(len(alive))},
    }
    taken = []
    while numbers:
        partners = {one: int((left[:, one[1]] if one[0] else left[one[1]]).sum()) for one in numbers}
        best = min(numbers, key=lambda one: partners[one] - numbers[one])
        if partners[best] > numbers.pop(best):
            return None
        if best[0]:
            left[:, best[1]] = False
        else:
            left[best[1]] = False
        taken.append(best)
    return taken[::-1]


def _project(rows: list[tuple[list[Fraction], Fraction]], near: np.ndarray, grid: int) -> list[Fraction] | None:
    """A solution of row . x = right near these numbers: free unknowns on the grid, the others solved for."""
    matrix = [[Fraction(a) for a in row] + [Fraction(right)] for row, right in rows]
    pivots: list[int] = []
    for row in matrix:
        for other, column in zip(matrix, pivots):
            factor = row[column]
            row[:] = [a - factor * b for a, b in zip(row, other)]
        column = max(range(len(near)), key=lambda at: abs(row[at]), default=0)
        if not len(near) or not row[column]:
            if row[-1]:
                return None
            pivots.append(0)
            continue
        scale = row[column]
        row[:] = [a / scale for a in row]
        for other in matrix[: len(pivots)]:
            factor = other[column]
            other[:] = [a - factor * b for a, b in zip(other, row)]
        pivots.append(column)
    found = _grid(near, grid)
    solved = {column: row for row, column in zip(matrix, pivots) if any(row[:-1])}
    for column, row in solved.items():
        found[column] = row[-1] - sum((row[at] * found[at] for at in range(len(near)) if at not in solved), Fraction(0))
    return found
