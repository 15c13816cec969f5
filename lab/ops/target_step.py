"""The target-set step of heads with queries and keys per position: loss and all gradients in one pass over the rows.

Sixteen sequences are computed side by side (lanes.py), one row after the other, so that what belongs to a row stays in
cache; sequences are independent, so their numbers depend neither on the block a seed is in nor on the threads.

Forgetting is an offset to the logit of every key. For FoX it is c_i - c_j, from sums in float64, written anew for each
row that has a query. For FPA, m_ij is non-decreasing in j: a new field value u_i lowers the minimum of the last keys
alone, those from `low_i` on, where low_i is the last earlier position whose field value is not above u_i. Keys with the
same minimum therefore form a *run*: the run whose minimum stands at t ends with key t - 1.

    row i lowers the minimum of every key that stands after the last earlier value <= u_i

    field      3    1    4    2    5        row 3 (value 2): the last earlier value <= 2 stands at 1, so keys 1 and 2
    low        0    0    1    1    3        move, and form one run, which ends with key 2

A key collects its share of the gradient while its minimum stays. When it moves, its run's sum goes to the position
that the run ends before, which is the *earliest* minimum: the gradient convention of reference.py.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from lab.ops.kinds import FOX, FPA, LEAST_SCALE
from lab.ops.lanes import (
    LANES,
    everywhere,
    larger,
    load,
    log,
    narrow,
    select,
    smaller,
    softplus,
    splat,
    store,
    transpose_square,
    wide,
)
from lab.ops.lanes import exp as exp_of
from lab.ops.threads import run_chunks
from lab.ops.vector_math import any_nan

# Stands for -inf in a table, whose products with 0 would be nan; logits that are not above _GONE count as -inf.
_MASKED, _GONE = -1e30, -1e29
# Smaller weights, in float32 and float64, are exactly 0: their products would be subnormal numbers, which cost a
# hundred times more than they matter.
_NOTHING = (1e-24, 1e-270)
# Stands in the gradient of a field value while the run that ends before it lasts.
_WAITS = math.inf


@njit(cache=True, nogil=True)
def _to_lanes(rows, first, out, scale=1.0):
    """out[16 n + lane] = scale rows[first + lane, n]; 0 in lanes beyond the last row."""
    size, lanes, factor = rows.shape[1], min(LANES, rows.shape[0] - first), out.dtype.type(scale)
    if lanes == LANES and size >= LANES:
        flat = rows.reshape(-1)
        for n in range(0, size, LANES):
            at = min(n, size - LANES)  # What is left over is done together with some that is done already.
            transpose_square(flat, first * size + at, size, out, LANES * at, LANES, factor)
        return
    out[:] = 0
    for lane in range(lanes):
        row = rows[first + lane]
        for n in range(size):
            out[LANES * n + lane] = factor * out.dtype.type(row[n])


@njit(cache=True, nogil=True)
def _from_lanes(lanes, first, out, scale=1.0):
    """The way back, times a number."""
    size, count, factor = out.shape[1], min(LANES, out.shape[0] - first), out.dtype.type(scale)
    if count == LANES and size >= LANES:
        flat = out.reshape(-1)
        for n in range(0, size, LANES):
            at = min(n, size - LANES)
            transpose_square(lanes, LANES * at, LANES, flat, first * size + at, size, factor)
        return
    for lane in range(count):
        row = out[first + lane]
        for n in range(size):
            row[n] = factor * out.dtype.type(lanes[LANES * n + lane])


@njit(cache=True, nogil=True)
def _dots1(i, at, dim, c, query, key, start, out):
    """out = start + one coordinate of the inner products of row i's query, at vector `at`, with every key so far.

    Returns the largest of `out`.
    """
    q0, top = load(query, at + c), splat(out, -math.inf)
    for j in range(i + 1):
        a = load(start, j) + q0 * load(key, j * dim + c)
        store(out, j, a)
        top = larger(a, top)
    return top


@njit(cache=True, nogil=True)
def _dots4(i, at, dim, c, query, key, start, out):
    """The same for four coordinates at once."""
    n, top = at + c, splat(out, -math.inf)
    q0, q1, q2, q3 = load(query, n), load(query, n + 1), load(query, n + 2), load(query, n + 3)
    for j in range(i + 1):
        n = j * dim + c
        one, other = q0 * load(key, n) + q1 * load(key, n + 1), q2 * load(key, n + 2) + q3 * load(key, n + 3)
        a = load(start, j) + (one + other)
        store(out, j, a)
        top = larger(a, top)
    return top


@njit(cache=True, nogil=True)
def _logits(i, at, dim, query, key, offset, logit):
    """logit[j] = query_i . key_j + offset_j for every key so far; the query stands at vector `at`. The largest."""
    c, start, top = 0, offset, splat(logit, -math.inf)
    if dim == 0:
        for j in range(i + 1):
            store(logit, j, load(offset, j))
            top = larger(load(offset, j), top)
    while c < dim:
        if c + 4 <= dim:
            top = _dots4(i, at, dim, c, query, key, start, logit)
            c += 4
        else:
            top = _dots1(i, at, dim, c, query, key, start, logit)
            c += 1
        start = logit
    return top


@njit(cache=True, nogil=True)
def _weigh(i, top, logit, dies):
    """Turns logits, of which `top` is the largest, into unnormalised weights.

    Returns their sum, 0 where all are masked, and of the target its size and the sum of its logits.
    """
    zero, one, row = splat(logit, 0), splat(logit, 1), splat(logit, i)
    nothing = splat(logit, _NOTHING[0] if logit.itemsize == 4 else _NOTHING[1])
    total, size, on_target = zero, zero, zero
    for j in range(i + 1):
        a, alive = load(logit, j), load(dies, j) > row
        on_target = on_target + select(alive, a, zero)
        size = size + select(alive, one, zero)
        weight = exp_of(a - top)
        weight = select(weight > nothing, weight, zero)
        total = total + weight
        store(logit, j, weight)
    return select(top > splat(top, _GONE), total, zero), size, on_target


@njit(cache=True, nogil=True)
def _row_gradient(i, dies, per_total, per_target, weight, collected):
    """Turns weights into the gradient of the row's logits, and adds it to what every key has collected."""
    zero, row = splat(weight, 0), splat(weight, i)
    for j in range(i + 1):
        d_logit = load(weight, j) * per_total - select(load(dies, j) > row, per_target, zero)
        store(weight, j, d_logit)
        store(collected, j, load(collected, j) + d_logit)


