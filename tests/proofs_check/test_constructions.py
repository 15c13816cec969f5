"""The constructions: exactly, over every small case; and as real heads, in every format."""

import random
from fractions import Fraction
from itertools import combinations, product

import pytest
import torch

from lab.errors import InputError
from lab.tasks import make_task
from proofs_check.constructions import constant_dimension as subsets
from proofs_check.constructions.any_eviction import any_eviction
from proofs_check.constructions.constant_dimension import constant_dimension
from proofs_check.constructions.nested_scope import nested_scope, tolerated_pairs
from proofs_check.constructions.realise import FORMATS, max_tv, one_query, realise
from proofs_check.constructions.run import EPSILON, failures, measure
from proofs_check.constructions.token_head import TokenHead


def assert_reads(head, tokens, target):
    """The keys of the target carry no penalty, all others at least the head's gap."""
    penalties = head.penalties(tokens)
    for at, token in enumerate(tokens):
        if token in head.key_tokens:
            assert penalties[at] == 0 if at in target else penalties[at] >= head.gap


def test_constant_dimension_reads_every_subset_exactly():
    head = constant_dimension()
    assert head.dimension == 1
    for n in range(1, 9):
        for target in (s for size in range(n + 1) for s in combinations(range(n), size)):
            assert_reads(head, subsets.encode(n, target), {2 * key for key in target})


def test_constant_dimension_speaks_the_tokens_of_its_task():
    task = make_task("subset-drop")
    assert constant_dimension().vocabulary == task.vocabulary
    batch = task.sample("test", [0], 0, 1, length=5)[0, 0]
    target = batch.targets()[-1].nonzero()[0]
    encoded = subsets.encode(5, {int(at) // 2 for at in target})
    assert encoded == [task.vocabulary[token] for token in batch.tokens]


def scopes(tokens):
    """Positions of the keys whose scopes are open at the end: what stands in a scope that closes is gone."""
    open_keys = [[]]
    for at, token in enumerate(tokens):
        if token == "key":
            open_keys[-1].append(at)
        elif token == "open":
            open_keys.append([])
        else:
            open_keys.pop()
    return {at for keys in open_keys for at in keys}


def sequences(length):
    """All token sequences of nested-scope of that length whose depth is never negative."""
    for tokens in product(("key", "open", "close"), repeat=length):
        depth = 0
        for token in tokens:
            depth += {"key": 0, "open": 1, "close": -1}[token]
            if depth < 0:
                break
        else:
            yield tokens


def test_nested_scope_reads_every_sequence_exactly():
    head = nested_scope()
    assert head.vocabulary == make_task("nested-scope").vocabulary
    for length in range(1, 9):
        for tokens in sequences(length):
            assert_reads(head, tokens, scopes(tokens))


@pytest.mark.parametrize(
    ("closing", "offset", "pairs"),
    [
        (-1, 0, None),
        (-1, Fraction(-1, 2), None),
        (Fraction(-11, 10), 0, 0),  # sinking: the first closed scope already costs
        (Fraction(-9, 10), 0, 8),  # rising: kills until the walk has risen by 9/10
        (Fraction(-11, 10), Fraction(-1, 2), 5),
        (Fraction(-9, 10), Fraction(-1, 2), 3),
        (Fraction(-4, 10), Fraction(-1, 2), -1),  # the closing bracket never reaches the level
        (Fraction(-1, 2), Fraction(-1, 2), -1),
    ],
)
def test_walk_drift_is_tolerated_exactly_as_long_as_stated(closing, offset, pairs):
    head = nested_scope(1, closing, offset)
    assert tolerated_pairs(1, closing, offset) == pairs

    def right(m):
        """A key in a scope with m closed scopes behind it: alive before its scope closes, dead after."""
        inside = ["open", "key"] + ["open", "close"] * m
        alive = all(head.penalties(inside[:end])[1] == 0 for end in range(2, len(inside) + 1))
        return alive and head.penalties([*inside, "close"])[1] > 0

    if pairs is None:
        assert all(right(m) for m in range(12))
    else:
        assert [right(m) for m in range(pairs + 3)] == [True] * (pairs + 1) + [False] * 2


def test_any_eviction_reads_any_history_without_revivals_exactly():
    rng = random.Random(5)
    for _ in range(200):
        n = rng.randint(1, 12)
        death = [rng.choice([0, *range(at + 1, n + 1)]) for at in range(n)]
        head = any_eviction(death)
        for query in range(n):
            assert_reads(head, head.vocabulary[: query + 1], {at for at in range(query + 1) if death[at] > query})


def test_any_eviction_is_the_published_form():
    """Level -tau, field -t - 1/2: the same penalties."""
    death = [3, 2, 4, 4]
    head = any_eviction(death)
    for query in range(1, 5):
        expected = []
        for position in range(1, query + 1):
            tau = death[position - 1] + 1
            lowest = min((Fraction(-t) - Fraction(1, 2) for t in range(position + 1, query + 1)), default=None)
            expected.append(0 if lowest is None else max(0, -tau - lowest))
        assert head.penalties(head.vocabulary[:query]) == expected


def test_offsets_and_direct_fields_follow_the_definition():
    head = TokenHead(("a", "b"), frozenset("a"), "direct", "free", {"a": 5, "b": 1}, {"a": 2, "b": 0})
    assert head.penalties(["a", "b", "a"]) == [1, 0, 0]
    head = TokenHead(("a", "b"), frozenset("a"), "walk", "offset", {"a": 1, "b": -1}, {"a": Fraction(1, 2), "b": 0})
    assert head.penalties(["a", "b", "b"]) == [Fraction(5, 2), 1, 0]


def test_uniform_weights_do_not_need_penalty_zero():
    """The pitfall of THEORY.md: with equal penalties on the target a key can come back, so alive means penalty 0."""
    numbers = {"old": 1, "new": 1, "dip": -1, "query": 0}
    head = TokenHead(tuple(numbers), frozenset({"old", "new"}), "walk", "tied", numbers, {})
    first = ["old", "dip", "new", "query"]
    second = [*first, "dip", "query"]
    assert [head.penalties(first)[at] for at in (0, 2)] == [1, 0]  # reads {new}
    assert [head.penalties(second)[at] for at in (0, 2)] == [1, 1]  # reads {old, new}, uniformly


@pytest.mark.parametrize("name", ["constant-dimension", "nested-scope", "any-eviction"])
def test_real_heads_stay_within_epsilon_in_every_format(name):
    runs = measure(name, [1, 6, 40], sequences=3)
    assert {run.format for run in runs} == set(FORMATS)
    for run in runs:
        assert run.queries > 0
        assert 0 <= run.max_tv <= EPSILON
    assert failures(runs) == dict.fromkeys(FORMATS)


def test_bfloat16_confuses_neighbouring_deaths_from_256_positions_on():
    found = failures(measure("any-eviction", [64, 256], sequences=2))
    assert found == {"float64": None, "float32": None, "bfloat16": 256}


def test_a_wrong_number_is_seen_by_the_measurement():
    head = constant_dimension()
    weak = TokenHead(head.vocabulary, head.key_tokens, "walk", "tied", {**head.values, "drop": 0}, {})
    tokens, targets = one_query(weak, subsets.encode(3, {0, 2}), [0, 4])
    assert max_tv(realise(weak, 7, EPSILON, torch.float64), tokens, targets) == pytest.approx(1 / 3, abs=1e-5)


def test_unknown_constructions_are_named():
    with pytest.raises(InputError, match=r"unknown name 'nested-scop'; did you mean nested-scope\?"):
        measure("nested-scop", [4])
