"""Each search and decision against brute force over all keys, sets and ways; and the mistakes that would be easy."""

import random
from fractions import Fraction
from itertools import combinations, pairwise, permutations, product

import networkx as nx
import numpy as np
import pytest

from proofs_check.bounds import few_sets as few
from proofs_check.bounds import frozen_ratio as frozen
from proofs_check.bounds.cases import cases
from proofs_check.bounds.face_chain import face_chain
from proofs_check.bounds.few_sets import few_sets
from proofs_check.bounds.forster import forster
from proofs_check.bounds.fox_pairs import fox_pairs
from proofs_check.bounds.softmax_shatter import radon, shattered
from proofs_check.exact.linear import positive_definite
from proofs_check.keysets import Histories
from tests.proofs_check.baselines import definitions
from tests.proofs_check.baselines.definitions import all_subsets, between, chain_at_end, family, full_and_without_one


def families(seed, count, **limits):
    rng = random.Random(seed)
    return [definitions.random_family(rng, **limits) for _ in range(count)]


def sets_of(spec):
    return [set(target) for target in spec.targets]


# Shattered sets.


def is_shattered(spec, keys, half, rows=None):
    found = {tuple(k in s for k in keys) for s in (sets_of(spec) if rows is None else rows)}
    inner = [t for t in product((False, True), repeat=len(keys)) if any(t) and not all(t)]
    return all(t in found or (half and tuple(not bit for bit in t) in found) for t in inner)


def most_shattered(spec, half):
    n = len(spec.keys)
    return max(
        size for size in range(1, n + 1) if any(is_shattered(spec, keys, half) for keys in combinations(range(n), size))
    )


@pytest.mark.parametrize("traces", ["all", "half"])
def test_shattered_sets_are_the_largest(traces):
    for spec in families(1, 120, most_targets=20):
        found = shattered(cases(spec), traces)
        assert found.exact
        assert len(found.keys) == most_shattered(spec, traces == "half")


def test_shattered_for_one_gate_are_the_largest():
    """By hand: for each set of keys all choices of how many drops stand between neighbours."""
    seen = set()
    for spec in families(2, 60, most_targets=20):
        n = len(spec.keys)
        best = 1
        for size in range(2, n + 1):
            for keys in combinations(range(n), size):
                classes = {}
                for row, s in enumerate(sets_of(spec)):
                    drops = tuple(sum(t[0] == "drop" for t in between(spec, row, pair)) for pair in pairwise(keys))
                    classes.setdefault(drops, []).append(s)
                if any(is_shattered(spec, keys, False, rows) for rows in classes.values()):
                    best = max(best, size)
        found = shattered(cases(spec), "all", head="fox", counted=True)
        assert (len(found.keys), found.exact) == (best, True)
        seen.add(best)
    assert seen >= {1, 2, 3}


def test_a_goal_stops_the_search_and_a_budget_is_admitted(monkeypatch):
    assert len(shattered(cases(all_subsets(6)), goal=3).keys) == 3
    monkeypatch.setattr("proofs_check.bounds.softmax_shatter.LARGE_BUDGET", 100)
    cut = shattered(cases(all_subsets(5)))
    assert not cut.exact


def test_the_bound_of_halves_is_one_less_with_biases():
    found = shattered(cases(all_subsets(7, at_most=3)), "half")
    assert len(found.keys) == 7
    assert (found.dimension(), found.dimension(biases=False)) == (5, 6)
    assert shattered(cases(all_subsets(7, at_most=3))).dimension() == 3


# Pairs, few sets, chains of faces, norms.


def test_pairs_are_shattered_by_the_definition():
    rng = random.Random(4)
    most = 0
    for _ in range(80):
        spec = definitions.random_family(rng, most_targets=20)
        for head in ("softmax", "fox"):
            found = fox_pairs(cases(spec), head=head)
            most = max(most, found.dimension)
            witness = {
                "pairs": [[spec.keys[k] for k in pair] for pair in found.pairs],
                "queries": [query + 1 for query in found.queries],
                "dimension": found.dimension,
            }
            assert definitions.is_true(spec, "shattered-pairs", {"head": head}, witness)
            exists = any(a != b and (a & b or head == "softmax") for a, b in combinations(sets_of(spec), 2))
            if found.dimension == 0 and len(spec.slots) == len(spec.keys):
                # FoX: two sets with one first key conflict by a pair; softmax: any two sets do.
                same_first = any(min(a) == min(b) for a, b in combinations(sets_of(spec), 2))
                assert not (exists and (head == "softmax" or same_first))
    assert most == 3


