import hashlib
import json
import shutil
from dataclasses import replace

import pandas as pd
import pytest
from sweeps_fakes import make_plan, quick_unit

from lab.errors import InputError
from lab.sweeps import InlineExecutor, Store, chosen_cells, export, load_frames, run


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A store with two experiments, and the folder they were exported to."""
    folder = tmp_path_factory.mktemp("exported")
    plan = make_plan()
    cells = [cell.model_copy(update={"experiment": "second"}) for cell in plan.cells[:3]]
    with Store(folder / "lab.sqlite") as store:
        run(plan, store, InlineExecutor(), run_unit=quick_unit)
        run(replace(plan, name="second", cells=cells), store, InlineExecutor(), run_unit=quick_unit)
        export(store, None, folder / "published")
    return folder / "lab.sqlite", folder / "published"


@pytest.fixture
def copy(exported, tmp_path):
    """A published experiment to spoil."""
    return shutil.copytree(exported[1] / "fake", tmp_path / "fake")


def test_a_round_trip_changes_nothing(exported):
    path, folder = exported
    stored, read = load_frames(path, ["fake"]), load_frames(folder / "fake")
    chosen = stored.of(list(chosen_cells(stored)["cell"]))
    pd.testing.assert_frame_equal(read.cells, stored.cells)
    of_chosen = read.evaluations["cell"].isin(chosen.cells["cell"])
    pd.testing.assert_frame_equal(read.evaluations[of_chosen].reset_index(drop=True), chosen.evaluations)
    for name in ("curves", "parameters", "files"):
        pd.testing.assert_frame_equal(getattr(read, name), getattr(chosen, name))
    assert "NA" in set(read.parameters["token"])  # a token's name, not a missing value


def test_only_chosen_cells_have_curves_and_long_evaluations(exported):
    frames = load_frames(exported[1] / "fake")
    assert set(frames.curves["cell"]) == set(frames.files["cell"]) == set(chosen_cells(frames)["cell"])
    assert frames.curves["cell"].nunique() == 4
    rows = frames.evaluations
    long = rows["factor"] > 1
    assert set(rows[long]["cell"]) == set(frames.curves["cell"])
    assert rows[long]["factor"].value_counts().to_dict() == {2: 4 * 8, 8: 4 * 8}
    assert len(rows[~long]) == 12 * 8 * 2
    assert chosen_cells(frames)["rates"].tolist() == ["0.01, 0.05, 0.2"] * 4


def test_a_folder_of_experiments(exported):
    _, folder = exported
    assert set(load_frames(folder).cells["experiment"]) == {"fake", "second"}
    assert set(load_frames(folder, ["second"]).cells["experiment"]) == {"second"}
    with pytest.raises(InputError, match="no results of secnod; did you mean second"):
        load_frames(folder, ["secnod"])
    with pytest.raises(InputError, match="preset: holds quick, not paper"):
        load_frames(folder, preset="paper")


def test_exporting_again_gives_the_same_bytes(exported, tmp_path):
    path, folder = exported
    with Store(path, write=False) as store:
        [again] = export(store, ["fake"], tmp_path)
    for file in sorted((folder / "fake").iterdir()):
        assert (again / file.name).read_bytes() == file.read_bytes()
    assert len(list(again.iterdir())) == 6


def test_the_manifest_says_where_the_numbers_are_from(exported):
    folder = exported[1] / "fake"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["experiment"] == "fake"
    assert manifest["command"] == "fpa-lab sweep fake --preset quick"
    assert manifest["seeds"] == list(range(8))
    [environment] = manifest["environments"]
    assert environment.keys() == {"python", "platform", "packages"}
    assert "numpy" in environment["packages"]
    for name, table in manifest["tables"].items():
        data = (folder / name).read_bytes()
        assert table == {"rows": data.count(b"\n") - 1, "sha256": hashlib.sha256(data).hexdigest()}


def test_a_changed_file_is_noticed(copy):
    file = copy / "evaluations.csv"
    file.write_bytes(file.read_bytes().replace(b"test", b"best", 1))
    with pytest.raises(InputError, match=r"evaluations\.csv: sha256 differs from manifest\.json"):
        load_frames(copy)


def test_tables_that_are_not_asked_for_are_not_read(copy):
    (copy / "curves.csv").write_text("changed")
    frames = load_frames(copy, tables=("evaluations",))
    assert (frames.curves.empty, frames.cells.empty, frames.evaluations.empty) == (True, False, False)
    with pytest.raises(InputError, match=r"curves\.csv: sha256 differs"):
        load_frames(copy, tables=("evaluations", "curves"))
    with pytest.raises(InputError, match="tables: unknown table curve; did you mean curves"):
        load_frames(copy, tables=("curve",))


def test_a_missing_file_is_named(copy):
    (copy / "files.csv").unlink()
    with pytest.raises(InputError, match=r"files\.csv: is missing"):
        load_frames(copy)


def test_a_missing_column_is_named(copy):
    data = (copy / "parameters.csv").read_bytes().replace(b"token", b"tokn", 1)
    (copy / "parameters.csv").write_bytes(data)
    change_manifest(copy, lambda m: m["tables"]["parameters.csv"].update(sha256=hashlib.sha256(data).hexdigest()))
    with pytest.raises(InputError, match=r"parameters\.csv: column token is missing"):
        load_frames(copy)


def test_a_column_of_nonsense_is_named(copy):
    data = (copy / "files.csv").read_bytes().replace(b",10,", b",ten,", 1)
    (copy / "files.csv").write_bytes(data)
    change_manifest(copy, lambda m: m["tables"]["files.csv"].update(sha256=hashlib.sha256(data).hexdigest()))
    with pytest.raises(InputError, match=r"files\.csv: queries: expected whole numbers"):
        load_frames(copy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(format=2), "format: 2, expected 1"),
        (lambda m: m.pop("tables"), "tables: Field required"),
        (lambda m: m["tables"].pop("curves.csv"), r"tables: curves\.csv is not listed"),
    ],
)
def test_a_manifest_that_is_none(copy, change, message):
    change_manifest(copy, change)
    with pytest.raises(InputError, match=message) as error:
        load_frames(copy)
    assert str(error.value).startswith(str(copy / "manifest.json"))


def test_a_manifest_that_is_not_json(copy):
    (copy / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json: JSON: "):
        load_frames(copy)


def test_a_folder_without_results(tmp_path):
    with pytest.raises(InputError, match=r"no manifest\.json"):
        load_frames(tmp_path)


def test_nothing_computed_is_not_exported(store, tmp_path):
    store.record(make_plan())
    with pytest.raises(InputError, match="fake: nothing is computed yet"):
        export(store, ["fake"], tmp_path / "out")
    with pytest.raises(InputError, match="holds no results of other"):
        export(store, ["other"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def change_manifest(folder, change):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
