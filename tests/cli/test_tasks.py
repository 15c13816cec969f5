"""`fpa-lab task` and `fpa-lab train`."""

import json
import math
import re

import pytest

from lab.cli.training import BARS_SHOWN, spark
from lab.tasks.shortcuts import SHORTCUTS

SETS = "keys: [a, b, c]\ntargets: [[a, c], [b]]\n"


def test_task_shows_a_sequence_with_its_live_keys(fpa_lab):
    shown = fpa_lab("task", "nested-scope", "--length", 12, "--show")
    assert shown.status == 0
    assert "●" in shown.out
    assert "live keys" in shown.out
    assert fpa_lab("task", "nested-scope", "--length", 12, "--show").out == shown.out
    assert fpa_lab("task", "nested-scope", "--length", 12, "--show", "--seed", 1).out != shown.out
    assert fpa_lab("task", "nested-scope", "--length", 12, "--show", "--index", 1).out != shown.out


def test_task_json_lists_the_targets_of_every_query(fpa_lab):
    one = json.loads(fpa_lab("task", "subset-drop", "--length", 5, "--show", "--json").out)
    (row,) = one["targets"]
    live = [j for j, death in enumerate(one["death"]) if j <= int(row) < death]
    assert one["targets"][row] == live
    assert one["tokens"][int(row)] == "query"


def test_task_prints_its_sizes(fpa_lab):
    facts = json.loads(fpa_lab("task", "nested-scope", "--option", "max_depth=2", "--length", 40, "--json").out)
    assert facts["tokens in a sequence"] == 40
    assert "max_depth=2" in facts["options"]
    assert 0 < facts["live share of the keys so far, mean"] < 1
    assert "key open close" in fpa_lab("task", "nested-scope").out


def test_task_audits_shortcuts_and_duplicates(fpa_lab):
    """On sequences of one key every reader is right; on longer ones none but the optimum is, by far."""
    trivial = json.loads(fpa_lab("task", "subset-drop", "--length", 1, "--json").out)
    assert trivial["optimum loss"] == 0
    assert {name: reading["exact"] for name, reading in trivial["shortcuts"].items()} == dict.fromkeys(SHORTCUTS, 1)
    assert trivial["duplicates"] == {
        **dict.fromkeys(("train", "validation", "test"), 511),
        **dict.fromkeys(("validation in train", "test in train", "test in validation"), 512),
    }

    hard = json.loads(fpa_lab("task", "nested-scope", "--json").out)
    assert all(reading["exact"] < 0.9 and reading["tv"] > 0.1 for reading in hard["shortcuts"].values())
    chance = hard["shortcuts"]["chance"]
    assert 0 < hard["optimum loss"] < chance["loss"]
    assert chance["tv"] == pytest.approx(1 - hard["live share of the keys so far, mean"])
    assert set(hard["duplicates"].values()) == {0}


def test_task_prints_the_audit_or_says_that_it_did_not_look(fpa_lab):
    shown = fpa_lab("task", "subset-drop", "--length", 4).out
    assert all(re.search(rf"^ {reader} .*\d\.\d", shown, re.MULTILINE) for reader in ("optimum", *SHORTCUTS))
    assert "512 test in train" in shown  # 15 different sequences are soon all seen
    assert "not looked at" in fpa_lab("task", "nested-scope", "--length", 600).out
    assert "shortcuts" not in json.loads(fpa_lab("task", "leveled-dips", "--option", "levels=40", "--json").out)


