"""Checkers for tied tokens: one increment per token type for every sequence, or why there is none.

Events are counted from 1; those with a token are the positions of the walk u, which a token of type x changes by d(x).
A key pushed with type x has level u + o(x) there; with tied levels o is 0. It is alive at a query while no later
position up to the query has u below the level. So, c(j, t) counting the types after the push of j up to event t,

    j lives past t:   c(j, t) . d - o(x) >= 0          j dies at t:   c(j, t) . d - o(x) < 0

and a specification is realised when at every query the keys alive are exactly those that it reads.
"""

from collections import Counter
from heapq import heappop, heappush
from typing import Any

from proofs_check.exact.certificate import assume, checker
from proofs_check.exact.fpa import Fields, Number, assumptions
from proofs_check.exact.specification import Row, Specification
from proofs_check.exact.values import Rejected, entries, fields, need, rational, show, whole

MAX_DEPTH = 200  # of cases within cases


def tied_assumptions(levels: str) -> Fields:
    """`levels` is tied (to the walk) or offset (from it, by an offset per type)."""
    return {**assumptions(levels), "increments": "per token type"}


def _assume(given: Fields, spec: Specification) -> bool:
    """Whether levels have offsets."""
    need(any(token for row in spec.rows for token, _ in row.tokens), "specification: expected one that names tokens")
    levels = given.get("levels")
    assume(given, tied_assumptions("offset" if levels == "offset" else "tied"))
    for row in spec.rows:
        for count, (token, event) in enumerate(row.tokens, 1):
            need(token or not isinstance(event, str), f"{row.name}: event {count}: a push without a token")
    return levels == "offset"


@checker("tied-increments", "tied-tokens")
def tied_increments(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: the increment of every token type, and the offset of every type of keys (none if levels are tied)."""
    offset = _assume(given, spec)
    fields(witness, ("increments", "offsets"), "witness")
    types = {token for row in spec.rows for token, _ in row.tokens if token}
    keys = {token for row in spec.rows for token, event in row.tokens if token and isinstance(event, str)}
    fields(witness["increments"], types, "increments")
    fields(witness["offsets"], keys if offset else set(), "offsets")
    increments = {token: rational(value, "increments") for token, value in witness["increments"].items()}
    offsets = {token: rational(value, "offsets") for token, value in witness["offsets"].items()}
    for row in spec.rows:
        _replay(row, increments, offsets)
    return f"{len(types)} increments read all {len(spec.rows)} rows"


def _replay(row: Row, increments: dict[str, Number], offsets: dict[str, Number]) -> None:
    walk: Number = 0
    alive: set[str] = set()
    highest: list[tuple[Number, str]] = []  # the alive keys by falling level, as a heap
    for count, (token, event) in enumerate(row.tokens, 1):
        if token:  # a position: whoever stands above the walk now is dead
            walk += increments[token]
            while highest and -highest[0][0] > walk:
                alive.remove(heappop(highest)[1])
        if isinstance(event, str):
            alive.add(event)
            heappush(highest, (-(walk + offsets.get(token or "", 0)), event))
        elif event is not None and event != alive:
            key = min(event ^ alive)
            state = "dead" if key in event else "alive"
            raise Rejected(f"{row.name}: the query at event {count} finds key {show(key)} {state}")


@checker("tied-conflict", "tied-tokens")
def tied_conflict(given: Fields, witness: Fields, spec: Specification) -> str:
    """Witness: a reason. A reason is either demands {row, key, event, dies, times}, which hold and whose `times`-fold
    sum says 0 >= number of deaths > 0; or {row, key, cases}: the key has to die at one of the cases' events first, and
    each case {event, reason} is impossible."""
    offset = _assume(given, spec)
    cases = _refuted(spec, witness, offset, {}, 0)
    return f"no increments read all rows: the demands contradict each other{f' in all {cases} cases' * (cases > 1)}"


def _refuted(spec: Specification, reason: Any, offset: bool, first: dict[tuple[str, str], int], depth: int) -> int:
    """The number of cases that a reason refutes, given the first event below each of some keys."""
    need(depth <= MAX_DEPTH, "cases: nested too deeply")
    if isinstance(reason, dict) and "demands" in reason:
        fields(reason, ("demands",), "reason")
        _cancel(spec, entries(reason["demands"], "demands"), offset, first)
        return 1
    fields(reason, ("row", "key", "cases"), "reason")
    row, key = spec.row(reason["row"]), reason["key"]
    window, cases = _window(row, key), entries(reason["cases"], "cases")
    need((row.name, key) not in first, f"{row.name}: key {show(key)}: its cases are told apart already")
    for case in cases:
        fields(case, ("event", "reason"), "case")
    found = [whole(case["event"], "event") for case in cases]
    need(found == window, f"{row.name}: key {show(key)} may die at {len(window)} events, not those of the cases")
    return sum(
        _refuted(spec, case["reason"], offset, {**first, (row.name, key): case["event"]}, depth + 1) for case in cases
    ) + (not cases)


def _fate(row: Row, key: Any) -> tuple[int, int, int]:
    """The push of a key, the last event at which it must be alive, and the first query after that (0: none)."""
    need(isinstance(key, str), f"key: expected a name, found {show(key)}")
    push = last = gone = 0
    for count, (_, event) in enumerate(row.tokens, 1):
        if event == key:
            push = last = count
        elif isinstance(event, frozenset) and push:
            if key in event:
                last, gone = count, 0
            else:
                gone = gone or count
    need(push, f"{row.name}: key {show(key)} is never pushed")
    return push, last, gone


def _window(row: Row, key: Any) -> list[int]:
    """The events at which a key may die first."""
    _, last, gone = _fate(row, key)
    need(gone, f"{row.name}: no query demands that key {show(key)} is dead")
    return [count for count in range(last + 1, gone + 1) if row.tokens[count - 1][0]]


def _cancel(spec: Specification, demands: list[Any], offset: bool, first: dict[tuple[str, str], int]) -> None:
    """Rejects unless the demands are in force and their sum is a contradiction."""
    total: Counter[tuple[str, str]] = Counter()
    deaths = 0
    for demand in demands:
        fields(demand, ("row", "key", "event", "dies", "times"), "demand")
        row, key, event = spec.row(demand["row"]), demand["key"], whole(demand["event"], "event")
        times, dies = whole(demand["times"], "times"), demand["dies"]
        push, last, gone = _fate(row, key)
        at = first.get((row.name, key), 0)
        need(times > 0, "times: expected a number above 0")
        need(push < event <= len(row.tokens) and row.tokens[event - 1][0], f"{row.name}: event {event}: no later token")
        if dies is True:
            need(event == at or (gone and _window(row, key) == [event]), f"{row.name}: {show(key)} may die elsewhere")
        else:
            need(dies is False, f"dies: expected true or false, found {show(dies)}")
            need(event <= last or event < at, f"{row.name}: {show(key)} may be dead at event {event}")
        sign = -times if dies else times
        for token, _ in row.tokens[push:event]:
            total["increment", token or ""] += sign if token else 0
        if offset:
            total["offset", row.tokens[push - 1][0] or ""] -= sign
        deaths += times * dies
    need(not any(total.values()), "demands: their sum does not cancel")
    need(deaths, "demands: their sum is no contradiction")
