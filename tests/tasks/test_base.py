"""Batches, the registry, options and their errors, and what every generator promises about its sequences."""

import dataclasses
import json

import numpy as np
import pytest

from lab.errors import InputError
from lab.tasks import SPLITS, TASKS, Batch, Task, count_duplicates, make_task
from tests.tasks.helpers import asked, words
from tests.tasks.oracles import ORACLES

FAMILY = {"keys": ["a", "b", "c"], "targets": [["a", "c"], ["b"], ["a", "b", "c"], ["c"]]}
HISTORIES = {"histories": [[["push", "a"], ["push", "b"], ["query", ["b"]]], [["push", "b"], ["query", ["b"]]]]}

# Every generated task, with options that reach its corners.
CASES = [
    ("nested-scope", {}),
    ("nested-scope", {"max_depth": 1, "key_probability": 0.1}),
    ("nested-scope", {"max_depth": 12, "key_probability": 0.2, "train_length": 50}),
    ("nested-scope", {"key_probability": 1.0}),
    ("leveled-dips", {}),
    ("leveled-dips", {"levels": 1}),
    ("leveled-dips", {"levels": 7, "key_probability": 0.2}),
    ("subset-drop", {}),
    ("subset-drop", {"train_length": 1, "drop": 0.9}),
    ("subset-drop", {"drop": 0.0}),
    ("custom", FAMILY),
    ("custom", HISTORIES),
]
cases = pytest.mark.parametrize(("name", "options"), CASES, ids=lambda value: value if isinstance(value, str) else None)


# nested-scope, two brackets: key open key open key close key close key.
BY_HAND = Batch(
    np.array([[[0, 1, 0, 1, 0, 2, 0, 2, 0]]]),
    np.array([[[9, 0, 7, 0, 5, 0, 7, 0, 9]]]),
    np.ones((1, 1, 9), dtype=np.int64),
)
TARGETS_BY_HAND = [[0], [0], [0, 2], [0, 2], [0, 2, 4], [0, 2], [0, 2, 6], [0], [0, 8]]


def test_targets_by_hand():
    matrix = BY_HAND.targets()
    assert matrix.shape == (1, 1, 9, 9)
    assert [np.flatnonzero(row).tolist() for row in matrix[0, 0]] == TARGETS_BY_HAND
    assert BY_HAND.target_sizes()[0, 0].tolist() == [1, 1, 2, 2, 3, 2, 3, 1, 2]


def test_a_batch_is_indexed_by_its_leading_axes_only():
    assert BY_HAND[0].tokens.shape == (1, 9)
    assert BY_HAND[0, 0].seq_len == 9
    with pytest.raises(IndexError):
        BY_HAND[0, 0, 3]
    with pytest.raises(IndexError):
        BY_HAND[..., :3]


def test_a_batch_of_unequal_shapes_is_refused():
    with pytest.raises(ValueError, match="shapes differ"):
        Batch(np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((3,)))


@cases
def test_sequences_keep_the_promises_of_a_batch(name, options):
    task = make_task(name, **options)
    batch = task.sample("train", [0, 5], 10, 30)
    assert batch.tokens.shape == (2, 30, task.seq_len(task.train_length))
    for part in (batch.tokens, batch.death, batch.queries):
        assert part.dtype == np.int64
    position = np.arange(batch.seq_len)
    holds_key = batch.death > 0
    assert (batch.death[holds_key] > np.broadcast_to(position, batch.death.shape)[holds_key]).all()
    assert batch.death.max() <= batch.seq_len
    assert np.isin(batch.tokens[holds_key], task.key_tokens).all()
    assert (batch.target_sizes() == batch.targets().sum(-1)).all()
    assert (batch.target_sizes()[batch.queries > 0] > 0).all()
    assert ((batch.tokens >= 0) & (batch.tokens < len(task.vocabulary))).all()
    # What holds no key and yet reads as one is padding: nothing but padding follows.
    padding = np.isin(batch.tokens, task.key_tokens) & ~holds_key
    assert (np.diff(padding.astype(int), axis=-1) >= 0).all()
    assert (batch.queries[padding] == 0).all()
    assert 0 in task.key_tokens


