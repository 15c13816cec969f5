"""`fpa-lab bench`: names, exit statuses, the table, the document and the CSV files. Nothing is timed here."""

import csv
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lab import bench
from lab.bench import document
from lab.cli import bench as command
from lab.cli import run
from lab.errors import InputError

sys.path.insert(0, str(Path(__file__).parent))  # so that the benches of the tests are found by name

import bench_fakes

REAL = dict(bench.BENCHES)


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for module in (bench, document):
        monkeypatch.setattr(module, "BENCHES", bench_fakes.BENCHES)
    monkeypatch.setenv("FAKE_BAR", "1/20")
    monkeypatch.chdir(tmp_path)


def test_bars_that_hold_are_status_0_and_are_shown(capsys):
    assert run(["bench", "quick-one"]) == 0
    out, err = capsys.readouterr()
    (line,) = [line for line in out.splitlines() if line.startswith(" fast / slow, here")]
    assert line.split()[4:9] == ["≤", "1/20", "≤", "1/30", "1/40"]
    assert line.split()[9:] == ["1/40", "to", "1/40", "8", "1e+03", "/", "4e+04", "aim", "met"]
    assert "11 MiB to 13 MiB" in out
    assert "a table" in out
    assert "fake: one side is left out" in out
    assert "fpa-lab bench quick-one" in out
    assert err == ""


def test_a_missed_bar_is_status_1_and_is_named(capsys, monkeypatch):
    monkeypatch.setenv("FAKE_BAR", "1/50")
    assert run(["bench", "quick-one", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out)["holds"] is False
    assert err == "fpa-lab: over the bar: fast / slow, here\n"


def test_the_document(capsys):
    assert run(["bench", "--json", "--quick", "--threads", "1", "--out", "bench.json"]) == 0
    text = capsys.readouterr().out
    found = json.loads(text)
    assert json.loads(Path("bench.json").read_text()) == found
    assert found["command"] == "fpa-lab bench --quick --threads 1"
    assert (found["quick"], found["threads"], found["holds"]) == (True, 1, True)
    assert found["machine"]["cores"] >= 1
    assert {"python", "platform", "packages"} <= found["environment"].keys()
    assert len(found["results"]) == 4  # two benches
    one, other = found["results"][:2]
    assert one == {
        "bench": "fake", "name": "fast / slow, here", "bar": 0.05, "aim": pytest.approx(1 / 30), "median": 0.025,
        "low": 0.025, "high": 0.025, "n": 3, "confidence": 0.75, "unit": "ratio", "verdict": "aim met",
        "sides": {"fast": 1.0, "slow": 40.0}, "pairs": [[1.0, 40.0]] * 3,
    }  # fmt: skip
    assert (other["bar"], other["verdict"], other["unit"]) == (None, None, "MiB")
    assert found["tables"]["a table"] == [{"kernel": "fast", "threads": 1, "x": 1.5, "y": None}]
    assert found["notes"] == ["fake: one side is left out"] * 2


def test_a_bench_that_fails_is_status_1_and_keeps_its_traceback(capsys, monkeypatch):
    monkeypatch.setenv("FAKE_FAILURE", "1")
    assert run(["bench", "quick-one", "--json"]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["holds"], found["results"]) == (False, [])
    assert found["failures"]["quick-one"].startswith("Traceback")
    assert err == "fpa-lab: quick-one failed: ZeroDivisionError: an injected failure\n"


def test_ctrl_c_keeps_what_was_measured_before(capsys, monkeypatch):
    monkeypatch.setattr(bench_fakes, "ran", [])
    monkeypatch.setenv("FAKE_INTERRUPT", "2")
    monkeypatch.setenv("FAKE_BAR", "1/50")
    assert run(["bench", "--json", "--out", "bench.json", "--tables", "csv"]) == 130
    assert not Path("csv").exists()
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads(Path("bench.json").read_text())
    assert (len(json.loads(out)["results"]), json.loads(out)["holds"]) == (2, False)
    missed, stopped = err.splitlines()
    assert missed == "fpa-lab: over the bar: fast / slow, here"
    assert stopped.startswith("fpa-lab: interrupted; what the benches before that have measured is kept")


def test_threads_are_what_they_were_afterwards():
    before = torch.get_num_threads()
    assert run(["bench", "quick-one", "--threads", str(before + 1), "--json"]) == 0
    assert torch.get_num_threads() == before


def test_tables_are_written_as_csv():
    assert run(["bench", "quick-one", "--tables", "csv"]) == 0
    assert sorted(path.name for path in Path("csv").iterdir()) == ["a_table.csv", "bench.json", "comparisons.csv"]
    with open("csv/comparisons.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["fast / slow, here", "memory"]
    assert float(rows[0]["median"]) == 0.025
    assert json.loads(Path("csv/bench.json").read_text())["command"] == "fpa-lab bench quick-one"


def test_the_document_is_not_taken_for_tables():
    assert run(["bench", "quick-one", "--out", "bench.json"]) == 0
    with pytest.raises(InputError, match=r"bench.json: is what fpa-lab bench --out writes; expected a folder"):
        document.read_tables(Path())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["quick-on"], "unknown bench quick-on; did you mean quick-one?"),
        (["quick-one,fast-two"], "unknown bench fast-two"),
        ([""], "NAME: '': expected at least one name"),
        (["--threads", "0"], "bench: Invalid value for '--threads'"),
        (["--out", "no/folder/bench.json"], "no/folder/bench.json: no such folder no/folder"),
        (["--tables", "no/folder/csv"], "no/folder/csv: no such folder no/folder"),
        (["--out", "."], "--out: .: expected a file"),
        (["--tables", __file__], "test_command.py: expected a folder"),
        (["--otu", "x"], "bench: no such option --otu; did you mean --out?"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, arguments, said):
    assert run(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err
    assert list(Path().iterdir()) == []


def test_every_bench_of_the_lab_exists_and_is_named_in_the_help():
    code = "import sys, importlib; [importlib.import_module(name).run for name in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", code, *REAL.values()], check=True)
    named = re.search(r"The benches: (.*)\.", inspect.getdoc(command.bench))[1]
    assert named.split(", ") == list(REAL)
