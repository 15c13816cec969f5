"""`fpa-lab prove`: a table of claims, JSON, and the counterexample of what fails."""

import json
from dataclasses import replace

import pytest

from proofs_check.constructions import constant_dimension


def test_the_command_prints_a_table_and_json(fpa_lab):
    answer = fpa_lab("prove", "rivals", "nested-scope", "--size", "small")
    assert (answer.status, answer.err) == (0, "")
    assert "2 of 2 claims hold" in answer.out
    assert "exact, weights in float" in answer.out
    document = json.loads(fpa_lab("prove", "rivals", "--size", "2", "--json").out)
    (claim,) = document.pop("claims")
    assert document == {"size": 2, "holds": True}
    assert (claim["claim"], claim["holds"], claim["counterexample"]) == ("rivals", True, None)
    assert claim["instances"] > 50


def test_the_command_fails_with_the_counterexample(fpa_lab, monkeypatch):
    honest = constant_dimension.constant_dimension()
    wrong = replace(honest, values={**honest.values, "keep": -1})
    monkeypatch.setattr(constant_dimension, "constant_dimension", lambda: wrong)
    answer = fpa_lab("prove", "constant-dimension", "rivals", "--size", "1")
    assert answer.status == 1
    assert "constant-dimension: fails for keys (0,) of 1\n" in answer.out
    assert "1 of 2 claims hold" in answer.out
    assert json.loads(fpa_lab("prove", "constant-dimension", "--size", "1", "--json").out)["holds"] is False


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["walkdrift"], "prove: walkdrift: unknown claim; did you mean walk-drift?"),
        (["--size", "huge"], "--size: huge: expected small, default, large or a whole number from 1 to 9"),
        (["--size", "0"], "--size: 0: expected small, default, large or a whole number from 1 to 9"),
    ],
)
def test_bad_input_is_one_line(fpa_lab, arguments, line):
    assert fpa_lab("prove", *arguments).error_line == line
