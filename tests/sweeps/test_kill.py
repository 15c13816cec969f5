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

from lab.sweeps import InlineExecutor, Plan, Store, StoreError, export, run

DRIVE = Path(__file__).with_name("drive.py")


def start(path: Path, seconds: float = 0.0, unit: str = "slow_unit", **settings: str) -> subprocess.Popen:
    """A driver with two workers, each unit of which takes so many seconds."""
    environment = {**os.environ, "FAKE_SECONDS": str(seconds), "FAKE_FOLDER": str(path.parent), **settings}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, DRIVE, path, unit, "2"], env=environment, **pipes)


HELD = 3  # units of dimension 1, with which the plan begins; the next two are held


def start_held(path: Path) -> tuple[subprocess.Popen, Path]:
    """A driver that has done HELD of its 24 units and is at work on two more until the file is deleted."""
    hold = path.parent / "hold"
    hold.touch()
    driver = start(path, unit="held_unit")
    wait_until(lambda: stored(path) == HELD)
    return driver, hold


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


def uninterrupted(plan: Plan, folder: Path) -> dict[str, bytes]:
    """What a sweep publishes that nothing disturbed."""
    with Store(folder / "uninterrupted.sqlite") as store:
        run(plan, store, InlineExecutor(), run_unit=quick_unit)
    return published(folder / "uninterrupted.sqlite", folder / "uninterrupted")


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_again_and_again(tmp_path, kills):
    """At any moment of a driver's life, starting and ending included: no unit is lost, halved or computed anew."""
    plan, path = make_plan(seeds=16 * kills), tmp_path / "lab.sqlite"
    moments = random.Random()  # they differ from run to run; what must hold does not
    before: set[str] = set()
    for kill in range(kills):
        driver = start(path, 0.1, FAKE_SEEDS=str(len(plan.seeds)))
        if kill % 2:  # once it computes, however long this machine takes to get there; the others at any moment
            wait_until(lambda known=before: stored(path) > len(known))
        time.sleep(moments.uniform(0, 0.6))
        driver.kill()
        driver.communicate()
        assert driver.returncode == -signal.SIGKILL
        after = check_whole_units(path, plan)
        assert before < after if kill % 2 else before <= after
        before = after
    assert len(before) < len(plan.units())  # otherwise the last kill came too late to prove anything
    driver = start(path, FAKE_SEEDS=str(len(plan.seeds)))
    output, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0
    assert output.strip() == f"{len(plan.units()) - len(before)} computed, {len(before)} reused, 0 failed"
    assert published(path, tmp_path / "out") == uninterrupted(plan, tmp_path)


def check_whole_units(path: Path, plan: Plan) -> set[str]:
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


def test_a_second_driver_is_told_who_is_at_work_and_disturbs_nothing(tmp_path):
    path = tmp_path / "lab.sqlite"
    first, hold = start_held(path)
    second = start(path)
    out, err = second.communicate(timeout=60)
    assert (second.returncode, out) == (1, "")
    said = f"{path}: another sweep (process {first.pid} on {socket.gethostname()}) is writing to it"
    assert err.strip().splitlines()[-1] == f"lab.sweeps.store_file.StoreError: {said}; wait for it or stop it"
    hold.unlink()
    out, _ = first.communicate(timeout=60)
    assert out.strip() == "24 computed, 0 reused, 0 failed"
    assert published(path, tmp_path / "out") == uninterrupted(make_plan(), tmp_path)


def test_two_drivers_that_start_together_share_nothing(tmp_path):
    """On a store that neither has made yet: one computes everything, the other nothing."""
    path, hold = tmp_path / "lab.sqlite", tmp_path / "hold"
    hold.touch()
    drivers = [start(path, unit="held_unit"), start(path, unit="held_unit")]
    wait_until(lambda: any(driver.poll() is not None for driver in drivers))
    hold.unlink()
    ends = [driver.communicate(timeout=60) for driver in drivers]
    assert sorted(driver.returncode for driver in drivers) == [0, 1]
    assert sorted(out.strip() for out, _ in ends) == ["", "24 computed, 0 reused, 0 failed"]
    assert published(path, tmp_path / "out") == uninterrupted(make_plan(), tmp_path)


def test_clocks_that_are_wrong_and_run_backwards(tmp_path):
    """A driver in 2100, the next one in 1990 with its clock running backwards, files from the future."""
    path = tmp_path / "lab.sqlite"
    driver = start(path, 0.1, FAKE_CLOCK="2.3e9 1")
    wait_until(lambda: stored(path) >= 4)
    driver.kill()
    driver.communicate()
    kept = stored(path)
    for file in tmp_path.glob("lab.sqlite*"):
        os.utime(file, (4e9, 4e9))
    later = start(path, FAKE_CLOCK="-1.2e9 -3")
    out, err = later.communicate(timeout=60)
    assert out.strip() == f"{24 - kept} computed, {kept} reused, 0 failed", err
    with Store(path, write=False) as store:
        assert [seconds for (seconds,) in store.rows("SELECT seconds FROM units") if not 0 <= seconds < 60] == []
        hosts = store.rows("SELECT process FROM drivers ORDER BY number")
    assert hosts == [(driver.pid,), (later.pid,)]
    assert published(path, tmp_path / "out") == uninterrupted(make_plan(), tmp_path)


def test_killed_while_starting(tmp_path):
    """From the first import to the first stored unit: whatever file is left behind, the next driver takes it up."""
    path = tmp_path / "lab.sqlite"
    for delay in (0.25, 0.4, 0.55):
        driver = start(path, seconds=0.5)
        time.sleep(delay)
        driver.kill()
        driver.communicate()
    with Store(path) as store:
        run(make_plan(), store, InlineExecutor(), run_unit=quick_unit)
    assert published(path, tmp_path / "out") == uninterrupted(make_plan(), tmp_path)


def test_ctrl_c_stops_at_once_and_keeps_finished_units(tmp_path):
    """At once: not when the two units at work end, which is never."""
    path = tmp_path / "lab.sqlite"
    driver, _ = start_held(path)
    driver.send_signal(signal.SIGINT)
    output, _ = driver.communicate(timeout=30)
    assert driver.returncode == 130
    assert stored(path) == HELD
    assert output.strip() == f"{HELD} computed, 0 reused, 0 failed, {24 - HELD} left"
    with Store(path) as store:
        report = run(make_plan(), store, InlineExecutor(), run_unit=quick_unit)
    assert (report.computed, report.reused) == (24 - HELD, HELD)
    assert published(path, tmp_path / "out") == uninterrupted(make_plan(), tmp_path)


def wait_until(condition, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.03)
