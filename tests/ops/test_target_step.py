"""The compiled step of position-level logits equals the float64 reference, in loss and gradients, on all its inputs."""

import logging
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.ops import dispatch
from lab.ops.dispatch import PositionLogits, dense_targets, read_sequences, reference_target_loss, target_loss
from lab.ops.reading import READ_COLUMNS
from lab.ops.step_ops import position_step
from tests.ops.test_token_step import KINDS, STYLES, problem

inf, nan = math.inf, math.nan
FACTORS = ("query", "key", "bias", "log_gate", "field", "level")
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}


def drawn(kind, shape, dim=3, *, width=0, style="plain", seed=0, dtype=torch.float64, content=1.0):
    """(logits, death, queries) with random targets; `width` 0 for no bias."""
    other, _, death, queries = problem(kind, shape, style=style, seed=seed)
    generator = torch.Generator().manual_seed(seed + 7)

    def normal(*size):
        return content * torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype)

    logits = PositionLogits(
        kind,
        normal(*shape, dim),
        normal(*shape, dim),
        0.6,
        normal(shape[0], width) if width else None,
        log_gate=other.gate,
        field=other.field,
        level=other.level,
        penalty_scale=other.penalty_scale,
    )
    return logits, death, queries


def differentiate(loss, logits, death, queries, *, upstream=None, double=False, **options):
    leaves = {n: getattr(logits, n) for n in FACTORS if getattr(logits, n) is not None}
    leaves = {n: (x.double() if double else x).clone().requires_grad_() for n, x in leaves.items()}
    value = loss(replace(logits, **leaves), torch.zeros_like(death), death, queries, **options)
    value.backward(torch.ones_like(value) if upstream is None else upstream.to(value.dtype))
    return value.detach(), {name: x.grad for name, x in leaves.items()}


def assert_equals_reference(logits, death, queries, *, smoothing=0.0, upstream=None):
    """Relative to the largest number of each answer, and of the terms that its sums are made of.

    The loss is a mean over queries; unless told otherwise its gradient is taken times their number, so that the terms
    are of order 1.
    """
    tolerance = TOLERANCE[logits.query.dtype]
    upstream = queries.sum((1, 2)).clamp_min(1).double() if upstream is None else upstream
    options = {"smoothing": smoothing, "upstream": upstream}
    loss, gradients = differentiate(target_loss, logits, death, queries, **options)
    expected, wanted = differentiate(reference_target_loss, logits, death, queries, double=True, **options)
    torch.testing.assert_close(loss, expected, rtol=tolerance, atol=tolerance)
    assert gradients.keys() == wanted.keys()
    for name, gradient in gradients.items():
        assert gradient.dtype == getattr(logits, name).dtype
        assert gradient.isfinite().all(), name
        bound = tolerance * max(1.0, float(wanted[name].abs().max())) if gradient.numel() else 0
        torch.testing.assert_close(
            gradient.double(), wanted[name], rtol=0, atol=bound, msg=lambda m, n=name: f"{n}: {m}"
        )


@settings(max_examples=120)
@given(
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from(list(TOLERANCE)),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 20)),
    dim=st.integers(0, 9),
    width=st.integers(0, 22),
    style=st.sampled_from(sorted(STYLES)),
    smoothing=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_equals_the_reference(kind, dtype, shape, dim, width, style, smoothing, seed):
    problem = drawn(kind, shape, dim, width=width, style=style, seed=seed, dtype=dtype)
    assert_equals_reference(*problem, smoothing=smoothing)


@settings(max_examples=60)
@given(
    field=st.lists(st.integers(-2, 2), min_size=1, max_size=14),
    level=st.lists(st.integers(-2, 2), min_size=14, max_size=14),
    dtype=st.sampled_from(list(TOLERANCE)),
    smoothing=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 100),
)
def test_ties_of_whole_numbers(field, level, dtype, smoothing, seed):
    logits, death, queries = drawn("fpa", (1, 1, len(field)), seed=seed, dtype=dtype)
    field, level = (torch.tensor(x)[None, None].double() for x in (field, level[: len(field)]))
    for of_keys in (level, field):
        assert_equals_reference(replace(logits, field=field, level=of_keys), death, queries, smoothing=smoothing)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(3, 6, 17), (2, 8, 16), (1, 40, 33)])
