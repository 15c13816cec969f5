"""Tied tokens: found numbers read everything by the definition, refusals are checked, the solver is never believed."""

import json
import random
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize

from lab.errors import InputError
from lab.tasks import make_task
from proofs_check import exact
from proofs_check.answer import check
from proofs_check.bounds.tied_tokens import Cases, Conflict, Farkas, Found, Undecided, tied_tokens
from proofs_check.certificates import Certificates
from proofs_check.keysets import Tokens, loads
from tests.proofs_check.oracle import penalty
from tests.proofs_check.test_exact import forgeries, places

# A key that outlives one t and not two needs a level below the walk.
ONE_DIP = """histories:
  - [{push: b, token: y}, {token: up}, {push: a, token: x}, {token: t}, {query: [a, b]}, {token: t}, {query: [b]}]
"""
# Both histories are the same tokens, and must forget different keys.
SAME_TOKENS = """histories:
  - [{push: a, token: x}, {push: b, token: x}, {token: y}, {query: [a]}]
  - [{push: a, token: x}, {push: b, token: x}, {token: y}, {query: [b]}]
"""
# a must die at p or at q; further sequences forbid both.
EITHER = """histories:
  - [{push: a, token: x}, {token: p}, {token: q}, {push: b, token: x}, {query: [b]}]
  - [{push: a, token: x}, {token: p}, {query: [a]}]
  - [{push: a, token: x}, {token: q}, {query: [a]}]
  - [{push: a, token: x}, {push: b, token: x}, {query: [a, b]}]
"""
NO_TOKEN_BETWEEN = "histories: [[{push: a, token: x}, {push: b, token: x}, {query: [a, b]}, {query: [a]}]]"


def nested_scope(sequences, length, *, every=1, seed=0):
    """Sequences of the lab's own task; only every so many positions ask."""
    task = make_task("nested-scope", max_depth=8)
    batch = task.sample("test", [seed], 0, sequences, length=length)[0]
    targets = batch.targets()
    rows = []
    for row in range(sequences):
        events = []
        for at, token in enumerate(batch.tokens[row].tolist()):
            event = {"token": task.vocabulary[token]}
            events.append({"push": f"k{at}", **event} if token in task.key_tokens else event)
            reads = [f"k{key}" for key in np.flatnonzero(targets[row, at])]
            if reads and (at % every == 0 or at == length - 1):
                events.append({"query": reads})
        rows.append(events)
    return loads(json.dumps({"histories": rows}), "s.json")


def reads_all(spec, increments, offsets):
    """The definition of the penalty, key by key and query by query."""
    types = spec.tokens.types
    for row in spec.tokens.rows:
        field, levels, place = [], [], {}
        for token, event in row:
            if token is not None:
                field.append((field[-1] if field else 0) + increments[types[token]])
                levels.append(field[-1] + offsets.get(types[token], 0))
            if isinstance(event, int):
                place[event] = len(field) - 1
            elif event is not None:
                alive = {key for key, at in place.items() if penalty(levels, field, at, len(field) - 1) == 0}
                if alive != set(event):
                    return False
    return True


def numbers(spec, found):
    types = spec.tokens.types
    return dict(zip(types, found.increments)), {types[at]: offset for at, offset in found.offsets.items()}


def certificate(spec, found):
    certificates = Certificates(spec)
    certificates.add_tied(found)
    return json.loads(json.dumps(certificates.document()))


def assert_answered_rightly(spec, levels):
    found = tied_tokens(spec, levels)
    assert not isinstance(found, Undecided)
    if isinstance(found, Found):
        assert reads_all(spec, *numbers(spec, found))
    (verdict,) = exact.verify(certificate(spec, found))
    assert verdict.accepted, verdict.statement
    return found


@pytest.mark.parametrize("every", [1, 7, 1000])
@pytest.mark.parametrize("levels", ["tied", "offset"])
def test_nested_scope_is_rediscovered(levels, every):
    spec = nested_scope(30, 60, every=every)
    increments, offsets = numbers(spec, assert_answered_rightly(spec, levels))
    assert increments == {"open": 1, "close": -1, "key": 0}
    assert set(offsets.values()) <= {0}


def test_subset_drop_is_rediscovered():
    """K1 D1 .. Kn Dn Q for every subset of four keys: key +a, drop -a, keep and query 0."""
    rows = []
    for kept in product([True, False], repeat=4):
        events = []
        for key, keep in enumerate(kept):
            events += [{"push": f"k{key}", "token": "key"}, {"token": "keep" if keep else "drop"}]
        rows.append([*events, {"query": [f"k{key}" for key in range(4) if kept[key]], "token": "query"}])
    found = assert_answered_rightly(loads(json.dumps({"histories": rows}), "s.json"), "tied")
    assert found.increments == (1, 0, 0, -1)  # key, keep, query, drop


