import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sweeps_fakes
from sweeps_fakes import make_plan, quick_unit
from sweeps_waiting import wait_until

from lab.errors import InputError
from lab.sweeps import InlineExecutor, LocalExecutor, Unit
from lab.sweeps.executors import available_cores

DRIVE = Path(__file__).with_name("drive.py")


def outcomes(executor, unit_function, units):
    """The last update of every unit, and all kinds in order."""
    updates = []
    executor.run(unit_function, units, updates.append)
    ends = [update for update in updates if update.kind in ("done", "failed")]
    assert sorted(update.unit.id for update in ends) == sorted(unit.id for unit in units)  # exactly one each
    return {update.unit.id: update for update in ends}, [update.kind for update in updates]


def equal(left, right) -> bool:
    return (
        left.evaluations == right.evaluations
        and (left.curves.excess_loss == right.curves.excess_loss).all()
        and left.weights == right.weights
    )


@pytest.mark.parametrize("executor", [InlineExecutor(), LocalExecutor(2)])
def test_results_arrive_as_they_were_computed(executor):
    units = make_plan().units()[:6]
    ends, kinds = outcomes(executor, quick_unit, units)
    assert all(equal(ends[unit.id].result, quick_unit(unit.cell, unit.seeds)) for unit in units)
    assert kinds.count("started") == 6


@pytest.mark.parametrize("executor", [InlineExecutor(), LocalExecutor(1)])
def test_a_unit_that_raises_is_a_traceback(executor):
    units = make_plan().units()
    ends, _ = outcomes(executor, sweeps_fakes.failing_unit, units)
    for unit in units:
        end = ends[unit.id]
        assert end.kind == ("failed" if unit.cell.head.dim == 2 else "done")
        if end.kind == "failed":
            assert f"RuntimeError: no luck with seeds {unit.seeds}" in end.traceback
            assert "failing_unit" in end.traceback


def test_workers_have_one_thread_and_a_stdout_of_their_own():
    ends, _ = outcomes(LocalExecutor(1), sweeps_fakes.threads_unit, make_plan().units()[:2])
    assert [end.kind for end in ends.values()] == ["done", "done"]


def test_a_unit_function_that_is_not_there_fails_every_unit():
    ends, _ = outcomes(LocalExecutor(1), "sweeps_fakes:no_such_unit", make_plan().units()[:2])
    assert all("no_such_unit" in end.traceback for end in ends.values())


def test_functions_that_workers_cannot_import_are_refused():
    with pytest.raises(TypeError, match="define it at the top of a module"):
        LocalExecutor(1).run(lambda cell, seeds, progress: None, make_plan().units()[:1], print)


def test_a_dying_worker_fails_its_own_unit_alone():
    plan = make_plan(seeds=1)
    units = [Unit(cell, (0,)) for cell in plan.cells if cell.recipe.learning_rate == 0.05]
    ends, kinds = outcomes(LocalExecutor(2), sweeps_fakes.dying_unit, units)
    for unit in units:
        end = ends[unit.id]
        assert end.kind == ("failed" if unit.cell.head.dim == 2 else "done")
        if end.kind == "failed":
            assert "killed by SIGKILL (out of memory?)" in end.traceback
            assert "last words" in end.traceback
    assert kinds.count("started") == 2 + 2 * 2  # every death is given a second chance


def test_a_unit_whose_worker_died_once_succeeds(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_FOLDER", str(tmp_path))
    units = make_plan().units()[:3]
    ends, kinds = outcomes(LocalExecutor(1), sweeps_fakes.once_dying_unit, units)
    assert {end.kind for end in ends.values()} == {"done"}
    assert kinds.count("started") == 4


def test_an_answer_that_the_driver_cannot_read_fails_its_own_unit_alone(monkeypatch):
    """The worker is well, and would wait for more for ever."""
    monkeypatch.setattr("lab.sweeps.executors.STOP_SECONDS", 0.2)
    units = [Unit(cell, (0,)) for cell in make_plan(seeds=1).cells if cell.recipe.learning_rate == 0.05]
    found = []
    sweep = threading.Thread(
        target=lambda: found.append(outcomes(LocalExecutor(1), sweeps_fakes.unreadable_unit, units)), daemon=True
    )
    sweep.start()
    sweep.join(60)
    assert not sweep.is_alive()
    [(ends, _)] = found
    for unit in units:
        end = ends[unit.id]
        assert end.kind == ("failed" if unit.cell.head.dim == 2 else "done")
        if end.kind == "failed":
            assert end.traceback == "the worker process was stopped: its answer could not be read: MemoryError"


def test_a_worker_that_closes_its_pipe_and_lives_on_is_ended(monkeypatch):
    """As while a core dump is written."""
    monkeypatch.setattr("lab.sweeps.executors.STOP_SECONDS", 0.2)
    [unit] = make_plan(seeds=1).units()[:1]
    ends, _ = outcomes(LocalExecutor(1), sweeps_fakes.lingering_unit, [unit])
    assert ends[unit.id].traceback == "the worker process was stopped: it closed its pipe and did not end"


def test_an_exception_of_the_driver_ends_the_workers(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_FOLDER", str(tmp_path))
    started = []

    def report(update):
        started.append(update.unit.id)
        if len(started) == 2:
            wait_until(lambda: len(os.listdir(tmp_path)) == 2)
            raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        LocalExecutor(2).run(sweeps_fakes.endless_unit, make_plan().units(), report)
    assert not any(alive(int(process)) for process in os.listdir(tmp_path))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_driver(tmp_path, sent):
    command = [sys.executable, DRIVE, tmp_path / "lab.sqlite", "endless_unit", "2"]
    (tmp_path / "pids").mkdir()
    environment = {**os.environ, "FAKE_FOLDER": str(tmp_path / "pids")}
    driver = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    workers: list[int] = []
    try:
        wait_until(lambda: len(os.listdir(tmp_path / "pids")) == 2)
        workers += map(int, os.listdir(tmp_path / "pids"))
        assert all(alive(worker) for worker in workers)
        driver.send_signal(sent)
        driver.wait(30)
        wait_until(lambda: not any(alive(worker) for worker in workers))
    finally:
        driver.kill()
        driver.communicate()
        for worker in filter(alive, workers):
            os.kill(worker, signal.SIGKILL)


def test_the_number_of_workers():
    assert LocalExecutor().workers == available_cores() >= 1
    with pytest.raises(InputError, match="workers: 0: expected at least 1"):
        LocalExecutor(0)


def alive(process: int) -> bool:
    """Running, and not merely unburied: a container may have nobody to bury orphans."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
