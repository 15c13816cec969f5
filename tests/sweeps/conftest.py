"""Makes `sweeps_fakes` importable here and in the worker processes that tests start, and `sweeps_waiting` here."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import sweeps_fakes

from lab.sweeps import Plan, Store


@pytest.fixture
def plan() -> Plan:
    return sweeps_fakes.make_plan()


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "lab.sqlite") as opened:
        yield opened
