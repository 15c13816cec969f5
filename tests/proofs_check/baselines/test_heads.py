"""Constructions by the definition, token by token: what they read, at which dimension, window and gap."""

import random
from fractions import Fraction
from itertools import product
from math import ceil

import networkx as nx
import numpy as np
import pytest

from proofs_check.bounds.cases import cases
from proofs_check.bounds.lower import ONE_GATE, PER_SLOT, Head
from proofs_check.constructions import chains, fox_table, simple_upper, sparse_sets
from proofs_check.constructions.linear_head import LinearHead, reads, without_biases
from proofs_check.constructions.upper import NOTIONS, Uppers
from proofs_check.exact.queries import Queries
from proofs_check.exact.specification import read_specification
from tests.proofs_check.baselines import definitions
from tests.proofs_check.baselines.definitions import all_subsets, chain_at_end, family, full_and_without_one, serves

RATIOS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2))


def by_definition(spec, head):
    """Window and gap from the tokens."""
    rows = [
        definitions.logits(spec, row, head.keys, head.biases, head.gates, query)
        for row, query in enumerate(head.queries)
    ]
    return definitions.window_and_gap(spec.targets, rows)


def assert_reads(spec, head, notion, dimension, ratio=Fraction(1, 10)):
    window, gap = by_definition(spec, head)
    assert (window, gap) == head.measure(cases(spec))
    assert serves(notion, ratio, window, gap)
    assert head.dimension == dimension


def test_random_heads_are_measured_as_by_the_definition():
    """Blocks of any kind, gates of any sign; the exact core's gates too."""
    rng = random.Random(1)
    number = lambda: Fraction(rng.randint(-9, 9), rng.randint(1, 3))  # noqa: E731
    for _ in range(60):
        spec = definitions.random_family(rng)
        n, m, d = len(spec.keys), len(spec.targets), rng.randint(0, 3)
        head = LinearHead(
            "random",
            [[number() for _ in range(d)] for _ in range(n)],
            [number() for _ in range(n)],
            [[number() for _ in range(d)] for _ in range(m)],
            [number() for _ in range(n)] if rng.random() < 0.7 else (),
        )
        assert head.measure(cases(spec)) == by_definition(spec, head)
        queries = Queries(read_specification(spec.to_data()))
        for row in range(m if head.gates else 0):
            plain = definitions.logits(spec, row, [[]] * n, [0] * n, head.gates, [])
            after = queries.query(row + 1).gates(list(head.gates))
            assert [a + b for a, b in zip(plain, after)] == [plain[0] + after[0]] * n


def test_what_a_notion_allows():
    tenth = Fraction(1, 10)
    assert reads((Fraction(5), Fraction(1)), "separation", tenth)
    assert not reads((Fraction(0), Fraction(0)), "separation", tenth)
    assert reads((Fraction(1), Fraction(10)), "window", tenth)
    assert not reads((Fraction(101, 100), Fraction(10)), "window", tenth)
    assert not reads((Fraction(1, 1000), Fraction(10)), "uniform", tenth)
    assert reads((Fraction(0), None), "uniform", tenth)


