"""What tests of other processes wait for, and read when it is there."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.sweeps import Store, StoreError, export


def wait_until(condition: Callable[[], bool], *drivers: subprocess.Popen, seconds: float = 60.0) -> None:
    """Fails at once, with its last words, when one of the drivers ends before."""
    end = time.monotonic() + seconds
    while not condition():
        for driver in drivers:
            if driver.poll() is not None and not condition():
                pytest.fail(f"the driver ended with {driver.returncode}: {driver.communicate()}")
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def stored(path: Path) -> int:
    """Finished units that a reader sees; none when there is no store yet."""
    try:
        with Store(path, write=False) as store:
            return store.rows("SELECT count(*) FROM units")[0][0]
    except StoreError:  # not yet, or not yet whole
        return 0


def published(store: Store, out: Path) -> dict[str, bytes]:
    """The files that the fake experiment is exported to, by name."""
    [folder] = export(store, ["fake"], out)
    return {file.name: file.read_bytes() for file in folder.iterdir()}
