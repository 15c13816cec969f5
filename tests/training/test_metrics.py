"""What a reading says: 1.0 for a head that is right at every length, low for wrong ones, and one path for all."""

import math

import numpy as np
import pytest
import torch

from lab.heads import head_config, make_head
from lab.ops import reference
from lab.ops.reading import READ_COLUMNS
from lab.tasks import make_task
from lab.tasks.base import Batch
from lab.training import metrics
from lab.training.metrics import Reading, merge, read_sequence, read_task, read_weights, summarise_rows
from tests.ops import oracle

TASKS = ("nested-scope", "leveled-dips", "subset-drop")


def set_by_hand(head, **values):
    """Gives every seed the same numbers."""
    with torch.no_grad():
        for name, value in values.items():
            parameter = head.get_parameter(name)
            parameter.copy_(torch.tensor(value).expand_as(parameter))
    return head


def stack_head(seeds=(0, 1)):
    """THEORY.md, nested-scope: the walk climbs at open, falls at close; one content dimension hides the brackets."""
    head = make_head(head_config("fpa-walk-tied", 1, penalty_scale=50.0), 3, seeds, max_len=32)
    return set_by_hand(head, increment=[0.0, 1.0, -1.0], query=[[1.0]] * 3, key=[[0.0], [-50.0], [-50.0]])


def levels_head(seeds=(0,)):
    """leveled-dips: a key's level is its number, a dip's field is half above its own."""
    head = make_head(head_config("fpa-direct-free", 1, penalty_scale=50.0), 8, seeds, max_len=32)
    return set_by_hand(
        head,
        field_value=[99.0] * 4 + [1.5, 2.5, 3.5, 4.5],
        level_value=[1.0, 2.0, 3.0, 4.0] + [-9.0] * 4,
        query=[[1.0]] * 8,
        key=[[0.0]] * 4 + [[-50.0]] * 4,
    )


# --- right and wrong heads ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 8])
def test_heads_made_by_hand_read_every_target(times):
    for task, head in ((make_task("nested-scope"), stack_head()), (make_task("leveled-dips"), levels_head())):
        readings = read_task(head, task, "test", sequences=16, length=times * task.train_length)
        assert len(readings) == len(head.seeds)
        for reading in readings:
            assert reading.exact == 1.0
            assert reading.tv < 1e-3
            assert reading.mass > 0.999
            assert reading.excess_loss < 1e-3
            assert reading.window_max == 0.0
            assert reading.gap_min > 20
            assert reading.success


def test_the_same_head_fails_where_the_targets_are_wrong():
    task, head = make_task("nested-scope"), stack_head(seeds=(0,))
    right = task.sample("test", [0], 0, 8)[0]
    is_key = np.isin(right.tokens, task.key_tokens)
    never_die = np.where(is_key, right.seq_len, 0)
    for death in (never_die, np.where(is_key, np.arange(right.seq_len) + 1, 0)):
        size = Batch(right.tokens, death, right.queries).target_sizes()
        wrong = Batch(right.tokens, death, np.where(size > 0, right.queries, 0))
        reading = merge([read_sequence(head, wrong[n]) for n in range(8)], head.seeds)[0]
        assert reading.exact < 0.7
        assert reading.tv > 0.1
        assert not reading.success


def test_a_walk_upside_down_fails():
    head = set_by_hand(stack_head(seeds=(0,)), increment=[0.0, -1.0, 1.0])
    reading = read_task(head, make_task("nested-scope"), "test", sequences=16)[0]
    assert reading.exact < 0.5
    assert reading.gap_min < 0


def test_seeds_are_read_on_their_own_sequences():
    task, head = make_task("nested-scope"), stack_head(seeds=(4, 4, 5))
    first, again, other = read_task(head, task, "test", sequences=4)
    assert first == again
    assert first.queries != other.queries
    assert read_task(stack_head(seeds=(5,)), task, "test", sequences=4) == [other]


# --- given weights --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TASKS)
def test_the_targets_own_weights_read_as_perfect(name):
    task = make_task(name)
    batch = task.sample("validation", [0, 1], 3, 4)
    targets = batch.targets()
    weights = targets / np.maximum(1, targets.sum(-1, keepdims=True))
    reading = read_weights(weights, batch)
    assert reading.queries == batch.queries.sum()
    assert reading.exact == 1.0
    assert reading.tv == pytest.approx(0, abs=1e-12)
    assert reading.mass == pytest.approx(1, abs=1e-12)
    assert reading.excess_loss == pytest.approx(0, abs=1e-12)
    assert reading.loss == pytest.approx(
        np.average(np.log(np.maximum(1, batch.target_sizes())), weights=batch.queries), rel=1e-12
    )
    assert reading.window_max == pytest.approx(0, abs=1e-12)
    assert math.isnan(reading.gap_mean)  # nothing outside the target has a weight to compare with

    elsewhere = np.roll(weights, 1, axis=0)  # the weights of other sequences
    assert read_weights(elsewhere, batch).exact < 0.6
    assert not read_weights(elsewhere, batch).success


