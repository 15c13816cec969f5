"""Every kind of certificate of the baselines: accepted as it is, rejected with a field changed to what is not true."""

import contextlib
import copy
import json
import random
from fractions import Fraction

import numpy as np
import pytest

from proofs_check import exact
from proofs_check.baselines import baselines
from proofs_check.bounds import lower, softmax_shatter
from proofs_check.bounds.cases import cases
from proofs_check.bounds.lower import ONE_GATE, Head
from proofs_check.certificates import Certificates
from proofs_check.exact.fixed import fixed_model
from proofs_check.exact.heads import model
from proofs_check.keysets import Family, loads
from tests.proofs_check.baselines.definitions import all_subsets, family, full_and_without_one, is_true

BASELINE_KINDS = {
    kind
    for kind, (_, check) in exact.CHECKERS.items()
    if check.__module__ in ("proofs_check.exact.dimensions", "proofs_check.exact.heads", "proofs_check.exact.fixed")
}


def document(spec, record):
    certificates = Certificates(spec)
    assumed = {name: value for name, value in record["assumptions"].items() if name != "specification"}
    certificates.add(record["kind"], record["claim"], assumed, record["witness"])
    return json.loads(json.dumps(certificates.document()))


def found(spec, kind, **assumed):
    """The first certificate of a kind that `check` writes for these assumptions."""
    certificates = Certificates(spec)
    baselines(spec, certificates)
    for record in certificates.records:
        if record["kind"] == kind and assumed.items() <= record["assumptions"].items():
            return document(spec, record)
    raise AssertionError(kind)


def a_norm():
    signs = np.array([[1]])
    for _ in range(3):
        signs = np.block([[signs, signs], [signs, -signs]])
    spec = family(9, [[*np.flatnonzero(row > 0).tolist(), 8] for row in signs])
    names = lambda keys: [spec.keys[key] for key in keys]  # noqa: E731
    shattering = lower.Shattering(cases(spec))
    (bound,) = [
        bound
        for bound in lower.separation(cases(spec), names, Head(biases=False), 9, shattering)
        if bound.kind == "forster"
    ]
    return document(spec, {**vars(bound), "assumptions": bound.assumed})


def a_radon_vector():
    """The corners of a square, both ends of a diagonal wanted."""
    spec = family(4, [(0, 3)])
    keys = [[0, 0], [0, 1], [1, 0], [1, 1]]
    vector = [int(c) for c in softmax_shatter.radon(keys)]
    witness = {"keys": keys, "biases": [0, 1, 1, 0], "vector": vector, "query": 1}
    assumed = model("softmax", "separation")
    return document(spec, {"kind": "radon", "claim": "softmax-shatter", "assumptions": assumed, "witness": witness})


TWO_BLOCKS = family(4, [(0, 2), (0, 3), (1, 2), (0, 1, 2), (2,), (3,)], (1, 3))
HISTORIES = loads("histories: [[{push: a}, {push: b}, {query: [a, b]}, {query: [a]}], [{push: b}, {query: [b]}]]")

