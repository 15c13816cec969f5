"""The target-set step of token-level heads whose table also depends on the distance, as under RoPE.

The logit before forgetting is table[token_i, token_j, min(i - j, width - 1)], looked up row by row. Forgetting is a log
weight per key that the row loop keeps up to date: for FoX all keys fade by the row's gate; for FPA, m_ij is
non-decreasing in j, so the keys whose minimum the new field value lowers are the last ones, and only those are touched
again. A key's share of the gradient is collected between two such touches and handed to the earliest minimum when it
moves: the same gradient convention as reference.py.

Everything is computed in float64, sequence by sequence in a fixed order, so a seed's numbers do not depend on the block
of seeds around it. Tables without distances have a faster step, in target_step.py.
"""

import math

import numpy as np
from numba import njit

from lab.ops.kinds import FOX, FPA, SOFTMAX
from lab.ops.reading import exponentiate
from lab.ops.target_step import sum_over_batch
from lab.ops.threads import run_chunks
from lab.ops.vector_math import any_nan

# A row whose weights, relative to the largest entry of its token's table, add up to less is weighed again.
_UNDERFLOW = 1e-280
# Smaller weights are exactly 0: subnormal numbers would cost a hundred times more than they matter.
_NOTHING = 1e-300


@njit(cache=True, nogil=True, inline="always")
def _smooth_excess(excess, smoothing):
    """(penalty, its derivative) for level_j - m_ij; matches reference.penalty."""
    if not excess > -math.inf:
        return 0.0, 0.0
    if smoothing == 0.0:
        return (excess, 1.0) if excess > 0.0 else (0.0, 0.0)
    z = excess / smoothing
    if z > 40.0:
        return excess, 1.0
    e = math.exp(-abs(z))
    value = smoothing * (max(z, 0.0) + math.log1p(e))
    return value, (1.0 / (1.0 + e) if z >= 0.0 else e / (1.0 + e))


@njit(cache=True, nogil=True)
def _forget(kind, i, gate, field, level, scale, smoothing, minimum, argmin, drop, slope, fade):
    """Brings every key's penalty up to date for row i. Returns the first key whose minimum moved (i if none).

    drop[j] is the penalty in logits, fade[j] = exp(-drop[j]), slope[j] its derivative with respect to level_j - m_ij.
    """
    minimum[i], argmin[i], drop[i], slope[i], fade[i] = math.inf, -1, 0.0, 0.0, 1.0
    if kind == FOX:
        factor = math.exp(gate[i])
        for j in range(i):
            drop[j] -= gate[i]
            faded = fade[j] * factor
            fade[j] = faded if faded > _NOTHING else 0.0
        return i
    j = i - 1
    while j >= 0 and minimum[j] > field[i]:
        minimum[j] = field[i]
        value, derivative = _smooth_excess(level[j] - field[i], smoothing)
        drop[j] = scale * value if value < math.inf else math.inf  # A mask, whatever the scale.
        slope[j] = scale * derivative
        fade[j] = math.exp(-drop[j]) if drop[j] < 690.0 else 0.0
        j -= 1
    return j + 1


@njit(cache=True, nogil=True)
def _gather_row(i, tokens, table, mass, logit, row_mass):
    """With positions the table of row i is looked up by key token and distance."""
    width = table.shape[2]
    of_query, mass_of_query = table[tokens[i]], mass[tokens[i]]
    for j in range(i + 1):
        distance = min(i - j, width - 1)
        logit[j] = of_query[tokens[j], distance]
        row_mass[j] = mass_of_query[tokens[j], distance]


# The loops over a row are what the time goes into. Allowing sums to be reordered lets them run on vector registers.
# A loop that adds up writes nothing: where it does, the compiled code looks at addresses to choose between two orders.
_row_loop = njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})


@_row_loop
def _sum(i, weight):
    total = 0.0
    for j in range(i + 1):
        total += weight[j]
    return total


@_row_loop
def _weigh(i, row_mass, fade, weight):
    """Fills weight[:i+1] with unnormalised weights."""
    for j in range(i + 1):
        weight[j] = row_mass[j] * fade[j]


@_row_loop
def _weigh_again(i, logit, drop, weight):
    """The same from the row's largest logit, returned, for rows whose every key is far below the table's best entry."""
    best = -math.inf
    for j in range(i + 1):
        best = max(best, logit[j] - drop[j])
    for j in range(i + 1):
        weight[j] = 0.0 if best == -math.inf else math.exp(logit[j] - drop[j] - best)
    return best


@_row_loop
def _sum_on_target(i, logit, drop, dies):
    """(size of the target of row i, sum of its logits)."""
    size, on_target = 0, 0.0
    for j in range(i + 1):
        alive = dies[j] > i
        size += alive
        on_target += logit[j] - drop[j] if alive else 0.0
    return size, on_target


@_row_loop
def _row_gradient(i, dies, per_total, per_target, weight, collected):
    """Turns weight[:i+1] into the gradient of the row's logits, and adds it to what every key has collected."""
    for j in range(i + 1):
        d_logit = weight[j] * per_total - (per_target if dies[j] > i else 0.0)
        weight[j] = d_logit
        collected[j] += d_logit