def test_whole_blocks_of_sequences(shape, kind, dtype):
    """Sixteen sequences and more, which go to lanes and back in squares; what forgets comes in either dtype too."""
    logits, death, queries = drawn(kind, shape, 5, width=3, seed=16, dtype=dtype)
    assert_equals_reference(logits, death, queries, smoothing=0.3)
    own = {n: getattr(logits, n).to(dtype) for n in ("log_gate", "field", "level") if getattr(logits, n) is not None}
    assert_equals_reference(replace(logits, **own), death, queries)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_a_walk_far_from_zero_with_jumps(dtype, smoothing):
    """Differences of a unit on top of 1e4: float32 alone would lose three digits of every penalty."""
    logits, death, queries = drawn("fpa", (2, 3, 60), 4, seed=3, dtype=dtype)
    steps = (
        logits.field
        + torch.where(torch.arange(60) % 17 == 5, 1e4, 0.0)
        - torch.where(torch.arange(60) % 17 == 9, 1e4, 0.0)
    )
    walk = 1e4 + steps.cumsum(-1)
    assert_equals_reference(replace(logits, field=walk, level=walk), death, queries, smoothing=smoothing)
    assert_equals_reference(replace(logits, field=walk, level=walk + 0.3), death, queries, smoothing=smoothing)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_dead_tiles_and_rows_where_only_the_query_is_alive(dtype):
    logits, _, queries = drawn("fpa", (1, 2, 40), seed=4, dtype=dtype)
    falling = -1e3 * torch.arange(40).double().expand(1, 2, -1)
    own = torch.arange(1, 41).expand(1, 2, -1)
    assert_equals_reference(replace(logits, field=falling, level=falling), own, torch.ones_like(queries))
    first_half_dies = torch.where(torch.arange(40) == 20, -500.0, logits.field)
    death = torch.where(torch.arange(40) < 20, 20, 40).expand(1, 2, -1)
    assert_equals_reference(replace(logits, field=first_half_dies), death, torch.ones_like(queries))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_infinite_fields_and_closed_gates(dtype):
    logits, death, queries = drawn("fpa", (1, 1, 12), seed=5, dtype=dtype)
    field, level = logits.field.clone(), logits.level.clone()
    field[..., [2, 3, 7]], level[..., 4] = inf, -inf
    for smoothing in (0.0, 0.4):
        assert_equals_reference(replace(logits, field=field, level=level), death, queries, smoothing=smoothing)
    logits, _, queries = drawn("fox", (1, 1, 12), seed=5, dtype=dtype)
    gate = logits.log_gate.clone()
    gate[..., [4, 9]] = -inf
    since = torch.tensor([0] * 9 + [12] * 3)[None, None]
    late = torch.tensor([0] * 9 + [1] * 3)[None, None]
    assert_equals_reference(replace(logits, log_gate=gate), since, late)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_large_logits(kind, dtype):
    """Logits in the hundreds: weights from 1 to far below the smallest float."""
    logits, death, queries = drawn(kind, (2, 2, 30), 4, seed=6, dtype=torch.float64, content=12.0)
    # Sixteenths: the same numbers, and the same products, in both dtypes.
    exact = {name: (getattr(logits, name) * 4).round() / 4 for name in ("query", "key")}
    exact = {name: x.to(dtype) for name, x in exact.items()}
    assert_equals_reference(replace(logits, scale=0.5, **exact), death, queries)


@pytest.mark.parametrize("kind", KINDS)
def test_no_queries_and_upstream_factors(kind):
    logits, death, queries = drawn(kind, (3, 2, 9), width=4, seed=8)
    queries[1] = 0
    assert_equals_reference(logits, death, queries, upstream=torch.tensor([2.0, 1.0, -0.5]))
    loss, gradients = differentiate(target_loss, logits, death, queries)
    assert loss[1] == 0
    assert not any(g[1].any() for g in gradients.values())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_alone_in_a_block_and_on_any_threads(kind, dtype):
    """Blocks of sixteen sequences cut across the seeds, so every lane of a seed differs between the two."""
    logits, death, queries = drawn(kind, (5, 7, 19), 5, width=6, seed=9, dtype=dtype)
    runs, threads = [], torch.get_num_threads()
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            runs.append(differentiate(target_loss, logits, death, queries, smoothing=0.4))
    finally:
        torch.set_num_threads(threads)
    (loss, gradients), (loss2, gradients2) = runs
    assert torch.equal(loss, loss2)
    assert all(torch.equal(g, gradients2[name]) for name, g in gradients.items())
    for s in range(5):
        own = {n: getattr(logits, n)[s : s + 1] for n in FACTORS if getattr(logits, n) is not None}
        alone = differentiate(target_loss, replace(logits, **own), death[s : s + 1], queries[s : s + 1], smoothing=0.4)
        assert torch.equal(alone[0], loss[s : s + 1])
        assert all(torch.equal(g, gradients[name][s : s + 1]) for name, g in alone[1].items())