def test_few_sets_are_the_most():
    for spec in families(5, 100, most_targets=16):
        sets = sets_of(spec)
        best = 0
        for size in range(1, len(spec.keys) + 1):
            for keys in map(set, combinations(range(len(spec.keys)), size)):
                alone = all(any(keys - s == {key} for s in sets) for key in keys)
                if alone and any(keys <= s for s in sets):
                    best = max(best, size)
        found = few_sets(cases(spec))
        assert (0 if found is None else len(found.keys)) == best


def test_the_formula_of_few_sets():
    assert few.least_dimension(1000, Fraction(1, 100)) == 909
    assert few.least_dimension(50, Fraction(1, 10)) == 33
    assert few.least_dimension(7, Fraction(0)) == 6
    assert few.least_dimension(2, Fraction(1)) == 0


def test_the_rank_of_few_sets_by_hand():
    """The matrix of the proof, for a head that reads [n] and all [n] without one: the bound holds for its rank."""
    rng = np.random.default_rng(0)
    for n, d in ((5, 4), (8, 7)):
        keys = rng.normal(size=(n, d))
        queries = np.linalg.lstsq(np.c_[keys, np.ones(n)], -np.eye(n), rcond=None)[0][:-1].T
        difference = queries @ keys.T
        shifted = difference - (difference.sum(1, keepdims=True) - np.diag(difference)[:, None]) / (n - 1)
        rank = np.linalg.matrix_rank(shifted)
        off = np.abs(shifted - np.diag(np.diag(shifted))).max() / -np.diag(shifted).max()
        assert rank <= d + 1
        assert d >= few.least_dimension(n, Fraction(min(off, 1)).limit_denominator(1000))


def longest_chain(spec):
    """In the closure of the targets under intersection."""
    closure = {frozenset(s) for s in sets_of(spec)}
    while True:
        more = {a & b for a in closure for b in closure} - {frozenset()} - closure
        if not more:
            break
        closure |= more
    graph = nx.DiGraph((a, b) for a in closure for b in closure if a < b)
    return nx.dag_longest_path_length(graph) + 1 if graph else 1


def test_chains_of_faces_are_the_longest():
    for spec in families(6, 120, most_targets=12):
        found = face_chain(cases(spec))
        assert (1 if found is None else len(found.keys)) == longest_chain(spec)


def test_chains_of_faces_without_biases_may_end_below_all_keys():
    """{1} and {1, 2} of three keys are proper faces of a triangle."""
    spec = family(3, [(0,), (0, 1)])
    assert face_chain(cases(spec)).dimension == 1
    assert face_chain(cases(spec), biases=False).dimension == 2
    full = family(2, [(0,), (0, 1)])
    assert face_chain(cases(full), biases=False).dimension == 1


def fox_faces(spec):
    """The longest sequence of keys by trying all of them."""
    n, best = len(spec.keys), 1
    for size in range(2, n + 1):
        for keys in permutations(range(n), size):
            if all(step_exists(spec, keys[: at + 1]) for at in range(1, size)):
                best = size
                break
    return best


def step_exists(spec, keys):
    rows = range(len(spec.targets))
    return any(
        set(keys) - set(spec.targets[a]) == {keys[-1]}
        and set(keys) <= set(spec.targets[b])
        and between(spec, a, keys) == between(spec, b, keys)
        for a in rows
        for b in rows
    )


def test_fox_chains_are_the_longest_with_dips_after_each_key_or_at_the_end():
    rng = random.Random(7)
    lengths = set()
    for _ in range(60):
        spec = definitions.random_family(rng, 4, 10)
        found = face_chain(cases(spec), head="fox")
        length = 1 if found is None else len(found.keys)
        brute = fox_faces(spec)
        assert length <= brute
        if len(spec.slots) in (0, len(spec.keys)) or spec.slots == (len(spec.keys) - 1,):
            assert length == brute
        lengths.add(length)
    assert lengths == {1, 2, 3, 4}


def test_forster_by_hand():
    """Two keys, all four signs: a matrix of norm sqrt(2), sign rank at least sqrt(4 / 2)."""
    spec = family(3, [(0, 1, 2), (0, 2), (1, 2), (2,)])
    found = forster(cases(spec))
    assert set(found.keys) == {0, 1}
    assert abs(float(found.norm) - 4) < 0.01
    assert found.dimension(biases=False) == 1


def test_positive_definite_is_exact():
    assert positive_definite([[2, 1], [1, 2]])
    assert not positive_definite([[1, 1], [1, 1]])
    assert not positive_definite([[0]])
    assert not positive_definite([[1, 2], [2, 1]])
    rng = np.random.default_rng(1)
    for _ in range(100):
        root = rng.integers(-3, 4, size=(4, 4))
        matrix = (root @ root.T).tolist()
        assert positive_definite(matrix) == (round(np.linalg.det(root)) != 0)
        assert not positive_definite(
            [[x - 60 * (i == j == 3) for j, x in enumerate(row)] for i, row in enumerate(matrix)]
        )


