"""Checkers for First Passage Attention: that levels and dips read the targets, or why none can.

The head has content dimension 0. Key j carries the penalty max(0, level_j - m) at a query, m being the least field
value between j and the query; j is *alive* when the penalty is 0. Dips stand at the slots of the specification;
everywhere else the field is at least the level of every alive key. A specification is realised when at every query
the alive keys are exactly the target (and then the weights tend to uniform on it as the penalty is scaled up).

Every obstruction rests on one step, `_forced`: in some row key b must die, at the earliest at slot s, while key a is
pushed before s and read after b is gone. The dip that kills b lies below b's level, not below a's: level_a < level_b.
"""

from fractions import Fraction
from heapq import heappop, heappush
from typing import Any

from proofs_check.exact.certificate import assume, checker
from proofs_check.exact.specification import Row, Specification
from proofs_check.exact.values import Rejected, entries, fields, need, rational, show, whole

Number = int | Fraction
Fields = dict[str, Any]


def assumptions(levels: str) -> Fields:
    """For which heads and in which sense: `levels` is free, tied (to a walk) or any."""
    head = {"head": "fpa", "levels": levels, "content_dimension": 0}
    return {**head, "query": "fixed", "notion": "uniform", "alive": "penalty 0"}


def _assume(given: Fields, levels: str, spec: Specification) -> None:
    need(spec.rows, "specification: expected one")
    assume(given, assumptions(levels))


