"""Attention with forgetting in tiles: what a compiled thread does for one head at a time, forward and backward.

Keys are taken in tiles of TILE, and for each tile the rows of queries go by in blocks of BLOCK. What forgetting takes
from a key's logits (`bias`) is a recurrence over the rows, M_j = min(M_j, u_i), that never leaves the first cache:
m_ij is non-decreasing in j, so the keys whose minimum a row moves are the last of the tile, and keys with one
minimum are neighbours (`Runs`). The softmax over the tiles is the online one (arXiv 1805.02867): every row keeps its
largest logit and its sum.

Differences of fields, levels and sums of log gates are taken in float64 and become the products' dtype only once
they are small: relative to the least forgotten key of the tile forward, to the row's log sum backward. FoX's c_i is the
same for all keys of a row, so a key's bias is -c_j alone, and the row's log sum is in the same measure.

The gradient of a key's bias is collected while its minimum stays, then handed to its level and to the position of
the minimum: reference.py's convention, against which all of this is tested. A head, or a fixed part of its rows,
is summed by one thread in one order.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lab.ops.kinds import FOX, FPA
from lab.ops.tile_product import ROWS, add_product, largest
from lab.ops.vector_math import exp

# Keys of a tile and rows of a block: all that a block touches fits a 48 KiB cache up to head dimension 64.
TILE, BLOCK = 64, 32
# Numbers in a row of queries, of outputs, of packed keys and values come in multiples of this.
PAD = 16

# numba counts the uses of every array at every call, in atomic operations that cost more than the arithmetic of a row.
# Only functions that make arrays need it: `_owner` and `_kernel`.
_UNCOUNTED: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}
# Sums in loops may be reordered, which is what vector registers need; the order is then fixed by the compiled code,
# as long as a loop that adds up writes nothing: else it looks at addresses to choose between two orders.
# What a loop runs over is indexed from 0 (a view, or a row of a matrix): numba lets an index that might be negative
# count from the end, and that keeps a loop on scalars.
_loop: Any = njit(**_UNCOUNTED, fastmath={"reassoc", "contract"})
_plain: Any = njit(**_UNCOUNTED)
_owner: Any = njit(nogil=True, error_model="numpy")
_kernel: Any = njit(cache=True, nogil=True, error_model="numpy")


class Problem(NamedTuple):
    """What an attention is given, heads one after another.

    kind: SOFTMAX, FOX or FPA. parts: into how many parts the rows of each head are cut.
    query: (heads, rows, dim), padded with zeros: rows to a multiple of ROWS, dim to one of PAD.
    key, value: (heads, keys, ...), of the same dtype, unpadded. hidden: (heads, keys), or (heads, 0) for no mask.
    signal: FPA's field or FoX's log gates; level: FPA's; (heads, keys) float64, or (heads, 0) where the kind has none.
    penalty_scale: (heads,) float64. threshold: as in Head.
    """

    kind: int
    parts: int
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    hidden: np.ndarray
    signal: np.ndarray
    level: np.ndarray
    penalty_scale: np.ndarray
    scale: float
    smoothing: float
    threshold: float


class Gradients(NamedTuple):
    """Where gradients go: in the shapes of what Problem has under the same name, with an axis of parts, which are for
    the caller to sum, after that of heads; query has no such axis, and is padded."""

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    signal: np.ndarray
    level: np.ndarray
    penalty_scale: np.ndarray


class Runs(NamedTuple):
    """Neighbouring keys of a tile with one minimum: run r begins at key start[r] and has the minimum low[r], first
    taken at position at[r]. A key that nothing follows yet is a run of its own with minimum +inf, at -1."""

    size: np.ndarray
    start: np.ndarray
    low: np.ndarray
    at: np.ndarray


class Head(NamedTuple):
    """How one head forgets.

    rest: bias of each key that nothing has forgotten: 0, or -c_j for FoX; -inf where the key is masked.
    signal: what a row does to the keys before it: FPA's field, FoX's log gates. level: FPA.
    total, walls: FoX's sums c of the log gates that are not -inf, and the count of those that are.
    What a kind does not have is of size 0.
    threshold: a tile is skipped once all of its keys are forgotten by so much at all later rows; +inf for never.
    blind: the last position whose own key is masked, -1 where there is none.
    """

    kind: int
    rest: np.ndarray
    signal: np.ndarray
    level: np.ndarray
    total: np.ndarray
    walls: np.ndarray
    penalty_scale: float
    smoothing: float
    threshold: float
    blind: int


# --- what has been forgotten ----------------------------------------------------------------------------------------


@_owner
def _new_runs():
    return Runs(np.zeros(1, np.int64), np.empty(TILE, np.int64), np.empty(TILE), np.empty(TILE, np.int64))


@_plain
def _push(runs, start, low, at):
    r = runs.size[0]
    runs.start[r], runs.low[r], runs.at[r] = start, low, at
    runs.size[0] = r + 1


@_plain
def _falls(u, low):
    """Whether the value u moves a minimum; nan moves every number, and nothing moves nan."""
    return u < low or (u != u and low == low)


@_plain
def _fall(runs, u, i):
    """Field value u at position i joins the runs that it falls below. The first key moved, or -1."""
    r = runs.size[0]
    while r > 0 and _falls(u, runs.low[r - 1]):
        r -= 1
    if r == runs.size[0]:
        return -1
    start = runs.start[r]
    runs.size[0] = r
    _push(runs, start, u, i)
    return start


@_plain
def _runs_before(runs, row, first, last, field, nearest, nearest_at):
    """The runs of keys first .. last-1 just before position `row`, given the minimum over last .. row-1."""
    low, at = nearest, nearest_at
    r = TILE
    for j in range(min(last, row) - 1, first - 1, -1):
        if r == TILE or at != runs.at[r] or at == -1:
            r -= 1
        runs.start[r], runs.low[r], runs.at[r] = j - first, low, at
        # Going backwards, an equal value is an earlier one.
        if (field[j] <= low and field[j] < math.inf) or _falls(field[j], low):
            low, at = field[j], j
    for k in range(r, TILE):
        runs.start[k - r], runs.low[k - r], runs.at[k - r] = runs.start[k], runs.low[k], runs.at[k]
    runs.size[0] = TILE - r


@_loop
def _penalise(bias, rest, level, low, start, stop, penalty_scale):
    """bias of keys start .. stop-1, whose minimum is `low`. An infinite penalty is a mask, whatever lambda is."""
    bias, rest, level = bias[start:stop], rest[start:stop], level[start:stop]
    for c in range(bias.size):
        penalty = 0.0 if level[c] <= low else level[c] - low
        bias[c] = -math.inf if penalty == math.inf else rest[c] - penalty_scale * penalty


@_plain
def _excess(level, low):
    """level_j - m_ij; an infinite level does not stand above a minimum equal to it."""
    return -math.inf if level == low and abs(low) == math.inf else level - low


@_plain
def _softened(excess, smoothing):
    """(penalty, slope) of level_j - m_ij: smoothing * softplus(excess / smoothing)."""
    z = excess / smoothing
    e = math.exp(-abs(z))
    value = smoothing * (max(z, 0.0) + math.log1p(e))
    return value, (1.0 / (1.0 + e) if z >= 0.0 else e / (1.0 + e))


@_plain
def _penalise_smoothly(bias, rest, level, low, start, stop, penalty_scale, smoothing):
    for c in range(start, stop):
        excess = _excess(level[c], low)
        penalty = excess if excess == math.inf or excess != excess else _softened(excess, smoothing)[0]
        bias[c] = -math.inf if penalty == math.inf else rest[c] - penalty_scale * penalty


@_plain
def _forget(bias, rest, level, low, start, stop, penalty_scale, smoothing):
    if smoothing > 0.0:
        _penalise_smoothly(bias, rest, level, low, start, stop, penalty_scale, smoothing)
    else:
        _penalise(bias, rest, level, low, start, stop, penalty_scale)


@_plain
def _open_tile(head, bias, runs, first, last, row, nearest, nearest_at):
    """Brings the keys first .. last-1 to the state just before position `row`. `nearest`: as in `_runs_before`."""
    bias[:] = -math.inf
    rest = head.rest[first:last]
    seen = max(0, min(last, row) - first)
    if head.kind != FPA:
        # What is not a number in the sum at the last row, and is not in the sum at the key: 0 or nan.
        taint = head.total[row - 1] - head.total[row - 1] if head.kind == FOX and seen > 0 else 0.0
        for c in range(seen):
            walled = head.kind == FOX and head.walls[first + c] < head.walls[row - 1]
            bias[c] = -math.inf if walled or rest[c] == -math.inf else rest[c] + taint
        return
    level = head.level[first:last]
    _runs_before(runs, row, first, last, head.signal, nearest, nearest_at)
    for r in range(runs.size[0]):
        stop = runs.start[r + 1] if r + 1 < runs.size[0] else seen
        if runs.at[r] < 0:
            bias[runs.start[r]] = rest[runs.start[r]]
        else:
            _forget(bias, rest, level, runs.low[r], runs.start[r], stop, head.penalty_scale, head.smoothing)


@_plain
def _gate(bias, rest, log_gate, seen):
    """A log gate that is no number closes, or spoils, what is behind it; others are in the sums c."""
    if abs(log_gate) < math.inf:
        return False
    for c in range(seen):
        bias[c] = -math.inf if log_gate == -math.inf or rest[c] == -math.inf else math.nan
    return True


@_plain
def _forgotten(head, bias, last, row):
    """Whether the tile, whose keys end at `last`, can be left alone at position `row` and at all later ones."""
    if row < last:
        return False
    best = largest(bias, 0, TILE)
    below = best + head.total[row] if head.kind == FOX else best
    if best > -math.inf and (row <= head.blind or not below <= -head.threshold):
        return False
    strange = 0
    for c in range(TILE):
        strange += bias[c] != bias[c]
    return strange == 0


@_plain
def _sum_gates(gate, total, walls):
    """c and the count of closed gates at every position; whether no gate opens, so that bias never grows again."""
    falling = True
    so_far, closed = 0.0, 0
    for t in range(gate.size):
        if gate[t] == -math.inf:
            closed += 1
        else:
            so_far += gate[t] if gate[t] < math.inf else math.nan
        total[t], walls[t] = so_far, closed
        falling = falling and gate[t] <= 0.0
    return falling


@_owner
def _prepare(problem, n):
    """The Head of one item."""
    kind, hidden, signal, penalty_scale = problem.kind, problem.hidden[n], problem.signal[n], problem.penalty_scale[n]
    keys = problem.key.shape[1]
    sums = keys if kind == FOX else 0
    total, walls = np.empty(sums), np.empty(sums, np.int64)
    monotone = _sum_gates(signal, total, walls) if kind == FOX else penalty_scale >= 0.0
    rest, blind = np.empty(keys), -1
    for j in range(keys):
        # 0 unless lambda is not finite, which is no weight for any penalty.
        rest[j] = -total[j] if kind == FOX else -0.0 * penalty_scale
        if hidden.size > 0 and hidden[j]:
            rest[j], blind = -math.inf, j
    least = problem.threshold if monotone else math.inf
    return Head(kind, rest, signal, problem.level[n], total, walls, penalty_scale, problem.smoothing, least, blind)


@_plain
def _nearest_minima(kind, field, row, lows, ats):
    """For every tile that ends at or before `row`: the minimum over the positions after it and before `row`, and
    where it is first taken."""
    low, at = math.inf, -1
    j = row - 1
    for t in range(lows.size - 1, -1, -1):
        stop = (t + 1) * TILE
        while kind == FPA and j >= stop:
            if (field[j] <= low and field[j] < math.inf) or _falls(field[j], low):
                low, at = field[j], j
            j -= 1
        lows[t], ats[t] = low, at


@_plain
def _rows(part, parts, rows):
    """Rows of queries of a part: all but the last have as many, in multiples of ROWS."""
    size = (rows // ROWS + parts - 1) // parts * ROWS
    return min(rows, part * size), min(rows, (part + 1) * size)


# --- forward --------------------------------------------------------------------------------------------------------


@_loop
def _pack(source, first, last, rest, scale, tile):
    """Rows first .. last-1 of source times scale into a tile of PAD columns and more; masked keys are zeros."""
    tile[:] = 0
    for j in range(first, last):
        if rest[j] > -math.inf or rest[j] != rest[j]:
            for d in range(source.shape[1]):
                tile[j - first, d] = source[j, d] * scale


@_plain
def _transpose(tile, transposed):
    for c in range(tile.shape[0]):
        for d in range(tile.shape[1]):
            transposed[d, c] = tile[c, d]


@_loop
def _write_bias(score, r, bias, offset, columns):
    for c in range(columns):
        score[r, c] = bias[c] - offset


@_loop
def _copy_row(score, r, columns):
    for c in range(columns):
        score[r, c] = score[r - 1, c]


@_loop
def _clear(score, r, columns):
    for c in range(columns):
        score[r, c] = 0


@_plain
def _close(score, r, visible, columns):
    """What comes after the query is not seen, whatever it is."""
    for c in range(visible, columns):
        score[r, c] = -math.inf


@_loop
def _weigh(score, r, columns, base):
    """Logits less base become weights; their sum."""
    total = score.dtype.type(0)
    for c in range(columns):
        weight = exp(score[r, c] - base)
        score[r, c] = weight
        total += weight
    return total


@_plain
def _columns(row, rows, first):
    """Keys of the tile that a block of rows ending at position row + rows - 1 can see, in whole vectors."""
    return min(TILE, (row + rows - first + PAD - 1) // PAD * PAD)


@_plain
def _bias_block(head, bias, runs, first, last, row, rows, positions, columns, relative_to, score, offset):
    """Goes through a block of rows from position `row` and writes each row's bias, relative to relative_to[r] or
    (where that is empty) to the least forgotten key, which goes to offset[r]. Rows that see none of it are left."""
    kind, signal, penalty_scale, smoothing = head.kind, head.signal, head.penalty_scale, head.smoothing
    rest = head.rest[first:last]
    level = head.level[first:last] if kind == FPA else rest
    fresh = True
    for r in range(max(0, first - row), min(rows, positions - row)):
        i = row + r
        seen = min(last, i) - first
        if kind == FPA and seen > 0:
            start = _fall(runs, signal[i], i)
            if start >= 0:
                _forget(bias, rest, level, signal[i], start, seen, penalty_scale, smoothing)
                fresh = True
        elif kind == FOX and seen > 0:
            fresh |= _gate(bias, rest, signal[i], seen)
        if i < last:
            bias[i - first] = rest[i - first]
            if kind == FPA:
                _push(runs, i - first, math.inf, -1)
            fresh = True
        if relative_to.size > 0:
            _write_bias(score, r, bias, relative_to[r], columns)
        elif fresh:
            best = largest(bias, 0, columns)
            offset[r] = best if best > -math.inf else 0.0
            _write_bias(score, r, bias, offset[r], columns)
        else:
            offset[r] = offset[r - 1]
            _copy_row(score, r, columns)
        fresh = False


@_plain
def _soften_rows(score, first, row, rows, positions, columns, offset, top, sums, out):
    """Turns a block of logits into weights relative to the largest logit of each row so far (`top`), and brings what
    the row has summed (`sums`, `out`) down to it."""
    for r in range(rows):
        visible = row + r - first + 1
        if visible <= 0 or row + r >= positions:
            _clear(score, r, columns)
            continue
        _close(score, r, visible, columns)
        reached = largest(score, r * TILE, columns) + offset[r]
        if reached > top[r]:
            factor = math.exp(top[r] - reached)
            top[r] = reached
            sums[r] *= factor
            for d in range(out.shape[1]):
                out[r, d] *= out.dtype.type(factor)
        base = top[r] - offset[r] if top[r] > -math.inf else 0.0
        sums[r] += _weigh(score, r, columns, score.dtype.type(base))


@_loop
def _finish_rows(out, lse, top, sums):
    for r in range(lse.size):
        lse[r] = math.inf
        if sums[r] != 0.0:
            lse[r] = top[r] + math.log(sums[r])
            for d in range(out.shape[1]):
                out[r, d] *= out.dtype.type(1.0 / sums[r])


@_owner
def _forward_rows(head, query, key, value, scale, start, stop, out, lse):
    """Rows start .. stop-1 of one head; query and out are padded, lse is not and says how many rows there are."""
    keys, dim, value_dim = key.shape[0], query.shape[1], out.shape[1]
    first_row = keys - lse.size
    tiles = (keys + TILE - 1) // TILE
    lows, ats = np.empty(tiles), np.empty(tiles, np.int64)
    _nearest_minima(head.kind, head.signal, first_row + start, lows, ats)
    bias, runs, offset = np.empty(TILE), _new_runs(), np.empty(BLOCK)
    score = np.empty((BLOCK, TILE), query.dtype)
    key_tile, key_columns = np.empty((TILE, dim), query.dtype), np.empty((dim, TILE), query.dtype)
    value_tile = np.empty((TILE, value_dim), query.dtype)
    top, sums, none = np.full(stop - start, -math.inf), np.zeros(stop - start), np.empty(0)
    out[start:stop] = 0
    for t in range(tiles):
        first, last = t * TILE, min(keys, (t + 1) * TILE)
        begin = max(start, (first - first_row) // ROWS * ROWS)
        if begin >= stop:
            break
        _open_tile(head, bias, runs, first, last, first_row + begin, lows[t], ats[t])
        _pack(key, first, last, head.rest, scale, key_tile)
        _pack(value, first, last, head.rest, value.dtype.type(1), value_tile)
        _transpose(key_tile, key_columns)
        for block in range(begin, stop, BLOCK):
            row, rows = first_row + block, min(BLOCK, stop - block)
            if _forgotten(head, bias, last, row):
                break
            columns = _columns(row, rows, first)
            mine = slice(block - start, block - start + rows)
            _bias_block(head, bias, runs, first, last, row, rows, keys, columns, none, score, offset)
            add_product(score, 0, TILE, query, block * dim, dim, 1, key_columns, 0, TILE, rows, columns, dim)
            _soften_rows(
                score, first, row, rows, keys, columns, offset, top[mine], sums[mine], out[block : block + rows]
            )
            add_product(
                out, block * value_dim, value_dim, score, 0, TILE, 1, value_tile, 0, value_dim, rows, value_dim, columns
            )
    real = min(stop, lse.size)
    _finish_rows(out[start:real], lse[start:real], top, sums)


@_kernel
def forward(first_item, last_item, problem, out, lse):
    """Output and log sums of items first_item .. last_item-1, where item = head * parts + part, last part first.

    out: (heads, rows, value_dim), padded like the query. lse: (heads, queries) float64, +inf where no key is seen.
    Both are written whole.
    """
    for item in range(first_item, last_item):
        n, part = item // problem.parts, problem.parts - 1 - item % problem.parts
        start, stop = _rows(part, problem.parts, problem.query.shape[1])
        if start < stop:
            head = _prepare(problem, n)
            _forward_rows(
                head, problem.query[n], problem.key[n], problem.value[n], problem.query.dtype.type(problem.scale),
                start, stop, out[n], lse[n],
            )  # fmt: skip


# --- backward -------------------------------------------------------------------------------------------------------


@_loop
def _row_products(x, y, products):
    for r in range(products.size):
        total = 0.0
        for d in range(y.shape[1]):
            total += x[r, d] * y[r, d]
        products[r] = total


@_loop
def _grade(score, slope, r, columns, delta, collected):
    """Logits less the row's log sum become weights, and `slope` (the gradient of each weight) that of each logit,
    which is added to what the keys have collected."""
    for c in range(columns):
        weight = exp(score[r, c])
        graded = weight * (slope[r, c] - delta)
        score[r, c] = weight
        slope[r, c] = graded
        collected[c] += graded


@_loop
def _hand_over(collected, level, d_level, low, start, stop, penalty_scale):
    """Gives keys start .. stop-1, whose minimum is `low`, the gradient of their level for what they have collected.
    Returns what the position of the minimum gets, and lambda."""
    collected, level, d_level = collected[start:stop], level[start:stop], d_level[start:stop]
    to_signal, to_scale = 0.0, 0.0
    for c in range(collected.size):
        penalty = 0.0 if level[c] <= low or level[c] - low == math.inf else level[c] - low
        to_signal += 0.0 if level[c] <= low else penalty_scale * collected[c]
        to_scale -= penalty * collected[c]
    for c in range(collected.size):
        d_level[c] -= 0.0 if level[c] <= low else penalty_scale * collected[c]
        collected[c] = 0.0
    return to_signal, to_scale


@_plain
def _hand_over_smoothly(collected, level, d_level, low, start, stop, penalty_scale, smoothing):
    to_signal, to_scale = 0.0, 0.0
    for c in range(start, stop):
        excess = _excess(level[c], low)
        if abs(excess) < math.inf or excess != excess:
            penalty, slope = _softened(excess, smoothing)
            to_signal += penalty_scale * slope * collected[c]
            to_scale -= penalty * collected[c]
            d_level[c] -= penalty_scale * slope * collected[c]
        collected[c] = 0.0
    return to_signal, to_scale


@_plain
def _pay(runs, u, stop, collected, level, d_level, d_signal, penalty_scale, smoothing):
    """Every run that field value u will move hands over what it has collected; `stop` ends the last run. To lambda."""
    to_lambda = 0.0
    for r in range(runs.size[0] - 1, -1, -1):
        low, start = runs.low[r], runs.start[r]
        if not _falls(u, low):
            break
        if runs.at[r] < 0:
            collected[start:stop] = 0.0
        else:
            if smoothing > 0.0:
                to_signal, to_scale = _hand_over_smoothly(
                    collected, level, d_level, low, start, stop, penalty_scale, smoothing
                )
            else:
                to_signal, to_scale = _hand_over(collected, level, d_level, low, start, stop, penalty_scale)
            d_signal[runs.at[r]] += to_signal
            to_lambda += to_scale
        stop = start
    return to_lambda


@_plain
def _grade_rows(
    head, runs, first, last, row, rows, positions, columns, score, slope, delta, collected, d_level, d_signal
):
    """Weights and gradients of a block of logits, row by row; what has been collected is handed over before a row
    moves the minimum that it belongs to. Returns the gradient of lambda."""
    kind, signal, penalty_scale, smoothing = head.kind, head.signal, head.penalty_scale, head.smoothing
    level = head.level[first:last] if kind == FPA else d_level
    to_lambda = 0.0
    for r in range(rows):
        i = row + r
        if not first <= i < positions:
            _clear(score, r, columns)
            _clear(slope, r, columns)
            continue
        if kind == FPA:
            seen = min(last, i) - first
            to_lambda += _pay(runs, signal[i], seen, collected, level, d_level, d_signal, penalty_scale, smoothing)
            _fall(runs, signal[i], i)
            if i < last:
                _push(runs, i - first, math.inf, -1)
        _close(score, r, i - first + 1, columns)
        _grade(score, slope, r, columns, delta[r], collected)
    return to_lambda


@_loop
def _unpack(tile, first, last, scale, result):
    for j in range(first, last):
        for d in range(result.shape[1]):
            result[j, d] = tile[j - first, d] * scale


@_plain
def _gates_gradient(gate, d_sums):
    """From the gradient of c to that of the log gates, in place: the sum from each position on."""
    so_far = 0.0
    for t in range(gate.size - 1, -1, -1):
        so_far += d_sums[t]
        d_sums[t] = 0.0 if gate[t] == -math.inf else so_far


@_owner
def _backward_rows(
    head, query, key, value, scale, start, stop, out, lse, grad, d_query, d_key, d_value, d_signal, d_level
):
    """What `_forward_rows` did, backward; d_query is padded like query, d_key and d_value are not."""
    keys, dim, value_dim = key.shape[0], query.shape[1], grad.shape[1]
    first_row, real = keys - lse.size, min(stop, lse.size)
    tiles = (keys + TILE - 1) // TILE
    lows, ats = np.empty(tiles), np.empty(tiles, np.int64)
    _nearest_minima(head.kind, head.signal, first_row + start, lows, ats)
    bias, runs, paid = np.empty(TILE), _new_runs(), _new_runs()
    score, slope = np.empty((BLOCK, TILE), query.dtype), np.empty((BLOCK, TILE), query.dtype)
    key_tile, key_columns = np.empty((TILE, dim), query.dtype), np.empty((dim, TILE), query.dtype)
    value_tile, value_columns = np.empty((TILE, value_dim), query.dtype), np.empty((value_dim, TILE), query.dtype)
    d_key_tile, d_value_tile = np.empty((TILE, dim), query.dtype), np.empty((TILE, value_dim), query.dtype)
    collected, unused = np.empty(TILE, query.dtype), np.empty(0)
    delta = np.empty(stop - start, query.dtype)
    _row_products(grad[start:real], out[start:real], delta[: real - start])
    to_lambda, one = 0.0, query.dtype.type(1)
    for t in range(tiles):
        first, last = t * TILE, min(keys, (t + 1) * TILE)
        begin = max(start, (first - first_row) // ROWS * ROWS)
        if begin >= stop:
            break
        _open_tile(head, bias, runs, first, last, first_row + begin, lows[t], ats[t])
        if head.kind == FPA:
            _runs_before(paid, first_row + begin, first, last, head.signal, lows[t], ats[t])
        _pack(key, first, last, head.rest, scale, key_tile)
        _pack(value, first, last, head.rest, one, value_tile)
        _transpose(key_tile, key_columns)
        _transpose(value_tile, value_columns)
        d_key_tile[:] = 0
        d_value_tile[:] = 0
        collected[:] = 0.0
        d_level_tile = d_level[first:last]
        for block in range(begin, stop, BLOCK):
            row, rows = first_row + block, min(BLOCK, stop - block)
            if _forgotten(head, bias, last, row):
                break
            columns = _columns(row, rows, first)
            mine = slice(block - start, block - start + rows)
            _bias_block(
                head, bias, runs, first, last, row, rows, keys, columns, lse[block : block + rows], score, unused
            )
            add_product(score, 0, TILE, query, block * dim, dim, 1, key_columns, 0, TILE, rows, columns, dim)
            slope[:] = 0
            add_product(
                slope, 0, TILE, grad, block * value_dim, value_dim, 1, value_columns, 0, TILE, rows, columns, value_dim
            )
            to_lambda += _grade_rows(
                head, paid, first, last, row, rows, keys, columns, score, slope, delta[mine], collected,
                d_level_tile, d_signal,
            )  # fmt: skip
            # The three products that the gradients are sums of; the transposed factors are read down their columns.
            add_product(d_query, block * dim, dim, slope, 0, TILE, 1, key_tile, 0, dim, rows, dim, columns)
            add_product(d_key_tile, 0, dim, slope, 0, 1, TILE, query, block * dim, dim, columns, dim, rows)
            add_product(
                d_value_tile, 0, value_dim, score, 0, 1, TILE, grad, block * value_dim, value_dim,
                columns, value_dim, rows,
            )  # fmt: skip
        if head.kind == FPA:
            to_lambda += _pay(
                paid, math.nan, last - first, collected, head.level[first:last], d_level_tile, d_signal,
                head.penalty_scale, head.smoothing,
            )  # fmt: skip
        elif head.kind == FOX:
            for c in range(last - first):
                d_signal[first + c] -= collected[c]
        _unpack(d_key_tile, first, last, scale, d_key)
        _unpack(d_value_tile, first, last, one, d_value)
    if head.kind == FOX:
        _gates_gradient(head.signal, d_signal)
    return to_lambda


@_kernel
def backward(first_item, last_item, problem, out, lse, grad, gradients):
    """Gradients of items first_item .. last_item-1, given the gradient `grad` of the output.

    Items are those of `forward`; out is unpadded, grad is padded like the query. The gradients are written whole.
    """
    for item in range(first_item, last_item):
        n, part = item // problem.parts, problem.parts - 1 - item % problem.parts
        start, stop = _rows(part, problem.parts, problem.query.shape[1])
        gradients.query[n, start:stop] = 0
        gradients.key[n, part], gradients.value[n, part] = 0, 0
        gradients.signal[n, part], gradients.level[n, part] = 0, 0
        gradients.penalty_scale[n, part] = 0
        if start < stop:
            head = _prepare(problem, n)
            gradients.penalty_scale[n, part] = _backward_rows(
                head, problem.query[n], problem.key[n], problem.value[n], problem.query.dtype.type(problem.scale),
                start, stop, out[n], lse[n], grad[n],
                gradients.query[n], gradients.key[n, part], gradients.value[n, part],
                gradients.signal[n, part], gradients.level[n, part],
            )  # fmt: skip
