"""source-scopes: Python files as nested-scope sequences, to try heads trained on brackets on nesting people wrote.

The alphabet is that of nested-scope. Each binding of a name is a key, and scopes that open and close are
brackets, in the order that `source_events.py` sets out. Module level is depth 0, so module-level names never
die. A use of a name is no token: it adds one query to the last event at or before it, where the head is asked
which names are still in scope. Uses before the first event, or where no key is live, are counted as unscored.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np

from lab.errors import InputError
from lab.tasks.base import Batch, Task, one_of, whole_number
from lab.tasks.nested_scope import CLOSE, KEY, OPEN, VOCABULARY, indented
from lab.tasks.source_events import SCOPES, Bind, Close, Elsewhere, Event, Open, SourceError, Use, events

# Folders that hold no source of the corpus itself; hidden folders are left out too.
_NOT_SOURCE = frozenset({"__pycache__", "site-packages", "dist-packages"})
_TESTS = frozenset({"test", "tests", "idle_test"})


@dataclass(frozen=True, eq=False)
class SourceFile:
    """One file. `name` is relative to the root, with forward slashes; the batch has no leading axes, shape (seq_len,).

    `uses` counts every use of a name, `unscored` those among them at which no key is live. `truncated` says
    that max_tokens cut the file; all counts are then those of the part kept.
    """

    name: str
    batch: Batch
    scopes: int
    bindings: int
    uses: int
    unscored: int
    max_depth: int
    truncated: bool
    sha256: str


@dataclass(frozen=True, kw_only=True)
class SourceScopes(Task):
    """Options: path, scopes, include_tests, max_files, max_tokens.

    path           a Python file, or a folder searched for *.py; None: the running Python's standard library
    scopes         "python" (functions, classes, lambdas, comprehensions) or "indent" (indented blocks)
    include_tests  also look into folders named test, tests or idle_test
    max_files      at most that many files, at even distances in order of size, from smallest to largest
    max_tokens     longer files are cut after that many tokens

    Files that cannot be read are left out and counted by reason, see `skipped`. Sampling draws whole files,
    all splits from the same corpus; a length cuts or pads them to that many tokens. The path is looked at
    when files are first asked for, so a configuration can be read on a machine that lacks them. InputError if
    there is no such path, or no Python file that can be read under it.
    """

    name: ClassVar[str] = "source-scopes"
    path: str | None = None
    scopes: str = "python"
    include_tests: bool = False
    max_files: int | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.path is not None and not (isinstance(self.path, str) and self.path):
            raise InputError(f"{self.name}: path: expected the path of a file or folder, got {self.path!r}")
        one_of(self.name, "scopes", self.scopes, SCOPES)
        if not isinstance(self.include_tests, bool):
            raise InputError(f"{self.name}: include_tests: expected true or false, got {self.include_tests!r}")
        if self.max_files is not None:
            whole_number(self.name, "max_files", self.max_files, 1)
        if self.max_tokens is not None:
            whole_number(self.name, "max_tokens", self.max_tokens, 1)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return VOCABULARY

    @property
    def key_tokens(self) -> tuple[int, ...]:
        return (KEY,)

    @property
    def train_length(self) -> int:
        """The longest file: sampled at this length, no file is cut."""
        return max(file.batch.seq_len for file in self.files())

    def seq_len(self, length: int) -> int:
        return length

    def labels(self, tokens: np.ndarray) -> list[str]:
        return indented(tokens)

    def files(self) -> list[SourceFile]:
        """Every file with something to score, in order of name; parsed once per task."""
        return list(self._corpus.files)

    def skipped(self) -> dict[str, list[str]]:
        """Names of the files left out, by reason: "unreadable", "not decodable", "not Python", "nothing to score"."""
        return {reason: list(names) for reason, names in sorted(self._corpus.skipped.items())}

    def digest(self) -> str:
        """sha256 over the names and contents of `files()`: which corpus a result was measured on."""
        lines = "".join(f"{file.sha256}  {file.name}\n" for file in self._corpus.files)
        return hashlib.sha256(lines.encode()).hexdigest()

    def data_version(self) -> str:
        """sha256 over names and bytes of the files that are looked at, unparsed: part of a cell's identity."""
        root = Path(sysconfig.get_path("stdlib") if self.path is None else self.path)
        whole = hashlib.sha256()
        for path in sorted(_spread(_python_files(root, self.include_tests), self.max_files)):
            name = path.relative_to(root).as_posix()  # "." where the root is the file itself
            content = path.read_bytes() if os.access(path, os.R_OK) else b""
            whole.update(name.encode() + b"\0" + hashlib.sha256(content).digest())
        return whole.hexdigest()

    def _generate(self, keys: np.ndarray, start: int, batch: Batch) -> None:
        from lab.tasks.kernels.random import choices

        drawn = choices(keys, start, batch.tokens.shape[1], len(self._corpus.files))
        for place in np.ndindex(*drawn.shape):
            self._copy(self._corpus.files[drawn[place]].batch, batch[place])

    def _copy(self, file: Batch, row: Batch) -> None:
        """Writes the file, cut or padded, into one row of a batch."""
        kept = min(file.seq_len, row.seq_len)
        row.tokens[:kept] = file.tokens[:kept]
        row.queries[:kept] = file.queries[:kept]
        row.death[:kept] = np.where(file.death[:kept] < kept, file.death[:kept], row.seq_len)

    def _read(self, name: str, source: bytes) -> SourceFile:
        return read_source(name, source, self.scopes, self.max_tokens)

    @cached_property
    def _corpus(self) -> _Corpus:
        root = Path(sysconfig.get_path("stdlib") if self.path is None else self.path)
        corpus = _Corpus()
        for path in _spread(_python_files(root, self.include_tests), self.max_files):
            name = path.name if path == root else path.relative_to(root).as_posix()
            corpus.read(name, path, self._read)
        if not corpus.files:
            reasons = ", ".join(f"{len(names)} {reason}" for reason, names in sorted(corpus.skipped.items()))
            raise InputError(
                f"{self.name}: path: no Python file that can be read in {root} ({reasons or 'none found'})"
            )
        corpus.files.sort(key=lambda file: file.name)
        return corpus


