"""Attention in tiles equals the definition in values and all gradients, on everything drawn and every known edge."""

import logging
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lab
from lab.errors import InputError
from lab.ops import attention, kinds, reference
from lab.ops.attention_kernels import BLOCK, TILE

inf, nan = math.inf, math.nan
PAIRS = {
    "softmax": (attention.softmax_attention, reference.softmax_attention),
    "fox": (attention.fox_attention, reference.fox_attention),
    "fpa": (attention.fpa_attention, reference.fpa_attention),
}
KINDS = {"softmax": kinds.SOFTMAX, "fox": kinds.FOX, "fpa": kinds.FPA}
FORGETTING = {"softmax": (), "fox": ("log_gate",), "fpa": ("field", "level")}
# Of the largest number in what is compared, or of 1 where that is smaller: a gradient is a difference of sums of
# numbers of that size.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}
EDGES = (1, 2, 7, BLOCK - 1, BLOCK + 1, TILE - 1, TILE, TILE + 1, 2 * TILE - 1, 2 * TILE, 2 * TILE + 1)

# How fields, levels and gates are made from standard normal numbers.
STYLES = {
    "plain": lambda x: x,
    "walk": lambda x: x.cumsum(-1),
    "whole numbers": lambda x: (2 * x).round(),  # ties everywhere
    "flat": torch.zeros_like,
    "rising": lambda x: x.abs().cumsum(-1),
    "falling": lambda x: -x.abs().cumsum(-1),  # every row moves every minimum
    "jumps": lambda x: torch.where(x > 0.5, 1e4, torch.where(x < -0.5, -1e4, x)),
    "tiny": lambda x: 1e-9 * x,
    "infinite": lambda x: torch.where(x > 1.5, inf, torch.where(x < -1.5, -inf, x)),
}


