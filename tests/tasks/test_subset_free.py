"""Every subset of a few keys: the family read off by eye, and the draws from it."""

import numpy as np
import pytest

from lab.errors import InputError
from lab.tasks import make_task
from tests.tasks.helpers import asked, words


def test_three_keys_by_eye():
    task = make_task("subset-free", keys=3)
    family = task.family()
    assert words(task, family[4]) == ["key1", "keep", "key2", "drop", "key3", "keep", "query5"]
    assert asked(family[4]) == {6: {0, 4}}
    assert family.death[4].tolist() == [7, 0, 3, 0, 7, 0, 0]
    assert [sorted(asked(family[s])[6]) for s in range(7)] == [[0], [2], [0, 2], [4], [0, 4], [2, 4], [0, 2, 4]]


def test_tokens_and_queries_may_be_shared_or_not():
    task = make_task("subset-free", keys=2, tokens="per-slot", query="fixed")
    assert task.vocabulary == ("key1", "key2", "drop1", "drop2", "keep1", "keep2", "query")
    assert words(task, task.family()[0]) == ["key1", "keep1", "key2", "drop2", "query"]
    assert len(make_task("subset-free", keys=10).vocabulary) == 10 + 2 + 1023


@pytest.mark.parametrize("tokens", ["shared", "per-slot"])
@pytest.mark.parametrize("query", ["free", "fixed"])
def test_the_family_is_every_subset_once(tokens, query):
    task = make_task("subset-free", keys=5, tokens=tokens, query=query)
    family = task.family()
    assert family.tokens.max() == len(task.vocabulary) - 1
    alive = family.targets()[:, -1, 0:-1:2]
    assert np.array_equal(alive, task.alive())
    assert len({tuple(row) for row in alive.tolist()}) == task.targets == 31
    assert alive.any(1).all()
    kept = np.isin(family.tokens[:, 1::2], range(task.first_drop + task.slots, task.first_query))
    assert np.array_equal(kept, alive)


def test_draws_are_uniform_and_from_the_family():
    task = make_task("subset-free", keys=3)
    batch = task.sample("test", [0, 5], 10, 3500)
    number = batch.tokens[..., -1] - task.first_query
    assert np.array_equal(batch.tokens, task.family().tokens[number])
    assert np.array_equal(batch.death, task.family().death[number])
    share = np.bincount(number.ravel(), minlength=7) / number.size
    assert np.abs(share - 1 / 7).max() < 5 * np.sqrt(1 / 7 / number.size)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": 11}, "subset-free: keys: expected a whole number from 1 to 10, got 11"),
        ({"tokens": "own"}, "subset-free: tokens: unknown value 'own'"),
        ({"query": "fre"}, "did you mean free"),
        ({"notion": "windows"}, "did you mean window"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        make_task("subset-free", **options)


def test_a_family_has_one_length():
    task = make_task("subset-free", keys=3)
    assert task.sample("train", [0], 0, 2, length=3).seq_len == 7
    with pytest.raises(InputError, match="length: expected 3, the number of its keys, got 6"):
        task.sample("train", [0], 0, 2, length=6)
