"""Shortcut readers on an example small enough to check by eye, and where each must and must not succeed."""

import numpy as np
import pytest

from lab.errors import InputError
from lab.tasks import Batch, make_task
from lab.tasks.shortcuts import SHORTCUTS, logistic_regression, shortcut_weights

# leveled-dips with two levels: dip1 key1 key2 key1 dip1 (tokens 2 0 1 0 2); dip1 kills key2.
TASK = make_task("leveled-dips", levels=2, train_length=5)
EXAMPLE = Batch(np.array([2, 0, 1, 0, 2]), np.array([0, 5, 4, 5, 0]), np.array([0, 1, 1, 1, 1]))


def total_variation(name, task, batch):
    """Mean over the scored rows, with the exact-set rate."""
    targets = batch.targets()
    uniform = targets / np.maximum(targets.sum(-1, keepdims=True), 1)
    weights = shortcut_weights(name, task, batch)
    scored = batch.queries > 0
    exact = ((weights > uniform.max(-1, keepdims=True) / 2) == targets).all(-1)[scored]
    return np.abs(weights - uniform).sum(-1)[scored].mean() / 2, exact.mean()


@pytest.mark.parametrize(
    ("name", "last_rows"),
    [
        ("chance", [[0, 1 / 2, 1 / 2, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3, 0], [0, 1 / 3, 1 / 3, 1 / 3, 0]]),
        ("nearest", [[0, 1 / 2, 1 / 2, 0, 0], [0, 0, 1 / 2, 1 / 2, 0], [0, 0, 1 / 2, 1 / 2, 0]]),
    ],
)
def test_readers_that_need_no_fit_by_hand(name, last_rows):
    weights = shortcut_weights(name, TASK, EXAMPLE)
    assert np.allclose(weights[:2], [[0, 0, 0, 0, 0], [0, 1, 0, 0, 0]])
    assert np.allclose(weights[2:], last_rows)


@pytest.mark.parametrize(("k", "last_row"), [(1, [0, 0, 0, 1, 0]), (2, [0, 0, 1 / 2, 1 / 2, 0]), (9, None)])
def test_a_window_reads_the_last_keys(monkeypatch, k, last_row):
    monkeypatch.setattr("lab.tasks.shortcuts._best_window", lambda task, sample: k)
    weights = shortcut_weights("window", TASK, EXAMPLE)
    assert np.allclose(weights[-1], shortcut_weights("chance", TASK, EXAMPLE)[-1] if last_row is None else last_row)
    assert np.allclose(weights[1], [0, 1, 0, 0, 0])


@pytest.mark.parametrize("name", SHORTCUTS)
@pytest.mark.parametrize("task", [make_task("nested-scope"), make_task("leveled-dips"), make_task("subset-drop")])
def test_weights_are_causal_and_sum_to_one(name, task):
    batch = task.sample("test", [0, 1], 0, 4)
    weights = shortcut_weights(name, task, batch)
    assert weights.shape == (2, 4, batch.seq_len, batch.seq_len)
    assert weights.dtype == np.float64
    assert (weights >= 0).all()
    assert (weights * ~np.tri(batch.seq_len, dtype=bool) == 0).all()
    assert np.allclose(weights[batch.queries > 0].sum(-1), 1)
    if name != "position":
        is_key = np.isin(batch.tokens, task.key_tokens)
        assert (weights.sum(-2)[~is_key] == 0).all()


@pytest.mark.parametrize("name", SHORTCUTS)
def test_a_row_does_not_depend_on_what_follows(name):
    task = make_task("nested-scope")
    batch = task.sample("test", [0], 0, 3)
    other = Batch(batch.tokens.copy(), batch.death, batch.queries)
    other.tokens[..., 20:] = 2 - other.tokens[..., 20:]
    before, after = (shortcut_weights(name, task, one)[..., :20, :] for one in (batch, other))
    assert np.array_equal(before, after)


def test_position_is_the_mean_target():
    task = make_task("nested-scope", train_length=6)
    sample = task.sample("train", [0], 0, 512)[0]
    mean = np.zeros((6, 6))
    for targets in sample.targets():
        for row in range(6):
            if targets[row].any():
                mean[row] += targets[row] / targets[row].sum()
    expected = mean / mean.sum(-1, keepdims=True)
    assert np.allclose(shortcut_weights("position", task, task.sample("test", [0], 0, 1))[0, 0], expected)


