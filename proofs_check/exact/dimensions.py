"""Checkers of lower bounds: why no head of less content dimension reads the targets, with free queries.

A query's logits, up to what all keys share, are q . k_j + b_j, minus for FoX the gates of the drops from j on; between
keys a and a' these gates depend on the query only through the tokens between a and a'. Each witness names keys and
queries with the same tokens between the keys ("frozen"), so that a bias per key stands for the gates of all of them,
and the bound that follows, "dimension". The proofs are in THEORY.md under the claims.
"""

from fractions import Fraction
from itertools import pairwise, product
from math import ceil, isqrt
from typing import Any

from proofs_check.exact.certificate import checker
from proofs_check.exact.fixed import Fields
from proofs_check.exact.heads import GATES, assume_model, matrix, said
from proofs_check.exact.linear import dot, positive_definite
from proofs_check.exact.queries import Queries, Query
from proofs_check.exact.specification import Specification
from proofs_check.exact.values import Rejected, entries, fields, need, rational, show, whole

MAX_SHATTERED = 24
MAX_SIGNS = 200  # rows or columns, the fewer of them, of a sign matrix


def _frozen(head: str, keys: list[Any], queries: list[Query], count: bool = False) -> None:
    """Rejects unless all queries have the keys and, of a FoX head, the same tokens (or count of drops) between them."""
    need(queries, "queries: expected at least one")
    for query in queries:
        query.has(keys)
    position = queries[0].present
    if head == "fox" and keys:
        order = sorted(keys, key=lambda key: position[key])
        for pair in pairwise(order) if count else [order]:
            tokens = {query.between(list(pair))[count] for query in queries}
            need(len(tokens) == 1, f"queries: the tokens between {show(pair[0])} and {show(pair[-1])} differ")


def _bound(given: Fields, witness: Fields, dimension: int, why: str) -> str:
    need(whole(witness["dimension"], "dimension") == dimension, f"dimension: the bound is {dimension}")
    return f"{said(given)}: content dimension at least {dimension}: {why}"


