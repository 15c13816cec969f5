"""Real drivers with real workers, killed at random moments: what is stored stays, and the rest is computed alike."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweeps_fakes import make_plan, quick_unit

from lab.sweeps import InlineExecutor, Store, StoreError, export, run

DRIVE = Path(__file__).with_name("drive.py")


def start(path: Path, seconds: float) -> subprocess.Popen:
    environment = {**os.environ, "FAKE_SECONDS": str(seconds)}
    return subprocess.Popen(
        [sys.executable, DRIVE, path, "slow_unit", "2"], env=environment, stdout=subprocess.PIPE, text=True
    )


def stored(path: Path) -> int:
    """Finished units that a reader sees; none when there is no store yet."""
    try:
        with Store(path, write=False) as store:
            return store.rows("SELECT count(*) FROM units")[0][0]
    except StoreError:  # not yet, or not yet whole
        return 0


def published(path: Path, out: Path) -> dict[str, bytes]:
    with Store(path) as store:
        [folder] = export(store, ["fake"], out)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    with Store(folder / "lab.sqlite") as store:
        run(make_plan(), store, InlineExecutor(), run_unit=quick_unit)
    return published(folder / "lab.sqlite", folder / "out")


def test_killed_at_random_moments_and_resumed(tmp_path, uninterrupted):
    moments = random.Random()  # the moments differ from run to run; what must hold does not
    path = tmp_path / "lab.sqlite"
    before = 0
    for _ in range(4):
        driver = start(path, seconds=0.2)
        wait_until(lambda least=before: stored(path) > least)
        time.sleep(moments.uniform(0, 0.15))
        driver.kill()
        driver.communicate()
        assert driver.returncode == -signal.SIGKILL
        after = stored(path)
        assert after > before
        before = after
    assert before < 24  # otherwise the last kill came too late to prove anything
    driver = start(path, seconds=0)
    output, _ = driver.communicate(timeout=30)
    assert driver.returncode == 0
    assert output.strip() == f"{24 - before} computed, {before} reused, 0 failed"
    assert published(path, tmp_path / "out") == uninterrupted


def test_killed_while_starting(tmp_path, uninterrupted):
    """From the first import to the first stored unit: whatever file is left behind, the next driver takes it up."""
    path = tmp_path / "lab.sqlite"
    for delay in (0.25, 0.4, 0.55):
        driver = start(path, seconds=0.5)
        time.sleep(delay)
        driver.kill()
        driver.communicate()
    with Store(path) as store:
        run(make_plan(), store, InlineExecutor(), run_unit=quick_unit)
    assert published(path, tmp_path / "out") == uninterrupted


def test_ctrl_c_stops_promptly_and_keeps_finished_units(tmp_path, uninterrupted):
    path = tmp_path / "lab.sqlite"
    driver = start(path, seconds=0.2)
    wait_until(lambda: stored(path) >= 3)
    driver.send_signal(signal.SIGINT)
    begin = time.monotonic()
    output, _ = driver.communicate(timeout=10)
    assert time.monotonic() - begin < 3
    assert driver.returncode == 130
    kept = stored(path)
    assert 3 <= kept < 24
    assert output.strip() == f"{kept} computed, 0 reused, 0 failed, {24 - kept} left"
    with Store(path) as store:
        report = run(make_plan(), store, InlineExecutor(), run_unit=quick_unit)
    assert (report.computed, report.reused) == (24 - kept, kept)
    assert published(path, tmp_path / "out") == uninterrupted


def wait_until(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.03)