@pytest.mark.parametrize("path", [target_loss, reference_target_loss])
@pytest.mark.parametrize("factor", ["query", "key", "field", "level", "log_gate", "bias"])
def test_a_nan_is_a_nan_loss_of_its_seed_alone(path, factor):
    logits, death, queries = drawn("fox" if factor == "log_gate" else "fpa", (3, 2, 9), width=4, seed=10)
    values = getattr(logits, factor).clone()
    values[1].flatten()[3] = nan
    loss = path(replace(logits, **{factor: values}), torch.zeros_like(death), death, queries)
    assert loss.isnan().tolist() == [False, True, False]
    sums, _ = read_sequences(replace(logits, **{factor: values}), torch.zeros_like(death), death, queries)
    assert np.isnan(sums[..., READ_COLUMNS.index("loss")]).any(1).tolist() == [False, True, False]


def test_the_operator_passes_torchs_own_checks():
    for kind in KINDS:
        logits, death, queries = drawn(kind, (2, 2, 6), width=3, seed=11, dtype=torch.float32)
        factors = [getattr(logits, n) for n in FACTORS]
        leaves = [None if x is None else x.requires_grad_() for x in factors]
        arguments = (KINDS.index(kind), *leaves, death, queries, 0.5, 1.5, 0.3)
        assert set(torch.library.opcheck(position_step, arguments).values()) == {"SUCCESS"}


def test_a_second_derivative_is_refused():
    logits, death, queries = drawn("softmax", (1, 1, 4), seed=12)
    query = logits.query.requires_grad_()
    loss = target_loss(replace(logits, query=query), torch.zeros_like(death), death, queries)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(loss.sum(), query, create_graph=True)


def test_half_precision_takes_the_reference_path_and_says_so_once(caplog):
    logits, death, queries = drawn("fpa", (1, 1, 6), seed=13, dtype=torch.bfloat16)
    dispatch._say_once.cache_clear()
    with caplog.at_level(logging.WARNING, logger="lab.ops"):
        losses = [target_loss(logits, torch.zeros_like(death), death, queries) for _ in range(3)]
    dispatch._say_once.cache_clear()
    assert caplog.messages == ["target_loss: no compiled path on torch.bfloat16; using the reference operations"]
    expected = reference_target_loss(logits, torch.zeros_like(death), death, queries)
    assert all(torch.equal(loss, expected) for loss in losses)
    assert np.isfinite(expected.item())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.4])
@pytest.mark.parametrize("penalty_scale", [0.0, 1.5])
def test_an_infinite_penalty_is_a_mask_whatever_the_scale(dtype, smoothing, penalty_scale):
    logits, death, queries = drawn("fpa", (2, 3, 20), seed=14, dtype=dtype)
    level = logits.level.clone()
    level[..., 3], level[1, 2, 9] = inf, inf
    masked = replace(logits, level=level, penalty_scale=penalty_scale)
    assert_equals_reference(masked, death, queries, smoothing=smoothing)  # also where masked keys are targets
    death = torch.where(level == inf, 0, death)
    queries = torch.where(dense_targets(death, torch.ones_like(queries)).any(-1), queries, 0)
    assert_equals_reference(masked, death, queries, smoothing=smoothing)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_see_nothing_lose_everything_and_have_no_gradient(kind):
    """Row 4 of every sequence cannot see any key: a bias of -inf at each of its distances."""
    logits, death, _ = drawn(kind, (2, 3, 5), width=5, seed=15, dtype=torch.float32)
    queries = torch.zeros_like(death)
    queries[..., 4], death = 1, torch.full_like(death, 5)
    logits = replace(logits, bias=torch.full_like(logits.bias, -inf))
    loss, gradients = differentiate(target_loss, logits, death, queries)
    expected, _ = differentiate(reference_target_loss, logits, death, queries)
    assert torch.equal(loss, expected)
    assert (loss == inf).all()
    assert not any(g.any() for g in gradients.values())
