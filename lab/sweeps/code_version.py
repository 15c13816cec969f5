"""Which version of the code a cell depends on: a hash of the source that can change its numbers, and nothing else.

Source is hashed as its sequence of tokens, without comments, docstrings, blank lines and line wrapping, so editing an
explanation invalidates no result. Tokens, unlike `ast.dump`, are the same under every supported Python.
"""

import ast
import hashlib
import io
import tokenize
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import lab

ROOT = Path(lab.__file__).parent

# Packages that matter to every cell, whole.
SHARED = ("lab.ops", "lab.training")
# Packages of which only what is imported matters. The heads and tasks in them are looked up by name, so they matter to
# a cell that names them or to another head or task that builds on them, not to every module that can look them up:
# an edit to one head leaves the results of the others valid.
FOLLOWED = ("lab.heads", "lab.tasks")
# What a configuration says is part of the cell's identity already.
CONFIGURATION = ("lab.heads.config",)

_LAYOUT = {tokenize.INDENT: ">", tokenize.DEDENT: "<"}
_DROPPED = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING, tokenize.ENDMARKER)
# Python 3.12 and later split f-strings into tokens; they are put together again.
_FSTRING_START = getattr(tokenize, "FSTRING_START", None)
_FSTRING_END = getattr(tokenize, "FSTRING_END", None)


def code_version(tasks: Sequence[str], head: str, root: Path = ROOT) -> str:
    """First 16 hex digits of a sha256 over the modules that matter to a cell of these tasks and this kind of head.

    `tasks` are names of the registry `lab.tasks.TASKS`; `head` is the `kind` of a head's configuration, which is the
    name of its file. `root` is the folder of the package `lab`.
    """
    digest = hashlib.sha256()
    for module, path in sorted(relevant_modules(tasks, head, root).items()):
        digest.update(f"{module} {_file_hash(path, path.stat().st_mtime_ns)}\n".encode())
    return digest.hexdigest()[:16]


def relevant_modules(tasks: Sequence[str], head: str, root: Path = ROOT) -> dict[str, Path]:
    """Name and file of every module of the lab whose source can change the numbers of such a cell."""
    waiting = [f"lab.heads.{head}", *(_module_of_task(task) for task in tasks)]
    for package in SHARED:
        files = (root.parent / package.replace(".", "/")).glob("*.py")
        waiting += [package if file.stem == "__init__" else f"{package}.{file.stem}" for file in files]
    by_name = _named_modules()
    found: dict[str, Path] = {}
    while waiting:
        module = waiting.pop()
        path = _file(module, root)
        if path is not None and module not in found and module not in CONFIGURATION:
            found[module] = path
            imports = _imports(path, _package(module, path), path.stat().st_mtime_ns)
            waiting += [
                name for name in imports if name.startswith(FOLLOWED) and (module in by_name or name not in by_name)
            ]
    return {module: path for module, path in found.items() if module not in FOLLOWED}


def normalised(source: str) -> str:
    r"""The tokens of a module that have an effect, one statement a line, with > and < for deeper and shallower.

    >>> normalised('def f(x):\n    "Doubles."\n    return (2 *  # twice\n      x)\n')
    'def f ( x ) :\n>return ( 2 * x )\n<'
    """
    lines: list[str] = []
    marks, words, effect = "", [], False
    for kind, text in _tokens(source):
        if kind in _LAYOUT:
            marks += _LAYOUT[kind]
        elif kind != tokenize.NEWLINE:
            words.append(text)
            effect = effect or kind != tokenize.STRING or "f" in text.split(text[-1])[0].lower()
        elif effect:
            lines.append(marks + " ".join(words))
            marks, words, effect = "", [], False
        else:  # nothing but strings: a docstring
            words = []
    return "\n".join([*lines, marks])


def _tokens(source: str) -> Iterator[tuple[int, str]]:
    """Type and text of the tokens of a module, every f-string as one token."""
    lines = source.splitlines(keepends=True)
    depth, start = 0, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == _FSTRING_START:
            start = start if depth else token.start
            depth += 1
        elif token.type == _FSTRING_END:
            depth -= 1
            if not depth:
                yield tokenize.STRING, _between(lines, start, token.end)
        elif not depth and token.type not in _DROPPED:
            yield token.type, token.string


def _between(lines: Sequence[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text from (row, column) to (row, column); rows count from 1."""
    rows = list(lines[start[0] - 1 : end[0]])
    rows[-1] = rows[-1][: end[1]]
    rows[0] = rows[0][start[1] :]
    return "".join(rows)


@cache
def _file_hash(path: Path, modified: int) -> str:
    return hashlib.sha256(normalised(path.read_text(encoding="utf-8")).encode()).hexdigest()


def _package(module: str, path: Path) -> str:
    """The package that relative imports of a module start from."""
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


@cache
def _imports(path: Path, package: str, modified: int) -> list[str]:
    """Names of everything that a file imports, at any depth of nesting; some may be no modules."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return names


def _named_modules() -> set[str]:
    """Modules of heads and of tasks that are looked up by name."""
    from lab.heads.config import LABELS
    from lab.tasks import TASKS

    kinds = {options["kind"] for options in LABELS.values()}
    return {f"lab.heads.{kind}" for kind in kinds} | {task.__module__ for task in TASKS.values()}


def _module_of_task(name: str) -> str:
    from lab.tasks import TASKS

    return TASKS[name].__module__


def _file(module: str, root: Path) -> Path | None:
    path = root.parent / module.replace(".", "/")
    for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
        if file.is_file():
            return file
    return None
