"""Training on whole families: kernels against the real head and autograd, notions by hand, known starts."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lab.errors import InputError
from lab.heads import head_config
from lab.ops import kinds
from lab.sweeps.plan import Cell, Evaluation, TaskConfig
from lab.tasks import make_task
from lab.training import Recipe, families, family_starts, run_cell
from lab.training import family_kernels as kernels
from lab.training.families import Trainee, family_logits, loss, read_family, start, train_seed
from lab.training.family_kernels import Numbers

HEADS = [
    ("softmax-none", "free"),
    ("softmax-relative", "free"),
    ("fox-gate0", "fixed"),
    ("fox-relative", "free"),
    ("fpa-walk-tied", "fixed"),
    ("fpa-walk-offset", "fixed"),
]
ROUGH = Recipe(initial_scale=1.0)


def made(label, query="free", dim=2, keys=3, tokens="per-slot", notion="uniform", seeds=(0, 7), recipe=ROUGH):
    task = make_task("subset-free", keys=keys, tokens=tokens, query=query, notion=notion)
    return task, start(task, head_config(label, dim), recipe, seeds)


def by_the_definition(task, logits, sharpness):
    """The loss of a notion from logits (targets, keys) as `families` states it, in torch; float64."""
    alive = torch.from_numpy(task.alive())
    if task.notion == "uniform":
        return F.cross_entropy(logits, alive.double() / alive.sum(-1, keepdim=True), reduction="sum")
    if task.notion == "window":
        logits = logits * sharpness
    outside, on_target = logits.masked_fill(alive, -torch.inf), logits.masked_fill(~alive, -torch.inf)
    low = torch.logsumexp((-logits).masked_fill(~alive, -torch.inf), -1)
    # The full target has no key outside; its term of the gap has no slope.
    gap = -torch.logsumexp(outside[:-1], -1) - low[:-1]
    if task.notion == "separation":
        return F.softplus(-gap).sum()
    window = torch.logsumexp(on_target, -1) + low
    return F.softplus(sharpness * 6.0 - gap).sum() + F.softplus(window - sharpness * 1.2).sum()


def gradient_of(trainee, notion, smoothing, sharpness):
    """The gradient of one seed by the kernels, with respect to the numbers in use (log gates)."""
    gradient = Numbers(*map(np.zeros_like, trainee.numbers))
    sizes = (1 - trainee.dropped).sum(0)
    scratch = [np.empty((*lead, *trainee.dropped.shape), np.float32) for lead in ((), (), (2,))]
    if trainee.kind == kinds.FOX:
        kernels.log_gates(trainee.numbers, trainee.used)
    kernels.family_gradient(
        trainee.kind, families.NOTIONS[notion], trainee.used, trainee.dropped, sizes, trainee.scale,
        trainee.penalty_scale, np.float32(smoothing), np.float32(sharpness), np.float32(6), np.float32(1.2), gradient,
        *scratch, np.empty((8, trainee.dropped.shape[1]), np.float32),
    )  # fmt: skip
    return gradient


def centred(logits):
    """Up to a number per target: each query token of FoX has a gate, which the kernels leave out."""
    return logits - logits.mean(-1, keepdims=True)


@pytest.mark.parametrize("tokens", ["shared", "per-slot"])
@pytest.mark.parametrize(("label", "query"), HEADS)
def test_the_kernels_logits_are_the_real_heads(label, query, tokens):
    for dim in (0, 1, 3):
        task, head = made(label, query, dim, tokens=tokens)
        trainees = [Trainee(head, at, task) for at in range(2)]
        ours = [trainee.logits() for trainee in trainees]
        real = family_logits(head, task)
        assert real.shape == (2, 7, 3)
        for of_seed, logits in zip(real, ours, strict=True):
            np.testing.assert_allclose(centred(logits.T), centred(of_seed), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("notion", ["uniform", "window", "separation"])
@pytest.mark.parametrize(("label", "query"), HEADS)
def test_the_kernels_gradients_are_autograds(label, query, notion):
    for dim, tokens, smoothing, sharpness in ((2, "per-slot", 0.0, 1.0), (1, "shared", 0.5, 3.0)):
        task, head = made(label, query, dim, tokens=tokens, notion=notion)
        trainee = Trainee(head, 1, task)
        found = gradient_of(trainee, notion, smoothing, sharpness)
        head = head.double()
        batch = torch.from_numpy(task.family().tokens)[None].expand(2, -1, -1)
        # Not through `FoxHead.log_gate`, which rounds to float32: the kernels' gradient is at the log gates.
        logits = head.logits(batch, num_queries=1, smoothing=smoothing)[1, :, 0, 0:-1:2]
        by_the_definition(task, logits, sharpness).backward()
        n, first, slots, asked = task.keys, task.first_drop, task.slots, task.first_query
        expected = {"key": head.key.grad[1, :n], "query": head.query.grad[1, asked:].T}
        if "relative" in label:
            expected["bias"] = head.positional.by_distance.grad[1, [6, 4, 2]]
        if label.startswith("fpa"):
            by_token = head.increment.grad[1]
        if label.startswith("fox"):
            by_token = head.gate.grad[1] / torch.sigmoid(-head.gate[1].detach())
        if not label.startswith("softmax"):
            expected |= {"drop": by_token[first : first + slots], "keep": by_token[first + slots : asked]}
            expected["own"] = by_token[:n]
        if label.startswith("fpa"):
            expected["last"] = by_token[asked : asked + 1]
        if label.endswith("offset"):
            expected["offset"] = head.offset.grad[1, :n]
        # The window loss counts sharp logits; its gradient is taken with respect to them.
        factor = 1 / sharpness if notion == "window" else 1.0
        for name, value in expected.items():
            np.testing.assert_allclose(
                getattr(found, name), factor * value.numpy(), rtol=2e-4, atol=2e-5, err_msg=f"{name} {dim}"
            )


@pytest.mark.parametrize("notion", ["uniform", "window", "separation"])
def test_the_learning_curve_shows_what_training_lowers(notion):
    task, head = made("fox-relative", notion=notion, keys=4)
    logits = family_logits(head, task)[0]
    alive = task.alive()
    found = loss(notion, logits.T, alive.T)
    expected = by_the_definition(task, torch.from_numpy(logits), 1.0).item() / 15
    if notion == "uniform":
        expected -= np.log(alive.sum(1)).mean()
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_seed_is_the_same_alone_and_in_any_block():
    task = TaskConfig(name="subset-free", options={"keys": 3, "notion": "window"})
    recipe = Recipe(steps=40, learning_rate=0.3)
    evaluation = Evaluation(task=task, lengths=(3,))
    cell = Cell(experiment="x", task=task, head=head_config("fox-relative", 1), recipe=recipe, evaluations=[evaluation])
    block = run_cell(cell, (2, 5, 9))
    alone = run_cell(cell, (5,))
    assert block.evaluations[1] == alone.evaluations[0]
    assert np.array_equal(block.curves.excess_loss[1], alone.curves.excess_loss[0])
    assert block.parameters_per_seed == 7 * 1 + 3 * 1 + 3 + 1 + 1 + 3  # query, key, bias, drop, keep, gates of keys


def test_adam_and_its_schedules_are_torchs():
    recipe = Recipe(steps=6, learning_rate=0.3, smoothing=1.0, initial_scale=0.5)
    task, head = made("fpa-walk-offset", "fixed", 1, notion="uniform", seeds=(3,), recipe=recipe)
    own = torch.nn.ParameterDict({name: p.detach().clone() for name, p in head.named_parameters()})
    train_seed(head, 0, task, recipe, (0, 4, 6))
    other = made("fpa-walk-offset", "fixed", 1, seeds=(3,), recipe=recipe)[1]
    other.load_state_dict(dict(own.items()))
    optimiser = torch.optim.Adam(other.parameters(), lr=0.3)
    batch = torch.from_numpy(task.family().tokens)[None]
    for step in range(6):
        for group in optimiser.param_groups:
            group["lr"] = 0.3 * 0.5 * (1 + np.cos(np.pi * step / 6))
        optimiser.zero_grad()
        logits = other.logits(batch, num_queries=1, smoothing=max(0.0, 1 - step / 3))[0, :, 0, 0:-1:2]
        by_the_definition(task, logits, 1.0).backward()
        optimiser.step()
    for name, value in other.named_parameters():
        torch.testing.assert_close(dict(head.named_parameters())[name], value, rtol=1e-3, atol=1e-4)


def test_notions_by_hand():
    alive = make_task("subset-free", keys=2).alive()  # {1}, {2}, {1, 2}
    reading, holds = read_family(np.array([[9.0, 0.0], [0.0, 8.0], [2.0, 0.0]]), alive)
    assert (reading.gap_min, reading.window_max, reading.queries) == (8.0, 2.0, 3)
    assert holds == {"separation": True, "window": True, "uniform": False}
    assert reading.tv == pytest.approx((1 / (1 + np.exp(9)) + 1 / (1 + np.exp(8)) + 1 / (1 + np.exp(-2)) - 0.5) / 3)
    _, holds = read_family(np.array([[7.9, 0.0], [0.0, 8.0], [2.0, 0.0]]), alive)
    assert holds == {"separation": True, "window": False, "uniform": False}
    _, holds = read_family(np.array([[3.0, 0.0], [0.0, 3.0], [0.1, 0.0]]), alive)
    assert holds == {"separation": True, "window": True, "uniform": True}
    _, holds = read_family(np.array([[2.9, 0.0], [0.0, 3.0], [0.1, 0.0]]), alive)
    assert holds["uniform"] is False  # one total variation of 0.052
    _, holds = read_family(np.array([[9.0, 9.0], [0.0, 8.0], [2.0, 0.0]]), alive)
    assert not any(holds.values())
    _, holds = read_family(np.array([[9e9, 9e9 - 1], [0.0, 8.0], [2.0, 0.0]]), alive)
    assert not holds["separation"]  # a gap of 1 among logits of 10^10 is float32's rounding, not a gap


def succeeding(label, notion, dim, query="free", tokens="shared", seeds=4, start="random"):
    recipe = Recipe() if label.startswith("fpa") else Recipe(steps=1500, learning_rate=0.3, start=start)
    task, head = made(label, query, dim, tokens=tokens, notion=notion, seeds=range(seeds), recipe=recipe)
    for at in range(seeds):
        train_seed(head, at, task, recipe, (0, recipe.steps))
    return sum(read_family(logits, task.alive())[1][notion] for logits in family_logits(head, task))


@pytest.mark.parametrize("notion", ["uniform", "window", "separation"])
def test_three_keys_take_what_the_theory_says(notion):
    assert succeeding("softmax-relative", notion, 1) == 0
    assert succeeding("softmax-relative", notion, 2) == 4
    assert succeeding("fox-relative", notion, 0) == 0
    assert succeeding("fox-relative", notion, 2) == 4
    assert succeeding("fox-relative", notion, 0, tokens="per-slot") == (4 if notion == "separation" else 0)
    assert succeeding("fpa-walk-offset", notion, 0, query="fixed") == 4


@pytest.mark.parametrize("tokens", ["shared", "per-slot"])
@pytest.mark.parametrize("notion", ["uniform", "window", "separation"])
def test_constructions_read_every_subset_as_real_heads(notion, tokens, monkeypatch):
    monkeypatch.setattr(family_starts, "NOISE", 0.0)
    for keys in range(2, 8):
        task = make_task("subset-free", keys=keys, notion=notion, tokens=tokens)
        dim = family_starts.construction(task)[0].dimension
        recipe = Recipe(start="construction", initial_scale=0.0)
        head = start(task, head_config("fox-relative", dim), recipe, (0,))
        reading, holds = read_family(family_logits(head, task)[0], task.alive())
        assert holds[notion], (keys, reading)
        assert reading.gap_min == pytest.approx(family_starts.SCALES[notion][0], rel=0.01)


def test_starts_near_a_construction_differ_by_seed():
    task = make_task("subset-free", keys=4, notion="window")
    head = start(task, head_config("fox-relative", 2), Recipe(start="construction"), (0, 1))
    first, second = family_logits(head, task)
    assert 0.01 < np.abs(first - second).mean() < 3


@pytest.mark.parametrize(
    ("label", "dim", "query", "recipe", "message"),
    [
        ("softmax-alibi", 1, "free", {}, "head softmax-alibi: position: expected none or relative, got alibi"),
        ("fpa-direct-tied", 1, "fixed", {}, "head fpa-direct-tied: expected a walk with tied or offset levels"),
        ("fpa-walk-tied", 1, "free", {}, "query: expected fixed; these heads need no free query"),
        ("fpa-walk-tied-alibi", 1, "fixed", {}, "families are trained with softmax, fox and fpa heads only"),
        ("softmax-none", 3, "free", {"start": "construction"}, "constructions are for fox-relative heads"),
        ("fox-relative", 3, "free", {"start": "construction"}, "the construction has dimension 2, not 3"),
    ],
)
def test_what_families_refuse(label, dim, query, recipe, message):
    task = make_task("subset-free", query=query, notion="window")
    with pytest.raises(InputError, match=message):
        start(task, head_config(label, dim), Recipe(**recipe), (0,))


def test_evaluations_may_ask_for_other_notions_of_the_same_family_only():
    task = TaskConfig(name="subset-free", options={"keys": 2})
    notions = ("window", "separation")
    others = [TaskConfig(name="subset-free", options={"keys": 2, "notion": notion}) for notion in notions]
    evaluations = [Evaluation(task=of) for of in (task, *others)]
    head, recipe = head_config("softmax-relative", 1), Recipe(steps=300)
    cell = Cell(experiment="x", task=task, head=head, recipe=recipe, evaluations=evaluations)
    rows = run_cell(cell, (0,)).evaluations
    assert [row["task"] for row in rows] == [evaluation.task.label for evaluation in evaluations]
    assert len({row["gap_min"] for row in rows}) == 1
    stranger = TaskConfig(name="subset-free", options={"keys": 3})
    with pytest.raises(InputError, match="expected the same family"):
        run_cell(cell.model_copy(update={"evaluations": (Evaluation(task=stranger),)}), (0,))
    assert dataclasses.replace(task.make(), keys=3) == stranger.make()


def test_other_tasks_start_at_random():
    task = TaskConfig(name="subset-drop")
    cell = Cell(experiment="x", task=task, head=head_config("fox-relative", 1), recipe=Recipe(start="construction"))
    with pytest.raises(InputError, match="subset-drop: start: construction: expected random"):
        run_cell(cell, (0,))
