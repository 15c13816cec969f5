"""Key-set specifications: which keys each query should read.

Two forms, both with the keys numbered 0..n-1 in the order of `keys`:

* `Family`: one sequence per target set; every sequence pushes all keys in order and asks one query at its end.
  `slots` are the keys right after which a dip may stand.
* `Histories`: sequences of pushes and queries; a dip may stand between any two events. Events may also name token
  types, {push: a, token: x} or {token: close}; then every push names one (`Tokens`).

`load` reads a file (YAML, JSON or plain text), `from_options` the command line's short form. Every fault of the
input is one `InputError` line "FILE: line L: FIELD: what was expected"; oddities that do no harm are collected in
`warnings`. Text becomes plain data first (`proofs_check.plain_data`), and one validator reads the plain data, so
the three file formats cannot disagree.

>>> spec = from_options(keys=4, targets="1,3; 2", dips="at-end")
>>> spec.targets, spec.slots
(((0, 2), (1,)), (3,))
"""

import gc
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from lab.errors import InputError, nearest
from proofs_check.plain_data import Fault, Path, Text, describe

MAX_EVENTS = 10_000_000  # events, and names in target sets, of one specification
MAX_BYTES = 256 * 2**20
MAX_NAME = 100

Target = tuple[int, ...]
Event = int | Target
"""A pushed key (its number) or a query (the numbers of the keys it should read, increasing)."""


@dataclass(frozen=True)
class Family:
    """One sequence per target set. `targets` are non-empty, increasing and distinct; `slots` increasing."""

    keys: tuple[str, ...]
    targets: tuple[Target, ...]
    slots: tuple[int, ...]
    warnings: tuple[str, ...] = ()

    form = "family"

    @property
    def dips(self) -> str | list[str]:
        """Where dips may stand, in the words of a specification."""
        if self.slots == tuple(range(len(self.keys))):
            return "after-each-key"
        if self.slots == (len(self.keys) - 1,):
            return "at-end"
        return [self.keys[slot] for slot in self.slots]

    def to_data(self) -> dict[str, Any]:
        """The specification as plain data, in the file format that `load` reads."""
        return {
            "keys": list(self.keys),
            "targets": [[self.keys[key] for key in target] for target in self.targets],
            "dips": [self.keys[slot] for slot in self.slots],
        }


@dataclass(frozen=True)
class Tokens:
    """The token types that the events of histories name, and each history with them.

    An event of a row is (type, what happens). A type is a position of that token; a query without a type is asked at
    the position before it. Nothing happens at a token that stands alone. A type of pushed keys is pushed wherever it
    stands.
    """

    types: tuple[str, ...]
    rows: tuple[tuple[tuple[int | None, Event | None], ...], ...]


@dataclass(frozen=True)
class Histories:
    """Sequences of events over shared keys; a key is pushed at most once per history and before it is queried.

    `histories` holds pushes and queries only; `tokens`, where events name token types, everything.
    """

    keys: tuple[str, ...]
    histories: tuple[tuple[Event, ...], ...]
    warnings: tuple[str, ...] = ()
    tokens: Tokens | None = None

    form = "history"

    @property
    def dips(self) -> str:
        """Where dips may stand, in words."""
        return "between-any-two-events"

    def to_data(self) -> dict[str, Any]:
        """The specification as plain data, in the file format that `load` reads."""
        names = self.keys

        def event(value: Event) -> dict[str, Any]:
            if isinstance(value, int):
                return {"push": names[value]}
            return {"query": [names[key] for key in value]}

        if self.tokens is None:
            return {"keys": list(names), "histories": [[event(e) for e in history] for history in self.histories]}
        types = self.tokens.types

        def typed(token: int | None, value: Event | None) -> dict[str, Any]:
            what = {} if value is None else event(value)
            return what if token is None else {**what, "token": types[token]}

        return {"keys": list(names), "histories": [[typed(*e) for e in row] for row in self.tokens.rows]}


KeySetSpec = Family | Histories


def load(file: str, *, dips: str | None = None) -> KeySetSpec:
    """Reads a specification file; "-" is standard input. `dips` replaces a family's own dips.

    Raises `InputError` for anything that is not a specification.
    """
    return loads(_read(file), "standard input" if file == "-" else file, dips=dips)


