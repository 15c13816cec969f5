"""Tables, JSON and progress."""

import io
import json
import sys

import numpy as np
import pytest

from lab.cli import console
from lab.cli.options import numbers, task_options, words
from lab.errors import InputError


def test_json_is_one_strict_document(capsys):
    console.print_json(
        {"a": float("nan"), "b": np.float64(0.5), "c": (1, np.int64(2)), "d": {"e": [float("inf")]}, 3: "é"}
    )
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": None, "b": 0.5, "c": [1, 2], "d": {"e": [None]}, "3": "é"}
    assert "NaN" not in out


@pytest.mark.parametrize("title", ["", "Titled"])
@pytest.mark.parametrize("word", ["x" * 10, "x" * 100, "日本" * 20])
def test_a_line_of_a_piped_table_is_never_broken(capsys, word, title):
    header = [f"column {i}" for i in range(12)]
    console.print_table(header, [[word] * 12], left=12, title=title)
    row = next(line for line in capsys.readouterr().out.splitlines() if word[:3] in line)
    assert row.split() == [word] * 12


def test_brackets_in_a_cell_are_text(capsys):
    console.print_table(["task"], [["nested-scope[max_depth=8]"]])
    assert "nested-scope[max_depth=8]" in capsys.readouterr().out


def test_cells_of_a_table():
    assert [console.text(value) for value in (None, float("nan"), True, 0.25, 1e-5, 0.0, 7, "a")] == [
        "-", "-", "yes", "0.250", "1e-05", "0.000", "7", "a",
    ]  # fmt: skip


def test_progress_away_from_a_terminal_is_a_plain_line_now_and_then(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with console.progress("sweep") as tell:
        for step in range(41):
            now[0] = float(step)
            tell(step / 40, "loss 0.1")
    assert sys.stderr.getvalue().splitlines() == [
        "sweep: 25%, about 30 s left; loss 0.1",
        "sweep: 50%, about 20 s left; loss 0.1",
        "sweep: 75%, about 10 s left; loss 0.1",
        "sweep: 100%, about 0 s left; loss 0.1",
    ]


def test_the_time_left_is_no_guess_from_nearly_nothing(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with console.progress("sweep") as tell:
        for fraction in (1e-5, 0.01):
            now[0] += 10
            tell(fraction, "")
    assert sys.stderr.getvalue().splitlines() == ["sweep: 0%", "sweep: 1%, about 1980 s left"]


def test_progress_on_a_terminal_is_a_bar_on_stderr(monkeypatch, capsys):
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with console.progress("sweep") as tell:
        tell(0.5, "note [not markup]")
    assert "sweep" in terminal.getvalue()
    assert "50%" in terminal.getvalue()
    assert "note [not markup]" in terminal.getvalue()
    assert capsys.readouterr().out == ""


def test_lists_of_words_and_numbers():
    assert words(["a,b", " c ,a", ""]) == ["a", "b", "c"]
    assert words(None) == []
    assert numbers("--dim", ["1,2", "4"], least=0) == [1, 2, 4]


@pytest.mark.parametrize("bad", ["-1", "x", "1.5", "²"])
def test_a_list_of_numbers_names_the_one_that_is_none(bad):
    with pytest.raises(InputError, match=rf"--dim: {bad}: expected whole numbers of at least 0"):
        numbers("--dim", ["1", bad], least=0)


def test_task_options():
    assert task_options(["max_depth=2", "chance=0.5", "dips=at-end", "on=yes"]) == {
        "max_depth": 2, "chance": 0.5, "dips": "at-end", "on": True,
    }  # fmt: skip
    for bad in ("max_depth", "=2"):
        with pytest.raises(InputError, match="expected NAME=VALUE"):
            task_options([bad])
    with pytest.raises(InputError, match="--option: a: "):
        task_options(["a=[1"])


@pytest.mark.parametrize(
    ("header", "rows", "left"),
    [
        (["a", "bbb", "c"], [["x", 1, None], ["longer", 22222, 0.5]], 1),
        (["task", "95% interval"], [["[bold]x[/bold]", "0.00–0.21"], ["↓ 0.048", True]], 1),
        (["a"], [], 1),
        (["name", "what"], [["日本語", "wide"], ["e\u0301", "combined"]], 2),
        (["name", "what"], [["x" * 150, "y" * 150]], 2),
        (["name", "what"], [["one\ntwo", "y"]], 2),
    ],
)
def test_tables_away_from_a_terminal_are_those_of_rich(capsys, monkeypatch, header, rows, left):
    console.print_table(header, rows, left=left)
    quick = capsys.readouterr().out
    monkeypatch.setattr(console, "_plain_table", lambda *arguments: [])
    console.print_table(header, rows, left=left)
    assert quick == capsys.readouterr().out
