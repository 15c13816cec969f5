"""walk-is-a-stack: which specifications First Passage Attention realises with levels tied to its walk (THEORY.md).

What is decided. Content dimension 0, walk field, level of a key = height of the walk at the key. Increments are free
per position and in every row anew, as an arbitrary walk would have them; dips (the walk below the level of an alive
key) stand only at the slots; a key is alive when its penalty is 0. That the increments at keys may differ between rows
does not help: the realisation below uses +1 at every key of every row, so that keys and their tokens do not depend on
the row. Rows are therefore decided one by one.

In a row, let key j have to die, at the earliest at slot s (`fates`). A *crossing pair* is such a j together with a key
j' pushed after j, before s, and read by a query after s.

Claim. If no key is revived and every key that must die has a slot, the specification is realised if and only if no
row has a crossing pair: whenever a key dies, all keys pushed after it are dead or die with it, a stack.

Proof. Only if: j is alive when j' is pushed (it is read later, or no slot lies between), so the walk, and with it the
level of j', is then at or above the level of j. The dip that kills j lies below j's level, hence below that of j',
which is read afterwards: a contradiction. If: run every row as a stack. A push takes the walk up by 1, from the number
h of keys on the stack to h + 1, the new key's level. At every slot where a key must die, pop keys off the top as long
as they must die there, and put a dip to the height of what is left. This reaches every key j that must die: a key
above it on the stack was pushed after j and before the slot, so without a crossing pair no later query reads it; the
query that finds j dead then finds it dead too, so it must die at this slot or at an earlier one, where it was popped.
And no other key is popped.                                                                                        QED

So [push, death) of a row's keys are intervals of which no two cross. For families: cut the keys into blocks, each
ending at a slot; a target is realised when it holds a beginning of every block, and all keys after the last slot. With
a slot after every key that is every target; with dips only at the end it is the beginnings of the list of keys.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from proofs_check.bounds.fates import Dips, Fates, Impossible, NoSlot, Revived, Step, alive_matrix, fates, next_slots
from proofs_check.keysets import Event, Family, Histories, KeySetSpec

INCREMENT = 1


@dataclass(frozen=True)
class Heights:
    """Dips of every row as heights of the walk, which rises by INCREMENT at every key from 0."""

    dips: Dips


@dataclass(frozen=True)
class Crossing:
    """`step.dead` is pushed before `step.alive` and has to die first, but not before the other is pushed."""

    step: Step


def walk_decision(spec: KeySetSpec) -> Heights | Crossing | Revived | NoSlot:
    """Heights that realise the specification, or why there are none. Linear in the size of the input.

    Raises `InputError` for a family of more than MAX_PAIRS keys times targets.
    """
    try:
        entries = fates(spec)
    except Impossible as impossible:
        return impossible.witness
    return _family(spec) if isinstance(spec, Family) else _histories(spec, entries)


def _family(family: Family) -> Heights | Crossing:
    """All rows at once. If a block's part of a target is no beginning, two neighbours of the block show it."""
    alive, slot = alive_matrix(family), next_slots(family)
    crossing = np.argwhere(~alive[:, :-1] & alive[:, 1:] & (slot[:-1] == slot[1:]))
    if len(crossing):
        row, key = crossing[0].tolist()
        return Crossing(Step(row, alive=key + 1, dead=key))
    row, key = np.nonzero(~alive)
    ends = np.ones(len(row), bool)  # the last dead key of each block of each row
    ends[:-1] = (row[1:] != row[:-1]) | (slot[key[1:]] != slot[key[:-1]])
    row, after = row[ends], slot[key[ends]]
    height = np.cumsum(alive, axis=1, dtype=np.int32)[row, after - 1]
    return Heights(Dips.of_entries(len(alive), row, after, height).without_repeats())


def _histories(spec: Histories, entries: Fates) -> Heights | Crossing:
    rows: list[int] = []
    dips: list[tuple[int, int]] = []
    bounds = np.searchsorted(entries.row, np.arange(entries.rows + 1))
    for row, events in enumerate(spec.histories):
        part = slice(bounds[row], bounds[row + 1])
        death = dict(zip(entries.key[part].tolist(), entries.death[part].tolist()))
        found = _history(row, events, death)
        if isinstance(found, Crossing):
            return found
        rows.extend([row] * len(found))
        dips.extend(found)
    after, height = np.array(dips, np.int64).reshape(-1, 2).T
    return Heights(Dips.of_entries(entries.rows, np.array(rows, np.int64), after, height))


def _history(row: int, events: Sequence[Event], death: dict[int, int]) -> list[tuple[int, int]] | Crossing:
    """Dips (after, height) of one history; death 0 is none."""
    stack: list[int] = []
    due: dict[int, list[int]] = {}  # keys by the slot at which they must die
    for key, slot in death.items():
        if slot:
            due.setdefault(slot, []).append(key)
    dips = []
    for count, event in enumerate(events, 1):
        if isinstance(event, int):
            stack.append(event)
        if count in due:
            before = len(stack)
            while stack and death[stack[-1]] == count:
                stack.pop()
            if before - len(stack) < len(due[count]):
                left = set(stack)
                below = next(key for key in due[count] if key in left)
                return Crossing(Step(row, alive=stack[-1], dead=below))
            dips.append((count, len(stack)))
    return dips