@pytest.mark.parametrize("n", range(1, 8))
def test_the_table_of_fox(n):
    spec = all_subsets(n)
    found = cases(spec)
    for ratio in RATIOS:
        assert_reads(spec, fox_table.window_per_slot(found, ratio), "window", n // 2, ratio)
        one_gate = fox_table.window_one_gate(found, ratio)
        assert_reads(spec, one_gate, "window", ceil(2 * n / 3) - 1, ratio)
        assert len(set(one_gate.gates)) == 1
    pairs = simple_upper.groups(found, "separation", head="fox")
    assert_reads(spec, pairs, "separation", ceil(n / 2) - 1)
    assert len(set(pairs.gates)) == 1
    assert_reads(spec, simple_upper.groups(found, "uniform"), "uniform", n - 1)
    tree = fox_table.separation_per_slot(found)
    assert_reads(spec, tree, "separation", 0)
    if n > 1:
        assert by_definition(spec, tree)[1] == 2 == Fraction(max(tree.gates), 2 ** (n - 1))


def test_the_table_is_for_dips_after_each_key():
    found = cases(family(3, [(0,), (1, 2)], (0, 2)))
    for build in (fox_table.window_per_slot, fox_table.window_one_gate):
        assert build(found, Fraction(1, 10)) is None
    assert fox_table.separation_per_slot(found) is None
    assert fox_table.window_per_slot(cases(all_subsets(3)), Fraction(0)) is None


@pytest.mark.parametrize("n", [2, 3, 6, 12])
def test_chains(n):
    spec = chain_at_end(n)
    found = cases(spec)
    assert_reads(spec, simple_upper.groups(found, "separation"), "separation", 0)
    assert_reads(spec, simple_upper.groups(found, "uniform"), "uniform", n - 1)
    for ratio in RATIOS:
        head = chains.chain_windows(found, ratio)
        assert_reads(spec, head, "window", 1, ratio)
        assert not any(head.biases)
        assert max(abs(x) for query in head.queries for x in query) == chains.magnitude(n - 2, ratio)


def test_formats_break_where_the_numbers_of_a_chain_leave_them():
    single = lambda array: array.astype(np.float32).astype(np.float64)  # noqa: E731
    ratio = Fraction(1, 10)
    largest = {"float64": np.finfo(np.float64).max, "float32": np.finfo(np.float32).max}
    for name, rounded in (("float64", lambda array: array), ("float32", single)):
        n = chains.breaking_length(rounded, ratio)
        assert float(chains.magnitude(n - 3, ratio)) < largest[name]
        assert n - 2 >= 0.9 * np.log(largest[name]) / np.log(11) - 1
    assert chains.breaking_length(lambda array: array, ratio, 20) is None


def test_sparse_sets_and_runs():
    for n, most in ((5, 1), (7, 2), (9, 3)):
        spec = all_subsets(n, at_most=most)
        head = sparse_sets.sparse(cases(spec), n)
        assert_reads(spec, head, "uniform", 2 * most - 1)
        assert_reads(spec, without_biases(head), "uniform", 2 * most)
        assert not any(without_biases(head).biases)
    two_runs = family(6, [(0, 2), (0, 1, 4, 5), (3,), (1, 2, 3, 5), tuple(range(6))])
    assert_reads(two_runs, sparse_sets.runs(cases(two_runs), 9), "separation", 3)
    assert_reads(full_and_without_one(8), sparse_sets.runs(cases(full_and_without_one(8)), 9), "separation", 1)
    assert sparse_sets.sparse(cases(all_subsets(5)), 4) is None


def test_one_dimension_per_target_but_one():
    rng = random.Random(2)
    for _ in range(30):
        spec = definitions.random_family(rng, 5, 6)
        m = len(spec.targets)
        assert_reads(spec, simple_upper.targets(cases(spec)), "uniform", m - 1)
        assert_reads(spec, simple_upper.targets(cases(spec), biases=False), "uniform", m)


def test_groups_without_gates_are_as_few_as_there_can_be():
    """Separation: the largest antichain of the keys' columns (Dilworth). Uniform: the different columns read."""
    rng = random.Random(3)
    for _ in range(80):
        spec = definitions.random_family(rng, 6, 12)
        columns = {frozenset(row for row, t in enumerate(spec.targets) if k in t) for k in range(len(spec.keys))}
        comparable = nx.Graph((a, b) for a, b in product(columns, columns) if a < b)
        comparable.add_nodes_from(columns)
        antichain = max(len(clique) for clique in nx.find_cliques(nx.complement(comparable)))
        assert_reads(spec, simple_upper.groups(cases(spec), "separation"), "separation", antichain - 1)
        assert_reads(spec, simple_upper.groups(cases(spec), "uniform"), "uniform", len(columns - {frozenset()}) - 1)
        assert_reads(spec, simple_upper.columns(cases(spec)), "uniform", len(columns) - 1)
        assert not any(simple_upper.columns(cases(spec)).biases)


def test_groups_of_fox_read_whatever_the_blocks():
    rng = random.Random(4)
    for _ in range(80):
        spec = definitions.random_family(rng, 6, 12)
        for notion in ("separation", "uniform"):
            head = simple_upper.groups(cases(spec), notion, head="fox")
            assert_reads(spec, head, notion, head.dimension)
            assert len(set(head.gates)) == 1


def test_uppers_are_what_they_are_listed_for():
    rng = random.Random(5)
    kinds = (Head(), Head(biases=False), Head("fox", ONE_GATE), Head("fox", PER_SLOT))
    for _ in range(25):
        spec = definitions.random_family(rng)
        uppers = Uppers(cases(spec), Fraction(1, 10))
        for head, notion in product(kinds, NOTIONS):
            for found in uppers.heads(head, notion):
                assert serves(notion, Fraction(1, 10), *by_definition(spec, found)), (spec, head, notion, found.name)
                assert head.biases or not any(found.biases)
                assert head.name == "fox" or not any(found.gates)
                assert head.gates == PER_SLOT or len(set(found.gates)) <= 1
