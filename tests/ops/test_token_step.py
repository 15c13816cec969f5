"""The compiled path equals the definition, in loss, gradients and metrics, on everything drawn and every known edge."""

import logging
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.ops import dispatch, reading
from lab.ops.dispatch import (
    DenseLogits,
    PositionLogits,
    TokenLogits,
    dense_targets,
    read_sequences,
    reference_target_loss,
    target_loss,
)
from lab.ops.step_ops import token_step, wide_token_step
from tests.ops import oracle

inf = math.inf
KINDS = ("softmax", "fox", "fpa")
FACTORS = ("table", "bias", "gate", "field", "level")
# How the numbers of a drawn problem are made from standard normal ones.
STYLES = {
    "plain": lambda x: x,
    "whole numbers": lambda x: (2 * x).round(),  # ties everywhere
    "flat": torch.zeros_like,
    "jumps": lambda x: torch.where(x > 0.5, 1e4, torch.where(x < -0.5, -1e4, x)),
    "tiny": lambda x: 1e-9 * x,
}
TABLES = {"plain": 1.0, "zero": 0.0, "underflow": 1e3}


def problem(kind, shape, *, vocab=3, width=1, style="plain", table="plain", seed=0, most_queries=3):
    """(logits, tokens, death, queries) with random targets; rows with an empty target have no query."""
    generator = torch.Generator().manual_seed(seed)
    seeds, _, length = shape

    def normal(*size):
        return torch.randn(size, generator=generator, dtype=torch.float64)

    def whole(low, high, size=shape):
        return torch.randint(low, high, size, generator=generator)

    tokens, position = whole(0, vocab), torch.arange(length)
    never_key = whole(0, 4) == 0
    dies = torch.minimum(position + whole(1, length + 2), torch.tensor(length))
    death = torch.where(never_key, 0, dies)
    queries = whole(0, most_queries + 1)
    queries = torch.where((death[..., None, :] > position[:, None]).tril().any(-1), queries, 0)
    make = STYLES[style]
    logits = TokenLogits(
        kind,
        TABLES[table] * normal(seeds, vocab, vocab, width),
        gate=-make(normal(*shape)).abs() if kind == "fox" else None,
        field=make(normal(*shape)) if kind == "fpa" else None,
        level=make(normal(*shape)) if kind == "fpa" else None,
        penalty_scale=1.5 if kind == "fpa" else 1.0,
    )
    return logits, tokens, death, queries


def differentiate(loss, logits, *batch, upstream=None, **options):
    """The losses, and the gradient of each factor the head has."""
    leaves = {n: getattr(logits, n).clone().requires_grad_() for n in FACTORS if getattr(logits, n) is not None}
    value = loss(replace(logits, **leaves), *batch, **options)
    value.backward(torch.ones_like(value) if upstream is None else upstream)
    return value.detach(), {name: x.grad for name, x in leaves.items()}


def assert_same(actual, expected, tolerance=1e-11):
    """Two answers of `differentiate`, up to the rounding of sums of numbers as large as those in them."""
    (loss, gradients), (expected_loss, expected_gradients) = actual, expected
    torch.testing.assert_close(loss, expected_loss, rtol=tolerance, atol=tolerance)
    assert gradients.keys() == expected_gradients.keys()
    for name, gradient in gradients.items():
        assert gradient.isfinite().all(), name
        torch.testing.assert_close(gradient, expected_gradients[name], rtol=tolerance, atol=tolerance, msg=name)


def assert_fused_equals_reference(logits, *batch, smoothing=0.0, tolerance=1e-11):
    assert_same(
        differentiate(target_loss, logits, *batch, smoothing=smoothing),
        differentiate(reference_target_loss, logits, *batch, smoothing=smoothing),
        tolerance,
    )


