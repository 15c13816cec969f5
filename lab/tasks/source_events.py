"""A Python file as events: scopes that open and close, names that are bound, names that are used.

The order is that of evaluation where it differs from the order of the text, and a statement's reads come
before what it binds:

    x = y                  use y, bind x; each store to a name is one binding, every time
    x += y                 use x, use y, bind x
    x: T = y               use y, use T, bind x; without a value nothing is bound: use T
    (x := y)               use y, bind x; inside a comprehension, x is bound around it, once it has closed
    del x                  nothing
    import a.b, c as d     bind a, bind d; `from m import *` binds nothing that the text tells
    global x               later bindings of x belong to another scope and make no event (nonlocal too)
    for x in y             use y, bind x, body, else
    with y as x            use y, bind x, body
    except E as x          use E, bind x, body
    case C(x) if y         use C, bind x, use y, body; `_` binds nothing
    y if x else z          use x, use y, use z
    @d
    def f(p: T = v) -> R   use d, use v, use T, use R, bind f, open, bind p, body, close
    @d
    class C(B, k=v)        use d, use B, use v, bind C, open, body, close
    lambda p=v: y          use v, open, bind p, use y, close
    [y for x in z if w]    use z, open, bind x, use w, (further `for` and `if`,) use y, close
    def f[T](p: T)         bind f, open, bind T, use T, open, bind p, body, close, close;
                           `class C[T]` and `type X[T]` alike

A use is any name that is read, of whatever scope, builtins included. Attributes are no names, and strings
(annotations in quotes) are not looked into.

With scopes="python", functions, classes, lambdas, comprehensions and lists of type parameters are scopes.
With scopes="indent" what opens and closes is a block of deeper indentation, whatever statement it belongs to
(a suite on the line of its colon opens none), and Python's own rules of scope play no part: parameters are
bound in the block around their function, comprehensions and lambdas open nothing, `global` changes nothing.

The tree is walked with a stack of its own, so deep expressions are no trouble.
"""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SCOPES = ("python", "indent")


@dataclass(frozen=True)
class Open:
    """A scope or block opens; a comprehension passes the walrus bindings inside it on to the scope around it."""

    comprehension: bool = False


@dataclass(frozen=True)
class Close:
    """The innermost open scope or block closes."""


@dataclass(frozen=True)
class Bind:
    """A name is bound; `around` if by a walrus, which no comprehension keeps for itself."""

    name: str
    around: bool = False


@dataclass(frozen=True)
class Use:
    """A name is read."""

    name: str


@dataclass(frozen=True)
class Elsewhere:
    """From here on, the innermost scope's bindings of these names belong to another scope (global, nonlocal)."""

    names: tuple[str, ...]


Event = Open | Close | Bind | Use | Elsewhere
Item = ast.AST | Event

_CLOSE = Close()
_OPEN, _OPEN_COMPREHENSION = Open(), Open(comprehension=True)
# Fields that hold no part of the program: contexts and operators.
_SKIPPED = frozenset({"ctx", "op", "ops", "type_ignores"})


class SourceError(Exception):
    """A file that cannot be read as Python; the message is the reason, "not decodable" or "not Python"."""


