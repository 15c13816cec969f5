"""Quantiles over seeds, of numbers that may be infinite: a reader that rules out a target has an infinite loss."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

QUARTILES = {"q25": 0.25, "median": 0.5, "q75": 0.75}


def quantiles(values: np.ndarray, shares: Sequence[float] = tuple(QUARTILES.values()), axis: int = 0) -> np.ndarray:
    """As numpy's linear quantiles, shares first, but between a number and an infinity lies that infinity.

    There numpy subtracts infinities, with a warning and for nothing. Between both infinities, and where a value is not
    a number, neither is the quantile.
    """
    if not np.isinf(values).any():
        return np.quantile(values, shares, axis=axis)
    low, high = (np.quantile(values, shares, axis=axis, method=method) for method in ("lower", "higher"))
    with np.errstate(invalid="ignore"):
        between, outer = np.quantile(values, shares, axis=axis), low + high
    return np.where(low == high, low, np.where(np.isinf(outer), outer, between))


def median(values: ArrayLike) -> float:
    """The median over seeds; no number where a seed is none, for leaving it out, as pandas does, flatters the rest."""
    return float(quantiles(np.asarray(values, dtype=np.float64), (0.5,))[0])