def oracle_rows(logits, tokens, smoothing=0.0):
    """The oracle's logits of a single sequence of a single seed."""
    table, token = logits.table[0], tokens[0, 0].tolist()
    parts = {"log_gate": logits.gate, "field": logits.field, "level": logits.level}
    return oracle.logits(
        len(token),
        lambda i, j: float(table[token[i], token[j], min(i - j, table.shape[-1] - 1)]),
        **{name: x[0, 0].tolist() for name, x in parts.items() if x is not None},
        penalty_scale=logits.penalty_scale,
        smoothing=smoothing,
    )


# --- loss and gradients ---------------------------------------------------------------------------------------------


@settings(max_examples=160)
@given(
    kind=st.sampled_from(KINDS),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 10)),
    vocab=st.integers(1, 4),
    width=st.integers(1, 12),
    style=st.sampled_from(sorted(STYLES)),
    table=st.sampled_from(sorted(TABLES)),
    smoothing=st.sampled_from([0.0, 0.3, 1.0]),
    seed=st.integers(0, 10_000),
)
def test_equals_the_reference(kind, shape, vocab, width, style, table, smoothing, seed):
    logits, *batch = problem(kind, shape, vocab=vocab, width=width, style=style, table=table, seed=seed)
    assert_fused_equals_reference(logits, *batch, smoothing=smoothing)


@settings(max_examples=100)
@given(
    field=st.lists(st.integers(-2, 2), min_size=1, max_size=14),
    level=st.lists(st.integers(-2, 2), min_size=14, max_size=14),
    smoothing=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 100),
)
def test_ties_of_whole_numbers(field, level, smoothing, seed):
    logits, *batch = problem("fpa", (1, 1, len(field)), seed=seed)
    field, level = (torch.tensor(x)[None, None].double() for x in (field, level[: len(field)]))
    assert_fused_equals_reference(replace(logits, field=field, level=level), *batch, smoothing=smoothing)
    assert_fused_equals_reference(replace(logits, field=field, level=field), *batch, smoothing=smoothing)


def test_the_earliest_of_equal_minima_gets_the_gradient():
    """Independent of the reference: two equal dips, a key that both would kill, one query at the end."""
    field = torch.tensor([[[2.0, -1.0, 0.0, -1.0]]], dtype=torch.float64)
    level = torch.tensor([[[0.5, -9.0, -9.0, -9.0]]], dtype=torch.float64)
    logits = TokenLogits("fpa", torch.zeros(1, 1, 1, 1, dtype=torch.float64), field=field, level=level)
    tokens = torch.zeros(1, 1, 4, dtype=torch.int64)
    death, queries = torch.tensor([[[4, 0, 0, 0]]]), torch.tensor([[[0, 0, 0, 1]]])
    loss, gradients = differentiate(target_loss, logits, tokens, death, queries)
    alive, dead = 1.0, math.exp(-1.5)
    weight = dead / (dead + 3 * alive)
    assert loss.item() == pytest.approx(-math.log(weight), abs=1e-14)
    assert gradients["field"][0, 0].tolist() == pytest.approx([0, weight - 1, 0, 0], abs=1e-14)
    assert gradients["level"][0, 0].tolist() == pytest.approx([1 - weight, 0, 0, 0], abs=1e-14)


def test_no_gradient_where_the_level_just_touches_the_minimum():
    field = torch.tensor([[[0.0, 1.0]]], dtype=torch.float64)
    level = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
    logits = TokenLogits("fpa", torch.zeros(1, 1, 1, 1, dtype=torch.float64), field=field, level=level)
    tokens, ones = torch.zeros(1, 1, 2, dtype=torch.int64), torch.ones(1, 1, 2, dtype=torch.int64)
    _, gradients = differentiate(target_loss, logits, tokens, 2 * ones - torch.tensor([0, 2]), ones)
    assert not gradients["field"].any()
    assert not gradients["level"].any()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 5, 9, 20])
