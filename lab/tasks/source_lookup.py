"""source-lookup: Python files as scoped-lookup sequences: which binding does a use of a name refer to?

The alphabet is that of scoped-lookup. Scopes and bindings come in the order that `source_events.py` sets out, as in
source-scopes, and here a use of a name is a token too. A name is written as one of `symbols` symbols, by a hash, so
that a head trained on scoped-lookup reads any file; names that share a symbol look the same to the head, but are told
apart in what is asked: the candidates for a use are the bindings of its very name.

The binding in force is the newest live one of that name. That is the rule of nested blocks. Python differs where a
class body stands around a function (names bound in the class are not seen from the function), and where code runs in
another order than it is written; neither is looked at. Uses of names without a live binding, such as builtins and
functions that are defined further down, are counted as unscored.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from lab.tasks.base import Batch, whole_number
from lab.tasks.scoped_lookup import LookupBatch, empty_lookups, indented, vocabulary
from lab.tasks.source_events import Bind, Close, Elsewhere, Event, Open, Use, events
from lab.tasks.source_scopes import SourceFile, SourceScopes


@dataclass(frozen=True, eq=False)
class LookupFile(SourceFile):
    """One file; `bindings` and `uses` count tokens, `unscored` the uses of names without a live binding."""

    batch: LookupBatch


@dataclass(frozen=True, kw_only=True)
class SourceLookup(SourceScopes):
    """Options: those of source-scopes, and symbols, how many there are to write names with.

    values of a batch: every binding has a value of its own, its position; symbols: a number for every name.
    """

    name: ClassVar[str] = "source-lookup"
    symbols: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number(self.name, "symbols", self.symbols, 1, 100_000)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary(self.symbols)

    @property
    def key_tokens(self) -> tuple[int, ...]:
        return tuple(range(self.symbols))

    def labels(self, tokens: np.ndarray) -> list[str]:
        return indented(tokens, self.symbols)

    def files(self) -> list[LookupFile]:  # type: ignore[override]
        """Every file with something to score, in order of name; parsed once per task."""
        return [file for file in self._corpus.files if isinstance(file, LookupFile)]

    def _read(self, name: str, source: bytes) -> LookupFile:
        return read_lookups(name, source, self.symbols, self.scopes, self.max_tokens)

    def _empty(self, shape: tuple[int, ...]) -> Batch:
        return empty_lookups(shape, -1)

    def _copy(self, file: Batch, row: Batch) -> None:
        super()._copy(file, row)
        kept = min(file.seq_len, row.seq_len)
        for name in ("values", "in_force", "symbols"):
            getattr(row, name)[:kept] = getattr(file, name)[:kept]


@lru_cache(maxsize=1 << 16)
def symbol_of(name: str, symbols: int) -> int:
    """The symbol that a name is written with, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") % symbols


def read_lookups(
    name: str, source: bytes, symbols: int, scopes: str = "python", max_tokens: int | None = None
) -> LookupFile:
    """One file as a sequence. Raises SourceError if it is no Python source."""
    reader = _Reader(symbols)
    truncated = False
    for event in events(source, scopes):
        if len(reader.tokens) == max_tokens:
            truncated = True
            break
        reader.read(event)
    return LookupFile(
        name=name,
        batch=reader.batch(),
        scopes=reader.tokens.count(symbols),
        bindings=len(reader.born),
        uses=reader.uses,
        unscored=reader.uses - len(reader.in_force),
        max_depth=reader.max_depth,
        truncated=truncated,
        sha256=hashlib.sha256(source).hexdigest(),
    )


class _Scope:
    """An open scope: its bindings, names bound elsewhere, and walrus bindings on their way out."""

    def __init__(self, comprehension: bool) -> None:
        self.comprehension = comprehension
        self.bindings: list[tuple[str, int]] = []
        self.elsewhere: set[str] = set()
        self.passed_on: list[Bind] = []


class _Reader:
    """Writes tokens, deaths and queries as events come in."""

    def __init__(self, symbols: int) -> None:
        self.symbols = symbols
        self.tokens: list[int] = []
        self.names: list[int] = []
        self.born: list[int] = []
        self.in_force: dict[int, int] = {}
        self.uses = 0
        self.max_depth = 0
        self._numbers: dict[str, int] = {}
        self._death: dict[int, int] = {}
        self._live: dict[str, list[int]] = {}
        self._scopes = [_Scope(comprehension=False)]

    def read(self, event: Event) -> None:
        if isinstance(event, Use):
            self.uses += 1
            live = self._live.get(event.name)
            if live:
                self.in_force[len(self.tokens)] = live[-1]
            self._emit(self.symbols + 2 + symbol_of(event.name, self.symbols), event.name)
        elif isinstance(event, Bind):
            self._bind(event)
        elif isinstance(event, Open):
            self._emit(self.symbols)
            self._scopes.append(_Scope(event.comprehension))
            self.max_depth = max(self.max_depth, len(self._scopes) - 1)
        elif isinstance(event, Close):
            self._close()
        elif isinstance(event, Elsewhere) and len(self._scopes) > 1:  # at module level, `global` says nothing new
            self._scopes[-1].elsewhere.update(event.names)

    def _bind(self, event: Bind) -> None:
        scope = self._scopes[-1]
        if event.around and scope.comprehension:
            scope.passed_on.append(event)
        elif event.name not in scope.elsewhere:
            place = len(self.tokens)
            scope.bindings.append((event.name, place))
            self._live.setdefault(event.name, []).append(place)
            self.born.append(place)
            self._emit(symbol_of(event.name, self.symbols), event.name)

    def _close(self) -> None:
        scope = self._scopes.pop()
        for name, place in scope.bindings:
            self._live[name].remove(place)
            self._death[place] = len(self.tokens)
        self._emit(self.symbols + 1)
        for event in scope.passed_on:
            self._bind(event)

    def _emit(self, token: int, name: str | None = None) -> None:
        self.tokens.append(token)
        self.names.append(-1 if name is None else self._numbers.setdefault(name, len(self._numbers)))

    def batch(self) -> LookupBatch:
        seq_len = len(self.tokens)
        death, queries, values, in_force = (np.full(seq_len, n, dtype=np.int64) for n in (0, 0, seq_len, -1))
        for place in self.born:
            death[place] = self._death.get(place, seq_len)
            values[place] = place
        for row, place in self.in_force.items():
            queries[row], in_force[row] = 1, place
        names = np.array(self.names, dtype=np.int64)
        return LookupBatch(np.array(self.tokens, dtype=np.int64), death, queries, values, in_force, names)