def random_spec(rng):
    types = ["x", "y", "p", "q"][: rng.randint(2, 4)]
    pushed = types[: rng.randint(1, min(2, len(types) - 1))]
    other = types[len(pushed) :]
    rows = []
    for _ in range(rng.randint(1, 4)):
        events, alive = [], []
        for _ in range(rng.randint(2, 9)):
            chance = rng.random()
            if chance < 0.4 or not events:
                alive.append(f"k{len(events)}")
                events.append({"push": alive[-1], "token": rng.choice(pushed)})
            elif chance < 0.75 or not alive:
                events.append({"token": rng.choice(other)})
            else:
                alive = [key for key in alive if rng.random() < 0.7] or alive[:1]
                events.append({"query": list(alive)} | ({"token": rng.choice(other)} if rng.random() < 0.3 else {}))
        rows.append([*events, {"query": alive}])
    return loads(json.dumps({"histories": rows}), "s.json")


def small_numbers(spec, levels):
    """Whether increments (and offsets) of size at most 2 read everything."""
    types = spec.tokens.types
    pushed = sorted({types[token] for row in spec.tokens.rows for token, event in row if isinstance(event, int)})
    for increments in product(range(-2, 3), repeat=len(types)):
        for offsets in product(range(-2, 3) if levels == "offset" else [0], repeat=len(pushed)):
            if reads_all(spec, dict(zip(types, increments)), dict(zip(pushed, offsets))):
                return True
    return False


def test_100_random_specifications_are_answered_and_certified():
    rng = random.Random(5)
    seen = set()
    for case in range(100):
        spec = random_spec(rng)
        for levels in ("tied", "offset"):
            found = assert_answered_rightly(spec, levels)
            seen.add((levels, type(found), type(getattr(found, "reason", None))))
            if case < 40 and levels == "tied":
                assert isinstance(found, Found) >= small_numbers(spec, levels)
    assert seen >= {(levels, Conflict, why) for levels in ("tied", "offset") for why in (Farkas, Cases)}
    assert seen >= {(levels, Found, type(None)) for levels in ("tied", "offset")}


def test_offsets_help_where_a_tied_level_cannot_wait():
    spec = loads(ONE_DIP)
    assert isinstance(assert_answered_rightly(spec, "tied"), Conflict)
    increments, offsets = numbers(spec, assert_answered_rightly(spec, "offset"))
    assert 2 * increments["t"] < offsets["x"] <= increments["t"] < 0


@pytest.mark.parametrize(("text", "why"), [(SAME_TOKENS, Farkas), (EITHER, Cases), (NO_TOKEN_BETWEEN, Cases)])
def test_impossible_ones_have_their_reason(text, why):
    spec = loads(text)
    assert isinstance(assert_answered_rightly(spec, "tied").reason, why)
    assert isinstance(assert_answered_rightly(spec, "offset"), Found if text == EITHER else Conflict)


def test_a_death_that_two_tokens_can_bring_branches():
    found = tied_tokens(loads(EITHER), "tied")
    assert isinstance(found, Conflict)
    assert isinstance(found.reason, Cases)
    assert [position for position, _ in found.reason.cases] == [1, 2, 3]


# Nothing rests on the solver.


def test_a_solver_that_finds_nothing_is_not_believed(monkeypatch):
    nothing = SimpleNamespace(status=2, x=None)
    monkeypatch.setattr(scipy.optimize, "linprog", lambda *args, **kwargs: nothing)
    found = tied_tokens(nested_scope(3, 20), "tied")
    assert found == Undecided("tied", "the solver's infeasibility could not be confirmed")


def test_a_solver_that_only_denies_is_caught_by_the_sum(monkeypatch):
    honest = scipy.optimize.linprog

    def denies(cost, **kwargs):
        result = honest(cost, **kwargs)
        return result if kwargs["A_eq"] is not None else SimpleNamespace(status=2, x=None)

    monkeypatch.setattr(scipy.optimize, "linprog", denies)
    assert isinstance(tied_tokens(nested_scope(3, 20), "tied"), Undecided)
    monkeypatch.undo()
    assert isinstance(tied_tokens(nested_scope(3, 20), "tied"), Found)


def test_a_solver_wrong_in_the_sixth_digit_changes_nothing(monkeypatch):
    honest = scipy.optimize.linprog

    def sloppy(*args, **kwargs):
        result = honest(*args, **kwargs)
        if result.status == 0:
            result.x = result.x + 1e-6
        return result

    monkeypatch.setattr(scipy.optimize, "linprog", sloppy)
    assert tied_tokens(nested_scope(5, 30), "tied").increments == (1, 0, -1)
    assert isinstance(tied_tokens(loads(SAME_TOKENS), "tied"), Conflict)


def test_a_budget_that_ends_is_said():
    assert tied_tokens(loads(EITHER), "tied", budget=2) == Undecided(
        "tied", "the search took more linear programmes than its budget"
    )


# Certificates.


@pytest.mark.parametrize("text", [ONE_DIP, SAME_TOKENS, EITHER, NO_TOKEN_BETWEEN])
@pytest.mark.parametrize("levels", ["tied", "offset"])
def test_each_field_changed_in_turn_is_rejected(text, levels):
    """Whatever forgery is accepted must be another truth: increments that read everything, or the same sum again."""
    spec = loads(text)
    document = certificate(spec, tied_tokens(spec, levels))
    for path in places(document):
        accepted = 0
        tried = forgeries(document, path) if path else []
        for forged in tried:
            if all(verdict.accepted for verdict in exact.verify(forged)):
                accepted += 1
                assert path[0] == "certificates", path
                assert still_true(spec, forged["certificates"][0]), path
        assert not tried or accepted < len(tried), path