def make_inputs(kind, queries, keys, *, lead=(), dim=3, value_dim=3, style="plain", dtype=torch.float32, seed=0):
    """Arguments by name: query, key, value and what the kind forgets by."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*lead, *shape, generator=generator, dtype=torch.float64)

    inputs = {"query": normal(queries, dim), "key": normal(keys, dim), "value": normal(keys, value_dim)}
    for name in FORGETTING[kind]:
        x = STYLES[style](normal(keys))
        # Gates close or forget; jumps open as well, as nothing forbids.
        inputs[name] = -x.abs() if name == "log_gate" and style != "jumps" else x
    return {name: x.to(dtype) for name, x in inputs.items()}


def differentiate(function, inputs, **options):
    """The output and, by name, the gradients of a fixed sum of it."""
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    out = function(**leaves, **options)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    (out.double() * weight).sum().backward()
    return {"out": out.detach(), **{name: x.grad for name, x in leaves.items()}}


def assert_near(actual, expected, tolerance, names=None):
    for name in names or expected:
        assert actual[name].shape == expected[name].shape, name
        assert actual[name].isfinite().all(), name
        if expected[name].numel():
            error = (actual[name].double() - expected[name]).abs().max()
            assert error <= tolerance * max(1.0, expected[name].abs().max()), (name, error)


def assert_equals_reference(kind, inputs, **options):
    fast, definition = PAIRS[kind]
    wide = {name: x.double() for name, x in inputs.items()}
    actual = differentiate(fast, inputs, **options)
    assert all(actual[name].dtype == inputs[name].dtype for name in inputs)
    assert actual["out"].dtype == inputs["value"].dtype
    # FoX's logits are differences of sums in float64, and off by the rounding of those.
    sums = wide["log_gate"].nan_to_num(0.0, 0.0, 0.0).cumsum(-1) if kind == "fox" else torch.zeros(1)
    rounding = 4 * torch.finfo(torch.float64).eps * float(sums.abs().max())
    tolerance = TOLERANCE[inputs["query"].dtype] + rounding
    assert_near(actual, differentiate(definition, wide, **options), tolerance)
    return actual


def assert_same_bits(actual, expected):
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


# --- equal to the definition ----------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    kind=st.sampled_from(sorted(PAIRS)),
    keys=st.sampled_from(EDGES) | st.integers(1, 150),
    fewer=st.sampled_from([0, 0, 1, 9, 64, 200]),
    lead=st.sampled_from([(), (1,), (2,), (2, 2)]),
    dim=st.sampled_from([1, 3, 16, 17]),
    value_dim=st.sampled_from([1, 5, 16, 33]),
    style=st.sampled_from(sorted(STYLES)),
    masked=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    smoothing=st.sampled_from([0.0, 0.0, 0.5]),
    dtype=st.sampled_from([torch.float32, torch.float32, torch.float64]),
    seed=st.integers(0, 10_000),
)
@example("fox", 63, 1, (), 1, 16, "jumps", 0.3, 0.0, torch.float64, 251)
def test_equals_the_reference(kind, keys, fewer, lead, dim, value_dim, style, masked, smoothing, dtype, seed):
    queries = max(1, keys - fewer)
    inputs = make_inputs(
        kind, queries, keys, lead=lead, dim=dim, value_dim=value_dim, style=style, dtype=dtype, seed=seed
    )
    options = {}
    if masked:
        options["key_mask"] = torch.rand(*lead, keys, generator=torch.Generator().manual_seed(seed)) >= masked
    if kind == "fpa":
        inputs["penalty_scale"] = 0.5 + torch.rand(*lead, 1, 1, generator=torch.Generator().manual_seed(seed)).to(dtype)
        options["smoothing"] = smoothing
    assert_equals_reference(kind, inputs, **options)


@settings(max_examples=60)
@given(
    field=st.lists(st.integers(-2, 2), min_size=1, max_size=14),
    level=st.lists(st.integers(-2, 2), min_size=14, max_size=14),
    queries=st.integers(1, 14),
    smoothing=st.sampled_from([0.0, 0.5]),
)
@example(field=[2, -1, 0, -1], level=[0] * 14, queries=4, smoothing=0.0)
def test_ties_go_to_the_earliest(field, level, queries, smoothing):
    keys = len(field)
    inputs = make_inputs("fpa", min(queries, keys), keys, dtype=torch.float64)
    inputs |= {"field": torch.tensor(field).double(), "level": torch.tensor(level[:keys]).double()}
    assert_equals_reference("fpa", inputs, smoothing=smoothing)


def test_ties_across_tiles():
    """The same two dips, in one tile and tiles apart: the earlier one bears the gradient of all keys before it."""
    keys = 3 * TILE
    for first, second in ((5, 9), (5, TILE + 3), (TILE, 2 * TILE), (TILE - 1, 3 * TILE - 1)):
        inputs = make_inputs("fpa", keys, keys, dtype=torch.float64)
        inputs["field"] = torch.ones(keys, dtype=torch.float64)
        inputs["field"][[first, second]] = -1.0
        inputs["level"] = torch.zeros(keys, dtype=torch.float64)
        for queries in (keys, 7):
            inputs["query"] = inputs["query"][-queries:]
            gradient = assert_equals_reference("fpa", inputs)["field"]
            assert gradient[first] != 0
            assert (gradient[second] != 0) == (second > first + 1)


@pytest.mark.parametrize("kind", PAIRS)
def test_many_tiles_in_float32(kind):
    """Long sums: six hundred rows go through every tile before, and the rows come in parts."""
    inputs = make_inputs(kind, 1100, 1300, dim=16, value_dim=16, style="walk" if kind == "fpa" else "plain")
    if kind == "fox":
        inputs["log_gate"] *= 0.01
    assert_equals_reference(kind, inputs)


def test_a_negative_penalty_scale_remembers_what_is_dead():
    inputs = make_inputs("fpa", 100, 100, style="walk") | {"penalty_scale": torch.tensor(-0.5)}
    assert_equals_reference("fpa", inputs)


def test_walls_of_closed_gates():
    inputs = make_inputs("fox", 150, 150)
    inputs["log_gate"] *= 0.01  # what is behind a wall would weigh as much as what is before it
    inputs["log_gate"][[0, 1, 40, TILE, 100, 149]] = -inf
    assert_equals_reference("fox", inputs)
    inputs["query"] = inputs["query"][-20:]
    assert_equals_reference("fox", inputs)
    inputs["log_gate"][:] = -inf
    assert torch.equal(attention.fox_attention(**inputs), inputs["value"][-20:])


@pytest.mark.parametrize("kind", PAIRS)
def test_rows_that_see_no_key_are_zero_and_pass_no_gradient(kind):
    inputs = make_inputs(kind, 100, 100, lead=(2,))
    key_mask = torch.ones(2, 100, dtype=torch.bool)
    key_mask[0, :70] = False
    key_mask[1] = False
    result = assert_equals_reference(kind, inputs, key_mask=key_mask)
    assert not result["out"][0, :70].any()
    assert not result["query"][0, :70].any()
    assert not result["key"][~key_mask].any()
    assert not result["value"][~key_mask].any()
    assert result["value"][key_mask].any()
    assert not any(x[1].any() for x in result.values())


def test_masked_keys_are_never_read():
    """What stands under the mask, nan included, changes no bit."""
    key_mask = torch.rand(100, generator=torch.Generator().manual_seed(3)) > 0.4
    for kind, (fast, _) in PAIRS.items():
        inputs = make_inputs(kind, 100, 100)
        expected = fast(**inputs, key_mask=key_mask)
        inputs["key"][~key_mask] = nan
        inputs["value"][~key_mask] = inf
        assert torch.equal(fast(**inputs, key_mask=key_mask), expected)


def test_a_constant_field_is_softmax_and_a_falling_walk_is_fox():
    inputs = make_inputs("fox", 150, 150, dtype=torch.float64)
    fox = differentiate(attention.fox_attention, inputs)
    walk = inputs.pop("log_gate").cumsum(-1)
    fpa = differentiate(attention.fpa_attention, inputs | {"field": walk, "level": walk})
    assert_near(fpa, fox, 1e-12, ("out", "query", "key", "value"))
    flat = torch.full((150,), 3.0)
    softmax = differentiate(attention.softmax_attention, inputs)
    fpa = differentiate(attention.fpa_attention, inputs | {"field": flat, "level": flat})
    assert_same_bits(fpa, softmax)


def test_sums_of_gates_keep_what_far_jumps_hide():
    """c runs through 10^7, where float32 tells no two keys of the far past apart."""
    inputs = make_inputs("fox", 300, 300)
    inputs["log_gate"] = torch.where(torch.arange(300) % 30 == 7, -1e6, inputs["log_gate"])
    assert_equals_reference("fox", inputs)
    inputs["log_gate"][200] = 1e7  # opens again: only the past counts
    assert_equals_reference("fox", inputs)


@pytest.mark.parametrize("kind", PAIRS)
def test_leading_axes_broadcast(kind):
    inputs = make_inputs(kind, 70, 70, lead=(2, 3))
    inputs["key"] = inputs["key"][:1]
    inputs["value"] = inputs["value"][0, 0]
    for name in FORGETTING[kind]:
        inputs[name] = inputs[name][0]
    if kind == "fpa":
        inputs["penalty_scale"] = torch.tensor([0.5, 1.0, 2.0])[:, None, None]
        inputs["level"] = inputs["level"][0]
    assert_equals_reference(kind, inputs, key_mask=torch.rand(2, 1, 70) > 0.2)


@pytest.mark.parametrize("kind", PAIRS)
def test_memory_in_any_order(kind):
    """Heads after positions, and gradients that are expanded, as models hand them over."""
    fast, _ = PAIRS[kind]
    inputs = make_inputs(kind, 50, 50, lead=(2, 3))
    apart = {name: x.transpose(0, -1).contiguous().transpose(0, -1) for name, x in inputs.items()}
    assert not any(x.is_contiguous() for x in apart.values())
    assert_same_bits(differentiate(fast, apart), differentiate(fast, inputs))
    query = inputs["query"].requires_grad_()
    fast(**inputs).sum().backward()
    gradient, query.grad = query.grad, None
    fast(**inputs).backward(torch.ones(2, 3, 50, 3))
    assert torch.equal(gradient, query.grad)


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("empty", ["heads", "queries", "positions", "head_dim", "value_dim"])
def test_nothing_of_something(kind, empty):
    size = {"lead": (2,), "queries": 5, "keys": 5, "dim": 3, "value_dim": 4}
    change = {
        "heads": {"lead": (0,)},
        "queries": {"queries": 0},
        "positions": {"queries": 0, "keys": 0},
        "head_dim": {"dim": 0},
        "value_dim": {"value_dim": 0},
    }
    size |= change[empty]
    result = differentiate(PAIRS[kind][0], make_inputs(kind, size.pop("queries"), size.pop("keys"), **size))
    assert result["out"].shape[:1] == size["lead"]
    assert not result["out"].numel() or empty == "head_dim"
    if empty == "head_dim":
        assert_equals_reference(kind, make_inputs(kind, 5, 5, dim=0))


def test_scale_is_the_callers():
    for kind, (fast, definition) in PAIRS.items():
        inputs = make_inputs(kind, 40, 40)
        torch.testing.assert_close(fast(**inputs, scale=0.1), definition(**inputs, scale=0.1), rtol=1e-5, atol=1e-6)
        assert not torch.allclose(fast(**inputs, scale=0.1), fast(**inputs))


# --- nan stays nan --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("at", [3, TILE + 3])
@pytest.mark.parametrize("bad", [nan, inf])
def test_what_is_not_a_number_is_not_lost(kind, at, bad):
    """Every row that reads it is nan, and so is what flows back to the query. (A value that no weight falls on yet is
    multiplied by 0, as in the reference.)"""
    rows = {"query": slice(at, at + 1), "level": slice(at + 1, None)}
    for name in make_inputs(kind, 150, 150):
        if bad == inf and name in ("field", "level"):
            continue  # a meaning of its own
        inputs = make_inputs(kind, 150, 150)
        inputs[name][at] = bad
        result = differentiate(PAIRS[kind][0], inputs)
        spoiled = rows.get(name, slice(at, None))
        if bad == inf and name in ("query", "key"):
            # The product may be -inf, which is a weight of 0: then nothing is undefined.
            inputs["query"], inputs["key"] = inputs["query"].abs(), inputs["key"].abs()
            result = differentiate(PAIRS[kind][0], inputs)
        if bad == inf and name == "value":
            assert (result["out"][spoiled] == inf).all()
        else:
            assert result["out"][spoiled].isnan().all(), name
        assert result["query"][spoiled].isnan().all(), name
        if name != "value":
            # What comes later is not read.
            assert result["out"][:at].isfinite().all(), name


def test_a_gate_that_is_no_number_spoils_what_is_behind_it():
    """Even where every key from the gate on is masked, and the queries begin after it."""
    inputs = make_inputs("fox", 20, 100)
    key_mask = torch.arange(100) < 50
    for bad in (nan, inf):
        inputs["log_gate"][50] = bad
        assert attention.fox_attention(**inputs, key_mask=key_mask).isnan().all()


def test_a_penalty_scale_that_is_no_number():
    inputs = make_inputs("fpa", 20, 20)
    assert attention.fpa_attention(**inputs, penalty_scale=nan).isnan().all()


# --- tiles left out -------------------------------------------------------------------------------------------------


def forgetful(kind, keys=400):
    """A problem of |s q.k| <= 1 whose far keys are forgotten, values the unit vectors: the output is the weights."""
    inputs = make_inputs(kind, keys, keys, dim=4)
    for name in ("query", "key"):
        inputs[name] = torch.nn.functional.normalize(inputs[name], dim=-1)
    inputs["value"] = torch.eye(keys)
    if kind == "fox":
        inputs["log_gate"] = inputs["log_gate"] * 0.2
    else:
        walk = -0.1 * torch.arange(keys) + inputs["field"]
        inputs |= {"field": walk, "level": walk + 1}
    return inputs


@pytest.mark.parametrize("kind", ["fox", "fpa"])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
def test_what_is_left_out_weighs_at_most_the_tolerance(kind, tolerance):
    fast, definition = PAIRS[kind]
    inputs = forgetful(kind)
    weights = definition(**{name: x.double() for name, x in inputs.items()}, scale=1.0)
    whole = fast(**inputs, scale=1.0)
    pruned = fast(**inputs, scale=1.0, logit_bound=1.0, tolerance=tolerance)
    left_out = (pruned == 0) & (whole > 0)
    assert left_out.sum() > 10_000
    assert (weights * left_out).sum(-1).max() <= tolerance
    assert not (pruned[~left_out] == 0).logical_and(whole[~left_out] > 0).any()
    torch.testing.assert_close(pruned.sum(-1), torch.ones(400))
    # Neither sooner nor much later than the bound says.
    threshold = 2 + math.log(400 / tolerance)
    forgotten = (
        -reference.fox_bias(inputs["log_gate"].double())
        if kind == "fox"
        else reference.penalty(inputs["field"].double(), inputs["level"].double())
    )
    assert forgotten[left_out].min() >= threshold
    for first in range(0, 400, TILE):
        least = forgotten[first + TILE :, first : first + TILE].amin(-1)
        rows = (least >= threshold).nonzero().flatten() + first + TILE
        if len(rows):
            assert not pruned[rows[0] + BLOCK :, first : first + TILE].any()
    # For good: what one row leaves out, no later row reads.
    assert not (left_out[:-1] & ~left_out[1:]).any()


@pytest.mark.parametrize("kind", ["fox", "fpa"])
def test_gradients_without_what_is_left_out(kind):
    fast, _ = PAIRS[kind]
    inputs = forgetful(kind)
    inputs["value"] = inputs["value"][:, :8]
    whole = differentiate(fast, inputs, scale=1.0)
    pruned = differentiate(fast, inputs, scale=1.0, logit_bound=1.0, tolerance=1e-6)
    assert_near(pruned, whole, 1e-5)
    rough = differentiate(fast, inputs, scale=1.0, logit_bound=1.0, tolerance=0.5)
    assert not torch.equal(rough["query"], whole["query"])
    assert_near(rough, whole, 0.5)


def test_nothing_is_left_out_where_that_is_not_safe():
    fast = attention.fpa_attention
    bound = {"scale": 1.0, "logit_bound": 1.0, "tolerance": 1e-2}
    inputs = forgetful("fpa")
    assert torch.equal(fast(**inputs, **bound | {"logit_bound": 1e3}), fast(**inputs, scale=1.0))
    # Penalties that grow into rewards.
    negative = {**inputs, "penalty_scale": -0.1}
    assert torch.equal(fast(**negative, **bound), fast(**negative, scale=1.0))
    # The last query does not see its own key: what it sees may all be forgotten alike.
    key_mask = torch.ones(400, dtype=torch.bool)
    key_mask[150:] = False
    assert torch.equal(fast(**inputs, key_mask=key_mask, **bound), fast(**inputs, key_mask=key_mask, scale=1.0))
    key_mask = torch.arange(400) != 150
    masked = fast(**inputs, key_mask=key_mask, **bound)
    assert torch.equal(masked[:150], fast(**inputs, key_mask=key_mask, scale=1.0)[:150])
    assert (masked[300:, :TILE] == 0).all()
    # A gate that opens.
    inputs = forgetful("fox")
    inputs["log_gate"][399] = 0.1
    assert torch.equal(attention.fox_attention(**inputs, **bound), attention.fox_attention(**inputs, scale=1.0))


@pytest.mark.parametrize(("option", "bad"), [("logit_bound", -1.0), ("logit_bound", nan), ("tolerance", 0.0)])
def test_bounds_out_of_range(option, bad):
    with pytest.raises(InputError, match=option):
        attention.fpa_attention(**make_inputs("fpa", 4, 4), **{"logit_bound": 1.0} | {option: bad})


# --- who computes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize(("lead", "keys"), [((5,), 100), ((), 1300)], ids=["heads", "parts of rows"])
def test_the_number_of_threads_changes_no_bit(kind, lead, keys):
    inputs = make_inputs(kind, keys, keys, lead=lead)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(differentiate(PAIRS[kind][0], inputs))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert_same_bits(other, results[0])


def test_a_head_is_the_same_beside_any_others():
    inputs = make_inputs("fpa", 100, 100, lead=(5,))
    together = differentiate(attention.fpa_attention, inputs)
    alone = attention.fpa_attention(**{name: x[3] for name, x in inputs.items()})
    assert torch.equal(together["out"][3], alone)


def test_the_public_names_are_the_fast_ones():
    assert lab.fpa_attention is attention.fpa_attention
    assert lab.fox_attention is attention.fox_attention
    assert lab.softmax_attention is attention.softmax_attention


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("softmax", {"bias": torch.randn(5, 5)}, "a bias"),
        ("fox", {"bias": torch.randn(5, 5)}, "a bias"),
        ("fpa", {"bias": torch.randn(5, 5)}, "a bias"),
        ("fpa", {"penalty_scale": torch.rand(5, 5)}, "a penalty_scale by query or key"),
        ("fpa", {name: torch.randn(5, 3).half() for name in ("query", "key", "value")}, "torch.float16"),
        ("softmax", {"value": torch.randn(5, 3).double()}, "query, key and value of several dtypes"),
        ("fox", {"log_gate": torch.zeros(5, device="meta")}, "tensors on meta"),
    ],
)
def test_the_reference_does_what_the_tiles_do_not(kind, change, reason, caplog):
    attention._say_once.cache_clear()
    fast, definition = PAIRS[kind]
    inputs = make_inputs(kind, 5, 5) | change
    if reason == "tensors on meta":
        inputs = {name: x.to("meta") for name, x in inputs.items()}
    with caplog.at_level(logging.WARNING, "lab.ops"):
        out, again = fast(**inputs), fast(**inputs)
    assert out.device == again.device
    if out.device.type == "cpu":
        assert torch.equal(out, definition(**inputs))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"{fast.__name__}: no compiled path for {reason}; using the reference operations"


def test_the_compiled_path_says_nothing(caplog):
    attention._say_once.cache_clear()
    for kind, (fast, _) in PAIRS.items():
        fast(**make_inputs(kind, 5, 5))
    assert not caplog.records


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": torch.zeros(6, 3)}, "query: expected at most as many positions as the key (5)"),
        ({"query": torch.zeros(5, 4)}, "key: expected the query's last axis (4)"),
        ({"value": torch.zeros(4, 3)}, "value: expected 5 positions"),
        ({"value": torch.zeros(5)}, "value: expected positions and dimensions"),
        ({"field": torch.zeros(4)}, "field: expected 5 positions"),
        ({"level": torch.tensor(1.0)}, "level: expected 5 positions"),
        ({"key_mask": torch.ones(1, dtype=torch.bool)}, "key_mask: expected 5 positions"),
        ({"key_mask": torch.ones(5)}, "key_mask: expected booleans"),
        ({"smoothing": -1.0}, "smoothing: expected a finite number from 0 up"),
        ({"key": torch.zeros(2, 5, 3), "level": torch.zeros(3, 5)}, "leading axes: expected shapes that broadcast"),
        ({"field": torch.zeros(2, 5), "penalty_scale": torch.ones(3, 1, 1)}, "leading axes"),
    ],
)
def test_shapes_that_do_not_fit_are_named(change, message):
    with pytest.raises(InputError) as error:
        attention.fpa_attention(**make_inputs("fpa", 5, 5) | change)
    assert str(error.value).startswith(f"fpa_attention: {message}")


@pytest.mark.parametrize("kind", PAIRS)
def test_the_operator_keeps_torchs_rules(kind):
    def made(*shape):
        return torch.randn(2, *shape, dtype=torch.float64, requires_grad=True)

    def by_key(wanted):
        return made(9) if kind in wanted else torch.empty(2, 0, dtype=torch.float64)

    lambdas = torch.ones(2, dtype=torch.float64)
    hidden = torch.zeros(2, 9, dtype=torch.bool)
    arguments = (made(7, 3), made(9, 3), made(9, 5), hidden, by_key(("fox", "fpa")), by_key(("fpa",)), lambdas)
    torch.library.opcheck(torch.ops.lab.attention.default, (KINDS[kind], *arguments, 0.5, 0.0, inf))


def test_the_derivative_of_a_derivative_is_refused():
    inputs = {name: x.requires_grad_() for name, x in make_inputs("fpa", 5, 5).items()}
    (gradient,) = torch.autograd.grad(
        attention.fpa_attention(**inputs).square().sum(), inputs["query"], create_graph=True
    )
    with pytest.raises(RuntimeError):
        gradient.sum().backward()


# --- memory ---------------------------------------------------------------------------------------------------------

_MEASURE = """
import resource, sys
import torch
from lab.ops.attention import fpa_attention

