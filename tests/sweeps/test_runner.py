import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import sweeps_fakes
from sweeps_fakes import make_plan, quick_unit

import lab.training
from lab.errors import InputError
from lab.sweeps import InlineExecutor, Interrupted, LocalExecutor, Plan, Store, run, status
from lab.sweeps.unit import run_unit


def totals(rows) -> dict[str, int]:
    return {name: sum(getattr(row, name) for row in rows) for name in ("done", "failed", "missing")}


def counts(report):
    return report.computed, report.reused, report.failed, report.remaining


def test_what_is_stored_is_not_computed_again(store):
    seen = []

    def watched(cell, seeds, progress):
        seen.extend((cell.id, seed) for seed in seeds)
        return quick_unit(cell, seeds)

    plan = make_plan(seeds=8)
    first = replace(plan, cells=plan.cells[:5])
    assert counts(run(first, store, InlineExecutor(), run_unit=watched)) == (10, 0, 0, 0)
    assert counts(run(plan, store, InlineExecutor(), run_unit=watched)) == (14, 10, 0, 0)
    more = replace(plan, seeds=range(12), block=6)  # seeds 0-5 are there, 6-11 half so
    assert counts(run(more, store, InlineExecutor(), run_unit=watched)) == (12, 12, 0, 0)
    assert counts(run(more, store, InlineExecutor(), run_unit=watched)) == (0, 24, 0, 0)
    assert len(seen) == len(set(seen)) == 12 * len(plan.cells)


@pytest.mark.parametrize("executor", [InlineExecutor(), LocalExecutor(2)])
def test_failures_do_not_stop_the_others_and_are_tried_again(store, executor):
    plan = make_plan(seeds=4)
    report = run(plan, store, executor, run_unit=sweeps_fakes.failing_unit)
    assert counts(report) == (6, 0, 6, 0)
    assert len(report.failures) == 6
    assert all("RuntimeError: no luck with seeds (0, 1, 2, 3)" in failure.traceback for failure in report.failures)

    again = run(plan, store, executor, run_unit=sweeps_fakes.failing_unit)
    assert counts(again) == (0, 6, 6, 0)
    assert {failure.attempts for failure in again.failures} == {2}

    mended = run(plan, store, executor, run_unit=quick_unit)
    assert counts(mended) == (6, 6, 0, 0)
    assert mended.failures == store.failures() == []


def test_a_result_that_does_not_fit_is_a_failure_of_its_unit(store, plan):
    def sloppy(cell, seeds, progress):
        result = quick_unit(cell, seeds)
        return replace(result, evaluations=result.evaluations[4:]) if cell.head.dim == 2 else result

    report = run(plan, store, InlineExecutor(), run_unit=sloppy)
    assert counts(report) == (12, 0, 12, 0)
    assert "no row for seeds" in report.failures[0].traceback


def test_events_tell_the_whole_story(store):
    plan = make_plan(seeds=8)
    run(replace(plan, cells=plan.cells[:2]), store, InlineExecutor(), run_unit=quick_unit)
    events = []
    run(plan, store, InlineExecutor(), events.append, run_unit=sweeps_fakes.failing_unit)
    assert events[0].kind == "begin"
    assert (events[0].report.reused, events[0].report.remaining) == (4, 20)
    kinds = [event.kind for event in events]
    assert (kinds.count("started"), kinds.count("done"), kinds.count("failed")) == (20, 8, 12)
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1.0)
    assert events[1].eta_seconds is None
    assert events[-1].eta_seconds == pytest.approx(0.0, abs=1e-6)
    assert all(event.traceback for event in events if event.kind == "failed")


def test_progress_within_a_unit_counts(store):
    plan = make_plan(seeds=4)

    def patient(cell, seeds, progress):
        import time

        time.sleep(0.25)  # longer than the throttle
        progress(0.5)
        return quick_unit(cell, seeds)

    events = []
    run(replace(plan, cells=plan.cells[:2]), store, InlineExecutor(), events.append, run_unit=patient)
    assert [e.fraction for e in events if e.kind == "progress"] == pytest.approx([0.25, 0.75])


def test_ctrl_c_keeps_what_is_stored_and_carries_the_counts(store, plan):
    def stop(event):
        if event.kind == "started" and event.report.computed == 5:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as interrupted:
        run(plan, store, InlineExecutor(), stop, run_unit=quick_unit)
    assert counts(interrupted.value.report) == (5, 0, 0, 19)
    assert str(interrupted.value) == "5 computed, 0 reused, 0 failed, 19 left"
    assert isinstance(interrupted.value, KeyboardInterrupt)
    assert counts(run(plan, store, InlineExecutor(), run_unit=quick_unit)) == (19, 5, 0, 0)


