"""Vectors of 16 numbers as values in numba code: sixteen sequences are computed side by side, one to a lane.

Left to itself the compiler must prove, for every short loop, that the arrays in it do not overlap, and gives up. A
`Lanes` value is one LLVM vector of float32 or float64; LLVM maps it to the registers the machine has. Arrays that hold
lanes are one-dimensional here, and vector number n stands at [16 n, 16 n + 16).

    a = load(x, n)               store(y, n, a)           splat(x, 2.0)  in the dtype of x
    a + b, a - b, a * b, a / b   a > b, a >= b (masks)    select(mask, a, b), everywhere(mask)
    total_of(a), largest_of(a), least_of(a)               load_from(x, start), at any place
    transpose_square(...): 16 rows of 16 numbers to lanes, or back
    exp(a), log(a)               wide(a), narrow(x, a)    to float64, and to the dtype of x

Additions of products may be fused. Every lane is computed alike, so its numbers depend on nothing in the others.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import extending, types
from numba.extending import models, overload, register_model

# Calls from compiled code look different from what the type checker sees in the decorated function.
intrinsic: Any = extending.intrinsic

LANES = 16

_FUSED = ("contract",)
_ELEMENTS = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


class Lanes(types.Type):
    """The numba type of 16 numbers of one dtype."""

    def __init__(self, element: types.Float):
        self.element = element
        super().__init__(name=f"Lanes({element})")


class Mask(types.Type):
    """The numba type of 16 truth values."""

    def __init__(self):
        super().__init__(name="Mask")


_mask = Mask()
_BITS = ir.VectorType(ir.IntType(1), LANES)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, ir.VectorType(_ELEMENTS[kind.element], LANES))


@register_model(Mask)
class _MaskModel(models.PrimitiveModel):
    def __init__(self, manager, kind):
        super().__init__(manager, kind, _BITS)


def _constant(element: types.Float, value: float) -> ir.Constant:
    return ir.Constant(ir.VectorType(_ELEMENTS[element], LANES), [value] * LANES)


def _spread(builder: Any, number: Any, vector: Any) -> Any:
    """The number in every lane."""
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, each: int = LANES) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    start = builder.gep(data, [builder.mul(index, index.type(each))])
    return builder.bitcast(start, ir.VectorType(data.type.pointee, LANES).as_pointer())


@intrinsic
def load(typing_context, array, index):
    """Vector number `index` of a one-dimensional contiguous array."""
    kind = Lanes(array.dtype)

    def generate(context, builder, signature, arguments):
        return builder.load(_address(context, builder, array, *arguments), align=array.dtype.bitwidth // 8)

    return kind(array, types.intp), generate


@intrinsic
def load_from(typing_context, array, start):
    """The 16 numbers of a one-dimensional contiguous array from `start` on."""
    kind = Lanes(array.dtype)

    def generate(context, builder, signature, arguments):
        values, start = arguments
        return builder.load(_address(context, builder, array, values, start, 1), align=array.dtype.bitwidth // 8)

    return kind(array, types.intp), generate


def _transposed(builder: Any, rows: list) -> list:
    """16 vectors of 16 as the 16 columns of their square: in four rounds, pairs of rows exchange halves of blocks."""
    places = ir.VectorType(ir.IntType(32), LANES)
    size = LANES // 2
    while size:
        low = ir.Constant(places, [n if n & size == 0 else n - size + LANES for n in range(LANES)])
        high = ir.Constant(places, [n + size if n & size == 0 else n + LANES for n in range(LANES)])
        exchanged = list(rows)
        for n in range(LANES):
            if n & size == 0:
                exchanged[n] = builder.shuffle_vector(rows[n], rows[n + size], low)
                exchanged[n + size] = builder.shuffle_vector(rows[n], rows[n + size], high)
        rows, size = exchanged, size // 2
    return rows


@intrinsic
def transpose_square(typing_context, source, start, stride, target, at, target_stride, factor):
    """target[at + n target_stride + m] = factor source[start + m stride + n] for 16 n and 16 m, in target's dtype."""

    def number(builder, vector):
        wanted = ir.VectorType(_ELEMENTS[target.dtype], LANES)
        if isinstance(source.dtype, types.Integer):
            return builder.sitofp(vector, wanted)
        bits = source.dtype.bitwidth, target.dtype.bitwidth
        return (
            vector if bits[0] == bits[1] else (builder.fpext if bits[0] < bits[1] else builder.fptrunc)(vector, wanted)
        )

    def generate(context, builder, signature, arguments):
        x, start, stride, y, at, target_stride, factor = arguments
        factor = _spread(builder, factor, ir.VectorType(_ELEMENTS[target.dtype], LANES))
        read = []
        for n in range(LANES):
            where = builder.add(start, builder.mul(stride, stride.type(n)))
            read.append(builder.load(_address(context, builder, source, x, where, 1), align=source.dtype.bitwidth // 8))
        for n, column in enumerate(_transposed(builder, read)):
            where = builder.add(at, builder.mul(target_stride, stride.type(n)))
            column = builder.fmul(number(builder, column), factor)
            builder.store(column, _address(context, builder, target, y, where, 1), align=target.dtype.bitwidth // 8)
        return context.get_dummy_value()

    whole = (types.intp,) * 2
    return types.void(source, *whole, target, *whole, target.dtype), generate


@intrinsic
def store(typing_context, array, index, lanes):
    """Writes vector number `index` of a one-dimensional contiguous array of the same dtype."""

    def generate(context, builder, signature, arguments):
        where = _address(context, builder, array, *arguments[:2])
        builder.store(arguments[2], where, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, Lanes(array.dtype)), generate


@intrinsic
def splat(typing_context, like, number):
    """The number in every lane, in the dtype of `like`, an array or lanes."""
    kind = like if isinstance(like, Lanes) else Lanes(like.dtype)

    def generate(context, builder, signature, arguments):
        return _spread(builder, arguments[1], context.get_value_type(kind))

    return kind(like, kind.element), generate


@intrinsic
def select(typing_context, mask, yes, no):
    """yes where the mask is true, else no."""

    def generate(context, builder, signature, arguments):
        return builder.select(*arguments)

    return yes(_mask, yes, yes), generate


@intrinsic
def everywhere(typing_context, mask):
    """Is the mask true in every lane?"""

    def generate(context, builder, signature, arguments):
        whole = ir.IntType(LANES)
        return builder.icmp_unsigned("==", builder.bitcast(arguments[0], whole), whole(2**LANES - 1))

    return types.boolean(_mask), generate


@intrinsic
def wide(typing_context, lanes):
    """The same numbers as float64."""
    kind = Lanes(types.float64)

    def generate(context, builder, signature, arguments):
        (value,) = arguments
        return value if lanes == kind else builder.fpext(value, context.get_value_type(kind))

    return kind(lanes), generate


@intrinsic
def narrow(typing_context, array, lanes):
    """float64 lanes rounded to the dtype of the array."""
    kind = Lanes(array.dtype)

    def generate(context, builder, signature, arguments):
        return arguments[1] if lanes == kind else builder.fptrunc(arguments[1], context.get_value_type(kind))

    return kind(array, Lanes(types.float64)), generate


def _arithmetic(name: str) -> Callable:
    @intrinsic
    def operation(typing_context, one, other):
        def generate(context, builder, signature, arguments):
            return getattr(builder, name)(*arguments, flags=_FUSED)

        return one(one, one), generate

    return operation


def _comparison(symbol: str) -> Callable:
    @intrinsic
    def operation(typing_context, one, other):
        def generate(context, builder, signature, arguments):
            return builder.fcmp_ordered(symbol, *arguments)

        return _mask(one, one), generate

    return operation


def _fold(combine: Callable) -> Callable:
    """All lanes combined into one number, halves first: always in the same order."""

    @intrinsic
    def folded(typing_context, lanes):
        def generate(context, builder, signature, arguments):
            (value,) = arguments
            places = ir.VectorType(ir.IntType(32), LANES)
            half = LANES // 2
            while half:
                order = ir.Constant(places, [(lane + half) % LANES for lane in range(LANES)])
                value = combine(builder, value, builder.shuffle_vector(value, value, order))
                half //= 2
            return builder.extract_element(value, ir.IntType(32)(0))

        return lanes.element(lanes), generate

    return folded


def _larger(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _smaller(builder: Any, a: Any, b: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", a, b), a, b)


total_of = _fold(lambda builder, a, b: builder.fadd(a, b))
largest_of = _fold(_larger)
least_of = _fold(_smaller)


def _define(function: Any, operation: Callable) -> None:
    @overload(function)
    def on_lanes(one, other):
        if isinstance(one, Lanes) and one == other:
            return lambda one, other: operation(one, other)
        return None


for _function, _name in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define(_function, _arithmetic(_name))
for _function, _symbol in ((operator.gt, ">"), (operator.ge, ">=")):
    _define(_function, _comparison(_symbol))


@numba.njit(nogil=True)
def larger(a, b):
    """The larger of two in every lane; b where a is nan."""
    return select(a > b, a, b)


@numba.njit(nogil=True)
def smaller(a, b):
    """The smaller of two in every lane; b where a is nan."""
    return select(b > a, a, b)


def _horner(builder: Any, x: Any, element: types.Float, coefficients: tuple[float, ...]) -> Any:
    """The polynomial with these coefficients, constant first."""
    value = _constant(element, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = builder.fadd(builder.fmul(value, x, flags=_FUSED), _constant(element, c), flags=_FUSED)
    return value


# By bits of the dtype: mantissa, exponent bias, terms of the series for exp, its range, high part of log(2).
_FORMATS = {32: (23, 127, 7, -87.0, 88.0, 2.0**-12), 64: (52, 1023, 13, -708.0, 709.0, 2.0**-32)}
# log(2) minus the float64 nearest to it.
_LOG2_TAIL = 2.3190468138462996e-17


@intrinsic
def exp(typing_context, lanes):
    """exp as in lab.ops.vector_math: 0 from LOW down, inf from 88 (709) up, within one unit in the last place."""
    element = lanes.element
    mantissa, bias, terms, low, high, split = _FORMATS[element.bitwidth]
    log2_high = round(math.log(2) / split) * split
    log2_low = (math.log(2) - log2_high) + _LOG2_TAIL

    def generate(context, builder, signature, arguments):
        (x,) = arguments
        vector, whole = x.type, ir.VectorType(ir.IntType(element.bitwidth), LANES)

        def constant(value):
            return _constant(element, value)

        too_low, too_high = (builder.fcmp_ordered(sign, x, constant(end)) for sign, end in (("<=", low), (">=", high)))
        held = builder.select(too_low, constant(low), builder.select(too_high, constant(high), x))
        rounder = constant(1.5 * 2**mantissa + bias)
        rounded = builder.fadd(builder.fmul(held, constant(1 / math.log(2)), flags=_FUSED), rounder, flags=_FUSED)
        n = builder.fsub(rounded, rounder)
        r = builder.fsub(held, builder.fmul(n, constant(log2_high), flags=_FUSED), flags=_FUSED)
        r = builder.fsub(r, builder.fmul(n, constant(log2_low), flags=_FUSED), flags=_FUSED)
        series = _horner(builder, r, element, tuple(1 / math.factorial(k) for k in range(terms + 1)))
        shift = ir.Constant(whole, [mantissa] * LANES)
        power = builder.bitcast(builder.shl(builder.bitcast(rounded, whole), shift), vector)
        value = builder.select(too_high, constant(math.inf), builder.fmul(series, power))
        return builder.select(too_low, constant(0.0), value)

    return lanes(lanes), generate


# Terms 2/(2k+1) of log(m) = 2 atanh(s), s = (m - 1)/(m + 1), |s| <= 0.172 for m in [sqrt(1/2), sqrt(2)].
_LOG_SERIES = tuple(2 / (2 * k + 1) for k in range(11))


@intrinsic
def log(typing_context, lanes):
    """log of positive normal float64 lanes, within a few units in the last place; -inf at 0; inf and nan stay."""
    element = types.float64

    def generate(context, builder, signature, arguments):
        (x,) = arguments
        vector, whole = x.type, ir.VectorType(ir.IntType(64), LANES)

        def constant(value):
            return _constant(element, value)

        def bits(value):
            return ir.Constant(whole, [value] * LANES)

        # x = 2^n m with m in [sqrt(1/2), sqrt(2)): the bits above those of sqrt(1/2) count n.
        offset = 0x3FE6A09E667F3BCD
        raw = builder.bitcast(x, whole)
        above = builder.sub(raw, bits(offset))
        n = builder.ashr(above, bits(52))
        m = builder.bitcast(builder.sub(raw, builder.shl(n, bits(52))), vector)
        s = builder.fdiv(builder.fsub(m, constant(1.0)), builder.fadd(m, constant(1.0)))
        squared = builder.fmul(s, s, flags=_FUSED)
        series = builder.fmul(s, _horner(builder, squared, element, _LOG_SERIES), flags=_FUSED)
        exponent = builder.sitofp(n, vector)
        value = builder.fadd(builder.fmul(exponent, constant(math.log(2)), flags=_FUSED), series, flags=_FUSED)
        value = builder.select(builder.fcmp_ordered("==", x, constant(0.0)), constant(-math.inf), value)
        finite = builder.fcmp_ordered("<", x, constant(math.inf))
        return builder.select(finite, value, x)

    return lanes(lanes), generate


@intrinsic
def _log1p(typing_context, lanes):
    """log(1 + e) for 0 <= e <= 1, as 2 atanh(s), s = e/(2 + e)."""
    element = lanes.element
    terms = 8 if element.bitwidth == 32 else 17

    def generate(context, builder, signature, arguments):
        (e,) = arguments
        s = builder.fdiv(e, builder.fadd(e, _constant(element, 2.0)))
        series = _horner(builder, builder.fmul(s, s), element, tuple(2 / (2 * k + 1) for k in range(terms)))
        return builder.fmul(s, series)

    return lanes(lanes), generate


@numba.njit(nogil=True)
def softplus(x, smoothing):
    """smoothing * log(1 + exp(x / smoothing)) and its derivative; both 0 where x is -inf or nan."""
    zero, one = splat(x, 0), splat(x, 1)
    tau = splat(x, smoothing)
    z = x / tau
    positive, defined = z > zero, x > splat(x, -math.inf)
    e = exp(select(positive, zero - z, z))
    value = tau * (larger(z, zero) + _log1p(e))
    derivative = select(positive, one, e) / (one + e)
    return select(defined, value, zero), select(defined, derivative, zero)
