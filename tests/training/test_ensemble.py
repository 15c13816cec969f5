"""The trainer: schedules at literal values, seeds that do not know their neighbours, and that it learns."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from lab.heads import LABELS, head_config, make_head
from lab.ops.dispatch import reference_target_loss
from lab.tasks import make_task
from lab.training import ensemble
from lab.training.ensemble import CURVE_SEQUENCES, PATIENCE, learning_rate, smoothing, train
from lab.training.metrics import read_task
from lab.training.recipe import Recipe

BLOCK = tuple(range(20, 36))


@pytest.fixture(autouse=True)
def one_thread():
    """Bit for bit is promised for one machine and one number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def parameters(trained):
    return {name: p.detach() for name, p in trained.head.named_parameters()}


def assert_same_seed(alone, block, position, label=""):
    for name, p in parameters(alone).items():
        assert torch.equal(p[0], parameters(block)[name][position]), (label, name)
    assert alone.curve_steps == block.curve_steps
    np.testing.assert_array_equal(alone.curve[0], block.curve[position])


# --- schedules ------------------------------------------------------------------------------------------------------


def test_learning_rate_falls_as_a_cosine_to_zero():
    recipe = Recipe(steps=600, learning_rate=0.08)
    rates = {0: 0.08, 150: 0.04 * (1 + math.sqrt(0.5)), 200: 0.06, 300: 0.04, 400: 0.02, 600: 0.0}
    for step, rate in rates.items():
        assert learning_rate(recipe, step) == pytest.approx(rate, abs=1e-15)


def test_smoothing_falls_linearly_to_zero_and_stays_there():
    recipe = Recipe(steps=800, smoothing=2.0, smoothing_until=0.5)
    found = [smoothing(recipe, step) for step in (0, 100, 200, 399, 400, 401, 800)]
    assert found == pytest.approx([2.0, 1.5, 1.0, 0.005, 0, 0, 0], abs=1e-15)
    assert smoothing(Recipe(steps=10, smoothing=1.0, smoothing_until=1.0), 9) == pytest.approx(0.1)
    assert smoothing(Recipe(smoothing_until=0.0), 0) == 0.0
    assert smoothing(Recipe(smoothing=0.0), 0) == 0.0


def test_a_run_follows_its_schedules(monkeypatch):
    """Step by step: smoothing, length and sequences that the loss sees, and Adam's first move, of the full rate."""
    seen = []

    def watched(logits, tokens, death, queries, *, smoothing):
        seen.append((tokens.clone(), smoothing))
        return loss(logits, tokens, death, queries, smoothing=smoothing)

    loss = ensemble.target_loss
    monkeypatch.setattr(ensemble, "target_loss", watched)
    task, recipe = make_task("nested-scope"), Recipe(steps=8, batch=3, lengths=(10, 20), learning_rate=0.125)
    train(task, head_config("fpa-walk-tied", 1), recipe, [5, 6])
    assert [tau for _, tau in seen] == [1.0, 0.75, 0.5, 0.25, 0, 0, 0, 0]
    for step, (tokens, _) in enumerate(seen):
        own = task.sample("train", [5, 6], 3 * step, 3, length=(10, 20)[step % 2])
        assert torch.equal(tokens, torch.from_numpy(own.tokens))

    config = head_config("fpa-walk-offset", 2)
    start = make_head(config, 3, [5, 6], max_len=32)
    moved = train(task, config, Recipe(steps=1, learning_rate=0.125), [5, 6])
    for (name, before), after in zip(start.named_parameters(), moved.head.parameters(), strict=True):
        step = (after - before).abs().detach()
        torch.testing.assert_close(step, torch.full_like(step, 0.125), rtol=1e-3, atol=0, msg=name)


