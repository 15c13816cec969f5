"""Every construct that binds, uses, opens or closes, in the order that source_events.py states."""

import ast
import sys
import textwrap

import pytest

from lab.tasks.source_events import Bind, Close, Elsewhere, Open, SourceError, Use, events


def written(source, scopes="python"):
    """Events as text: ( and ) for scopes, the name of a binding, . for a use, !name for a name bound elsewhere."""
    marks = []
    for event in events(textwrap.dedent(source).encode(), scopes):
        match event:
            case Open():
                marks.append("(")
            case Close():
                marks.append(")")
            case Use():
                marks.append(".")
            case Bind(name, around):
                marks.append(f"{name}^" if around else name)
            case Elsewhere(names):
                marks.append("!" + ",".join(names))
    return " ".join(marks)


CASES = {
    # Assignments: reads before bindings.
    "x = y": ". x",
    "x = y = z": ". x y",
    "x, (y, *z) = w": ". x y z",
    "[x, y] = w": ". x y",
    "x = 1; x = 2": "x x",
    "x += y": ". . x",
    "a.x += y": ". .",
    "x: T = y": ". . x",
    "x: T": ".",
    "a.x: T = y": ". . .",
    "a.x: T": ". .",
    "a.x = y": ". .",
    "a[i] = y": ". . .",
    "(x := y) + z": ". x^ .",
    "del x, y.z, w[i]": ". . .",
    # Imports.
    "import a": "a",
    "import a.b.c": "a",
    "import a.b as c, d": "c d",
    "from m import x, y as z": "x z",
    "from m import *": "",
    "from . import x": "x",
    "from __future__ import annotations": "annotations",
    # Functions: decorators, defaults and annotations, the name, then the scope.
    "def f(): pass": "f ( )",
    "def f(): return x": "f ( . )",
    "@d(e)\ndef f(): pass": ". . f ( )",
    "def f(p, /, q, *r, s, **t): pass": "f ( p q r s t )",
    "def f(p=u, /, q=v, *, s=w, t): pass": ". . . f ( p q s t )",
    "def f(p: P, *r: R, s: S, **t: T) -> U: return p": ". . . . . f ( p r s t . )",
    "@d\ndef f(p: P = v) -> R: pass": ". . . . f ( p )",
    "async def f(p):\n  async for x in y: await z": "f ( p . x . )",
    "def f():\n  def g(): x = 1\n  return g": "f ( g ( x ) . )",
    "lambda p, q=v: p + w": ". ( p q . . )",
    "lambda: 0": "( )",
    "lambda: lambda x: x": "( ( x . ) )",
    "def f(p=lambda q: r): pass": "( q . ) f ( p )",
    # Classes.
    "class C: x = y": "C ( . x )",
    "@d\nclass C(B, metaclass=M): pass": ". . . C ( )",
    "class C:\n  def f(self): return self": "C ( f ( self . ) )",
    # Comprehensions: the first iterable outside, generators before the element.
    "[y for x in z if w]": ". ( x . . )",
    "{y for x in z}": ". ( x . )",
    "{k: v for k, v in z}": ". ( k v . . )",
    "(y for x in z for y in x if y if w)": ". ( x . y . . . )",
    "[[y for y in x] for x in z]": ". ( x . ( y . ) )",
    "[x for x in [y for y in z]]": ". ( y . ) ( x . )",
    "async def f(): return [x async for x in y]": "f ( . ( x . ) )",
    "any((m := y) for y in z)": ". . ( y . m^ )",
    # Other statements.
    "for x in y: z\nelse: w": ". x . .",
    "for x, a.b in y: pass": ". x .",
    "while x: y\nelse: z": ". . .",
    "if x: y\nelif z: w\nelse: v": ". . . . .",
    "with y as x, z: w": ". x . .",
    "with y as (a, b): pass": ". a b",
    "async def f():\n  async with y as x: z": "f ( . x . )",
    "try: x\nexcept E as e: y\nexcept F: z\nelse: w\nfinally: v": ". . e . . . . .",
    "try: x\nexcept: y": ". .",
    "try: x\nexcept* E as e: y": ". . e .",
    "assert x, y": ". .",
    "raise x from y": ". .",
    "return_ = x": ". return_",
    # Patterns.
    "match v:\n  case x: y": ". x .",
    "match v:\n  case _: y": ". .",
    "match v:\n  case [a, *_]: pass": ". a",
    "match v:\n  case [a, *b]: pass": ". a b",
    "match v:\n  case {K.k: a, 'l': b, **c} if d: e": ". . a b c . .",
    "match v:\n  case C(a, n=b) as c: pass": ". . a b c",
    "match v:\n  case (1 | M.x) as y: pass": ". . y",
    "match v:\n  case A(x) | B(x): pass": ". . x . x",
    # Expressions in order of evaluation.
    "y if x else (z := w)": ". . . z^",
    "f(a, *b, k=c, **d)": ". . . . .",
    "{a: (x := b), **c}": ". . x^ .",
    "a[b:c, d].e": ". . . .",
    "f'{x} {y:{z}} {w!r}'": ". . . .",
    "x < y < z and not w": ". . . .",
    "'x'": "",
    "def f(p: 'T'): pass": "f ( p )",
    # Names of other scopes.
    "global x": "!x",
    "def f():\n  global x, y\n  x = 1": "f ( !x,y x )",
    "def f():\n  def g():\n    nonlocal x": "f ( g ( !x ) )",
}
if hasattr(ast, "TypeVar"):
    CASES |= {
        "def f[T: B, *Ts, **P](p: T = v) -> R: pass": ". f ( T . Ts P . . ( p ) )",
        "class C[T](B[T], k=v): x = 1": "C ( T . . . ( x ) )",
        "type X[T] = list[T]": "X ( T . . )",
        "type X = y": "X .",
    }