def test_widths_up_to_and_beyond_the_length(kind, width):
    assert_fused_equals_reference(*problem(kind, (2, 2, 9), width=width, seed=width))


@pytest.mark.parametrize("kind", KINDS)
def test_longer_sequences(kind):
    """Long enough that minima move many times and FoX's running product of gates accumulates its rounding."""
    assert_fused_equals_reference(*problem(kind, (1, 2, 150), seed=5), smoothing=0.2, tolerance=1e-9)
    assert_fused_equals_reference(*problem(kind, (1, 2, 150), style="whole numbers", seed=6), tolerance=1e-9)


@pytest.mark.parametrize("gate", [-50.0, -690.0, -5e3])
def test_fox_with_nearly_closed_gates(gate):
    """Weights fall below every float: the row is then computed again from its own maximum."""
    logits, tokens, death, queries = problem("fox", (1, 1, 8), seed=3)
    death, queries = torch.full_like(death, 8), torch.ones_like(queries)
    assert_fused_equals_reference(replace(logits, gate=torch.full_like(logits.gate, gate)), tokens, death, queries)
    # The only target lies behind all gates; the masked-out rest of the row is much larger than it.
    death = torch.tensor([[[8, 0, 0, 0, 0, 0, 0, 0]]])
    assert_fused_equals_reference(replace(logits, gate=torch.full_like(logits.gate, gate)), tokens, death, queries)


@pytest.mark.parametrize("drop", [5.0, 500.0, 1e4])
def test_all_keys_dead_but_the_query_itself(drop):
    logits, tokens, _, queries = problem("fpa", (1, 1, 7), seed=4)
    falling = -drop * torch.arange(7, dtype=torch.float64)[None, None]
    logits = replace(logits, field=falling, level=falling)
    death = torch.arange(1, 8)[None, None]  # every key is its own target only
    loss, gradients = differentiate(target_loss, logits, tokens, death, torch.ones_like(queries))
    assert loss.item() < 1e-2
    assert_fused_equals_reference(logits, tokens, death, torch.ones_like(queries))
    assert all(g.isfinite().all() for g in gradients.values())


def test_rows_far_below_the_best_entry_of_their_token():
    """The table's best entry is for a pair that never occurs, so every weight of the sequence underflows."""
    table = torch.tensor([[[0.0, 1e3], [0.3, 1e3]]], dtype=torch.float64)[..., None]
    tokens = torch.zeros(1, 1, 5, dtype=torch.int64)
    death, queries = torch.tensor([[[5, 3, 0, 5, 5]]]), torch.ones(1, 1, 5, dtype=torch.int64)
    for kind in KINDS:
        logits = replace(problem(kind, (1, 1, 5), seed=1)[0], table=table)
        loss, _ = differentiate(target_loss, logits, tokens, death, queries)
        assert loss.item() < 20
        assert_fused_equals_reference(logits, tokens, death, queries)


@pytest.mark.parametrize("kind", KINDS)
def test_length_one_and_no_queries(kind):
    logits, tokens, _, queries = problem(kind, (2, 1, 1))
    one = torch.ones_like(queries)
    loss, gradients = differentiate(target_loss, logits, tokens, one, one)
    assert loss.tolist() == pytest.approx([0, 0], abs=1e-15)
    assert all(g.abs().max() < 1e-15 for g in gradients.values())

    logits, tokens, death, queries = problem(kind, (2, 2, 6), seed=8)
    queries[1] = 0
    loss, gradients = differentiate(target_loss, logits, tokens, death, queries)
    assert loss[0] > 0
    assert loss[1] == 0
    assert not any(g[1].any() for g in gradients.values())
    assert_fused_equals_reference(logits, tokens, death, queries)


