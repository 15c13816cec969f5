"""What the commands say of tasks that ask for values, not for target sets."""

import json

import pytest


def test_task_shows_what_readers_that_know_less_get_right(fpa_lab):
    outcome = fpa_lab("task", "scoped-lookup", "--option", "symbols=4", "--json")
    assert outcome.status == 0
    document = json.loads(outcome.out)
    assert document["shortcuts"]["chance"] == {"right": 0.125}
    rates = {name: reading["right"] for name, reading in document["shortcuts"].items()}
    assert list(rates) == ["chance", "most frequent value", "random live binding", "most recent binding"]
    assert rates["chance"] < rates["most frequent value"] < rates["random live binding"] < rates["most recent binding"]
    assert document["duplicates"]["test in train"] == 0
    table = fpa_lab("task", "scoped-lookup", "--option", "symbols=4").out
    assert "Share of uses answered right" in table
    assert "most recent binding" in table


def test_task_reads_names_of_a_folder(fpa_lab, tmp_path):
    (tmp_path / "a.py").write_text("x = 1\ndef f(x):\n    return x\n")
    shown = fpa_lab("task", "source-lookup", "--path", tmp_path, "--show").out
    assert shown.startswith("source-lookup: 6 tokens, 1 queries")
    assert "last query, row 4: live keys at 0, 1, 3" in shown


@pytest.mark.parametrize("name", ["scoped-lookup", "source-lookup"])
def test_train_says_where_lookups_are_trained(fpa_lab, name):
    line = fpa_lab("train", "--task", name, "--head", "fox-gate0").error_line
    assert line == f"--task: {name}: trained on answers, by fpa-lab sweep scoped_lookup, not on target sets"
