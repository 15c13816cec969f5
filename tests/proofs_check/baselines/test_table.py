"""The bounds that are known, number by number, each with certificates that the core accepts."""

import json
import random
from fractions import Fraction
from math import ceil

import numpy as np
import pytest

import proofs_check.baselines
from proofs_check import exact
from proofs_check.answer import check
from proofs_check.baselines import baselines
from proofs_check.certificates import Certificates
from proofs_check.keysets import Family, from_options, loads
from tests.proofs_check.baselines.definitions import (
    all_subsets,
    chain_at_end,
    family,
    full_and_without_one,
    is_true,
    random_family,
    random_histories,
)


def answered(spec, dim_search=False):
    """The entries, once the core has accepted every certificate and every bound but 0 names one of its own kind."""
    certificates = Certificates(spec)
    entries = baselines(spec, certificates, dim_search)
    verdicts = exact.verify(json.loads(json.dumps(certificates.document())))
    assert [verdict.statement for verdict in verdicts if not verdict.accepted] == []
    for entry in claims(entries):
        records = {side: number and certificates.records[number - 1] for side, number in entry["certificates"].items()}
        assert (records["lower"] is None) == (entry["lower"] == 0)
        for side, record in records.items():
            if record is not None:
                assert record["witness"]["dimension"] == entry[side]
                assert (record["kind"] == "construction") == (side == "upper")
                assert holds_for(record["assumptions"], entry, side)
                if isinstance(spec, Family) and len(spec.keys) * len(spec.targets) < 3000:
                    assert is_true(spec, record["kind"], record["assumptions"], record["witness"])
    return entries


def claims(entries):
    for entry in entries.values():
        for claim in entry["free"].values():
            yield claim
            yield from (claim[name] for name in ("without_biases", "gate_per_slot", "one_gate") if name in claim)


def holds_for(assumed, entry, side):
    """Whether a certificate for these heads and this notion bounds the dimension of the entry's from that side."""
    order = ["separation", "window", "uniform"]
    weak, strong = (assumed, entry) if side == "lower" else (entry, assumed)
    notion = order.index(weak["notion"]) <= order.index(strong["notion"])
    ratio = assumed.get("ratio", "1/10") == "1/10"
    gates = ["none", "one for all drops", "one per slot"]
    many, few = (assumed, entry) if side == "lower" else (entry, assumed)
    gate = gates.index(many.get("gates", "none")) >= gates.index(few.get("gates", "none"))
    bias = assumed["biases"] == entry["biases"] or many["biases"] == "one per key"
    return notion and ratio and gate and bias


def bounds(entry):
    return entry["lower"], entry["upper"]