CASES = {
    "shattered-set": lambda: found(all_subsets(3), "shattered-set", head="softmax"),
    "shattered-set, FoX": lambda: found(all_subsets(4), "shattered-set", head="fox", gates=ONE_GATE),
    "shattered-set, halves": lambda: found(all_subsets(5, 2), "shattered-set", head="softmax"),
    "shattered-set, no biases": lambda: found(all_subsets(5, 2), "shattered-set", biases="none"),
    "shattered-pairs": lambda: found(all_subsets(4), "shattered-pairs", head="fox"),
    "shattered-pairs, softmax": lambda: found(family(3, [(0,), (0, 1)]), "shattered-pairs", head="softmax"),
    "few-sets-trace": lambda: found(full_and_without_one(5), "few-sets-trace", ratio="1/3"),
    "face-chain": lambda: found(full_and_without_one(4), "face-chain", head="softmax", biases="one per key"),
    "face-chain, no biases": lambda: found(full_and_without_one(4), "face-chain", biases="none"),
    "face-chain, FoX": lambda: found(all_subsets(3), "face-chain", head="fox"),
    "forster": a_norm,
    "radon": a_radon_vector,
    "construction": lambda: found(all_subsets(3), "construction", notion="uniform"),
    "construction, no biases": lambda: found(all_subsets(2), "construction", biases="none"),
    "construction, one gate": lambda: found(all_subsets(3), "construction", gates=ONE_GATE, notion="separation"),
    "construction, gates per slot": lambda: found(all_subsets(5), "construction", notion="window", head="fox"),
    "construction, two blocks": lambda: found(TWO_BLOCKS, "construction"),
    "frozen-ratio": lambda: found(all_subsets(2), "frozen-ratio", head="softmax", notion="separation"),
    "frozen-ratio, FoX": lambda: found(all_subsets(2), "frozen-ratio", head="fox", notion="window"),
    "frozen-logits": lambda: found(family(3, [(0,), (0, 1)]), "frozen-logits", head="softmax"),
    "frozen-logits, FoX": lambda: found(all_subsets(2), "frozen-logits", head="fox", notion="separation"),
    "frozen-logits, blocks": lambda: found(family(4, [(0, 1), (2,)], (1, 3)), "frozen-logits", head="fox"),
}


def accepted(doc):
    return [verdict.accepted for verdict in exact.verify(doc)]


def test_every_kind_has_a_case():
    assert {name.split(",")[0] for name in CASES} == BASELINE_KINDS


@pytest.mark.parametrize("name", CASES)
def test_an_honest_certificate_is_accepted(name):
    doc = CASES[name]()
    (verdict,) = exact.verify(doc)
    assert verdict.accepted, verdict.statement
    assert verdict.kind == name.split(",")[0]
    assert true(doc)


def true(doc):
    """By the definitions. Of another shape than a certificate of the kind: no statement, so not true."""
    record = doc["certificates"][0]
    try:
        return is_true(
            loads(json.dumps(doc["specification"]), "s.json"), record["kind"], record["assumptions"], record["witness"]
        )
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration):
        return False


def places(value, path=()):
    yield path
    if isinstance(value, dict | list):
        for part in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[part], (*path, part))


def get(doc, path):
    for part in path:
        doc = doc[part]
    return doc


WORDS = {
    "head": ["fox", "softmax", "fpa"],
    "notion": ["separation", "window", "uniform"],
    "gates": ["one for all drops", "one per slot", "any"],
    "biases": ["one per key", "none"],
    "ratio": ["1/10", "1/100", "1/3", "9/10", "3/2"],
    "query": ["free", "fixed"],
    "traces": ["all", "half"],
    "content_dimension": ["any", 0, 1],
}


def forgeries(doc, path):
    old = get(doc, path)
    values = [None, True, 1.5, "no key", [], {}]
    if isinstance(old, int):
        values += [old + 1, old - 1, old + 7, -old, f"{2 * old + 1}/2"]
    if isinstance(old, str):
        values += [str(Fraction(old) + 1)] if "/" in old and path[-1] != "ratio" else []
        values += WORDS.get(path[-1], doc["specification"]["keys"])
    if isinstance(old, list):
        values += [old[1:], old[:-1], [*old, *old[:1]], old[::-1]]
    if isinstance(old, dict):
        values += [{k: v for k, v in old.items() if k != gone} for gone in old] + [{**old, "extra": 1}]
    for value in values:
        if json.dumps(value) != json.dumps(old):
            changed = copy.deepcopy(doc)
            get(changed, path[:-1])[path[-1]] = value
            yield changed


