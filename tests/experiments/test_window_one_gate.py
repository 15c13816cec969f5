"""The committed search of the open row: its certificates hold, and its table says what they say."""

import csv
import json
from fractions import Fraction

import pytest

from experiments import window_one_gate as experiment
from proofs_check.bounds.cases import cases
from proofs_check.constructions import dim_search
from proofs_check.exact import verify


def rows():
    with (experiment.FOLDER / "searched.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_number_of_keys_was_searched_up_to_a_head():
    found = {int(row["keys"]): row for row in rows() if row["certificate"]}
    assert sorted(found) == list(experiment.KEYS)
    for keys, row in found.items():
        dimension = int(row["dimension"])
        assert keys // 2 <= dimension <= -(-2 * keys // 3) - 1
        missed = [other for other in rows() if int(other["keys"]) == keys and not other["certificate"]]
        excluded = {keys // 2 - 1} if keys in experiment.CONTROLS else set()
        assert {int(other["dimension"]) for other in missed if other["how"] == "excluded"} == excluded
        searched = {int(other["dimension"]) for other in missed if other["how"] == "none found"}
        assert searched == set(range(keys // 2, dimension))


@pytest.mark.parametrize("keys", experiment.KEYS)
def test_the_certificates_are_exact(keys):
    (row,) = (row for row in rows() if row["certificate"] and int(row["keys"]) == keys)
    document = json.loads((experiment.FOLDER / row["certificate"]).read_text(encoding="utf-8"))
    (verdict,) = verify(document)
    assert verdict.accepted, verdict
    (record,) = document["certificates"]
    assert record["assumptions"]["gates"] == "one for all drops"
    assert Fraction(record["assumptions"]["ratio"]) == experiment.RATIO
    assert record["witness"]["dimension"] == int(row["dimension"])
    assert len(document["specification"]["targets"]) == 2**keys - 1
    for name in ("window", "gap"):
        assert Fraction(record["witness"][name]) == Fraction(row[name])
    record["witness"]["biases"][0] = "12345/7"
    (verdict,) = verify(document)
    assert not verdict.accepted


def test_where_nothing_is_found_the_ratio_stays_above_1():
    missed = [row for row in rows() if not row["certificate"]]
    assert missed
    for row in missed:
        assert float(row["ratio"]) > 1
        assert float(row["loss"]) > 0


def test_a_search_of_three_keys_gives_the_row_and_the_file(tmp_path):
    (row,) = experiment.search(3, tmp_path, starts=1, steps=300)
    assert (row["keys"], row["dimension"], row["how"]) == (3, 1, "training")
    assert (tmp_path / str(row["certificate"])).is_file()


def fake_search(monkeypatch, rows):
    """Searches of 3 and 4 keys that take no time; rows(keys) may raise."""

    def search(keys, out):
        (out / f"{keys}_keys.json").write_text("{}")
        yield from rows(keys)

    monkeypatch.setattr(experiment, "KEYS", (3, 4))
    monkeypatch.setattr(experiment, "search", search)


def test_table_and_certificates_arrive_together(monkeypatch, tmp_path):
    fake_search(monkeypatch, lambda keys: [{"keys": keys, "certificate": f"{keys}_keys.json"}])
    assert experiment.main(["--out", str(tmp_path / "new" / "folder")]) == 0
    files = sorted(file.name for file in (tmp_path / "new" / "folder").iterdir())
    assert files == ["3_keys.json", "4_keys.json", "searched.csv"]
    lines = (tmp_path / "new" / "folder" / "searched.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["keys", "3", "4"]


def test_an_interrupted_search_leaves_the_folder_as_it_was(monkeypatch, tmp_path, capsys):
    def interrupted(keys):
        if keys == 4:
            raise KeyboardInterrupt
        return [{"keys": keys}]

    (tmp_path / "searched.csv").write_text("old")
    fake_search(monkeypatch, interrupted)
    assert experiment.main(["--out", str(tmp_path)]) == 130
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("searched.csv", "old")]
    assert capsys.readouterr().err == "interrupted; the table is not written\n"


def test_a_file_is_no_folder_to_write_to(monkeypatch, tmp_path, capsys):
    fake_search(monkeypatch, lambda keys: [])
    file = tmp_path / "file"
    file.write_text("mine")
    assert experiment.main(["--out", str(file)]) == 2
    assert capsys.readouterr().err == f"--out: {file}: expected a folder to write to: File exists\n"
    assert file.read_text() == "mine"


def test_training_comes_to_the_ratio_that_it_asks_for_where_there_are_heads():
    family = cases(experiment.all_subsets(3))
    loss, window, gap = dim_search.nearest(family, experiment.HEAD, Fraction(1, 2), 1, starts=2, steps=500)
    assert loss < 1e-6
    assert window / gap < 0.51
    loss, window, gap = dim_search.nearest(family, experiment.HEAD, Fraction(1, 2), 0, starts=2, steps=500)
    assert loss > 0.1
    assert window > gap
