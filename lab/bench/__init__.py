"""The comparisons of `fpa-lab bench`: what the lab computes fast beside what one would run instead, in one run.

Each module has `run(settings, tell) -> Found`. tests/benchmarks/ runs the same sides under pytest-benchmark.
"""

from collections.abc import Mapping

# Name -> module, in the order in which they run: the ones that need a quiet machine most come first.
BENCHES: Mapping[str, str] = {
    "step": "lab.bench.step",
    "attention": "lab.bench.attention",
    "memory": "lab.bench.memory",
    "limits": "lab.bench.limits",
    "threads": "lab.bench.threads",
    "growth": "lab.bench.growth",
    "sweep": "lab.bench.sweep",
}