def test_radon_vectors():
    assert radon([[0], [1]]) is None
    rng = random.Random(8)
    for _ in range(30):
        d = rng.randint(1, 4)
        keys = [[Fraction(rng.randint(-5, 5), rng.randint(1, 3)) for _ in range(d)] for _ in range(d + 2)]
        c = radon(keys)
        assert any(c)
        assert sum(c) == 0
        assert all(sum(x * key[at] for x, key in zip(c, keys)) == 0 for at in range(d))


# A fixed query.


def fixed_possible(spec, head, notion, ratio):
    """No circle of negative sum among the demands, by networkx over nodes that are spelled out."""
    graph = nx.DiGraph()
    for row, target in enumerate(spec.targets):
        node = {k: (k, definitions.before(spec, row, k) if head == "fox" else None) for k in range(len(spec.keys))}
        for high in target:
            for low in node:
                length = -1.0 if low not in target else float(ratio)
                if low != high and (low not in target or notion == "window"):
                    edge = (node[low], node[high])
                    graph.add_edge(*edge, weight=min(length, graph.get_edge_data(*edge, {"weight": 9})["weight"]))
    return not nx.negative_edge_cycle(graph)


@pytest.mark.parametrize("head", ["softmax", "fox"])
@pytest.mark.parametrize("notion", ["separation", "window"])
def test_fixed_queries_are_decided_as_by_brute_force(head, notion):
    seen = set()
    ratio = Fraction(1, 10)
    for spec in families(9, 150, most_targets=4) + families(10, 30, most_targets=12):
        found = frozen.frozen_ratio(spec, head, notion, ratio)
        assert isinstance(found, frozen.Logits) == fixed_possible(spec, head, notion, ratio)
        solved = frozen.solve(spec, head, notion, ratio)
        assert type(solved) is type(found)
        if isinstance(found, frozen.Conflict):
            assert len(found.cycle) == 2
        seen.add(type(found))
    assert seen == {frozen.Logits, frozen.Conflict}


def test_softmax_with_a_fixed_query_separates_exactly_the_chains():
    for spec in families(11, 100, most_targets=4):
        chain = all(a <= b or b <= a for a, b in combinations(sets_of(spec), 2))
        found = frozen.frozen_ratio(spec, "softmax", "separation", Fraction(0))
        assert isinstance(found, frozen.Logits) == chain
    assert isinstance(frozen.frozen_ratio(chain_at_end(6), "softmax", "separation", Fraction(0)), frozen.Logits)
    assert isinstance(frozen.frozen_ratio(chain_at_end(6), "softmax", "window", Fraction(0)), frozen.Conflict)


def test_fox_with_a_fixed_query_reads_within_a_window_exactly_the_sets_with_different_first_keys():
    for spec in families(12, 100, most_targets=4):
        if len(spec.slots) == len(spec.keys):
            firsts = [min(s) for s in sets_of(spec)]
            found = frozen.frozen_ratio(spec, "fox", "window", Fraction(1, 10))
            assert isinstance(found, frozen.Logits) == (len(set(firsts)) == len(firsts))


def test_histories_are_decided_as_their_demands_are_solved():
    """FoX within a window goes by consecutive queries; softmax takes the conflicts of FoX first."""
    rng = random.Random(13)
    seen = set()
    for _ in range(300):
        spec = definitions.random_histories(rng)
        for head in ("softmax", "fox"):
            quick = frozen.frozen_ratio(spec, head, "window", Fraction(1, 10))
            slow = frozen.solve(spec, head, "window", Fraction(1, 10))
            assert type(quick) is type(slow)
            seen.add((head, type(quick)))
    assert len(seen) == 4


def test_a_longer_circle_of_three_histories():
    """No two histories conflict; a over b, b over c and c over a do."""
    spec = Histories(("a", "b", "c"), ((0, 1, (0,)), (1, 2, (1,)), (2, 0, (2,))))
    found = frozen.frozen_ratio(spec, "softmax", "separation", Fraction(0))
    assert isinstance(found, frozen.Conflict)
    assert len(found.cycle) == 3


def test_too_many_demands_are_left_undecided(monkeypatch):
    monkeypatch.setattr(frozen, "MAX_DEMANDS", 3)
    spec = Histories(tuple("abcd"), ((0, 1, 2, 3, (0, 1)),))
    assert isinstance(frozen.solve(spec, "softmax", "separation", Fraction(0)), frozen.TooLarge)


def test_full_and_without_one_has_all_its_bounds():
    found = cases(full_and_without_one(6))
    assert few_sets(found).dimension(Fraction(0)) == 5
    assert face_chain(found).dimension == 5
    assert shattered(found).dimension() == 1
