"""The fast path of token-level heads: a target-set step, or a reading, in one pass over the rows, compiled by numba.

For a head whose queries and keys depend on the token alone, the logit before forgetting is a *table*

    logit(i, j) = table[token_i, token_j, min(i - j, width - 1)]

(width 1 without positions), so its head dimension costs nothing here. Forgetting is a log weight per key that the
row loop keeps up to date: for FoX all keys fade by the row's gate; for FPA, m_ij is non-decreasing in j, so the
keys whose minimum the new field value lowers are the last ones, and only those are touched again. A key's share of
the gradient is collected between two such touches and handed to the earliest minimum when it moves: the same
gradient convention as reference.py, which this file is tested against.

Everything is computed in float64, seed by seed and sequence by sequence in a fixed order, so a seed's numbers do
not depend on the block of seeds around it.
"""

import math

import numpy as np
from numba import njit

SOFTMAX, FOX, FPA = 0, 1, 2

# Columns of what `read` returns for each sequence.
READ_COLUMNS = ("queries", "loss", "excess_loss", "tv", "exact", "mass", "window", "gap", "gap_rows")

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
        drop[j] = scale * value
        slope[j] = scale * derivative
        fade[j] = math.exp(-drop[j]) if drop[j] < 690.0 else 0.0
        j -= 1
    return j + 1


@njit(cache=True, nogil=True)
def _enter_key(i, tokens, table, mass, content, content_mass):
    """Without positions the table of row i is the column of its token: written once when the key appears."""
    for a in range(table.shape[0]):
        content[a, i] = table[a, tokens[i], 0]
        content_mass[a, i] = mass[a, tokens[i], 0]


@njit(cache=True, nogil=True)
def _gather_row(i, tokens, table, mass, logit, row_mass):
    """With positions the table of row i is looked up by key token and distance."""
    width = table.shape[2]
    of_query, mass_of_query = table[tokens[i]], mass[tokens[i]]
    for j in range(i + 1):
        distance = min(i - j, width - 1)
        logit[j] = of_query[tokens[j], distance]
        row_mass[j] = mass_of_query[tokens[j], distance]


# The loops over a row are what the time goes into. Allowing sums to be reordered lets them run on vector registers;
# the order is then fixed by the compiled code, the same for every seed and block.
_row_loop = njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})


@_row_loop
def _weigh(i, row_mass, fade, weight):
    """Fills weight[:i+1] with unnormalised weights; returns their sum."""
    total = 0.0
    for j in range(i + 1):
        weight[j] = row_mass[j] * fade[j]
        total += weight[j]
    return total


@_row_loop
def _weigh_again(i, logit, drop, weight):
    """The same from the row's own maximum, for rows whose every key is far below the best entry of the table."""
    best = -math.inf
    for j in range(i + 1):
        best = max(best, logit[j] - drop[j])
    if best == -math.inf:
        weight[: i + 1] = 0.0
        return 0.0, 0.0
    total = 0.0
    for j in range(i + 1):
        weight[j] = math.exp(logit[j] - drop[j] - best)
        total += weight[j]
    return total, best


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


@_row_loop
def _row_metrics(i, dies, logit, drop, weight, threshold, uniform):
    """(keys over the threshold, those on the target, mass missing there, mass there, least and largest logit there,
    largest logit outside) of row i."""
    above, hits, missing, on_target = 0, 0, 0.0, 0.0
    low, high, outside = math.inf, -math.inf, -math.inf
    for j in range(i + 1):
        a = logit[j] - drop[j]
        over = weight[j] > threshold
        alive = dies[j] > i
        above += over
        hits += over and alive
        on_target += weight[j] if alive else 0.0
        missing += max(0.0, uniform - weight[j]) if alive else 0.0
        low = min(low, a if alive else math.inf)
        high = max(high, a if alive else -math.inf)
        outside = max(outside, -math.inf if alive else a)
    return above, hits, missing, on_target, low, high, outside


