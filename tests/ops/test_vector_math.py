"""exp inside numba loops against numpy, over the whole range and at its ends."""

import math

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.ops.vector_math import LOW, exp

FLOATS = (np.float32, np.float64)


@numba.njit
def each(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = exp(x[i])
    return out


@pytest.mark.parametrize("dtype", FLOATS)
def test_exp_is_within_one_unit_in_the_last_place(dtype):
    low = LOW[np.dtype(dtype)] + 1e-3
    high = 87.99 if dtype is np.float32 else 708.99
    x = np.concatenate([np.linspace(low, high, 100_003), -np.geomspace(1e-40, -low, 10_007)]).astype(dtype)
    exact = np.exp(x.astype(np.longdouble))
    error = np.abs(each(x) - exact) / exact
    assert error.max() < np.finfo(dtype).eps
    assert each(x).dtype == dtype


@pytest.mark.parametrize("dtype", FLOATS)
def test_exp_at_the_ends(dtype):
    low = LOW[np.dtype(dtype)]
    x = np.array([-math.inf, -1e30, 2 * low, low, -0.0, 0.0, 1e30, math.inf], dtype=dtype)
    assert each(x).tolist() == [0, 0, 0, 0, 1, 1, math.inf, math.inf]
    assert math.isnan(each(np.array([math.nan], dtype=dtype))[0])
    smallest = each(np.array([np.nextafter(dtype(low), dtype(0))]))[0]
    assert smallest >= np.finfo(dtype).tiny  # never subnormal


@given(st.lists(st.floats(-800, 800), min_size=1, max_size=40))
def test_exp_does_not_depend_on_the_place_in_the_loop(numbers):
    """Vector body and scalar remainder of the loop give the same bits."""
    x = np.array(numbers)
    alone = np.concatenate([each(x[i : i + 1]) for i in range(x.size)])
    np.testing.assert_array_equal(each(x), alone)
