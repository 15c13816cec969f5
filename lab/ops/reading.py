"""How heads read: the metrics of every query, row by row, sixteen keys of a row at a time (lanes.py), in float64.

Logits come as a *table* by (query token, key token, distance), or as the matrix itself. Without positions a row of the
table is, for each query token, an array over the keys that only ever grows; with them it is gathered for every row.
Nothing is done for rows without a query but to keep FPA's minima, of which a new field value moves the last ones only.
"""

import math

import numpy as np
from numba import njit

from lab.ops.kinds import FOX, FPA, LEAST_SCALE
from lab.ops.lanes import (
    LANES,
    exp,
    larger,
    largest_of,
    least_of,
    load,
    load_from,
    select,
    smaller,
    splat,
    store,
    total_of,
)
from lab.ops.threads import run_chunks
from lab.ops.vector_math import any_nan
from lab.ops.vector_math import exp as exp_of

# Columns of what is returned for each sequence.
READ_COLUMNS = ("queries", "loss", "excess_loss", "tv", "exact", "mass", "window", "gap", "gap_rows")

# A row whose weights, relative to the largest entry of its token's table, add up to less is weighed again.
_UNDERFLOW = 1e-280
# Smaller weights are exactly 0: subnormal numbers would cost a hundred times more than they matter.
_NOTHING = 1e-300