@njit(cache=True, nogil=True)
def _score_row(i, count, dies, logit, drop, weight, total, unit, out, extremes):
    """Adds row i, of weights weight[j] / total where total stands for exp(unit) * total, to its sequence's results."""
    if total == 0.0:
        total = 1.0  # Given weights may be 0 everywhere: then all of the target's mass is missing.
    size, logit_sum = _sum_on_target(i, logit, drop, dies)
    above, hits, missing, on_target, low, high, outside = _row_metrics(
        i, dies, logit, drop, weight, 0.5 * total / size, total / size
    )
    excess = math.log(total) + unit - logit_sum / size - math.log(size)
    window = high - low if low > -math.inf else math.inf
    out[0] += count
    out[1] += count * (excess + math.log(size))
    out[2] += count * excess
    out[3] += count * missing / total
    out[4] += count * (hits == size and above == size)
    out[5] += count * on_target / total
    out[6] += count * window
    extremes[0] = max(extremes[0], window)
    if outside > -math.inf:
        out[7] += count * (low - outside)
        out[8] += count
        extremes[1] = min(extremes[1], low - outside)


@njit(cache=True, nogil=True)
def _exponentiate(table, mass, top):
    """mass = exp(table - top) with top[a] the largest entry of query token a."""
    for a in range(table.shape[0]):
        top[a] = table[a].max()
        for b in range(table.shape[1]):
            for d in range(table.shape[2]):
                mass[a, b, d] = math.exp(table[a, b, d] - top[a])


@njit(cache=True, nogil=True)
def _pass_gradient(j, collected, slope, argmin, d_field, d_level):
    """Hands what key j collected since its minimum last moved to its level and to the earliest minimum."""
    d_level[j] -= slope[j] * collected[j]
    d_field[argmin[j]] += slope[j] * collected[j]
    collected[j] = 0.0


@njit(cache=True, nogil=True)
def target_step(kind, tokens, death, queries, table, gate, field, level, scale, smoothing):
    """Mean target cross-entropy of each seed, and its gradients.

    tokens, death, queries: (seeds, batch, length) as in lab.tasks.Batch. table: (seeds, V, V, width).
    gate: (seeds, batch, length) log forget gates for FoX; field, level: the same shape for FPA; the unused ones may
    be of size 0. All floats are float64. Returns loss (seeds,), and the gradients of table, gate, field and level.
    """
    seeds, batch, length = tokens.shape
    loss = np.zeros(seeds)
    d_table, d_gate = np.zeros_like(table), np.zeros_like(gate)
    d_field, d_level = np.zeros_like(field), np.zeros_like(level)
    mass, top = np.empty(table.shape[1:]), np.empty(table.shape[1])
    minimum, drop, slope, fade = np.empty(length), np.zeros(length), np.zeros(length), np.ones(length)
    argmin, weight, collected = np.empty(length, np.int64), np.empty(length), np.empty(length)
    none = np.empty(0)
    vocab, width = table.shape[2], table.shape[3]
    content, content_mass, d_content = np.empty((3, vocab, length))
    logit, row_mass = np.empty(length), np.empty(length)
    for s in range(seeds):
        _exponentiate(table[s], mass, top)
        every = max(1, queries[s].sum())
        for b in range(batch):
            token, dies = tokens[s, b], death[s, b]
            g = gate[s, b] if kind == FOX else none
            u = field[s, b] if kind == FPA else none
            v = level[s, b] if kind == FPA else none
            collected[:] = 0.0
            d_content[:] = 0.0
            for i in range(length):
                if width == 1:
                    _enter_key(i, token, table[s], mass, content, content_mass)
                if kind != SOFTMAX:
                    if kind == FPA:
                        j = i - 1
                        while j >= 0 and minimum[j] > u[i]:
                            if argmin[j] >= 0:
                                _pass_gradient(j, collected, slope, argmin, d_field[s, b], d_level[s, b])
                            collected[j] = 0.0
                            argmin[j] = i
                            j -= 1
                    _forget(kind, i, g, u, v, scale, smoothing, minimum, argmin, drop, slope, fade)
                if queries[s, b, i] == 0:
                    continue
                a = token[i]
                if width == 1:
                    logit, row_mass = content[a], content_mass[a]
                else:
                    _gather_row(i, token, table[s], mass, logit, row_mass)
                total, unit = _weigh(i, row_mass, fade, weight), top[a]
                if not total > _UNDERFLOW:
                    total, unit = _weigh_again(i, logit, drop, weight)
                size, on_target = _sum_on_target(i, logit, drop, dies)
                share = queries[s, b, i] / every
                loss[s] += share * (math.log(total) + unit - on_target / size)
                _row_gradient(i, dies, share / total, share / size, weight, collected)
                if width == 1:
                    for j in range(i + 1):
                        d_content[a, j] += weight[j]
                else:
                    for j in range(i + 1):
                        d_table[s, a, token[j], min(i - j, width - 1)] += weight[j]
            if width == 1:
                for a in range(vocab):
                    for j in range(length):
                        d_table[s, a, token[j], 0] += d_content[a, j]
            if kind == FOX:
                # a_ij holds c_i - c_j. A row's logit gradients add up to 0, so only the keys' side remains.
                later = 0.0
                for j in range(length - 1, -1, -1):
                    later -= collected[j]
                    d_gate[s, b, j] = later
            elif kind == FPA:
                for j in range(length):
                    if argmin[j] >= 0:
                        _pass_gradient(j, collected, slope, argmin, d_field[s, b], d_level[s, b])
    return loss, d_table, d_gate, d_field, d_level