def _python_files(root: Path, include_tests: bool) -> list[Path]:
    """All *.py files under the root, or the root itself if it is a file. Links to folders are not followed."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        raise InputError(f"source-scopes: path: no such file or folder: {root}")
    left_out = _NOT_SOURCE if include_tests else _NOT_SOURCE | _TESTS
    found = []
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if name not in left_out and not name.startswith("."))
        found += [Path(folder, name) for name in sorted(names) if name.endswith(".py")]
    return [path for path in found if path.is_file()]


def _spread(paths: list[Path], count: int | None) -> list[Path]:
    """`count` of the paths at even distances in order of size, the smallest and the largest included."""
    if count is None or len(paths) <= count:
        return paths
    by_size = sorted(paths, key=lambda path: (path.stat().st_size, path.as_posix()))
    if count == 1:
        return [by_size[len(by_size) // 2]]
    return [by_size[round(n * (len(by_size) - 1) / (count - 1))] for n in range(count)]


@dataclass
class _Corpus:
    files: list[SourceFile] = field(default_factory=list)
    skipped: dict[str, list[str]] = field(default_factory=dict)

    def read(self, name: str, path: Path, read: Callable[[str, bytes], SourceFile]) -> None:
        reason = "nothing to score"
        try:
            file = read(name, path.read_bytes())
            if file.batch.queries.any():
                self.files.append(file)
                return
        except OSError:
            reason = "unreadable"
        except SourceError as error:
            reason = str(error)
        self.skipped.setdefault(reason, []).append(name)


def read_source(name: str, source: bytes, scopes: str = "python", max_tokens: int | None = None) -> SourceFile:
    """One file as a sequence. Raises SourceError if it is no Python source; `files` counts such a file as skipped."""
    reader = _Reader()
    truncated = False
    for event in events(source, scopes):
        if len(reader.tokens) == max_tokens and not isinstance(event, Use | Elsewhere):
            truncated = True
            break
        reader.read(event)
    return SourceFile(
        name=name,
        batch=reader.batch(),
        scopes=reader.tokens.count(OPEN),
        bindings=reader.tokens.count(KEY),
        uses=sum(reader.queries) + reader.unscored,
        unscored=reader.unscored,
        max_depth=reader.max_depth,
        truncated=truncated,
        sha256=hashlib.sha256(source).hexdigest(),
    )


class _Scope:
    """An open scope: how many keys were live outside it, names bound elsewhere, walrus bindings on their way out."""

    def __init__(self, outside: int, comprehension: bool) -> None:
        self.outside = outside
        self.comprehension = comprehension
        self.elsewhere: set[str] = set()
        self.passed_on: list[Bind] = []


class _Reader:
    """Writes tokens, deaths and queries as events come in."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.queries: list[int] = []
        self.unscored = 0
        self.max_depth = 0
        self._death: dict[int, int] = {}
        self._live: list[int] = []
        self._scopes = [_Scope(0, comprehension=False)]

    def read(self, event: Event) -> None:
        if isinstance(event, Use):
            self._use()
        elif isinstance(event, Bind):
            self._bind(event)
        elif isinstance(event, Open):
            self._emit(OPEN)
            self._scopes.append(_Scope(len(self._live), event.comprehension))
            self.max_depth = max(self.max_depth, len(self._scopes) - 1)
        elif isinstance(event, Close):
            self._close()
        elif len(self._scopes) > 1:  # at module level, `global` says nothing new
            self._scopes[-1].elsewhere.update(event.names)

    def _use(self) -> None:
        if self._live:
            self.queries[-1] += 1
        else:
            self.unscored += 1

    def _bind(self, event: Bind) -> None:
        scope = self._scopes[-1]
        if event.around and scope.comprehension:
            scope.passed_on.append(event)
        elif event.name not in scope.elsewhere:
            self._live.append(len(self.tokens))
            self._emit(KEY)

    def _close(self) -> None:
        scope = self._scopes.pop()
        for key in self._live[scope.outside :]:
            self._death[key] = len(self.tokens)
        del self._live[scope.outside :]
        self._emit(CLOSE)
        for event in scope.passed_on:
            self._bind(event)

    def _emit(self, token: int) -> None:
        self.tokens.append(token)
        self.queries.append(0)

    def batch(self) -> Batch:
        seq_len = len(self.tokens)
        tokens = np.array(self.tokens, dtype=np.int64)
        death = np.where(tokens == KEY, seq_len, 0)
        for key, row in self._death.items():
            death[key] = row
        return Batch(tokens, death, np.array(self.queries, dtype=np.int64))
