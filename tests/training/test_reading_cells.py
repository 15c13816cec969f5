"""Readers in place of heads: their metrics by hand, and what is counted as a duplicate."""

import numpy as np
import pytest

from lab.errors import InputError
from lab.heads.config import ReaderConfig
from lab.heads.reader import reader_names
from lab.sweeps import Cell, Evaluation, TaskConfig
from lab.sweeps.code_version import relevant_modules
from lab.sweeps.results import check_result
from lab.tasks import count_duplicates, make_task
from lab.training import run_cell

OPTIONS = {"custom": {"keys": ["a", "b"], "targets": [["a"], ["a", "b"]]}, "subset-free": {"keys": 2}}
TASKS = ("nested-scope", "leveled-dips", "subset-drop", "subset-free", "custom", "scoped-lookup")


def cell(task, reader, sequences=6):
    config = TaskConfig(name=task, options=OPTIONS.get(task, {}))
    test = Evaluation(task=config, lengths=(config.make().train_length,), sequences=sequences)
    return Cell(experiment="audit", task=config, head=ReaderConfig(name=reader), evaluations=(test,))


@pytest.mark.parametrize("task", TASKS)
def test_the_optimum_succeeds_and_chance_does_not(task):
    optimum, chance = (run_cell(cell(task, reader), (0, 3)) for reader in ("optimum", "chance"))
    check_result(optimum, (0, 3))
    assert [(row["exact"], row["tv"], row["success"]) for row in optimum.evaluations] == [(1.0, 0.0, 1)] * 2
    assert [row["success"] for row in chance.evaluations] == [0, 0]
    if task != "scoped-lookup":
        assert all(row["excess_loss"] == pytest.approx(0, abs=1e-12) for row in optimum.evaluations)


def test_a_seed_reads_its_own_sequences():
    [first, second] = run_cell(cell("nested-scope", "chance"), (0, 3)).evaluations
    [alone] = run_cell(cell("nested-scope", "chance"), (3,)).evaluations
    assert first != second
    assert {**alone} == {**second}
    batch = make_task("nested-scope").sample("test", [3], 0, 6)[0]
    seen, sizes = np.cumsum(batch.death > 0, -1), batch.target_sizes()
    scored = batch.queries > 0
    assert alone["tv"] == pytest.approx(np.mean(1 - sizes[scored] / seen[scored]))


def test_the_cell_of_chance_counts_duplicates():
    rows = run_cell(cell("custom", "chance"), (0, 1)).parameters
    counted = {row["token"]: row["value"] for row in rows if row["seed"] == 1}
    assert counted.pop("compared") == 512
    assert counted == count_duplicates(make_task("custom", **OPTIONS["custom"]), 512, seed=1)
    assert counted["test in train"] == 512  # two sequences in all
    assert run_cell(cell("custom", "window"), (0,)).parameters == []


def test_readers_of_lookups_are_judged_by_their_chance():
    [row] = run_cell(cell("scoped-lookup", "chance"), (0,)).evaluations
    assert row["exact"] == pytest.approx(1 / 8)
    assert row["tv"] == pytest.approx(7 / 8)
    names = reader_names(make_task("scoped-lookup"))
    assert names == ("optimum", "chance", "most frequent value", "random live binding", "most recent binding")


def test_a_reader_that_a_task_lacks_is_refused():
    with pytest.raises(InputError, match="reader: unknown name 'windw'; did you mean window"):
        run_cell(cell("nested-scope", "windw"), (0,))
    with pytest.raises(InputError, match="reader: unknown name 'window'"):
        run_cell(cell("scoped-lookup", "window"), (0,))


def test_an_edit_to_a_shortcut_is_an_edit_to_what_it_reads():
    assert "lab.tasks.shortcuts" in relevant_modules(["nested-scope"], "reader")
    assert "lab.tasks.shortcuts" not in relevant_modules(["nested-scope"], "fpa")
