"""pytest-benchmark times one side of every comparison; the other takes its turn before each round.

A round is a turn: as many calls as fill it. The ratios are per call.
"""

from collections.abc import Callable
from typing import Any

import pytest

from lab.bench.measure import Comparison, Result, Settings, calls_per_turn, seconds, show

Measure = Callable[[Comparison], Result]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick-turns", action="store_true", help="a quarter of the turns")


@pytest.fixture
def in_turns(benchmark: Any, request: pytest.FixtureRequest) -> Measure:
    """`in_turns(comparison)`: its ratio, which also goes to the JSON of pytest-benchmark as extra_info."""

    def measure(comparison: Comparison) -> Result:
        turns = Settings(request.config.getoption("--quick-turns"), 1).turns(comparison.turns)
        others: list[float] = []
        (_, first), (_, second) = comparison.first, comparison.second
        calls, others_calls = calls_per_turn(first), calls_per_turn(second)
        benchmark.group = comparison.bench
        benchmark.pedantic(
            lambda: seconds(first, calls=calls),
            setup=lambda: others.append(seconds(second, calls=others_calls)),
            rounds=turns,
        )
        own = [turn / calls for turn in benchmark.stats.stats.data]
        result = comparison.result(list(zip(own, others, strict=True)))
        benchmark.extra_info |= result.document()
        lines = request.config.stash.setdefault(LINES, [])
        value = result.value
        low, high = show(value.low, "ratio"), show(value.high, "ratio")
        bar = f", bar {result.bar}: {result.verdict}" if result.bar else ""
        lines.append(f"{result.name}: {show(value.median, 'ratio')} ({low} to {high}, n = {value.n}){bar}")
        return result

    return measure


LINES = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if lines := config.stash.get(LINES, []):
        terminalreporter.section("ratios")
        for line in lines:
            terminalreporter.write_line(line)
