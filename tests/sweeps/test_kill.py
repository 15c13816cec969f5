"""Real drivers with real workers, killed at random moments: what is stored stays, and the rest is computed alike."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sweeps_fakes import make_plan, quick_unit

from lab.sweeps import InlineExecutor, Store, StoreError, export, run

DRIVE = Path(__file__).with_name("drive.py")


def start(path: Path, seconds: float, **settings: str) -> subprocess.Popen:
    environment = {**os.environ, "FAKE_SECONDS": str(seconds), **settings}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, DRIVE, path, "slow_unit", "2"], env=environment, **pipes)


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


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_again_and_again(tmp_path, kills):
    """At any moment of a driver's life, starting and ending included: no unit is lost, halved or computed anew."""
    plan, path = make_plan(seeds=16 * kills), tmp_path / "lab.sqlite"
    moments = random.Random()
    before: set[str] = set()
    known = 0
    for _ in range(kills):
        driver = start(path, 0.1, FAKE_SEEDS=str(len(plan.seeds)))
        if moments.random() < 0.5:  # half of them once they compute, however long this machine takes to get there
            wait_until(lambda least=known: stored(path) > least)
        time.sleep(moments.uniform(0, 0.6))
        driver.kill()
        driver.communicate()
        assert driver.returncode == -signal.SIGKILL
        after = check_whole_units(path, plan)
        assert before <= after
        before, known = after, len(after)
    assert 0 < len(before) < len(plan.units())
    driver = start(path, 0, FAKE_SEEDS=str(len(plan.seeds)))
    output, _ = driver.communicate(timeout=300)
    assert output.strip() == f"{len(plan.units()) - len(before)} computed, {len(before)} reused, 0 failed"
    assert before < check_whole_units(path, plan)


def check_whole_units(path: Path, plan) -> set[str]:
    """The units of a store, each with all of its rows and those of no other; the file is sound."""
    if not path.exists():
        return set()
    with Store(path) as store:
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        units = {unit.id: unit for unit in plan.units()}
        stored = {unit: json.loads(seeds) for unit, seeds in store.rows("SELECT unit, seeds FROM units")}
        assert all(units[unit].seeds == tuple(seeds) for unit, seeds in stored.items())
        seeds = sum(map(len, stored.values()))
        for table, rows in (("done", 1), ("evaluations", 4), ("parameters", 3), ("curves", 1)):
            assert store.rows(f"SELECT count(*) FROM {table}") == [(rows * seeds,)]
        assert store.rows("SELECT count(*) FROM files") == [(2 * len(stored),)]
    return set(stored)


def test_a_second_driver_is_told_who_is_at_work_and_disturbs_nothing(tmp_path, uninterrupted):
    path = tmp_path / "lab.sqlite"
    first = start(path, 0.2)
    wait_until(lambda: stored(path) >= 2)
    second = start(path, 0)
    out, err = second.communicate(timeout=30)
    assert (second.returncode, out) == (1, "")
    said = f"{path}: another sweep (process {first.pid} on {socket.gethostname()}) is writing to it"
    assert err.strip().splitlines()[-1] == f"lab.sweeps.store_file.StoreError: {said}; wait for it or stop it"
    out, _ = first.communicate(timeout=60)
    assert out.strip() == "24 computed, 0 reused, 0 failed"
    assert published(path, tmp_path / "out") == uninterrupted


def test_two_drivers_that_start_together_share_nothing(tmp_path, uninterrupted):
    """On a store that neither has made yet: one computes everything, the other nothing."""
    path = tmp_path / "lab.sqlite"
    drivers = [start(path, 0.1), start(path, 0.1)]
    ends = [driver.communicate(timeout=60) for driver in drivers]
    assert sorted(driver.returncode for driver in drivers) == [0, 1]
    assert sorted(out.strip() for out, _ in ends) == ["", "24 computed, 0 reused, 0 failed"]
    assert published(path, tmp_path / "out") == uninterrupted


def test_clocks_that_are_wrong_and_run_backwards(tmp_path, uninterrupted):
    """A driver in 2100, the next one in 1990 with its clock running backwards, files from the future."""
    path = tmp_path / "lab.sqlite"
    driver = start(path, 0.1, FAKE_CLOCK="2.3e9 1")
    wait_until(lambda: stored(path) >= 4)
    driver.kill()
    driver.communicate()
    kept = stored(path)
    for file in tmp_path.glob("lab.sqlite*"):
        os.utime(file, (4e9, 4e9))
    later = start(path, 0, FAKE_CLOCK="-1.2e9 -3")
    out, err = later.communicate(timeout=60)
    assert out.strip() == f"{24 - kept} computed, {kept} reused, 0 failed", err
    with Store(path, write=False) as store:
        assert [seconds for (seconds,) in store.rows("SELECT seconds FROM units") if not 0 <= seconds < 60] == []
        hosts = store.rows("SELECT process FROM drivers ORDER BY number")
    assert hosts == [(driver.pid,), (later.pid,)]
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
