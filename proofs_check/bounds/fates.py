"""When each key must be alive and from when it must be dead: what both decisions about FPA start from.

A *row* is one sequence of events counted from 1: in a family the pushes of all keys, then the one query; in a
history its own events. Slot c lies right after event c. For a key pushed in a row:

* need: the last query that reads it, 0 if none does;
* death: the earliest slot at which it may die, 0 if no query demands that it is dead.

The earliest slot is the best one. A key that must die does so at a slot after the last event at which it must be alive
(its push or a query) and before the first query without it. No query lies between, so the keys that must survive a
dip there are those pushed before it and needed after it: fewest at the first slot.

Two specifications are impossible whatever the levels, and are raised as `Impossible`: a key that is read again after
a query without it (`Revived`), and a key that must be dead but has no slot to die at (`NoSlot`).
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lab.errors import InputError
from proofs_check.keysets import Event, Family, Histories, KeySetSpec

MAX_PAIRS = 20_000_000  # keys times targets of a family: what fits in 2 GiB with everything computed from it

Ints = NDArray[np.int32]


@dataclass(frozen=True)
class Revived:
    """The key is missing at the query of event `dead_at` and read at that of event `alive_at`."""

    row: int
    key: int
    dead_at: int
    alive_at: int


@dataclass(frozen=True)
class NoSlot:
    """The key must be dead at the row's query and no dip may stand after it."""

    row: int
    key: int


@dataclass(frozen=True)
class Step:
    """In this row the key `dead` must die while `alive` is pushed and needed later: level of alive < level of dead."""

    row: int
    alive: int
    dead: int


class Impossible(Exception):
    """No head of the kind realises the specification; `witness` says why."""

    def __init__(self, witness: "Revived | NoSlot"):
        super().__init__(witness)
        self.witness = witness


@dataclass(frozen=True)
class Fates:
    """One entry per row and key pushed in it, rows in order, a row's keys in the order of their pushes."""

    row: Ints
    key: Ints
    push: Ints
    need: Ints
    death: Ints
    rows: int


@dataclass(frozen=True)
class Dips:
    """The dips of all rows: those of row r are entries start[r]:start[r + 1] of `after` and `value`."""

    start: NDArray[np.int64]
    after: Ints
    value: Ints

    @staticmethod
    def of_entries(rows: int, row: NDArray, after: NDArray, value: NDArray) -> "Dips":
        """From entries ordered by row, then by event."""
        start = np.searchsorted(row, np.arange(rows + 1))
        return Dips(start, after.astype(np.int32), value.astype(np.int32))

    def without_repeats(self) -> "Dips":
        """Of several dips in a row to the same value only the last, which kills what the others kill. For rows whose
        only query is at their end."""
        last = np.ones(len(self), bool)
        last[:-1] = self.value[1:] != self.value[:-1]
        last[self.start[1:][self.start[1:] > self.start[:-1]] - 1] = True  # the last dip of every row
        kept = np.concatenate([[0], np.cumsum(last)])
        return Dips(kept[self.start], self.after[last], self.value[last])

    def of(self, row: int, before: int | None = None) -> list[tuple[int, int]]:
        """(after, value) of one row's dips, or of those before an event."""
        low, high = self.start[row], self.start[row + 1]
        if before is not None:
            high = low + np.searchsorted(self.after[low:high], before)
        part = slice(low, high)
        return list(zip(self.after[part].tolist(), self.value[part].tolist()))

    def __len__(self) -> int:
        return len(self.after)


def fates(spec: KeySetSpec) -> Fates:
    """Fates of all keys in all rows. Raises `Impossible`; `InputError` for a family of too many keys times targets."""
    return _family(spec) if isinstance(spec, Family) else _histories(spec)


def alive_matrix(family: Family) -> NDArray[np.bool_]:
    """alive[row, key]: whether the row's target holds the key."""
    rows, keys = len(family.targets), len(family.keys)
    if rows * keys > MAX_PAIRS:
        raise InputError(f"targets: {rows:,} sets over {keys:,} keys; expected at most {MAX_PAIRS:,} pairs to decide")
    alive = np.zeros((rows, keys), bool)
    for row, target in enumerate(family.targets):
        alive[row, np.fromiter(target, np.int32, len(target))] = True
    return alive


def next_slots(family: Family) -> Ints:
    """For each key the first event after which a dip may stand at or after it; 0 if there is none."""
    slots = np.asarray(family.slots, np.int32)
    at = np.searchsorted(slots, np.arange(len(family.keys)))
    return np.append(slots + 1, np.int32(0))[at].astype(np.int32)


def _family(family: Family) -> Fates:
    alive, slot = alive_matrix(family), next_slots(family)
    stuck = np.argwhere(~alive & (slot == 0))
    if len(stuck):
        raise Impossible(NoSlot(int(stuck[0, 0]), int(stuck[0, 1])))
    rows, keys = alive.shape
    query = np.int32(keys + 1)
    key = np.tile(np.arange(keys, dtype=np.int32), rows)
    return Fates(
        row=np.repeat(np.arange(rows, dtype=np.int32), keys),
        key=key,
        push=key + np.int32(1),
        need=np.where(alive, query, np.int32(0)).ravel(),
        death=np.where(alive, np.int32(0), slot).ravel(),
        rows=rows,
    )


def _histories(spec: Histories) -> Fates:
    columns: tuple[list[int], ...] = ([], [], [], [], [])
    for row, events in enumerate(spec.histories):
        _history(row, events, columns)
    row_of, key, push, need, death = (np.array(column, dtype=np.int32) for column in columns)
    return Fates(row_of, key, push, need, death, len(spec.histories))


def _history(row: int, events: Sequence[Event], columns: tuple[list[int], ...]) -> None:
    pushed: dict[int, int] = {}
    last: dict[int, int] = {}  # the last event at which the key must be alive: its push or a query
    queries: list[int] = [0]
    for count, event in enumerate(events, 1):
        if isinstance(event, int):
            pushed[event] = last[event] = count
            continue
        for key in event:
            if last[key] < queries[-1]:
                raise Impossible(Revived(row, key, queries[bisect_right(queries, last[key])], count))
            last[key] = count
        queries.append(count)
    columns[0].extend([row] * len(pushed))
    columns[1].extend(pushed)
    columns[2].extend(pushed.values())
    columns[3].extend(at if at > push else 0 for at, push in zip(last.values(), pushed.values()))
    columns[4].extend(at if at < queries[-1] else 0 for at in last.values())
