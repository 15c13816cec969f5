"""The trusted core: accepts what is true, rejects what is not, and never fails otherwise."""

import copy
import itertools
import json
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.errors import InputError
from proofs_check import exact
from proofs_check.bounds.family_decision import family_decision
from proofs_check.bounds.walk_is_a_stack import walk_decision
from proofs_check.certificates import Certificates
from proofs_check.exact.fpa import assumptions
from proofs_check.exact.heads import model
from proofs_check.exact.queries import Queries
from proofs_check.exact.specification import read_specification
from proofs_check.keysets import from_options, loads
from tests.proofs_check import oracle

HISTORY = "histories: [[{push: a}, {push: b}, {push: c}, {query: [a, b]}, {query: [b]}, {push: d}, {query: [b, d]}]]"
NESTED = "histories: [[{push: a}, {push: b}, {push: c}, {query: [a, b]}, {query: [a]}, {push: d}, {query: [a, d]}]]"
REVIVED = "histories: [[{push: a}, {push: b}, {query: [b]}, {query: [a, b]}]]"

CASES = {
    "fpa-levels": (family_decision, from_options(4, "1,3; 2; 1,2,3", "1,2,4")),
    "fpa-levels, history": (family_decision, loads(HISTORY)),
    "fpa-cycle": (family_decision, from_options(3, "1; 2; 3", "at-end")),
    "stack-heights": (walk_decision, from_options(3, "1,3; 2; 1,2")),
    "stack-heights, history": (walk_decision, loads(NESTED)),
    "crossing-pair": (walk_decision, loads(HISTORY)),
    "no-slot": (family_decision, from_options(3, "1,2; 1,2,3", "2")),
    "revived-key": (family_decision, loads(REVIVED)),
}


def document(name):
    decide, spec = CASES[name]
    certificates = Certificates(spec)
    certificates.add_fpa(decide(spec))
    return json.loads(json.dumps(certificates.document()))


def accepted(doc):
    return [verdict.accepted for verdict in exact.verify(doc)]


@pytest.mark.parametrize("name", CASES)
def test_an_honest_certificate_is_accepted(name):
    doc = document(name)
    (verdict,) = exact.verify(doc)
    assert verdict.accepted, verdict.statement
    assert verdict.kind == name.split(",")[0] == doc["certificates"][0]["kind"]
    assert verdict.statement


def test_every_kind_has_a_case():
    fpa_kinds = {kind for kind, (_, check) in exact.CHECKERS.items() if check.__module__ == "proofs_check.exact.fpa"}
    assert {name.split(",")[0] for name in CASES} == fpa_kinds


# Tampering: each field in turn.


def places(value, path=()):
    """Every place of a document, containers included."""
    yield path
    if isinstance(value, dict | list):
        for part in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[part], (*path, part))


def get(doc, path):
    for part in path:
        doc = doc[part]
    return doc


def changed(doc, path, value):
    doc = copy.deepcopy(doc)
    get(doc, path[:-1])[path[-1]] = value
    return doc


def forgeries(doc, path):
    """The document with one place changed in many ways."""
    old = get(doc, path)
    other_types = [None, True, 1.5, float("nan"), "no key", [], {}, 10**500]
    values = [value for value in other_types if not (value == old and type(value) is type(old))]
    if type(old) is int:
        values += [
            old + 1,
            old - 1,
            old + 1000,
            old - 1000,
            -old - 7,
            float(old),
            *([bool(old)] if old in (0, 1) else []),
        ]
    if isinstance(old, str):
        names = doc["specification"]["keys"]
        values += [old + "x", *(name for name in names if name != old)]
    if isinstance(old, list):
        values += [old[1:], old[:-1], [*old, old[0]] if old else [1]]
    if isinstance(old, dict):
        values += [{k: v for k, v in old.items() if k != gone} for gone in old] + [{**old, "extra": 1}]
    return [changed(doc, path, value) for value in values if repr(value) != repr(old)]


def still_true(doc):
    """Whether a changed positive certificate happens to state another truth, by the definition."""
    record = doc["certificates"][0]
    spec = loads(json.dumps(doc["specification"]), "spec.json")
    witness = record["witness"]
    dips = [dict(row) for row in witness["dips"]]
    if record["kind"] == "fpa-levels":
        return oracle.reads_all(spec, dips, [witness["levels"][key] for key in spec.keys])
    return record["kind"] == "stack-heights" and oracle.reads_all(spec, dips, None, witness["increment"])


@pytest.mark.parametrize("name", CASES)
def test_each_field_changed_in_turn_is_rejected(name):
    """Every place has forgeries that are rejected; the few accepted ones are levels or dips that happen to be right."""
    doc = document(name)
    for path in places(doc):
        if not path:
            continue
        if path == ("certificates",):  # the same certificate twice is no forgery
            doc["certificates"] *= 2
            assert accepted(doc) == [True, True]
            del doc["certificates"][1]
            continue
        verdicts = [(forgery, accepted(forgery)) for forgery in forgeries(doc, path)]
        assert any(not all(verdict) for _, verdict in verdicts), path
        for forgery, verdict in verdicts:
            if all(verdict):
                assert path[:3] == ("certificates", 0, "witness"), path
                assert still_true(forgery), (path, get(forgery, path))