def test_queries_count():
    """Three queries at a row are the row three times; the loss is the mean over queries, not over rows."""
    logits, tokens, death, _ = problem("fpa", (1, 1, 6), seed=2)
    death[..., 0] = 6
    rows = [oracle_rows(logits, tokens), [oracle.targets(death[0, 0].tolist(), i) for i in range(6)]]
    each = [oracle.target_cross_entropy(row, target) for row, target in zip(*rows, strict=True)]
    for counts in ([1, 1, 1, 1, 1, 1], [0, 3, 0, 0, 1, 0], [0, 0, 0, 0, 0, 7]):
        expected = sum(n * loss for n, loss in zip(counts, each, strict=True)) / sum(counts)
        queries = torch.tensor(counts)[None, None]
        assert target_loss(logits, tokens, death, queries).item() == pytest.approx(expected, rel=1e-13)
        assert_fused_equals_reference(logits, tokens, death, queries)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("smoothing", [0.0, 0.6])
def test_loss_against_the_oracle(kind, smoothing):
    logits, tokens, death, queries = problem(kind, (1, 1, 12), width=4, seed=11)
    rows, counts = oracle_rows(logits, tokens, smoothing), queries[0, 0].tolist()
    losses = [
        n * oracle.target_cross_entropy(row, oracle.targets(death[0, 0].tolist(), i))
        for i, (row, n) in enumerate(zip(rows, counts, strict=True))
    ]
    for path in (target_loss, reference_target_loss):
        loss = path(logits, tokens, death, queries, smoothing=smoothing)
        assert loss.item() == pytest.approx(sum(losses) / sum(counts), rel=1e-13)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("smoothing", [0.0, 0.6])
def test_gradients_by_differences(kind, smoothing):
    """Independent of the reference's gradients: central differences of the fused loss itself, away from ties."""
    logits, *batch = problem(kind, (1, 1, 8), width=2, seed=21)
    _, gradients = differentiate(target_loss, logits, *batch, smoothing=smoothing)
    step = 1e-6
    for name, gradient in gradients.items():
        x = getattr(logits, name)
        for index in np.ndindex(*x.shape):
            sides = []
            for sign in (1, -1):
                moved = x.clone()
                moved[index] += sign * step
                sides.append(target_loss(replace(logits, **{name: moved}), *batch, smoothing=smoothing).item())
            assert gradient[index].item() == pytest.approx((sides[0] - sides[1]) / (2 * step), abs=1e-8), (name, index)


def test_gradients_are_scaled_seed_by_seed_and_keep_their_dtype():
    logits, *batch = problem("fpa", (3, 1, 6), seed=13)
    upstream = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)
    assert_same(
        differentiate(target_loss, logits, *batch, upstream=upstream),
        differentiate(reference_target_loss, logits, *batch, upstream=upstream),
    )
    logits = replace(logits, table=logits.table.float())
    loss, gradients = differentiate(target_loss, logits, *batch)
    assert loss.dtype == torch.float64
    assert gradients["table"].dtype == torch.float32
    assert gradients["field"].dtype == torch.float64


