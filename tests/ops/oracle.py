"""The definition of THEORY.md section 1, word by word, in plain Python floats: what every path is judged by.

Sequences are lists of numbers, matrices are lists of rows. Positions run from 0; a query at row i sees keys j <= i.
Nothing here is clever or fast, and nothing here calls the lab.
"""

import math
from collections.abc import Callable, Sequence

Row = list[float]
Matrix = list[Row]


def first_passage(field: Sequence[float], key: int, query: int) -> tuple[float, int]:
    """The least field value at a position after the key and up to the query, and the earliest such position.

    (inf, -1) where nothing lies between.
    """
    least, earliest = math.inf, -1
    for position in range(key + 1, query + 1):
        if field[position] < least:
            least, earliest = field[position], position
    return least, earliest


def excess(field: Sequence[float], level: Sequence[float], key: int, query: int) -> float:
    """How far the key's level stands above the minimum; -inf (nothing to punish) where nothing lies between."""
    least, _ = first_passage(field, key, query)
    return level[key] - least if level[key] > -math.inf and least < math.inf else -math.inf


def softened(x: float, smoothing: float) -> float:
    """max(0, x), or smoothing * log(1 + exp(x / smoothing))."""
    if smoothing == 0.0 or math.isinf(x):
        return x if x > 0 else 0.0
    z = x / smoothing
    return smoothing * (max(z, 0.0) + math.log1p(math.exp(-abs(z))))


def softened_slope(x: float, smoothing: float) -> float:
    """The derivative of `softened`, 0 at 0 without smoothing."""
    if smoothing == 0.0 or math.isinf(x):
        return 1.0 if x > 0 else 0.0
    return 0.5 * (1.0 + math.tanh(0.5 * x / smoothing))


def penalty(field: Sequence[float], level: Sequence[float], smoothing: float = 0.0) -> Matrix:
    size = len(field)
    return [
        [softened(excess(field, level, j, i), smoothing) if j < i else 0.0 for j in range(size)] for i in range(size)
    ]


def penalty_gradient(
    field: Sequence[float], level: Sequence[float], upstream: Sequence[Sequence[float]], smoothing: float = 0.0
) -> tuple[Row, Row]:
    """What reaches field and level from upstream[i][j]: the earliest minimum bears it all, the level its opposite."""
    d_field, d_level = [0.0] * len(field), [0.0] * len(level)
    for i in range(len(field)):
        for j in range(i):
            _, earliest = first_passage(field, j, i)
            if earliest < 0:
                continue
            share = upstream[i][j] * softened_slope(excess(field, level, j, i), smoothing)
            d_field[earliest] -= share
            d_level[j] += share
    return d_field, d_level


def forgotten(log_gate: Sequence[float]) -> Matrix:
    """FoX: the log gates after the key and up to the query, added one by one."""
    size = len(log_gate)
    return [[sum(log_gate[j + 1 : i + 1]) if j <= i else -math.inf for j in range(size)] for i in range(size)]


def logits(
    size: int,
    content: Callable[[int, int], float],
    *,
    log_gate: Sequence[float] | None = None,
    field: Sequence[float] | None = None,
    level: Sequence[float] | None = None,
    penalty_scale: float = 1.0,
    smoothing: float = 0.0,
    key_mask: Sequence[bool] | None = None,
) -> Matrix:
    """The logits of softmax, FoX (with log_gate), FPA (with field and level) or of a head with both.

    -inf where the query sees no key.
    """
    bias = [[0.0] * size for _ in range(size)]
    if log_gate is not None:
        bias = forgotten(log_gate)
    if field is not None:
        dropped = penalty(field, level, smoothing)
        bias = [[b - penalty_scale * p for b, p in zip(*rows)] for rows in zip(bias, dropped)]
    return [
        [content(i, j) + bias[i][j] if j <= i and (key_mask is None or key_mask[j]) else -math.inf for j in range(size)]
        for i in range(size)
    ]


def softmax(row: Sequence[float]) -> Row:
    """Weights of one row; all 0 where every key is masked."""
    top = max(row)
    if top == -math.inf:
        return [0.0] * len(row)
    mass = [math.exp(x - top) for x in row]
    total = math.fsum(mass)
    return [m / total for m in mass]


def attention(matrix: Matrix, values: Sequence[Sequence[float]]) -> Matrix:
    """Every row's weighted mean of the values."""
    out = []
    for row in matrix:
        weights = softmax(row)
        out.append([math.fsum(w * v for w, v in zip(weights, column, strict=True)) for column in zip(*values)])
    return out


def log_sum(row: Sequence[float]) -> float:
    top = max(row)
    return top if top == -math.inf else top + math.log(math.fsum(math.exp(x - top) for x in row))


def target_cross_entropy(row: Sequence[float], target: Sequence[int]) -> float:
    """From the uniform distribution on the target to the weights; 0 where the target is empty."""
    if not target:
        return 0.0
    return log_sum(row) - math.fsum(row[j] for j in target) / len(target)


def targets(death: Sequence[int], row: int) -> list[int]:
    """Key j is a target of the query at row i iff j <= i < death_j."""
    return [j for j in range(row + 1) if row < death[j]]


def reading(row: Sequence[float], target: Sequence[int]) -> dict[str, float]:
    """The metrics of one query: see lab.training.metrics.Reading. No "gap" where nothing stands outside the target."""
    weights = softmax(row)
    size = len(target)
    chosen = [j for j, weight in enumerate(weights) if weight > 0.5 / size]
    outside = [row[j] for j in range(len(row)) if j not in target and row[j] > -math.inf]
    inside = [row[j] for j in target]
    uniform = [1.0 / size if j in target else 0.0 for j in range(len(row))]
    loss = target_cross_entropy(row, target)
    found = {
        "loss": loss,
        "excess_loss": loss - math.log(size),
        "tv": 0.5 * math.fsum(abs(w - u) for w, u in zip(weights, uniform, strict=True)),
        "exact": float(chosen == list(target)),
        "mass": math.fsum(weights[j] for j in target),
        "window": max(inside) - min(inside),
    }
    return found | ({"gap": min(inside) - max(outside)} if outside else {})
