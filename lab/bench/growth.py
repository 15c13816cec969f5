"""How time and memory grow with the length T, the keys n, the head dimension d and the seeds: exponents, fitted.

An exponent is the slope of a least-squares line through (log size, log median) over the upper part of the sizes,
where fixed costs no longer matter, with its 95% interval by Student's t.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.bench.measure import CONFIDENCE, Estimate, Found, Settings, Tell, estimate, seconds

# The exponent is fitted over sizes from this share of the largest one on.
FITTED_FROM = 1 / 8
TURNS = 5
# What tables hold, and how much of it a second or a byte is.
UNITS = {"time": ("ms", 1e3), "memory": ("MiB", 1.0 / (1 << 20))}


@dataclass(frozen=True)
class Series:
    """One operation over one size, the others fixed. `name`: what the size is called there: T, n, d or seeds."""

    quantity: str
    operation: str
    name: str
    parameter: str
    sizes: tuple[int, ...]
    fixed: dict[str, Any] = field(default_factory=dict)

    def request(self, size: int) -> tuple[str, dict[str, Any]]:
        return self.operation, {**self.fixed, self.parameter: size}


def powers(low: int, high: int) -> tuple[int, ...]:
    """
    >>> powers(3, 5)
    (8, 16, 32)
    """
    return tuple(1 << n for n in range(low, high + 1))


_HEAD = {"dim": 64}
_BATCH = {"seeds": 16, "batch": 16}
_STEP = {**_BATCH, "length": 64, "dim": 4}
SERIES = (
    Series("time", "attention fpa", "T", "length", powers(8, 12), _HEAD),
    Series("time", "attention sdpa", "T", "length", powers(8, 12), _HEAD),
    Series("time", "attention ordinary", "T", "length", powers(7, 11), _HEAD),
    Series("time", "step fpa", "T", "length", powers(5, 9), {**_BATCH, "dim": 4}),
    Series("time", "step ordinary", "T", "length", powers(4, 7), {**_BATCH, "dim": 4}),
    Series("time", "training fpa", "n", "keys", powers(4, 9), {"seeds": 16}),
    Series("time", "training softmax", "n", "keys", powers(4, 9), {"seeds": 16}),
    Series("time", "step fpa", "d", "dim", powers(2, 7), {**_BATCH, "length": 64}),
    Series("time", "step softmax", "d", "dim", powers(2, 7), {**_BATCH, "length": 64}),
    Series("time", "attention fpa", "d", "dim", powers(4, 8), {"length": 1024}),
    Series("time", "step fpa", "seeds", "seeds", powers(1, 7), {**_STEP, "batch": 16}),
    Series("time", "training fpa", "seeds", "seeds", powers(1, 7), {"keys": 16}),
    Series("memory", "attention fpa", "T", "length", powers(11, 15), {**_HEAD, "backward": False}),
    Series("memory", "attention sdpa", "T", "length", powers(11, 15), {**_HEAD, "backward": False}),
    Series("memory", "attention ordinary", "T", "length", powers(9, 12), {**_HEAD, "backward": False}),
    Series("memory", "step fpa", "T", "length", powers(6, 9), {**_BATCH, "dim": 4}),
    Series("memory", "step ordinary", "T", "length", powers(5, 8), {**_BATCH, "dim": 4}),
    Series("memory", "training fpa", "n", "keys", powers(7, 10), {"seeds": 16}),
    Series("memory", "step fpa", "d", "dim", powers(4, 7), {**_BATCH, "length": 64}),
    Series("memory", "step fpa", "seeds", "seeds", powers(5, 8), {**_STEP, "batch": 16}),
)


def run(settings: Settings, tell: Tell) -> Found:
    """Time and memory of every series; in a quick run, at every other size, with three turns."""
    series = [_thinned(one) for one in SERIES] if settings.quick else list(SERIES)
    times = [one for one in series if one.quantity == "time"]
    measured = _times(times, settings, tell)
    for n, one in enumerate(memories := [one for one in series if one.quantity == "memory"]):
        tell(0.6 + 0.4 * n / len(memories), f"memory of {one.operation} over {one.name}")
        measured.append((one, _memory(one, settings.threads)))
    found = Found()
    found.tables["growth"] = [row for one, values in measured for row in _rows(one, values)]
    found.tables["exponents"] = [_exponent(one, values) for one, values in measured]
    return found


def _thinned(series: Series) -> Series:
    """Every other size, the largest among them."""
    return Series(**{**vars(series), "sizes": series.sizes[::-2][::-1]})


def _times(series: Sequence[Series], settings: Settings, tell: Tell) -> list[tuple[Series, list[Estimate]]]:
    """Turn by turn through all sizes of a series, so that a busy moment does not fall on one size alone."""
    from lab.bench.operations import OPERATIONS

    found = []
    for n, one in enumerate(series):
        tell(0.6 * n / len(series), f"time of {one.operation} over {one.name}")
        calls = []
        for operation, sizes in map(one.request, one.sizes):
            calls.append(OPERATIONS[operation](**sizes))
            calls[-1]()
        turns = [[seconds(call) for call in calls] for _ in range(settings.turns(TURNS))]
        found.append((one, [estimate(values) for values in zip(*turns, strict=True)]))
    return found


def _memory(series: Series, threads: int) -> list[Estimate]:
    """Bytes in all, inputs and outputs included; one call each, which varies little."""
    from lab.bench.memory import measure

    return [estimate([one["total"]]) for one in measure([series.request(size) for size in series.sizes], threads)]


def _rows(series: Series, values: Sequence[Estimate]) -> list[dict[str, Any]]:
    place = {"quantity": series.quantity, "operation": series.operation, "variable": series.name}
    unit, times = UNITS[series.quantity]
    fixed = " ".join(f"{name}={value}" for name, value in series.fixed.items() if name != series.parameter)
    rows = []
    for size, one in zip(series.sizes, values, strict=True):
        numbers = {name: getattr(one, name) * times for name in ("median", "low", "high")}
        rows.append({**place, "size": size, **numbers, "n": one.n, "unit": unit, "fixed": fixed})
    return rows


def _exponent(series: Series, values: Sequence[Estimate]) -> dict[str, Any]:
    upper = [
        (size, one.median)
        for size, one in zip(series.sizes, values, strict=True)
        if size >= FITTED_FROM * series.sizes[-1] and one.median > 0
    ]
    place = {"quantity": series.quantity, "operation": series.operation, "variable": series.name}
    exponent, low, high = fit([size for size, _ in upper], [value for _, value in upper])
    sizes = {"from": upper[0][0], "to": upper[-1][0], "points": len(upper)} if upper else {}
    return {**place, "exponent": exponent, "low": low, "high": high, **sizes}


def fit(sizes: Sequence[float], values: Sequence[float]) -> tuple[float, float, float]:
    """Slope of log value over log size, and its interval. Two points have no interval, one has no slope: nan."""
    import numpy as np
    from scipy.special import stdtrit

    if len(sizes) < 2:
        return math.nan, math.nan, math.nan
    x, y = np.log2(sizes), np.log2(values)
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    freedom = len(sizes) - 2
    if not freedom:
        return slope, math.nan, math.nan
    reach = float(stdtrit(freedom, (1 + CONFIDENCE) / 2) * np.sqrt(((y - slope * x) ** 2).sum() / freedom / (x @ x)))
    return slope, slope - reach, slope + reach
