"""Rivals against what their papers say: worked examples, the definition in plain Python, hand-set weights."""

import itertools
import math

import pytest
import torch

from lab.heads import head_config, make_head
from lab.heads.positional import rotate
from lab.heads.selective import accumulated
from lab.heads.stick_breaking import log_weights
from lab.ops import reference
from lab.ops.dispatch import target_loss
from lab.training.metrics import read_task

VOCAB, SEEDS, MAX_LEN, LENGTH = 4, (0, 3), 8, 13


def built(label, dim=3, **options):
    return make_head(head_config(label, dim, **options), VOCAB, SEEDS, max_len=MAX_LEN, initial_scale=0.5)


def drawn(batch=1, length=LENGTH):
    return torch.randint(0, VOCAB, (len(SEEDS), batch, length), generator=torch.Generator().manual_seed(4))


def softmax(row):
    top = max(row)
    mass = [math.exp(a - top) for a in row]
    return [m / sum(mass) for m in mass]


def numbers(head, seed):
    """Every parameter of one seed, in float64."""
    return {name: p.detach()[seed].double() for name, p in head.named_parameters()}


# --- Selective Attention --------------------------------------------------------------------------------------------


def test_a_selection_masks_for_the_rows_after_it():
    """Row 1 selects key 0 with 2, row 2 selects keys 0 and 1 with 3 and 1, row 3 selects nothing but itself."""
    none = -math.inf
    selection = torch.tensor([[5.0, none, none, none], [2, 4, none, none], [3, 1, 7, none], [-1, -2, -3, 9]])
    assert accumulated(selection).tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [2, 0, 0, 0], [5, 1, 0, 0]]
    same = [[0, 0, 0, 0], [2, 0, 0, 0], [5, 1, 0, 0], [5, 1, 0, 0]]
    assert accumulated(selection, same_row=True).tolist() == same
    protected = [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0]]
    assert accumulated(selection, protect_first=True).tolist() == protected


def selective_row(parts, tokens, i, bias, same, protect):
    """Logits of row i of a selective head without RoPE, summed selection by selection."""
    scale = 1 / math.sqrt(parts["query"].shape[1])

    def logit(query, key, by, t, j):
        return scale * float(parts[query][tokens[t]] @ parts[key][tokens[j]]) + bias(by, t - j)

    row = []
    for j in range(i + 1):
        before = range(j + 1, i + 1 if same else i)
        selected = [
            max(0.0, logit("select_query", "select_key", "select_positional.by_distance", t, j)) for t in before
        ]
        masked = 0.0 if protect and j == 0 else math.fsum(selected)
        row.append(logit("query", "key", "positional.by_distance", i, j) - masked)
    return row


@pytest.mark.parametrize("protect", [False, True])
@pytest.mark.parametrize("label", ["selective-none", "selective-relative", "selective-same-relative"])
def test_selective_heads_follow_the_definition(label, protect):
    head, tokens = built(label, protect_first=protect), drawn()
    logits = head.logits(tokens)
    for s in range(len(SEEDS)):
        parts = numbers(head, s)

        def bias(name, distance, parts=parts):
            return float(parts[name][min(distance, MAX_LEN - 1)]) if name in parts else 0.0

        for i in range(LENGTH):
            expected = selective_row(parts, tokens[s, 0].tolist(), i, bias, "same" in label, protect)
            torch.testing.assert_close(logits[s, 0, i, : i + 1].tolist(), expected, rtol=1e-4, atol=1e-4)


