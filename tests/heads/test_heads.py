"""Every head, in every form and dimension: one logit matrix by two roads, its parts by the definition, its state."""

import math

import pytest
import torch
from safetensors.torch import load, save

from lab.errors import InputError
from lab.heads import LABELS, head_config, make_head
from lab.heads.positional import Alibi, RelativeBias, rotate
from lab.ops import reference
from tests.ops import oracle

VOCAB, SEEDS, MAX_LEN = 4, (0, 3, 11), 8
DIMS = (0, 1, 2, 3, 8)


def built(label, dim, seeds=SEEDS, **scales):
    options = {"penalty_scale": 2.0} if label.startswith("fpa") else {}
    return make_head(head_config(label, dim, **options), VOCAB, seeds, max_len=MAX_LEN, **scales)


def tokens(seeds=3, batch=2, length=17):
    """More tokens than MAX_LEN, so that a learned relative bias has to clamp."""
    return torch.randint(0, VOCAB, (seeds, batch, length), generator=torch.Generator().manual_seed(1))


def assert_same_logits(actual, expected, tolerance=1e-5):
    assert torch.equal(actual.isfinite(), expected.isfinite())
    torch.testing.assert_close(actual.double(), expected.double(), rtol=tolerance, atol=tolerance)


# --- logits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("label", LABELS)
def test_factored_logits_are_the_heads_logits(label, dim):
    head, batch = built(label, dim, initial_scale=0.5), tokens()
    for smoothing in (0.0, 0.5):
        factored = head.token_logits(batch).dense(batch, smoothing)
        assert_same_logits(factored, head.logits(batch, smoothing=smoothing))
    if not label.startswith("fpa"):
        assert torch.equal(head.logits(batch), head.logits(batch, smoothing=0.5))


@pytest.mark.parametrize("label", LABELS)
def test_fewer_queries_are_the_last_rows(label):
    head, batch = built(label, 2, initial_scale=0.5), tokens()
    every = head.logits(batch)
    values = torch.randn(*batch.shape, 2, generator=torch.Generator().manual_seed(2))
    for queries in (17, 5, 1):
        assert_same_logits(head.logits(batch, num_queries=queries), every[..., 17 - queries :, :])
        attended = head.attend(batch, values, num_queries=queries)
        assert_same_logits(attended, head.attend(batch, values)[..., 17 - queries :, :])


def parts(head, batch, seed):
    """What the oracle needs of one seed of a head: each part by its definition, straight from the parameters."""
    named = {name: p.detach()[seed].double().tolist() for name, p in head.named_parameters()}
    given = {}
    if "gate" in named:
        given = {"log_gate": [-math.log1p(math.exp(-named["gate"][t])) for t in batch]}
    if "increment" in named:
        field = [math.fsum(named["increment"][t] for t in batch[: i + 1]) for i in range(len(batch))]
    elif "field_value" in named:
        field = [named["field_value"][t] for t in batch]
    else:
        return given
    level = field
    if "offset" in named:
        level = [u + named["offset"][t] for u, t in zip(field, batch, strict=True)]
    if "level_value" in named:
        level = [named["level_value"][t] for t in batch]
    return {**given, "field": field, "level": level}


# Heads whose definition tests/heads/test_rivals.py restates.
RIVALS = [label for label in LABELS if label.startswith(("selective", "stick", "softmax2", "fox2"))]


