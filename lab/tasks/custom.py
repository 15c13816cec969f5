"""custom: the target sets of a key-set specification as a task, so that heads can be trained on a family of one's own.

The tokens are one per key, then drop, keep, query. In both forms every key that can be dropped is answered
for by one D token, *drop* if it is not a target and *keep* if it is, so the tokens determine the targets.

Family form: one sequence per target set S, one query at its end (the encodings of THEORY.md):

    after-each-key     K1 D1 K2 D2 ... Kn Dn Q
    at-end             K1 K2 ... Kn D1 D2 ... Dn Q
    list of slots      after the key of a slot, one D for every key since the slot before it, in key order;
                       keys after the last slot have no D and must be in every target

History form: pushes and queries in the order given. A push is the key's token. A query is a run of D tokens,
one for every key that has not died before, in order of push, and then Q: so push a, push b, query {b} reads
a b drop keep Q,  and a history with one query is the family form with dips at the end. A key missing at a
query dies there for good.

Which sequence stands at an index is drawn uniformly. Empty targets cannot be asked for: such sets and queries
are ignored, and a query that is ignored kills nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from lab.errors import InputError, nearest
from lab.tasks.base import Batch, Task, one_of

DROP, KEEP, QUERY = "drop", "keep", "query"
DIPS = ("after-each-key", "at-end")

# All sequences of the task are kept, as three int64 arrays.
_MAX_TOKENS = 10_000_000
_NEVER = -1

Names = tuple[str, ...]
Event = tuple[str, str | Names]


@dataclass(frozen=True, kw_only=True)
class Custom(Task):
    """Options, family form: keys (names in order), targets (lists of names), dips (a mode, or a list of keys).

    Options, history form: histories, lists of events ["push", name] or ["query", [names]]; keys may be given
    to fix their order. The length of a custom task is its number of keys and cannot be varied. Sets are put
    into key order, and empty and repeated ones are left out.

    Errors: InputError for an unknown or repeated key, a key pushed twice, a query naming a key not yet pushed
    or one that died at an earlier query, a target without a key that no slot can drop, nothing to ask.
    """

    name: ClassVar[str] = "custom"
    keys: Names = ()
    targets: tuple[Names, ...] = ()
    dips: str | Names = "after-each-key"
    histories: tuple[tuple[Event, ...], ...] = ()

    def __post_init__(self) -> None:
        histories = _read_histories(self.histories)
        keys = _read_keys(self.keys, histories)
        dips = _read_dips(self.dips, keys)
        if histories and (self.targets or dips != "after-each-key"):
            raise InputError("custom: histories: expected either histories or targets with dips, not both")
        self._set(keys=keys, targets=_read_targets(self.targets, keys), dips=dips)
        self._set(histories=tuple(_check_history(n, events, frozenset(keys)) for n, events in enumerate(histories)))
        if not (self.targets or self.histories):
            raise InputError("custom: targets: expected at least one nonempty set of keys, or histories")
        self.sequences()  # so that a target which cannot be encoded is an error here, not at the first draw

    def _set(self, **values: Any) -> None:
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @property
    def vocabulary(self) -> Names:
        return (*self.keys, DROP, KEEP, QUERY)

    @property
    def key_tokens(self) -> tuple[int, ...]:
        return tuple(range(len(self.keys)))

    @property
    def train_length(self) -> int:
        return len(self.keys)

    def seq_len(self, length: int) -> int:
        if length != self.train_length:
            raise InputError(f"custom: length: expected {self.train_length}, the number of keys, got {length!r}")
        return self._sequences.seq_len

    def _generate(self, keys: np.ndarray, start: int, batch: Batch) -> None:
        from lab.tasks.kernels.random import choices

        drawn = choices(keys, start, batch.tokens.shape[1], len(self._sequences.tokens))
        batch.tokens[:] = self._sequences.tokens[drawn]
        batch.death[:] = self._sequences.death[drawn]
        batch.queries[:] = self._sequences.queries[drawn]

    def sequences(self) -> Batch:
        """Every sequence of the task once, in the order of the specification; lead shape (targets or histories,)."""
        return self._sequences

    @cached_property
    def _sequences(self) -> Batch:
        longest = 2 * len(self.keys) + 1 if not self.histories else max(map(_history_length, self.histories))
        count = len(self.histories or self.targets)
        if count * longest > _MAX_TOKENS:
            raise InputError(f"custom: {count} sequences of up to {longest} tokens are more than {_MAX_TOKENS} in all")
        written = list(self._write())
        seq_len = max(len(sequence.tokens) for sequence in written)
        rows = [sequence.padded(seq_len) for sequence in written]
        return Batch(*(np.array(part, dtype=np.int64) for part in zip(*rows)))

    def _write(self) -> Iterator[_Sequence]:
        if self.histories:
            for events in self.histories:
                yield _write_history(events, self.keys)
            return
        slots = {"after-each-key": self.keys, "at-end": self.keys[-1:]}.get(str(self.dips), self.dips)
        for target in self.targets:
            yield _write_target(target, self.keys, frozenset(slots))


class _Sequence:
    """One sequence while it is written: pushes, D tokens that answer for keys, queries."""

    def __init__(self, keys: Names) -> None:
        self._token = {name: token for token, name in enumerate((*keys, DROP, KEEP, QUERY))}
        self._position: dict[str, int] = {}
        self.tokens: list[int] = []
        self.death: list[int] = []
        self.queries: list[int] = []

    def push(self, name: str) -> None:
        self._position[name] = len(self.tokens)
        self._append(name, death=_NEVER)

    def answer(self, names: Sequence[str], target: frozenset[str]) -> None:
        for name in names:
            if name not in target:
                self.death[self._position[name]] = len(self.tokens)
            self._append(KEEP if name in target else DROP)

    def query(self) -> None:
        self._append(QUERY, queries=1)

    def _append(self, token: str, death: int = 0, queries: int = 0) -> None:
        self.tokens.append(self._token[token])
        self.death.append(death)
        self.queries.append(queries)

    def padded(self, seq_len: int) -> tuple[list[int], list[int], list[int]]:
        padding = [0] * (seq_len - len(self.tokens))
        death = [seq_len if row == _NEVER else row for row in self.death]
        return self.tokens + padding, death + padding, self.queries + padding


def _write_target(target: Names, keys: Names, slots: frozenset[str]) -> _Sequence:
    sequence = _Sequence(keys)
    wanted = frozenset(target)
    unanswered: list[str] = []
    for name in keys:
        sequence.push(name)
        unanswered.append(name)
        if name in slots:
            sequence.answer(unanswered, wanted)
            unanswered = []
    for name in unanswered:
        if name not in wanted:
            names = ", ".join(target)
            raise InputError(f"custom: targets: [{names}] leaves out key {name!r}, but no dip may stand after that key")
    sequence.query()
    return sequence


def _write_history(events: tuple[Event, ...], keys: Names) -> _Sequence:
    sequence = _Sequence(keys)
    live: list[str] = []
    for kind, named in events:
        if kind == "push":
            sequence.push(str(named))
            live.append(str(named))
        else:
            target = frozenset(named)
            sequence.answer(live, target)
            sequence.query()
            live = [name for name in live if name in target]
    return sequence


def _history_length(events: tuple[Event, ...]) -> int:
    length = live = 0
    for kind, named in events:
        length += 1 if kind == "push" else live + 1
        live = live + 1 if kind == "push" else len(named)
    return length


def _read_names(field: str, value: Any, valid: Collection[str] | None = None) -> Names:
    """A list of different names, all of them among the valid ones."""
    if isinstance(value, str) or not isinstance(value, Sequence | Set):
        raise InputError(f"custom: {field}: expected a list of names, got {value!r}")
    seen: dict[str, None] = {}
    for name in value:
        if not isinstance(name, str):
            raise InputError(f"custom: {field}: expected a list of names, got {name!r} in it")
        if name in seen:
            raise InputError(f"custom: {field}: {name!r} stands there twice")
        if valid is not None and name not in valid:
            raise InputError(f"custom: {field}: unknown key {name!r}{nearest(name, valid)}")
        seen[name] = None
    return tuple(seen)


def _read_keys(value: Any, histories: tuple[tuple[Event, ...], ...]) -> Names:
    keys = _read_names("keys", value)
    if not keys:
        keys = tuple(dict.fromkeys(str(named) for events in histories for kind, named in events if kind == "push"))
    if not keys:
        raise InputError("custom: keys: expected a list of at least one name")
    for name in (DROP, KEEP, QUERY):
        if name in keys:
            raise InputError(f"custom: keys: {name!r} is the name of a token that is no key, rename the key")
    return keys


def _read_targets(value: Any, keys: Names) -> tuple[Names, ...]:
    """The sets in key order, without the empty ones and without repeats."""
    order = {name: n for n, name in enumerate(keys)}
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"custom: targets: expected a list of lists of names, got {value!r}")
    sets = (_read_names(f"targets[{n}]", target, order) for n, target in enumerate(value))
    ordered = (tuple(sorted(target, key=order.__getitem__)) for target in sets)
    return tuple(dict.fromkeys(target for target in ordered if target))


def _read_dips(value: Any, keys: Names) -> str | Names:
    if isinstance(value, str):
        one_of("custom", "dips", value, DIPS)
        return value
    chosen = frozenset(_read_names("dips", value, keys))
    return tuple(name for name in keys if name in chosen)


def _read_histories(value: Any) -> tuple[tuple[Event, ...], ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"custom: histories: expected a list of lists of events, got {value!r}")
    return tuple(_read_events(f"histories[{n}]", events) for n, events in enumerate(value))


def _read_events(where: str, value: Any) -> tuple[Event, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"custom: {where}: expected a list of events, got {value!r}")
    return tuple(_read_event(f"{where}[{n}]", event) for n, event in enumerate(value))


def _read_event(where: str, value: Any) -> Event:
    """("push", name) or ("query", names), from a pair or from a mapping with one key as it stands in a YAML file."""
    pair = tuple(*value.items()) if isinstance(value, Mapping) and len(value) == 1 else value
    if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2 or not isinstance(pair[0], str):
        raise InputError(f"custom: {where}: expected [push, name] or [query, names], got {value!r}")
    kind, named = pair
    if kind not in ("push", "query"):
        raise InputError(f"custom: {where}: unknown event {kind!r}{nearest(kind, ('push', 'query'))}")
    if kind == "query":
        return kind, _read_names(where, named)
    if not isinstance(named, str):
        raise InputError(f"custom: {where}: expected the name of a key to push, got {named!r}")
    return kind, named


def _check_history(n: int, events: tuple[Event, ...], keys: frozenset[str]) -> tuple[Event, ...]:
    """The events without empty queries, once it is certain that no key comes back to life."""
    where = f"custom: histories[{n}]"
    pushed: set[str] = set()
    died: dict[str, int] = {}  # key: the event, a query, at which it was first missing
    kept: list[Event] = []
    for m, (kind, named) in enumerate(events):
        for name in (named,) if isinstance(named, str) else named:
            if name not in keys:
                raise InputError(f"{where}[{m}]: unknown key {name!r}{nearest(name, keys)}")
            if kind == "push" and name in pushed:
                raise InputError(f"{where}[{m}]: key {name!r} is pushed twice")
            if kind == "query" and name not in pushed:
                raise InputError(f"{where}[{m}]: the query names key {name!r}, which is not yet pushed")
            if name in died:
                raise InputError(
                    f"{where}: key {name!r} is missing at the query of event {died[name]} and comes back at event {m}"
                )
        if kind == "push":
            pushed.add(str(named))
        elif named:
            died |= {name: m for name in pushed.difference(named) if name not in died}
        if named:
            kept.append((kind, named))
    if not any(kind == "query" for kind, _ in kept):
        raise InputError(f"{where}: expected at least one query with a nonempty target")
    return tuple(kept)
