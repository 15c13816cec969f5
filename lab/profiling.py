"""Where the time of a training run or a sweep went: a few named phases, timed around what happens hundreds of times.

A `Timers` is passed to the code that it times and handed back with its result; nothing is shared between runs.
Reading the clock twice per phase and step costs about a microsecond, so it is always on.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

# In the order in which they are shown. Phases never contain one another, so that they add up.
PHASES = ("data", "forward and backward", "optimiser", "metrics", "store")
OTHER = "other"


class Timers:
    """Seconds of wall-clock time spent in each phase.

    >>> timers = Timers()
    >>> with timers("data"):
    ...     pass
    >>> 0.0 <= timers.seconds["data"] < 1.0
    True
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Times a block; KeyError for a phase that is none of PHASES."""
        before = self.seconds[phase]
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[phase] = before + time.perf_counter() - start

    def add(self, seconds: Mapping[str, float]) -> None:
        """Adds what another run measured, for example in a worker process."""
        for phase, value in seconds.items():
            self.seconds[phase] += value


def shares(seconds: Mapping[str, float], total: float) -> dict[str, float]:
    """The phases, then what is left of the measured total as "other": they add up to the total.

    >>> shares({"data": 1.0, "metrics": 2.0}, 4.0)
    {'data': 1.0, 'metrics': 2.0, 'other': 1.0}
    """
    return {**seconds, OTHER: total - sum(seconds.values())}
