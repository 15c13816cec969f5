"""Brute force that shares nothing with the decisions: every order of levels, every height, every dip.

A row is (events, slots): an event is a key number (push) or a frozenset of key numbers (query); slots are the event
counts after which a dip may stand. A row is run over *all* dips at once, as the set of states that can be reached.
"""

import random
from functools import cache
from itertools import product

from proofs_check.keysets import Family, Histories


def rows_of(spec):
    if isinstance(spec, Family):
        slots = frozenset(slot + 1 for slot in spec.slots)
        return [((*range(len(spec.keys)), frozenset(target)), slots) for target in spec.targets]
    rows = []
    for history in spec.histories:
        events = tuple(event if isinstance(event, int) else frozenset(event) for event in history)
        rows.append((events, frozenset(range(1, len(events) + 1))))
    return rows


@cache
def level_orders(n):
    """All assignments of levels to n keys up to order: 1, 3, 13, 75, 541 of them for n = 1..5."""
    return [levels for levels in product(range(n), repeat=n) if set(levels) == set(range(max(levels) + 1))]


@cache
def free_row(levels, events, slots):
    """Whether some dips let these levels read every query of the row."""
    states = {frozenset()}
    for count, event in enumerate(events, 1):
        if isinstance(event, int):
            states = {alive | {event} for alive in states}
        else:
            states = {alive for alive in states if alive == event}
        if count in slots:
            states |= {
                frozenset(key for key in alive if levels[key] <= dip)
                for alive in states
                for dip in range(-1, max(levels))
            }
        if not states:
            return False
    return True


def free_possible(spec):
    rows = rows_of(spec)
    return any(
        all(free_row(levels, events, slots) for events, slots in rows) for levels in level_orders(len(spec.keys))
    )


def walk_row(events, slots, n):
    """Whether some walk with integer heights reads every query of the row, its dips at the slots only."""
    states = {()}  # the alive keys with their heights, in the order of their pushes
    for count, event in enumerate(events, 1):
        if isinstance(event, int):
            states = {
                (*alive, (event, height))
                for alive in states
                for height in range(n)
                if all(height >= other for _, other in alive)  # a lower key would be a dip
            }
        else:
            states = {alive for alive in states if {key for key, _ in alive} == event}
        if count in slots:
            states |= {
                tuple((key, height) for key, height in alive if height <= dip)
                for alive in states
                for dip in range(-1, n)
            }
        if not states:
            return False
    return True


def walk_possible(spec):
    return all(walk_row(events, slots, len(spec.keys)) for events, slots in rows_of(spec))


def penalty(levels, field, key, query):
    """max(0, level - min of the field strictly after the key up to the query), nothing counting as +infinity."""
    between = field[key + 1 : query + 1]
    return max(0, levels[key] - min(between)) if between else 0


def reads_all(spec, dips, levels=None, increment=0):
    """The definition, key by key and query by query: do these dips (per row, {after: value}) read the specification?

    With `levels` None the levels are the heights of the walk, which rises by `increment` at a key.
    """
    for (events, slots), row_dips in zip(rows_of(spec), dips, strict=True):
        if not set(row_dips) <= slots:
            return False
        field, own, place, walk = [], {}, {}, 0
        high = 10**9
        for count, event in enumerate(events, 1):
            if isinstance(event, int):
                walk += increment
                place[event] = len(field)
                own[len(field)] = walk if levels is None else levels[event]
            field.append(walk if levels is None else high)
            if not isinstance(event, int):
                alive = {key for key, at in place.items() if penalty(own, field, at, len(field) - 1) == 0}
                if alive != event:
                    return False
            if count in row_dips:
                walk = row_dips[count]
                field.append(walk)
    return True


def random_family(rng: random.Random, most_keys=5):
    n = rng.randint(1, most_keys)
    sets = {tuple(k for k in range(n) if rng.random() < rng.choice((0.3, 0.5, 0.8))) for _ in range(rng.randint(1, 5))}
    targets = tuple(sorted(sets - {()})) or ((0,),)
    slots = rng.choice(
        [
            tuple(range(n)),
            (n - 1,),
            tuple(k for k in range(n) if rng.random() < 0.5 or (k == n - 1 and rng.random() < 0.7)),
        ]
    )
    return Family(tuple(f"k{k}" for k in range(n)), targets, slots)


def random_histories(rng: random.Random, most_keys=4):
    n = rng.randint(1, most_keys)
    revival = rng.random() < 0.15
    histories = []
    for _ in range(rng.randint(1, 3)):
        order = rng.sample(range(n), n)
        events, alive = [], []
        for _ in range(rng.randint(1, 8)):
            if order and rng.random() < 0.55:
                alive.append(order.pop())
                events.append(alive[-1])
            elif alive:
                pool = [e for e in events if isinstance(e, int)] if revival else alive
                alive = [key for key in pool if rng.random() < 0.7] or [rng.choice(pool)]
                events.append(tuple(sorted(alive)))
        if any(not isinstance(event, int) for event in events):
            histories.append(tuple(events))
    return Histories(tuple(f"k{k}" for k in range(n)), tuple(histories) or ((0, (0,)),))