@checker("fpa-levels", "family-decision")
def fpa_levels(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: a level per key, and per row the dips [after, field value]."""
    _assume(given, "free", spec)
    fields(witness, ("levels", "dips"), "witness")
    fields(witness["levels"], dict.fromkeys(spec.keys), "levels")
    levels = {key: rational(level, "levels") for key, level in witness["levels"].items()}
    return f"free levels read all {len(spec.rows)} rows; {_replay_all(spec, witness['dips'], levels, 0)}"


@checker("stack-heights", "walk-is-a-stack")
def stack_heights(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: the walk's increment at every key, and per row the dips [after, height of the walk]."""
    _assume(given, "tied", spec)
    fields(witness, ("increment", "dips"), "witness")
    increment = whole(witness["increment"], "increment")
    need(increment >= 0, "increment: a negative one makes a dip of every key")
    return (
        f"levels tied to a walk read all {len(spec.rows)} rows; {_replay_all(spec, witness['dips'], None, increment)}"
    )


def _replay_all(spec: Specification, dips: Any, levels: dict[str, Number] | None, increment: int) -> str:
    need(len(entries(dips, "dips")) == len(spec.rows), f"dips: expected a list for each of {len(spec.rows)} rows")
    gaps = [_replay(row, _dips(row, given), levels, increment) for row, given in zip(spec.rows, dips)]
    return f"dead keys carry penalties of at least {min((g for g in gaps if g is not None), default='any size')}"


def _dips(row: Row, given: Any) -> dict[int, Number]:
    """Field value of every dip, by the number of events before it."""
    dips: dict[int, Number] = {}
    for dip in entries(given, f"{row.name}: dips"):
        if not isinstance(dip, list) or len(dip) != 2:
            raise Rejected(f"{row.name}: dips: expected pairs [after, value], found {show(dip)}")
        after = whole(dip[0], row.name)
        if after in dips or after not in row.slots:
            raise Rejected(f"{row.name}: no dip, or no second one, may stand after event {after}")
        dips[after] = rational(dip[1], row.name)
    return dips


def _replay(row: Row, dips: dict[int, Number], levels: dict[str, Number] | None, increment: int) -> Number | None:
    """Runs a row by the definition: a key dies at the first dip below its level, so at each dip the alive keys above
    it die. Every query must find exactly its target alive. Returns the least penalty at a death."""
    alive: set[str] = set()
    highest: list[tuple[Number, str]] = []  # the alive keys by falling level, as a heap
    walk: Number = 0
    gap: Number | None = None
    for count, event in enumerate(row.events, 1):
        if isinstance(event, str):
            walk += increment
            alive.add(event)
            heappush(highest, (-(walk if levels is None else levels[event]), event))
        elif event != alive:
            key = min(event ^ alive)
            state = "dead" if key in event else "alive"
            raise Rejected(f"{row.name}: the query at event {count} finds key {show(key)} {state}")
        if count in dips:
            walk = dips[count]
            while highest and -highest[0][0] > walk:
                penalty = -highest[0][0] - walk
                gap = penalty if gap is None else min(gap, penalty)
                alive.remove(heappop(highest)[1])
    return gap


def _fate(row: Row, key: Any) -> tuple[int, int]:
    """The last event at which a key must be alive (its push or a query), and the first query without it."""
    need(isinstance(key, str) and key in row.events, f"{row.name}: key {show(key)} is never pushed")
    last = gone = 0
    for count, event in enumerate(row.events, 1):
        if event == key or (isinstance(event, frozenset) and key in event):
            need(not gone, f"{row.name}: key {show(key)} is read again at event {count}")
            last = count
        elif last and not gone and isinstance(event, frozenset):
            gone = count
    need(gone, f"{row.name}: no query demands that key {show(key)} is dead")
    return last, gone


def _forced(spec: Specification, step: Any) -> tuple[Row, str, str]:
    """The row of a step and its keys a and b, once it is sure that the row forces level_a < level_b."""
    fields(step, ("row", "alive", "dead"), "step")
    row, alive, dead = spec.row(step["row"]), step["alive"], step["dead"]
    last, gone = _fate(row, dead)
    slot = next((count for count in range(last, gone) if count in row.slots), 0)
    need(slot, f"{row.name}: key {show(dead)} has no slot to die at")
    need(
        isinstance(alive, str) and alive in row.events[:slot],
        f"{row.name}: {show(alive)} is not pushed by event {slot}",
    )
    read = any(isinstance(event, frozenset) and alive in event for event in row.events[gone - 1 :])
    need(read, f"{row.name}: key {show(alive)} is not read after {show(dead)} is gone")
    return row, alive, dead


@checker("fpa-cycle", "family-decision")
def fpa_cycle(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: steps {row, alive, dead}, each forcing level_alive < level_dead, that lead back to their start."""
    _assume(given, "free", spec)
    fields(witness, ("cycle",), "witness")
    steps = [_forced(spec, step)[1:] for step in entries(witness["cycle"], "cycle")]
    need(steps, "cycle: expected at least one step")
    for (_, dead), (alive, _) in zip(steps, steps[1:] + steps[:1]):
        need(dead == alive, f"cycle: a step ends at {show(dead)} and the next starts at {show(alive)}")
    return f"the levels would have to satisfy {' < '.join(show(key) for key, _ in [*steps, steps[0]])}"


@checker("crossing-pair", "walk-is-a-stack")
def crossing_pair(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: a step {row, alive, dead} whose surviving key is pushed later. A level tied to the walk would put it
    at or above the other key, which is still alive when it is pushed."""
    _assume(given, "tied", spec)
    row, alive, dead = _forced(spec, witness)
    need(
        row.events.index(dead) < row.events.index(alive), f"{row.name}: {show(alive)} is not pushed after {show(dead)}"
    )
    return f"{row.name}: key {show(dead)} must outlive the push of {show(alive)} and die before {show(alive)} does"


@checker("no-slot", "family-decision")
def no_slot(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: a row and a key that must die there where no dip may stand."""
    _assume(given, "any", spec)
    fields(witness, ("row", "dead"), "witness")
    row, key = spec.row(witness["row"]), witness["dead"]
    need(not any(count in row.slots for count in range(*_fate(row, key))), f"{row.name}: key {show(key)} has a slot")
    return f"{row.name}: key {show(key)} must die and no dip may stand after it"


@checker("revived-key", "any-eviction")
def revived_key(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: a row, a key, an event that is a query without it, and a later query with it. Penalties never shrink,
    so the key carries one at the second query too."""
    _assume(given, "any", spec)
    fields(witness, ("row", "key", "dead_at", "alive_at"), "witness")
    row, key = spec.row(witness["row"]), witness["key"]
    dead, alive = whole(witness["dead_at"], "dead_at"), whole(witness["alive_at"], "alive_at")
    need(0 < dead < alive <= len(row.events), f"{row.name}: expected dead_at before alive_at")
    need(isinstance(key, str) and key in row.events[:dead], f"{row.name}: {show(key)} is not pushed by event {dead}")
    for at, state in ((dead, False), (alive, True)):
        event = row.events[at - 1]
        found = isinstance(event, frozenset) and (key in event) == state
        need(found, f"{row.name}: event {at} is no query {'with' if state else 'without'} key {show(key)}")
    return f"{row.name}: key {show(key)} is dead at event {dead} and alive at event {alive}"
