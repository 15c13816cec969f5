"""reference.py is the definition: values against the oracle, gradients against its tie rule, and nothing undefined."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab.ops import reference
from tests.ops import oracle

inf = math.inf
DTYPES = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}

# Fields and levels by name: where two paths could come to disagree.
FIELDS = {
    "falling": [0.0, -1.0, -2.0, -3.0, -4.0],
    "rising": [0.0, 1.0, 2.0, 3.0, 4.0],
    "flat": [1.0, 1.0, 1.0, 1.0, 1.0],
    "twice the same dip": [2.0, 0.0, 1.0, 0.0, 2.0],
    "jumps": [0.0, 1e4, -1e4, 1e4, 0.0],
    "a wall": [0.0, 1.0, -inf, 1.0, 0.0],
    "never": [inf, inf, inf, inf, inf],
    "one": [3.0],
}
LEVELS = {
    "low": -1.0,
    "high": 1.5,
    "never dies": -inf,
    "dies at once": inf,
}


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def leaf(x):
    return x.clone().requires_grad_()


def assert_close(actual, expected, tolerance=1e-12):
    torch.testing.assert_close(
        actual.double(), torch.as_tensor(expected, dtype=torch.float64), rtol=tolerance, atol=tolerance
    )


def assert_finite(*tensors):
    for x in tensors:
        assert x.isfinite().all(), x


# --- the minimum and the penalty ------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("queries", [1, 2, 5])
def test_minimum_is_the_earliest_least_value_between(field, queries):
    size = len(field)
    queries = min(queries, size)
    index = reference.first_passage_index(torch.tensor(field), queries)
    minimum = reference.first_passage_minimum(torch.tensor(field, dtype=torch.float64), queries)
    expected = [[oracle.first_passage(field, j, i) for j in range(size)] for i in range(size - queries, size)]
    assert index.tolist() == [[at for _, at in row] for row in expected]
    assert minimum.tolist() == [[least for least, _ in row] for row in expected]


@given(st.lists(st.integers(-2, 2), min_size=1, max_size=12), st.data())
def test_minimum_of_fields_full_of_ties(field, data):
    size = len(field)
    queries = data.draw(st.integers(1, size))
    index = reference.first_passage_index(torch.tensor(field, dtype=torch.float32), queries)
    expected = [[oracle.first_passage(field, j, i)[1] for j in range(size)] for i in range(size - queries, size)]
    assert index.tolist() == expected


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_penalty_and_its_gradient_follow_the_definition(field, level, smoothing):
    levels = [level] * len(field)
    u, v = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (field, levels))
    penalty = reference.penalty(u, v, smoothing=smoothing)
    assert_close(penalty, oracle.penalty(field, levels, smoothing))

    # Infinite penalties are constants: nothing may arrive from them, and no nan either.
    upstream = torch.where(penalty.detach().isfinite(), randn(*penalty.shape), 0.0)
    penalty.backward(upstream)
    expected = oracle.penalty_gradient(field, levels, upstream.tolist(), smoothing)
    assert_close(u.grad, expected[0])
    assert_close(v.grad, expected[1])


def test_ties_give_the_whole_gradient_to_the_earliest_minimum():
    field = torch.tensor([5.0, 1.0, 2.0, 1.0, 1.0], requires_grad=True)
    level = torch.tensor([3.0, 0.0, 0.0, 0.0, 0.0], requires_grad=True)
    reference.penalty(field, level)[4, 0].backward()
    assert field.grad.tolist() == [0, -1, 0, 0, 0]
    assert level.grad.tolist() == [1, 0, 0, 0, 0]


def test_no_gradient_where_the_level_just_touches_the_minimum():
    field = torch.tensor([0.0, 2.0, 3.0], requires_grad=True)
    level = torch.tensor([2.0, 3.0, 0.0], requires_grad=True)
    penalty = reference.penalty(field, level)
    assert penalty.tolist() == [[0.0] * 3] * 3
    penalty.sum().backward()
    assert field.grad.tolist() == [0, 0, 0]
    assert level.grad.tolist() == [0, 0, 0]


def test_flat_fields_get_no_gradient_unless_smoothed():
    for smoothing, arrives in ((0.0, False), (1.0, True)):
        field = torch.zeros(6, requires_grad=True)
        reference.penalty(field, field, smoothing=smoothing).sum().backward()
        assert field.grad.abs().sum().gt(0) == arrives
        if arrives:
            # Half of every pair's gradient falls on the position after the key, the earliest of the equal minima.
            pushed = torch.tensor([0.0, *(-0.5 * (6 - t) for t in range(1, 6))])
            pulled = torch.tensor([0.5 * (5 - t) for t in range(6)])
            assert_close(field.grad, pushed + pulled)


@given(
    st.lists(st.floats(-1e4, 1e4) | st.integers(-3, 3), min_size=1, max_size=12),
    st.sampled_from([0.0, 0.25, 1.0, 8.0]),
    st.data(),
)
def test_penalties_never_shrink_as_the_query_moves_on(field, smoothing, data):
    level = data.draw(st.lists(st.floats(-1e4, 1e4), min_size=len(field), max_size=len(field)))
    penalty = reference.penalty(torch.tensor(field).double(), torch.tensor(level).double(), smoothing=smoothing)
    # Softplus rounds; the definition does not.
    slack = 1e-15 * penalty.max().item() if smoothing else 0.0
    assert (penalty.diff(dim=0) >= -slack).all()
    assert (penalty.triu() == 0).all()


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=10),
    st.lists(st.integers(-40, 40), min_size=10, max_size=10),
    st.integers(-1000, 1000),
)
def test_adding_a_constant_to_field_and_level_changes_nothing(field, level, constant):
    u, v = torch.tensor(field).double() / 8, torch.tensor(level[: len(field)]).double() / 8  # exact in binary
    assert torch.equal(reference.penalty(u, v), reference.penalty(u + constant, v + constant))


def test_smoothing_approaches_the_definition_and_stays_above_it():
    field, level = randn(8, seed=1), randn(8, seed=2)
    hard = reference.penalty(field, level)
    between = torch.ones(8, 8).tril(-1) == 1
    last = inf
    for smoothing in (1.0, 0.1, 0.01):
        gap = (reference.penalty(field, level, smoothing=smoothing) - hard)[between]
        assert (gap >= -1e-15).all()
        assert gap.max() <= smoothing * math.log(2) + 1e-12
        assert gap.max() < last
        last = gap.max()


# --- attention against the oracle, in every dtype and shape ---------------------------------------------------------


def one_head(kind, dtype, lead, size, queries, dim=3):
    """Random inputs in that dtype: (arguments of the attention, keyword arguments of the oracle for each element)."""
    query, key, value = (randn(*lead, size, d, seed=s, dtype=dtype) for s, d in ((1, dim), (2, dim), (3, 2)))
    extra = {
        "softmax": [],
        "fox": [-randn(*lead, size, seed=4).abs().to(dtype)],
        "fpa": [randn(*lead, size, seed=5, dtype=dtype), randn(*lead, size, seed=6, dtype=dtype)],
    }[kind]
    names = {"softmax": [], "fox": ["log_gate"], "fpa": ["field", "level"]}[kind]
    attention = getattr(reference, f"{kind}_attention")

    def expected(flat):
        q, k, v, *rest = (x.double().flatten(0, len(lead) - 1)[flat] if lead else x.double() for x in flat_inputs)
        scale = 1 / math.sqrt(dim)
        matrix = oracle.logits(
            size,
            lambda i, j: scale * float(q[i] @ k[j]),
            **{name: x.tolist() for name, x in zip(names, rest, strict=True)},
        )
        return oracle.attention(matrix[size - queries :], v.tolist())

    flat_inputs = (query, key, value, *extra)
    return attention(query[..., size - queries :, :], key, value, *extra), expected


@pytest.mark.parametrize("kind", ["softmax", "fox", "fpa"])
@pytest.mark.parametrize("lead", [(), (2,), (2, 1, 3)], ids=str)
@pytest.mark.parametrize("queries", [7, 3, 1])
def test_attention_follows_the_definition(kind, lead, queries):
    out, expected = one_head(kind, torch.float64, lead, 7, queries)
    assert out.shape == (*lead, queries, 2)
    flat = out.reshape(-1, queries, 2)
    for element in range(flat.shape[0]):
        assert_close(flat[element], expected(element))


@pytest.mark.parametrize("kind", ["softmax", "fox", "fpa"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_attention_in_every_dtype(kind, dtype):
    out, expected = one_head(kind, dtype, (2,), 9, 9)
    assert out.dtype == dtype
    for element in range(2):
        assert_close(out[element], expected(element), DTYPES[dtype])


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16], ids=str)
def test_half_inputs_are_summed_in_float32(half):
    size = 3000
    gate = torch.full((size,), -0.01, dtype=half)
    # In bfloat16 a running sum of -0.01 stops near -4, in float16 near -32 it has lost every digit.
    assert_close(reference.fox_bias(gate, 1)[0, 0], float(gate[0]) * (size - 1), 1e-4)

    logits = torch.zeros(1, size, dtype=half)
    weights = reference.masked_softmax(logits)
    assert weights.dtype == torch.float32
    assert_close(weights.sum(), 1.0, 1e-5)
    loss = reference.target_cross_entropy(logits, torch.ones(1, size, dtype=torch.bool))
    assert_close(loss, [math.log(size)], 1e-6)

    query = torch.full((1, 513), 1.0, dtype=half)
    assert reference.softmax_logits(query, query, scale=1.0).item() == 513  # not a bfloat16, nor a step of float16 sums
    field = torch.tensor([0.0, 1.0], dtype=half)
    level = torch.tensor([1.0 + 2**-7, 0.0], dtype=half)
    assert reference.penalty(field, level)[1, 0].item() == 2**-7
    assert reference.penalty(field, level).dtype == torch.float32


# --- special cases --------------------------------------------------------------------------------------------------

shapes = st.tuples(st.integers(1, 9), st.integers(0, 3))


def content(size, dim, seed):
    return (randn(size, dim, seed=seed + s) for s in range(3))


@given(shapes, st.integers(0, 99), st.floats(-5, 5))
def test_constant_field_and_levels_are_plain_softmax(shape, seed, constant):
    query, key, value = content(*shape, seed)
    flat = torch.full((shape[0],), constant, dtype=torch.float64)
    fpa = reference.fpa_attention(query, key, value, flat, flat)
    assert torch.equal(fpa, reference.softmax_attention(query, key, value))


@given(shapes, st.integers(0, 99), st.data())
def test_non_increasing_tied_walk_is_fox(shape, seed, data):
    size = shape[0]
    # Sixteenths keep every sum exact, so that the two are equal to the last bit.
    steps = data.draw(st.lists(st.integers(0, 64), min_size=size, max_size=size))
    gate = -torch.tensor(steps).double() / 16
    walk = gate.cumsum(0)
    query, key, _ = content(*shape, seed)
    fpa = reference.fpa_logits(query, key, walk, walk)
    assert torch.equal(fpa, reference.fox_logits(query, key, gate))


@given(shapes, st.integers(0, 99), st.integers(1, 32))
def test_walk_falling_by_a_constant_is_alibi(shape, seed, slope):
    query, key, _ = content(*shape, seed)
    position = torch.arange(shape[0]).double()
    walk = -slope / 16 * position
    alibi = -slope / 16 * (position[:, None] - position).clamp_min(0)
    fpa = reference.fpa_logits(query, key, walk, walk)
    assert torch.equal(fpa, reference.softmax_logits(query, key, bias=alibi))


@given(st.integers(2, 9), st.integers(0, 99))
def test_queries_are_the_last_positions(size, seed):
    query, key, _ = content(size, 2, seed)
    gate = -randn(size, seed=seed + 5).abs()
    field, level = randn(size, seed=seed + 6), randn(size, seed=seed + 7)
    for queries in range(1, size + 1):
        last = query[size - queries :]
        for logits, extra in (
            (reference.softmax_logits, ()),
            (reference.fox_logits, (gate,)),
            (reference.fpa_logits, (field, level)),
        ):
            assert_close(logits(last, key, *extra), logits(query, key, *extra)[size - queries :])


@pytest.mark.parametrize("logits", [reference.fox_logits, reference.fpa_logits], ids=["fox", "fpa"])
def test_a_bias_adds_to_the_forgetting(logits):
    query, key, _ = content(5, 2, 0)
    extra = (-randn(5, seed=4).abs(),) if logits is reference.fox_logits else (randn(5, seed=5), randn(5, seed=6))
    bias = randn(5, 5, seed=7)
    bias[3, 1] = -inf
    both = logits(query, key, *extra, bias=bias)
    assert_close(both, logits(query, key, *extra) + bias)
    assert both[3, 1] == -inf


def test_penalty_scale_multiplies_the_penalty_and_may_be_a_tensor():
    query, key, _ = content(5, 2, 0)
    field, level = randn(5, seed=5), randn(5, seed=6)
    base = reference.softmax_logits(query, key)
    for scale in (2.5, torch.tensor(2.5).double(), torch.full((1, 1), 2.5).double()):
        expected = torch.where(base == -inf, -inf, base - 2.5 * reference.penalty(field, level))
        assert_close(reference.fpa_logits(query, key, field, level, penalty_scale=scale), expected)


# --- nothing undefined: values and gradients at the edges -----------------------------------------------------------


def attend_and_differentiate(attention, *inputs, **options):
    """Output and the gradients of every tensor given."""
    leaves = [leaf(x) for x in inputs]
    out = attention(*leaves, **options)
    out.sum().backward()
    return out.detach(), [x.grad for x in leaves]


def three_heads(size, lead=()):
    qkv = [randn(*lead, size, 2, seed=s) for s in range(3)]
    return {
        reference.softmax_attention: qkv,
        reference.fox_attention: [*qkv, -randn(*lead, size, seed=4).abs()],
        reference.fpa_attention: [*qkv, randn(*lead, size, seed=5), randn(*lead, size, seed=6)],
    }


def test_rows_that_see_no_key_return_zero_and_pass_no_gradient():
    key_mask = torch.tensor([False, False, True, False, True])
    for attention, inputs in three_heads(5).items():
        out, gradients = attend_and_differentiate(attention, *inputs, key_mask=key_mask)
        assert out[:2].tolist() == [[0, 0], [0, 0]]
        assert_finite(out, *gradients)
        query_gradient, key_gradient, value_gradient, *_ = gradients
        assert not query_gradient[:2].any()
        assert not key_gradient[~key_mask].any()
        assert not value_gradient[~key_mask].any()
        assert value_gradient[key_mask].any()


def test_all_keys_masked_is_zero_everywhere():
    key_mask = torch.zeros(4, dtype=torch.bool)
    for attention, inputs in three_heads(4).items():
        out, gradients = attend_and_differentiate(attention, *inputs, key_mask=key_mask)
        assert not out.any()
        assert not any(g.any() for g in gradients)


def test_a_key_mask_has_leading_axes():
    key_mask = torch.tensor([[True, False, True], [False, True, True]])
    query, key, value = (randn(2, 3, 2, seed=s) for s in range(3))
    out = reference.softmax_attention(query, key, value, key_mask=key_mask)
    for element in range(2):
        matrix = oracle.logits(
            3,
            lambda i, j, e=element: float(query[e, i] @ key[e, j]) / math.sqrt(2),
            key_mask=key_mask[element].tolist(),
        )
        assert_close(out[element], oracle.attention(matrix, value[element].tolist()))


def test_the_first_position_reads_itself():
    for attention, inputs in three_heads(1).items():
        out, gradients = attend_and_differentiate(attention, *inputs)
        assert_close(out, inputs[2])
        assert_finite(*gradients)
    out, gradients = attend_and_differentiate(
        reference.fpa_attention, *[randn(1, 2, seed=s) for s in range(3)], torch.tensor([inf]), torch.tensor([inf])
    )
    assert_finite(out, *gradients)


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
@pytest.mark.parametrize("level", LEVELS.values(), ids=LEVELS)
@pytest.mark.parametrize("smoothing", [0.0, 1.0])
def test_fpa_is_finite_whatever_field_and_level(field, level, smoothing):
    size = len(field)
    qkv = [randn(size, 2, seed=s) for s in range(3)]
    scale = torch.tensor(1.5, dtype=torch.float64)
    u, v = torch.tensor(field).double(), torch.full((size,), level).double()

    def attention(query, key, value, u, v, scale):
        return reference.fpa_attention(query, key, value, u, v, penalty_scale=scale, smoothing=smoothing)

    out, gradients = attend_and_differentiate(attention, *qkv, u, v, scale)
    assert_finite(out, *gradients)
    matrix = oracle.logits(
        size,
        lambda i, j: float(qkv[0][i] @ qkv[1][j]) / math.sqrt(2),
        field=field,
        level=[level] * size,
        penalty_scale=1.5,
        smoothing=smoothing,
    )
    assert_close(out, oracle.attention(matrix, qkv[2].tolist()))


def test_a_dead_key_of_infinite_level_has_weight_zero():
    value = torch.eye(3, dtype=torch.float64)
    level = torch.tensor([inf, 0.0, 0.0], dtype=torch.float64)
    query = torch.zeros(3, 1, dtype=torch.float64)
    weights = reference.fpa_attention(query, query, value, torch.zeros(3, dtype=torch.float64), level)
    assert_close(weights, [[1, 0, 0], [0, 1, 0], [0, 0.5, 0.5]])


def test_closed_gates_wall_off_the_past():
    gate = torch.tensor([-1.0, -inf, -0.5, -inf, -inf, -0.25], dtype=torch.float64)
    bias = reference.fox_bias(gate)
    visible = reference.causal_mask(6, 6)
    assert torch.equal(bias[visible], torch.tensor(oracle.forgotten(gate.tolist())).double()[visible])
    qkv = [randn(6, 2, seed=s) for s in range(3)]
    result, gradients = attend_and_differentiate(reference.fox_attention, *qkv, gate)
    assert_finite(result, *gradients)
    assert_close(result[4], qkv[2][4])
    assert_close(result[0], qkv[2][0])
    assert not gradients[3][gate == -inf].any()


def test_cross_entropy_follows_the_definition():
    logits, size = randn(3, 6, 6, seed=9), 6
    logits = torch.where(reference.causal_mask(size, size), logits, -inf)
    death = torch.tensor([[3, 0, 6, 4, 6, 0], [0, 0, 0, 0, 0, 6], [6] * 6])
    wanted = [[oracle.targets(row, i) for i in range(size)] for row in death.tolist()]
    targets = torch.zeros(3, size, size, dtype=torch.bool)
    for s, rows in enumerate(wanted):
        for i, target in enumerate(rows):
            targets[s, i, target] = True
    loss = reference.target_cross_entropy(logits, targets)
    expected = [
        [oracle.target_cross_entropy(logits[s, i].tolist(), wanted[s][i]) for i in range(size)] for s in range(3)
    ]
    assert_close(loss, expected)
    assert loss[1, :5].tolist() == [0] * 5


def test_cross_entropy_at_the_edges():
    logits = torch.tensor(
        [
            [1.0, 2.0, -inf],  # empty target
            [-inf, -inf, -inf],  # fully masked, empty target
            [-inf, -inf, -inf],  # fully masked, with a target
            [0.0, -inf, -inf],  # part of the target is masked
            [1e4, -1e4, 0.0],  # far apart
        ],
        requires_grad=True,
    )
    targets = torch.tensor([[0, 0, 0], [0, 0, 0], [1, 1, 0], [1, 1, 0], [0, 1, 0]], dtype=torch.bool)
    loss = reference.target_cross_entropy(logits, targets)
    assert loss.tolist() == [0, 0, inf, inf, 2e4]
    loss.sum().backward()
    assert_finite(logits.grad)
    assert not logits.grad[:3].any()
    assert_close(logits.grad[4], [1.0, -1.0, 0.0])


def test_masked_softmax_keeps_up_with_large_logits():
    logits = torch.tensor([[1e4, 1e4, -1e4], [-1e4, -1e4, -inf], [-inf, -inf, -inf]], requires_grad=True)
    weights = reference.masked_softmax(logits)
    assert weights.tolist() == [[0.5, 0.5, 0], [0.5, 0.5, 0], [0, 0, 0]]
    weights[:, 0].sum().backward()
    assert_close(logits.grad, [[0.25, -0.25, 0], [0.25, -0.25, 0], [0, 0, 0]])


# --- gradients by differences, away from ties -----------------------------------------------------------------------


@pytest.mark.parametrize("queries", [5, 2])
@pytest.mark.parametrize("smoothing", [0.0, 0.7])
def test_gradients_of_fpa_by_differences(queries, smoothing):
    query, key, value = (randn(2, 5, 2, seed=s) for s in range(3))
    field, level, scale = randn(2, 5, seed=5), randn(2, 5, seed=6), torch.tensor(1.3, dtype=torch.float64)

    def attention(query, key, value, field, level, scale):
        return reference.fpa_attention(query, key, value, field, level, penalty_scale=scale, smoothing=smoothing)

    inputs = [leaf(x) for x in (query[:, 5 - queries :], key, value, field, level, scale)]
    assert torch.autograd.gradcheck(attention, inputs)


@pytest.mark.parametrize("queries", [5, 2])
def test_gradients_of_softmax_and_fox_by_differences(queries):
    key_mask = torch.tensor([True, False, True, True, True])
    query, key, value = (randn(2, 5, 2, seed=s) for s in range(3))
    gate, bias = -randn(2, 5, seed=4).abs(), randn(queries, 5, seed=8)

    def fox(*inputs):
        return reference.fox_attention(*inputs[:4], bias=inputs[4], key_mask=key_mask)

    def softmax(*inputs):
        return reference.softmax_attention(*inputs[:3], bias=inputs[3], key_mask=key_mask)

    qkv = [query[:, 5 - queries :], key, value]
    assert torch.autograd.gradcheck(fox, [leaf(x) for x in (*qkv, gate, bias)])
    assert torch.autograd.gradcheck(softmax, [leaf(x) for x in (*qkv, bias)])


def test_gradients_of_cross_entropy_by_differences():
    targets = reference.causal_mask(4, 4) & (randn(4, 4, seed=3) > 0)
    targets[2] = False

    def loss(logits):
        masked = torch.where(reference.causal_mask(4, 4), logits, -inf)
        return reference.target_cross_entropy(masked, targets)

    assert torch.autograd.gradcheck(loss, [leaf(randn(4, 4, seed=1))])
