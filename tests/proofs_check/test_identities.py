"""The symbolic identities that carry arguments of THEORY.md, and that its headings are the names that the code uses."""

import re
from itertools import product
from pathlib import Path

import pytest
import sympy as sp

import proofs_check
from proofs_check import exact
from proofs_check.claims import CLAIMS
from proofs_check.constructions import rivals

THEORY = (Path(proofs_check.__path__[0]) / "THEORY.md").read_text(encoding="utf-8")


def same(left, right):
    return sp.expand(left - right) == 0


def test_every_claim_has_its_heading_and_every_heading_its_claim():
    headings = re.findall(r"^### ([a-z-]+)$", THEORY, re.MULTILINE)
    assert len(headings) == len(set(headings))
    certified = {claim for claim, _ in exact.CHECKERS.values()}
    assert set(headings) == set(CLAIMS) | certified
    assert [name for name in headings if name in CLAIMS] == list(CLAIMS)


def test_every_certificate_is_in_the_table():
    table = THEORY[THEORY.index("## 5. Certificates") :]
    rows = dict(re.findall(r"^\| ([a-z-]+) \| ([a-z-]+) \|", table, re.MULTILINE))
    rows.pop("kind", None)
    assert rows == {kind: claim for kind, (claim, _) in exact.CHECKERS.items()}


def test_files_named_in_the_theory_exist():
    folder = Path(proofs_check.__path__[0])
    named = re.findall(r"`((?:bounds|constructions)/\w+\.py)`", THEORY)
    assert named
    assert [name for name in named if not (folder / name).exists()] == []


def test_walk_drift_after_any_number_of_closed_scopes():
    """The height after m scopes of drift r and one closing bracket, relative to the key's own."""
    a, r, m = sp.symbols("a r m")
    assert same(m * r + (r - a), (m + 1) * r - a)


@pytest.mark.parametrize("order", list(product(range(4), repeat=3)))
def test_late_dips_a_penalty_splits_into_a_fixed_part_and_one_that_dips_move(order):
    level, own, dip = order
    fixed, rest = max(0, level - own), min(level, own)
    assert max(0, level - min(own, dip)) == fixed + max(0, rest - dip)


def test_few_sets_the_bound_from_trace_and_norm():
    m, r, gap = sp.symbols("m r gap", positive=True)
    trace, norm = m * gap, m * gap**2 + m * (m - 1) * (r * gap) ** 2
    assert sp.simplify(trace**2 / norm - m / (1 + (m - 1) * r**2)) == 0


@pytest.mark.parametrize("n", [2, 5, 8])
def test_window_per_slot_what_is_left_of_the_logits(n):
    """With symbols for E, D and which keys are dropped: 0, then -D s or -(D s + E s'), all moved by g_0 s_0."""
    E, D = sp.symbols("E D", positive=True)
    s = (*sp.symbols(f"s0:{n}"), sp.Integer(0))
    gates = [D + E, *(D**2 / E if key % 2 else D for key in range(1, n + 1))]
    for j in range(n):
        logit = sum(gates[l] * s[l] for l in range(j))
        for i in range(1, n // 2 + 1):
            content = 0 if j < 2 * i - 1 else -E / D if j == 2 * i - 1 else -1
            logit += content * sum(gates[l] * s[l] for l in (2 * i - 1, 2 * i))
        shift = gates[0] * s[0] if j else 0
        i = (j + 1) // 2
        left = 0 if j == 0 else -D * s[j] if j % 2 == 0 else -(D * s[2 * i - 1] + E * s[2 * i])
        assert same(logit, shift + left), j


def test_window_one_gate_the_table_of_a_triple():
    """All seven reads of three keys: within the triple read keys lie at most e below their highest, others 1 - e."""
    e = sp.Symbol("e", positive=True)
    g = 1 / e
    u_of = {(1, 1, 1): 0, (1, 1, 0): -1, (1, 0, 1): -g, (0, 1, 1): 0, (1, 0, 0): -g - 1, (0, 1, 0): -1, (0, 0, 1): 0}
    for read, u in u_of.items():
        a, b, _ = (1 - x for x in read)
        logits = [sp.Integer(0), e * u + g * a, u + g * (a + b)]
        for value in (sp.Rational(1, 3), sp.Rational(1, 100)):
            numbers = [logit.subs(e, value) for logit in logits]
            kept = [x for x, r in zip(numbers, read) if r]
            rest = [x for x, r in zip(numbers, read) if not r]
            assert max(kept) - min(kept) <= value
            assert not rest or max(kept) - max(rest) >= 1 - value


def test_separation_per_slot_is_a_sum_of_signs():
    n = 6
    s = sp.symbols(f"s0:{n}")
    gates = [sp.Integer(2) ** (n - l) for l in range(n)]
    for j in range(n):
        logit = sum(gates[l] * s[l] for l in range(j)) - sp.Rational(1, 2) * sum(gates[:j])
        assert same(logit, sum(gates[l] / 2 * (2 * s[l] - 1) for l in range(j)))
        assert gates[j] > sum(gates[j + 1 :])


def test_chains_a_rank_one_matrix_of_logits():
    X, i, t, r = sp.symbols("X i t r", positive=True)
    assert sp.simplify(-(X**i) * X ** (-t) + X ** (i - t)) == 0
    window, gap = 1 / X, 1 - 1 / X
    assert sp.simplify((window - r * gap).subs(X, 1 + 1 / r)) == 0


@pytest.mark.parametrize("k", [1, 2, 3])
def test_sparse_sets_squares_are_in_the_span_of_the_moment_curve(k):
    """-prod (x - s)^2 is -x^(2k) plus a combination of x, ..., x^(2k-1) and what all keys share."""
    x = sp.Symbol("x")
    roots = sp.symbols(f"r0:{k}")
    poly = sp.Poly(-sp.prod((x - root) ** 2 for root in roots), x)
    assert poly.degree() == 2 * k
    assert poly.coeff_monomial(x ** (2 * k)) == -1
    assert all(poly.eval(root).equals(0) for root in roots)


def test_simple_upper_one_dimension_per_target():
    """q_i = e_i gives key j the logit H_ij whatever H is, the last target H_mj by its zero query."""
    m = 4
    H = sp.symbols(f"h0:{m}")
    content, bias = [H[i] - H[m - 1] for i in range(m - 1)], H[m - 1]
    for i in range(m):
        query = [int(i == at) for at in range(m - 1)]
        assert same(sum(q * c for q, c in zip(query, content)) + bias, H[i])


def test_rivals_the_selection_logit_is_a_product_in_three_dimensions():
    x, y, M = sp.symbols("x y M")
    query, key = (-2 * M, 4 * M * y, M - 2 * M * y**2), (x**2, x, 1)
    assert same(sum(a * b for a, b in zip(query, key)), 2 * M * (sp.Rational(1, 2) - (x - y) ** 2))
    assert rivals.query_vector("drop 5", 8) == tuple(int(q.subs({M: 8, y: 5})) for q in map(sp.sympify, query))
    assert rivals.key_vector("key 3") == tuple(int(sp.sympify(k).subs(x, 3)) for k in key)
