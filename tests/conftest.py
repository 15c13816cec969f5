"""Shared by every test: drawn examples are the same on every run and machine, and compiling is no reason to fail."""

import signal

import pytest
from hypothesis import settings

from lab.sweeps import kept

# A shell starts what it runs in the background deaf to Ctrl-C, and so would be the sweeps that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("lab", derandomize=True, deadline=None, max_examples=50)
settings.load_profile("lab")


@pytest.fixture(autouse=True, scope="session")
def computed_by_these_tests(tmp_path_factory):
    """What tests compare with what they compute was not kept by an earlier run."""
    kept.FOLDER = tmp_path_factory.mktemp("kept")
