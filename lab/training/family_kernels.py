"""Compiled training of one head on a whole family of targets: every target in every step, one query row each.

Only the last row of a sequence is scored and only its keys compete, so the logits of a step are a (keys, targets)
array. The targets run along the last axis everywhere: loops over them are vector instructions. All in float32.

    logit of key j at target S    s q_S.k_j + b_j + F_j(S)
    softmax                       F = 0
    FoX                           F_j(S) = sum of the log gates of the tokens after key j
    FPA                           F_j(S) = -lambda max(0, o_j - R_j(S)),  R_j = min over t after key j of u_t - u_j

With tied levels o = 0. For a walk R needs one pass backwards over the keys: with x_j the increment at the dip after key
j and w_j that at key j, R_j = x_j + min(0, w_(j+1) + min(0, R_(j+1))), and R_n = x_n + min(0, increment at the query).
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from lab.ops.kinds import FOX, FPA
from lab.ops.vector_math import exp

UNIFORM, WINDOW, SEPARATION = 0, 1, 2

# Sums over targets may be reordered into vector lanes; infinities and nan keep their meaning. A loop that adds up
# writes nothing: where it does, the compiled code looks at addresses to choose between two orders.
_FAST: Any = {"cache": True, "nogil": True, "fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy"}
_BETA1, _BETA2, _EPSILON = np.float32(0.9), np.float32(0.999), np.float32(1e-8)
_ONE, _ZERO = np.float32(1.0), np.float32(0.0)
_TWO = np.float32(2.0)
# Of artanh(z) / z in z^2, the highest power first; what is left out is below 1e-8.
_ARTANH = tuple(np.float32(1 / k) for k in (15, 13, 11, 9, 7, 5, 3, 1))
_FAR, _TINY, _SMALL = np.float32(1e30), np.float32(1e-30), np.float32(1e-17)


class Numbers(NamedTuple):
    """What one head trains, float32. Without a bias or offsets these are zeros that get no gradient.

    query (dim, targets), or (dim, 1) where it is fixed; key (keys, dim); bias (keys,); drop, keep (slots,), own (keys,)
    and last (1,): log gates of FoX or increments of a walk, by token; offset (keys,).
    """

    query: np.ndarray
    key: np.ndarray
    bias: np.ndarray
    drop: np.ndarray
    keep: np.ndarray
    own: np.ndarray
    last: np.ndarray
    offset: np.ndarray


@njit(**_FAST)
def _content(numbers, scale, logits):
    """logits = s q.k + b, both of a key the same for all targets where the query is fixed."""
    query, key = numbers.query, numbers.key
    for j in range(key.shape[0]):
        row = logits[j]
        row[:] = numbers.bias[j]
        for i in range(key.shape[1]):
            factor = scale * key[j, i]
            if query.shape[1] == 1:
                row += factor * query[i, 0]
            else:
                for s in range(len(row)):
                    row[s] += factor * query[i, s]


@njit(**_FAST)
def _content_gradient(numbers, scale, pull, gradient):
    query, key = numbers.query, numbers.key
    gradient.query[:] = _ZERO
    for j in range(key.shape[0]):
        row = pull[j]
        total = _ZERO
        for s in range(len(row)):
            total += row[s]
        gradient.bias[j] = total
        for i in range(key.shape[1]):
            factor = scale * key[j, i]
            if query.shape[1] == 1:
                gradient.query[i, 0] += factor * total
                gradient.key[j, i] = scale * query[i, 0] * total
                continue
            product = _ZERO
            for s in range(len(row)):
                gradient.query[i, s] += factor * row[s]
            for s in range(len(row)):
                product += query[i, s] * row[s]
            gradient.key[j, i] = scale * product


@njit(**_FAST)
def _fox(numbers, dropped, logits, running):
    """Adds the log gates after each key: from the last key backwards, `running` holds their sum for every target."""
    n, shared = len(logits), len(numbers.drop) == 1
    running[:] = _ZERO
    base = numbers.last[0]
    for j in range(n - 1, -1, -1):
        slot = 0 if shared else j
        base += numbers.keep[slot]
        step = numbers.drop[slot] - numbers.keep[slot]
        for s in range(len(running)):
            running[s] += step * dropped[j, s]
            logits[j, s] += running[s] + base
        base += numbers.own[j]


@njit(**_FAST)
def _fox_gradient(numbers, dropped, pull, gradient, running):
    n, shared = len(pull), len(numbers.drop) == 1
    for part in (gradient.drop, gradient.keep, gradient.own):
        part[:] = _ZERO
    running[:] = _ZERO
    total = _ZERO
    for j in range(n):
        slot = 0 if shared else j
        gradient.own[j] = total  # the gate of a key counts against the keys before it
        at_drop, total = _ZERO, _ZERO
        for s in range(len(running)):
            running[s] += pull[j, s]
        for s in range(len(running)):
            at_drop += running[s] * dropped[j, s]
            total += running[s]
        gradient.drop[slot] += at_drop
        gradient.keep[slot] += total - at_drop
    gradient.last[0] = total


@njit(**_FAST)
def _fpa(numbers, dropped, penalty_scale, smoothing, logits, depth, after):
    """Subtracts the penalties; depth[j] = R_j for every target. smoothing as in `lab.ops.reference.penalty`."""
    n, shared = len(logits), len(numbers.drop) == 1
    after[:] = min(_ZERO, numbers.last[0])
    for j in range(n - 1, -1, -1):
        slot = 0 if shared else j
        keep, step = numbers.keep[slot], numbers.drop[slot] - numbers.keep[slot]
        own, offset = numbers.own[j], numbers.offset[j]
        for s in range(len(after)):
            depth[j, s] = keep + step * dropped[j, s] + after[s]
            after[s] = min(_ZERO, own + min(_ZERO, depth[j, s]))
        if smoothing > _ZERO:
            for s in range(len(after)):
                logits[j, s] -= penalty_scale * _softplus(offset - depth[j, s], smoothing)
        else:
            for s in range(len(after)):
                logits[j, s] -= penalty_scale * max(_ZERO, offset - depth[j, s])


@njit(**_FAST)
def _softplus(x, smoothing):
    """smoothing * log(1 + exp(x / smoothing)), without a call: log(1 + e) = 2 artanh(z), z = e / (2 + e) <= 1/3."""
    scaled = x / smoothing
    e = exp(-abs(scaled))
    z = e / (_TWO + e)
    square = z * z
    series = _ARTANH[0]
    for coefficient in _ARTANH[1:]:
        series = series * square + coefficient
    return max(x, _ZERO) + smoothing * _TWO * z * series


@njit(**_FAST)
def _fpa_gradient(numbers, dropped, penalty_scale, smoothing, pull, depth, gradient, carried):
    """carried: gradient at R_j from the keys before j. At a tie the earlier position has the minimum.

    The depth of a key is overwritten by the gradient at its penalty's excess, once nobody needs it any more.
    """
    n, shared = len(pull), len(numbers.drop) == 1
    for part in (gradient.drop, gradient.keep, gradient.own):
        part[:] = _ZERO
    carried[:] = _ZERO
    for j in range(n):
        slot = 0 if shared else j
        offset, at_offset, at_drop, total, at_next = numbers.offset[j], _ZERO, _ZERO, _ZERO, _ZERO
        for s in range(len(carried)):
            excess = offset - depth[j, s]
            if smoothing > _ZERO:
                slope = _ONE / (_ONE + exp(-excess / smoothing))
            else:
                slope = _ONE if excess > _ZERO else _ZERO
            depth[j, s] = penalty_scale * slope * pull[j, s]
            carried[s] += depth[j, s]
        for s in range(len(carried)):
            at_offset -= depth[j, s]
            total += carried[s]
            at_drop += carried[s] * dropped[j, s]
        gradient.offset[j] = at_offset
        gradient.drop[slot] += at_drop
        gradient.keep[slot] += total - at_drop
        if j == n - 1:
            gradient.last[0] = total if numbers.last[0] < _ZERO else _ZERO
            break
        own = numbers.own[j + 1]
        for s in range(len(carried)):
            at_next += carried[s] if own + min(_ZERO, depth[j + 1, s]) < _ZERO else _ZERO
        for s in range(len(carried)):
            deeper = min(_ZERO, depth[j + 1, s])
            carried[s] = carried[s] if deeper < _ZERO and own + deeper < _ZERO else _ZERO
        gradient.own[j + 1] = at_next


@njit(**_FAST)
def _normal(x):
    """x >= 0, or 0 if it is so small that products of it leave float32's normal range: they take a hundred times as
    long, and nothing here depends on them."""
    return x if x > _SMALL else _ZERO


@njit(**_FAST)
def _pull_uniform(logits, dropped, sizes, work):
    """Cross-entropy from the uniform distribution on the target: its gradient, in place of the logits."""
    top, total = work[0], work[1]
    top[:] = logits[0]
    for j in range(1, len(logits)):
        for s in range(logits.shape[1]):
            top[s] = max(top[s], logits[j, s])
    total[:] = _ZERO
    for j in range(len(logits)):
        for s in range(logits.shape[1]):
            logits[j, s] = exp(logits[j, s] - top[s])
            total[s] += logits[j, s]
    for j in range(len(logits)):
        for s in range(logits.shape[1]):
            logits[j, s] = logits[j, s] / total[s] - (_ONE - dropped[j, s]) / sizes[s]


@njit(**_FAST)
def _pull_order(logits, dropped, margin, width, work, shares, highs):
    """softplus(margin - gap) + softplus(window - width), both smooth: the gradient, in place of the logits.

    gap = -log(sum over dead exp(L)) - log(sum over alive exp(-L)); window = log(sum over alive exp(L)) + log(sum over
    alive exp(-L)). A negative width leaves the second term out. softplus(z) has slope 1 / (1 + exp(-z)).
    """
    # Row by row: unpacking an array gives views that the compiler takes for strided.
    top_dead, dead, top_low, low = work[0], work[1], work[2], work[3]
    top_high, high, at_gap, at_window = work[4], work[5], work[6], work[7]
    n, targets = logits.shape
    windows = width >= _ZERO
    # One array is written per loop: a compiler that has to tell many apart leaves the vector instructions out.
    top_dead[:], top_low[:], dead[:], low[:], at_window[:] = -_FAR, -_FAR, _ZERO, _ZERO, _ZERO
    for j in range(n):
        for s in range(targets):
            value, gone = logits[j, s], dropped[j, s]
            top_dead[s] = max(top_dead[s], value if gone > _ZERO else -_FAR)
        for s in range(targets):
            value, gone = logits[j, s], dropped[j, s]
            top_low[s] = max(top_low[s], -_FAR if gone > _ZERO else -value)
    for j in range(n):
        # Of dead keys with plus, of alive keys with minus the logit: never above 0.
        for s in range(targets):
            value, gone = logits[j, s], dropped[j, s]
            above, below = value - top_dead[s], -value - top_low[s]
            shares[j, s] = _normal(exp(above if gone > _ZERO else below))
        for s in range(targets):
            dead[s] += dropped[j, s] * shares[j, s]
        for s in range(targets):
            low[s] += (_ONE - dropped[j, s]) * shares[j, s]
    if windows:
        _high_shares(logits, dropped, top_high, high, highs)
        for s in range(targets):
            ratio = exp(width - top_high[s] - top_low[s]) / (high[s] * low[s])
            at_window[s] = _normal(_ONE / (_ONE + ratio))
        for s in range(targets):
            high[s] = at_window[s] / high[s]
    for s in range(targets):
        # The full target has no gap: its top_dead is far below, and the slope exactly 0.
        ratio = exp(-(margin + top_dead[s] + top_low[s])) / (dead[s] * low[s])
        at_gap[s] = _normal(_ONE / (_ONE + ratio))
    for s in range(targets):
        dead[s] = at_gap[s] / max(dead[s], _TINY)
    for s in range(targets):
        low[s] = (at_gap[s] + at_window[s]) / low[s]
    for j in range(n):
        for s in range(targets):
            gone = dropped[j, s]
            pull = shares[j, s] * (gone * dead[s] - (_ONE - gone) * low[s])
            logits[j, s] = pull + highs[j, s] * high[s] if windows else pull


@njit(**_FAST)
def _high_shares(logits, dropped, top_high, high, highs):
    """highs = exp(L - top_high) of alive keys, 0 of others; high: their sum over keys."""
    top_high[:], high[:] = -_FAR, _ZERO
    for j in range(len(logits)):
        for s in range(len(high)):
            value, gone = logits[j, s], dropped[j, s]
            top_high[s] = max(top_high[s], -_FAR if gone > _ZERO else value)
    for j in range(len(logits)):
        for s in range(len(high)):
            highs[j, s] = (_ONE - dropped[j, s]) * _normal(exp(min(_ZERO, logits[j, s] - top_high[s])))
        for s in range(len(high)):
            high[s] += highs[j, s]


@njit(**_FAST)
def _adam(value, gradient, mean, square, rate, root):
    """One step of Adam; rate and root carry the bias corrections."""
    flat, slope, first, second = value.ravel(), gradient.ravel(), mean.ravel(), square.ravel()
    for i in range(flat.size):
        pull = slope[i] if abs(slope[i]) > _SMALL else _ZERO
        moved, spread = _BETA1 * first[i] + (_ONE - _BETA1) * pull, _BETA2 * second[i] + (_ONE - _BETA2) * pull * pull
        first[i] = moved if abs(moved) > _SMALL else _ZERO
        second[i] = spread if spread > _SMALL * _SMALL else _ZERO
        flat[i] -= rate * first[i] / (math.sqrt(second[i]) * root + _EPSILON)


@njit(**_FAST)
def family_logits(kind, numbers, dropped, scale, penalty_scale, smoothing, logits, depth, running):
    """The logits of every key (first axis) at every target, into `logits`; `numbers` with the log gates of FoX."""
    _content(numbers, scale, logits)
    if kind == FOX:
        _fox(numbers, dropped, logits, running)
    elif kind == FPA:
        _fpa(numbers, dropped, penalty_scale, smoothing, logits, depth, running)


@njit(**_FAST)
def family_gradient(
    kind, notion, numbers, dropped, sizes, scale, penalty_scale, smoothing, sharpness, margin, width, gradient,
    logits, depth, shares, work,
):  # fmt: skip
    """Gradient of the loss, summed over targets, with respect to `numbers`; the arrays after it are scratch."""
    family_logits(kind, numbers, dropped, scale, penalty_scale, smoothing, logits, depth, work[0])
    if notion == UNIFORM:
        _pull_uniform(logits, dropped, sizes, work)
    elif notion == WINDOW:
        logits *= sharpness
        _pull_order(logits, dropped, sharpness * margin, sharpness * width, work, shares[0], shares[1])
    else:
        _pull_order(logits, dropped, _ZERO, -_ONE, work, shares[0], shares[1])
    _content_gradient(numbers, scale, logits, gradient)
    if kind == FOX:
        _fox_gradient(numbers, dropped, logits, gradient, work[0])
    elif kind == FPA:
        _fpa_gradient(numbers, dropped, penalty_scale, smoothing, logits, depth, gradient, work[0])


@njit(**_FAST)
def log_gates(raw, used):
    """used = log sigmoid(raw), gate by gate."""
    for value, gate in ((raw.drop, used.drop), (raw.keep, used.keep), (raw.own, used.own), (raw.last, used.last)):
        for i in range(len(value)):
            gate[i] = -_softplus(-value[i], _ONE)


@njit(**_FAST)
def _through_gates(raw, gradient):
    """From the gradient at the log gates to that at what is under the sigmoid."""
    for value, slope in (
        (raw.drop, gradient.drop),
        (raw.keep, gradient.keep),
        (raw.own, gradient.own),
        (raw.last, gradient.last),
    ):
        for i in range(len(value)):
            slope[i] *= _ONE / (_ONE + exp(value[i]))


@njit(**_FAST)
def train_steps(
    kind, notion, numbers, used, gradient, mean, square, biased, offsets, dropped, scale, penalty_scale, margin, width,
    sharpest, first, last, steps, rate, smoothing, until,
):  # fmt: skip
    """Steps first .. last-1 of `steps` of Adam, with cosine decay of the rate and linear decay of the smoothing.

    For windows the logits count `sharpness` times, rising from 1 to `sharpest`: gap and window are smooth at first and
    their worst keys in the end.

    numbers: as the head holds them (gates of FoX under their sigmoid). used: the same arrays but for FoX's gates, which
    are worked out into it. gradient, mean, square: shaped as numbers. biased, offsets: whether the head has these.
    dropped float32 (keys, targets): 1 where the target lacks the key.
    """
    n, targets = dropped.shape
    sizes = np.zeros(targets, np.float32)
    for j in range(n):
        sizes += _ONE - dropped[j]
    logits, depth = np.empty((n, targets), np.float32), np.empty((n, targets), np.float32)
    shares, work = np.empty((2, n, targets), np.float32), np.empty((8, targets), np.float32)
    for step in range(first, last):
        tau = np.float32(smoothing * max(0.0, 1.0 - step / (until * steps))) if until > 0.0 else _ZERO
        sharpness = np.float32(1.0 + (sharpest - 1.0) * step / steps)
        if kind == FOX:
            log_gates(numbers, used)
        family_gradient(
            kind, notion, used, dropped, sizes, scale, penalty_scale, tau, sharpness, margin, width, gradient,
            logits, depth, shares, work,
        )  # fmt: skip
        if kind == FOX:
            _through_gates(numbers, gradient)
        if not biased:
            gradient.bias[:] = _ZERO
        if not offsets:
            gradient.offset[:] = _ZERO
        now = rate * 0.5 * (1.0 + math.cos(math.pi * step / steps)) / (1.0 - 0.9 ** (step + 1))
        root = 1.0 / math.sqrt(1.0 - 0.999 ** (step + 1))
        _adam_all(numbers, gradient, mean, square, np.float32(now), np.float32(root))


@njit(**_FAST)
def _adam_all(numbers, gradient, mean, square, rate, root):
    _adam(numbers.query, gradient.query, mean.query, square.query, rate, root)
    _adam(numbers.key, gradient.key, mean.key, square.key, rate, root)
    _adam(numbers.bias, gradient.bias, mean.bias, square.bias, rate, root)
    _adam(numbers.drop, gradient.drop, mean.drop, square.drop, rate, root)
    _adam(numbers.keep, gradient.keep, mean.keep, square.keep, rate, root)
    _adam(numbers.own, gradient.own, mean.own, square.own, rate, root)
    _adam(numbers.last, gradient.last, mean.last, square.last, rate, root)
    _adam(numbers.offset, gradient.offset, mean.offset, square.offset, rate, root)