def loads(text: str, file: str = "specification", *, dips: str | None = None) -> KeySetSpec:
    """Reads a specification from its text; `file` names it in messages and its ending tells the format."""
    source = Text(text, file)
    try:
        if not text.strip():
            raise Fault((), "expected a specification, found an empty file")
        if any("\ud800" <= character <= "\udfff" for character in set(text)):
            raise Fault((), "expected Unicode text, found half of a surrogate pair")
        if source.format == "text":
            return _from_lines(text, dips)
        with collector_paused():
            return _from_data(source.data(), dips)
    except Fault as fault:
        raise InputError(source.message(fault)) from None
    except MemoryError:
        raise InputError(f"{file}: too large for this machine's memory") from None


@contextmanager
def collector_paused() -> Iterator[None]:
    """A million small lists, none of them garbage: the cycle collector would scan them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def from_options(keys: int | str, targets: str, dips: str | None = None) -> Family:
    """The command line's short form: sets separated by semicolons, names by commas or spaces.

    `keys` is how many (names 1..n) or the names themselves. Raises `InputError` naming the option.
    """
    text = str(keys).strip()
    try:
        data: dict[str, Any] = {
            "keys": int(text) if text.isascii() and text.isdigit() and len(text) < 18 else _words(text),
            "targets": [_words(part) for part in targets.split(";")],
        }
        if dips is not None:
            places = _words(dips)
            known = data["keys"] if isinstance(data["keys"], list) else ()
            # One word that names no key was meant as a mode; the error then offers the nearest mode.
            is_mode = len(places) == 1 and not places[0].isdigit() and places[0] not in known
            data["dips"] = dips.strip() if is_mode else places
        spec = _from_data(data, None)
    except Fault as fault:
        raise InputError(f"--{fault.where()}: {fault.message}") from None
    assert isinstance(spec, Family)
    return spec


def _read(file: str) -> str:
    name = "standard input" if file == "-" else file
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with FilePath(file).open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"{name}: expected at most {MAX_BYTES // 2**20} MiB and {MAX_EVENTS:,} events")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"{name}: line {line}: expected text in UTF-8") from None


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\s,]+", text) if word]


def _from_lines(text: str, dips: str | None) -> Family:
    """Plain text: a target set per line. Keys stand in order of first mention; in numeric order if all are numbers."""
    targets: list[list[str]] = []
    keys: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = _words(line.split("#", 1)[0])
        try:
            keys.update((_name(word, ("targets", len(targets), at)), None) for at, word in enumerate(words))
        except Fault as fault:
            raise Fault(fault.path, fault.message, number) from None
        if words:
            targets.append(words)
    if not targets:
        raise Fault((), "expected one target set per line, found none")
    names = list(keys)
    if all(name.isascii() and name.isdigit() for name in names):
        names.sort(key=lambda name: (len(name), name))
    return _family({"keys": names, "targets": targets}, dips)


def _from_data(data: Any, dips: str | None) -> KeySetSpec:
    if not isinstance(data, dict):
        raise Fault((), f"expected the fields keys and targets, or histories; found {describe(data)}")
    for field in data:
        if field not in ("keys", "targets", "dips", "histories"):
            hint = nearest(str(field), ("keys", "targets", "dips", "histories"))
            raise Fault((str(field),), f"unknown field{hint}")
    if "histories" not in data:
        return _family(data, dips)
    for field in ("targets", "dips"):
        if field in data:
            reason = "histories hold their own queries" if field == "targets" else "a dip may stand between any events"
            raise Fault((field,), f"not used together with histories: {reason}")
    if dips is not None:
        raise Fault(("dips",), "not used together with histories: a dip may stand between any events")
    return _histories(data)


# The family form.


def _family(data: dict[str, Any], dips: str | None) -> Family:
    for field in ("keys", "targets"):
        if field not in data:
            raise Fault((field,), f"missing; expected {_WHAT[field]}")
    index = _keys(data["keys"])
    warnings: list[str] = []
    targets: dict[Target, int] = {}
    budget = MAX_EVENTS
    for row, names in enumerate(_list(data["targets"], ("targets",))):
        path = ("targets", row)
        budget -= len(_list(names, path)) + 1
        if budget < 0:
            raise Fault(path, f"more than {MAX_EVENTS:,} names in all")
        target = _target(names, index, path, warnings)
        if not target:
            warnings.append(f"{Fault(path, '').where()}: empty, ignored")
        elif target in targets:
            warnings.append(f"{Fault(path, '').where()}: the same as set {targets[target] + 1}, kept once")
        else:
            targets[target] = row
    if not targets:
        raise Fault(("targets",), "expected at least one non-empty set")
    return Family(tuple(index), tuple(targets), _slots(data, dips, index, warnings), tuple(warnings))


_WHAT = {"keys": "a list of names or a whole number", "targets": "a list of sets of key names"}


def _slots(data: dict[str, Any], dips: str | None, index: dict[str, int], warnings: list[str]) -> tuple[int, ...]:
    value = data.get("dips", "after-each-key") if dips is None else dips
    if value == "after-each-key":
        return tuple(range(len(index)))
    if value == "at-end":
        return (len(index) - 1,)
    if isinstance(value, str):
        hint = nearest(value, ("after-each-key", "at-end"))
        raise Fault(("dips",), f"expected after-each-key, at-end or a list of keys, found {describe(value)}{hint}")
    return _target(value, index, ("dips",), warnings)


# The history form.


def _histories(data: dict[str, Any]) -> Histories:
    declared = _keys(data["keys"]) if "keys" in data else None
    reader = _HistoryReader(declared)
    histories = tuple(reader.history(row, value) for row, value in enumerate(_list(data["histories"], ("histories",))))
    if not histories:
        raise Fault(("histories",), "expected at least one history")
    if all(isinstance(event, int) for history in histories for event in history):
        raise Fault(("histories",), "expected at least one query of a key")
    tokens = reader.tokens()
    unused = [name for name, key in reader.index.items() if key not in reader.pushed_ever]
    if unused:
        listed = ", ".join(unused[:5]) + (", ..." if len(unused) > 5 else "")
        reader.warnings.append(f"keys: never pushed: {listed}")
    return Histories(tuple(reader.index), histories, tuple(reader.warnings), tokens)


class _HistoryReader:
    """Reads histories event by event. A new kind of event is one more entry of `kinds`."""

    def __init__(self, declared: dict[str, int] | None):
        self.index: dict[str, int] = {} if declared is None else declared
        self.open = declared is None  # keys are those pushed, in order of first push
        self.kinds: dict[str, Callable[[Any], Event | None]] = {"push": self.push, "query": self.query}
        self.warnings: list[str] = []
        self.pushed_ever: set[int] = set()
        self.pushed: set[int] = set()  # in the present history
        self.budget = MAX_EVENTS
        self.row = self.number = 0  # the present history and event
        self.types: dict[str, int] = {}
        self.typed: list[tuple[tuple[int | None, Event | None], ...]] = []
        self.untyped_push: Path | None = None  # the first one
        self.key_types: set[int] = set()
        self.other_types: dict[int, Path] = {}  # where each first stands without a push

    def history(self, row: int, events: Any) -> tuple[Event, ...]:
        result: list[Event] = []
        typed: list[tuple[int | None, Event | None]] = []
        self.row, self.pushed = row, set()
        for self.number, event in enumerate(_list(events, ("histories", row))):
            token, read = None, None
            if type(event) is dict and "token" in event:
                token, event = self.token(event)
            if token is None or event:
                verb, value = self.fields(event)
                read = self.kinds[verb](value)
                if token is None and type(read) is int and self.untyped_push is None:
                    self.untyped_push = self.place("token")
            if self.types and (token is not None or read is not None):
                typed.append((token, read))
            if read is not None:
                result.append(read)
            self.budget -= 1 if type(read) is int else 1 + len(read or ())  # type: ignore[arg-type]
            if self.budget < 0:
                raise Fault(self.place(), f"more than {MAX_EVENTS:,} events and queried names in all")
        self.typed.append(tuple(typed))
        self.pushed_ever |= self.pushed
        return tuple(result)

    def token(self, event: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The number of the event's token type, and the event without it."""
        number = self.types.setdefault(_name(event["token"], self.place("token")), len(self.types))
        if "push" in event:
            self.key_types.add(number)
        elif number not in self.other_types:
            self.other_types[number] = self.place("token")
        return number, {verb: value for verb, value in event.items() if verb != "token"}

    def tokens(self) -> Tokens | None:
        """The token types of all histories, None if no event names one."""
        if not self.types:
            return None
        if self.untyped_push is not None:
            raise Fault(self.untyped_push, "missing; other events name token types, so every push has to")
        names = tuple(self.types)
        for number, place in self.other_types.items():
            if number in self.key_types:
                raise Fault(place, f"{names[number]!r} is a type of pushed keys; here it needs a push of its own")
        return Tokens(names, tuple(self.typed))

    def place(self, *deeper: str | int) -> Path:
        return ("histories", self.row, self.number, *deeper)

    def fields(self, event: Any) -> tuple[str, Any]:
        if type(event) is dict and len(event) == 1:
            ((verb, value),) = event.items()
            if verb in self.kinds:
                return verb, value
            raise Fault(self.place(verb), f"unknown event{nearest(verb, (*self.kinds, 'token'))}")
        found = f"{len(event)} fields" if isinstance(event, dict) else describe(event)
        raise Fault(self.place(), f"expected one of {{push: NAME}}, {{query: [NAME, ...]}}, found {found}")

    def push(self, value: Any) -> Event:
        key = self.index.get(value) if type(value) is str else None
        if key is None:
            name = _name(value, self.place("push"))
            if not self.open and name not in self.index:
                raise Fault(self.place("push"), f"unknown key {name!r}{_near(name, self.index)}")
            key = self.index.setdefault(name, len(self.index))
        if key in self.pushed:
            raise Fault(self.place("push"), f"key {value!r} is pushed twice in this history")
        self.pushed.add(key)
        return key

    def query(self, value: Any) -> Event | None:
        try:
            keys = {self.index[name] for name in value}  # the common case: known names, each once
        except (KeyError, TypeError):
            keys = set()
        if len(keys) != len(_list(value, self.place("query"))) or not keys <= self.pushed:
            return self.careful_query(value)
        return tuple(sorted(keys)) if keys else self.careful_query(value)

    def careful_query(self, value: Any) -> Event | None:
        """The same query name by name, with every fault and oddity."""
        path = self.place("query")
        for number, item in enumerate(value):
            name = _name(item, (*path, number))
            known = name in self.index
            if not known and not self.open:
                raise Fault((*path, number), f"unknown key {name!r}{_near(name, self.index)}")
            if not known or self.index[name] not in self.pushed:
                hint = "" if known else _near(name, self.index)
                raise Fault((*path, number), f"key {name!r} is not pushed yet in this history{hint}")
        if target := _target(value, self.index, path, self.warnings):
            return target
        self.warnings.append(f"{Fault(path, '').where()}: empty, ignored")
        return None