@pytest.mark.parametrize("n", range(2, 9))
def test_all_subsets(n):
    entries = answered(all_subsets(n))
    softmax, fox = entries["softmax"]["free"], entries["fox"]["free"]
    for notion in ("separation", "window", "uniform"):
        assert bounds(softmax[notion]) == (n - 1, n - 1)
    for notion in ("separation", "uniform"):
        assert bounds(softmax[notion]["without_biases"]) == (n - 1, n - 1)
    half = ceil(n / 2) - 1
    assert [fox[notion]["gates"] for notion in fox] == ["one for all drops", "one per slot", "one per slot"]
    assert bounds(fox["separation"]) == (half, half)
    assert bounds(fox["separation"]["gate_per_slot"]) == (0, 0)
    assert bounds(fox["window"]) == (n // 2, n // 2)
    assert bounds(fox["window"]["one_gate"]) == (max(half, n // 2), ceil(2 * n / 3) - 1)
    assert bounds(fox["uniform"]) == (n - 1, n - 1)
    for head in ("softmax", "fox"):
        fixed = entries[head]["fixed"]
        assert fixed["realisable"] is False
        assert fixed["witness"]["kind"] == "frozen-ratio"
        assert len(fixed["witness"]["cycle"]) == 2


@pytest.mark.parametrize("n", [2, 3, 7, 12])
def test_a_decreasing_chain_with_dips_at_the_end(n):
    entries = answered(chain_at_end(n))
    for head in ("softmax", "fox"):
        free = entries[head]["free"]
        assert bounds(free["separation"]) == (0, 0)
        assert bounds(free["window"]) == (1, 1)
        assert bounds(free["uniform"]) == (n - 1, n - 1)
        assert entries[head]["fixed"]["realisable"] is False
        assert entries[head]["fixed"]["separation"]["realisable"] is True
    assert bounds(entries["softmax"]["free"]["separation"]["without_biases"]) == (1, 1)


def test_all_keys_and_all_but_one_of_50():
    free = answered(full_and_without_one(50))["softmax"]["free"]
    assert bounds(free["uniform"]) == (49, 49)
    assert bounds(free["separation"]) == (1, 1)
    at = {entry["ratio"]: entry["lower"] for entry in free["window"]["few_sets"]["at"]}
    assert at["1/10"] == ceil(50 / (1 + 49 / 100)) - 1 == 33
    assert at["1/100"] == ceil(50 / (1 + 49 / 10_000)) - 1 == 49
    assert at["1/3"] == ceil(50 / (1 + Fraction(49, 9))) - 1 == 7
    assert free["window"]["lower"] == 33


def test_all_sets_of_two_of_eight_keys():
    free = answered(all_subsets(8, at_most=2))["softmax"]["free"]
    for notion in ("separation", "window", "uniform"):
        assert bounds(free[notion]) == (3, 3)
    for notion in ("separation", "uniform"):
        assert bounds(free[notion]["without_biases"]) == (4, 4)


def test_two_keys_at_the_end():
    spec = family(2, [(0,), (1,)], (1,))
    entries = answered(spec)
    for head in ("softmax", "fox"):
        assert bounds(entries[head]["free"]["uniform"]) == (1, 1)
        assert entries[head]["fixed"]["separation"]["realisable"] is False
    answer = check(spec)
    assert answer.heads["fpa"]["realisable"] is False
    assert answer.heads["fpa"]["witness"]["kind"] == "fpa-cycle"


def test_the_answer_of_check_has_all_heads_in_one_document():
    answer = check(all_subsets(3))
    document = json.loads(json.dumps(answer.to_json("certificates.json")))
    heads = document["heads"]
    assert list(heads) == ["fpa", "fpa-walk", "softmax", "fox"]
    fpa = heads["fpa"]
    assert (fpa["query"], fpa["notion"], fpa["realisable"], fpa["dimension"]) == ("fixed", "uniform", True, 0)
    entry = heads["softmax"]["free"]["separation"]
    assert {"lower", "upper", "query", "notion", "biases", "certificates", "witness", "shattering"} <= set(entry)
    assert {verdict.accepted for verdict in exact.verify(answer.certificates.document())} == {True}


def test_a_hadamard_family_is_beyond_shattering():
    """64 keys and 64 sets: at most log2(64) keys are shattered, a norm of 8 needs 6 dimensions."""
    matrix = np.array([[1]])
    for _ in range(6):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    spec = family(64, [np.flatnonzero(row > 0).tolist() for row in matrix])
    entries = answered(spec)["softmax"]["free"]
    assert entries["separation"]["lower"] == 6
    assert entries["separation"]["witness"]["lower"]["kind"] == "forster"
    assert entries["separation"]["without_biases"]["lower"] == 7


def test_intervals_take_one_dimension_and_stars_none():
    intervals = family(6, [range(a, b) for a in range(6) for b in range(a + 1, 7)])
    assert bounds(answered(intervals)["softmax"]["free"]["separation"]) == (1, 1)
    assert bounds(answered(family(5, [(0, 2, 4)]))["softmax"]["free"]["uniform"]) == (0, 0)


HISTORY = """
histories:
  - [{push: a}, {push: b}, {query: [a, b]}, {push: c}, {query: [a, c]}, {query: [c]}]
  - [{push: c}, {push: a}, {query: [a]}, {query: [a, c]}]
"""


def test_histories_are_families_of_their_queries():
    entries = answered(loads(HISTORY))
    assert bounds(entries["softmax"]["free"]["uniform"]) == (1, 1)
    assert entries["fox"]["fixed"]["realisable"] is False
    cycle = entries["fox"]["fixed"]["witness"]["cycle"]
    assert {step["history"] for step in cycle} == {1}


def test_100_random_histories():
    rng = random.Random(100)
    decided = set()
    for _ in range(100):
        entries = answered(random_histories(rng))
        for claim in claims(entries):
            assert 0 <= claim["lower"] <= claim["upper"]
        decided.add(tuple(entries[head]["fixed"]["realisable"] for head in ("softmax", "fox")))
    assert decided == {(False, False), (False, True), (True, True)}


def test_fox_joins_no_two_histories():
    """a over b in one history and b over a in another: gates may differ, a softmax bias may not."""
    spec = loads("histories: [[{push: a}, {push: b}, {query: [a]}], [{push: a}, {push: b}, {query: [b]}]]")
    entries = answered(spec)
    assert entries["softmax"]["fixed"]["realisable"] is False
    assert entries["fox"]["fixed"]["realisable"] is True
    assert bounds(entries["softmax"]["free"]["separation"]) == (1, 1)
    assert bounds(entries["fox"]["free"]["separation"]) == (0, 1)


def test_what_is_too_large_is_said_to_be_left_out(monkeypatch):
    monkeypatch.setattr(proofs_check.baselines, "MAX_CELLS", 1000)
    n = 32
    entries = answered(family(n, [(k,) for k in range(n)]))
    assert entries["fox"]["fixed"]["realisable"] is True  # no two sets begin with the same key
    assert entries["softmax"]["fixed"]["realisable"] is False
    for claim in claims(entries):
        assert bounds(claim) == (0, None)
        assert claim["left_out"].startswith("1,024 ")


def test_undecided_and_uncertified_decisions_say_so(monkeypatch):
    spec = loads("histories: [[{push: a}, {query: [a]}, {push: b}, {query: [b]}]]")
    assert answered(spec)["fox"]["fixed"]["certificate"] is not None
    monkeypatch.setattr(proofs_check.baselines, "MAX_LOGITS", 3)
    fixed = answered(spec)["fox"]["fixed"]
    assert (fixed["realisable"], fixed["certificate"]) == (True, None)
    assert fixed["left_out"] == "a certificate: more than 3 pairs of keys and queries"
    monkeypatch.setattr("proofs_check.bounds.frozen_ratio.MAX_DEMANDS", 0)
    fixed = answered(spec)["softmax"]["fixed"]
    assert fixed["realisable"] is None
    assert "undecided" in fixed["witness"]["text"]


def test_events_are_numbered_with_the_tokens_that_stand_alone():
    text = "[{token: open}, {push: a, token: x}, {push: b, token: x}, {query: [a, b]}, {token: close}, {query: [a]}]"
    witness = answered(loads(f"histories: [{text}]"))["fox"]["fixed"]["witness"]
    assert {step["event"] for step in witness["cycle"]} == {4, 6}
    assert "event 6" in witness["text"]


def test_200_random_families():
    """Lower bounds never exceed upper ones; all certificates hold in the core and by the definition."""
    rng = random.Random(200)
    gaps = []
    for _ in range(200):
        entries = answered(random_family(rng))
        for claim in claims(entries):
            assert 0 <= claim["lower"] <= claim["upper"]
            gaps.append(claim["upper"] - claim["lower"])
        for head in entries.values():
            assert head["fixed"]["realisable"] <= head["fixed"]["separation"]["realisable"]
    assert gaps.count(0) > 0.7 * len(gaps)


def test_a_key_more_or_a_set_more_never_takes_less():
    """Bounds of a family bound those of every family that holds it: lower of the small <= upper of the large."""
    rng = random.Random(3)
    for _ in range(25):
        large = random_family(rng, 4)
        kept = large.targets[: rng.randint(1, len(large.targets))]
        small, big = (list(claims(answered(s))) for s in (family(len(large.keys), kept, large.slots), large))
        assert all(a["lower"] <= b["upper"] for a, b in zip(small, big))


def test_names_stand_in_certificates_as_in_the_specification():
    spec = from_options("left right", "left; right; left right")
    certificates = Certificates(spec)
    baselines(spec, certificates)
    shattered = next(record for record in certificates.records if record["kind"] == "shattered-set")
    assert shattered["witness"]["keys"] == ["left", "right"]
    assert shattered["witness"]["queries"] == [2, 1]