@cases
def test_a_sequence_is_the_same_whatever_is_drawn_with_it(name, options):
    task = make_task(name, **options)
    whole = task.sample("validation", [3, 4, 5], 0, 40)
    part = task.sample("validation", [5, 3], 17, 6)
    alone = task.sample("validation", [4], 39, 1)
    for field in ("tokens", "death", "queries"):
        expected = getattr(whole, field)
        assert np.array_equal(getattr(part, field), expected[[2, 0], 17:23])
        assert np.array_equal(getattr(alone, field), expected[1:2, 39:])


@pytest.mark.parametrize("name", ["nested-scope", "leveled-dips", "subset-drop"])
def test_splits_and_seeds_differ(name):
    task = make_task(name)
    drawn = [task.sample(split, [seed], 0, 1, length=64).tokens.tobytes() for split in SPLITS for seed in range(20)]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("name", ["nested-scope", "leveled-dips"])
def test_a_longer_sequence_begins_with_the_shorter_one(name):
    task = make_task(name)
    short, long = (task.sample("test", [0], 0, 20, length=length) for length in (16, 64))
    assert np.array_equal(long.tokens[..., :16], short.tokens)
    assert np.array_equal(long.queries[..., :16], short.queries)
    assert np.array_equal(long.targets()[..., :16, :16], short.targets())


@pytest.mark.parametrize(("name", "options"), [case for case in CASES if case[0] in ORACLES])
def test_targets_follow_the_definition_word_by_word(name, options):
    task = make_task(name, **options)
    batch = task.sample("test", [1], 0, 40)
    for n in range(40):
        expected = ORACLES[name](words(task, batch[0, n]))
        assert asked(batch[0, n]) == {row: target for row, target in enumerate(expected) if target}
        assert set(batch[0, n].queries.tolist()) <= {0, 1}


# Literal first sequences: a change of any number the lab draws has to be made knowingly.
@pytest.mark.parametrize(
    ("name", "length", "expected"),
    [
        ("nested-scope", 12, [0, 0, 1, 1, 0, 2, 0, 1, 0, 0, 1, 1]),
        ("leveled-dips", 12, [7, 4, 0, 5, 3, 2, 5, 7, 7, 5, 1, 5]),
        ("subset-drop", 6, [0, 1, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 3]),
    ],
)
def test_first_sequences_are_what_they_were(name, length, expected):
    assert make_task(name).sample("train", [0], 0, 1, length=length).tokens[0, 0].tolist() == expected


@cases
def test_options_make_the_same_task_and_survive_json(name, options):
    task = make_task(name, **options)
    again = make_task(name, **json.loads(json.dumps(task.options())))
    assert again == task
    assert hash(again) == hash(task)
    assert set(task.options()) == {field.name for field in dataclasses.fields(TASKS[name])}


def test_the_same_number_written_otherwise_is_the_same_option():
    assert json.dumps(make_task("nested-scope", key_probability=1).options()) == json.dumps(
        make_task("nested-scope", key_probability=1.0).options()
    )


def test_the_registry_names_its_tasks():
    lookups, subsets = {"scoped-lookup", "source-lookup"}, {"subset-drop", "subset-free"}
    assert set(TASKS) == {"nested-scope", "leveled-dips", "custom", "source-scopes"} | lookups | subsets
    assert all(issubclass(kind, Task) and kind.name == name for name, kind in TASKS.items())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("nested-scop", {}, "task: unknown name 'nested-scop'; did you mean nested-scope?"),
        ("nested-scope", {"max_dept": 3}, "nested-scope: unknown option 'max_dept'; did you mean max_depth?"),
        ("nested-scope", {"name": "x"}, "nested-scope: unknown option 'name'; valid: "),
        ("nested-scope", {"max_depth": -1}, "nested-scope: max_depth: expected a whole number from 1 to 1000, got -1"),
        (
            "nested-scope",
            {"max_depth": 2.0},
            "nested-scope: max_depth: expected a whole number from 1 to 1000, got 2.0",
        ),
        (
            "nested-scope",
            {"max_depth": True},
            "nested-scope: max_depth: expected a whole number from 1 to 1000, got True",
        ),
        ("nested-scope", {"train_length": 0}, "nested-scope: train_length: expected a whole number, 1 or more, got 0"),
        ("nested-scope", {"key_probability": 0}, "nested-scope: key_probability: expected a number from 0.01 to 1.0"),
        ("nested-scope", {"key_probability": float("nan")}, "nested-scope: key_probability: expected a number"),
        ("leveled-dips", {"levels": "4"}, "leveled-dips: levels: expected a whole number from 1 to 1000, got '4'"),
        ("leveled-dips", {"key_probability": 2}, "leveled-dips: key_probability: expected a number from 0.01 to 1.0"),
        ("subset-drop", {"drop": 1.0}, "subset-drop: drop: expected a number from 0.0 to 0.99, got 1.0"),
        ("subset-drop", {"drop": None}, "subset-drop: drop: expected a number from 0.0 to 0.99, got None"),
        (
            "source-scopes",
            {"scopes": "indents"},
            "source-scopes: scopes: unknown value 'indents'; did you mean indent?",
        ),
        ("source-scopes", {"max_files": 0}, "source-scopes: max_files: expected a whole number, 1 or more, got 0"),
        ("source-scopes", {"include_tests": 1}, "source-scopes: include_tests: expected true or false, got 1"),
        ("source-scopes", {"path": ""}, "source-scopes: path: expected the path of a file or folder, got ''"),
    ],
)
def test_bad_options_name_task_field_and_cure(name, options, message):
    with pytest.raises(InputError) as error:
        make_task(name, **options)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tests", [0], 0, 1), "nested-scope: split: unknown split 'tests'; did you mean test?"),
        (("test", [-1], 0, 1), "nested-scope: seeds: expected a whole number, 0 or more, got -1"),
        (("test", [0], -1, 1), "nested-scope: start: expected a whole number from 0 to"),
        (("test", [0], 0, 1.5), "nested-scope: count: expected a whole number, 0 or more, got 1.5"),
    ],
)
def test_bad_draws(arguments, message):
    with pytest.raises(InputError) as error:
        make_task("nested-scope").sample(*arguments)
    assert str(error.value).startswith(message)