@njit(cache=True, nogil=True)
def _spread1(i, dim, c, d_logit, query, key, d_query, d_key):
    """Hands the gradient of row i's logits to one coordinate of its query and of every key so far."""
    q0 = load(query, i * dim + c)
    d0 = splat(query, 0)
    for j in range(i + 1):
        n, g = j * dim + c, load(d_logit, j)
        d0 = d0 + g * load(key, n)
        store(d_key, n, load(d_key, n) + g * q0)
    store(d_query, i * dim + c, d0)


@njit(cache=True, nogil=True)
def _spread4(i, dim, c, d_logit, query, key, d_query, d_key):
    """The same for four coordinates at once."""
    n = i * dim + c
    q0, q1, q2, q3 = load(query, n), load(query, n + 1), load(query, n + 2), load(query, n + 3)
    d0 = splat(query, 0)
    d1, d2, d3 = d0, d0, d0
    for j in range(i + 1):
        n, g = j * dim + c, load(d_logit, j)
        d0 = d0 + g * load(key, n)
        d1 = d1 + g * load(key, n + 1)
        d2 = d2 + g * load(key, n + 2)
        d3 = d3 + g * load(key, n + 3)
        store(d_key, n, load(d_key, n) + g * q0)
        store(d_key, n + 1, load(d_key, n + 1) + g * q1)
        store(d_key, n + 2, load(d_key, n + 2) + g * q2)
        store(d_key, n + 3, load(d_key, n + 3) + g * q3)
    n = i * dim + c
    store(d_query, n, d0)
    store(d_query, n + 1, d1)
    store(d_query, n + 2, d2)
    store(d_query, n + 3, d3)


@njit(cache=True, nogil=True)
def _query_of_token(i, vocab, dim, names, table, query):
    """The query of row i, if queries are rows of the table by token: names[i] its token, table (V, V) by lanes."""
    name, zero = load(names, i), splat(query, 0)
    for b in range(dim):
        value = zero
        for a in range(vocab if b < vocab else 0):
            value = select(name >= splat(query, a), load(table, a * vocab + b), value)
        store(query, b, value)


