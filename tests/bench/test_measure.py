"""How ratios are taken: turns alternate, the interval is the stated one, exponents are found again."""

import math
import random
from itertools import count

import pytest

from lab.bench import growth
from lab.bench.measure import Estimate, Result, Settings, alternate, estimate, number, ratio, show


def test_sides_take_turns_in_either_order_and_the_first_calls_of_each_do_not_count():
    calls = []
    ticks = count()
    pairs = alternate(lambda: calls.append("a"), lambda: calls.append("b"), 3, clock=lambda: float(next(ticks)))
    assert calls == [*"aabb", *"ab", *"ba", *"ab"]
    assert pairs == [(1.0, 1.0)] * 3


def test_a_turn_of_a_short_call_is_many_calls_and_its_time_is_that_of_one():
    now, calls = [0.0], []

    def side(name, lasts):
        def call():
            calls.append(name)
            now[0] += lasts

        return call

    pairs = alternate(side("short", 0.02), side("long", 0.3), 2, clock=lambda: now[0])
    assert calls == [*["short"] * 2, *["long"] * 2, *["short"] * 3, *["long"] * 2, *["short"] * 3]
    assert pairs == [(pytest.approx(0.02), pytest.approx(0.3))] * 2


def test_a_ratio_is_the_median_over_pairs_not_the_ratio_of_medians():
    pairs = [(1.0, 2.0), (10.0, 20.0), (9.0, 3.0)]
    result = ratio("step", ("fast", "slow"), pairs, detail="here")
    assert result.value.median == 0.5
    assert result.sides == {"fast": 9.0, "slow": 3.0}
    assert result.name == "fast / slow, here"
    assert (result.value.low, result.value.high, result.value.n) == (0.5, 3.0, 3)


@pytest.mark.parametrize("n", range(1, 12))
def test_the_interval_covers_the_median_as_often_as_it_says(n):
    """Each of n values lies below the true median or above it, as a coin falls: counted over all falls."""
    found = estimate([float(value) for value in range(n)])
    below, above = round(found.low), n - 1 - round(found.high)
    assert below == above
    inside = 0
    for k in range(n + 1):  # k values lie below the median: it is then between the k-th and the next
        inside += (below < k <= n - 1 - above) * math.comb(n, k)
    assert found.confidence == pytest.approx(inside / 2**n)
    assert found.confidence >= 0.95 or below == 0
    if n >= 6:
        narrower = sum(math.comb(n, k) for k in range(below + 2, n - 1 - below)) / 2**n
        assert found.confidence >= 0.95 > narrower


def test_nothing_has_no_median():
    with pytest.raises(ValueError, match="at least one"):
        estimate([])


@pytest.mark.parametrize(
    ("median", "bar", "aim", "verdict"),
    [
        (0.04, "1/20", "1/40", "holds"),
        (0.05, "1/20", "1/40", "holds"),
        (0.025, "1/20", "1/40", "aim met"),
        (0.06, "1/20", "1/40", "missed"),
        (3.0, "2.5", None, "missed"),
        (2.0, "2.5", None, "holds"),
        (9.9, None, None, ""),
    ],
)
def test_bars(median, bar, aim, verdict):
    result = Result("step", "a / b", Estimate(median, median, median, 1, 0.0), bar, aim)
    assert result.verdict == verdict
    assert result.holds == (verdict != "missed")
    document = result.document()
    assert document["bar"] == (None if bar is None else number(bar))
    assert document["verdict"] == (verdict or None)


def test_quick_runs_take_fewer_turns():
    assert Settings(False, 1).turns(40) == 40
    assert Settings(True, 1).turns(40) == 10
    assert Settings(True, 1).turns(4) == 3


def test_numbers_are_shown_as_bars_are_written():
    assert show(1 / 23.4, "ratio") == "1/23.4"
    assert show(0.15, "ratio") == "0.15"
    assert show(12.34, "MiB") == "12.3 MiB"


# Exponents.


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.5, 2.0])
def test_a_known_exponent_is_found_again(exponent):
    sizes = [2**n for n in range(3, 11)]
    found = growth.fit(sizes, [3.0 * size**exponent for size in sizes])
    assert found == pytest.approx((exponent, exponent, exponent), abs=1e-9)


def test_the_interval_of_a_noisy_exponent_holds_the_true_one():
    """95 times of 100: here over noise that is drawn once and for all."""
    draw = random.Random(0)
    sizes = [2**n for n in range(6)]
    held = 0
    for _ in range(1000):
        slope, low, high = growth.fit(sizes, [size**2 * math.exp(draw.gauss(0, 0.1)) for size in sizes])
        held += low < 2.0 < high
        assert low < slope < high
    assert 930 <= held <= 970


def test_one_point_has_no_exponent_and_two_have_no_interval():
    assert all(map(math.isnan, growth.fit([8], [1.0])))
    slope, *interval = growth.fit([8, 16], [1.0, 4.0])
    assert slope == pytest.approx(2.0)
    assert all(map(math.isnan, interval))


def test_fixed_costs_at_small_sizes_do_not_bend_the_exponent():
    series = growth.Series("time", "step fpa", "T", "length", growth.powers(0, 10))
    values = [estimate([1.0 if size < 128 else (size / 64) ** 2]) for size in series.sizes]
    row = growth._exponent(series, values)
    assert (row["from"], row["to"], row["points"]) == (128, 1024, 4)
    assert row["exponent"] == pytest.approx(2.0)


def test_a_quick_run_keeps_the_largest_size_of_every_series():
    for series in growth.SERIES:
        thin = growth._thinned(series)
        assert thin.sizes[-1] == series.sizes[-1]
        assert set(thin.sizes) < set(series.sizes)
        assert len(series.sizes) >= 4