def test_position_knows_nothing_of_rows_that_are_never_asked():
    task = make_task("subset-drop", train_length=2)
    weights = shortcut_weights("position", task, task.sample("test", [0], 0, 1))[0, 0]
    assert np.allclose(weights[1], [1 / 2, 1 / 2, 0, 0, 0])
    assert np.allclose(weights[4], [1 / 2, 0, 1 / 2, 0, 0], atol=0.05)


def test_the_window_is_the_best_one():
    task = make_task("leveled-dips")
    train, chosen = task.sample("train", [0], 0, 512)[0], []
    is_key = train.tokens < 4
    for k in range(1, 33):
        order = np.cumsum(is_key, axis=-1)
        age = order[..., :, None] - order[..., None, :]
        weights = is_key[..., None, :] & np.tri(32, dtype=bool) & (age < k)
        targets = train.targets()[train.queries > 0]
        weights = weights[train.queries > 0]
        difference = weights / weights.sum(-1, keepdims=True) - targets / targets.sum(-1, keepdims=True)
        chosen.append(np.abs(difference).sum(-1).mean() / 2)
    batch = task.sample("test", [0], 0, 50)
    best = 1 + int(np.argmin(chosen))
    assert 2 < best < 10  # neither the newest key alone nor all of them
    assert (shortcut_weights("window", task, batch) > 0).sum(-1).max() == best


def test_counts_solve_leveled_dips_where_order_plays_no_part():
    task = make_task("leveled-dips")
    distance, exact = total_variation("counts", task, task.sample("test", [0], 0, 64))
    assert distance < 0.05
    assert exact > 0.99


@pytest.mark.parametrize("length", [32, 64])
def test_no_shortcut_solves_nested_scope(length):
    task = make_task("nested-scope")
    batch = task.sample("test", [0], 0, 64, length=length)
    results = {name: total_variation(name, task, batch) for name in SHORTCUTS}
    assert all(exact < 0.7 for _, exact in results.values())
    assert results["counts"][0] < results["chance"][0]


def test_no_shortcut_solves_subset_drop():
    task = make_task("subset-drop")
    batch = task.sample("test", [0], 0, 256)
    assert all(total_variation(name, task, batch)[1] < 0.05 for name in SHORTCUTS)


def test_custom_tasks_have_shortcuts_too():
    task = make_task("custom", keys=["a", "b"], targets=[["a"], ["b"]])
    batch = task.sample("test", [0], 0, 8)
    assert total_variation("counts", task, batch)[0] < 0.2
    assert np.isclose(total_variation("chance", task, batch)[0], 0.5)


def test_logistic_regression_finds_the_maximum():
    random = np.random.default_rng(0)
    features = np.column_stack([random.normal(size=(400, 2)), np.ones(400)])
    answers = random.random(400) < 1 / (1 + np.exp(-features @ [2.0, -1.0, 0.5]))
    found = logistic_regression(features, answers)
    slope = features.T @ (answers - 1 / (1 + np.exp(-features @ found))) - found
    assert np.abs(slope).max() < 1e-3
    assert np.abs(found - [2.0, -1.0, 0.5]).max() < 0.6


def test_logistic_regression_of_separable_answers_ends():
    features = np.column_stack([np.arange(-50.0, 50.0), np.ones(100)])
    found = logistic_regression(features, features[:, 0] >= 0)
    assert np.isfinite(found).all()
    assert (((features @ found) > 0) == (features[:, 0] >= 0)).mean() > 0.98


def test_an_unknown_shortcut():
    with pytest.raises(InputError, match=r"shortcut: unknown name 'chanc'; did you mean chance\?"):
        shortcut_weights("chanc", TASK, EXAMPLE)


def test_a_length_no_sequence_has():
    task = make_task("subset-drop")
    with pytest.raises(InputError, match="subset-drop: shortcuts: no length gives sequences of 4 tokens"):
        shortcut_weights("position", task, Batch(*(np.zeros((1, 4), dtype=np.int64) for _ in range(3))))
