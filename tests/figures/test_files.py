"""What make_figures writes and refuses to write."""

import hashlib
import re
import subprocess
import sys
import time

import matplotlib
import pandas as pd
import pytest

from figures import EXPERIMENT_OF, FIGURES, Incomplete, make_figures
from lab.errors import InputError

FORMATS = ("pdf", "svg", "png")
# What a store of target_sets has results for.
HERE = [name for name in FIGURES if name not in EXPERIMENT_OF]


@pytest.fixture(scope="module")
def everything(store, tmp_path_factory):
    """All figures in all formats."""
    out = tmp_path_factory.mktemp("all")
    return out, make_figures([], store, FORMATS, out)


def test_every_figure_comes_in_every_format_with_rows_and_caption(everything):
    out, paths = everything
    expected = [f"{name}.{ending}" for name in HERE for ending in (*FORMATS, "csv", "md")]
    assert [path.relative_to(out).as_posix() for path in paths] == expected
    assert sorted(path.name for path in out.iterdir()) == sorted(expected)


def test_the_same_rows_give_the_same_bytes(everything, store, tmp_path, monkeypatch):
    """Under another clock, another matplotlibrc and another working folder."""
    _, paths = everything
    monkeypatch.chdir(tmp_path)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1e6)
    with matplotlib.rc_context({"font.size": 20, "axes.grid": True, "svg.hashsalt": None, "savefig.bbox": "tight"}):
        again = make_figures(HERE, store, FORMATS, "again")
    for first, second in zip(paths, again, strict=True):
        assert first.read_bytes() == second.read_bytes(), first.name


def test_another_process_with_another_hash_seed_writes_the_same_bytes(everything, store, tmp_path):
    out, _ = everything
    code = f"from figures import make_figures; make_figures(['success'], {str(store)!r}, {FORMATS}, {str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONHASHSEED": "7", "SOURCE_DATE_EPOCH": "1"})
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (out / path.name).read_bytes(), path.name


def test_pdf_has_truetype_fonts_no_date_and_the_size_of_a_double_column(everything):
    out, _ = everything
    for name in HERE:
        data = (out / f"{name}.pdf").read_bytes()
        assert b"/FontFile2" in data, name
        assert b"/Type3" not in data, name
        assert b"Date" not in data, name
        left, bottom, right, top = map(float, re.search(rb"/MediaBox \[ ([\d. ]+) \]", data)[1].split())
        assert (left, bottom) == (0, 0), name
        assert right == pytest.approx(6.8 * 72), name
        assert 1.5 * 72 < top < 9 * 72, name


def test_svg_has_no_date(everything):
    out, _ = everything
    for name in HERE:
        text = (out / f"{name}.svg").read_text()
        assert "dc:date" not in text, name
        assert str(time.localtime().tm_year) not in re.sub(r'd="[^"]*"', "", text), name


def test_caption_gives_the_hash_of_the_rows_and_the_command(everything, store):
    out, _ = everything
    for name in HERE:
        caption = (out / f"{name}.md").read_text()
        data = (out / f"{name}.csv").read_bytes()
        assert f"sha256 {hashlib.sha256(data).hexdigest()}" in caption, name
        assert f"`fpa-lab figures {name} " in caption, name
        assert (f"--source {store}" in caption) == (name != "mechanism"), name
        assert len(pd.read_csv(out / f"{name}.csv")) == int(re.search(r", (\d+) rows,", caption)[1]), name


def test_captions_of_results_say_n_and_chance(everything):
    out, _ = everything
    for name in ("convergence", "success", "length", "source_scopes"):
        caption = (out / f"{name}.md").read_text()
        assert "n = 4 seeds" in caption, name
        assert "chance" in caption.lower(), name
    assert "Clopper–Pearson 95%" in (out / "success.md").read_text()


def test_a_changed_row_changes_the_figure_and_the_hash(results, tmp_path):
    from dataclasses import replace

    from figures import build, style
    from figures.drawing import data_hash
    from figures.inputs import Results

    frames = results.frames
    changed = frames.evaluations.copy()
    fox = results.summary.loc[results.summary["head"] == "fox-gate0", "cell"].iloc[0]
    rows = (changed["cell"] == fox) & (changed["split"] == "test") & (changed["factor"] == 1) & (changed["seed"] == 2)
    assert changed.loc[rows, "success"].tolist() == [0]
    changed.loc[rows, "success"] = 1
    hashes, images = set(), set()
    for each in (frames, replace(frames, evaluations=changed)):
        with style.paper():
            drawing = build.draw("success", Results(each), 0)
        [path] = style.save(drawing.figure, tmp_path, "success", ["png"])
        hashes.add(data_hash(drawing.rows))
        images.add(path.read_bytes())
    assert len(hashes) == len(images) == 2


def test_incomplete_results_are_refused_and_the_missing_cells_listed(incomplete_store, tmp_path):
    with pytest.raises(Incomplete) as error:
        make_figures(["mechanism", "success"], incomplete_store, ["png"], tmp_path / "out")
    fox = [line for line in error.value.missing if "fox" in line]
    # Two tasks with fox-gate0, one with fox-gate4, two learning rates each.
    assert error.value.missing == fox
    assert len(fox) == 6
    assert all("dim 4" in line and "4 of 4 seeds missing" in line for line in fox)
    assert "6 cells missing" in str(error.value)
    assert not (tmp_path / "out").exists()