@checker("shattered-set", "softmax-shatter")
def shattered_set(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: keys and queries, one for each set of the keys but the empty one and all of them ("traces": "all"), or
    one for each such set or its complement ("half"). Points that are shattered are affinely independent; shattered by
    halves they are when the biases are put into the content."""
    head = assume_model(given, "separation", biases=True)
    fields(witness, ("keys", "queries", "traces", "dimension"), "witness")
    keys, queries = entries(witness["keys"], "keys"), Queries(spec).all(witness["queries"])
    _frozen(head, keys, queries, given.get("gates") == GATES[0])
    need(2 <= len(keys) <= MAX_SHATTERED, f"keys: expected 2 to {MAX_SHATTERED}")
    traces = {tuple(key in query.alive for key in keys) for query in queries}
    half = witness["traces"] == "half"
    need(half or witness["traces"] == "all", "traces: expected all or half")
    need(len(traces) == len(queries) == (2 ** len(keys) - 2) >> half, "queries: expected one for each trace")
    for trace in traces:
        need(any(trace) and not all(trace), "queries: one reads all or none of the keys")
        need(not half or tuple(not bit for bit in trace) not in traces, "queries: two read complements")
    dimension = len(keys) - 1 - (half and given["biases"] != "none")
    return _bound(given, witness, dimension, f"{len(keys)} keys with {len(traces)} traces")


@checker("shattered-pairs", "fox-pairs")
def shattered_pairs(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: pairs of keys, and queries. The difference of a pair's logits is >= gap, within the window or <= -gap.
    Each pair takes two of these values, and the queries all combinations: as many linear functionals with one offset
    and threshold each are shattered, so they are linearly independent."""
    head = assume_model(given, "window", gates=GATES[1:])
    fields(witness, ("pairs", "queries", "dimension"), "witness")
    pairs, queries = entries(witness["pairs"], "pairs"), Queries(spec).all(witness["queries"])
    need(len(pairs) <= MAX_SHATTERED and len(queries) == 2 ** len(pairs), "queries: expected 2 to the number of pairs")
    for pair in pairs:
        need(len(entries(pair, "pairs")) == 2, "pairs: expected two keys")
        _frozen(head, pair, queries)
    traces = [[(pair[0] in query.alive, pair[1] in query.alive) for pair in pairs] for query in queries]
    need(all(any(pair) for trace in traces for pair in trace), "queries: one reads neither key of a pair")
    values = [sorted({trace[at] for trace in traces}) for at in range(len(pairs))]
    # As many as there are combinations of 1 to 3 values each, and 2 to the number of pairs: two values each.
    need(sorted(map(tuple, traces)) == sorted(product(*values)), "queries: a combination of values is missing")
    return _bound(given, witness, len(pairs), f"{len(queries)} combinations of values of pairs of keys")


@checker("few-sets-trace", "few-sets")
def few_sets_trace(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: keys, a query that reads all of them ("base"), and for each key one that reads all the others only. The
    differences to the base have diagonal <= -gap and otherwise at most the window: rank >= trace squared / norm."""
    head = assume_model(given, "window")
    fields(witness, ("keys", "base", "queries", "dimension"), "witness")
    queries = Queries(spec)
    keys, base, others = (
        entries(witness["keys"], "keys"),
        queries.query(witness["base"]),
        queries.all(witness["queries"]),
    )
    _frozen(head, keys, [base, *others])
    need(base.alive.issuperset(keys), "base: it does not read all keys")
    need(len(others) == len(keys), "queries: expected one for each key")
    for key, query in zip(keys, others):
        need(set(keys) - query.alive == {key}, f"{query.row.name}: it does not read all keys but {show(key)}")
    m, ratio = len(keys), Fraction(rational(given["ratio"], "ratio"))
    bound = ceil(m / (1 + (m - 1) * ratio**2)) - 1
    return _bound(given, witness, bound, f"each of {m} keys is dropped alone")


@checker("face-chain", "face-chain")
def face_chain(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: keys, and for each but the first a query that reads all keys before it and not itself, and one that
    reads it too (only the former without biases). The difference of the two is constant on the keys before and lower
    on this key, so it lies outside their affine hull."""
    head = assume_model(given, "uniform", biases=True)
    fields(witness, ("keys", "queries", "dimension"), "witness")
    keys, steps, queries = entries(witness["keys"], "keys"), entries(witness["queries"], "queries"), Queries(spec)
    need(len(keys) >= 2 and len(steps) == len(keys) - 1, "queries: expected those of each key but the first")
    for at, numbers in enumerate(steps, 1):
        step = queries.all(numbers)
        need(
            len(step) == (1 if given["biases"] == "none" else 2),
            "queries: expected one without the key and one with it",
        )
        _frozen(head, keys[: at + 1], step)
        for query, missing in zip(step, ({keys[at]}, set())):
            found = set(keys[: at + 1]) - query.alive
            need(found == missing, f"{query.row.name}: of the keys up to {show(keys[at])} it misses others")
    return _bound(given, witness, len(keys) - 1, f"a chain of {len(keys)} faces")


@checker("forster", "forster")
def forster(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: keys, queries and a number above the largest eigenvalue of M Mᵀ, M being their matrix of signs +1 (read)
    and -1: its sign rank is at least sqrt(keys * queries / norm) (Forster 2002), and at most the dimension plus 2."""
    head = assume_model(given, "separation", biases=True)
    fields(witness, ("keys", "queries", "norm", "dimension"), "witness")
    keys, queries = entries(witness["keys"], "keys"), Queries(spec).all(witness["queries"])
    _frozen(head, keys, queries)
    signs = [[1 if key in query.alive else -1 for key in keys] for query in queries]
    small = signs if len(signs) <= len(keys) else [list(column) for column in zip(*signs)]
    need(0 < len(small) <= MAX_SIGNS, f"keys: expected at most {MAX_SIGNS} keys or queries")
    norm = Fraction(rational(witness["norm"], "norm"))
    rest = [[norm.numerator * (a is b) - norm.denominator * int(dot(a, b)) for b in small] for a in small]
    need(positive_definite(rest), f"norm: {norm} is not above the largest eigenvalue")
    square = len(keys) * len(queries) / norm
    least = isqrt(ceil(square) - 1) + 1  # the least whole number whose square is at least that
    return _bound(
        given, witness, max(0, least - (1 if given["biases"] == "none" else 2)), f"sign rank at least {least}"
    )


@checker("radon", "softmax-shatter")
def radon(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: key vectors and biases in the order of the keys, an affine dependency c, and a query. With these keys no
    query vector separates its target: it holds {c > 0} and avoids {c < 0}, but sum c_j (q . k_j + b_j) = c . b <= 0."""
    assume_model(given, "separation")
    need(given["head"] == "softmax", "assumptions: head: expected softmax")
    fields(witness, ("keys", "biases", "vector", "query"), "witness")
    n, query = len(spec.keys), Queries(spec).query(witness["query"])
    first = entries(witness["keys"], "keys")[:1]
    points = matrix(witness["keys"], n, len(entries(first[0], "keys")) if first else 0, "keys")
    (biases,), (vector,) = matrix([witness["biases"]], 1, n, "biases"), matrix([witness["vector"]], 1, n, "vector")
    need(any(vector) and not sum(vector), "vector: expected a sum of zero")
    need(not any(dot(vector, column) for column in zip(*points)), "vector: no affine dependency of the keys")
    for key, c in zip(spec.keys, vector):
        if c and (key not in query.present or (c > 0) != (key in query.alive)):
            raise Rejected(f"vector: {show(key)} is on the wrong side of {query.row.name}")
    need(dot(vector, biases) <= 0, "vector: the biases allow it")
    return f"{query.row.name}: with these keys no query separates the target"
