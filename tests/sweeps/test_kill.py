"""Real drivers with real workers, killed or interrupted: what is stored stays, and the rest is computed alike."""

import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sweeps_fakes import make_plan, quick_unit
from sweeps_waiting import published, stored, wait_until

from lab.sweeps import InlineExecutor, Plan, Store, StoreError, run

DRIVE = Path(__file__).with_name("drive.py")
HELD = 3  # units of dimension 1, with which the plan begins: a driver of `held_unit` computes them, and waits


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "lab.sqlite"


@pytest.fixture
def hold(tmp_path) -> Path:
    """Deleted, it lets a driver of `held_unit` go on."""
    file = tmp_path / "hold"
    file.touch()
    return file


@pytest.fixture
def start(path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts a driver of two workers, whose units take so many seconds. None outlives the test."""
    drivers = []

    def start(seconds: float = 0.0, unit: str = "slow_unit", **settings: str) -> subprocess.Popen:
        environment = {**os.environ, "FAKE_SECONDS": str(seconds), "FAKE_FOLDER": str(path.parent), **settings}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        drivers.append(subprocess.Popen([sys.executable, DRIVE, path, unit, "2"], env=environment, **pipes))
        return drivers[-1]

    yield start
    for driver in drivers:
        kill(driver)


def kill(driver: subprocess.Popen) -> None:
    driver.kill()
    driver.communicate()


def assert_as_if_nothing_had_happened(path: Path, plan: Plan) -> None:
    """What the store publishes is what a sweep does that nothing disturbed."""
    calm = path.with_name("calm.sqlite")
    with Store(calm) as store, Store(path) as disturbed:
        run(plan, store, InlineExecutor(), run_unit=quick_unit)
        assert published(disturbed, path.with_name("out")) == published(store, path.with_name("calm"))


def assert_ends(driver: subprocess.Popen, said: str, seconds: float = 60.0) -> None:
    out, err = driver.communicate(timeout=seconds)
    assert driver.returncode == 0, err
    assert out.strip() == said


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_again_and_again(path, start, kills):
    """At random moments, every second of them after some unit is stored: none is lost, halved or computed anew."""
    plan, moments = make_plan(seeds=16 * kills), random.Random()  # what must hold is the same at every moment
    before: set[str] = set()
    for number in range(kills):
        driver = start(0.1, FAKE_SEEDS=str(len(plan.seeds)))
        if number % 2:
            wait_until(lambda known=before: stored(path) > len(known), driver)
        time.sleep(moments.uniform(0, 0.6))
        kill(driver)
        assert driver.returncode == -signal.SIGKILL
        after = check_whole_units(path, plan)
        assert before < after if number % 2 else before <= after
        before = after
    assert len(before) < len(plan.units())  # otherwise the last kill came too late to prove anything
    driver = start(FAKE_SEEDS=str(len(plan.seeds)))
    assert_ends(driver, f"{len(plan.units()) - len(before)} computed, {len(before)} reused, 0 failed", 300)
    assert_as_if_nothing_had_happened(path, plan)


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


@pytest.mark.parametrize("file", ["lab.sqlite", "lab.sqlite-wal", "lab.sqlite-driver"])
def test_killed_while_the_store_is_made(path, start, file):
    """As soon as there is each of its files: the next driver takes up whatever is left behind."""
    driver = start(60)
    wait_until(path.with_name(file).exists, driver)
    kill(driver)
    assert driver.returncode == -signal.SIGKILL
    assert path.with_name(file).exists()
    assert stored(path) == 0
    assert_ends(start(), "24 computed, 0 reused, 0 failed")
    assert_as_if_nothing_had_happened(path, make_plan())


def test_killed_when_all_is_stored(path, start):
    driver = start()
    wait_until(lambda: stored(path) == 24)  # it may have ended by itself before it is killed
    kill(driver)
    assert driver.returncode in (0, -signal.SIGKILL)
    assert_ends(start(), "0 computed, 24 reused, 0 failed")
    assert_as_if_nothing_had_happened(path, make_plan())


def test_a_second_driver_is_told_who_is_at_work_and_disturbs_nothing(path, start, hold):
    first = start(unit="held_unit")
    wait_until(lambda: stored(path) == HELD, first)
    second = start()
    out, err = second.communicate(timeout=60)
    assert (second.returncode, out) == (1, "")
    said = f"{path}: another sweep (process {first.pid} on {socket.gethostname()}) is writing to it"
    assert err.strip().splitlines()[-1] == f"lab.sweeps.store_file.StoreError: {said}; wait for it or stop it"
    hold.unlink()
    assert_ends(first, "24 computed, 0 reused, 0 failed")
    assert_as_if_nothing_had_happened(path, make_plan())


def test_two_drivers_that_start_together_share_nothing(path, start, hold):
    """On a store that neither has made yet: one computes everything, the other nothing."""
    drivers = [start(unit="held_unit"), start(unit="held_unit")]
    wait_until(lambda: any(driver.poll() is not None for driver in drivers))
    [second] = [driver for driver in drivers if driver.poll() is not None]
    _, err = second.communicate()
    assert second.returncode == 1
    assert err.strip().splitlines()[-1].startswith(f"lab.sweeps.store_file.StoreError: {path}: another sweep"), err
    hold.unlink()
    [first] = [driver for driver in drivers if driver is not second]
    assert_ends(first, "24 computed, 0 reused, 0 failed")
    assert_as_if_nothing_had_happened(path, make_plan())


def _make_stores(folder: Path, count: int, barrier, errors) -> None:
    for number in range(count):
        barrier.wait(60)
        try:
            Store(folder / f"{number}.sqlite").close()
        except StoreError as error:
            errors.put(str(error))
    errors.put("")


def test_processes_that_make_one_store_at_the_same_time_all_have_it(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, errors = context.Barrier(2), context.Queue()
    makers = [context.Process(target=_make_stores, args=(tmp_path, 30, barrier, errors)) for _ in range(2)]
    for maker in makers:
        maker.start()
    assert [errors.get(timeout=60), errors.get(timeout=60)] == ["", ""]
    for maker in makers:
        maker.join()


def test_clocks_that_are_wrong_and_run_backwards(path, start, hold):
    """A driver in 2100, the next one in 1990 with its clock running backwards, files from the future."""
    driver = start(unit="held_unit", FAKE_CLOCK="2.3e9 1")
    wait_until(lambda: stored(path) == HELD, driver)
    kill(driver)
    for file in path.parent.glob("lab.sqlite*"):
        os.utime(file, (4e9, 4e9))
    later = start(FAKE_CLOCK="-1.2e9 -3")
    assert_ends(later, f"{24 - HELD} computed, {HELD} reused, 0 failed")
    with Store(path, write=False) as store:
        assert [seconds for (seconds,) in store.rows("SELECT seconds FROM units") if not 0 <= seconds < 60] == []
        hosts = store.rows("SELECT process FROM drivers ORDER BY number")
    assert hosts == [(driver.pid,), (later.pid,)]
    assert_as_if_nothing_had_happened(path, make_plan())


def test_ctrl_c_stops_at_once_and_keeps_finished_units(path, start, hold):
    """At once: not when the units at work end, which is never."""
    driver = start(unit="held_unit")
    wait_until(lambda: stored(path) == HELD, driver)
    driver.send_signal(signal.SIGINT)
    out, err = driver.communicate(timeout=30)
    assert driver.returncode == 130, err
    assert stored(path) == HELD
    assert out.strip() == f"{HELD} computed, 0 reused, 0 failed, {24 - HELD} left"
    assert_ends(start(), f"{24 - HELD} computed, {HELD} reused, 0 failed")
    assert_as_if_nothing_had_happened(path, make_plan())