@pytest.mark.parametrize("name", CASES)
def test_another_specification_under_the_same_witness_is_rejected_unless_it_is_as_true(name):
    """The specification changed and its digest with it: only what brute force confirms may pass."""
    doc = document(name)
    rejected = 0
    for path in places(doc["specification"], ("specification",)):
        for forgery in forgeries(doc, path):
            try:
                spec = loads(json.dumps(forgery["specification"]), "spec.json")
            except InputError:
                spec = None
            forgery["certificates"][0]["assumptions"]["specification"] = exact.digest(forgery["specification"])
            if not all(accepted(forgery)):
                rejected += 1
                continue
            assert spec is not None, forgery["specification"]
            if name.startswith(("fpa-levels", "stack-heights")):
                assert still_true(forgery)
            else:
                possible = oracle.walk_possible if name == "crossing-pair" else oracle.free_possible
                assert not possible(spec)
    assert rejected > 10


def test_random_witnesses_are_accepted_exactly_when_the_definition_says_so():
    rng = random.Random(3)
    outcomes = []
    for _ in range(1500):
        spec = rng.choice((oracle.random_family, oracle.random_histories))(rng, 3)
        rows = oracle.rows_of(spec)
        levels = [rng.randint(0, 2) for _ in spec.keys]
        dips = [{at: rng.randint(-1, 2) for at in sorted(slots) if rng.random() < 0.4} for _, slots in rows]
        increment = rng.randint(0, 1)
        pairs = [[list(dip) for dip in row.items()] for row in dips]
        certificates = Certificates(spec)
        witness = {"levels": dict(zip(spec.keys, levels)), "dips": pairs}
        certificates.add("fpa-levels", "family-decision", assumptions("free"), witness)
        witness = {"increment": increment, "dips": pairs}
        certificates.add("stack-heights", "walk-is-a-stack", assumptions("tied"), witness)
        found = accepted(certificates.document())
        expected = [oracle.reads_all(spec, dips, levels), oracle.reads_all(spec, dips, None, increment)]
        assert found == expected
        outcomes += found
    assert 100 < sum(outcomes) < len(outcomes) - 100


def test_random_steps_are_accepted_only_for_impossible_specifications():
    rng = random.Random(4)
    seen = set()
    for _ in range(1500):
        spec = rng.choice((oracle.random_family, oracle.random_histories))(rng, 3)
        rows = len(oracle.rows_of(spec))

        def step(rows=rows, keys=spec.keys):
            return {"row": rng.randint(1, rows), "alive": rng.choice(keys), "dead": rng.choice(keys)}

        first, second = step(), step()
        second |= {"alive": first["dead"], "dead": first["alive"]}
        certificates = Certificates(spec)
        certificates.add("fpa-cycle", "family-decision", assumptions("free"), {"cycle": [first, second]})
        certificates.add("crossing-pair", "walk-is-a-stack", assumptions("tied"), first)
        slotless = {"row": first["row"], "dead": first["dead"]}
        certificates.add("no-slot", "family-decision", assumptions("any"), slotless)
        revived = {
            "row": first["row"],
            "key": first["alive"],
            "dead_at": rng.randint(1, 6),
            "alive_at": rng.randint(1, 8),
        }
        certificates.add("revived-key", "any-eviction", assumptions("any"), revived)
        cycle, crossing, no_slot, back = accepted(certificates.document())
        assert not (cycle or no_slot or back) or not oracle.free_possible(spec)
        assert not (crossing or no_slot or back) or not oracle.walk_possible(spec)
        seen |= {k for k, found in zip("cxnr", (cycle, crossing, no_slot, back)) if found}
    assert seen == set("cxnr")


def test_a_negative_increment_is_rejected():
    """It would let the walk fall at keys, where no dip may stand."""
    spec = from_options(2, "2", "at-end")
    certificates = Certificates(spec)
    certificates.add("stack-heights", "walk-is-a-stack", assumptions("tied"), {"increment": -1, "dips": [[]]})
    (verdict,) = exact.verify(certificates.document())
    assert not verdict.accepted
    assert "increment" in verdict.statement


def test_without_a_specification_nothing_is_proved_about_one():
    for name in CASES:
        doc = document(name)
        doc["specification"] = None
        del doc["certificates"][0]["assumptions"]["specification"]
        doc["certificates"][0]["witness"] |= (
            {"levels": {}, "dips": []} if "dips" in doc["certificates"][0]["witness"] else {}
        )
        (verdict,) = exact.verify(doc)
        assert (verdict.accepted, verdict.statement) == (False, "specification: expected one")


def test_a_dimension_below_zero_is_rejected():
    """Without keys and queries no row of a matrix has that length or another."""
    certificates = Certificates(loads(HISTORY))
    head = {"dimension": -1, "keys": [], "biases": [], "gates": [], "queries": [], "window": 0, "gap": None}
    certificates.add("construction", "construction", model("softmax", "separation"), head)
    doc = certificates.document()
    doc["specification"] = {"keys": [], "histories": [[]]}
    doc["certificates"][0]["assumptions"]["specification"] = exact.digest(doc["specification"])
    (verdict,) = exact.verify(doc)
    assert (verdict.accepted, verdict.statement) == (False, "dimension: expected at least 0")
    doc["certificates"][0]["witness"]["dimension"] = 0
    assert accepted(doc) == [True]


