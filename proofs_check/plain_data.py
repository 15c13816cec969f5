"""Text (YAML or JSON) to plain data, and back from a place in the data to its line in the text.

The data is built once, without line numbers, so that a file of a million events is read at the speed of `json`.
Only when something is wrong is the text walked again, to find the line of the faulty place.

YAML is read from its event stream instead of by a loader: strings, whole numbers, lists and mappings only, no
aliases (so no alias bombs), no tags, bounded depth, no duplicate fields.
"""

import json
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, NamedTuple

import yaml
from yaml.events import (
    AliasEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

Path = tuple[str | int, ...]
"""A place in plain data: field names and list positions from the top."""

MAX_DEPTH = 16
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PARTS = {"targets": ("set",), "histories": ("history", "event"), "keys": ("name",), "dips": ("name",)}


class Fault(Exception):
    """Something wrong at a place of the data; `line` only where the reader already knows it."""

    def __init__(self, path: Path, message: str, line: int | None = None):
        super().__init__(message)
        self.path, self.message, self.line = path, message, line

    def where(self) -> str:
        """The place in words.

        >>> Fault(("histories", 0, 2, "query", 1), "").where()
        'histories: history 1: event 3: query: name 2'
        """
        words: list[str] = []
        names = iter(_PARTS.get(str(self.path[0]), ()) if self.path else ())
        for part in self.path:
            words.append(f"{next(names, 'name')} {part + 1}" if isinstance(part, int) else _short(part))
        return ": ".join(words)


class Odd(NamedTuple):
    """A value that no field accepts, kept to be named in a message: its text and what it is."""

    text: str
    what: str


def describe(value: Any) -> str:
    """A value as a message names it, short whatever its size."""
    if isinstance(value, Odd):
        return f"{_short(value.text)} ({value.what}; a name needs quotes)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (a boolean; a name needs quotes)"
    if isinstance(value, float):
        return f"{value!r} (a decimal number; a name needs quotes)"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "a mapping"
    return "nothing" if value is None else str(value) if isinstance(value, int) else f"'{_short(value)}'"


def _short(text: str) -> str:
    text = text if len(text) <= 40 else text[:37] + "..."
    return text if text.isprintable() else repr(text)[1:-1]


class Text:
    """The text of one specification file: its format, its plain data and the lines of its places."""

    def __init__(self, text: str, file: str):
        self.text, self.file = text, file
        self.format = _format(text, file)

    def data(self) -> Any:
        """Plain data of the text: dict, list, str, int, and for all else `Odd`, float, bool or None."""
        if self.format == "yaml":
            return _Yaml(self.text).data
        try:
            return _json(self.text)
        except Fault as fault:
            if self.format == "json" and fault.line is None and fault.path:
                _Yaml(self.text)  # a field given twice: as YAML its place is known
            if self.format == "json":
                raise
        return _Yaml(self.text).data  # the text starts like JSON but is YAML in flow style

    def message(self, fault: Fault) -> str:
        """The fault as one line "FILE: line L: FIELD: what was expected"."""
        line = fault.line if fault.line is not None else self._line(fault.path)
        parts = [self.file, f"line {line}" if line is not None else "", fault.where(), fault.message]
        return ": ".join(part for part in parts if part)

    def _line(self, path: Path) -> int | None:
        """Line of the deepest part of `path` that is in the text."""
        if not path or self.format == "text":
            return None
        try:
            return _json_line(self.text, path) if self.format != "yaml" else _Yaml(self.text, path).line
        except (Fault, ValueError):
            try:
                return _Yaml(self.text, path).line
            except Fault:
                return None


def _format(text: str, file: str) -> str:
    """json, yaml or text by the file's ending; otherwise by its look ("flow" may be either of the first two)."""
    ending = PurePath(file).suffix.lower()
    if ending in (".json", ".yaml", ".yml", ".txt"):
        return {".json": "json", ".txt": "text"}.get(ending, "yaml")
    if text.lstrip()[:1] in ("{", "["):
        return "flow"
    return "yaml" if re.search(r"^(\w[\w-]*\s*:(\s|$)|-\s|---)", text, re.MULTILINE) else "text"


# JSON.


def _json(text: str) -> Any:
    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            names = [name for name, _ in pairs]
            raise Fault((next(name for name in names if names.count(name) > 1),), "the field is given twice")
        return result

    def whole(digits: str) -> int | Odd:
        return int(digits) if len(digits) <= 18 else Odd(digits, "a whole number of more than 18 digits")

    try:
        return json.loads(
            text, object_pairs_hook=fields, parse_int=whole, parse_constant=lambda name: Odd(name, "not a number")
        )
    except json.JSONDecodeError as error:
        raise Fault((), f"expected JSON: {error.msg} at column {error.colno}", error.lineno) from None
    except RecursionError:
        raise Fault((), "lists are nested too deeply") from None


def _json_line(text: str, path: Path) -> int:
    """Walks JSON text to a place, skipping what lies before it with the decoder's own scanner."""
    decoder = json.JSONDecoder(parse_int=str)
    blank = re.compile(r"[\s,:]*")
    at = _skip(blank, text, 0)
    for part in path:
        end, found = at, None
        if isinstance(part, int) and text[at] == "[":
            end = _skip(blank, text, at + 1)
            for _ in range(part):
                end = _skip(blank, text, decoder.raw_decode(text, end)[1])
            found = end
        elif isinstance(part, str) and text[at] == "{":
            end = _skip(blank, text, at + 1)
            while found is None and text[end : end + 1] == '"':
                name, end = decoder.raw_decode(text, end)
                end = _skip(blank, text, end)
                if name == part:
                    found = end
                else:
                    end = _skip(blank, text, decoder.raw_decode(text, end)[1])
        if found is None:
            break
        at = found
    return text.count("\n", 0, at) + 1


def _skip(blank: re.Pattern[str], text: str, at: int) -> int:
    match = blank.match(text, at)
    return match.end() if match else at


# YAML.


def _line_of(event: yaml.Event) -> int:
    mark = event.start_mark
    assert mark is not None  # the parser marks every event
    return mark.line + 1


class _Yaml:
    """Builds plain data from YAML events; given a path, also the line of its deepest part that exists."""

    def __init__(self, text: str, wanted: Path | None = None):
        self.wanted = wanted
        self.line: int | None = None
        self.resolver = yaml.resolver.Resolver()
        self.events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_LOADER))
        try:
            next(self.events)  # stream start
            if isinstance(next(self.events), yaml.StreamEndEvent):
                raise Fault((), "expected a specification, found nothing")
            self.data = self._value(next(self.events), ())
            next(self.events)  # document end
            if not isinstance(event := next(self.events), yaml.StreamEndEvent):
                raise Fault((), "expected one document", _line_of(event))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            message = " ".join(part for part in (error.context, error.problem) if part)
            raise Fault((), f"expected YAML: {message}", mark.line + 1 if mark else None) from None
        except yaml.YAMLError as error:
            raise Fault((), f"expected YAML: {' '.join(str(error).split())[:120]}") from None

    def _value(self, event: yaml.Event, path: Path) -> Any:
        line = _line_of(event)
        if self.wanted is not None and path == self.wanted[: len(path)]:
            self.line = line
        if isinstance(event, AliasEvent):
            raise Fault(path, "aliases (*name) are not read; write the value out", line)
        if len(path) > MAX_DEPTH:
            raise Fault((), "lists are nested too deeply", line)
        if isinstance(event, ScalarEvent):
            return self._scalar(event, path, line)
        assert isinstance(event, (SequenceStartEvent, MappingStartEvent))
        if event.tag not in (None, "!"):
            raise Fault(path, "tags (!name) are not read", line)
        if isinstance(event, SequenceStartEvent):
            result: list[Any] = []
            while not isinstance(event := next(self.events), SequenceEndEvent):
                result.append(self._value(event, (*path, len(result))))
            return result
        return self._mapping(path)

    def _mapping(self, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            line = _line_of(event)
            if not isinstance(event, ScalarEvent):
                raise Fault(path, "expected a field name", line)
            if event.value in result:
                raise Fault((*path, event.value), "the field is given twice", line)
            result[event.value] = self._value(next(self.events), (*path, event.value))
        return result

    def _scalar(self, event: ScalarEvent, path: Path, line: int) -> Any:
        if event.tag not in (None, "!", "tag:yaml.org,2002:str"):
            raise Fault(path, "tags (!name) are not read", line)
        if event.style or event.tag:
            return event.value
        kind = self.resolver.resolve(yaml.ScalarNode, event.value, (True, False)).rpartition(":")[2]
        if kind == "str":
            return event.value
        if kind == "int" and re.fullmatch(r"0|-?[1-9][0-9]{0,17}", event.value):
            return int(event.value)
        what = {"bool": "a boolean", "null": "nothing", "float": "a decimal number", "timestamp": "a date"}
        return Odd(event.value, what.get(kind, "not a plain whole number" if kind == "int" else kind))
