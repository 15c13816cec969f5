"""Answers kept on disk are those that would be computed, and are forgotten when the code changes."""

import json
import subprocess
import sys

import pytest

from lab.sweeps import TaskConfig, chance, kept
from lab.sweeps.chance import chance_level

TASK = TaskConfig(name="nested-scope", options={"max_depth": 2})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Each test has a folder and a process of its own, as far as answers go."""
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "kept")
    start_again()
    yield tmp_path / "kept" / "chance._sampled.json"
    start_again()


def start_again():
    """As a new process."""
    chance._levels.cache_clear()
    kept._digest.cache_clear()


def doubt(file, **changes):
    """Writes wrong answers, so that whoever reads them shows it."""
    content = json.loads(file.read_text())
    answers = {call: dict.fromkeys(levels, 7.0) for call, levels in content["answers"].items()}
    file.write_text(json.dumps({**content, "answers": answers, **changes}))
    start_again()


def test_a_later_process_reads_what_was_computed(elsewhere):
    sampled = chance_level(TASK, 8)
    start_again()
    assert chance_level(TASK, 8) == sampled  # to the last digit
    doubt(elsewhere)
    assert set(chance_level(TASK, 8).values()) == {7.0}
    others = [chance_level(TASK, 9), chance_level(TASK, 8, sequences=32), chance_level(TaskConfig(name=TASK.name), 8)]
    assert not any(7.0 in other.values() for other in others)


def test_an_edit_of_the_code_or_of_files_makes_answers_stale(elsewhere, tmp_path, monkeypatch):
    sampled = chance_level(TASK, 8)
    doubt(elsewhere, sources="of other code")
    assert chance_level(TASK, 8) == sampled
    doubt(elsewhere)
    root = tmp_path / "lab"
    (root / "tasks" / "kernels").mkdir(parents=True)
    (root / "tasks" / "kernels" / "nested_scope.py").write_text("other = 1\n")
    monkeypatch.setattr(kept, "ROOT", root)
    start_again()
    assert chance_level(TASK, 8) == sampled

    (tmp_path / "one.py").write_text("a = 1\nb = a\n")
    files = TaskConfig(name="source-scopes", options={"path": str(tmp_path / "one.py")})
    before = chance_level(files, 8)
    doubt(elsewhere)
    (tmp_path / "one.py").write_text("a = 1\ndef f(b):\n    return a + b\nc = f(a)\n")
    assert 7.0 not in chance_level(files, 8).values()
    assert chance_level(files, 8) != before


@pytest.mark.parametrize("content", ["", "[]", '{"sources": 1}', '{"sources": null, "answers": 3}', "\0"])
def test_nonsense_is_computed_anew_and_mended(elsewhere, content):
    sampled = chance_level(TASK, 8)
    elsewhere.write_text(content)
    start_again()
    assert chance_level(TASK, 8) == sampled
    assert len(json.loads(elsewhere.read_text())["answers"]) == 1
    assert [path.name for path in elsewhere.parent.iterdir()] == [elsewhere.name]


def test_without_a_folder_to_write_to_answers_are_the_same(elsewhere):
    sampled = chance_level(TASK, 8)
    elsewhere.unlink()
    elsewhere.parent.rmdir()
    elsewhere.parent.write_text("a file where the folder should be")
    start_again()
    assert chance_level(TASK, 8) == sampled


def test_what_was_sampled_before_needs_no_compiled_code(elsewhere):
    """Loading numba and its kernels takes longer than the rest of a summary."""
    sampled = chance_level(TASK, 8)
    script = f"""
import sys
from pathlib import Path
from lab.sweeps import TaskConfig, kept
from lab.sweeps.chance import chance_level
kept.FOLDER = Path({str(elsewhere.parent)!r})
task = TaskConfig(name="nested-scope", options={{"max_depth": 2}})
print(chance_level(task, 8) == {sampled!r}, "numba" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False"]
