"""The comparisons of `fpa-lab bench` under pytest-benchmark: `make bench`, never a part of `make test`.

A missed bar fails nothing here: how fast a machine is says nothing about whether the code is right. What fails is a
side that cannot be run, or one that took no time at all.
"""

import pytest

from lab.bench import attention, step
from lab.bench.measure import Comparison

STEPS = step.comparisons()
GIVEN = attention.inputs()
ATTENTION = attention.comparisons(GIVEN) + ([attention.against_flex(GIVEN)] if attention.compiler() else [])


@pytest.mark.parametrize("comparison", [*STEPS, *ATTENTION], ids=lambda comparison: comparison.name)
def test_ratio(in_turns, comparison: Comparison):
    result = in_turns(comparison)
    assert 0 < result.value.low <= result.value.median <= result.value.high