@pytest.mark.parametrize(("source", "expected"), CASES.items())
def test_events_of_a_construct(source, expected):
    assert written(source) == expected


GOLDEN = """
import os                            # bind os
from typing import Any as A          # bind A

LIMIT: int = max(1, os.x)            # use max, os, int; bind LIMIT

@decorate
class Stack(Base):                   # use decorate, Base; bind Stack
    size = LIMIT                     # use LIMIT; bind size

    def push(self, item: A, n=size): # use size, A; bind push, self, item, n
        for k in range(n):           # use range, n; bind k
            self.items += [item]     # use self, item
        return [f(k) for k in item if k]

with open(os.path) as file:          # use open, os; bind file
    pass
"""


def test_a_whole_file_in_order():
    assert written(GOLDEN) == (
        "os A . . . LIMIT . . Stack ( . size . . push ( self item n . . k . . . ( k . . . ) ) ) . . file"
    )


def test_a_whole_file_in_blocks():
    assert written(GOLDEN, "indent") == (
        "os A . . . LIMIT . . Stack ( . size . . push self item n ( . . k ( . . ) . k . . . ) ) . . file ( )"
    )


INDENTED = {
    "if x:\n  y\nelif z:\n  w\nelse:\n  v": ". ( . ) . ( . ) ( . )",
    "if x:\n  y\nelse:\n  if z:\n    w": ". ( . ) ( . ( . ) )",
    "if x: y\nelse: z": ". . .",
    "if x: \\\n  y": ". .",
    "for a in b: c = d": ". a . c",
    "while x:\n  y\nelse:\n  z": ". ( . ) ( . )",
    "try:\n  x\nexcept E as e:\n  y\nfinally:\n  z": "( . ) . e ( . ) ( . )",
    "with x as y:\n  with z: w": ". y ( . . )",
    "match v:\n  case x if y:\n    z\n  case _: w": ". ( x . ( . ) . )",
    "def f(p: T = v):\n  global q\n  q = 1": ". . f p ( q )",
    "def f(p): return p": "f p .",
    "class C(B):\n  @d\n  def f(self): pass": ". C ( . f self )",
    "class C:\n  @(\n    d)\n  def f(self):\n    pass": "C ( . f self ( ) )",
    "[(y := x) for x in z]": ". x . y^",
    "lambda p: p": "p .",
    "if (x and\n    y):\n  z": ". . ( . )",
    "if x:\n\n  # comment\n  '''text\n'''; y": ". ( . )",
    "if x:\n\ty\n\tif z:\n\t\tw": ". ( . . ( . ) )",
}


@pytest.mark.parametrize(("source", "expected"), INDENTED.items())
def test_events_in_blocks(source, expected):
    assert written(source, "indent") == expected


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends_do_not_matter(line_end):
    source = "if x:\n  y = '''a\nb'''\nelse:\n  z\n".replace("\n", line_end)
    marks = [type(event).__name__ for event in events(source.encode(), "indent")]
    assert marks == ["Use", "Open", "Bind", "Close", "Open", "Use", "Close"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (b"def f(:", "not Python"),
        (b"print 'x'", "not Python"),
        (b"x = 1\0", "not Python"),
        (b"  x", "not Python"),
        (b"x = '\xff'", "not decodable"),
        (b"# coding: no-such-code\nx = 1", "not decodable"),
        (b"# coding: rot13\nx = 1", "not decodable"),
        (b"(" * 5000 + b")" * 5000, "not Python"),
    ],
)
@pytest.mark.parametrize("scopes", ["python", "indent"])
def test_files_that_cannot_be_read(source, reason, scopes):
    with pytest.raises(SourceError, match=f"^{reason}$"):
        events(source, scopes)


def test_declared_encodings_and_byte_order_marks_are_read():
    latin = "# coding: latin-1\nñ = 'é'\n".encode("latin-1")
    assert [event.name for event in events(latin, "python")] == ["ñ"]
    assert [event.name for event in events(b"\xef\xbb\xbfx = 1", "indent")] == ["x"]


def test_deep_expressions_do_not_exhaust_the_stack():
    """Each + is one level of the tree; a visitor that calls itself would need at least two frames for each."""
    depth = 9 * sys.getrecursionlimit() // 10
    source = ("x = " + " + ".join(["a"] * depth)).encode()
    assert sum(isinstance(event, Use) for event in events(source, "python")) == depth


def test_warnings_of_the_parser_are_kept_quiet(recwarn):
    list(events(b"x = '\\d'\nassert (x, 1)\n1 is x\n", "python"))
    assert not recwarn.list
