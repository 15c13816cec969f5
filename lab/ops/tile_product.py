"""C += A B for small blocks, in compiled loops: the sums of a block of C stay in vector registers.

numba's own loops keep one row of C in flight and reach a third of the machine; BLAS calls cost more than these blocks
do, and bring threads of their own. `add_product` writes out the inner loop for a block of ROWS x (2 vectors) of C
in LLVM's vector types, which LLVM maps to whatever registers the machine has. Every number of C is summed in the
order of the depth, so equal inputs give equal bits whatever the block around them.
"""

from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic as _typed_intrinsic

# Rows of C that are summed at once: with two vectors a row, 16 running sums fill half of AVX-512's 32 registers.
ROWS = 8
# Columns of C, rows of C and rows of B come in multiples of this many bytes and numbers.
VECTOR_BYTES = 64
# Called without the context that they are declared with.
intrinsic: Any = _typed_intrinsic
_REGISTER_BYTES = 64 if llvm.get_host_cpu_features().get("avx512f") else 32


def _vectors(context, builder, array_type, array):
    """(pointer to the first element, vector type, lanes) of a C-contiguous array."""
    lanes = _REGISTER_BYTES * 8 // array_type.dtype.bitwidth
    element = context.get_value_type(array_type.dtype)
    return context.make_array(array_type)(context, builder, array).data, ir.VectorType(element, lanes), lanes


def _is_numbers(array) -> bool:
    return isinstance(array, types.Array) and array.layout == "C" and isinstance(array.dtype, types.Float)


def _row_block(rows: int, vectors: int):
    """The intrinsic that adds to a block of `rows` times `vectors` registers of C."""

    @intrinsic
    def add_block(typing_context, c, c_start, c_pitch, a, a_start, a_row, a_step, b, b_start, b_pitch, depth):
        if not (_is_numbers(a) and _is_numbers(b) and _is_numbers(c) and a.dtype == b.dtype == c.dtype):
            return None
        whole = types.intp
        signature = types.void(c, whole, whole, a, whole, whole, whole, b, whole, whole, whole)

        def generate(context, builder, signature, arguments):
            c, c_start, c_pitch, a, a_start, a_row, a_step, b, b_start, b_pitch, depth = arguments
            c_data, vector, lanes = _vectors(context, builder, signature.args[0], c)
            a_data, _, _ = _vectors(context, builder, signature.args[3], a)
            b_data, _, _ = _vectors(context, builder, signature.args[7], b)
            index = ir.IntType(64)
            undefined, lane0 = ir.Constant(vector, ir.Undefined), ir.Constant(ir.IntType(32), 0)
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)

            def place(data, start, v=0):
                return builder.bitcast(builder.gep(data, [builder.add(start, index(v * lanes))]), vector.as_pointer())

            row_of_c = [builder.add(c_start, builder.mul(c_pitch, index(r))) for r in range(rows)]
            places = [place(c_data, row, v) for row in row_of_c for v in range(vectors)]
            before = [builder.load(at, align=4) for at in places]
            row_of_a = [builder.add(a_start, builder.mul(a_row, index(r))) for r in range(rows)]
            entry, loop, end = builder.block, builder.append_basic_block(), builder.append_basic_block()
            builder.cbranch(builder.icmp_signed(">", depth, index(0)), loop, end)

            builder.position_at_end(loop)
            step = builder.phi(index)
            sums = [builder.phi(vector) for _ in places]
            row_of_b = builder.add(b_start, builder.mul(b_pitch, step))
            factors = [builder.load(place(b_data, row_of_b, v), align=4) for v in range(vectors)]
            after = []
            for r in range(rows):
                number = builder.load(builder.gep(a_data, [builder.add(row_of_a[r], builder.mul(a_step, step))]))
                spread = builder.shuffle_vector(builder.insert_element(undefined, number, lane0), undefined, everywhere)
                for v in range(vectors):
                    term = builder.fmul(spread, factors[v], flags=("contract",))
                    after.append(builder.fadd(sums[r * vectors + v], term, flags=("contract",)))
            following = builder.add(step, index(1))
            for phi, first, later in zip([step, *sums], [index(0), *before], [following, *after], strict=True):
                phi.add_incoming(first, entry)
                phi.add_incoming(later, loop)
            builder.cbranch(builder.icmp_signed("<", following, depth), loop, end)

            builder.position_at_end(end)
            totals = [builder.phi(vector) for _ in places]
            for total, first, later in zip(totals, before, after, strict=True):
                total.add_incoming(first, entry)
                total.add_incoming(later, loop)
            for total, at in zip(totals, places, strict=True):
                builder.store(total, at, align=4)
            return context.get_dummy_value()

        return signature, generate

    return add_block