def test_a_selective_head_that_selects_nothing_is_softmax():
    head, tokens = built("selective-rope"), drawn()
    plain = make_head(head_config("softmax-rope", 3), VOCAB, SEEDS, max_len=MAX_LEN)
    assert not torch.allclose(head.logits(tokens), plain.logits(tokens))
    with torch.no_grad():
        head.select_query.zero_()
    torch.testing.assert_close(head.logits(tokens), plain.logits(tokens))


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_hand_set_selective_attention_realises_every_subset_with_content_dimension_3(n):
    """Rivals in THEORY.md: drop_l selects key j with logit M (1/2 - (x_j - x_l)^2), positive for j = l alone.

    Tokens: key_1 .. key_n, drop_1 .. drop_n, keep, query; one sequence K1 D1 .. Kn Dn Q per subset, one fixed query.
    """
    strength, mask = 100.0, 100.0
    keep, asks = 2 * n, 2 * n + 1
    head = make_head(head_config("selective-none", 3), 2 * n + 2, [0], max_len=2 * n + 1)
    x = torch.arange(1, n + 1, dtype=torch.float32)
    with torch.no_grad():
        for p in head.parameters():
            p.zero_()
        head.key[0, n:, 0] = -mask / head.scale  # what is no key is masked by content
        head.query[0, asks, 0] = 1.0
        # M (1/2 - x_l^2 + 2 x_l x_j - x_j^2) as an inner product; what is no key is at 1 in none of them.
        head.select_key[0, :n] = torch.stack((torch.ones(n), x, x**2), -1)
        head.select_query[0, n : 2 * n] = strength / head.scale * torch.stack((0.5 - x**2, 2 * x, -torch.ones(n)), -1)
    for kept in itertools.product([False, True], repeat=n):
        tokens = [t for j, stays in enumerate(kept) for t in (j, keep if stays else n + j)] + [asks]
        weights = reference.masked_softmax(head.logits(torch.tensor(tokens)[None, None]))[0, 0, -1]
        size = sum(kept)
        if size:
            expected = torch.zeros(2 * n + 1)
            expected[[2 * j for j, stays in enumerate(kept) if stays]] = 1 / size
            torch.testing.assert_close(weights, expected, rtol=0, atol=1e-6)


# --- stick-breaking attention ---------------------------------------------------------------------------------------


def test_a_stick_broken_in_halves():
    zeros = torch.zeros(3, 3)
    weights = log_weights(zeros, attend_current=True).exp()
    torch.testing.assert_close(weights, torch.tensor([[0.5, 0, 0], [0.25, 0.5, 0], [0.125, 0.25, 0.5]]))
    strict = log_weights(zeros, attend_current=False).exp()
    torch.testing.assert_close(strict, torch.tensor([[0.0, 0, 0], [0.5, 0, 0], [0.25, 0.5, 0]]))
    torch.testing.assert_close(log_weights(zeros[2:], attend_current=True).exp(), weights[2:])


@pytest.mark.parametrize("label", ["stick-breaking", "stick-breaking-strict"])
def test_stick_breaking_heads_follow_the_definition(label):
    head, tokens = built(label), drawn()
    values = torch.randn(len(SEEDS), 1, LENGTH, 2, generator=torch.Generator().manual_seed(5))
    attended = head.attend(tokens, values)
    for s in range(len(SEEDS)):
        parts, token = numbers(head, s), tokens[s, 0].tolist()
        for i in range(LENGTH):
            left, expected = 1.0, torch.zeros(2, dtype=torch.float64)
            for j in range(i if label == "stick-breaking" else i - 1, -1, -1):
                logit = float(parts["query"][token[i]] @ parts["key"][token[j]]) / math.sqrt(3)
                share = 1 / (1 + math.exp(-logit))
                expected += left * share * values[s, 0, j].double()
                left *= 1 - share
            torch.testing.assert_close(attended[s, 0, i].double(), expected, rtol=1e-5, atol=1e-6)


def test_what_is_left_of_the_stick_is_missing_from_the_loss():
    """Two keys and logit 0: the older one has a weight of 1/4, and -log(1/4) is the loss; nothing is renormalised."""
    head = built("stick-breaking")
    with torch.no_grad():
        head.query.zero_()
    tokens = torch.zeros(len(SEEDS), 1, 2, dtype=torch.int64)
    death = torch.tensor([2, 0]).expand_as(tokens)
    queries = torch.tensor([0, 1]).expand_as(tokens)
    loss = target_loss(head.token_logits(tokens), tokens, death, queries)
    torch.testing.assert_close(loss.double(), torch.full((2,), math.log(4), dtype=torch.float64))


