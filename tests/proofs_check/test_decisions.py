"""Both decisions against brute force, every certificate against the exact checker, and the examples by hand."""

import json
import random
from itertools import combinations

import numpy as np
import pytest

from lab.errors import InputError
from proofs_check import exact
from proofs_check.bounds import level_order
from proofs_check.bounds.family_decision import Cycle, Levels, family_decision
from proofs_check.bounds.fates import NoSlot, Revived, Step
from proofs_check.bounds.walk_is_a_stack import INCREMENT, Crossing, Heights, walk_decision
from proofs_check.certificates import Certificates
from proofs_check.keysets import Family, from_options, loads
from tests.proofs_check import oracle


def by_row(dips, rows):
    return [dict(dips.of(row)) for row in range(rows)]


def assert_decided_rightly(spec):
    free, walk = family_decision(spec), walk_decision(spec)
    assert isinstance(free, Levels) == oracle.free_possible(spec)
    assert isinstance(walk, Heights) == oracle.walk_possible(spec)
    rows = len(oracle.rows_of(spec))
    if isinstance(free, Levels):
        assert oracle.reads_all(spec, by_row(free.dips, rows), free.levels.tolist())
    if isinstance(walk, Heights):
        assert oracle.reads_all(spec, by_row(walk.dips, rows), None, INCREMENT)
        assert isinstance(free, Levels) or rows > 1
    certificates = Certificates(spec)
    certificates.add_fpa(free)
    certificates.add_fpa(walk)
    verdicts = exact.verify(json.loads(json.dumps(certificates.document())))
    assert [v for v in verdicts if not v.accepted] == []
    return type(free), type(walk)


def test_600_random_families_agree_with_brute_force():
    rng = random.Random(1)
    seen = {assert_decided_rightly(oracle.random_family(rng)) for _ in range(600)}
    assert (Cycle, Heights) not in seen  # in a family every set that is a stack fits levels in the order of the keys
    assert seen >= {(Levels, Heights), (Levels, Crossing), (Cycle, Crossing), (NoSlot, NoSlot)}


def test_400_random_histories_agree_with_brute_force():
    rng = random.Random(2)
    seen = {assert_decided_rightly(oracle.random_histories(rng, 5 if case % 8 == 0 else 4)) for case in range(400)}
    assert seen >= {(Levels, Heights), (Levels, Crossing), (Cycle, Crossing), (Revived, Revived)}


def test_every_family_of_two_targets_over_three_keys():
    subsets = [s for size in (1, 2, 3) for s in combinations(range(3), size)]
    for slots in [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]:
        for pair in combinations(subsets, 2):
            assert_decided_rightly(Family(("a", "b", "c"), pair, slots))


def test_a_slot_after_every_key_gives_every_family():
    subsets = tuple(s for size in range(1, 6) for s in combinations(range(5), size))
    spec = Family(tuple("abcde"), subsets, tuple(range(5)))
    assert isinstance(family_decision(spec), Levels)
    assert isinstance(walk_decision(spec), Heights)


def test_dips_at_the_end_give_chains_and_the_walk_only_beginnings():
    chain = Family(tuple("abcd"), ((1,), (1, 3), (0, 1, 3)), (3,))
    found = family_decision(chain)
    assert isinstance(found, Levels)
    assert found.levels[1] < found.levels[3] < found.levels[0]
    assert walk_decision(chain) == Crossing(Step(row=0, alive=1, dead=0))
    beginnings = Family(tuple("abcd"), ((0,), (0, 1), (0, 1, 2), (0, 1, 2, 3)), (3,))
    assert isinstance(walk_decision(beginnings), Heights)


def test_the_command_line_example_is_realised_with_levels_and_dips():
    found = family_decision(from_options(4, "1,3; 2; 1,2,3"))
    assert isinstance(found, Levels)
    assert found.levels.tolist() == [1, 2, 3, 4]
    assert [found.dips.of(row) for row in range(3)] == [[(2, 1), (4, 3)], [(1, 0), (4, 2)], [(4, 3)]]


def test_two_incomparable_sets_at_the_end_are_a_cycle_of_two():
    found = family_decision(from_options(2, "1; 2", "at-end"))
    assert found == Cycle((Step(row=1, alive=1, dead=0), Step(row=0, alive=0, dead=1)))


CROSSING = "histories: [[{push: a}, {push: b}, {query: [a, b]}, {query: [b]}]]"
REVIVED = "histories: [[{push: a}, {push: b}, {query: [a, b]}, {query: [b]}, {push: c}, {query: [a, b]}]]"


def test_a_crossing_history_needs_free_levels():
    spec = loads(CROSSING)
    assert isinstance(family_decision(spec), Levels)
    assert walk_decision(spec) == Crossing(Step(row=0, alive=1, dead=0))


def test_one_walk_serves_two_histories_that_no_shared_levels_do():
    """A walk gives a key a level anew in every history; free levels belong to the key."""
    spec = loads("histories: [[{push: a}, {push: b}, {query: [a]}], [{push: b}, {push: a}, {query: [b]}]]")
    assert isinstance(family_decision(spec), Cycle)
    assert isinstance(walk_decision(spec), Heights)


def test_a_revived_key_is_named_with_both_queries():
    spec = loads(REVIVED)
    assert family_decision(spec) == walk_decision(spec) == Revived(row=0, key=0, dead_at=4, alive_at=6)


def test_a_key_without_a_slot_is_named():
    spec = from_options("a b c", "a b; a", dips="b")
    assert family_decision(spec) == walk_decision(spec) == NoSlot(row=0, key=2)


def test_a_long_cycle_is_found_whole():
    """Each history makes one edge k -> k + 1 of a single cycle through all keys, so no shorter cycle exists."""
    n = 40
    events = [f"[{{push: k{k}}}, {{push: k{(k + 1) % n}}}, {{query: [k{k}]}}]" for k in range(n)]
    spec = loads("histories: [" + ", ".join(events) + "]")
    found = family_decision(spec)
    assert isinstance(found, Cycle)
    assert len(found.steps) == n
    certificates = Certificates(spec)
    certificates.add_fpa(found)
    assert exact.verify(certificates.document())[0].accepted


def test_levels_are_the_least_possible():
    """Two keys that nothing compares share a level; the chain of the other three takes three."""
    spec = Family(tuple("abcde"), ((0, 3, 4), (0, 1, 3, 4)), (4,))
    found = family_decision(spec)
    assert isinstance(found, Levels)
    assert found.levels.tolist() == [1, 2, 3, 1, 1]


def test_compiled_loops_give_what_plain_ones_give(monkeypatch):
    rng = np.random.default_rng(0)
    alive = rng.random((60, 40)) < 0.5
    targets = tuple(tuple(np.flatnonzero(row).tolist()) for row in alive)
    for slots in (tuple(range(40)), (9, 19, 29, 39)):
        spec = Family(tuple(map(str, range(40))), targets, slots)
        plain = family_decision(spec)
        monkeypatch.setattr(level_order, "COMPILE_ABOVE", 0)
        compiled = family_decision(spec)
        monkeypatch.undo()
        if isinstance(plain, Cycle):
            assert compiled == plain
        else:
            assert compiled.levels.tolist() == plain.levels.tolist()
            assert compiled.dips.value.tolist() == plain.dips.value.tolist()


def test_a_family_too_large_to_decide_is_refused_in_one_line():
    spec = Family(tuple(map(str, range(5000))), tuple((k,) for k in range(5000)), (4999,))
    with pytest.raises(InputError, match=r"^targets: 5,000 sets over 5,000 keys; expected at most 20,000,000 pairs"):
        family_decision(spec)