@pytest.mark.parametrize("name", CASES)
def test_each_field_changed_in_turn_is_rejected(name):
    """What is still accepted is still true, by the definitions; and no place is without a forgery that is rejected."""
    doc = CASES[name]()
    claim_is_enough = {"specification", "head", "query", "notion", "biases", "gates", "ratio", "content_dimension"}
    for path in places(doc["certificates"][0], ("certificates", 0)):
        if path == ("certificates", 0):
            continue
        verdicts = [(forgery, accepted(forgery) == [True]) for forgery in forgeries(doc, path)]
        assert not all(good for _, good in verdicts), path
        for forgery, good in verdicts:
            if good:
                record = forgery["certificates"][0]
                assert set(record["assumptions"]) <= claim_is_enough
                assert true(forgery), (path, get(forgery, path))


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("construction", "frozen-l", "radon"))])
def test_what_is_rejected_is_not_true(name):
    """The checker is not merely strict: forged numbers that it rejects are false by the definitions."""
    doc = CASES[name]()
    rejected = 0
    for path in places(doc["certificates"][0]["witness"], ("certificates", 0, "witness")):
        if path[-1] not in ("dimension", "query") and type(get(doc, path)) is int:
            for forgery in forgeries(doc, path):
                if type(get(forgery, path)) is int and accepted(forgery) == [False]:
                    rejected += 1
                    assert not true(forgery), path
    assert rejected > 5


def test_another_specification_is_not_covered():
    doc = CASES["shattered-set"]()
    doc["specification"]["targets"].pop()
    assert accepted(doc) == [False]


def both(spec, kind, claim, assumed, witness):
    return exact.verify(document(spec, {"kind": kind, "claim": claim, "assumptions": assumed, "witness": witness}))[0]


def test_tokens_between_keys_count_for_fox_only():
    """Keys 1 and 2 read singly: shattered; but D1 stands between them when dips come after each key."""
    witness = {"keys": ["k1", "k2"], "queries": [1, 2], "traces": "all", "dimension": 1}
    for slots, softmax, per_slot, one_gate in (((0, 1), True, False, False), ((1,), True, True, True)):
        spec = family(2, [(0,), (1,)], slots)
        found = [
            both(spec, "shattered-set", "softmax-shatter", model(head, "separation", gates=gates), witness).accepted
            for head, gates in (("softmax", "one per slot"), ("fox", "one per slot"), ("fox", "one for all drops"))
        ]
        assert found == [softmax, per_slot, one_gate]


def test_one_gate_needs_only_as_many_drops():
    """{1, 4} and {2, 3} drop other keys between 1 and 3, but one each."""
    spec = family(4, [(0, 3), (1, 2)])
    witness = {"keys": ["k1", "k3"], "queries": [1, 2], "traces": "all", "dimension": 1}
    for gates, expected in (("one for all drops", True), ("one per slot", False)):
        found = both(spec, "shattered-set", "softmax-shatter", model("fox", "separation", gates=gates), witness)
        assert found.accepted == expected


def test_two_histories_share_no_tokens():
    spec = loads("histories: [[{push: a}, {push: b}, {query: [a]}], [{push: a}, {push: b}, {query: [b]}]]")
    witness = {"keys": ["a", "b"], "queries": [1, 2], "traces": "all", "dimension": 1}
    for head, gates, expected in (
        ("softmax", "one per slot", True),
        ("fox", "one per slot", False),
        ("fox", "one for all drops", False),
    ):
        found = both(spec, "shattered-set", "softmax-shatter", model(head, "separation", gates=gates), witness)
        assert found.accepted == expected
    step = [{"query": 1, "low": "b", "high": "a"}, {"query": 2, "low": "a", "high": "b"}]
    for head, expected in (("softmax", True), ("fox", False)):
        assumed = fixed_model(head, "separation")
        assert both(spec, "frozen-ratio", "frozen-ratio", assumed, {"cycle": step}).accepted == expected


def test_a_key_that_is_not_there_yet_is_no_witness():
    witness = {"keys": ["a", "b"], "queries": [2, 3], "traces": "all", "dimension": 1}
    found = both(HISTORIES, "shattered-set", "softmax-shatter", model("softmax", "separation"), witness)
    assert not found.accepted
    assert "no key" in found.statement


def test_a_certificate_without_a_specification_is_rejected():
    for name in ("shattered-set", "construction", "frozen-ratio"):
        doc = CASES[name]()
        doc["specification"] = None
        del doc["certificates"][0]["assumptions"]["specification"]
        assert accepted(doc) == [False]