def test_partial_figures_are_stamped(incomplete_store, tmp_path):
    paths = make_figures(["success", "mechanism"], incomplete_store, ["svg"], tmp_path, partial=True)
    caption = paths[2].read_text()
    assert caption.startswith("**Partial: 6 cells are missing.**")
    assert "--partial" in caption
    assert "Partial" not in (tmp_path / "mechanism.md").read_text()


def test_the_stamp_is_on_the_figure(incomplete_store, results):
    from figures import build
    from figures.inputs import load

    partial, missing = load(incomplete_store)
    stamped = [text.get_text() for text in build.draw("success", partial, len(missing)).figure.texts]
    assert stamped == ["PARTIAL", "PARTIAL: 6 cells missing"]
    assert build.draw("success", results, 0).figure.texts == []


def test_mechanism_needs_no_results(tmp_path):
    [path, *_] = make_figures(["mechanism"], tmp_path / "nowhere", ["png"], tmp_path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["succes"]}, "unknown figure 'succes'; did you mean success?"),
        ({"formats": ["pfd"]}, "unknown format 'pfd'; did you mean pdf?"),
        ({"formats": []}, "--format: expected at least one of pdf, svg, png"),
        ({"source": "nowhere.sqlite"}, "nowhere.sqlite: no such store"),
        ({"out": "/proc/figures"}, "/proc/figures: --out: cannot be made"),
    ],
)
def test_bad_input_is_one_clear_line(store, tmp_path, arguments, message):
    given = {"names": ["success"], "source": store, "formats": ["png"], "out": tmp_path / "out", **arguments}
    with pytest.raises(InputError) as error:
        make_figures(**given)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_an_output_that_is_a_file_or_cannot_be_written_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: --out: cannot be made"):
        make_figures(["mechanism"], formats=["png"], out=tmp_path / "file")
    (tmp_path / "mechanism.png").mkdir()
    with pytest.raises(InputError, match=r"mechanism\.png: --out: cannot be written"):
        make_figures(["mechanism"], formats=["png"], out=tmp_path)


def test_names_and_formats_said_twice_are_drawn_once(tmp_path):
    paths = make_figures(["mechanism", "mechanism"], formats=["png", "png"], out=tmp_path)
    assert [path.name for path in paths] == ["mechanism.png", "mechanism.csv", "mechanism.md"]


def test_figures_come_from_an_exported_folder_as_from_the_store(store, tmp_path, everything):
    """The folder lacks cells that the experiment's own plan has, so only --partial draws it."""
    folder = _export(store, tmp_path)
    with pytest.raises(Incomplete):
        make_figures(["success"], folder, ["png"], tmp_path / "out")
    make_figures(["success"], folder, ["png"], tmp_path / "out", partial=True)
    assert (tmp_path / "out" / "success.csv").read_bytes() == (everything[0] / "success.csv").read_bytes()


def test_published_is_the_folder_beside_the_experiments(store, tmp_path, monkeypatch):
    import experiments

    monkeypatch.setattr(experiments, "__path__", [str(tmp_path)])
    with pytest.raises(InputError, match=r"published/target_sets"):
        make_figures(["success"], formats=["png"], out=tmp_path / "out")
    _export(store, tmp_path / "published")
    with pytest.raises(Incomplete, match="published: "):
        make_figures(["success"], formats=["png"], out=tmp_path / "out")


def test_a_seed_that_was_asked_for_and_is_not_there_is_missing(tmp_path, store):
    """The store holds 4 seeds of every cell; then a sweep of 5 seeds is asked for and killed at once."""
    import shutil
    from dataclasses import replace

    from figures.inputs import load
    from lab.sweeps import Store

    copy = shutil.copy(store, tmp_path / "more.sqlite")
    with Store(copy) as opened:
        plan = opened.asked("target_sets")
        opened.record(replace(plan, seeds=range(5)))
    _, missing = load(copy)
    assert len(missing) == len(plan.cells)
    assert all("1 of 5 seeds missing" in line for line in missing)


def test_a_source_of_several_experiments_draws_target_sets_or_asks_for_one(results):
    from figures import inputs

    frames = results.frames
    cells = frames.cells.assign(experiment=[f"other{i % 2}" for i in range(len(frames.cells))])
    with pytest.raises(InputError, match="holds other0, other1; export one"):
        inputs.experiment_of(cells, "results.sqlite")
    mixed = cells.assign(experiment=[("target_sets", "other")[i % 2] for i in range(len(cells))])
    assert inputs.experiment_of(mixed, "results.sqlite") == "target_sets"
    assert inputs.experiment_of(cells[cells["experiment"] == "other1"], "results.sqlite") == "other1"
    with pytest.raises(InputError, match="holds no results yet"):
        inputs.experiment_of(cells.iloc[:0], "results.sqlite")


def _export(store, folder):
    from lab.sweeps import Store, export

    with Store(store, write=False) as opened:
        [exported] = export(opened, None, folder)
    return exported