# --- two layers -----------------------------------------------------------------------------------------------------


def layer(query, key, bias, gate, value):
    """One causal layer in plain Python: logits row by row, and the attention-weighted values."""
    logits, out = [], []
    for i in range(len(query)):
        forget = [math.fsum(gate[j + 1 : i + 1]) if gate else 0.0 for j in range(i + 1)]
        row = [float(query[i] @ key[j]) / math.sqrt(query.shape[1]) + bias(i - j) + forget[j] for j in range(i + 1)]
        logits.append(row)
        out.append(sum(w * v for w, v in zip(softmax(row), value[: i + 1])))
    return logits, torch.stack(out)


def log_sigmoid(x):
    return -math.log1p(math.exp(-x))


@pytest.mark.parametrize("label", ["softmax2-relative", "softmax2-rope", "softmax2-rope-mlp", "fox2-gate4-mlp"])
def test_two_layers_follow_the_definition(label):
    head, tokens = built(label), drawn()
    logits, place = head.logits(tokens), torch.arange(LENGTH, dtype=torch.float64)
    for s in range(len(SEEDS)):
        parts, token = numbers(head, s), tokens[s, 0].tolist()

        def bias(name, distance, parts=parts):
            return float(parts[name][min(distance, MAX_LEN - 1)]) if name in parts else 0.0

        def turned(vectors):
            return rotate(vectors, place) if "rope" in label else vectors

        query, key, value = (parts[f"first_{name}"][token] for name in ("query", "key", "value"))
        gate = [log_sigmoid(float(parts["first_gate"][t])) for t in token] if "fox" in label else []
        first_bias = lambda d, bias=bias: bias("first_positional.by_distance", d)  # noqa: E731
        _, added = layer(turned(query), turned(key), first_bias, gate, value)
        if "mlp" in label:
            hidden = (parts["hidden_bias"][token] + added @ parts["to_hidden"]).clamp_min(0)
            added = added + hidden @ parts["from_hidden"]
        query, key = (parts[name][token] + added @ parts[f"to_{name}"] for name in ("query", "key"))
        if "fox" in label:
            gate = [log_sigmoid(float(parts["gate"][t] + o @ parts["to_gate"])) for t, o in zip(token, added)]
        second_bias = lambda d, bias=bias: bias("positional.by_distance", d)  # noqa: E731
        expected, _ = layer(turned(query), turned(key), second_bias, gate, value)
        for i in range(LENGTH):
            torch.testing.assert_close(logits[s, 0, i, : i + 1].tolist(), expected[i], rtol=1e-4, atol=1e-4)


def test_the_second_layer_sees_what_came_before_and_one_layer_does_not():
    """Swapping two earlier tokens changes the ratio of the weights of two keys that are not swapped."""
    one, other = torch.tensor([0, 1, 2, 3, 3]), torch.tensor([1, 0, 2, 3, 3])
    for label, sees in (("softmax2-relative", True), ("fox2-gate0", True), ("fox-gate0", False)):
        head = built(label)
        ratios = [(row[2] - row[3]).item() for row in (head.logits(t.expand(2, 1, -1))[0, 0, -1] for t in (one, other))]
        assert (abs(ratios[0] - ratios[1]) > 1e-3) == sees, label


# --- all of them ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("label", ["selective-relative", "stick-breaking", "softmax2-rope-mlp", "fox2-gate0"])
def test_rivals_read_the_same_in_smaller_portions(label, monkeypatch):
    from lab.tasks import make_task
    from lab.training import metrics

    head = make_head(head_config(label, 2), 3, SEEDS, max_len=32)
    whole = read_task(head, make_task("nested-scope"), "test", sequences=7, length=40)
    monkeypatch.setattr(metrics, "_PAIRS_AT_ONCE", 2 * 2 * 40**2)  # two sequences of two seeds
    assert read_task(head, make_task("nested-scope"), "test", sequences=7, length=40) == whole