def test_gates_have_no_place_in_histories():
    assumed = model("fox", "separation", gates="one for all drops")
    witness = {"dimension": 0, "keys": [[], []], "biases": [1, 0], "gates": [1, 1], "queries": [[]] * 3}
    found = both(HISTORIES, "construction", "construction", assumed, {**witness, "window": 1, "gap": 1})
    assert not found.accepted
    assert "histories" in found.statement


def test_a_slot_that_is_not_there_has_no_gate():
    """Without a dip after key 2 its drop changes nothing."""
    spec = Family(("a", "b"), ((0,), (1,)), (0,))
    witness = {"dimension": 0, "keys": [[], []], "biases": [0, -1], "gates": [2, 100], "queries": [[], []]}
    found = both(spec, "construction", "construction", model("fox", "separation"), {**witness, "window": 0, "gap": 1})
    assert found.accepted, found.statement


# Statements that only one line of a checker stands against.

SEPARATION, UNIFORM = model("softmax", "separation"), model("softmax", "uniform")


def refused(spec, kind, claim, assumed, witness, because):
    found = both(spec, kind, claim, assumed, witness)
    assert not found.accepted
    assert because in found.statement


def test_shattered_by_halves_needs_one_of_each_two_complements():
    """{1}, {2, 3} and {2} say nothing of {3} and {1, 2}."""
    spec = family(3, [(0,), (1, 2), (1,), (0, 1)])
    good = {"keys": ["k1", "k2", "k3"], "queries": [1, 3, 4], "traces": "half", "dimension": 1}
    assert both(spec, "shattered-set", "softmax-shatter", SEPARATION, good).accepted
    bad = {**good, "queries": [1, 2, 3]}
    refused(spec, "shattered-set", "softmax-shatter", SEPARATION, bad, "complements")


def test_endless_shattering_is_refused_at_once():
    spec = family(70, [range(70)])
    witness = {"keys": list(spec.keys), "queries": [1], "traces": "all", "dimension": 69}
    refused(spec, "shattered-set", "softmax-shatter", SEPARATION, witness, "expected 2 to 24")
    witness = {"pairs": [[a, b] for a in spec.keys[:6] for b in spec.keys[6:12]], "queries": [1], "dimension": 36}
    assumed = model("softmax", "window", ratio="1/10")
    refused(spec, "shattered-pairs", "fox-pairs", assumed, witness, "expected 2 to the number")


def test_a_pair_of_one_value_shows_nothing():
    spec = family(3, [(0,), (0, 2)])
    assumed = model("softmax", "window", ratio="1/10")
    for queries in ([1, 2], [1, 1]):
        witness = {"pairs": [["k1", "k2"]], "queries": queries, "dimension": 1}
        refused(spec, "shattered-pairs", "fox-pairs", assumed, witness, "missing")


def test_radon_vectors_are_for_softmax():
    doc = a_radon_vector()
    doc["certificates"][0]["assumptions"] |= {"head": "fox", "gates": "one per slot"}
    (verdict,) = exact.verify(doc)
    assert not verdict.accepted


@pytest.mark.parametrize("ratio", ["3/2", "1/1", "-1/10", 1])
def test_a_window_is_less_than_the_gap_and_no_less_than_nothing(ratio):
    spec = family(2, [(0,), (0, 1)])
    logits = {"logits": [[1, 0]], "window": 1, "gap": 1}
    refused(spec, "frozen-logits", "frozen-ratio", fixed_model("softmax", "window", ratio), logits, "ratio")
    cycle = {"cycle": [{"query": 1, "low": "k2", "high": "k1"}, {"query": 2, "low": "k1", "high": "k2"}]}
    refused(spec, "frozen-ratio", "frozen-ratio", fixed_model("softmax", "window", ratio), cycle, "ratio")
    head = {"dimension": 0, "keys": [[], []], "biases": [1, 0], "gates": [], "queries": [[], []], "window": 1, "gap": 1}
    refused(spec, "construction", "construction", model("softmax", "window", ratio=ratio), head, "ratio")
    few = {"keys": ["k2"], "base": 2, "queries": [1], "dimension": 0}
    refused(spec, "few-sets-trace", "few-sets", model("softmax", "window", ratio=ratio), few, "ratio")