@pytest.mark.parametrize("dim", [0, 3])
@pytest.mark.parametrize("label", [label for label in LABELS if label not in ("softmax-rope", "fox-gate4", *RIVALS)])
def test_attend_follows_the_definition(label, dim):
    head, batch = built(label, dim, initial_scale=0.5), tokens(batch=1)
    values = torch.randn(3, 1, 17, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    attended = head.attend(batch, values)
    for s in range(3):
        token = batch[s, 0].tolist()
        query, key = head.query[s].detach().double(), head.key[s].detach().double()
        bias = [0.0] * 17
        if label.endswith("alibi"):
            bias = [-d / 16 for d in range(17)]
        if label in ("softmax-relative", "fox-relative"):
            bias = [head.positional.by_distance[s, min(d, MAX_LEN - 1)].item() for d in range(17)]

        def content(i, j, token=token, query=query, key=key, bias=bias):
            return float(query[token[i]] @ key[token[j]]) / math.sqrt(max(1, dim)) + bias[i - j]

        matrix = oracle.logits(17, content, **parts(head, token, s), penalty_scale=2.0)
        expected = torch.tensor(oracle.attention(matrix, values[s, 0].tolist()))
        torch.testing.assert_close(attended[s, 0].double(), expected.double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("label", LABELS)
def test_half_precision_heads_differ_by_the_rounding_of_their_parameters_only(label, half):
    """The same rounded numbers in a float32 head give the same logits: nothing else may happen in half precision."""
    head, batch = built(label, 4, seeds=(3,), initial_scale=0.5).to(half), tokens(1, 1, length=265)
    logits, table = head.logits(batch), head.token_logits(batch).dense(batch)
    wide = head.to(torch.float32)
    assert_same_logits(logits, wide.logits(batch), 1e-4)
    assert_same_logits(table, wide.token_logits(batch).dense(batch), 1e-4)


# --- positions ------------------------------------------------------------------------------------------------------


def test_alibi_starts_at_a_sixteenth_and_falls_linearly():
    bias = Alibi(2).bias(5)
    torch.testing.assert_close(bias, -torch.arange(5.0).expand(2, 5) / 16)


def test_relative_bias_repeats_its_farthest_beyond_its_reach():
    initial = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    bias = RelativeBias(initial)
    assert bias.bias(2).tolist() == [[1, 2], [4, 5]]
    assert bias.bias(5).tolist() == [[1, 2, 3, 3, 3], [4, 5, 6, 6, 6]]
    bias.bias(5)[0].sum().backward()
    assert bias.by_distance.grad.tolist() == [[1, 1, 3], [0, 0, 0]]


@pytest.mark.parametrize("dim", [1, 2, 3, 6, 7])
def test_rope_depends_on_distance_alone_and_keeps_lengths(dim):
    generator = torch.Generator().manual_seed(dim)
    query, key = (torch.randn(dim, generator=generator).expand(5000, dim) for _ in range(2))
    position = torch.arange(5000, dtype=torch.float64)
    turned_query, turned_key = rotate(query, position), rotate(key, position)
    for distance in (0, 1, 7, 100):
        along = (turned_query[distance:] * turned_key[: 5000 - distance]).sum(-1)
        torch.testing.assert_close(along, along[:1].expand_as(along), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(turned_query.norm(dim=-1), query.norm(dim=-1), rtol=1e-5, atol=1e-5)
    assert torch.equal(turned_query[0], query[0])
    if dim % 2:
        assert torch.equal(turned_query[:, -1], query[:, -1])  # an odd last dimension stays


def test_rope_turns_pairs_at_literal_angles():
    turned = rotate(torch.tensor([[1.0, 0.0, 1.0, 0.0]]), torch.tensor([3.0], dtype=torch.float64))
    expected = [math.cos(3), math.sin(3), math.cos(0.03), math.sin(0.03)]  # frequencies 1 and 10000^(-2/4)
    torch.testing.assert_close(turned, torch.tensor([expected]))


def test_rope_keeps_its_digits_far_out():
    """In float32 an angle of thousands is off by 1e-4; half vectors are turned in float32."""
    position = torch.arange(50_000, 50_200, dtype=torch.float64)
    unit = torch.tensor([1.0, 0.0] * 4)  # frequencies 1, 1/10, 1/100, 1/1000
    expected = torch.tensor([[f(p / 10**n) for n in range(4) for f in (math.cos, math.sin)] for p in position.tolist()])
    for vectors in (unit, unit.bfloat16()):
        turned = rotate(vectors.expand(200, 8), position)
        torch.testing.assert_close(turned, expected, rtol=0, atol=1e-6)


def test_rope_sees_order_and_the_others_do_not():
    """Swapping two earlier tokens changes what RoPE reads, and nothing for a head without positions."""
    batch = torch.tensor([[[0, 1, 2]], [[1, 0, 2]]])
    values = torch.nn.functional.one_hot(batch, VOCAB).double()
    for label, sees in (("softmax-rope", True), ("softmax-relative", True), ("softmax-none", False)):
        head = built(label, 4, seeds=(0, 0), initial_scale=0.5)
        first, second = head.attend(batch, values)[:, 0, 2]
        assert torch.allclose(first, second) != sees


# --- parameters and state -------------------------------------------------------------------------------------------

# Numbers per seed for a vocabulary of 4, dimension 3, max_len 8.
COUNTS = {
    "softmax-none": {"query": 12, "key": 12},
    "softmax-alibi": {"query": 12, "key": 12, "positional.log_slope": 1},
    "softmax-relative": {"query": 12, "key": 12, "positional.by_distance": 8},
    "softmax-rope": {"query": 12, "key": 12},
    "fox-gate0": {"query": 12, "key": 12, "gate": 4},
    "fox-gate4": {"query": 12, "key": 12, "gate": 4},
    "fpa-walk-tied": {"query": 12, "key": 12, "increment": 4},
    "fpa-walk-offset": {"query": 12, "key": 12, "increment": 4, "offset": 4},
    "fpa-walk-free": {"query": 12, "key": 12, "increment": 4, "level_value": 4},
    "fpa-direct-tied": {"query": 12, "key": 12, "field_value": 4},
    "fpa-direct-offset": {"query": 12, "key": 12, "field_value": 4, "offset": 4},
    "fpa-direct-free": {"query": 12, "key": 12, "field_value": 4, "level_value": 4},
    "fpa-walk-tied-alibi": {"query": 12, "key": 12, "increment": 4, "positional.log_slope": 1},
    "fpa-walk-tied-gate": {"query": 12, "key": 12, "increment": 4, "gate": 4},
    "fpa-walk-offset-alibi": {"query": 12, "key": 12, "increment": 4, "offset": 4, "positional.log_slope": 1},
    "fpa-walk-offset-gate": {"query": 12, "key": 12, "increment": 4, "offset": 4, "gate": 4},
    "fox-relative": {"query": 12, "key": 12, "gate": 4, "positional.by_distance": 8},
    "selective-none": dict.fromkeys(("query", "key", "select_query", "select_key"), 12),
    "stick-breaking": {"query": 12, "key": 12},
    "stick-breaking-strict": {"query": 12, "key": 12},
}
for _timing in ("", "same-"):
    COUNTS[f"selective-{_timing}rope"] = COUNTS["selective-none"]
    COUNTS[f"selective-{_timing}relative"] = COUNTS["selective-none"] | {
        "positional.by_distance": 8,
        "select_positional.by_distance": 8,
    }
# Two layers of dimension 3 on a stream of width 12, with 48 hidden units.
_TWO = dict.fromkeys(("query", "key", "first_query", "first_key"), 12) | {
    "first_value": 48, "to_query": 36, "to_key": 36,
}  # fmt: skip
_MLP = {"hidden_bias": 192, "to_hidden": 576, "from_hidden": 576}
for _mlp, _more in (("", {}), ("-mlp", _MLP)):
    COUNTS[f"softmax2-rope{_mlp}"] = _TWO | _more
    COUNTS[f"softmax2-relative{_mlp}"] = _TWO | _more | {"first_positional.by_distance": 8, "positional.by_distance": 8}
    for _gate in (0, 4):
        COUNTS[f"fox2-gate{_gate}{_mlp}"] = _TWO | _more | {"first_gate": 4, "gate": 4, "to_gate": 12}


@pytest.mark.parametrize("label", LABELS)
def test_parameters_per_seed(label):
    head = built(label, 3)
    assert head.parameter_count() == COUNTS[label]
    assert sum(COUNTS[label].values()) * len(SEEDS) == sum(p.numel() for p in head.parameters())
    assert all(p.shape[0] == len(SEEDS) for p in head.parameters())
    own = {"increment", "field", "offset", "level", "gate"}
    assert head.token_parameters().keys() <= own
    assert all(p.shape == (len(SEEDS), VOCAB) for p in head.token_parameters().values())


def test_token_parameters_are_named_by_what_they_mean():
    names = {label: set(built(label, 1).token_parameters()) for label in LABELS}
    assert names["softmax-relative"] == set()
    assert names["fox-gate4"] == {"gate"}
    assert names["fpa-walk-tied"] == {"increment"}
    assert names["fpa-walk-offset"] == {"increment", "offset"}
    assert names["fpa-direct-free"] == {"field", "level"}
    head = built("fpa-direct-free", 1)
    assert torch.equal(head.token_parameters()["level"], head.level_value)
    assert torch.equal(head.token_parameters()["field"], head.field_value)


@pytest.mark.parametrize("label", LABELS)
def test_a_seed_starts_the_same_alone_and_in_a_block(label):
    for dim in (0, 1, 5):
        block = dict(built(label, dim).named_parameters())
        for position, seed in enumerate(SEEDS):
            for name, p in built(label, dim, seeds=(seed,)).named_parameters():
                assert torch.equal(p[0], block[name][position])
        if dim:
            assert not torch.equal(block["query"][0], block["query"][1])


def test_initial_values_have_the_scales_asked_for():
    head = make_head(head_config("fox-gate4", 64), 64, range(8), max_len=8, initial_scale=0.5, content_scale=2.0)
    assert head.gate.mean().item() == pytest.approx(4.0, abs=0.1)
    assert head.gate.std().item() == pytest.approx(0.5, rel=0.1)
    assert head.query.std().item() == pytest.approx(2.0, rel=0.05)
    assert head.key.std().item() == pytest.approx(2.0, rel=0.05)
    walk = make_head(head_config("fpa-walk-offset", 1), 256, range(8), max_len=8)
    assert walk.increment.std().item() == pytest.approx(0.05, rel=0.1)
    assert walk.offset.mean().item() == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("label", LABELS)
def test_state_comes_back_as_it_was(label):
    for dim in (0, 3):
        head, other = built(label, dim), built(label, dim, seeds=(7, 8, 9))
        other.load_state_bytes(head.state_bytes())
        assert all(torch.equal(a, b) for a, b in zip(head.parameters(), other.parameters(), strict=True))
        assert torch.equal(head.logits(tokens()), other.logits(tokens()))


def test_wrong_states_are_refused_in_one_line():
    head = built("fpa-walk-tied", 3)
    whole = load(head.state_bytes())
    without = {name: p for name, p in whole.items() if name != "increment"}
    for data, message in (
        (b"not a state", r"^head state: not a safetensors file \(.*\)$"),
        (save(without), r"^head state: increment: expected \(3, 4\), got None$"),
        (save({**whole, "gate": whole["increment"].clone()}), r"^head state: gate: expected None, got \(3, 4\)$"),
        (built("fpa-walk-tied", 2).state_bytes(), r"^head state: key: expected \(3, 4, 3\), got \(3, 4, 2\)$"),
        (
            built("fpa-walk-tied", 3, seeds=(1,)).state_bytes(),
            r"^head state: increment: expected \(3, 4\), got \(1, 4\)$",
        ),
    ):
        before = [p.clone() for p in head.parameters()]
        with pytest.raises(InputError, match=message):
            head.load_state_bytes(data)
        assert all(torch.equal(a, b) for a, b in zip(before, head.parameters(), strict=True))


def test_make_head_refuses_what_it_cannot_build():
    with pytest.raises(InputError, match="seeds: expected at least one seed"):
        make_head(head_config("fox-gate0", 1), VOCAB, [], max_len=8)
    with pytest.raises(InputError, match="head: expected a head configuration"):
        make_head("fox-gate0", VOCAB, [0], max_len=8)


def test_rows_of_a_head_weigh_the_visible_keys():
    """Weights are positive, add up to 1, and are 0 after the query; only strict stick-breaking starts with none."""
    for label in LABELS:
        weights = reference.masked_softmax(built(label, 2).logits(tokens()))
        expected = torch.ones_like(weights[..., 0])
        expected[..., 0] = 0.0 if label == "stick-breaking-strict" else 1.0
        torch.testing.assert_close(weights.sum(-1), expected)
        assert not weights[..., ~reference.causal_mask(17, 17)].any()


def test_a_walk_in_float32_rounds_where_one_in_float64_does_not():
    tokens = torch.zeros(1, 1, 4096, dtype=torch.int64)
    fields = {}
    for dtype in ("float32", "float64"):
        head = make_head(head_config("fpa-walk-tied", 1, sum_dtype=dtype), 1, [0], max_len=8)
        with torch.no_grad():
            head.increment.fill_(0.1)
        fields[dtype] = head.field_and_level(tokens)[0][0, 0]
    step = float(head.increment[0, 0].detach())
    exact = step * torch.arange(1, 4097, dtype=torch.float64)
    assert fields["float32"].dtype == fields["float64"].dtype == torch.float64
    assert (fields["float64"] - exact).abs().max() < 1e-9
    assert 1e-6 < (fields["float32"] - exact).abs().max() < 1e-1