def test_field_and_level_may_be_one_tensor():
    logits, *batch = problem("fpa", (2, 1, 8), seed=17)
    grads = []
    for path in (target_loss, reference_target_loss):
        walk = logits.field.clone().requires_grad_()
        path(replace(logits, field=walk, level=walk), *batch, smoothing=0.5).sum().backward()
        grads.append(walk.grad)
    torch.testing.assert_close(*grads, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", ["plain", "whole numbers", "jumps"])
def test_a_seed_alone_equals_itself_in_a_block(kind, style):
    logits, *batch = problem(kind, (5, 3, 12), style=style, seed=31, width=3)
    loss, gradients = differentiate(target_loss, logits, *batch, smoothing=0.4)
    reading = read_sequences(logits, *batch)
    for s in range(5):
        part = {n: getattr(logits, n)[s : s + 1] for n in FACTORS if getattr(logits, n) is not None}
        alone, arrays = replace(logits, **part), [x[s : s + 1] for x in batch]
        alone_loss, alone_gradients = differentiate(target_loss, alone, *arrays, smoothing=0.4)
        assert torch.equal(alone_loss, loss[s : s + 1])
        assert all(torch.equal(g, gradients[name][s : s + 1]) for name, g in alone_gradients.items())
        for mine, block in zip(read_sequences(alone, *arrays), reading, strict=True):
            np.testing.assert_array_equal(mine[0], block[s])


@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(1, 20)),
    widths=st.tuples(st.sampled_from([1, 4]), st.integers(1, 22)),
    style=st.sampled_from(sorted(STYLES)),
    smoothing=st.sampled_from([0.0, 0.5]),
    seed=st.integers(0, 10_000),
)
def test_a_bias_by_distance(kind, shape, widths, style, smoothing, seed):
    """Beside a table with and without distances of its own; read as the matrix of the two is."""
    logits, *batch = problem(kind, shape, width=widths[0], style=style, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    logits = replace(logits, bias=torch.randn(shape[0], widths[1], generator=generator, dtype=torch.float64))
    assert_fused_equals_reference(logits, *batch, smoothing=smoothing)
    matrix = DenseLogits(logits.dense(batch[0]))
    for mine, expected in zip(read_sequences(logits, *batch), read_sequences(matrix, *batch), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_tables_are_computed_in_float32(kind):
    """Within 1e-5 of the float64 reference; blocks of sixteen sequences cut across seeds and fill up with nothing."""
    logits, *batch = problem(kind, (3, 7, 40), vocab=5, seed=19)
    narrow = replace(logits, table=logits.table.float())
    actual = differentiate(target_loss, narrow, *batch, smoothing=0.3)
    exact = replace(logits, table=narrow.table.double())
    loss, gradients = differentiate(reference_target_loss, exact, *batch, smoothing=0.3)
    torch.testing.assert_close(actual[0], loss, rtol=1e-5, atol=1e-5)
    for name, gradient in actual[1].items():
        bound = 1e-5 * float(gradients[name].abs().max())
        torch.testing.assert_close(gradient.double(), gradients[name], rtol=0, atol=bound, msg=name)
    assert actual[1]["table"].dtype == torch.float32


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_on_any_number_of_threads(kind, width):
    logits, *batch = problem(kind, (3, 7, 15), width=width, seed=23)
    runs, threads = [], torch.get_num_threads()
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            runs.append((differentiate(target_loss, logits, *batch, smoothing=0.4), read_sequences(logits, *batch)))
    finally:
        torch.set_num_threads(threads)
    ((loss, gradients), read), ((loss2, gradients2), read2) = runs
    assert torch.equal(loss, loss2)
    assert all(torch.equal(g, gradients2[name]) for name, g in gradients.items())
    assert all(np.array_equal(a, b) for a, b in zip(read, read2, strict=True))


@pytest.mark.parametrize("factor", ["table", "wide table", "bias", "gate", "field", "level"])
def test_a_nan_is_a_nan_loss_and_reading_of_its_seed_alone(factor):
    """A nan in a field compares as false, and would read as a key that is alive."""
    width, name = (3, "table") if factor == "wide table" else (1, factor)
    logits, *batch = problem("fox" if factor == "gate" else "fpa", (3, 2, 9), width=width, seed=10)
    logits = replace(logits, bias=torch.zeros(3, 4, dtype=torch.float64))
    values = getattr(logits, name).clone()
    values[1].flatten()[3] = math.nan
    broken = replace(logits, **{name: values})
    for path in (target_loss, reference_target_loss):
        assert path(broken, *batch).isnan().tolist() == [False, True, False]
    sums, extremes = read_sequences(broken, *batch)
    columns = {column: sums[..., n].sum(1) for n, column in enumerate(reading.READ_COLUMNS)}
    for column in ("loss", "excess_loss", "tv", "mass", "window"):
        assert np.isnan(columns[column]).tolist() == [False, True, False], column
    assert np.isfinite(columns["exact"]).all()
    assert np.isnan(extremes[1]).any()
    assert not np.isnan(extremes[[0, 2]]).any()
    if name != "table" and name != "bias":
        assert np.isnan(sums[1, :, 1]).tolist() == [True, False]  # the other sequence of the seed is read


@pytest.mark.parametrize("kind", KINDS)
def test_the_operators_pass_torchs_own_checks(kind):
    logits, *batch = problem(kind, (2, 2, 6), seed=11)
    leaves = [None if x is None else x.requires_grad_() for x in (logits.gate, logits.field, logits.level)]
    number = KINDS.index(kind)
    table, bias = logits.table[..., 0].float().requires_grad_(), torch.randn(2, 4).requires_grad_()
    for operator, content in ((token_step, (table, bias)), (wide_token_step, (logits.table.requires_grad_(),))):
        found = torch.library.opcheck(operator, (number, *content, *leaves, *batch, 1.5, 0.3))
        assert set(found.values()) == {"SUCCESS"}


@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_queries_at_empty_targets_are_not_scored(kind, width):
    logits, tokens, death, queries = problem(kind, (2, 2, 9), width=width, seed=29)
    assert_fused_equals_reference(logits, tokens, death.clamp_max(4), torch.ones_like(queries))


# --- metrics --------------------------------------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    kind=st.sampled_from(KINDS),
    length=st.integers(1, 10),
    width=st.integers(1, 12),
    style=st.sampled_from(sorted(STYLES)),
    table=st.sampled_from(sorted(TABLES)),
    seed=st.integers(0, 10_000),
)
def test_metrics_follow_the_oracle(kind, length, width, style, table, seed):
    logits, tokens, death, queries = problem(
        kind, (1, 1, length), width=width, style=style, table=table, seed=seed, most_queries=2
    )
    sums, extremes = read_sequences(logits, tokens, death, queries)
    read = dict(zip(reading.READ_COLUMNS, sums[0, 0], strict=True))
    expected = dict.fromkeys(reading.READ_COLUMNS, 0.0)
    windows, gaps = [0.0], [inf]
    for i, (row, count) in enumerate(zip(oracle_rows(logits, tokens), queries[0, 0].tolist(), strict=True)):
        if count == 0:
            continue
        found = oracle.reading(row, oracle.targets(death[0, 0].tolist(), i))
        expected["queries"] += count
        expected["gap_rows"] += count * ("gap" in found)
        for name, value in found.items():
            expected[name] += count * value
        windows.append(found["window"])
        gaps.append(found.get("gap", inf))
    assert read == pytest.approx(expected, rel=1e-11, abs=1e-11)
    assert extremes[0, 0].tolist() == pytest.approx([max(windows), min(gaps)], rel=1e-11, abs=1e-11)


def test_metrics_at_literal_values():
    """Weights 0.4, 0.4, 0.2 on a target of the first two keys; then the same row with the third key in the target."""
    table = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64).log().expand(3, 3)[None, :, :, None]
    tokens, queries = torch.arange(3)[None, None], torch.tensor([[[0, 0, 2]]])
    sums, extremes = read_sequences(TokenLogits("softmax", table), tokens, torch.tensor([[[3, 3, 0]]]), queries)
    read = dict(zip(reading.READ_COLUMNS, sums[0, 0], strict=True))
    loss, gap = -math.log(0.4), math.log(2)
    expected = {
        "queries": 2,
        "loss": 2 * loss,
        "excess_loss": 2 * (loss - math.log(2)),
        "tv": 2 * 0.2,
        "exact": 2,
        "mass": 2 * 0.8,
        "window": 0,
        "gap": 2 * gap,
        "gap_rows": 2,
    }
    assert read == pytest.approx(expected, abs=1e-14)
    assert extremes[0, 0].tolist() == pytest.approx([0, gap], abs=1e-14)

    sums, extremes = read_sequences(TokenLogits("softmax", table), tokens, torch.tensor([[[3, 3, 3]]]), queries)
    read = dict(zip(reading.READ_COLUMNS, sums[0, 0], strict=True))
    assert read["exact"] == 2  # 0.2 is above half of a third
    assert read["tv"] == pytest.approx(2 * (1 / 3 - 0.2))
    assert read["window"] == pytest.approx(2 * gap)
    assert read["gap_rows"] == 0
    assert extremes[0, 0, 1] == inf


