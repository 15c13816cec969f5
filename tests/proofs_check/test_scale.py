"""Large specifications are read, decided, certified and verified; the largest ones only in the slow suite."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest

from proofs_check import exact
from proofs_check.bounds.family_decision import Cycle, Levels, family_decision
from proofs_check.bounds.walk_is_a_stack import Crossing, Heights, walk_decision
from proofs_check.certificates import Certificates
from proofs_check.keysets import Family, load


def long_history(events, stack):
    """Pushes and short queries; evictions from the top of the stack or from anywhere."""
    rng = random.Random(events)
    result, live = [], []
    while len(result) < events:
        if rng.random() < 0.5 or len(live) < 2:
            live.append(f"k{len(result)}")
            result.append({"push": live[-1]})
        else:
            for _ in range(rng.randint(0, 2)):
                if len(live) > 1:
                    live.pop(-1 if stack else rng.randrange(len(live)))
            while len(live) > 6:
                live.pop(-1 if stack else 0)
            result.append({"query": list(live)})
    return {"histories": [result]}


def random_family(targets, keys, slots):
    alive = np.random.default_rng(targets).random((targets, keys)) < 0.5
    rows = tuple(tuple(np.flatnonzero(row).tolist()) for row in alive)
    return Family(tuple(map(str, range(keys))), rows, slots)


def assert_certified(spec, *found, file):
    certificates = Certificates(spec)
    for one in found:
        certificates.add_fpa(one)
    certificates.write(file)
    verdicts = exact.verify_file(str(file))
    assert [v.statement for v in verdicts if not v.accepted] == []


@pytest.mark.parametrize("events", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stack", [True, False])
def test_long_histories(tmp_path, events, stack):
    (tmp_path / "history.json").write_text(json.dumps(long_history(events, stack)))
    spec = load(str(tmp_path / "history.json"))
    free, walk = family_decision(spec), walk_decision(spec)
    assert isinstance(free, Levels)
    assert isinstance(walk, Heights if stack else Crossing)
    assert_certified(spec, free, walk, file=tmp_path / "certificate.json")


@pytest.mark.parametrize(("targets", "keys"), [(1000, 200), pytest.param(10_000, 1000, marks=pytest.mark.slow)])
def test_large_families(tmp_path, targets, keys):
    for slots, kind in ((tuple(range(keys)), Levels), ((keys - 1,), Cycle), (tuple(range(1, keys, 2)), Cycle)):
        spec = random_family(targets, keys, slots)
        found = family_decision(spec)
        assert isinstance(found, kind)
        assert_certified(spec, found, walk_decision(spec), file=tmp_path / "certificate.json")


# VmHWM, where there is /proc, starts anew with the program; ru_maxrss may also count the parent, this test process.
MEASURE = """
import re, resource, sys
from pathlib import Path
from proofs_check.bounds.family_decision import family_decision
from proofs_check.bounds.walk_is_a_stack import walk_decision
from proofs_check.keysets import load
spec = load(sys.argv[1])
print(type(family_decision(spec)).__name__, type(walk_decision(spec)).__name__)
status = Path("/proc/self/status")
peak = re.search(r"VmHWM:\\s*(\\d+) kB", status.read_text())[1] if status.exists() else None
print(peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)  # bytes where there is no /proc
"""


@pytest.mark.slow
def test_a_million_events_fit_in_two_gibibytes(tmp_path):
    file = tmp_path / "history.json"
    file.write_text(json.dumps(long_history(1_000_000, True)))
    done = subprocess.run([sys.executable, "-c", MEASURE, str(file)], capture_output=True, text=True, check=True)
    names, kib = done.stdout.split("\n")[:2]
    assert names == "Levels Heights"
    assert int(kib) < 2 * 2**20


def test_a_deep_chain_does_not_recurse(tmp_path):
    """Every history adds one edge; the order has 3,000 levels, the last history closes a cycle."""
    n = 3000
    edges = [[{"push": f"k{k}"}, {"push": f"k{k + 1}"}, {"query": [f"k{k}"]}] for k in range(n - 1)]
    for histories, kind in (
        (edges, Levels),
        ([*edges, [{"push": "k2999"}, {"push": "k0"}, {"query": ["k2999"]}]], Cycle),
    ):
        (tmp_path / "chain.json").write_text(json.dumps({"histories": histories}))
        found = family_decision(load(str(tmp_path / "chain.json")))
        assert isinstance(found, kind)
        if isinstance(found, Levels):
            assert sorted(found.levels.tolist()) == list(range(1, n + 1))
        else:
            assert len(found.steps) == n
