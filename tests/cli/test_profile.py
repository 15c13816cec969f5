"""`--profile`: phases that add up to the measured total, from this process and from workers; `sweep --json`."""

import json
import time

import pytest

import experiments
from lab.cli import sweeps
from lab.profiling import OTHER, PHASES, Timers, shares
from lab.sweeps import InlineExecutor, LocalExecutor, Store, run

TRAIN = ["train", "--task", "subset-drop", "--head", "fpa-walk-tied", "--seeds", "2", "--steps", "30"]


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", {**experiments.EXPERIMENTS, "tiny": "cli_tiny_experiment"})


def fail_after(seconds: float) -> None:
    time.sleep(seconds)
    raise ZeroDivisionError


def test_timers_measure_what_runs_inside_them_and_count_on_after_an_error():
    timers = Timers()
    start = time.perf_counter()
    with timers("data"):
        time.sleep(0.02)
    once = timers.seconds["data"]
    assert 0.02 <= once <= time.perf_counter() - start
    with pytest.raises(ZeroDivisionError), timers("data"):
        fail_after(0.02)
    assert timers.seconds["data"] >= once + 0.02
    with pytest.raises(KeyError), timers("daat"):
        pass
    other = Timers()
    other.add(timers.seconds)
    other.add({"data": 1.0})
    assert other.seconds["data"] == timers.seconds["data"] + 1.0
    assert sum(seconds for phase, seconds in other.seconds.items() if phase != "data") == 0


def test_train_says_where_the_time_went(fpa_lab):
    start = time.perf_counter()
    found = json.loads(fpa_lab(*TRAIN, "--profile", "--json").out)["profile"]
    waited = time.perf_counter() - start
    assert list(found) == [*PHASES, OTHER]
    assert all(seconds >= 0 for seconds in found.values())
    assert found["store"] == 0
    assert all(found[phase] > 0 for phase in PHASES if phase != "store")
    assert 0 < sum(found.values()) <= waited
    table = fpa_lab(*TRAIN, "--profile").out
    names = tuple(f" {phase} " for phase in (*found, "total"))
    *lines, total = [line.split() for line in table.splitlines() if line.startswith(names)]
    assert sum(float(line[-2]) for line in lines) == pytest.approx(float(total[-1]), abs=0.005)
    assert sum(float(line[-1].rstrip("%")) for line in lines) == pytest.approx(100, abs=0.5)


def test_without_profile_nothing_is_said_of_time(fpa_lab):
    assert "profile" not in json.loads(fpa_lab(*TRAIN, "--json").out)
    assert "share" not in fpa_lab(*TRAIN).out


@pytest.mark.parametrize("workers", [1, 2])
def test_a_sweep_collects_the_time_of_its_workers(tmp_path, workers):
    """Two units in worker processes; the same results as without asking, and the phases they measured."""
    plan = sweeps.plan_of("tiny", "quick")
    with Store(tmp_path / "lab.sqlite") as store:
        start = time.perf_counter()
        report = run(plan, store, LocalExecutor(workers), run_unit="lab.training:run_cell")
        waited = time.perf_counter() - start
    found = report.profile()
    assert list(found) == [*PHASES, OTHER]
    assert all(found[phase] > 0 for phase in PHASES)
    assert found[OTHER] > 0  # starting the workers at least
    assert 0 < sum(found.values()) == pytest.approx(report.worker_seconds)
    assert report.worker_seconds <= workers * waited


def test_sweep_prints_it_and_puts_it_into_the_document(fpa_lab, monkeypatch):
    monkeypatch.setattr(sweeps, "_executor", lambda *given: (InlineExecutor(), "lab.training:run_cell"))
    assert "share" not in fpa_lab("sweep", "tiny", "--store", "first.sqlite").out
    shown = fpa_lab("sweep", "tiny", "--profile", "--store", "second.sqlite").out
    assert shown.startswith("tiny quick: 2 computed, 0 reused, 0 failed\n")
    assert all(f" {phase} " in shown for phase in (*PHASES, OTHER, "total"))
    (document,) = json.loads(fpa_lab("sweep", "tiny", "--profile", "--json", "--store", "third.sqlite").out)
    counts = {"total": 2, "computed": 2, "reused": 0, "failed": 0, "remaining": 0}
    assert document == {"experiment": "tiny", "preset": "quick", **counts, "profile": document["profile"]}
    assert document["profile"]["forward and backward"] > 0
    (again,) = json.loads(fpa_lab("sweep", "tiny", "--json", "--store", "third.sqlite").out)
    assert again == {"experiment": "tiny", "preset": "quick", **counts, "computed": 0, "reused": 2}
    (planned,) = json.loads(fpa_lab("sweep", "tiny", "--dry-run", "--json", "--store", "third.sqlite").out)
    assert (planned["units"], planned["stored"], planned["to compute"]) == (2, 2, 0)


def test_shares_add_up_also_when_workers_overlap():
    found = shares({"data": 1.0, "store": 0.5}, 4.0)
    assert found == {"data": 1.0, "store": 0.5, OTHER: 2.5}
