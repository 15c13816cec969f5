"""The answer of `fpa-lab check`: its shape, its numbers, its witnesses, and its certificates."""

import json

import pytest

from proofs_check import answer, exact
from proofs_check.answer import check
from proofs_check.keysets import from_options, loads

POSSIBLE = from_options(4, "1,3; 2; 1,2,3")


def test_a_realisable_family():
    found = check(POSSIBLE).to_json("FILE")
    assert found["keys"] == 4
    assert found["targets"] == 3
    assert found["form"] == "family"
    assert found["dips"] == "after-each-key"
    assert found["certificates"] == "FILE"
    fpa = found["heads"]["fpa"]
    assert fpa["levels"] == {"1": 1, "2": 2, "3": 3, "4": 4}
    assert fpa["dips"][0] == {
        "target": ["1", "3"],
        "dips": [{"after": "2", "value": 1}, {"after": "4", "value": 3}],
    }
    for head in (fpa, found["heads"]["fpa-walk"]):
        assert (head["query"], head["notion"]) == ("fixed", "uniform")
        assert (head["realisable"], head["dimension"], head["witness"]) == (True, 0, None)
        assert head["numeric"]["queries"] == head["numeric"]["of"] == 3
        for name in ("float64", "float32", "bfloat16"):
            assert 0 < head["numeric"][name]["max_tv"] <= answer.EPSILON
    assert json.loads(json.dumps(found)) == found


CROSSING = loads("histories: [[{push: a}, {push: b}, {query: [a, b]}, {query: [b]}]]")
REVIVED = loads("histories: [[{push: a}, {push: b}, {query: [b]}, {query: [a, b]}]]")


@pytest.mark.parametrize(
    ("spec", "head", "witness"),
    [
        (
            from_options(2, "1; 2", "at-end"),
            "fpa",
            {
                "kind": "fpa-cycle",
                "cycle": [{"target": ["2"], "alive": "2", "dead": "1"}, {"target": ["1"], "alive": "1", "dead": "2"}],
                "text": "{2} kills 1 and spares 2; {1} kills 2 and spares 1: the levels would have to rise in a circle",
            },
        ),
        (
            CROSSING,
            "fpa-walk",
            {
                "kind": "crossing-pair",
                "history": 1,
                "pair": ["a", "b"],
                "intervals": [[1, 4], [2, 4]],
                "text": "history 1: a lives past the push of b, then dies before it: no stack",
            },
        ),
        (
            from_options(3, "1; 1 2", "1"),
            "fpa",
            {
                "kind": "no-slot",
                "target": ["1"],
                "dead": "2",
                "text": "{1}: 2 must be dead, and no dip may stand after it",
            },
        ),
        (
            REVIVED,
            "fpa",
            {
                "kind": "revived-key",
                "history": 1,
                "key": "a",
                "dead_at": 3,
                "alive_at": 4,
                "text": "history 1: key a is dead at the query of event 3 and alive at that of event 4; a dead key "
                "never comes back",
            },
        ),
    ],
)
def test_witnesses(spec, head, witness):
    found = check(spec)
    entry = found.to_json()["heads"][head]
    assert (entry["realisable"], entry["dimension"], entry["numeric"]) == (False, None, None)
    assert entry["witness"] == witness
    assert found.realisable == (head != "fpa")


def test_a_crossing_history_is_realised_by_free_levels_alone():
    heads = check(CROSSING).to_json()["heads"]
    assert heads["fpa"]["realisable"]
    assert heads["fpa"]["dips"] == [{"history": 1, "dips": [{"after": 3, "value": 1}]}]
    assert heads["fpa"]["levels"] == {"a": 2, "b": 1}
    assert not heads["fpa-walk"]["realisable"]


@pytest.mark.parametrize("spec", [POSSIBLE, CROSSING, REVIVED, from_options(2, "1; 2", "at-end")])
def test_the_certificates_of_an_answer_are_accepted(spec, tmp_path):
    found = check(spec)
    found.certificates.write(tmp_path / "c.json")
    verdicts = exact.verify_file(str(tmp_path / "c.json"))
    assert [verdict.statement for verdict in verdicts if not verdict.accepted] == []
    about_fpa = [v for v in verdicts if exact.CHECKERS[v.kind][1].__module__ == "proofs_check.exact.fpa"]
    assert len(about_fpa) == (1 if spec is REVIVED else 2)  # one proof serves both heads


def test_large_specifications_are_sampled_and_say_so(monkeypatch):
    monkeypatch.setattr(answer, "SAMPLED_QUERIES", 4)
    monkeypatch.setattr(answer, "LISTED", 5)
    pushes = ", ".join(f"{{push: k{k}}}, {{query: [k{k}]}}" for k in range(30))
    found = check(loads(f"histories: [[{pushes}]]")).to_json()["heads"]["fpa"]
    assert found["numeric"]["queries"] == 4
    assert found["numeric"]["of"] == 30
    assert found["numeric"]["float64"]["max_tv"] <= answer.EPSILON
    assert found["levels"] is None
    assert found["dips"] is None


def test_warnings_are_in_the_answer():
    assert check(from_options(2, "1; ; 1")).to_json()["warnings"] == [
        "targets: set 2: empty, ignored",
        "targets: set 3: the same as set 1, kept once",
    ]