@njit(cache=True, nogil=True)
def read(kind, tokens, death, queries, table, gate, field, level, scale):
    """Metrics of every sequence, summed over its queries; arguments as in `target_step`, without smoothing.

    Returns (seeds, batch, len(READ_COLUMNS)) sums weighted by `queries`, and (seeds, batch, 2) with the largest
    window and the least gap of the sequence. A row has no gap when nothing outside its target has any weight;
    "gap_rows" counts the queries that have one. A target key of weight 0 makes loss and window infinite.
    """
    seeds, batch, length = tokens.shape
    sums = np.zeros((seeds, batch, 9))
    extremes = np.zeros((seeds, batch, 2))
    mass, top = np.empty(table.shape[1:]), np.empty(table.shape[1])
    minimum, drop, slope, fade = np.empty(length), np.zeros(length), np.zeros(length), np.ones(length)
    argmin, weight = np.empty(length, np.int64), np.empty(length)
    none = np.empty(0)
    vocab, width = table.shape[2], table.shape[3]
    content, content_mass = np.empty((2, vocab, length))
    logit, row_mass = np.empty(length), np.empty(length)
    for s in range(seeds):
        _exponentiate(table[s], mass, top)
        for b in range(batch):
            token, dies = tokens[s, b], death[s, b]
            g = gate[s, b] if kind == FOX else none
            u = field[s, b] if kind == FPA else none
            v = level[s, b] if kind == FPA else none
            extremes[s, b, 1] = math.inf
            for i in range(length):
                if width == 1:
                    _enter_key(i, token, table[s], mass, content, content_mass)
                if kind != SOFTMAX:
                    _forget(kind, i, g, u, v, scale, 0.0, minimum, argmin, drop, slope, fade)
                count = queries[s, b, i]
                if count == 0:
                    continue
                a = token[i]
                if width == 1:
                    logit, row_mass = content[a], content_mass[a]
                else:
                    _gather_row(i, token, table[s], mass, logit, row_mass)
                total, unit = _weigh(i, row_mass, fade, weight), top[a]
                if not total > _UNDERFLOW:
                    total, unit = _weigh_again(i, logit, drop, weight)
                _score_row(i, count, dies, logit, drop, weight, total, unit, sums[s, b], extremes[s, b])
    return sums, extremes


@njit(cache=True, nogil=True)
def read_dense(death, queries, log_weight, normalised):
    """The same for given rows: log_weight (seeds, batch, rows, length) float64, the last `rows` of the sequence.

    The weights are softmax(log_weight) if `normalised`, else exp(log_weight) as it stands.
    """
    seeds, batch, rows, length = log_weight.shape
    sums = np.zeros((seeds, batch, 9))
    extremes = np.zeros((seeds, batch, 2))
    weight, drop = np.empty(length), np.zeros(length)
    for s in range(seeds):
        for b in range(batch):
            extremes[s, b, 1] = math.inf
            for row in range(rows):
                i = length - rows + row
                count = queries[s, b, i]
                if count == 0:
                    continue
                logit = log_weight[s, b, row]
                if normalised:
                    total, unit = _weigh_again(i, logit, drop, weight)
                else:
                    total, unit = 1.0, 0.0
                    for j in range(i + 1):
                        weight[j] = math.exp(logit[j])
                _score_row(i, count, death[s, b], logit, drop, weight, total, unit, sums[s, b], extremes[s, b])
    return sums, extremes