def test_a_run_is_adam_with_cosine_decay():
    """The same steps by PyTorch's own scheduler and the reference loss."""
    task, config, recipe = make_task("nested-scope"), head_config("fpa-walk-offset", 2), Recipe(steps=12, batch=2)
    trained = train(task, config, recipe, [3])
    head = make_head(config, 3, [3], max_len=32)
    optimiser = torch.optim.Adam(head.parameters(), lr=recipe.learning_rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=12)
    for step in range(12):
        batch = task.sample("train", [3], 2 * step, 2)
        tokens, death, queries = (torch.from_numpy(x) for x in (batch.tokens, batch.death, batch.queries))
        optimiser.zero_grad()
        tau = max(0.0, 1 - step / 6)
        reference_target_loss(head.token_logits(tokens), tokens, death, queries, smoothing=tau).backward()
        optimiser.step()
        scheduler.step()
    for mine, theirs in zip(head.parameters(), trained.head.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def test_curve_and_progress():
    task, recipe = make_task("nested-scope"), Recipe(steps=80, batch=2)
    calls = []
    trained = train(
        task, head_config("fox-gate0", 1), recipe, [1, 2, 3], on_step=lambda step, losses: calls.append((step, losses))
    )
    assert [step for step, _ in calls] == list(range(81))
    assert trained.curve_steps == tuple(range(0, 81, 2))
    assert trained.curve.shape == (3, 41)
    assert trained.curve.dtype == np.float32
    for step, losses in calls:
        assert (losses is None) == (step % 2 == 1)
        if losses is not None:
            np.testing.assert_array_equal(losses, trained.curve[:, step // 2])
    last = [r.excess_loss for r in read_task(trained.head, task, "validation", sequences=CURVE_SEQUENCES)]
    np.testing.assert_array_equal(trained.curve[:, -1], np.array(last, dtype=np.float32))
    start = make_head(head_config("fox-gate0", 1), 3, [1, 2, 3], max_len=32)
    first = [r.excess_loss for r in read_task(start, task, "validation", sequences=CURVE_SEQUENCES)]
    np.testing.assert_array_equal(trained.curve[:, 0], np.array(first, dtype=np.float32))


def test_initial_scales_come_from_the_recipe():
    recipe = Recipe(steps=1, batch=1, initial_scale=0.0, content_scale=0.0, learning_rate=1e-30)
    trained = train(make_task("subset-drop"), head_config("fpa-walk-free", 2), recipe, [0])
    assert all(p.abs().max() < 1e-20 for p in trained.head.parameters())


def test_a_walk_starts_with_the_drift_of_the_recipe():
    recipe = Recipe(steps=1, batch=1, initial_scale=0.0, initial_drift=-0.5, learning_rate=1e-30)
    starts = {"fpa-walk-offset": {"increment": -0.5, "offset": 0.0}, "fpa-direct-free": {"field_value": 0.0}}
    for label, values in starts.items():
        found = parameters(train(make_task("subset-drop"), head_config(label, 1), recipe, [0]))
        for name, value in values.items():
            assert torch.allclose(found[name], torch.tensor(value), atol=1e-20), (label, name)


def test_permuted_targets_are_those_of_the_next_sequence_of_the_same_seed(monkeypatch):
    seen = []

    def watched(logits, *arrays, smoothing):
        seen.append(arrays)
        return loss(logits, *arrays, smoothing=smoothing)

    loss = ensemble.target_loss
    monkeypatch.setattr(ensemble, "target_loss", watched)
    task = make_task("nested-scope")
    recipe = Recipe(steps=1, batch=3, permute_targets=True)
    train(task, head_config("fpa-walk-tied", 1), recipe, [5, 6])
    own = task.sample("train", [5, 6], 0, 3)
    [(tokens, death, queries)] = seen
    assert np.array_equal(tokens, own.tokens)
    assert np.array_equal(death, own.death[:, [1, 2, 0]])
    assert np.array_equal(queries, own.queries[:, [1, 2, 0]])
    with pytest.raises(ValidationError, match="a batch of at least 2"):
        Recipe(batch=1, permute_targets=True)


# --- seeds do not know their neighbours -----------------------------------------------------------------------------


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize(
    ("task", "options", "dim"),
    [
        ("nested-scope", {"train_length": 20}, 0),
        ("leveled-dips", {"train_length": 20}, 1),
        ("nested-scope", {"train_length": 20}, 3),
        ("subset-drop", {"train_length": 9}, 8),
    ],
)
def test_a_seed_alone_equals_itself_in_a_block_of_sixteen(label, task, options, dim):
    """Bit for bit, parameters and curve, wherever in the block the seed stands."""
    made, config, recipe = make_task(task, **options), head_config(label, dim), Recipe(steps=30, batch=2)
    block = train(made, config, recipe, BLOCK)
    for position in (0, 5):
        alone = train(made, config, recipe, BLOCK[position : position + 1])
        assert_same_seed(alone, block, position, label)
    if dim:
        assert not torch.equal(block.head.query[0], block.head.query[5])


def test_the_order_of_the_block_does_not_matter():
    task, config, recipe = make_task("nested-scope"), head_config("fpa-walk-offset", 2), Recipe(steps=30, batch=2)
    forwards, backwards = train(task, config, recipe, BLOCK), train(task, config, recipe, BLOCK[::-1])
    for position, _ in enumerate(BLOCK):
        for name, p in parameters(forwards).items():
            assert torch.equal(p[position], parameters(backwards)[name][-1 - position])


# --- early stop -----------------------------------------------------------------------------------------------------


def test_early_stop_freezes_the_seeds_that_converged_and_no_others():
    task, config = make_task("nested-scope", train_length=12), head_config("fpa-walk-offset", 1)
    recipe, seeds = Recipe(steps=120, batch=8, learning_rate=0.1), tuple(range(6))
    free = train(task, config, recipe, seeds)
    # A bound that some seeds stay under for PATIENCE points in a row, and others do not.
    stretches = np.lib.stride_tricks.sliding_window_view(free.curve[:, :-1], PATIENCE, axis=1).max(-1).min(-1)
    bound = float(np.sort(stretches)[2:4].mean())
    stopping = recipe.model_copy(update={"early_stop": bound})
    block = train(task, config, stopping, seeds)
    converged = stretches <= bound
    assert 0 < converged.sum() < len(seeds)

    for seed in seeds:
        alone = train(task, config, stopping, [seed])
        assert_same_seed(alone, block, seed)
        same = torch.equal(parameters(free)["increment"][seed], parameters(block)["increment"][seed])
        assert same != converged[seed]
        if converged[seed]:
            under = np.flatnonzero(
                np.lib.stride_tricks.sliding_window_view(free.curve[seed], PATIENCE).max(-1) <= bound
            )
            stop = under[0] + PATIENCE - 1
            np.testing.assert_array_equal(block.curve[seed, : stop + 1], free.curve[seed, : stop + 1])
            assert (block.curve[seed, stop:] == free.curve[seed, stop]).all()


def test_a_run_ends_when_every_seed_is_frozen():
    steps = []
    train(
        make_task("nested-scope", train_length=12),
        head_config("fpa-walk-tied", 1),
        Recipe(steps=400, batch=1, early_stop=1e9),
        [0, 1],
        on_step=lambda step, losses: steps.append(step),
    )
    assert steps[-1] == 10 * (PATIENCE - 1)  # a curve point every 10 steps, the first before any training


def test_only_points_in_a_row_count(monkeypatch):
    """Seed 1 stays under the bound for one point too few, leaves it, and comes back."""
    away = PATIENCE - 1
    scripted = iter([(0.0, 9.0 if point == away else 0.0) for point in range(41)])

    def read(head, task, split, *, sequences):
        return [SimpleNamespace(excess_loss=loss) for loss in next(scripted)]

    monkeypatch.setattr(ensemble, "read_task", read)
    steps = []
    trained = train(
        make_task("nested-scope", train_length=12),
        head_config("fpa-walk-tied", 1),
        Recipe(steps=40, batch=1, early_stop=0.1),
        [0, 1],
        on_step=lambda step, losses: steps.append(step),
    )
    assert steps[-1] == away + PATIENCE
    assert trained.curve[1].argmax() == away


# --- learning -------------------------------------------------------------------------------------------------------


def test_a_small_run_learns():
    """The walk finds the stack, and reads twice the length; the same budget leaves softmax far away."""
    task, recipe = make_task("nested-scope"), Recipe(steps=400, batch=8)
    walk = train(task, head_config("fpa-walk-offset", 1), recipe, [0, 1])
    assert (walk.curve[:, 0] > 0.3).all()
    assert (walk.curve[:, -1] < 0.02).all()
    for reading in read_task(walk.head, task, "test", sequences=32, length=2 * task.train_length):
        assert reading.success
    blind = train(task, head_config("softmax-none", 1), recipe, [0, 1])
    assert (blind.curve[:, -1] > 0.2).all()
    assert (blind.curve[:, -1] < blind.curve[:, 0]).all()