def peak():
    # The peak of this process alone: what getrusage tells includes the parent's, before this program started.
    try:
        lines = open("/proc/self/status").read().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10

def inputs(size, grad=False):
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(size, 32, generator=generator) for _ in range(3)]
    made += [torch.randn(size, generator=generator).cumsum(0) for _ in range(2)]
    return [x.requires_grad_(grad) for x in made]

torch.set_num_threads(2)
fpa_attention(*inputs(64, True)).sum().backward()
sizes = {size: inputs(size) for size in (8192, 32768)}
# Memory that earlier work has given back would hide what comes: filled until the peak moves.
ballast, before = [], peak()
while peak() < before + 4:
    ballast.append(torch.ones(2**18))
for size, made in sizes.items():
    before = peak()
    out = fpa_attention(*made)
    print(peak() - before)
before = peak()
matrix = torch.ones(2**25)
print(peak() - before)
"""


def test_forward_memory_is_linear_in_the_length():
    """Peak growth in MiB at T = 8192 and 32768, one head, with the output; and of a known 128 MiB, as a control."""
    run = subprocess.run([sys.executable, "-c", _MEASURE], capture_output=True, text=True, check=True, timeout=300)
    short, long, known = (float(line) for line in run.stdout.split())
    assert 110 < known < 150
    assert short + long < 64