@njit(cache=True, nogil=True)
def _spread_to_table(i, vocab, dim, d_logit, names, key, d_table):
    """Hands the gradient of row i's logits to the row's line of the table; keys are unit vectors of their tokens."""
    name, zero = load(names, i), splat(key, 0)
    for b in range(vocab):
        of_token = zero
        for j in range(i + 1):
            of_token = of_token + load(d_logit, j) * load(key, j * dim + b)
        for a in range(vocab):
            here = select(name >= splat(key, a), of_token, zero)
            here = select(name > splat(key, a), zero, here)
            store(d_table, a * vocab + b, load(d_table, a * vocab + b) + here)


@njit(cache=True, nogil=True)
def _spread(i, dim, d_logit, query, key, d_query, d_key):
    c = 0
    while c < dim:
        if c + 4 <= dim:
            _spread4(i, dim, c, d_logit, query, key, d_query, d_key)
            c += 4
        else:
            _spread1(i, dim, c, d_logit, query, key, d_query, d_key)
            c += 1


# --- forgetting -------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _low(i, field, like):
    """(low_i, the least of its lanes); see the module. A value of +inf moves nothing."""
    zero, u = splat(like, 0), load(field, i)
    low, t = zero, i
    while t > 0 and not everywhere(low > zero):
        t -= 1
        low = larger(low, select(u >= load(field, t), splat(like, t), zero))
    return select(splat(field, math.inf) > u, low, splat(like, i)), t


@njit(cache=True, nogil=True)
def _pass_on(j, moved, run, smoothing, offset, slope, collected, d_field, d_level):
    """Key j, where it moves, passes on what it collected: to its level at once, to the field with the rest of its run.

    `run` is the sum of the run's keys before j; returns that sum for the next key. All without the penalty scale.
    """
    zero, waits, gathered, handed = splat(offset, 0), splat(offset, _WAITS), load(collected, j), load(d_field, j + 1)
    passed = select(moved, gathered, zero)
    store(collected, j, gathered - passed)
    share = select(zero > load(offset, j), passed, zero) if smoothing == 0 else load(slope, j) * passed
    store(d_level, j, load(d_level, j) - share)
    run = run + share
    ends = select(moved, handed, zero) >= waits
    store(d_field, j + 1, select(ends, run, handed))
    return select(ends, zero, run)


@njit(cache=True, nogil=True)
def _penalise(j, moved, u, level, scale, smoothing, offset, slope):
    """The penalty of key j, where it moves, at the minimum u: an offset to its logit, and when smoothed its slope."""
    zero = splat(offset, 0)
    excess = narrow(offset, load(level, j) - u)
    # An infinite penalty is a mask, whatever the scale.
    factor = splat(offset, max(scale, LEAST_SCALE))
    if smoothing == 0:
        # Penalties only grow: where a key does not move, u is no lower than its minimum.
        store(offset, j, smaller(zero - factor * larger(excess, zero), load(offset, j)))
    else:
        value, derivative = softplus(excess, smoothing)
        store(offset, j, select(moved, zero - factor * value, load(offset, j)))
        store(slope, j, select(moved, derivative, load(slope, j)))


@njit(cache=True, nogil=True)
def _move(i, first, low, field, level, scale, smoothing, offset, slope, collected, d_field, d_level):
    """Lowers the minimum of keys first .. i-1 to row i's field value, in the lanes where they are not before `low`."""
    zero, u = splat(offset, 0), load(field, i)
    run = zero
    for j in range(first, i - 1):
        moved = splat(offset, j) >= low
        run = _pass_on(j, moved, run, smoothing, offset, slope, collected, d_field, d_level)
        _penalise(j, moved, u, level, scale, smoothing, offset, slope)
    if i > 0:
        # The newest key is penalised for the first time: it has nothing to pass on, and a run that ends with it begins.
        moved = splat(offset, i - 1) >= low
        store(collected, i - 1, zero)
        store(d_field, i, select(moved, splat(offset, _WAITS), zero))
        _penalise(i - 1, moved, u, level, scale, smoothing, offset, slope)