# --- one row ----------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _weigh(i, mass, at, fade, weight):
    """Fills weight with unnormalised weights; returns their sum. The row of `mass` starts at vector `at`."""
    total, nothing, zero = splat(weight, 0), splat(weight, _NOTHING), splat(weight, 0)
    for n in range(i // LANES + 1):
        w = load(mass, at + n) * load(fade, n)
        w = select(w > nothing, w, zero)
        store(weight, n, w)
        total = total + w
    return total_of(total)


@njit(cache=True, nogil=True)
def _weigh_from_logits(i, logit, at, drop, weight):
    """The same from the row's own maximum. (sum, maximum); (0, 0) where every key is masked."""
    top = splat(weight, -math.inf)
    for n in range(i // LANES + 1):
        top = larger(load(logit, at + n) - load(drop, n), top)
    best = largest_of(top)
    if best == -math.inf:
        weight[: LANES * (i // LANES + 1)] = 0.0
        return 0.0, 0.0
    top, total = splat(weight, best), splat(weight, 0)
    for n in range(i // LANES + 1):
        w = exp(load(logit, at + n) - load(drop, n) - top)
        store(weight, n, w)
        total = total + w
    return total_of(total), best


@njit(cache=True, nogil=True)
def _logits_on_target(i, logit, at, drop, dies):
    """(size of row i's target, sum of its logits, least, largest, largest logit outside)."""
    row, zero, one = splat(dies, i), splat(dies, 0), splat(dies, 1)
    never, always = splat(dies, -math.inf), splat(dies, math.inf)
    size, on_target, low, high, outside = zero, zero, always, never, never
    for n in range(i // LANES + 1):
        a, alive = load(logit, at + n) - load(drop, n), load(dies, n) > row
        size = size + select(alive, one, zero)
        on_target = on_target + select(alive, a, zero)
        low = smaller(select(alive, a, always), low)
        high = larger(select(alive, a, never), high)
        outside = larger(select(alive, never, a), outside)
    return total_of(size), total_of(on_target), least_of(low), largest_of(high), largest_of(outside)


@njit(cache=True, nogil=True)
def _weights_on_target(i, dies, weight, uniform):
    """(what is missing of `uniform` on the target, weight there, least there, largest outside)."""
    row, zero, full = splat(dies, i), splat(dies, 0), splat(dies, uniform)
    always = splat(dies, math.inf)
    missing, on_target, least, outside = zero, zero, always, zero
    for n in range(i // LANES + 1):
        w, alive = load(weight, n), load(dies, n) > row
        missing = missing + select(alive, larger(full - w, zero), zero)
        on_target = on_target + select(alive, w, zero)
        least = smaller(select(alive, w, always), least)
        outside = larger(select(alive, zero, w), outside)
    return total_of(missing), total_of(on_target), least_of(least), largest_of(outside)


@njit(cache=True, nogil=True)
def _score_row(i, count, dies, logit, at, drop, weight, total, unit, n, sums, extremes):
    """Adds row i, of weights weight[j] / total where total stands for exp(unit) * total, to results of sequence n."""
    if total == 0.0:
        total = 1.0  # Given weights may be 0 everywhere: then all of the target's mass is missing.
    size, logit_sum, low, high, outside = _logits_on_target(i, logit, at, drop, dies)
    if size == 0:
        return  # As in the definition, an empty target is not scored.
    missing, on_target, least, most = _weights_on_target(i, dies, weight, total / size)
    threshold = 0.5 * total / size
    excess = math.log(total) + unit - logit_sum / size - math.log(size)
    window = high - low if low > -math.inf else math.inf
    sums[n, 0] += count
    sums[n, 1] += count * (excess + math.log(size))
    sums[n, 2] += count * excess
    sums[n, 3] += count * missing / total
    sums[n, 4] += count * (least > threshold and not most > threshold)
    sums[n, 5] += count * on_target / total
    sums[n, 6] += count * window
    extremes[n, 0] = max(extremes[n, 0], window)
    if outside > -math.inf:
        sums[n, 7] += count * (low - outside)
        sums[n, 8] += count
        extremes[n, 1] = min(extremes[n, 1], low - outside)


@njit(cache=True, nogil=True)
def _undefine(out, extremes):
    """What a sequence with a nan in its logits reads: nothing is exact, everything else is nan."""
    out[1:4], out[4], out[5:8] = math.nan, 0.0, math.nan
    extremes[:] = math.nan


# --- the factors of a row ---------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _enter_key(i, s, token, size, table, mass, content, content_mass):
    """Without positions the table of row i is the column of its token: written once when the key appears."""
    for a in range(table.shape[1]):
        content[a * size + i] = table[s, a, token, 0]
        content_mass[a * size + i] = mass[a, token, 0]


@njit(cache=True, nogil=True)
def _gather_row(i, a, names, vocab, by_distance, reach, out, at):
    """With positions the row is looked up by key token and distance.

    by_distance: (V, V, reach + 1 + LANES) laid out flat, entry [a, b, reach + n] the table at (a, b) and distance -n;
    names: the keys' tokens. The row of `out` starts at vector `at`.
    """
    line = reach + 1 + LANES
    for n in range(i // LANES + 1):
        name, value = load(names, n), splat(out, 0)
        for b in range(vocab):
            row = load_from(by_distance, (a * vocab + b) * line + reach - i + LANES * n)
            value = select(name >= splat(names, b), row, value)
        store(out, at + n, value)


@njit(cache=True, nogil=True)
def _by_reversed_distance(table, reach, out):
    """Entry [a, b, reach - d] of out is table[a, b, min(d, width - 1)] for distances 0 .. reach; others stay unused."""
    line = reach + 1 + LANES
    for a in range(table.shape[0]):
        for b in range(table.shape[1]):
            start = (a * table.shape[1] + b) * line + reach
            for d in range(reach + 1):
                out[start - d] = table[a, b, min(d, table.shape[2] - 1)]


@njit(cache=True, nogil=True)
def exponentiate(table, mass, top):
    """mass = exp(table - top) with top[a] the largest entry of query token a."""
    for a in range(table.shape[0]):
        top[a] = table[a].max()
        unit = top[a] if top[a] > -math.inf else 0.0
        for b in range(table.shape[1]):
            for d in range(table.shape[2]):
                mass[a, b, d] = exp_of(table[a, b, d] - unit)


@njit(cache=True, nogil=True)
def _plus_bias(i, rows, at, bias, reach, to):
    """The row at vector `to` is that at `at` plus the bias, whose entry [reach - d] is that of distance d."""
    for n in range(i // LANES + 1):
        store(rows, to + n, load(rows, at + n) + load_from(bias, reach - i + LANES * n))


@njit(cache=True, nogil=True)
def _times_bias(i, rows, at, bias, reach, to):
    """The same for weights."""
    for n in range(i // LANES + 1):
        store(rows, to + n, load(rows, at + n) * load_from(bias, reach - i + LANES * n))


@njit(cache=True, nogil=True)
def _fade(i, total, wall, place, drop, fade):
    """FoX: the drops of row i are sums of the log gates after each key, from their running total.

    Keys before `wall`, the last closed gate, are cut off; positions after i are no keys yet.
    """
    now, zero = splat(total, total[i]), splat(total, 0)
    first, last, never = splat(place, wall), splat(place, i), splat(total, math.inf)
    for n in range(i // LANES + 1):
        here = load(place, n)
        fallen = select(last >= here, load(total, n) - now, never)
        fallen = select(here >= first, fallen, never)
        store(drop, n, fallen)
        store(fade, n, exp(zero - fallen))


@njit(cache=True, nogil=True)
def _move(i, first, u, level, scale, place, drop, fade):
    """FPA: the minimum of keys first .. i-1 becomes u."""
    zero, start, end = splat(drop, 0), splat(drop, first), splat(drop, i)
    # An infinite penalty is a mask, whatever the scale.
    factor, value = splat(drop, max(scale, LEAST_SCALE)), splat(drop, u)
    for n in range(first // LANES, (i - 1) // LANES + 1):
        here = load(place, n)
        excess = load(level, n) - value
        fallen = factor * select(excess > zero, excess, zero)
        old_drop, old_fade = load(drop, n), load(fade, n)
        faded = exp(zero - fallen)
        # Only keys from `first` on, and before i.
        new_drop, new_fade = select(here >= start, fallen, old_drop), select(here >= start, faded, old_fade)
        store(drop, n, select(here >= end, old_drop, new_drop))
        store(fade, n, select(here >= end, old_fade, new_fade))


@njit(cache=True, nogil=True)
def first_moved(i, n, field, low):
    """The first key of sequence n whose minimum row i lowers: the last earlier position of a value not above its own.

    low[t] is the answer for every earlier t; +inf moves nothing.
    """
    if not field[n, i] < math.inf:
        return i
    j = max(0, i - 1)
    while j > 0 and field[n, j] > field[n, i]:
        j = low[j] if low[j] < j else j - 1  # +inf moved nothing, so it leads nowhere
    return j


# --- sequences --------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _read_tables(
    kind, start, stop, batch, tokens, death, queries, table, bias, gate, field, level, scale, sums, extremes
):  # fmt: skip
    """Sequences start .. stop-1, of which `batch` in a row share a table and a bias; see `read`."""
    length, reach = tokens.shape[1], tokens.shape[1] - 1
    vocab, width = table.shape[2], table.shape[3]
    size = LANES * (length // LANES + 1)
    drop, fade, dies, names, weight, levels = np.empty((6, size))
    place, low = np.arange(size).astype(np.float64), np.empty(length, np.int64)
    # One row for each query token, and one to gather in.
    content, content_mass = np.zeros((2, (vocab + 1) * size))
    scratch = vocab * (size // LANES)
    mass, top = np.empty(table.shape[1:]), np.empty(table.shape[1])
    reversed_table, reversed_mass = np.zeros((2, vocab * vocab * (reach + 1 + LANES) if width > 1 else 0))
    bias_row, bias_mass = np.zeros((2, reach + 1 + LANES))
    broken, last, bias_top = False, -1, 0.0
    for n in range(start, stop):
        s = n // batch
        if s != last:
            last, broken = s, any_nan(table[s].reshape(-1)) or any_nan(bias[s])
            exponentiate(table[s], mass, top)
            if width > 1:
                _by_reversed_distance(table[s], reach, reversed_table)
                _by_reversed_distance(mass, reach, reversed_mass)
            if bias.shape[1] > 0:
                bias_top = bias[s].max()
                for d in range(reach + 1):
                    bias_row[reach - d] = bias[s, min(d, bias.shape[1] - 1)]
                    bias_mass[reach - d] = math.exp(bias_row[reach - d] - bias_top)
        drop[:], fade[:], dies[:], names[:], levels[:], wall = math.inf, 0.0, 0.0, 0.0, 0.0, 0
        extremes[n, 1] = math.inf
        if kind == FPA:
            levels[:length] = level[n]
        for i in range(length):
            a = tokens[n, i]
            names[i], dies[i], drop[i], fade[i] = a, death[n, i], 0.0, 1.0
            if width == 1:
                _enter_key(i, s, a, size, table, mass, content, content_mass)
            if kind == FOX:
                wall = i if gate[n, i] == -math.inf else wall
                levels[i] = (levels[i - 1] if i else 0.0) + (0.0 if wall == i else gate[n, i])
            elif kind == FPA:
                low[i] = first_moved(i, n, field, low)
                if low[i] < i:
                    _move(i, low[i], field[n, i], levels, scale, place, drop, fade)
            count = queries[n, i]
            if count == 0:
                continue
            if kind == FOX:
                _fade(i, levels, wall, place, drop, fade)
            at = a * (size // LANES)
            if width > 1:
                at = scratch
                _gather_row(i, a, names, vocab, reversed_table, reach, content, at)
                _gather_row(i, a, names, vocab, reversed_mass, reach, content_mass, at)
            if bias.shape[1] > 0:
                _plus_bias(i, content, at, bias_row, reach, scratch)
                _times_bias(i, content_mass, at, bias_mass, reach, scratch)
                at = scratch
            total, unit = _weigh(i, content_mass, at, fade, weight), top[a] + bias_top
            if not total > _UNDERFLOW:
                total, unit = _weigh_from_logits(i, content, at, drop, weight)
            _score_row(i, count, dies, content, at, drop, weight, total, unit, n, sums, extremes)
        if broken or (kind == FOX and any_nan(gate[n])) or (kind == FPA and (any_nan(field[n]) or any_nan(level[n]))):
            _undefine(sums[n], extremes[n])


@njit(cache=True, nogil=True)
def _read_matrices(start, stop, death, queries, log_weight, normalised, sums, extremes):
    """Sequences start .. stop-1 of given matrices; see `read_dense`."""
    rows, length = log_weight.shape[1:]
    size = LANES * (length // LANES + 1)
    logit, drop, dies, weight = np.zeros((4, size))
    for n in range(start, stop):
        extremes[n, 1] = math.inf
        dies[:length] = death[n]
        for row in range(rows):
            i = length - rows + row
            count = queries[n, i]
            if count == 0:
                continue
            logit[: i + 1], logit[i + 1 :] = log_weight[n, row, : i + 1], -math.inf
            total, unit = _weigh_from_logits(i, logit, 0, drop, weight)
            if not normalised:
                total, unit = 1.0, 0.0
                for j in range(i + 1):
                    weight[j] = exp_of(logit[j])
            dies[i + 1 :] = 0.0
            _score_row(i, count, dies, logit, 0, drop, weight, total, unit, n, sums, extremes)
            dies[i + 1 : length] = death[n, i + 1 :]
            if any_nan(logit[: i + 1]):
                _undefine(sums[n], extremes[n])


def read(kind, tokens, death, queries, table, bias, gate, field, level, scale):
    """Metrics of every sequence, summed over its queries.

    tokens, death, queries: (seeds, batch, length) as in lab.tasks.Batch. table: (seeds, V, V, width); bias: (seeds,
    width), width 0 for none. gate: (seeds, batch, length) log forget gates for FoX; field, level: the same for FPA;
    the unused ones of size 0. All floats are float64.

    Returns (seeds, batch, len(READ_COLUMNS)) sums weighted by `queries`, and (seeds, batch, 2) with the largest
    window and the least gap of the sequence. A row has no gap when nothing outside its target has any weight;
    "gap_rows" counts the queries that have one. A target key of weight 0 makes loss and window infinite. A nan in
    what the logits are made of makes the sequence's metrics nan, and none of its queries exact.
    """
    seeds, batch, length = tokens.shape
    flat = [x.reshape(-1, length) for x in (tokens, death, queries)]
    factors = [table, bias, *(x.reshape(-1, length) for x in (gate, field, level)), scale]
    sums, extremes = np.zeros((seeds, batch, len(READ_COLUMNS))), np.zeros((seeds, batch, 2))
    out = [sums.reshape(seeds * batch, -1), extremes.reshape(seeds * batch, -1)]
    arguments = [batch, *flat, *factors, *out]
    run_chunks(lambda start, stop: _read_tables(kind, start, stop, *arguments), seeds * batch)
    return sums, extremes


def read_dense(death, queries, log_weight, normalised):
    """The same for given rows: log_weight (seeds, batch, rows, length) float64, the last `rows` of the sequence.

    The weights are softmax(log_weight) if `normalised`, else exp(log_weight) as it stands.
    """
    seeds, batch, rows, length = log_weight.shape
    arrays = (death.reshape(-1, length), queries.reshape(-1, length), log_weight.reshape(-1, rows, length))
    sums, extremes = np.zeros((seeds, batch, len(READ_COLUMNS))), np.zeros((seeds, batch, 2))
    out = (sums.reshape(seeds * batch, -1), extremes.reshape(seeds * batch, -1))
    run_chunks(lambda start, stop: _read_matrices(start, stop, *arrays, normalised, *out), seeds * batch)
    return sums, extremes
