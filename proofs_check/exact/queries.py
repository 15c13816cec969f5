"""The queries of a specification as softmax and FoX heads meet them: which keys stand before each, which tokens.

Queries are numbered from 1 through the rows in order; in a family that is the number of the set. A query reads the
keys `alive` among those `present`, and a head gives each present key j the logit

    q . k_j + b_j - (gates of the tokens after j)

with q of its own ("free") or the same for all queries ("fixed"), and k_j, b_j those of the key.

Tokens of a family. Cut the keys into blocks, each ending at a key of "dips" (the last one may end at none). After
each block come the tokens of its keys in order, *keep* or *drop*; after keys at the end that no dip follows there are
none. Keys and their tokens do not depend on the set. Dips after each key: K1 D1 ... Kn Dn; at the end: K1 ... Kn D1
... Dn. In histories the tokens between events are free, but one history has the same tokens for all its queries.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from proofs_check.exact.specification import Row, Specification
from proofs_check.exact.values import Rejected, entries, need, show, whole


@dataclass(frozen=True)
class Query:
    """One query: what it reads, the keys before it in the order of their pushes, and the blocks of a family's keys."""

    row: Row
    alive: frozenset[str]
    present: dict[str, int]
    block: dict[str, int] | None

    def has(self, keys: Iterable[Any]) -> list[str]:
        """The keys, if all of them are present and different."""
        keys = list(keys)
        for key in keys:
            if not isinstance(key, str) or key not in self.present:
                raise Rejected(f"{self.row.name}: no key {show(key)} before the query")
        need(len(set(keys)) == len(keys), f"{self.row.name}: a key is named twice")
        return keys

    def between(self, keys: list[str]) -> tuple[Hashable, Hashable]:
        """The tokens between the first and the last of the keys, and how many of them are drops (in a history: its
        name for both, since nothing is known of its tokens)."""
        if self.block is None:
            return self.row.name, self.row.name
        blocks = [self.block[key] for key in keys]
        kept = [key in self.alive for key in self.present if min(blocks) <= self.block[key] < max(blocks)]
        return tuple(kept), kept.count(False)

    def before(self, key: str) -> Hashable:
        """The tokens before a key."""
        return self.between([next(iter(self.present)), key])[0]

    def all_before(self, known: dict[Hashable, int]) -> dict[str, Hashable]:
        """The tokens before every key, as names that are equal where the tokens are; `known` is shared by all queries.

        In one pass over the keys: tokens up to a block are named by those up to the block before, and the block's own.
        """
        if self.block is None:
            return dict.fromkeys(self.present, self.row.name)
        names: dict[str, Hashable] = {}
        name, block = 0, -1
        kept: list[bool] = []
        for key in self.present:
            if self.block[key] != block:
                name, block, kept = known.setdefault((name, tuple(kept)), len(known) + 1), self.block[key], []
            names[key] = name
            kept.append(key in self.alive)
        return names

    def gates(self, gate: list[Any]) -> list[Any]:
        """For each present key the sum of the gates of the drops after it, given the gate of each key's drop. (Drops of
        keys at the end that no dip follows are not there; counted, they would lower all keys alike.)"""
        assert self.block is not None
        total: Any = 0
        sums: dict[int, Any] = {}
        for key, value in zip(reversed(self.present), reversed(gate)):
            if key not in self.alive:
                total += value
            sums[self.block[key]] = total
        return [sums[self.block[key]] for key in self.present]


class Queries:
    """All queries of a specification."""

    def __init__(self, spec: Specification):
        need(spec.rows, "specification: expected one")
        self.family = isinstance(spec.rows[0].slots, frozenset)  # of histories they are ranges
        self.asked = [
            (row, count) for row in spec.rows for count, event in enumerate(row.events) if isinstance(event, frozenset)
        ]
        self.present = {key: at for at, key in enumerate(spec.keys)}
        self.block: dict[str, int] | None = None
        if self.family:
            ends = sorted(spec.rows[0].slots)  # type: ignore[call-overload]
            self.block = {key: bisect_right(ends, at) for at, key in enumerate(spec.keys)}

    def __len__(self) -> int:
        return len(self.asked)

    def query(self, number: Any) -> Query:
        """The query with that number."""
        need(1 <= whole(number, "query") <= len(self), f"query: expected 1 to {len(self)}, found {show(number)}")
        row, count = self.asked[number - 1]
        alive = row.events[count]
        assert isinstance(alive, frozenset)
        if self.family:
            return Query(row, alive, self.present, self.block)
        pushed = (event for event in row.events[:count] if isinstance(event, str))
        return Query(row, alive, {key: at for at, key in enumerate(pushed)}, None)

    def all(self, numbers: Any) -> list[Query]:
        """The queries with those numbers."""
        return [self.query(number) for number in entries(numbers, "queries")]