def test_two_dips_at_one_slot_are_rejected():
    doc = document("stack-heights")
    dips = doc["certificates"][0]["witness"]["dips"][0]
    dips.insert(0, [dips[0][0], 99])
    assert accepted(doc) == [False]


def test_a_step_about_a_revived_key_is_rejected():
    """It must die, but what the step says about when it may does not hold."""
    certificates = Certificates(loads(REVIVED))
    certificates.add("no-slot", "family-decision", assumptions("any"), {"row": 1, "dead": "a"})
    (verdict,) = exact.verify(certificates.document())
    assert (verdict.accepted, verdict.statement) == (False, 'history 1: key "a" is read again at event 4')


def test_fractions_are_numbers_too():
    doc = document("fpa-levels, history")
    witness = doc["certificates"][0]["witness"]
    witness["levels"] = {key: f"{2 * level + 1}/2" for key, level in witness["levels"].items()}
    witness["dips"] = [[[after, f"{2 * value + 1}/2"] for after, value in row] for row in witness["dips"]]
    assert accepted(doc) == [True]
    witness["levels"]["a"] = "1/0"
    assert accepted(doc) == [False]


# Files.


def write(tmp_path, text):
    file = tmp_path / "certificate.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(file)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected JSON"),
        ("[1, 2", "expected JSON"),
        ("[]", "expected a mapping"),
        ("{}", 'the field "format" is missing'),
        ('{"format": 1, "format": 2}', "given twice"),
        ('{"a": 1.5}', "1.5: expected whole numbers"),
        ('{"a": NaN}', "NaN: expected whole numbers"),
        ('{"a": -Infinity}', "-Infinity: expected whole numbers"),
        ('{"a": ' + "9" * 6000 + "}", "too many digits"),
        ("[" * 100_000, "nested too deeply"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_what_is_no_certificate_file_gets_one_verdict(tmp_path, text, reason):
    (verdict,) = exact.verify_file(write(tmp_path, text))
    assert (verdict.kind, verdict.accepted) == ("file", False)
    assert reason in verdict.statement


def test_an_unreadable_file_gets_a_verdict(tmp_path):
    for file in (str(tmp_path / "missing.json"), str(tmp_path)):
        (verdict,) = exact.verify_file(file)
        assert (verdict.kind, verdict.accepted) == ("file", False)
        assert verdict.statement.startswith("cannot be read: ")


def test_a_written_file_is_verified(tmp_path):
    spec = from_options(4, "1,3; 2; 1,2,3")
    certificates = Certificates(spec)
    certificates.add_fpa(family_decision(spec))
    certificates.add_fpa(walk_decision(spec))
    certificates.write(tmp_path / "c.json")
    assert [v.accepted for v in exact.verify_file(str(tmp_path / "c.json"))] == [True, True]


def test_the_core_stands_alone():
    """It imports nothing but the standard library (and itself)."""
    code = (
        "import sys; before = set(sys.modules); import proofs_check.exact;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - {'proofs_check'};"
        "print(sorted(new - set(sys.stdlib_module_names)));"
        "print(sorted(name for name in sys.modules if name.startswith('proofs_check.') and '.exact' not in name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_any_document_gets_verdicts(doc):
    assert not any(accepted(doc))


@given(st.sampled_from(sorted(CASES)), st.data())
def test_any_value_at_any_place_gets_verdicts(name, data):
    doc = document(name)
    path = data.draw(st.sampled_from([path for path in places(doc) if path]))
    for verdict in exact.verify(changed(doc, path, data.draw(JSON))):
        assert isinstance(verdict.statement, str)


@given(st.binary(max_size=200))
def test_any_bytes_get_verdicts(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("fuzz") / "c.json"
    file.write_bytes(content)
    assert not any(verdict.accepted for verdict in exact.verify_file(str(file)))


def test_tokens_before_a_key_have_one_name_each():
    """The names given in one pass are equal exactly where the tokens are."""
    rng = random.Random(0)
    for _ in range(200):
        n = rng.randint(1, 6)
        sets = [sorted(rng.sample(range(1, n + 1), rng.randint(1, n))) for _ in range(rng.randint(1, 6))]
        slots = sorted(rng.sample(range(1, n + 1), rng.randint(0, n)))
        dips = rng.choice(["after-each-key", "at-end", slots])
        spec = loads(json.dumps({"keys": n, "targets": sets, "dips": dips}))
        queries, known = Queries(read_specification(Certificates(spec).document()["specification"])), {}
        asked = [queries.query(number) for number in range(1, len(queries) + 1)]
        named = [(query, query.all_before(known)) for query in asked]
        for (one, names), (other, others) in itertools.product(named, repeat=2):
            for key in one.present:
                assert (one.before(key) == other.before(key)) == (names[key] == others[key])