@pytest.mark.parametrize(
    "field", [[0, 1, inf, 0.5, 2], [inf, inf, inf, inf, inf], [3, inf, inf, 1, 0], [-inf, 1, inf, -inf, 0]]
)
def test_infinite_fields_are_read_as_the_definition_says(field):
    logits, tokens, death, _ = problem("fpa", (1, 1, 5), seed=4)
    queries = ((death[..., None, :] > torch.arange(5)[:, None]).tril().any(-1)).long()
    logits = replace(logits, field=torch.tensor([[field]], dtype=torch.float64))
    expected = read_sequences(DenseLogits(logits.dense(tokens)), tokens, death, queries)
    for actual, wanted in zip(read_sequences(logits, tokens, death, queries), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-11, atol=1e-11)


def test_a_query_with_an_empty_target_is_not_read():
    for kind in KINDS:
        logits, tokens, death, queries = problem(kind, (2, 2, 6), seed=5)
        death[0], queries[0] = 0, 1
        dense = DenseLogits(logits.dense(tokens))
        for path in (logits, dense):
            sums, _ = read_sequences(path, tokens, death, queries)
            assert (sums[0] == 0).all()
            assert (sums[1, :, 0] == queries[1].sum(-1).numpy()).all()


@pytest.mark.parametrize("door", [target_loss, read_sequences])
def test_what_does_not_fit_never_reaches_the_compiled_loops(door):
    logits, tokens, death, queries = problem("fpa", (2, 2, 5))
    with pytest.raises(ValueError, match="tokens: expected 0 to 2"):
        door(logits, tokens + 1, death, queries)
    with pytest.raises(ValueError, match="tokens: expected 0 to 2"):
        door(logits, tokens - 1, death, queries)
    with pytest.raises(ValueError, match="death: expected the shape of tokens"):
        door(logits, tokens, death[:, :1], queries)
    with pytest.raises(ValueError, match=r"field: expected the shape of tokens, \(2, 2, 5\), got \(1, 2, 5\)"):
        door(replace(logits, field=logits.field[:1]), tokens, death, queries)
    query = torch.zeros(2, 2, 4, 1)
    with pytest.raises(ValueError, match="query: expected the shape of tokens"):
        door(PositionLogits("softmax", query, query, 1.0), tokens, death, queries)


