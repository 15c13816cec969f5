"""Every form in which a head hands its logits over gives the same loss, gradients and metrics."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.ops.dispatch import DenseLogits, PositionLogits, read_sequences, reference_target_loss, target_loss
from lab.ops.reading import READ_COLUMNS
from lab.ops.reference import masked_softmax
from tests.ops import oracle
from tests.ops.test_token_step import KINDS, problem

inf = math.inf


def drawn(shape, seed):
    """(log weights, tokens, death, queries): a random matrix and a problem's targets."""
    _, *batch = problem("softmax", shape, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    return torch.randn(*shape, shape[-1], generator=generator, dtype=torch.float64), *batch


@settings(max_examples=30)
@given(kind=st.sampled_from(KINDS), length=st.integers(1, 9), seed=st.integers(0, 999))
def test_the_matrix_of_a_token_head_gives_its_loss_and_metrics(kind, length, seed):
    logits, *batch = problem(kind, (2, 2, length), width=3, seed=seed)
    dense = DenseLogits(logits.dense(batch[0]))
    torch.testing.assert_close(target_loss(dense, *batch), target_loss(logits, *batch), rtol=1e-12, atol=1e-12)
    for mine, expected in zip(read_sequences(dense, *batch), read_sequences(logits, *batch), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-11, atol=1e-11)


def test_a_constant_on_a_row_matters_only_to_weights_taken_as_they_are():
    matrix, *batch = drawn((1, 2, 7), 3)
    log_weight = masked_softmax(DenseLogits(matrix).dense(batch[0])).log()
    for normalised in (True, False):
        loss = target_loss(DenseLogits(log_weight, normalised), *batch)
        halved = target_loss(DenseLogits(log_weight - math.log(2), normalised), *batch)
        torch.testing.assert_close(loss, target_loss(DenseLogits(matrix), *batch))
        torch.testing.assert_close(halved - loss, torch.full((1,), 0.0 if normalised else math.log(2)).double())


def test_given_weights_at_literal_values():
    """Weights 0.3, 0.2, 0.1 on three keys, the first two of them the target; 0.4 goes to nothing."""
    log_weight = torch.tensor([[[[0.3, 0.2, 0.1]]]], dtype=torch.float64).log().requires_grad_()
    tokens, death, queries = torch.zeros(1, 1, 3).long(), torch.tensor([[[3, 3, 0]]]), torch.tensor([[[0, 0, 2]]])
    logits = DenseLogits(log_weight, normalised=False)
    loss = target_loss(logits, tokens, death, queries)
    expected = -0.5 * (math.log(0.3) + math.log(0.2))
    assert loss.item() == pytest.approx(expected)
    loss.sum().backward()
    assert log_weight.grad.flatten().tolist() == [-0.5, -0.5, 0]
    sums, extremes = read_sequences(logits, tokens, death, queries)
    read = dict(zip(READ_COLUMNS, sums[0, 0] / 2, strict=True))
    assert read == pytest.approx(
        {
            "queries": 1,
            "loss": expected,
            "excess_loss": expected - math.log(2),
            "tv": 0.5,  # 0.2 and 0.3 are missing on the target, 0.1 and 0.4 are elsewhere
            "exact": 0,  # 0.2 is below half of a half
            "mass": 0.5,
            "window": math.log(1.5),
            "gap": math.log(2),
            "gap_rows": 1,
        }
    )
    assert extremes[0, 0].tolist() == pytest.approx([math.log(1.5), math.log(2)])


@pytest.mark.parametrize("normalised", [True, False])
def test_fewer_rows_are_the_last_ones(normalised):
    matrix, tokens, death, queries = drawn((2, 2, 8), 5)
    queries[..., :5] = 0
    queries[..., 5:] = 1
    death[..., 0] = 8
    whole, last = (DenseLogits(m, normalised) for m in (matrix, matrix[..., 5:, :]))
    losses = [target_loss(logits, tokens, death, queries) for logits in (last, whole)]
    torch.testing.assert_close(*losses, rtol=1e-14, atol=0)
    for mine, expected in zip(
        read_sequences(last, tokens, death, queries), read_sequences(whole, tokens, death, queries)
    ):
        np.testing.assert_array_equal(mine, expected)
    queries[1, 0, 4] = 1
    for function in (target_loss, read_sequences):
        with pytest.raises(ValueError, match="the last 3 rows only"):
            function(last, tokens, death, queries)


def test_gradients_of_the_matrix_by_differences():
    matrix, *batch = drawn((1, 1, 5), 7)
    for normalised in (True, False):
        assert torch.autograd.gradcheck(
            lambda m, n=normalised: target_loss(DenseLogits(m, n), *batch), [matrix.clone().requires_grad_()]
        )


def test_weights_of_zero_are_read_as_what_they_miss():
    """A row without any weight has total variation 1 and an infinite loss."""
    log_weight = torch.full((1, 1, 2, 2), -inf, dtype=torch.float64)
    tokens, death, queries = torch.zeros(1, 1, 2).long(), torch.tensor([[[2, 2]]]), torch.tensor([[[0, 1]]])
    for normalised in (True, False):
        sums, _ = read_sequences(DenseLogits(log_weight, normalised), tokens, death, queries)
        read = dict(zip(READ_COLUMNS, sums[0, 0], strict=True))
        expected = {"loss": inf, "tv": 1, "exact": 0, "mass": 0, "window": inf}
        assert {name: read[name] for name in expected} == expected


@pytest.mark.parametrize("kind", KINDS)
def test_position_logits_follow_the_oracle(kind):
    generator = torch.Generator().manual_seed(5)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    logits, tokens, death, queries = problem(kind, (1, 1, 9), seed=2)
    query, key, bias = normal(1, 1, 9, 3), normal(1, 1, 9, 3), normal(1, 4)
    positions = PositionLogits(
        kind, query, key, 0.7, bias, logits.gate, logits.field, logits.level, penalty_scale=logits.penalty_scale
    )
    parts = {"log_gate": logits.gate, "field": logits.field, "level": logits.level}
    rows = oracle.logits(
        9,
        lambda i, j: 0.7 * float(query[0, 0, i] @ key[0, 0, j]) + float(bias[0, min(i - j, 3)]),
        **{name: x[0, 0].tolist() for name, x in parts.items() if x is not None},
        penalty_scale=logits.penalty_scale,
        smoothing=0.4,
    )
    counts = queries[0, 0].tolist()
    losses = [
        n * oracle.target_cross_entropy(row, oracle.targets(death[0, 0].tolist(), i))
        for i, (row, n) in enumerate(zip(rows, counts, strict=True))
    ]
    for path in (target_loss, reference_target_loss):
        loss = path(positions, tokens, death, queries, smoothing=0.4)
        assert loss.item() == pytest.approx(sum(losses) / sum(counts), rel=1e-12)
