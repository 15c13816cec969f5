"""Custom families and histories: encodings by hand, decoding by the rules of the file, and every refusal."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import InputError
from lab.tasks import make_task
from tests.tasks.helpers import asked, words

ABC = ["a", "b", "c"]


def texts(task):
    batch = task.sequences()
    return [" ".join(words(task, batch[n])) for n in range(len(batch.tokens))]


def named_targets(task, batch):
    """Names of the targets of each query, in order of the queries."""
    return [{task.vocabulary[batch.tokens[key]] for key in target} for target in asked(batch).values()]


def family(targets, dips="after-each-key", keys=ABC):
    return make_task("custom", keys=keys, targets=targets, dips=dips)


@pytest.mark.parametrize(
    ("dips", "expected"),
    [
        ("after-each-key", "a drop b keep c keep query"),
        ("at-end", "a b c drop keep keep query"),
        (["a", "c"], "a drop b c keep keep query"),
        (["b"], "a b drop keep c query"),
        (["b", "a", "c"], "a drop b keep c keep query"),
    ],
)
def test_encodings_of_one_set(dips, expected):
    task = family([["b", "c"]], dips)
    assert texts(task) == [expected]
    assert named_targets(task, task.sequences()[0]) == [{"b", "c"}]
    assert task.sequences().queries.sum() == 1


def test_deaths_are_where_the_drops_are():
    batch = family([["b"]], "at-end").sequences()[0]
    assert batch.death.tolist() == [3, 7, 5, 0, 0, 0, 0]


def test_tokens_of_a_custom_task():
    task = family([["b"]])
    assert task.vocabulary == ("a", "b", "c", "drop", "keep", "query")
    assert task.key_tokens == (0, 1, 2)
    assert task.train_length == 3
    assert task.seq_len(3) == 7


def test_sets_are_put_in_order_and_empty_and_repeated_ones_left_out():
    task = family([["c", "a"], [], ["a", "c"], ["b"]])
    assert task.options()["targets"] == [["a", "c"], ["b"]]
    assert family([["a", "c"], ["b"]]) == task
    assert family([["b"]], ["c", "a", "b"]) == family([["b"]], ["a", "b", "c"])


def test_samples_run_over_the_whole_family_evenly():
    sets = [list(s) for r in range(1, 4) for s in itertools.combinations(ABC, r)]
    task = family(sets)
    n = 3500
    drawn = task.sample("train", [0], 0, n)
    rows = {row.tobytes(): k for k, row in enumerate(task.sequences().tokens)}
    seen = np.bincount([rows[row.tobytes()] for row in drawn.tokens[0]], minlength=7)
    assert len(rows) == 7
    assert np.abs(seen / n - 1 / 7).max() < 5 * np.sqrt(1 / 7 / n)
    for row in range(20):
        k = rows[drawn.tokens[0, row].tobytes()]
        assert named_targets(task, drawn[0, row]) == [set(sets[k])]


@given(st.data())
def test_the_tokens_determine_the_targets(data):
    keys = [f"k{n}" for n in range(data.draw(st.integers(1, 6)))]
    target = data.draw(st.lists(st.sampled_from(keys), min_size=1, unique=True))
    slots = data.draw(st.lists(st.sampled_from(keys), unique=True))
    if set(keys) - set(target):  # a slot after the last key, so that any key can be dropped
        slots = list({*slots, keys[-1]})
    task = family([target], slots, keys)
    batch = task.sequences()[0]
    read, run = words(task, batch), []
    decoded = set(keys)
    waiting = []
    for word in read[:-1]:
        if word in keys:
            if run:  # the run of D tokens has ended
                waiting, run = [], []
            waiting.append(word)
        else:
            if word == "drop":
                decoded.discard(waiting[len(run)])
            run.append(word)
    assert read[-1] == "query"
    assert decoded == set(target)
    assert named_targets(task, batch) == [set(target)]


HISTORY = [["push", "a"], ["push", "b"], ["query", ["a", "b"]], ["push", "c"], ["query", ["a", "c"]], ["query", ["c"]]]


def test_a_history_by_hand():
    task = make_task("custom", histories=[HISTORY, [["push", "c"], ["query", ["c"]]]])
    assert texts(task)[0] == "a b keep keep query c keep drop keep query drop keep query"
    first, second = (task.sequences()[n] for n in range(2))
    assert named_targets(task, first) == [{"a", "b"}, {"a", "c"}, {"c"}]
    assert first.death.tolist() == [10, 7, 0, 0, 0, 13, 0, 0, 0, 0, 0, 0, 0]
    assert np.flatnonzero(first.queries).tolist() == [4, 9, 12]
    # The second history is shorter: padding behind it, and keys that never die have the width of the array.
    assert second.tokens.tolist() == [2, 4, 5] + [0] * 10
    assert second.death.tolist() == [13] + [0] * 12
    assert second.queries.tolist() == [0, 0, 1] + [0] * 10


def test_events_may_be_mappings_as_in_a_file():
    mappings = [{kind: named} for kind, named in HISTORY]
    assert make_task("custom", histories=[mappings]) == make_task("custom", histories=[HISTORY])


def test_one_query_at_the_end_is_the_family_with_dips_at_the_end():
    history = make_task("custom", histories=[[*(["push", k] for k in ABC), ["query", ["b"]]]])
    assert texts(history) == texts(family([["b"]], "at-end"))


def test_an_empty_query_is_ignored_and_kills_nothing():
    with_empty = [HISTORY[0], ["query", []], *HISTORY[1:]]
    assert make_task("custom", histories=[with_empty]) == make_task("custom", histories=[HISTORY])


def test_keys_of_histories_can_be_given_an_order():
    task = make_task("custom", keys=["c", "b", "a"], histories=[HISTORY])
    assert task.vocabulary[:3] == ("c", "b", "a")
    assert make_task("custom", histories=[HISTORY]).vocabulary[:3] == ("a", "b", "c")


@given(st.data())
def test_histories_answer_for_every_key_that_has_not_died(data):
    """Random valid histories, decoded by the rule of the file: D tokens answer for the live keys in order of push."""
    keys = list("abcdef")[: data.draw(st.integers(1, 6))]
    events, live = [], []
    for key in keys:
        events.append(["push", key])
        live.append(key)
        if data.draw(st.booleans()) or key == keys[-1]:
            live = data.draw(st.lists(st.sampled_from(live), min_size=1, unique=True).map(sorted))
            events.append(["query", list(live)])
    task = make_task("custom", histories=[events])
    batch = task.sequences()[0]
    decoded, alive, answers = [], [], []
    for word in words(task, batch):
        if word in keys:
            alive.append(word)
        elif word == "query":
            assert len(answers) == len(alive)
            alive = [key for key, answer in zip(alive, answers, strict=True) if answer == "keep"]
            decoded.append(set(alive))
            answers = []
        else:
            answers.append(word)
    assert decoded == [set(named) for kind, named in events if kind == "query"]
    assert named_targets(task, batch) == decoded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "custom: keys: expected a list of at least one name"),
        ({"keys": "abc", "targets": [["a"]]}, "custom: keys: expected a list of names, got 'abc'"),
        ({"keys": [1, 2], "targets": [["1"]]}, "custom: keys: expected a list of names, got 1 in it"),
        ({"keys": ["a", "a"], "targets": [["a"]]}, "custom: keys: 'a' stands there twice"),
        ({"keys": ["a", "query"], "targets": [["a"]]}, "custom: keys: 'query' is the name of a token that is no key"),
        ({"keys": ["alpha"], "targets": [["alpa"]]}, "custom: targets[0]: unknown key 'alpa'; did you mean alpha?"),
        ({"keys": ABC, "targets": [["a"], ["b", "b"]]}, "custom: targets[1]: 'b' stands there twice"),
        ({"keys": ABC, "targets": "a"}, "custom: targets: expected a list of lists of names, got 'a'"),
        ({"keys": ABC, "targets": [[]]}, "custom: targets: expected at least one nonempty set"),
        (
            {"keys": ABC, "targets": [["a"]], "dips": "at-ned"},
            "custom: dips: unknown value 'at-ned'; did you mean at-end?",
        ),
        ({"keys": ABC, "targets": [["a"]], "dips": ["d"]}, "custom: dips: unknown key 'd'"),
        (
            {"keys": ABC, "targets": [["a", "b"]], "dips": ["b"]},
            "custom: targets: [a, b] leaves out key 'c', but no dip",
        ),
        ({"histories": [HISTORY], "targets": [["a"]]}, "custom: histories: expected either histories or targets"),
        ({"histories": [HISTORY], "dips": "at-end"}, "custom: histories: expected either histories or targets"),
        ({"histories": [HISTORY], "keys": ["a"]}, "custom: histories[0][1]: unknown key 'b'"),
        ({"histories": [[["pish", "a"]]]}, "custom: histories[0][0]: unknown event 'pish'; did you mean push?"),
        (
            {"histories": [[["push", "a"], ["query", "a"]]]},
            "custom: histories[0][1]: expected a list of names, got 'a'",
        ),
        ({"histories": [[["push", ["a"]]]]}, "custom: histories[0][0]: expected the name of a key to push, got ['a']"),
        ({"histories": [["push"]]}, "custom: histories[0][0]: expected [push, name] or [query, names], got 'push'"),
        ({"histories": [[["push", "a"]]]}, "custom: histories[0]: expected at least one query with a nonempty target"),
        ({"histories": [HISTORY, [["push", "a"], ["push", "a"]]]}, "custom: histories[1][1]: key 'a' is pushed twice"),
        (
            {"histories": [[["push", "a"], ["query", ["a", "b"]], ["push", "b"]]]},
            "custom: histories[0][1]: the query names key 'b', which is not yet pushed",
        ),
        (
            {"histories": [[*HISTORY, ["push", "d"], ["query", ["b", "d"]]]]},
            "custom: histories[0]: key 'b' is missing at the query of event 4 and comes back at event 7",
        ),
    ],
)
def test_refusals(options, message):
    with pytest.raises(InputError) as error:
        make_task("custom", **options)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_other_lengths_are_refused():
    with pytest.raises(InputError, match="custom: length: expected 3, the number of keys, got 4"):
        family([["a"]]).sample("test", [0], 0, 1, length=4)


def test_too_large_a_family_is_refused():
    keys = [f"k{n}" for n in range(3000)]
    with pytest.raises(InputError, match="custom: 3000 sequences of up to 6001 tokens are more than 10000000 in all"):
        family([[key] for key in keys], "after-each-key", keys)


def test_too_long_a_history_is_refused(monkeypatch):
    monkeypatch.setattr("lab.tasks.custom._MAX_TOKENS", 12)
    assert make_task("custom", histories=[HISTORY[:5]]).sequences().seq_len == 10
    with pytest.raises(InputError, match="custom: 1 sequences of up to 13 tokens are more than 12 in all"):
        make_task("custom", histories=[HISTORY])