def test_weights_of_zero_are_read_as_what_they_miss():
    """Given weights may be 0 on the target, or everywhere; the loss is then infinite and the rest still defined."""
    table = torch.tensor([[0.0, -inf], [-inf, -inf]], dtype=torch.float64)[None, :, :, None]
    tokens, death = torch.arange(2)[None, None], torch.tensor([[[2, 2]]])
    sums, _ = read_sequences(TokenLogits("softmax", table), tokens, death, torch.tensor([[[0, 1]]]))
    read = dict(zip(reading.READ_COLUMNS, sums[0, 0], strict=True))
    expected = {"loss": inf, "excess_loss": inf, "tv": 1, "exact": 0, "mass": 0, "window": inf}
    assert {name: read[name] for name in expected} == expected

    table[0, 1, 0, 0] = 0.0  # the first key alone
    sums, _ = read_sequences(TokenLogits("softmax", table), tokens, death, torch.tensor([[[0, 1]]]))
    read = dict(zip(reading.READ_COLUMNS, sums[0, 0], strict=True))
    expected |= {"tv": 0.5, "mass": 1}
    assert {name: read[name] for name in expected} == expected


# --- targets and the choice of path ---------------------------------------------------------------------------------


def test_dense_targets_are_the_births_and_deaths_of_scored_rows():
    _, _, death, queries = problem("softmax", (2, 2, 7), seed=41)
    dense = dense_targets(death, queries)
    for index in np.ndindex(2, 2):
        for i in range(7):
            scored = queries[index][i] > 0
            expected = oracle.targets(death[index].tolist(), i) if scored else []
            assert dense[index][i].nonzero().flatten().tolist() == expected


