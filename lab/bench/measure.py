"""How two ways of computing the same thing are compared: in turns, and by the median of the ratios of the turns.

Machines slow down and speed up. Two sides that are timed one after the other, again and again, meet the same machine,
so that the ratio of one pair of turns says more than two averages do. A short call is repeated until its turn is long:
loops of training call a step again and again, from memory that it has itself left warm, and not after another program.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

CONFIDENCE = 0.95
# A turn lasts at least about this long.
TURN_SECONDS = 0.05

Side = Callable[[], object]
Named = tuple[str, Side]
Clock = Callable[[], float]
# Told now and then what is being measured and which fraction of the bench is done.
Tell = Callable[[float, str], None]


@dataclass(frozen=True)
class Settings:
    """quick: fewer turns and sizes, for a look. threads: of torch and of the lab's kernels in this process."""

    quick: bool
    threads: int

    def turns(self, full: int) -> int:
        """How many pairs of turns to take where a full run takes `full`."""
        return max(3, full // 4) if self.quick else full


@dataclass(frozen=True)
class Estimate:
    """A median with its interval: two order statistics, which assumes nothing about the spread of the values.

    confidence: of the interval; below 0.95 where there are fewer than six values.
    """

    median: float
    low: float
    high: float
    n: int
    confidence: float


def estimate(values: Sequence[float]) -> Estimate:
    """The median, and the narrowest symmetric pair of order statistics that covers it with confidence 0.95.

    >>> estimate([3.0, 1.0, 2.0])
    Estimate(median=2.0, low=1.0, high=3.0, n=3, confidence=0.75)
    """
    ordered = sorted(values)
    n = len(ordered)
    if n == 0:
        raise ValueError("estimate: expected at least one value")
    cut = 0
    while _confidence(n, cut + 1) >= CONFIDENCE:
        cut += 1
    return Estimate(statistics.median(ordered), ordered[cut], ordered[n - 1 - cut], n, _confidence(n, cut))


def _confidence(n: int, cut: int) -> float:
    """Chance that the true median lies between the values left after `cut` on either side are cut off."""
    return 1.0 - 2.0 * sum(math.comb(n, k) for k in range(cut + 1)) / 2.0**n


def alternate(first: Side, second: Side, turns: int, clock: Clock = time.perf_counter) -> list[tuple[float, float]]:
    """Seconds per call of the two sides in `turns` pairs of turns, the first side first in every other pair.

    Each side is called before, which does not count: once (it compiles), and once to see how many calls fill a turn.
    """
    calls = calls_per_turn(first, clock), calls_per_turn(second, clock)
    pairs = []
    for turn in range(turns):
        if turn % 2 == 0:
            one = seconds(first, clock, calls[0])
            other = seconds(second, clock, calls[1])
        else:
            other = seconds(second, clock, calls[1])
            one = seconds(first, clock, calls[0])
        pairs.append((one, other))
    return pairs


def calls_per_turn(side: Side, clock: Clock = time.perf_counter) -> int:
    """Calls that fill a turn, seen in a second call; the first compiles."""
    side()
    return max(1, math.ceil(TURN_SECONDS / max(seconds(side, clock), TURN_SECONDS / 1000)))


def seconds(side: Side, clock: Clock = time.perf_counter, calls: int = 1) -> float:
    """How long a call takes, on average over `calls` in a row."""
    start = clock()
    for _ in range(calls):
        side()
    return (clock() - start) / calls


@dataclass(frozen=True)
class Result:
    """One line of the table: a measured number, and the bar that it is held against.

    bar, aim: such as "1/20" or "2.5"; the measured number is to be at most that. No bar: shown for the reader.
    sides: median seconds of each side; pairs: what the ratios were taken of.
    """

    bench: str
    name: str
    value: Estimate
    bar: str | None = None
    aim: str | None = None
    unit: str = "ratio"
    sides: dict[str, float] = field(default_factory=dict)
    pairs: Sequence[tuple[float, float]] = ()

    @property
    def holds(self) -> bool:
        """Whether the median is within the bar; without a bar there is nothing to miss."""
        return self.bar is None or self.value.median <= number(self.bar)

    @property
    def verdict(self) -> str:
        if self.bar is None:
            return ""
        if not self.holds:
            return "missed"
        return "aim met" if self.aim is not None and self.value.median <= number(self.aim) else "holds"

    def document(self) -> dict[str, Any]:
        """For JSON: bars as numbers, every pair of turns in seconds."""
        found = dict(vars(self.value)) | {"unit": self.unit, "verdict": self.verdict or None}
        bars = {name: None if text is None else number(text) for name, text in (("bar", self.bar), ("aim", self.aim))}
        return {"bench": self.bench, "name": self.name, **bars, **found, "sides": self.sides, "pairs": list(self.pairs)}


def number(text: str) -> float:
    """
    >>> number("1/20")
    0.05
    """
    return float(Fraction(text))


def show(value: float, unit: str) -> str:
    """A measured number as bars are written: small ratios as one over something.

    >>> show(0.025, "ratio"), show(1.0625, "ratio"), show(12.34, "MiB")
    ('1/40', '1.06', '12.3 MiB')
    """
    if unit != "ratio":
        return f"{value:.3g} {unit}"
    return f"1/{1 / value:.3g}" if 0 < value < 0.1 else f"{value:.3g}"


def ratio(
    bench: str, names: tuple[str, str], pairs: Sequence[tuple[float, float]], *, bar: str | None = None,
    aim: str | None = None, detail: str = "",
) -> Result:  # fmt: skip
    """What pairs of turns say, in seconds of the first and of the second named side."""
    sides = {name: statistics.median(times) for name, times in zip(names, zip(*pairs, strict=True), strict=True)}
    value = estimate([a / b for a, b in pairs])
    return Result(bench, _name(names, detail), value, bar, aim, "ratio", sides, pairs)


def _name(names: tuple[str, str], detail: str) -> str:
    return f"{names[0]} / {names[1]}" + (f", {detail}" if detail else "")


@dataclass(frozen=True)
class Comparison:
    """Two named sides that compute the same thing, and the bar for the ratio first / second."""

    bench: str
    first: Named
    second: Named
    turns: int
    bar: str | None = None
    aim: str | None = None
    detail: str = ""

    @property
    def name(self) -> str:
        return _name((self.first[0], self.second[0]), self.detail)

    def run(self, settings: Settings) -> Result:
        """Both sides in turns."""
        return self.result(alternate(self.first[1], self.second[1], settings.turns(self.turns)))

    def result(self, pairs: Sequence[tuple[float, float]]) -> Result:
        """What turns say that were taken elsewhere."""
        names = (self.first[0], self.second[0])
        return ratio(self.bench, names, pairs, bar=self.bar, aim=self.aim, detail=self.detail)


@dataclass
class Found:
    """What one bench found. tables: rows by name, for what is no comparison; notes: what was left out, and why."""

    results: list[Result] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
