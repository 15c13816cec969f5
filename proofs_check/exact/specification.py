"""Which keys each query should read: the specification inside a certificate file, as rows of events.

    {"keys": [NAME, ...], "targets": [[NAME, ...], ...], "dips": [NAME, ...]}     a family
    {"keys": [NAME, ...], "histories": [[{"push": NAME} | {"query": [NAME, ...]}, ...], ...]}

In histories an event may also name the type of its token, {"push": NAME, "token": TYPE}, or be a token alone. A row is
one sequence. In a family every row pushes all keys in order and asks one query, and a dip may stand only
right after a key named in "dips"; in a history it may stand after any event.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from proofs_check.exact.values import Rejected, entries, fields, need, show, whole

Event = str | frozenset[str]  # the name of a key that is pushed, or the set of keys that a query should read


@dataclass(frozen=True)
class Row:
    """One sequence of events; a dip may stand after event c (counted from 1) if c is in `slots`.

    `tokens`: every event of a history, tokens alone included, as (type of its token or None, what happens or None).
    """

    name: str
    events: list[Event]
    slots: Container[int]
    tokens: Sequence[tuple[str | None, Event | None]] = ()


@dataclass(frozen=True)
class Specification:
    """The keys in order and the rows; without any when the file has no specification."""

    keys: list[str]
    rows: list[Row]

    def row(self, number: Any) -> Row:
        """The row with that number."""
        need(1 <= whole(number, "row") <= len(self.rows), f"row: expected 1 to {len(self.rows)}, found {show(number)}")
        return self.rows[number - 1]


def read_specification(data: Any) -> Specification:
    """The rows of a specification; rejects what is not one."""
    if data is None:
        return Specification([], [])
    histories = isinstance(data, dict) and "histories" in data
    fields(data, ("keys", "histories") if histories else ("keys", "targets", "dips"), "specification")
    keys = _names(data["keys"], None, "keys")
    known = frozenset(keys)
    rows = entries(data["histories" if histories else "targets"], "specification")
    need(rows, "specification: expected at least one target or history")
    if histories:
        return Specification(keys, [_history(f"history {at}", row, known) for at, row in enumerate(rows, 1)])
    dips = frozenset(_names(data["dips"], known, "dips"))
    slots = frozenset(count for count, key in enumerate(keys, 1) if key in dips)
    queries = [frozenset(_names(target, known, f"set {at}")) for at, target in enumerate(rows, 1)]
    need(all(queries), "targets: a set is empty")
    return Specification(keys, [Row(f"set {at}", [*keys, query], slots) for at, query in enumerate(queries, 1)])


def _names(value: Any, known: frozenset[str] | None, where: str) -> list[str]:
    """A list of different key names, all of them known."""
    for name in entries(value, where):
        if not isinstance(name, str) or (known is not None and name not in known):
            raise Rejected(f"{where}: expected {'names' if known is None else 'known keys'}, found {show(name)}")
    need(len(set(value)) == len(value), f"{where}: a key is named twice")
    return value


def _history(name: str, events: Any, known: frozenset[str]) -> Row:
    row: list[tuple[str | None, Event | None]] = []
    pushed: set[str] = set()
    for count, event in enumerate(entries(events, name), 1):
        token = None
        if isinstance(event, dict) and "token" in event:
            token = event["token"]
            need(isinstance(token, str), f"{name}: event {count}: token: expected a name, found {show(token)}")
            event = {what: value for what, value in event.items() if what != "token"} or {"token": None}
        ((verb, value),) = event.items() if isinstance(event, dict) and len(event) == 1 else (("", None),)
        if verb == "push" and isinstance(value, str) and value in known and value not in pushed:
            pushed.add(value)
            row.append((token, value))
        elif verb == "query" and (query := frozenset(_names(value, known, name))) and query <= pushed:
            row.append((token, query))
        elif verb == "token" and token is not None:
            row.append((token, None))
        else:
            raise Rejected(
                f"{name}: event {count}: expected the push of a new key or a query of pushed ones, found {show(value)}"
            )
    happens = [event for _, event in row if event is not None]
    return Row(name, happens, range(1, len(happens) + 1), row)