_add_wide, _add_narrow = _row_block(ROWS, 2), _row_block(ROWS, 1)


@intrinsic
def _lanes(typing_context, array):
    """How many numbers of the array's dtype a register holds."""
    if not _is_numbers(array):
        return None
    lanes = _REGISTER_BYTES * 8 // array.dtype.bitwidth
    return types.intp(array), lambda context, builder, signature, arguments: ir.IntType(64)(lanes)


@njit(nogil=True)
def add_product(c, c_start, c_pitch, a, a_start, a_row, a_step, b, b_start, b_pitch, rows, columns, depth):
    """c[r, n] += sum over k < depth of a[r, k] b[k, n], for r < rows and n < columns.

    The arrays are C-contiguous, of one float dtype and any shape; element [r, n] of c stands `c_start + r * c_pitch
    + n` places from its beginning, likewise b; element [r, k] of a stands at `a_start + r * a_row + k * a_step`, so a
    transposed factor costs nothing. `rows` is a multiple of ROWS, `columns` fills whole vectors of VECTOR_BYTES.
    """
    lanes = _lanes(c)
    column = 0
    while column < columns:
        wide = columns - column >= 2 * lanes
        for row in range(0, rows, ROWS):
            at, start = c_start + row * c_pitch + column, a_start + row * a_row
            if wide:
                _add_wide(c, at, c_pitch, a, start, a_row, a_step, b, b_start + column, b_pitch, depth)
            else:
                _add_narrow(c, at, c_pitch, a, start, a_row, a_step, b, b_start + column, b_pitch, depth)
        column += 2 * lanes if wide else lanes


@intrinsic
def largest(typing_context, array, start, length):
    """The largest of array[start : start + length], nan passed over; -inf where there is none. `length` fills whole
    vectors of VECTOR_BYTES."""
    if not _is_numbers(array):
        return None

    def generate(context, builder, signature, arguments):
        array, start, length = arguments
        data, vector, lanes = _vectors(context, builder, signature.args[0], array)
        index = ir.IntType(64)
        entry, loop, end = builder.block, builder.append_basic_block(), builder.append_basic_block()
        lowest = ir.Constant(vector, [float("-inf")] * lanes)
        builder.cbranch(builder.icmp_signed(">", length, index(0)), loop, end)

        builder.position_at_end(loop)
        done, best = builder.phi(index), builder.phi(vector)
        at = builder.bitcast(builder.gep(data, [builder.add(start, done)]), vector.as_pointer())
        numbers = builder.load(at, align=4)
        better = builder.select(builder.fcmp_ordered(">", numbers, best), numbers, best)
        following = builder.add(done, index(lanes))
        for phi, first, later in ((done, index(0), following), (best, lowest, better)):
            phi.add_incoming(first, entry)
            phi.add_incoming(later, loop)
        builder.cbranch(builder.icmp_signed("<", following, length), loop, end)

        builder.position_at_end(end)
        result = builder.phi(vector)
        result.add_incoming(lowest, entry)
        result.add_incoming(better, loop)
        while lanes > 1:
            lanes //= 2
            half = ir.VectorType(ir.IntType(32), lanes)
            low, high = (
                builder.shuffle_vector(result, result, ir.Constant(half, [first + k for k in range(lanes)]))
                for first in (0, lanes)
            )
            result = builder.select(builder.fcmp_ordered(">", low, high), low, high)
        return builder.extract_element(result, ir.Constant(ir.IntType(32), 0))

    return array.dtype(array, types.intp, types.intp), generate
