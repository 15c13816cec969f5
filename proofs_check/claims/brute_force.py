"""The definitions once more, as slowly and plainly as they read: what the claims are compared with.

Nothing here is shared with `bounds`, `constructions` or `exact`. Rows are lists of events: a key (its number) that is
pushed, or the frozenset of keys that a query should read; event c, from 1, may be followed by a dip if c is a slot.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations, product

from proofs_check.keysets import Family, KeySetSpec

Number = int | Fraction
Event = int | frozenset[int]
Row = tuple[tuple[Event, ...], frozenset[int]]
"""Events, and the slots."""


def penalties(levels: Sequence[Number], field: Sequence[Number], query: int) -> list[Number]:
    """max(0, level_j - min of the field at j + 1 .. query) for the positions j <= query."""
    found: list[Number] = []
    for key in range(query + 1):
        after = field[key + 1 : query + 1]
        found.append(max(0, levels[key] - min(after)) if after else 0)
    return found


def walk(increments: Iterable[Number]) -> list[Number]:
    """Heights: the sums of the increments so far."""
    heights: list[Number] = []
    for increment in increments:
        heights.append((heights[-1] if heights else 0) + increment)
    return heights


def subsets(keys: int, *, empty: bool = False) -> list[tuple[int, ...]]:
    """All sets of keys 0..keys-1, small ones first."""
    return [chosen for size in range(0 if empty else 1, keys + 1) for chosen in combinations(range(keys), size)]


def rows(spec: KeySetSpec) -> list[Row]:
    """The rows of a specification."""
    if isinstance(spec, Family):
        slots = frozenset(slot + 1 for slot in spec.slots)
        return [((*range(len(spec.keys)), frozenset(target)), slots) for target in spec.targets]
    found: list[Row] = []
    for history in spec.histories:
        events = tuple(event if isinstance(event, int) else frozenset(event) for event in history)
        found.append((events, frozenset(range(1, len(events) + 1))))
    return found


@cache
def level_orders(keys: int) -> list[tuple[int, ...]]:
    """All ways to order keys by level, equal ones included: 1, 3, 13, 75 for 1 to 4 keys."""
    return [levels for levels in product(range(keys), repeat=keys) if set(levels) == set(range(max(levels) + 1))]


def free_levels_possible(spec: KeySetSpec) -> bool:
    """Whether some levels, shared by all rows, and some dips in each row read every query."""
    found = rows(spec)
    return any(all(_row_possible(row, levels) for row in found) for levels in level_orders(len(spec.keys)))


@cache
def _row_possible(row: Row, levels: tuple[int, ...]) -> bool:
    """All dips at once: the sets of alive keys that can be reached."""
    events, slots = row
    reached = {frozenset[int]()}
    for count, event in enumerate(events, 1):
        if isinstance(event, int):
            reached = {alive | {event} for alive in reached}
        else:
            reached &= {event}
        if count in slots:
            reached |= {
                frozenset(k for k in alive if levels[k] <= dip) for alive in reached for dip in range(-1, max(levels))
            }
        if not reached:
            return False
    return True


def walk_possible(spec: KeySetSpec) -> bool:
    """Whether in each row some walk of whole heights, with its dips at the slots only, reads every query."""
    return all(_walk_row(row, len(spec.keys)) for row in rows(spec))


@cache
def _walk_row(row: Row, keys: int) -> bool:
    """All walks at once: the alive keys with their heights. No more heights than keys are ever needed."""
    events, slots = row
    reached: set[tuple[tuple[int, int], ...]] = {()}
    for count, event in enumerate(events, 1):
        if isinstance(event, int):
            reached = {
                (*alive, (event, height))
                for alive in reached
                for height in range(max((h for _, h in alive), default=0), keys)  # a lower key is a dip
            }
        else:
            reached = {alive for alive in reached if {key for key, _ in alive} == event}
        if count in slots:
            reached |= {tuple((k, h) for k, h in alive if h <= dip) for alive in reached for dip in range(-1, keys)}
        if not reached:
            return False
    return True


def laminar_possible(row: Row) -> bool:
    """Whether the keys of a row can die at slots such that every query finds what it reads, and of no two keys the
    earlier one dies in the life of the later one."""
    events, slots = row
    lives: list[list[tuple[int, int]]] = []  # for each key all its possible lives (push, slot of its death)
    for push, event in enumerate(events, 1):
        if isinstance(event, int):
            asked = [(at, event in e) for at, e in enumerate(events, 1) if not isinstance(e, int) and at > push]
            last = max((at for at, read in asked if read), default=push)
            gone = min((at for at, read in asked if not read), default=len(events) + 1)
            deaths = [slot for slot in sorted(slots) if last <= slot < gone]
            lives.append([(push, slot) for slot in deaths + [len(events) + 1] * (gone > len(events))])
    return any(
        not any(a < b <= dies_a < dies_b for a, dies_a in chosen for b, dies_b in chosen) for chosen in product(*lives)
    )


def histories(keys: int, length: int) -> Iterator[tuple[Event, ...]]:
    """All histories of at most that many events that push the keys 0, 1, .. in order and end with a query."""

    def grow(events: tuple[Event, ...], pushed: int) -> Iterator[tuple[Event, ...]]:
        if events and not isinstance(events[-1], int):
            yield events
        if len(events) < length:
            if pushed < keys:
                yield from grow((*events, pushed), pushed + 1)
            for chosen in subsets(pushed):
                yield from grow((*events, frozenset(chosen)), pushed)

    return grow((), 0)