def test_other_devices_take_the_reference_path_and_say_so_once(caplog, monkeypatch):
    """A device without storage ("meta") stands for the ones this machine need not have."""
    dispatch._say_once.cache_clear()
    taken = []
    monkeypatch.setattr(dispatch, "reference_target_loss", lambda *args, **options: taken.append((args, options)))
    logits, *batch = problem("fpa", (1, 1, 4))
    arrays = [x.to("meta") for x in batch]
    with caplog.at_level(logging.WARNING, logger="lab.ops"):
        for _ in range(3):
            target_loss(logits, *arrays, smoothing=0.5)
    dispatch._say_once.cache_clear()
    assert taken == [((logits, *arrays), {"smoothing": 0.5})] * 3
    assert caplog.messages == ["target_loss: no compiled path on meta; using the reference operations"]
    assert target_loss(logits, *batch).item() > 0
    assert len(taken) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("width", [1, 3])
def test_a_masked_target_has_an_infinite_loss(dtype, width):
    """-inf in the table: the pair of tokens that never meet; a target there cannot be read."""
    logits, tokens, death, queries = problem("softmax", (3, 2, 8), vocab=3, width=width, seed=5)
    table = logits.table.to(dtype).clone()
    table[0, :, 1] = -inf
    table[1] = -inf
    logits = replace(logits, table=table)
    loss = target_loss(logits, tokens, death, queries)
    expected = reference_target_loss(logits, tokens, death, queries)
    torch.testing.assert_close(loss, expected.double(), rtol=1e-5, atol=0)
    assert (loss == inf).tolist()[1:] == [True, False]


@pytest.mark.parametrize("smoothing", [0.0, 0.4])
@pytest.mark.parametrize("penalty_scale", [0.0, 1.5])
@pytest.mark.parametrize("width", [1, 4])
def test_an_infinite_penalty_is_a_mask_whatever_the_scale(width, penalty_scale, smoothing):
    logits, tokens, death, queries = problem("fpa", (2, 3, 12), width=width, seed=6)
    level = logits.level.clone()
    level[..., 3], level[1, 2, 9] = inf, inf
    masked = replace(logits, level=level, penalty_scale=penalty_scale)
    assert_fused_equals_reference(masked, tokens, death, queries, smoothing=smoothing)  # masked keys may be targets
    death = torch.where(level == inf, 0, death)
    queries = torch.where(dense_targets(death, torch.ones_like(queries)).any(-1), queries, 0)
    assert_fused_equals_reference(masked, tokens, death, queries, smoothing=smoothing)


def test_the_same_bits_wherever_the_arrays_lie():
    """Compiled loops look at addresses when they write near what they read; no sum may depend on that."""
    rng, others = np.random.default_rng(0), []
    for turn in range(90):
        logits, *batch = problem(KINDS[turn % 3], (5, 3, 12), seed=turn, width=3)
        loss, gradients = differentiate(target_loss, logits, *batch, smoothing=0.4)
        others.append(np.empty(rng.integers(1, 3000)))
        loss2, gradients2 = differentiate(target_loss, logits, *batch, smoothing=0.4)
        assert torch.equal(loss, loss2)
        assert all(torch.equal(g, gradients2[name]) for name, g in gradients.items())