def test_a_specification_becomes_a_task(fpa_lab, tmp_path):
    (tmp_path / "sets.yaml").write_text(SETS)
    one = json.loads(fpa_lab("task", "custom", "--spec", "sets.yaml", "--show", "--json").out)
    assert set(one["tokens"]) <= {"a", "b", "c", "keep", "drop", "query"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nested-scop"], "did you mean nested-scope?"),
        (["nested-scope", "--option", "max_dpth=2"], "did you mean max_depth?"),
        (["nested-scope", "--option", "max_depth=0"], "nested-scope: max_depth: expected a whole number"),
        (["nested-scope", "--split", "tst"], "did you mean test?"),
        (["nested-scope", "--length", "0"], "--length"),
        (["nested-scope", "--seed", "-1"], "--seed"),
        (["nested-scope", "--spec", "sets.yaml"], "--spec: belongs to the task custom"),
        (["nested-scope", "--path", "."], "--path: belongs to the task source-scopes"),
        (["nested-scope", "--length", "100000000000"], "--length: asks for 6,400,000,000,000 tokens at once"),
        (["nested-scope", "--length", "20000", "--show", "--json"], "--length: asks for 400,000,000 tokens at once"),
        (["nested-scope", "--option", "train_length=100000000000"], "tokens at once; expected at most 100,000,000"),
        (["nested-scope", "--index", "99999999999999999999"], "--index"),
        (["custom", "--spec", "sets.yaml", "--option", "keys=3"], "--option: keys: not used together with --spec"),
        (["custom"], "custom: expected --spec FILE"),
        (["custom", "--spec", "missing.yaml"], "missing.yaml: cannot be read"),
        (["custom", "--spec", "typed.yaml"], "typed.yaml: token: token types are for check"),
        (["custom", "--spec", "empty.yaml"], "empty.yaml: expected a specification, found an empty file"),
    ],
)
def test_task_errors(fpa_lab, tmp_path, arguments, said):
    (tmp_path / "empty.yaml").touch()
    (tmp_path / "typed.yaml").write_text("histories:\n  - [{push: a, token: x}, {query: [a], token: q}]\n")
    assert said in fpa_lab("task", *arguments).error_line


def test_train_reports_every_seed_with_its_curve(fpa_lab):
    arguments = ["--task", "subset-drop", "--option", "train_length=4", "--head", "fpa-walk-tied", "--dim", 1]
    arguments += ["--seeds", 2, "--steps", 30]
    document = json.loads(fpa_lab("train", *arguments, "--json").out)
    assert [seed["seed"] for seed in document["seeds"]] == [0, 1]
    first = document["seeds"][0]
    assert first["curve"][-1][0] == 30
    assert first["curve"][-1][1] < first["curve"][0][1]
    assert set(first["evaluations"]) == {"1", "2", "4", "8"}
    assert 0 <= first["evaluations"]["1"]["exact"] <= 1

    table = fpa_lab("train", *arguments)
    assert table.status == 0
    assert "of 2 seeds succeed" in table.out
    assert spark([loss for _, loss in first["curve"]]) in table.out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--head": "fpa-walk-tid"}, "did you mean fpa-walk-tied?"),
        ({"--task": "nested"}, "did you mean nested-scope?"),
        ({"--dim": "-1"}, "--dim"),
        ({"--seeds": "0"}, "--seeds"),
        ({"--steps": "0"}, "--steps"),
        ({"--learning-rate": "0"}, "--learning-rate"),
        ({"--learning-rate": "nan"}, "--learning-rate"),
        ({"--learning-rate": "inf"}, "--learning-rate"),
        ({"--learning-rate": "1e300"}, "--learning-rate"),
        ({"--seeds": "100000000000"}, "--seeds"),
        ({"--batch": "100000000000"}, "--seeds, --batch: asks for"),
        ({"--option": "train_length=100000000"}, "expected at most 100,000,000"),
        ({"--task": "source-scopes"}, "--task: source-scopes: one corpus for all splits"),
        ({"--device": "gpu"}, "--device: gpu"),
        ({"--head": None}, "Missing option '--head'"),
    ],
)
def test_train_errors(fpa_lab, change, said):
    options = {"--task": "nested-scope", "--head": "fpa-walk-tied"} | change
    assert said in fpa_lab("train", *(word for pair in options.items() if pair[1] for word in pair)).error_line


def test_spark_is_logarithmic_thinned_and_clipped():
    assert spark([1.0, 0.01, 0.0001]) == "█▅▁"
    assert spark([100.0, 0.0]) == "█▁"
    assert len(spark([0.5] * 41)) <= BARS_SHOWN
    falling = spark([math.exp(-0.3 * i) for i in range(41)])
    assert falling[-1] == "▁"
    assert list(falling) == sorted(falling, reverse=True)