@njit(cache=True, nogil=True)
def _pass_gradient(j, collected, slope, argmin, d_field, d_level):
    """Hands what key j collected since its minimum last moved to its level and to the earliest minimum."""
    d_level[j] -= slope[j] * collected[j]
    d_field[argmin[j]] += slope[j] * collected[j]
    collected[j] = 0.0


@njit(cache=True, nogil=True)
def _sequences(
    kind, start, stop, batch, tokens, table, gate, field, level, death, share, scale, smoothing,
    loss, d_table, d_gate, d_field, d_level,
):  # fmt: skip
    """Sequences start .. stop-1, of which `batch` in a row share a table; see `target_step`."""
    length = tokens.shape[1]
    mass, top = np.empty(table.shape[1:]), np.empty(table.shape[1])
    minimum, drop, slope, fade = np.empty(length), np.zeros(length), np.zeros(length), np.ones(length)
    argmin, weight, collected = np.empty(length, np.int64), np.empty(length), np.empty(length)
    none, width, last, broken = np.empty(0), table.shape[3], -1, False
    logit, row_mass = np.empty(length), np.empty(length)
    for n in range(start, stop):
        s, token, dies = n // batch, tokens[n], death[n]
        if s != last:
            last, broken = s, any_nan(table[s].reshape(-1))
            exponentiate(table[s], mass, top)
        g = gate[n] if kind == FOX else none
        u = field[n] if kind == FPA else none
        v = level[n] if kind == FPA else none
        collected[:], drop[:], slope[:], fade[:] = 0.0, 0.0, 0.0, 1.0
        for i in range(length):
            if kind != SOFTMAX:
                if kind == FPA:
                    j = i - 1
                    while j >= 0 and minimum[j] > u[i]:
                        if argmin[j] >= 0:
                            _pass_gradient(j, collected, slope, argmin, d_field[n], d_level[n])
                        collected[j] = 0.0
                        argmin[j] = i
                        j -= 1
                _forget(kind, i, g, u, v, scale, smoothing, minimum, argmin, drop, slope, fade)
            if share[n, i] == 0:
                continue
            a = token[i]
            _gather_row(i, token, table[s], mass, logit, row_mass)
            size, on_target = _sum_on_target(i, logit, drop, dies)
            if size == 0:
                continue  # An empty target is not scored.
            _weigh(i, row_mass, fade, weight)
            total, unit = _sum(i, weight), top[a]
            if not total > _UNDERFLOW:
                unit = _weigh_again(i, logit, drop, weight)
                total = _sum(i, weight)
            if total == 0.0 or on_target == -math.inf:  # Masked: all is lost, and nothing can be learned.
                loss[n] = math.inf
                continue
            loss[n] += share[n, i] * (math.log(total) + unit - on_target / size)
            _row_gradient(i, dies, share[n, i] / total, share[n, i] / size, weight, collected)
            for j in range(i + 1):
                d_table[n, a, token[j], min(i - j, width - 1)] += weight[j]
        if kind == FOX:
            # A logit holds c_i - c_j, and a row's logit gradients add up to 0, so only the keys' side remains.
            later = 0.0
            for j in range(length - 1, -1, -1):
                later -= collected[j]
                d_gate[n, j] = later
        elif kind == FPA:
            for j in range(length):
                if argmin[j] >= 0:
                    _pass_gradient(j, collected, slope, argmin, d_field[n], d_level[n])
        if broken or (kind == FOX and any_nan(g)) or (kind == FPA and (any_nan(u) or any_nan(v))):
            loss[n] = math.nan


def target_step(kind, tokens, death, queries, table, gate, field, level, scale, smoothing):
    """Mean target cross-entropy of each seed, and its gradients.

    tokens, death, queries: (seeds, batch, length) as in lab.tasks.Batch. table: (seeds, V, V, width).
    gate: (seeds, batch, length) log forget gates for FoX; field, level: the same shape for FPA; the unused ones may
    be of size 0. All floats are float64. Returns loss (seeds,), and the gradients of table, gate, field and level.
    """
    seeds, batch, length = tokens.shape
    n = seeds * batch
    # What the loss of each row counts in its seed's mean over queries.
    share = queries / np.maximum(1, queries.sum((1, 2)))[:, None, None]
    loss, d_table = np.zeros((seeds, batch)), np.zeros((seeds, batch, table[0].size))
    d_gate, d_field, d_level = np.zeros_like(gate), np.zeros_like(field), np.zeros_like(level)
    flat = [
        tokens.reshape(n, length),
        table,
        *(x.reshape(-1, length) for x in (gate, field, level, death, share)),
        scale,
        smoothing,
        loss.reshape(n),
        d_table.reshape(n, *table.shape[1:]),
        *(x.reshape(-1, length) for x in (d_gate, d_field, d_level)),
    ]
    run_chunks(lambda start, stop: _sequences(kind, start, stop, batch, *flat), n)
    total = sum_over_batch(d_table).reshape(table.shape)
    return sum_over_batch(loss[..., None])[:, 0], total, d_gate, d_field, d_level
