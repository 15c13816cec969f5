"""`fpa-lab demo`: sweep, exact check, figures and summary in one command, resumable."""

import re
from pathlib import Path

import pytest

from lab.cli import demo
from lab.cli.demo import all_sets
from lab.cli.sweeps import plan_of


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo on three keys, and on heads that are trained for a few steps."""
    import cli_tiny_experiment

    from lab.cli import sweeps
    from lab.sweeps import InlineExecutor

    monkeypatch.setattr(demo, "plan_of", lambda name, preset: cli_tiny_experiment.plan(preset, name=name))
    monkeypatch.setattr(demo, "FIGURES", ("convergence",))
    monkeypatch.setattr(demo, "FORMATS", ("png",))
    monkeypatch.setattr(demo, "KEYS", 3)
    monkeypatch.setattr(sweeps, "_executor", lambda workers, device: (InlineExecutor(), "lab.training:run_cell"))


def test_demo_does_everything_once(fpa_lab, tiny):
    first = fpa_lab("demo", "--out", "here")
    assert first.status == 0
    assert "target_sets quick: 2 computed, 0 reused, 0 failed" in first.out
    assert re.search(r"(\d+) of \1 certificates accepted", first.out)
    assert "95% interval" in first.out
    assert "chance TV" in first.out
    assert "here/figures/convergence.png" in first.out
    assert Path("here/figures/convergence.png").stat().st_size > 1000
    assert fpa_lab("demo", "--out", "here").out == first.out.replace("2 computed, 0 reused", "0 computed, 2 reused")
    assert fpa_lab("verify", "here/certificates.json").status == 0
    assert fpa_lab("results", "target_sets", "--store", "here/lab.sqlite").status == 0


def test_demo_needs_a_folder_it_can_write(fpa_lab, tiny):
    Path("file").touch()
    assert "file" in fpa_lab("demo", "--out", "file/demo").err
    assert fpa_lab("demo", "--out", "file/demo").status == 2


def test_all_sets():
    assert len(set(all_sets(4).split(";"))) == 2**4 - 1
    assert "1,3,4" in all_sets(4).split(";")


def test_the_demo_runs_a_preset_that_exists():
    plan = plan_of(demo.EXPERIMENT, demo.PRESET)
    assert {cell.head.kind for cell in plan.cells} == {"softmax", "fox", "fpa"}
    assert {cell.task.name for cell in plan.cells} == {"nested-scope", "leveled-dips", "subset-drop"}
