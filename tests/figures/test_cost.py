"""The figure of costs is drawn from what `fpa-lab bench --tables` wrote, unchanged, and from nothing else."""

import json
from pathlib import Path

import pytest

from figures import cost, make_figures
from lab.bench import growth
from lab.bench.document import FORMAT, SUMMARY, read_tables, write_tables
from lab.bench.measure import estimate
from lab.errors import InputError


def measured(series: growth.Series) -> list:
    """Made up: quadratic in T, linear in everything else, with a spread of 10 %."""
    power = 2.0 if series.name == "T" else 1.0
    scale = 1e-9 if series.quantity == "time" else 1e3
    return [estimate([scale * size**power * wobble for wobble in (0.9, 1.0, 1.1)]) for size in series.sizes]


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    values = [(series, measured(series)) for series in growth.SERIES]
    document = {
        "format": FORMAT,
        "command": "fpa-lab bench growth",
        "quick": False,
        "threads": 2,
        "machine": {"processor": "made up", "cores": 2, "memory_gib": 4.0},
        "results": [],
        "tables": {
            "growth": [row for series, found in values for row in growth._rows(series, found)],
            "exponents": [growth._exponent(series, found) for series, found in values],
        },
    }
    folder = tmp_path / "bench"
    write_tables(document, folder)
    return folder


def test_every_panel_shows_the_rows_that_were_measured(tables):
    drawing = cost.draw(cost.load(tables))
    for letter, (quantity, variable, kinds, _, _) in zip("abcdef", cost.PANELS):
        rows = drawing.rows[drawing.rows["panel"] == letter]
        assert set(rows["quantity"]) == {quantity}
        assert set(rows["variable"]) == {variable}
        assert {name.split()[0] for name in rows["operation"]} == set(kinds)
    (axes, *_) = drawing.figure.axes
    drawn = {line.get_label(): line.get_ydata() for line in axes.lines}
    rows = drawing.rows[(drawing.rows["panel"] == "a") & (drawing.rows["operation"] == "attention fpa")]
    assert list(drawn["FPA, 2.00"]) == pytest.approx(list(rows["median"]))
    assert list(rows["median"])[-1] == pytest.approx(1e3 * 1e-9 * rows["size"].iloc[-1] ** 2)
    assert "time of attention fpa in T 2.00 (2.00 to 2.00)" in drawing.caption
    assert "made up, 2 cores, 2 threads: median of n = 3 turns" in drawing.caption
    assert "quick" not in drawing.caption


def test_the_same_tables_give_the_same_bytes_and_no_name_means_all_there_is(tables, tmp_path):
    """From the folder itself, and from a folder of published results beside which it stands."""
    first = make_figures([], tables, ["svg", "png"], tmp_path / "first")
    again = make_figures(["cost"], tables.parent, ["svg", "png"], tmp_path / "again")
    assert [path.name for path in first] == ["cost.svg", "cost.png", "cost.csv", "cost.md"]
    for one, other in zip(first[:3], again[:3], strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_tables_that_were_changed_or_are_missing_are_refused(tables):
    text = (tables / "growth.csv").read_text()
    (tables / "growth.csv").write_text(text.replace("1", "2", 1))
    with pytest.raises(InputError, match=r"growth\.csv: sha256 differs"):
        cost.load(tables)
    (tables / "growth.csv").unlink()
    with pytest.raises(InputError, match=r"growth\.csv: is missing"):
        cost.load(tables)
    (tables / SUMMARY).write_text("{}")
    with pytest.raises(InputError, match="format: expected"):
        cost.load(tables)
    (tables / SUMMARY).write_text("no JSON")
    with pytest.raises(InputError, match="expected JSON"):
        cost.load(tables)
    (tables / SUMMARY).unlink()
    with pytest.raises(InputError, match=r"no such file; fpa-lab bench --tables"):
        read_tables(tables)


def test_a_run_without_growth_has_no_figure(tables, tmp_path):
    summary = json.loads((tables / SUMMARY).read_text())
    del summary["tables"]["growth.csv"]
    (tables / SUMMARY).write_text(json.dumps(summary))
    with pytest.raises(InputError, match=r"holds no growth\.csv; fpa-lab bench growth --tables"):
        make_figures(["cost"], tables, ["svg"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
