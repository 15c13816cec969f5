"""Benches that measure nothing, by name, for tests of the command."""

import os
from collections.abc import Mapping

import torch

from lab.bench.measure import Estimate, Found, Result, Settings, Tell, ratio

BENCHES: Mapping[str, str] = {"quick-one": "bench_fakes", "slow-one": "bench_fakes"}

ran = []


def run(settings: Settings, tell: Tell) -> Found:
    """One ratio of 1/40 with the bar that the environment names, one number of MiB, a table and a note."""
    if "FAKE_FAILURE" in os.environ:
        raise ZeroDivisionError("an injected failure")
    ran.append("a bench")
    if len(ran) == int(os.environ.get("FAKE_INTERRUPT", 0)):
        raise KeyboardInterrupt
    tell(0.5, "half way")
    pairs = [(1.0, 40.0)] * settings.turns(8)
    found = Found(
        tables={"a table": [{"kernel": "fast", "threads": torch.get_num_threads(), "x": 1.5, "y": float("nan")}]}
    )
    found.results = [
        ratio("fake", ("fast", "slow"), pairs, bar=os.environ["FAKE_BAR"], aim="1/30", detail="here"),
        Result("fake", "memory", Estimate(12.0, 11.0, 13.0, 3, 0.75), unit="MiB"),
    ]
    found.notes.append("fake: one side is left out")
    return found