def test_two_keys_that_are_not_read_demand_nothing():
    spec = family(3, [(0,)])
    cycle = {"cycle": [{"query": 1, "low": "k2", "high": "k3"}, {"query": 1, "low": "k3", "high": "k2"}]}
    refused(spec, "frozen-ratio", "frozen-ratio", fixed_model("softmax", "separation"), cycle, "not read")


@pytest.mark.parametrize("gap", [0, -1])
def test_a_gap_is_above_zero(gap):
    spec = family(2, [(0,)])
    logits = {"logits": [[gap, 0]], "window": 0, "gap": gap}
    refused(spec, "frozen-logits", "frozen-ratio", fixed_model("softmax", "separation"), logits, "not separated")
    head = {"dimension": 0, "keys": [[], []], "biases": [gap, 0], "gates": [], "queries": [[]], "window": 0, "gap": gap}
    refused(spec, "construction", "construction", UNIFORM, head, "not separated")


def test_no_biases_are_no_biases():
    spec = family(2, [(0,)])
    head = {"dimension": 0, "keys": [[], []], "biases": [1, 0], "gates": [], "queries": [[]], "window": 0, "gap": 1}
    assert both(spec, "construction", "construction", UNIFORM, head).accepted
    refused(spec, "construction", "construction", model("softmax", "uniform", biases="none"), head, "expected none")


@pytest.mark.parametrize(("bias", "good"), [(-1, True), (0, True), (Fraction(1, 2), False), (1, False)])
def test_biases_may_allow_what_points_forbid(bias, good):
    """c . b <= 0 for the corners of a square: a bias on a corner of the wanted diagonal."""
    doc = a_radon_vector()
    witness = doc["certificates"][0]["witness"]
    witness["biases"] = [lower.number(bias / c) if c else 0 for c in witness["vector"][:1]] + [0, 0, 0]
    assert accepted(doc) == [good]


def test_drops_are_counted_between_neighbours():
    """Two drops between keys 1 and 5 in each set, but once none of them stands between 1 and 3."""
    targets = [(0,), (2,), (4,), (0, 2), (0, 4), (2, 4)]
    fill = {(0,): (1,), (2,): (1,), (4,): (1, 3), (0, 2): (), (0, 4): (1,), (2, 4): (1,)}
    spec = family(5, [tuple(sorted((*t, *fill[t]))) for t in targets])
    keys = ["k1", "k3", "k5"]
    witness = {"keys": keys, "queries": [1, 2, 3, 4, 5, 6], "traces": "all", "dimension": 2}
    assumed = model("fox", "separation", gates=ONE_GATE)
    refused(spec, "shattered-set", "softmax-shatter", assumed, witness, "differ")
    assert {sum(k not in t for k in range(4)) for t in spec.targets} == {2}


JUNK = [
    None,
    True,
    1.5,
    "",
    "k1",
    "1/0",
    "-1/3",
    10**399,
    10**401,
    0,
    1,
    2,
    -1,
    [],
    {},
    [[]],
    [1] * 50,
    "fox",
    "window",
]


def test_nothing_in_a_file_is_a_traceback():
    rng = random.Random(2)
    documents = [build() for build in CASES.values()]
    for _ in range(3000):
        doc = copy.deepcopy(rng.choice(documents))
        for _ in range(rng.randint(1, 3)):
            path = rng.choice([path for path in places(doc) if path])
            get(doc, path[:-1])[path[-1]] = copy.deepcopy(rng.choice(JUNK))
        with contextlib.suppress(LookupError, TypeError):  # half of them with the digest of what is now there
            if rng.random() < 0.5:
                doc["certificates"][0]["assumptions"]["specification"] = exact.digest(doc["specification"])
        assert all(isinstance(verdict.statement, str) for verdict in exact.verify(doc))