def events(source: bytes, scopes: str) -> Iterator[Event]:
    """The events of a file, in order; SourceError before the first of them if Python's parser refuses the file."""
    text = _decode(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the parser thinks of a file's style is no concern of ours
            tree = ast.parse(text)
        depths = None if scopes == "python" else _depths(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        raise SourceError("not Python") from error
    return _walk(tree, _Order(depths))


def _decode(source: bytes) -> str:
    """The text in the encoding that the file declares, with the line ends that the parser sees."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return source.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise SourceError("not decodable") from error


def _walk(tree: ast.AST, order: _Order) -> Iterator[Event]:
    stack: list[Item] = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, ast.AST):
            stack.extend(reversed(order.parts(item)))
        else:
            yield item


def _depths(text: str) -> dict[int, int]:
    """The number of indented blocks around the statement that stands on a line, for every line with a token."""
    depths: dict[int, int] = {}
    depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        depth += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
        depths[token.start[0]] = depth
    return depths


class _Order:
    """What a node consists of, in order: one method per kind of node; others are read left to right."""

    def __init__(self, depths: dict[int, int] | None) -> None:
        self._depths = depths
        self._methods: dict[type, Callable[[Any], Sequence[Item]]] = {}

    def parts(self, node: ast.AST) -> Sequence[Item]:
        kind = type(node)
        if kind not in self._methods:
            self._methods[kind] = getattr(self, kind.__name__, _left_to_right)
        return self._methods[kind](node)

    def _scope(self, items: Iterable[Item], opening: Open = _OPEN) -> list[Item]:
        return [opening, *items, _CLOSE] if self._depths is None else list(items)

    def _suite(self, header: int, body: Sequence[ast.AST]) -> list[Item]:
        """The body of a compound statement; `header` is the line that statement, or its clause, starts on."""
        if self._depths is None or not body or self._depths[_line(body[0])] <= self._depths[header]:
            return list(body)
        return [_OPEN, *body, _CLOSE]

    def _type_parameters(self, node: Any, items: list[Item]) -> list[Item]:
        parameters = getattr(node, "type_params", [])
        return self._scope([*parameters, *items]) if parameters else items

    # Names

    def Name(self, node: ast.Name) -> Sequence[Item]:
        if isinstance(node.ctx, ast.Load):
            return (Use(node.id),)
        return (Bind(node.id),) if isinstance(node.ctx, ast.Store) else ()

    def NamedExpr(self, node: ast.NamedExpr) -> Sequence[Item]:
        return node.value, Bind(node.target.id, around=True)

    def Assign(self, node: ast.Assign) -> Sequence[Item]:
        return node.value, *node.targets

    def AugAssign(self, node: ast.AugAssign) -> Sequence[Item]:
        if isinstance(node.target, ast.Name):
            return Use(node.target.id), node.value, node.target
        return node.target, node.value

    def AnnAssign(self, node: ast.AnnAssign) -> Sequence[Item]:
        if node.value is not None:
            return node.value, node.annotation, node.target
        return (node.annotation,) if isinstance(node.target, ast.Name) else (node.annotation, node.target)

    def Import(self, node: ast.Import) -> Sequence[Item]:
        return [Bind(alias.asname or alias.name.partition(".")[0]) for alias in node.names]

    def ImportFrom(self, node: ast.ImportFrom) -> Sequence[Item]:
        return [Bind(alias.asname or alias.name) for alias in node.names if alias.name != "*"]

    def Global(self, node: ast.Global | ast.Nonlocal) -> Sequence[Item]:
        return (Elsewhere(tuple(node.names)),) if self._depths is None else ()

    Nonlocal = Global

    # Scopes

    def FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Sequence[Item]:
        annotations = [a.annotation for a in _parameters(node.args) if a.annotation is not None]
        annotations += [node.returns] if node.returns is not None else []
        body = self._scope([*_bound(node.args), *self._suite(node.lineno, node.body)])
        before: list[Item] = [*node.decorator_list, *_defaults(node.args)]
        if getattr(node, "type_params", []):
            return *before, Bind(node.name), *self._type_parameters(node, [*annotations, *body])
        return *before, *annotations, Bind(node.name), *body

    AsyncFunctionDef = FunctionDef

    def ClassDef(self, node: ast.ClassDef) -> Sequence[Item]:
        bases: list[Item] = [*node.bases, *node.keywords]
        body = self._scope(self._suite(node.lineno, node.body))
        if getattr(node, "type_params", []):
            return *node.decorator_list, Bind(node.name), *self._type_parameters(node, [*bases, *body])
        return *node.decorator_list, *bases, Bind(node.name), *body

    def Lambda(self, node: ast.Lambda) -> Sequence[Item]:
        return *_defaults(node.args), *self._scope([*_bound(node.args), node.body])

    def ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Sequence[Item]:
        return self._comprehension(node.generators, [node.elt])

    SetComp = GeneratorExp = ListComp

    def DictComp(self, node: ast.DictComp) -> Sequence[Item]:
        return self._comprehension(node.generators, [part for part in (node.key, node.value) if part is not None])

    def _comprehension(self, generators: list[ast.comprehension], element: list[ast.expr]) -> Sequence[Item]:
        first, *others = generators
        inside: list[Item] = [first.target, *first.ifs]
        for generator in others:
            inside += [generator.iter, generator.target, *generator.ifs]
        return first.iter, *self._scope([*inside, *element], _OPEN_COMPREHENSION)

    def TypeAlias(self, node: Any) -> Sequence[Item]:
        return node.name, *self._type_parameters(node, [node.value])

    def TypeVar(self, node: Any) -> Sequence[Item]:
        rest = (getattr(node, field, None) for field in ("bound", "default_value"))
        return Bind(node.name), *(part for part in rest if part is not None)

    ParamSpec = TypeVarTuple = TypeVar

    # Statements with suites

    def If(self, node: ast.If | ast.While) -> Sequence[Item]:
        return node.test, *self._suite(node.lineno, node.body), *self._suite(node.lineno, node.orelse)

    While = If

    def For(self, node: ast.For | ast.AsyncFor) -> Sequence[Item]:
        suites = (*self._suite(node.lineno, node.body), *self._suite(node.lineno, node.orelse))
        return node.iter, node.target, *suites

    AsyncFor = For

    def With(self, node: ast.With | ast.AsyncWith) -> Sequence[Item]:
        return *node.items, *self._suite(node.lineno, node.body)

    AsyncWith = With

    def Try(self, node: Any) -> Sequence[Item]:
        body, orelse, final = (self._suite(node.lineno, part) for part in (node.body, node.orelse, node.finalbody))
        return *body, *node.handlers, *orelse, *final

    TryStar = Try

    def ExceptHandler(self, node: ast.ExceptHandler) -> Sequence[Item]:
        caught: list[Item] = [] if node.type is None else [node.type]
        caught += [] if node.name is None else [Bind(node.name)]
        return *caught, *self._suite(node.lineno, node.body)

    def Match(self, node: ast.Match) -> Sequence[Item]:
        return node.subject, *self._suite(node.lineno, node.cases)

    def match_case(self, node: ast.match_case) -> Sequence[Item]:
        guard = () if node.guard is None else (node.guard,)
        return node.pattern, *guard, *self._suite(node.pattern.lineno, node.body)

    # Patterns

    def MatchAs(self, node: ast.MatchAs) -> Sequence[Item]:
        pattern = () if node.pattern is None else (node.pattern,)
        return pattern if node.name is None else (*pattern, Bind(node.name))

    def MatchStar(self, node: ast.MatchStar) -> Sequence[Item]:
        return () if node.name is None else (Bind(node.name),)

    def MatchMapping(self, node: ast.MatchMapping) -> Sequence[Item]:
        pairs = [part for pair in zip(node.keys, node.patterns) for part in pair]
        return pairs if node.rest is None else [*pairs, Bind(node.rest)]

    # Expressions that are not evaluated left to right field by field

    def IfExp(self, node: ast.IfExp) -> Sequence[Item]:
        return node.test, node.body, node.orelse

    def Dict(self, node: ast.Dict) -> Sequence[Item]:
        return [part for pair in zip(node.keys, node.values) for part in pair if part is not None]

    def Constant(self, node: ast.Constant) -> Sequence[Item]:
        return ()


def _left_to_right(node: ast.AST) -> Sequence[Item]:
    parts: list[Item] = []
    for field in node._fields:
        if field not in _SKIPPED:
            value = getattr(node, field, None)
            if isinstance(value, ast.AST):
                parts.append(value)
            elif isinstance(value, list):
                parts += [part for part in value if isinstance(part, ast.AST)]
    return parts


def _line(node: Any) -> int:
    return node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno


def _parameters(arguments: ast.arguments) -> list[ast.arg]:
    """In the order of the text."""
    starred = [] if arguments.vararg is None else [arguments.vararg]
    double_starred = [] if arguments.kwarg is None else [arguments.kwarg]
    return [*arguments.posonlyargs, *arguments.args, *starred, *arguments.kwonlyargs, *double_starred]


def _bound(arguments: ast.arguments) -> list[Item]:
    return [Bind(parameter.arg) for parameter in _parameters(arguments)]


def _defaults(arguments: ast.arguments) -> list[Item]:
    return [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]
