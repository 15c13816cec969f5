"""The queries of a specification as the baselines meet them: which keys stand before each, which it reads, and where
two queries have the same tokens between two keys.

The model and the encoding are those of `proofs_check.exact.queries`, said there in full: a free query vector per query,
one content vector and one bias per key; a family's tokens *keep* and *drop* stand at the ends of its blocks of keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from proofs_check.keysets import Family, KeySetSpec

MAX_CELLS = 1_000_000  # keys times queries up to which bounds for free queries are looked for

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cases:
    """alive[q, k] and present[q, k]: whether query q reads key k, and whether k stands before it.

    row[q] is the row that asks q. block[k] is the block of key k; None for histories. `slots` blocks end at a slot.
    """

    alive: Bools
    present: Bools
    row: Ints
    block: Ints | None
    slots: int

    @property
    def queries(self) -> int:
        return self.alive.shape[0]

    @property
    def keys(self) -> int:
        return self.alive.shape[1]

    @cached_property
    def dead(self) -> Bools:
        """dead[q, k]: k stands before q and is not read."""
        return self.present & ~self.alive

    def between(self, x: int, y: int) -> tuple[int, int]:
        """The keys first..last-1 of a family whose tokens stand between keys x < y."""
        assert self.block is not None
        first, last = np.searchsorted(self.block, [self.block[x], self.block[y]])
        return int(first), int(last)

    def tokens(self, x: int, y: int, queries: Ints) -> Ints:
        """A number per query, the same for two queries only if the tokens between keys x < y are the same."""
        if self.block is None:
            return self.row[queries]
        first, last = self.between(x, y)
        if last - first < 63:
            return self.alive[queries, first:last] @ (1 << np.arange(last - first))
        kept = np.ascontiguousarray(np.packbits(self.alive[queries, first:last], axis=1))
        return np.unique(kept, axis=0, return_inverse=True)[1].reshape(-1)

    def drops(self, x: int, y: int) -> Ints:
        """Per query of a family how many drops stand between keys x < y."""
        first, last = self.between(x, y)
        return self.unread[:, last] - self.unread[:, first]

    @cached_property
    def unread(self) -> Ints:
        """unread[q, k]: how many of the first k keys query q does not read."""
        counts = np.zeros((self.queries, self.keys + 1), np.int64)
        np.cumsum(~self.alive, axis=1, out=counts[:, 1:])
        return counts

    def drops_after(self) -> Ints:
        """Per query and key of a family how many drops stand after the key: those of its own and later blocks."""
        assert self.block is not None
        counted = ~self.alive & (self.block < self.slots)
        suffix = np.zeros((self.queries, self.keys + 1), np.int64)
        suffix[:, :-1] = counted[:, ::-1].cumsum(1)[:, ::-1]
        return suffix[:, np.searchsorted(self.block, self.block)]

    def frozen(self, head: str) -> Iterator[tuple[Ints, Ints]]:
        """Queries and keys between which the tokens are the same: for softmax all, for FoX the keys of one block of a
        family, or the queries of one history."""
        rows, keys = np.arange(self.queries), np.arange(self.keys)
        if head == "softmax":
            yield rows, keys
        elif self.block is not None:
            for block in np.unique(self.block):
                yield rows, keys[self.block == block]
        else:
            for row in np.unique(self.row):
                yield rows[self.row == row], keys

    @property
    def dips_after_each_key(self) -> bool:
        """A family with a slot after every key."""
        return self.block is not None and self.slots == self.keys


def cells(spec: KeySetSpec) -> int:
    """Keys times queries."""
    asked = len(spec.targets) if isinstance(spec, Family) else _asked(spec.histories)
    return asked * len(spec.keys)


def _asked(histories) -> int:
    return sum(not isinstance(event, int) for history in histories for event in history)


def cases(spec: KeySetSpec) -> Cases:
    """The cases of a specification of at most MAX_CELLS cells."""
    shape = (len(spec.targets) if isinstance(spec, Family) else _asked(spec.histories), len(spec.keys))
    alive, present = np.zeros(shape, bool), np.zeros(shape, bool)
    if isinstance(spec, Family):
        for row, target in enumerate(spec.targets):
            alive[row, list(target)] = True
        present[:] = True
        block = np.searchsorted(np.asarray(spec.slots, np.int64), np.arange(shape[1]))
        return Cases(alive, present, np.arange(shape[0]), block, len(spec.slots))
    row_of, at = np.zeros(shape[0], np.int64), 0
    for row, history in enumerate(spec.histories):
        pushed: list[int] = []
        for event in history:
            if isinstance(event, int):
                pushed.append(event)
                continue
            alive[at, list(event)] = present[at, pushed] = True
            row_of[at] = row
            at += 1
    return Cases(alive, present, row_of, None, 0)
