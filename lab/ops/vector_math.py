"""exp for numba loops, float32 and float64, in operations that LLVM turns into vector instructions.

numba calls the C library's exp once per number (about 5 ns), and a loop with a call in it runs on scalars. Here

    exp(x) = 2^n p(r),   n = round(x / log 2),   r = x - n log 2

with p the power series on |r| <= log(2)/2, and 2^n written into the exponent bits.
Less than a nanosecond per float32 where the loop around it vectorises.

From `LOW` down (-87 in float32, -708 in float64) exp is exactly 0, -inf included: results are never subnormal, which
would cost a hundred times more than they matter. From 88 (709) up it is inf. nan stays nan. Elsewhere it is within one
unit in the last place of the exact value.
"""

import math
from typing import Any

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types
from numba.extending import overload

# Calls from compiled code look different from what the type checker sees in the decorated function.
_intrinsic: Any = extending.intrinsic

# The largest arguments that give 0, by dtype.
LOW = {np.dtype(np.float32): -87.0, np.dtype(np.float64): -708.0}

# log(2) minus the float64 nearest to it.
_LOG2_TAIL = 2.3190468138462996e-17


def _exp_constants(dtype: type, degree: int, low: float, high: float, mantissa: int, bias: int, split: float) -> tuple:
    """Everything `exp` multiplies and adds, in its dtype; see `_exp_of`."""
    # Adding this rounds a small number to a whole one, and leaves n + bias in the lowest bits of the mantissa.
    rounder = 1.5 * 2**mantissa + bias
    # n * log2_high is exact; what log(2) has beyond it, and beyond the float64 nearest to it, is log2_low.
    log2_high = round(math.log(2) / split) * split
    log2_low = (math.log(2) - log2_high) + _LOG2_TAIL
    numbers = (low, high, 1 / math.log(2), rounder, log2_high, log2_low, math.inf)
    return tuple(dtype(x) for x in (*numbers, *(1 / math.factorial(k) for k in range(2, degree + 1))))


_CONSTANTS32 = _exp_constants(np.float32, 7, -87.0, 88.0, 23, 127, 2.0**-12)
_CONSTANTS64 = _exp_constants(np.float64, 13, -708.0, 709.0, 52, 1023, 2.0**-32)


@_intrinsic
def _power_of_two(typing_context, rounded):
    """2^n from n + bias in the lowest bits of the mantissa: moves them to the exponent's place."""
    if not isinstance(rounded, types.Float):
        return None

    def generate(context, builder, signature, arguments):
        bits = ir.IntType(rounded.bitwidth)
        mantissa = 23 if rounded.bitwidth == 32 else 52
        moved = builder.shl(builder.bitcast(arguments[0], bits), bits(mantissa))
        return builder.bitcast(moved, context.get_value_type(rounded))

    return rounded(rounded), generate


@numba.njit(nogil=True, fastmath={"contract"}, error_model="numpy")
def exp(x):
    """exp of one float32 or float64, in its own dtype; for use inside numba loops. See the module for the bounds."""
    return _exp_of(x)


def _exp_of(x):
    """The body of `exp`, by dtype."""
    raise TypeError("compiled code only")


@overload(_exp_of, jit_options={"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"})
def _choose_exp(x):
    if x == types.float32:
        return _exp32
    return _exp64 if x == types.float64 else None


def _exp32(x):
    low, high, per_log2, rounder, log2_high, log2_low, inf, c2, c3, c4, c5, c6, c7 = _CONSTANTS32
    zero, one = np.float32(0.0), np.float32(1.0)
    # Written so that nan passes both comparisons.
    held = low if x < low else (high if x > high else x)
    rounded = held * per_log2 + rounder
    n = rounded - rounder
    r = (held - n * log2_high) - n * log2_low
    p = one + r * (one + r * (c2 + r * (c3 + r * (c4 + r * (c5 + r * (c6 + r * c7))))))
    value = p * _power_of_two(rounded)
    return zero if x <= low else (inf if x >= high else value)


def _exp64(x):
    low, high, per_log2, rounder, log2_high, log2_low, inf, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13 = (
        _CONSTANTS64
    )
    held = low if x < low else (high if x > high else x)
    rounded = held * per_log2 + rounder
    n = rounded - rounder
    r = (held - n * log2_high) - n * log2_low
    p = c7 + r * (c8 + r * (c9 + r * (c10 + r * (c11 + r * (c12 + r * c13)))))
    p = 1.0 + r * (1.0 + r * (c2 + r * (c3 + r * (c4 + r * (c5 + r * (c6 + r * p))))))
    value = p * _power_of_two(rounded)
    return 0.0 if x <= low else (inf if x >= high else value)


@numba.njit(cache=True, nogil=True)
def any_nan(row):
    """Whether an array of one dimension holds a nan. Comparisons with one are false: in a field it would spare keys."""
    found = False
    for x in row:
        found |= x != x
    return found