def test_a_store_in_use_is_refused_before_anything_is_computed(store, plan):
    def never(cell, seeds, progress):
        raise AssertionError("computed")

    with Store(store.path) as other, other.driver(), pytest.raises(Exception, match="another sweep"):
        run(plan, store, InlineExecutor(), run_unit=never)


def test_status_counts_seeds_by_cell(store, plan):
    assert totals(status(None, plan)) == totals(status(store, plan)) == {"done": 0, "failed": 0, "missing": 96}
    part = replace(plan, cells=plan.cells[:4], seeds=range(4))
    run(part, store, InlineExecutor(), run_unit=sweeps_fakes.failing_unit)  # the fourth cell has dimension 2
    rows = status(store, plan)
    assert [row.cell for row in rows] == [cell.id for cell in plan.cells]
    assert [(row.done, row.failed, row.missing) for row in rows[:5]] == [(4, 0, 4)] * 3 + [(0, 4, 4), (0, 0, 8)]
    assert "RuntimeError: no luck" in rows[3].traceback
    assert rows[0].traceback == ""
    assert totals(rows) == {"done": 12, "failed": 4, "missing": 80}


def test_a_store_knows_what_it_was_asked_for(store, plan):
    run(plan.select(dims=[1]), store, InlineExecutor(), run_unit=quick_unit)
    run(plan.select(dims=[2]), store, InlineExecutor(), run_unit=quick_unit)
    asked = store.asked("fake")
    assert (asked.name, asked.preset, asked.seeds) == ("fake", "quick", plan.seeds)
    assert {cell.id for cell in asked.cells} == {cell.id for cell in plan.cells}
    assert totals(status(store, asked)) == {"done": 96, "failed": 0, "missing": 0}
    with pytest.raises(InputError, match="fake: was not run with the preset paper"):
        store.asked("fake", "paper")
    with pytest.raises(InputError, match="holds no results of fae; did you mean fake"):
        store.asked("fae")


def test_units_refuse_code_that_is_not_what_was_planned(monkeypatch):
    cell, calls = make_plan().cells[0], []
    assert cell.code
    monkeypatch.setitem(vars(lab.training), "run_cell", lambda *arguments: calls.append(arguments))  # without torch
    run_unit(cell, (0, 1))
    assert calls == [(cell, (0, 1), None)]
    monkeypatch.setattr("lab.sweeps.unit._version_here", lambda tasks, head: "edited meanwhile")
    with pytest.raises(RuntimeError, match="changed after the sweep was planned"):
        run_unit(cell, (0, 1))
    assert len(calls) == 1


EDITED_MEANWHILE = """
import sys
from pathlib import Path
import lab.training
from lab.sweeps.unit import run_unit
from sweeps_fakes import make_cell

def edit(name):
    with (Path(lab.__path__[0]) / name).open("a") as file:
        file.write("CHANGED = 1\\n")

def outcome(cell):
    try:
        return run_unit(cell, (0,))
    except RuntimeError:
        return "refused"

lab.training.run_cell = lambda *arguments: "ran"
cells = [make_cell("softmax-none"), make_cell("softmax-none", dim=2), make_cell("fox-gate0")]
assert all(cell.code for cell in cells)  # as a driver, which plans and computes nothing
edit("heads/fox.py")
found = [outcome(cells[0]), "lab.tasks.kernels.subset_drop" in sys.modules]
edit("tasks/kernels/subset_drop.py")  # imported by now
print(*found, outcome(cells[1]), outcome(cells[2]))
"""


def test_code_is_what_it_was_when_it_was_imported(tmp_path):
    """In a process that plans too: what draws, heads and training are imported long after the cell has its version."""
    shutil.copytree(next(iter(lab.__path__)), tmp_path / "lab", ignore=shutil.ignore_patterns("__pycache__"))
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parent)])
    command = [sys.executable, "-c", EDITED_MEANWHILE]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["ran", "True", "ran", "refused"]


def test_an_empty_plan_is_done_at_once(store):
    report = run(Plan("fake", "quick", [], [0]), store, InlineExecutor(), run_unit=quick_unit)
    assert counts(report) == (0, 0, 0, 0)
