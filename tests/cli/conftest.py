"""Runs `fpa-lab` in this process: a subprocess would pay for importing torch every time."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.cli import run

sys.path.insert(0, str(Path(__file__).parent))  # so that workers and tests find cli_tiny_experiment


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The one line on stderr; fails when there is more, or anything on stdout."""
        assert self.status == 2
        assert self.out == ""
        assert "Traceback" not in self.err
        assert self.err.count("\n") == 1
        assert self.err.startswith("fpa-lab: error: ")
        return self.err.removeprefix("fpa-lab: error: ").rstrip("\n")


@pytest.fixture
def fpa_lab(capfd: pytest.CaptureFixture[str], tmp_path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """`fpa_lab("task", "nested-scope")` runs in an empty folder and returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Outcome:
        capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Outcome(status, out, err)

    return call