# Names and lists.


def _list(value: Any, path: Path) -> Sequence[Any]:
    if not isinstance(value, list):
        raise Fault(path, f"expected a list, found {describe(value)}")
    return value


def _name(value: Any, path: Path) -> str:
    """A key's name: a string, or a whole number written plainly (which names the same key as its digits)."""
    if type(value) is int:
        value = str(value)
    if type(value) is not str:
        raise Fault(path, f"expected a name, found {describe(value)}")
    if not 0 < len(value) <= MAX_NAME or not value.isprintable():
        raise Fault(path, f"expected a name of 1 to {MAX_NAME} printable characters, found {describe(value)}")
    return value


def _keys(value: Any) -> dict[str, int]:
    """Number of each key name, in the order of the list."""
    if type(value) is int:
        if not 1 <= value <= MAX_EVENTS:
            raise Fault(("keys",), f"expected a whole number from 1 to {MAX_EVENTS:,}, found {value}")
        return {str(number + 1): number for number in range(value)}
    if not isinstance(value, list):
        raise Fault(("keys",), f"expected {_WHAT['keys']}, found {describe(value)}")
    if not 1 <= len(value) <= MAX_EVENTS:
        raise Fault(("keys",), f"expected 1 to {MAX_EVENTS:,} names, found {len(value)}")
    index: dict[str, int] = {}
    for number, item in enumerate(value):
        name = _name(item, ("keys", number))
        if index.setdefault(name, number) != number:
            raise Fault(("keys", number), f"key {name!r} is listed twice")
    return index


def _target(value: Any, index: dict[str, int], path: Path, warnings: list[str]) -> Target:
    """Key numbers of a list of names, increasing, each once."""
    keys: set[int] = set()
    for number, item in enumerate(_list(value, path)):
        key = index.get(item) if type(item) is str else index.get(_name(item, (*path, number)))
        if key is None:
            name = _name(item, (*path, number))
            raise Fault((*path, number), f"unknown key {name!r}{_near(name, index)}")
        if key in keys:
            warnings.append(f"{Fault(path, '').where()}: {item!r} is repeated, counted once")
        keys.add(key)
    return tuple(sorted(keys))


def _near(name: str, index: Iterable[str]) -> str:
    """The nearest key name; silent when there are too many to list or to search."""
    names = list(index)
    if not names or len(names) > 10_000:
        return ""
    hint = nearest(name, names)
    return hint if len(names) <= 20 or hint.startswith("; did") else ""