@njit(cache=True, nogil=True)
def _fade(i, total, wall, offset):
    """FoX: the offsets of row i are sums of the log gates after each key; -inf before the row's last closed gate."""
    now, closed = load(total, i), load(wall, i)
    shut = splat(offset, -math.inf)
    for j in range(i + 1):
        open_way = splat(offset, j) >= closed
        store(offset, j, select(open_way, narrow(offset, now - load(total, j)), shut))


@njit(cache=True, nogil=True)
def _gate_sums(gate, first, total, wall):
    """Cumulative sums of the log gates, and the last closed gate (-inf, kept out of the sums) so far, by lanes."""
    for lane in range(LANES):
        row = min(first + lane, gate.shape[0] - 1)
        so_far, closed = 0.0, 0
        for i in range(gate.shape[1]):
            if gate[row, i] == -math.inf:
                closed = i
            else:
                so_far += gate[row, i]
            total[LANES * i + lane] = so_far
            wall[LANES * i + lane] = closed


# --- the step ---------------------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _with_bias(i, bias, offset, out):
    """out[j] = offset[j] + bias by distance; the last bias stands for all farther."""
    width = bias.size // LANES
    for j in range(i + 1):
        store(out, j, load(offset, j) + load(bias, min(i - j, width - 1)))


@njit(cache=True, nogil=True)
def _bias_gradient(i, d_logit, d_bias):
    width = d_bias.size // LANES
    for j in range(i + 1):
        n = min(i - j, width - 1)
        store(d_bias, n, load(d_bias, n) + load(d_logit, j))


@njit(cache=True, nogil=True)
def _loss_of_row(i, share, top, total, size, on_target, loss):
    """Adds row i to the loss of its sequences; returns the factors of weights and targets in the logits' gradient."""
    nothing, infinite, gone = splat(loss, 0), splat(loss, math.inf), splat(loss, _GONE)
    keys, target = wide(size), wide(on_target)
    n = select(keys > nothing, load(share, i), nothing)  # An empty target is not scored.
    full, keys = wide(total), larger(keys, splat(loss, 1))
    value = select(target > gone, log(full) + wide(top) - target / keys, infinite)
    store(loss, 0, load(loss, 0) + select(n > nothing, n * value, nothing))
    # With a key of the target masked, or all keys, the loss is infinite, and there is no gradient.
    n = select(target > gone, select(full > nothing, n, nothing), nothing)
    return select(n > nothing, n / full, nothing), n / keys


class _Work(NamedTuple):
    """What a block of sixteen sequences is computed in: arrays of lanes, made once and used for every block."""

    # By position the queries and keys and their gradients. By token: one query, keys that are unit vectors, the table's
    # gradient, the table.
    query: np.ndarray
    key: np.ndarray
    d_query: np.ndarray
    d_key: np.ndarray
    names: np.ndarray
    bias: np.ndarray
    d_bias: np.ndarray
    offset: np.ndarray
    with_bias: np.ndarray
    logit: np.ndarray
    dies: np.ndarray
    collected: np.ndarray
    wall: np.ndarray
    slope: np.ndarray
    d_field: np.ndarray
    d_level: np.ndarray
    # In float64: field or running total of gates, level, what each row counts in the loss, and the loss.
    field: np.ndarray
    level: np.ndarray
    share: np.ndarray
    loss: np.ndarray


@njit(cache=True, nogil=True)
def _aligned(size, like):
    """An empty array that begins with a cache line: a vector of sixteen float32 is one, and lies in one."""
    whole = np.empty(size + LANES, like.dtype)
    first = (-whole.ctypes.data % 64) // whole.itemsize
    return whole[first : first + size]


