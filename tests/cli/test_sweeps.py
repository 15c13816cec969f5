"""`sweep`, `status`, `results`, `figures` and `export`: from an experiment to files, and every way to get it wrong."""

import csv
import io
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import cli_tiny_experiment
import pandas as pd
import pytest

import experiments
from lab.cli import results, run, sweeps
from lab.cli.results import best_dimensions, judged, meanings, rate_notes, short_labels, shown_factors
from lab.sweeps import InlineExecutor, Store

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """The experiment `tiny`, computed in this process."""
    register(monkeypatch)


def register(monkeypatch: pytest.MonkeyPatch, unit: str = "lab.training:run_cell") -> None:
    monkeypatch.setattr(experiments, "EXPERIMENTS", {**experiments.EXPERIMENTS, "tiny": "cli_tiny_experiment"})
    monkeypatch.setattr(sweeps, "_executor", lambda workers, device: (InlineExecutor(), unit))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all of `tiny`; tests only read it."""
    path = tmp_path_factory.mktemp("stores") / "lab.sqlite"
    with pytest.MonkeyPatch.context() as monkeypatch:
        register(monkeypatch)
        assert run(["sweep", "tiny", "--store", str(path)]) == 0
    return path


# From an experiment to files.


def test_sweep_computes_once(fpa_lab):
    first = fpa_lab("sweep", "tiny")
    assert first.status == 0
    assert first.out == "tiny quick: 2 computed, 0 reused, 0 failed\n"
    assert Path("results/lab.sqlite").is_file()
    assert fpa_lab("sweep", "tiny").out == "tiny quick: 0 computed, 2 reused, 0 failed\n"
    more = fpa_lab("sweep", "tiny", "--seeds", 4, "--head", "fpa-walk-tied", "--dim", 1)
    assert more.out == "tiny quick: 1 computed, 1 reused, 0 failed\n"


def test_dry_run_computes_nothing_and_writes_nothing(fpa_lab, store):
    counts = fpa_lab("sweep", "tiny", "--dry-run").out.split()
    assert counts[-7:] == ["tiny", "quick", "2", "2", "2", "0", "2"]
    assert list(Path().iterdir()) == []
    assert fpa_lab("sweep", "tiny", "--dry-run", "--store", store).out.split()[-2:] == ["2", "0"]


def test_a_failing_unit_is_status_1_and_the_others_are_stored(fpa_lab, monkeypatch):
    register(monkeypatch, "cli_tiny_experiment:failing_cell")
    swept = fpa_lab("sweep", "tiny")
    assert swept.status == 1
    assert "1 computed, 0 reused, 1 failed" in swept.out
    assert "ValueError: an injected failure" in swept.err
    state = fpa_lab("status", "--tracebacks")
    assert state.status == 1
    assert "Traceback" in state.out
    assert [(row["done"], row["failed"]) for row in json.loads(fpa_lab("status", "--json").out)] == [(0, 2), (2, 0)]
    register(monkeypatch)
    assert fpa_lab("sweep", "tiny").out == "tiny quick: 1 computed, 1 reused, 0 failed\n"
    assert fpa_lab("status").status == 0


def test_status_of_what_was_never_run_is_all_missing(fpa_lab, store):
    (row, *_) = json.loads(fpa_lab("status", "target_sets", "--store", store, "--json").out)
    assert row["done"] == 0
    assert row["missing"] > 0


def test_results_show_successes_interval_and_chance(fpa_lab, store):
    table = fpa_lab("results", "tiny", "--store", store)
    assert table.status == 0
    for column in ("successes", "95% interval", "TV", "exact 1x", "exact 8x", "chance TV", "chance exact"):
        assert column in table.out
    (document,) = (fpa_lab("results", "tiny", "--source", store, "--format", "json").out,)
    rows = json.loads(document)
    assert [(row["head"], row["n"]) for row in rows] == [("fpa-walk-tied", 2), ("softmax-none", 2)]
    assert all(row["low"] <= row["successes"] / row["n"] <= row["high"] for row in rows)
    text = fpa_lab("results", "tiny", "--source", store, "--format", "csv").out
    parsed = list(csv.DictReader(io.StringIO(text)))
    assert [row["head"] for row in parsed] == ["fpa-walk-tied", "softmax-none"]


def test_best_keeps_one_dimension_of_every_head():
    rows = [
        {"task": "a", "head": head, "variant": "", "dim": dim, "validation_loss": loss}
        for head, dim, loss in [("fox", 1, 0.5), ("fox", 4, 0.3), ("fox", 2, 0.3), ("fpa", 1, 0.1), ("none", 8, None)]
    ]
    kept = best_dimensions(pd.DataFrame(rows))
    assert list(zip(kept["head"], kept["dim"])) == [("fox", 2), ("fpa", 1), ("none", 8)]


@pytest.mark.parametrize(
    ("measured", "shown"),
    [([1.0, 2.0, 8.0, 16.0], [1.0, 8.0]), ([1.0, 128.0], [1.0, 128.0]), ([1.0], [1.0]), ([2.0, 4.0], [4.0]), ([], [])],
)
def test_lengths_that_the_table_shows(measured, shown):
    assert shown_factors(measured) == shown


def test_incomplete_results_are_shown_with_status_1(fpa_lab, store):
    fpa_lab("sweep", "tiny", "--head", "fpa-walk-tied")
    with sqlite3.connect("results/lab.sqlite") as edited:  # more was asked for than is there
        edited.execute("UPDATE plans SET seeds = '[0, 1, 2]'")
    edited.close()
    shown = fpa_lab("results", "tiny")
    assert shown.status == 1
    assert "fpa-walk-tied" in shown.out
    assert "1 of 3 seeds missing" in shown.err


def test_export_and_results_of_the_export_agree(fpa_lab, store):
    assert fpa_lab("export", "tiny", "--store", store, "--out", "csv").out == "csv/tiny\n"
    manifest = json.loads(Path("csv/tiny/manifest.json").read_text())
    assert manifest["experiment"] == "tiny"
    from_csv, from_store = (
        json.loads(fpa_lab("results", "tiny", "--source", source, "--format", "json").out) for source in ("csv", store)
    )
    assert [row["head"] for row in from_csv] == [row["head"] for row in from_store]
    assert [row["tv_1x_median"] for row in from_csv] == pytest.approx([row["tv_1x_median"] for row in from_store])


def test_figures_are_drawn_from_a_store(fpa_lab, store):
    drawn = fpa_lab("figures", "convergence", "--source", store, "--format", "svg", "--out", "drawn")
    assert drawn.status == 0
    assert drawn.out.splitlines() == [f"drawn/convergence.{ending}" for ending in ("svg", "csv", "md")]
    assert all(Path(line).stat().st_size for line in drawn.out.splitlines())


def test_figures_refuse_incomplete_results(fpa_lab):
    fpa_lab("sweep", "tiny", "--seeds", 2)
    with sqlite3.connect("results/lab.sqlite") as edited:
        edited.execute("UPDATE plans SET seeds = '[0, 1, 2]'")
    edited.close()
    arguments = ("figures", "convergence", "--source", "results/lab.sqlite", "--format", "svg")
    refused = fpa_lab(*arguments)
    assert refused.status == 1
    assert refused.err.count("missing: ") == 2
    assert not Path("figures-out").exists()
    partial = fpa_lab(*arguments, "--partial")
    assert partial.status == 0
    assert "Partial" in Path("figures-out/convergence.md").read_text()


# Errors: one line, exit status 2.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["sweep", "target_setz"], "unknown experiment target_setz; did you mean target_sets?"),
        (["sweep", "tiny", "--preset", "papr"], "--preset: unknown preset 'papr'; did you mean paper?"),
        (["sweep", "target_sets", "--head", "fox-gat0"], "head: fox-gat0 is not in it; did you mean fox-gate0?"),
        (["sweep", "tiny", "--seeds", "0"], "sweep: Invalid value for '--seeds'"),
        (["sweep", "tiny", "--seeds", "-3"], "sweep: Invalid value for '--seeds'"),
        (["sweep", "tiny", "--dim", "1,-2"], "--dim: -2: expected whole numbers of at least 0"),
        (["sweep", "tiny", "--dim", "two"], "--dim: two: expected whole numbers"),
        (["sweep", "tiny", "--executor", "locl"], "--executor: unknown executor locl; did you mean local?"),
        (["sweep", "tiny", "--device", "cuba"], "--device: cuba; did you mean cuda?"),
        (["sweep", "tiny", "--workers", "0"], "sweep: Invalid value for '--workers'"),
        (["sweep", "tiny", "--seeds", "100000000000000000000"], "sweep: Invalid value for '--seeds'"),
        (["sweep", ""], "NAME: '': expected at least one name"),
        (["sweep", "tiny", "--head", ","], "--head: ',': expected at least one name"),
        (["sweep", "tiny", "--dim", ""], "--dim: '': expected at least one name or number"),
        (["export", ""], "NAME: '': expected at least one name"),
        (["status", ""], "NAME: '': expected at least one name"),
        (["figures", ""], "NAME: '': expected at least one name"),
        (["figures", "mechanism", "--format", ""], "--format: '': expected at least one name"),
        (["sweep"], "sweep: Missing argument"),
        (["status"], "results/lab.sqlite: no such store; fpa-lab sweep makes one"),
        (["results", "tiny"], "results/lab.sqlite: no such store"),
        (["results", "tiny", "--format", "tabel"], "--format: unknown format tabel; did you mean table?"),
        (["figures", "convergenc"], "did you mean convergence?"),
        (["figures", "mechanism", "--format", "pgn"], "did you mean png?"),
        (["export", "tiny"], "results/lab.sqlite: no such store"),
    ],
)
def test_bad_input_is_one_line(fpa_lab, arguments, said):
    assert said in fpa_lab(*arguments).error_line
    assert list(Path().iterdir()) == []


def test_names_that_a_store_does_not_hold(fpa_lab, store):
    assert "did you mean tiny?" in fpa_lab("results", "tny", "--store", store).error_line
    assert "did you mean tiny?" in fpa_lab("export", "tny", "--store", store).error_line
    assert "did you mean tiny?" in fpa_lab("status", "tny", "--store", store).error_line
    assert "paper" in fpa_lab("results", "tiny", "--store", store, "--preset", "paper").error_line


def test_results_are_held_against_the_plan_of_their_own_preset(fpa_lab, store):
    Path("two.sqlite").write_bytes(Path(store).read_bytes())
    with Store("two.sqlite") as opened:
        opened.record(cli_tiny_experiment.plan("paper", seeds=9))  # ran last, and got no further than quick
    own = fpa_lab("results", "tiny", "--store", "two.sqlite", "--preset", "quick")
    assert (own.status, own.err) == (0, "")
    assert "7 of 9 seeds missing" in fpa_lab("results", "tiny", "--store", "two.sqlite").err


COMMANDS_ON_A_STORE = (["sweep", "tiny"], ["status"], ["results", "tiny"], ["export", "tiny"])


@pytest.mark.parametrize("command", COMMANDS_ON_A_STORE)
def test_files_that_are_no_store(fpa_lab, command):
    Path("text.sqlite").write_text("not a database, and longer than a header\n")
    assert "is not a store of the lab" in fpa_lab(*command, "--store", "text.sqlite").error_line
    with sqlite3.connect("other.sqlite") as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()
    assert "no store of the lab" in fpa_lab(*command, "--store", "other.sqlite").error_line
    Path("folder").mkdir()
    expected = "folder: is a folder" if command[0] != "results" else "folder: holds no published results"
    assert expected in fpa_lab(*command, "--store", "folder").error_line


@pytest.mark.parametrize("command", COMMANDS_ON_A_STORE)
def test_a_store_of_a_newer_lab_is_left_alone(fpa_lab, command):
    Store("newer.sqlite").close()
    with sqlite3.connect("newer.sqlite") as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    assert "written by a newer lab (format 99" in fpa_lab(*command, "--store", "newer.sqlite").error_line


def test_outputs_that_cannot_be_written(fpa_lab, store):
    """A path below a regular file: also for root, who may write into any folder."""
    Path("file").touch()
    assert "file" in fpa_lab("sweep", "tiny", "--store", "file/lab.sqlite").error_line
    assert "file/csv" in fpa_lab("export", "tiny", "--store", store, "--out", "file/csv").error_line
    assert "file/drawn" in fpa_lab("figures", "mechanism", "--format", "svg", "--out", "file/drawn").error_line


# Whole processes.

DRIVER = """
import sys, experiments
from lab.cli import main, sweeps
from lab.sweeps import LocalExecutor
experiments.EXPERIMENTS = {"tiny": "cli_tiny_experiment"}
unit = sys.argv.pop(1)
sweeps._executor = lambda workers, device: (LocalExecutor(1), unit)
main()
"""


def driver(unit: str, **options) -> subprocess.Popen:
    command = [sys.executable, "-c", DRIVER, unit, "sweep", "tiny", "--store", "a store.sqlite"]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes, **options)


def test_ctrl_c_is_130_with_the_command_that_resumes(fpa_lab):
    process = driver("cli_tiny_experiment:endless_cell")
    try:
        wait_for(lambda: Path("a store.sqlite").exists() and stored_seeds() == 2)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    last = err.splitlines()[-1]
    assert last.startswith("fpa-lab: interrupted (1 computed, 0 reused, 0 failed, 1 left); resume with: ")
    assert last.endswith("fpa-lab sweep tiny --store 'a store.sqlite'")
    resumed = fpa_lab("sweep", "tiny", "--store", "a store.sqlite")
    assert resumed.out == "tiny quick: 1 computed, 1 reused, 0 failed\n"


def stored_seeds() -> int:
    try:
        with sqlite3.connect("file:a store.sqlite?mode=ro", uri=True) as reader:
            return reader.execute("SELECT count(*) FROM done").fetchone()[0]
    except sqlite3.OperationalError:  # the tables are being made
        return 0


def wait_for(condition, seconds: float = 300.0) -> None:  # kernels may have to be compiled first
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_a_full_disk_is_one_line_and_no_hindrance_later(fpa_lab):
    def nothing_may_grow_beyond_a_few_pages() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    process = driver("lab.training:run_cell", preexec_fn=nothing_may_grow_beyond_a_few_pages)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2, err
    assert err.splitlines()[-1].startswith("fpa-lab: error: a store.sqlite: ")
    assert "full" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert fpa_lab("sweep", "tiny", "--store", "a store.sqlite").status == 0


def test_a_rate_below_chance_is_marked_at_its_own_length():
    row = {"exact_1x_median": 0.3751, "below_chance_1x": False, "exact_8x_median": 0.0429, "below_chance_8x": True}
    assert [results._exact(row, factor) for factor in (1.0, 8.0, 16.0)] == [0.3751, "↓ 0.043", None]


def test_long_labels_of_tasks_are_cut_where_the_name_says_which():
    long, other = (f"custom[keys={key * 80}]" for key in "ab")
    assert short_labels([long, "nested-scope", long]) == {long: "custom[…]", "nested-scope": "nested-scope"}
    assert short_labels([long, other]) == {long: long, other: other}
    assert short_labels(["custom[keys=2]"]) == {"custom[keys=2]": "custom[keys=2]"}


def test_footnotes_of_several_kinds_of_tasks_name_theirs():
    [one] = meanings(["nested-scope", "nested-scope[train_length=64]", "subset-drop"])
    assert one == f"Medians over seeds. {results.TARGETS_FOUND}"
    first, *others = meanings(["custom[keys=2]", "nested-scope", "subset-free"])
    assert first == "Medians over seeds."
    assert others == [
        f"custom, nested-scope: {results.TARGETS_FOUND}",
        f"subset-free: {results.SUCCESS['subset-free']}",
    ]


def test_readers_are_said_to_be_judged_as_they_are():
    """On subset-free readers need TV <= 0.05 in the mean over sequences; heads need it of every subset."""
    summary = pd.DataFrame({"task": ["subset-free", "nested-scope"], "head": ["reader-counts", "reader-chance"]})
    of_readers = f"subset-free, readers: {results.SUCCESS['subset-free, readers']}"
    found = f"nested-scope: {results.TARGETS_FOUND}"
    assert meanings(judged(summary)) == ["Medians over seeds.", of_readers, found]
    assert "in that mean" in of_readers
    of_heads = f"subset-free: {results.SUCCESS['subset-free']}"
    both = pd.concat([summary, summary.assign(head="softmax-none")])
    assert meanings(judged(both)) == ["Medians over seeds.", of_readers, found, of_heads]


def test_rows_at_an_edge_of_their_grid_are_counted():
    summary = pd.DataFrame(
        {
            "learning_rate": [0.01, 0.05, 0.2, 0.1],
            "rates": ["0.01, 0.05, 0.2", "0.01, 0.05, 0.2", "0.01, 0.05, 0.2", "0.1"],
        }
    )
    first, edge = rate_notes(summary)
    assert first.startswith("rate: the learning rate with the lowest median validation loss")
    assert edge.startswith("2 of 3 rows with a grid stand at an edge of it")
    assert rate_notes(summary[1:2]) == [first]
    assert rate_notes(summary[3:]) == []