@pytest.mark.parametrize("label", ["softmax-alibi", "fox-gate0", "fpa-walk-offset"])
def test_given_weights_and_a_head_are_read_alike(label):
    """A head's own weight matrix, handed over as numbers, gives the head's reading."""
    task = make_task("nested-scope")
    head = make_head(head_config(label, 2), 3, (6,), max_len=32, initial_scale=0.5)
    batch = task.sample("test", [6], 0, 5)
    tokens = torch.from_numpy(batch.tokens)
    weights = reference.masked_softmax(head.logits(tokens).detach().double()).numpy()
    from_head, from_weights = read_task(head, task, "test", sequences=5)[0], read_weights(weights, batch)
    # Weights know logits up to a constant per row; everything reported is free of it.
    assert from_weights.row() == pytest.approx(from_head.row(), rel=1e-4, abs=1e-5)


def test_a_row_without_weights_misses_everything():
    batch = Batch(np.zeros(2, int), np.array([2, 2]), np.array([1, 1]))
    reading = read_weights(np.array([[1.0, 0.0], [0.0, 0.0]]), batch)
    assert reading.exact == 0.5
    assert reading.tv == 0.5
    assert reading.mass == 0.5
    assert reading.loss == math.inf


def test_one_query_by_hand():
    """Weights 0.5, 0.3, 0.2; targets: the first two. The same numbers by the oracle."""
    batch = Batch(np.zeros(3, int), np.array([3, 3, 0]), np.array([0, 0, 1]))
    weights = np.array([[0, 0, 0], [0, 0, 0], [0.5, 0.3, 0.2]])
    found = oracle.reading([math.log(w) for w in weights[2]], [0, 1])
    reading = read_weights(weights, batch)
    assert reading.tv == pytest.approx(0.2)
    assert reading.mass == pytest.approx(0.8)
    assert reading.exact == 1.0  # 0.3 is above half of 1/2, 0.2 is not
    assert reading.window_mean == reading.window_max == pytest.approx(math.log(0.5 / 0.3))
    assert reading.gap_mean == reading.gap_min == pytest.approx(math.log(0.3 / 0.2))
    assert reading.loss == pytest.approx(-0.5 * math.log(0.5 * 0.3))
    assert {name: getattr(reading, name) for name in ("loss", "excess_loss", "tv", "exact", "mass")} == pytest.approx(
        {name: found[name] for name in ("loss", "excess_loss", "tv", "exact", "mass")}
    )


# --- sums -----------------------------------------------------------------------------------------------------------


def test_readings_do_not_depend_on_how_sequences_are_cut(monkeypatch):
    task = make_task("subset-drop")
    head = make_head(head_config("fpa-walk-free", 1), 4, (2, 9), max_len=33)
    whole = read_task(head, task, "test", sequences=7)
    monkeypatch.setattr(metrics, "_TOKENS_AT_ONCE", 70)  # two sequences of 33 tokens
    assert read_task(head, task, "test", sequences=7) == whole
    batch = task.sample("test", [9], 0, 7)
    merged = merge([read_sequence(head, batch[0, n]) for n in range(7)], head.seeds)
    assert merged[1] == whole[1]


def test_rows_add_up_by_queries():
    first = dict(zip(READ_COLUMNS, (3.0, 3.0, 1.5, 0.6, 3.0, 2.7, 0.3, 6.0, 2.0), strict=True))
    second = dict(zip(READ_COLUMNS, (1.0, 5.0, 0.5, 0.2, 0.0, 0.3, 0.5, 0.0, 0.0), strict=True))
    sums = np.array([list(first.values()), list(second.values())])
    reading = summarise_rows(sums, np.array([[0.2, 2.5], [0.5, math.inf]]))
    expected = Reading(
        queries=4,
        loss=2.0,
        excess_loss=0.5,
        tv=0.2,
        exact=0.75,
        mass=0.75,
        window_mean=0.2,
        window_max=0.5,
        gap_mean=3.0,
        gap_min=2.5,
    )
    assert reading.row() == pytest.approx(expected.row())


@pytest.mark.parametrize(
    ("exact", "tv", "success"), [(1.0, 0.0, 1), (0.99, 0.05, 1), (0.9899, 0.0, 0), (1.0, 0.0501, 0)]
)
def test_success_is_exact_and_close(exact, tv, success):
    reading = Reading(10, 1.0, 0.0, tv, exact, 1.0, 0.0, 0.0, 1.0, 1.0)
    assert reading.success == bool(success)
    assert reading.row()["success"] == success


def test_nothing_to_read_is_no_success():
    reading = summarise_rows(np.zeros((1, len(READ_COLUMNS))), np.array([[0.0, math.inf]]))
    assert reading.queries == 0
    assert not reading.success
