"""Answers kept on disk are those that would be computed, and are forgotten when the code changes."""

import importlib
import json
import subprocess
import sys

import pytest

import lab.tasks
from lab.sweeps import TaskConfig, chance, kept, lookups
from lab.sweeps.chance import chance_level
from lab.sweeps.lookups import shortcut_levels
from lab.tasks.scoped_lookup import LOOKUP_SHORTCUTS, shortcut_accuracy

TASK = TaskConfig(name="nested-scope", options={"max_depth": 2})


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A folder for each test, and the file of chance lines in it."""
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "kept")
    start_again()
    yield tmp_path / "kept" / "chance._sampled.json"
    start_again()


def start_again():
    """As a new process."""
    chance._levels.cache_clear()
    lookups._levels.cache_clear()


def doubt(file):
    """Writes wrong answers, so that whoever reads them shows it."""
    content = json.loads(file.read_text())
    answers = {call: dict.fromkeys(levels, 7.0) for call, levels in content["answers"].items()}
    file.write_text(json.dumps({**content, "answers": answers}))
    start_again()


def wrong(levels):
    return 7.0 in levels.values()


def test_a_later_process_reads_what_was_computed(elsewhere):
    sampled = chance_level(TASK, 8)
    start_again()
    assert chance_level(TASK, 8) == sampled  # to the last digit
    doubt(elsewhere)
    assert set(chance_level(TASK, 8).values()) == {7.0}
    others = [chance_level(TASK, 9), chance_level(TASK, 8, sequences=32), chance_level(TaskConfig(name=TASK.name), 8)]
    assert not any(map(wrong, others))
    assert len(json.loads(elsewhere.read_text())["answers"]) == 4  # the later ones beside the first


def test_shortcuts_are_kept_too(elsewhere):
    task = TaskConfig(name="scoped-lookup", options={"symbols": 4})
    batch = task.make().sample("test", range(32), 0, 64, length=8)
    sampled = {name: shortcut_accuracy(name, batch) for name in LOOKUP_SHORTCUTS}
    assert shortcut_levels(task, 8) == sampled
    start_again()
    assert shortcut_levels(task, 8) == sampled
    doubt(elsewhere.with_name("lookups._levels.json"))
    assert wrong(shortcut_levels(task, 8))
    assert not wrong(shortcut_levels(task, 9))


@pytest.mark.parametrize(
    ("levels", "name"),
    [(chance_level, "source-scopes"), (chance_level, "source-lookup"), (shortcut_levels, "source-lookup")],
)
def test_answers_are_about_the_files_as_they_are(elsewhere, tmp_path, levels, name):
    source = tmp_path / "one.py"
    source.write_text("def f(a, b):\n    a = 1\n    return a + b\n")
    task = TaskConfig(name=name, options={"path": str(source)})
    levels(task, 8)
    for file in elsewhere.parent.iterdir():
        doubt(file)
    assert wrong(levels(task, 8))
    source.write_text("def f(a, b):\n    a = 1\n    b = 2\n    return a + b\n")
    start_again()
    assert not wrong(levels(task, 8))


def test_answers_of_other_code_are_computed_again(elsewhere, monkeypatch):
    sampled = chance_level(TASK, 8)
    doubt(elsewhere)
    monkeypatch.setattr(lab.tasks, "SOURCES", "those of an edited task")
    assert chance_level(TASK, 8) == sampled


def test_nothing_is_kept_when_sources_changed_after_they_were_imported(elsewhere, monkeypatch):
    monkeypatch.setattr(kept, "source_digest", lambda root: "edited meanwhile")
    chance_level(TASK, 8)
    assert not elsewhere.exists()


def test_answers_follow_the_file_of_the_function(elsewhere, tmp_path, monkeypatch):
    home = tmp_path / "kept_example.py"
    text = "from lab.sweeps.kept import kept_on_disk\n\n@kept_on_disk\ndef level(n):\n    return {{'level': {} * n}}\n"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for factor in (2, 3, 2):
        home.write_text(text.format(factor))
        importlib.invalidate_caches()
        sys.modules.pop("kept_example", None)
        found.append(importlib.import_module("kept_example").level(5)["level"])
    del sys.modules["kept_example"]
    assert found == [10, 15, 10]


@pytest.mark.parametrize("content", ["", "[]", '{"code": 1}', '{"code": null, "answers": 3}', "\0", "[" * 100_000])
def test_nonsense_is_computed_anew_and_mended(elsewhere, content):
    sampled = chance_level(TASK, 8)
    elsewhere.write_text(content)
    start_again()
    assert chance_level(TASK, 8) == sampled
    assert len(json.loads(elsewhere.read_text())["answers"]) == 1
    assert [path.name for path in elsewhere.parent.iterdir()] == [elsewhere.name]


@pytest.mark.parametrize("answer", [3, None, [], {"tv": "x"}, {"tv": None}])
def test_an_answer_that_is_none_is_computed_anew(elsewhere, answer):
    sampled = chance_level(TASK, 8)
    content = json.loads(elsewhere.read_text())
    elsewhere.write_text(json.dumps({**content, "answers": dict.fromkeys(content["answers"], answer)}))
    start_again()
    assert chance_level(TASK, 8) == sampled


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