def test_bad_length():
    with pytest.raises(InputError, match="nested-scope: length: expected a whole number, 1 or more, got 0"):
        make_task("nested-scope").sample("test", [0], 0, 1, length=0)


def test_nothing_is_a_batch_too():
    assert make_task("nested-scope").sample("test", [], 0, 5).tokens.shape == (0, 5, 32)
    assert make_task("nested-scope").sample("test", [0], 0, 0).target_sizes().shape == (1, 0, 32)


def test_duplicates_by_brute_force():
    task, count = make_task("subset-drop"), 60
    report = count_duplicates(task, count, seed=2, length=4)
    rows = {
        split: [tuple(row) for row in task.sample(split, [2], 0, count, length=4).tokens[0].tolist()]
        for split in SPLITS
    }
    for split in SPLITS:
        assert report[split] == sum(row in rows[split][:n] for n, row in enumerate(rows[split]))
    assert report["test in train"] == sum(row in rows["train"] for row in rows["test"])
    assert report["validation in train"] == sum(row in rows["train"] for row in rows["validation"])
    assert report["test in validation"] == sum(row in rows["validation"] for row in rows["test"])
    # 15 nonempty subsets of 4 keys: repeats are certain.
    assert report["train"] >= count - 15


def test_long_sequences_do_not_repeat():
    assert set(count_duplicates(make_task("nested-scope"), 500, length=64).values()) == {0}


def test_show_marks_live_keys():
    shown = make_task("nested-scope").show(BY_HAND[0, 0]).splitlines()
    assert shown[0].startswith("nested-scope: 9 tokens, 9 queries")
    assert shown[2].split() == ["0", "1", "key", "1", "●"]
    assert shown[6].split() == ["4", "1", "key", "3", "●·●·●"]
    assert shown[7].split() == ["5", "1", "close", "2", "●·●·○·"]
    assert shown[10].split() == ["8", "1", "key", "2", "●·○·○·○·●"]
    assert shown[11] == "last query, row 8: live keys at 0, 8"
    # Tokens stand indented by their depth.
    assert [line[16:].index(line.split()[2]) for line in shown[2:11]] == [0, 0, 2, 2, 4, 2, 2, 0, 0]


def test_show_stops_at_padding_and_at_the_width_of_a_page():
    task = make_task("custom", **HISTORIES)
    assert task.show(task.sequences()[1]).startswith("custom: 3 tokens, 1 queries")
    long = make_task("leveled-dips")
    shown = long.show(long.sample("test", [0], 0, 1, length=200)[0, 0]).splitlines()
    assert max(map(len, shown)) <= 110
    assert "... 128 more rows" in shown[-2]


def test_show_takes_one_sequence():
    with pytest.raises(ValueError, match="one sequence"):
        make_task("nested-scope").show(BY_HAND)
