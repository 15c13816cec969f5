"""The command line as such: help, versions, usage errors, interruption, pipes, and what may be imported."""

import errno
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli import app, run
from lab.errors import InputError

FPA_LAB = [sys.executable, "-m", "lab"]
COMMANDS = [command.name for command in app.registered_commands]
REPOSITORY = Path(__file__).parents[2]


def test_every_command_has_help_with_an_example(fpa_lab):
    for command in COMMANDS:
        outcome = fpa_lab(command, "--help")
        assert outcome.status == 0
        assert outcome.err == ""
        example = re.search(rf"^ +fpa-lab {command}\b.*$", outcome.out, re.MULTILINE)
        assert example, f"{command} --help shows no example"


def test_help_lists_every_command_and_is_what_no_argument_shows(fpa_lab):
    shown = fpa_lab("--help")
    assert shown.status == 0
    assert all(re.search(rf"^  {command} ", shown.out, re.MULTILINE) for command in COMMANDS)
    assert fpa_lab().out == shown.out
    assert fpa_lab("-h").out == shown.out


def test_help_answers_in_under_half_a_second():
    """Of processor time, so that a busy machine does not fail it; on an idle one that is the time one waits."""

    def seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*FPA_LAB, *arguments, "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    for arguments in ((), *((command,) for command in COMMANDS)):
        assert any(seconds(*arguments) < 0.5 for _ in range(3)), arguments


def modules_after(code: str) -> set[str]:
    """Top-level modules that are loaded after running some code in a fresh interpreter."""
    script = f"{code}\nimport sys, json\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_command_line_and_the_library_import_nothing_heavy():
    heavy = {
        "torch",
        "numpy",
        "pandas",
        "numba",
        "sympy",
        "scipy",
        "matplotlib",
        "pydantic",
        "rich",
        "yaml",
        "networkx",
    }
    assert not modules_after("import lab.cli") & heavy
    assert not modules_after("import lab; dir(lab)") & (heavy | {"typer"})


def test_planning_imports_no_compiled_code():
    plan = "from experiments import target_sets; [cell.id for cell in target_sets.plan('quick').cells]"
    assert not modules_after(plan) & {"torch", "numba", "pandas", "scipy"}


def test_version(fpa_lab):
    assert re.fullmatch(r"fpa-lab \d+\.\d+\.\d+\S*\n", fpa_lab("--version").out)


def test_misspelt_command_gets_the_nearest_name(fpa_lab):
    assert fpa_lab("chek").error_line == "no such command chek; did you mean check?"
    assert "valid: " in fpa_lab("zzz").error_line


@pytest.mark.parametrize("command", COMMANDS)
def test_misspelt_option_gets_the_nearest_name(fpa_lab, command):
    assert fpa_lab(command, "--hlep").error_line == f"{command}: no such option --hlep; did you mean --help?"


def test_a_value_of_the_wrong_type_is_one_line(fpa_lab):
    assert "--length" in fpa_lab("task", "nested-scope", "--length", "many").error_line
    assert "--seed" in fpa_lab("task", "nested-scope", "--seed").error_line
    assert "NAME" in fpa_lab("task").error_line


def test_error_messages_with_line_breaks_stay_one_line(fpa_lab, monkeypatch):
    raise_from_task(monkeypatch, InputError("a.yaml: keys:\n  expected\nnames"))
    assert fpa_lab("task", "nested-scope").error_line == "a.yaml: keys: expected names"


def raise_from_task(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def make(*_: object) -> None:
        raise error

    monkeypatch.setattr("lab.cli.tasks.make", make)


def test_interruption_is_130_and_says_how_to_resume(fpa_lab, monkeypatch):
    raise_from_task(monkeypatch, KeyboardInterrupt())
    outcome = fpa_lab("task", "nested-scope", "--option", "key probability=0.5")
    assert outcome.status == 130
    assert (
        outcome.err == "fpa-lab: interrupted; resume with: fpa-lab task nested-scope --option 'key probability=0.5'\n"
    )


def test_trouble_with_files_is_bad_input_but_a_bug_keeps_its_traceback(fpa_lab, monkeypatch):
    raise_from_task(monkeypatch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/out.csv"))
    assert fpa_lab("task", "nested-scope").error_line == "/data/out.csv: No space left on device"
    raise_from_task(monkeypatch, ZeroDivisionError("a bug"))
    with pytest.raises(ZeroDivisionError):
        run(["task", "nested-scope"])
    raise_from_task(monkeypatch, OSError(errno.ECHILD, "a bug of ours"))
    with pytest.raises(OSError, match="a bug of ours"):
        run(["task", "nested-scope"])


def test_full_disk_behind_stdout(tmp_path):
    with open(tmp_path / "out", "w") as out:
        done = subprocess.run(
            [*FPA_LAB, "--help"],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            preexec_fn=no_file_may_grow,
        )
    assert done.returncode == 2
    assert done.stderr == "fpa-lab: error: output: File too large\n"


def no_file_may_grow() -> None:
    """Every write to a file fails from here on, as on a full disk (which no test can make without privileges)."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def test_a_reader_that_stops_early_is_no_error():
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([*FPA_LAB, "--help"], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(write)
    assert done.returncode == 141
    assert done.stderr == ""


def test_python_m_lab_is_the_same_command():
    done = subprocess.run([*FPA_LAB, "nonsense"], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 2
    assert done.stderr.startswith("fpa-lab: error: no such command nonsense")