def still_true(spec, record):
    if record["kind"] == "tied-increments":
        return reads_all(spec, record["witness"]["increments"], record["witness"]["offsets"])
    sums = [sum(d["dies"] * d["times"] for d in demands) for demands in all_demands(record["witness"])]
    return all(total > 0 for total in sums)


def all_demands(reason):
    if "demands" in reason:
        return [reason["demands"]]
    return [demands for case in reason["cases"] for demands in all_demands(case["reason"])]


def test_a_tied_certificate_does_not_pass_for_offsets():
    spec = loads(ONE_DIP)
    document = certificate(spec, tied_tokens(spec, "tied"))
    document["certificates"][0]["assumptions"]["levels"] = "offset"
    assert not exact.verify(document)[0].accepted


def test_a_case_left_out_is_missed():
    spec = loads(EITHER)
    document = certificate(spec, tied_tokens(spec, "tied"))
    del document["certificates"][0]["witness"]["cases"][-1]
    (verdict,) = exact.verify(document)
    assert verdict.statement == 'history 1: key "a" may die at 3 events, not those of the cases'


# Specifications and answers.


def test_token_types_are_read_and_written_back():
    spec = loads("histories: [[{token: open}, {push: a, token: x}, {query: [a]}, {query: [], token: end}]]")
    assert spec.tokens == Tokens(("open", "x", "end"), (((0, None), (1, 0), (None, (0,)), (2, None)),))
    assert spec.histories == ((0, (0,)),)
    assert spec.warnings == ("histories: history 1: event 4: query: empty, ignored",)
    assert loads(json.dumps(spec.to_data())).tokens == spec.tokens
    assert loads("histories: [[{push: a}, {query: [a]}]]").tokens is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{push: a}, {query: [a]}, {token: x}]", "event 1: token: missing; other events name token types, so every"),
        ("[{push: a, token: x}, {token: x}, {query: [a]}]", "event 2: token: 'x' is a type of pushed keys; here it"),
        (
            "[{push: a, token: x}, {query: [a], token: x}]",
            "event 2: token: 'x' is a type of pushed keys; here",
        ),
        ("[{push: a, token: []}]", "event 1: token: expected a name, found a list of 0"),
        ("[{push: a, token: x}, {tokn: y}]", "event 2: tokn: unknown event; did you mean token?"),
        ("[{push: a, query: [a], token: x}]", "event 1: expected one of {push: NAME}, {query: [NAME, ...]}, found 2"),
    ],
)
def test_faults_of_token_types(text, message):
    with pytest.raises(InputError) as error:
        loads(f"histories: [{text}]", "s.yaml")
    assert str(error.value).startswith(f"s.yaml: line 1: histories: history 1: {message}")


def test_the_answer_has_an_entry_only_where_tokens_are_named():
    assert "fpa-tied-tokens" not in check(loads("histories: [[{push: a}, {query: [a]}]]")).heads
    entry = check(nested_scope(4, 24, every=5)).heads["fpa-tied-tokens"]
    assert (entry["realisable"], entry["level"], entry["dimension"]) == (True, "tied", 0)
    assert entry["increments"] == {"open": 1, "close": -1, "key": 0}
    assert entry["numeric"]["float64"]["max_tv"] <= 1e-6


def test_the_answer_falls_back_to_offsets_and_says_why():
    answer = check(loads(ONE_DIP))
    entry = answer.heads["fpa-tied-tokens"]
    assert (entry["realisable"], entry["level"], entry["tied"]["realisable"]) == (True, "offset", False)
    assert entry["tied"]["witness"]["text"] == (
        "history 1: a dies at event 6; history 1: a lives past event 4: no increments of the token types do all of this"
    )
    assert entry["numeric"]["float64"]["max_tv"] <= 1e-6
    kinds = [verdict.kind for verdict in exact.verify(answer.certificates.document()) if verdict.accepted]
    assert [kind for kind in kinds if kind.startswith("tied")] == ["tied-conflict", "tied-increments"]


def test_events_of_an_answer_are_numbered_as_in_the_file():
    text = "[{token: o}, {push: a, token: x}, {token: o}, {push: b, token: x}, {query: [b]}, {token: c}, {query: [a]}]"
    heads = check(loads(f"histories: [{text}]")).heads
    for head in ("fpa", "fpa-walk", "fpa-tied-tokens"):
        witness = heads[head]["witness"]
        assert (witness["kind"], witness["dead_at"], witness["alive_at"]) == ("revived-key", 5, 7)


@pytest.mark.slow
def test_a_million_tokens():
    spec = nested_scope(1000, 1000, every=50)
    assert numbers(spec, tied_tokens(spec))[0] == {"open": 1, "close": -1, "key": 0}
