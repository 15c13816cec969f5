"""The laws of the three synthetic tasks, held against samples and exact calculation."""

import numpy as np
import pytest

from lab.tasks import make_task

KEY, OPEN, CLOSE = 0, 1, 2


def depths(tokens):
    return np.cumsum((tokens == OPEN).astype(int) - (tokens == CLOSE), axis=-1)


@pytest.mark.parametrize("max_depth", [1, 3, 4])
def test_depth_stays_within_its_bounds_and_reaches_both(max_depth):
    tokens = make_task("nested-scope", max_depth=max_depth).sample("test", [0], 0, 200, length=64).tokens
    assert depths(tokens).min() == 0
    assert depths(tokens).max() == max_depth


def test_depth_follows_the_walk_that_is_stated():
    # One step of the walk on 0..4: up or down with 0.3 each, and to stay where that is not possible.
    step = np.diag(np.full(4, 0.3), 1) + np.diag(np.full(4, 0.3), -1)
    step += np.diag(1 - step.sum(1))
    assert np.allclose(np.full(5, 0.2) @ step, 0.2)
    n = 4000
    walks = depths(make_task("nested-scope").sample("test", [0], 0, n, length=256).tokens[0])
    law = np.eye(5)[0]
    for i in range(256):
        law = law @ step
        if i in (0, 1, 5, 20, 60, 255):
            seen = np.bincount(walks[:, i], minlength=5) / n
            assert np.abs(seen - law).max() < 5 * np.sqrt(0.25 / n), i


def test_late_depths_are_distributed_as_early_ones():
    walks = depths(make_task("nested-scope").sample("test", [0], 0, 4000, length=256).tokens[0])
    early, late = (np.bincount(part.ravel(), minlength=5) / part.size for part in (walks[:, 32:64], walks[:, 224:]))
    assert np.abs(early - late).max() < 0.02
    assert np.abs(late - 0.2).max() < 0.02


def test_keys_come_with_their_probability_inside():
    tokens = (
        make_task("nested-scope", max_depth=100, key_probability=0.25).sample("test", [0], 0, 500, length=64).tokens
    )
    inside = depths(tokens)[..., :-1] > 0
    assert abs((tokens[..., 1:][inside] == KEY).mean() - 0.25) < 0.02
    assert abs((tokens[..., 1:][inside] == OPEN).mean() - 0.375) < 0.02


def test_keys_alone_never_die():
    batch = make_task("nested-scope", key_probability=1.0).sample("test", [0], 0, 3)
    assert (batch.tokens == KEY).all()
    assert (batch.death == 32).all()


def test_levels_and_dips_are_uniform():
    tokens = make_task("leveled-dips", levels=3, key_probability=0.4).sample("test", [0], 0, 1000, length=64).tokens
    share = np.bincount(tokens.ravel(), minlength=6) / tokens.size
    assert np.abs(share - np.repeat([0.4 / 3, 0.6 / 3], 3)).max() < 0.01


def test_dips_by_hand():
    task = make_task("leveled-dips", levels=3)
    batch = task.sample("test", [0], 0, 5000, length=4)
    wanted = [task.vocabulary.index(word) for word in ("key2", "key3", "dip2", "dip1")]
    (found,) = np.flatnonzero((batch.tokens[0] == wanted).all(-1))[:1]
    assert batch.death[0, found].tolist() == [3, 2, 0, 0]
    assert batch.queries[0, found].tolist() == [1, 1, 1, 0]


def test_subsets_are_uniform_given_that_some_key_is_kept():
    n = 7000
    tokens = make_task("subset-drop").sample("test", [0], 0, n, length=3).tokens[0]
    subsets = (tokens[:, 1::2] == 2) @ [1, 2, 4]
    share = np.bincount(subsets, minlength=8) / n
    assert share[0] == 0
    assert np.abs(share[1:] - 1 / 7).max() < 5 * np.sqrt(1 / 7 / n)


def test_subset_drop_by_hand():
    task = make_task("subset-drop", drop=0.0)
    batch = task.sample("test", [0], 0, 1, length=2)[0, 0]
    assert [task.vocabulary[token] for token in batch.tokens] == ["key", "keep", "key", "keep", "query"]
    assert batch.death.tolist() == [5, 0, 5, 0, 0]
    assert batch.queries.tolist() == [0, 0, 0, 0, 1]


@pytest.mark.parametrize("drop", [0.2, 0.9])
def test_keys_are_dropped_with_their_probability(drop):
    tokens = make_task("subset-drop", drop=drop).sample("test", [0], 0, 500, length=40).tokens
    assert abs((tokens[..., 1::2] == 1).mean() - drop) < 0.02


def test_vocabularies():
    assert make_task("nested-scope").vocabulary == ("key", "open", "close")
    assert make_task("leveled-dips", levels=2).vocabulary == ("key1", "key2", "dip1", "dip2")
    assert make_task("leveled-dips", levels=2).key_tokens == (0, 1)
    assert make_task("subset-drop").vocabulary == ("key", "drop", "keep", "query")
    assert make_task("source-scopes").vocabulary == make_task("nested-scope").vocabulary