@njit(cache=True, nogil=True)
def _new_work(like, length, dim, width, vocab):
    size, wide_like = LANES * length, np.empty(0)
    queries, table = (size * dim, size * dim) if vocab == 0 else (LANES * dim, LANES * vocab * vocab)
    query, key = _aligned(queries, like), _aligned(size * dim, like)
    d_query, d_key = _aligned(table, like), _aligned(table, like)
    bias, d_bias = _aligned(LANES * width, like), _aligned(LANES * width, like)
    offset, with_bias, logit = _aligned(size, like), _aligned(size, like), _aligned(size, like)
    dies, collected, names = _aligned(size, like), _aligned(size, like), _aligned(size, like)
    wall, slope = _aligned(size, like), _aligned(size, like)
    d_field, d_level = _aligned(size, like), _aligned(size, like)
    field, level, share = _aligned(size, wide_like), _aligned(size, wide_like), _aligned(size, wide_like)
    loss = _aligned(LANES, wide_like)
    return _Work(
        query, key, d_query, d_key, names, bias, d_bias, offset, with_bias, logit, dies, collected,
        wall, slope, d_field, d_level, field, level, share, loss,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _spoil(values, loss):
    """A nan among its values is a nan loss of a sequence: comparisons with one are false, which would spare keys."""
    spoilt = splat(values, 0)
    for n in range(values.size // LANES):
        x = load(values, n)
        spoilt = select(x >= x, spoilt, splat(values, math.nan))
    store(loss, 0, load(loss, 0) + wide(spoilt))


@njit(cache=True, nogil=True)
def _begin(kind, first, bias, gate, field, level, death, queries, count, w):
    """Loads what a block's sequences have beside queries and keys, and clears what is added to."""
    _to_lanes(death, first, w.dies)
    _to_lanes(queries, first, w.share)
    for lane in range(LANES):
        w.loss[lane] = count[min(first + lane, count.size - 1)]
    counts = load(w.loss, 0)
    for i in range(w.share.size // LANES):
        store(w.share, i, load(w.share, i) / counts)
    w.offset[:], w.collected[:], w.d_query[:], w.loss[:] = 0, 0, 0, 0
    if w.bias.size > 0:
        _to_lanes(bias, first, w.bias)
        _spoil(w.bias, w.loss)
        w.d_bias[:] = 0
    if kind == FPA:
        _to_lanes(field, first, w.field)
        _to_lanes(level, first, w.level)
        _spoil(w.field, w.loss)
        _spoil(w.level, w.loss)
        w.slope[:], w.d_field[:], w.d_level[:] = 0, 0, 0
    elif kind == FOX:
        _gate_sums(gate, first, w.field, w.wall)


@njit(cache=True, nogil=True)
def _rows(kind, length, dim, vocab, penalty_scale, smoothing, work):
    """The pass over the rows; vocab is 0 where queries and keys are by position."""
    # Unpacked once: every look into the tuple counts references.
    query, key, d_query, d_key, names, bias, d_bias, offset, with_bias, logit, dies, collected = work[:12]
    wall, slope, d_field, d_level, field, level, share, loss = work[12:]
    start = with_bias if bias.size > 0 else offset
    for i in range(length):
        if kind == FPA:
            low, lowest = _low(i, field, slope)
            _move(i, lowest, low, field, level, penalty_scale, smoothing, offset, slope, collected, d_field, d_level)
        if everywhere(splat(loss, 0) >= load(share, i)):
            continue
        if kind == FOX:
            _fade(i, field, wall, offset)
        if bias.size > 0:
            _with_bias(i, bias, offset, with_bias)
        if vocab > 0:
            _query_of_token(i, vocab, dim, names, d_key, query)
        top = _logits(i, 0 if vocab > 0 else i * dim, dim, query, key, start, logit)
        total, size, on_target = _weigh(i, top, logit, dies)
        per_total, per_target = _loss_of_row(i, share, top, total, size, on_target, loss)
        _row_gradient(i, dies, narrow(logit, per_total), narrow(logit, per_target), logit, collected)
        if vocab > 0:
            _spread_to_table(i, vocab, dim, logit, names, key, d_query)
        else:
            _spread(i, dim, logit, query, key, d_query, d_key)
        if bias.size > 0:
            _bias_gradient(i, logit, d_bias)


@njit(cache=True, nogil=True)
def _finish(kind, first, length, gate, penalty_scale, smoothing, w, loss, d_bias, d_gate, d_field, d_level):
    """Hands the loss over, and the gradients of what forgets from what the keys have collected by the last row."""
    if kind == FPA:
        run, every = splat(w.offset, 0), splat(w.offset, 0) >= splat(w.offset, 0)
        for j in range(length - 1):
            run = _pass_on(j, every, run, smoothing, w.offset, w.slope, w.collected, w.d_field, w.d_level)
        _from_lanes(w.d_field, first, d_field, penalty_scale)
        _from_lanes(w.d_level, first, d_level, penalty_scale)
    elif kind == FOX:
        # A logit holds c_i - c_j, and a row's logit gradients add up to 0, so only the keys' side remains.
        for lane in range(min(LANES, d_gate.shape[0] - first)):
            later = 0.0
            for j in range(length - 1, -1, -1):
                later -= w.collected[LANES * j + lane]
                d_gate[first + lane, j] = 0.0 if gate[first + lane, j] == -math.inf else later
    if w.bias.size > 0:
        _from_lanes(w.d_bias, first, d_bias)
    for lane in range(min(LANES, loss.size - first)):
        n = first + lane
        loss[n] = math.nan if kind == FOX and any_nan(gate[n]) else w.loss[lane]


@njit(cache=True, nogil=True)
def _position_blocks(
    kind, start, stop, query, key, bias, gate, field, level, death, queries, count, scale, penalty_scale, smoothing,
    loss, d_query, d_key, d_bias, d_gate, d_field, d_level,
):  # fmt: skip
    """Blocks start .. stop-1 of sixteen sequences each; sequences are the first axis of every array.

    query, key: (sequences, length * dim); bias: (sequences, width), width 0 for none; death, queries: (sequences,
    length) and count (sequences,), the queries of the sequence's seed. gate (FoX), field and level (FPA): (sequences,
    length), else of size 0. Fills loss (sequences,) and the gradients.
    """
    length = death.shape[1]
    dim = query.shape[1] // length
    w = _new_work(query, length, dim, bias.shape[1], 0)
    for block in range(start, stop):
        first = block * LANES
        _begin(kind, first, bias, gate, field, level, death, queries, count, w)
        _to_lanes(query, first, w.query, scale)
        _to_lanes(key, first, w.key)
        _spoil(w.query, w.loss)
        _spoil(w.key, w.loss)
        w.d_key[:] = 0
        _rows(kind, length, dim, 0, penalty_scale, smoothing, w)
        _finish(kind, first, length, gate, penalty_scale, smoothing, w, loss, d_bias, d_gate, d_field, d_level)
        _from_lanes(w.d_query, first, d_query, scale)
        _from_lanes(w.d_key, first, d_key)


@njit(cache=True, nogil=True)
def _token_blocks(
    kind, start, stop, tokens, batch, table, dim, bias, gate, field, level, death, queries, count,
    penalty_scale, smoothing, loss, d_table, d_bias, d_gate, d_field, d_level,
):  # fmt: skip
    """The same for tables (seeds, V, V): a query is its token's row of the table, a key the unit vector of its token.

    `batch` sequences in a row share a table; d_table: (sequences, V * V); dim: V or more, coordinates beyond V are 0.
    """
    length, vocab = tokens.shape[1], table.shape[1]
    w = _new_work(table, length, dim, bias.shape[1], vocab)
    for block in range(start, stop):
        first = block * LANES
        _begin(kind, first, bias, gate, field, level, death, queries, count, w)
        _to_lanes(tokens, first, w.names)
        _unit_vectors(vocab, dim, w.names, w.key)
        _tables_to_lanes(table, first, batch, w.d_key)
        _rows(kind, length, dim, vocab, penalty_scale, smoothing, w)
        _finish(kind, first, length, gate, penalty_scale, smoothing, w, loss, d_bias, d_gate, d_field, d_level)
        _from_lanes(w.d_query, first, d_table)
        for lane in range(min(LANES, loss.size - first)):
            if any_nan(table[(first + lane) // batch].reshape(-1)):
                loss[first + lane] = math.nan


@njit(cache=True, nogil=True)
def _unit_vectors(vocab, dim, names, key):
    """key[j] is 1 at the token of position j and 0 elsewhere."""
    zero, one = splat(key, 0), splat(key, 1)
    for j in range(names.size // LANES):
        name = load(names, j)
        for b in range(dim):
            here = select(name >= splat(key, b), one, zero)
            store(key, j * dim + b, select(name > splat(key, b), zero, here))


@njit(cache=True, nogil=True)
def _tables_to_lanes(table, first, batch, out):
    """Each lane has the table of its sequence's seed."""
    for lane in range(LANES):
        own = table[min((first + lane) // batch, table.shape[0] - 1)].reshape(-1)
        for n in range(own.size):
            out[LANES * n + lane] = max(own[n], _MASKED)


def target_step(kind, query, key, bias, gate, field, level, death, queries, scale, penalty_scale, smoothing):
    """Mean target cross-entropy of each seed, and its gradients.

    query, key: (seeds, batch, length, dim), float32 or float64, in which all is computed but what is summed over
    positions; bias: (seeds, width) of the same dtype, width 0 for none. gate, or field and level: (seeds, batch,
    length), float32 or float64; of size 0 where the kind has none. death, queries: int64 (seeds, batch, length).
    Returns loss (seeds,) float64 and the gradients of query, key, bias, gate, field and level, in their shapes.
    """
    seeds, batch, length, dim = query.shape
    n, width = seeds * batch, bias.shape[1]
    loss, d_bias = np.empty((seeds, batch)), np.empty((seeds, batch, width), bias.dtype)
    d_query, d_key, d_gate, d_field, d_level = (np.empty_like(x) for x in (query, key, gate, field, level))
    flat = [
        query.reshape(n, length * dim),
        key.reshape(n, length * dim),
        np.repeat(bias, batch, axis=0),
        *(x.reshape(-1, length) for x in (gate, field, level, death, queries)),
        np.repeat(np.maximum(1, queries.sum((1, 2))), batch),
        float(scale),
        float(penalty_scale),
        float(smoothing),
        loss.reshape(n),
        d_query.reshape(n, length * dim),
        d_key.reshape(n, length * dim),
        d_bias.reshape(n, width),
        *(x.reshape(-1, length) for x in (d_gate, d_field, d_level)),
    ]
    blocks = -(-n // LANES)
    run_chunks(lambda start, stop: _position_blocks(kind, start, stop, *flat), blocks)
    return sum_over_batch(loss[..., None])[:, 0], d_query, d_key, sum_over_batch(d_bias), d_gate, d_field, d_level


def token_step(kind, tokens, table, bias, gate, field, level, death, queries, penalty_scale, smoothing):
    """The same for logits by token: tokens int64 (seeds, batch, length), table (seeds, V, V) by query and key token.

    Returns the loss and the gradients of table, bias, gate, field and level.
    """
    seeds, batch, length = tokens.shape
    n, width, vocab = seeds * batch, bias.shape[1], table.shape[1]
    # Four coordinates cost little more than one.
    dim = vocab if vocab < 3 else -(-vocab // 4) * 4
    loss, d_bias = np.empty((seeds, batch)), np.empty((seeds, batch, width), bias.dtype)
    d_table = np.empty((seeds, batch, vocab * vocab), table.dtype)
    d_gate, d_field, d_level = (np.empty_like(x) for x in (gate, field, level))
    flat = [
        tokens.reshape(n, length),
        batch,
        table,
        dim,
        np.repeat(bias, batch, axis=0),
        *(x.reshape(-1, length) for x in (gate, field, level, death, queries)),
        np.repeat(np.maximum(1, queries.sum((1, 2))), batch),
        float(penalty_scale),
        float(smoothing),
        loss.reshape(n),
        d_table.reshape(n, vocab * vocab),
        d_bias.reshape(n, width),
        *(x.reshape(-1, length) for x in (d_gate, d_field, d_level)),
    ]
    run_chunks(lambda start, stop: _token_blocks(kind, start, stop, *flat), -(-n // LANES))
    by_seed = sum_over_batch(d_table).reshape(table.shape)
    return sum_over_batch(loss[..., None])[:, 0], by_seed, sum_over_batch(d_bias), d_gate, d_field, d_level


@njit(cache=True, nogil=True)
def sum_over_batch(values):
    """(seeds, batch, n) -> (seeds, n), added up in the order of the batch whatever the number of seeds."""
    seeds, batch, n = values.shape
    out = np.zeros((seeds, n), values.dtype)
    for s in range(seeds):
        for b in range(batch):
            for c in range(n):
                out[s, c] += values[s, b, c]
    return out
