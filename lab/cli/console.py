"""What the commands print: tables and JSON on stdout, progress on stderr."""

import json
import math
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Tell = Callable[[float, str], None]
LINE_EVERY_SECONDS = 10.0
LEAST_TO_GO_BY = 0.005  # of the work must be done before the time left is more than a guess
WIDTH_WHEN_PIPED = 1_000_000  # a row of a table is a line of the file


def stdout_console() -> "Console":
    """A Rich console that never breaks a piped table at an imagined last column."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else WIDTH_WHEN_PIPED, highlight=False)


def print_table(header: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str = "", left: int = 1) -> None:
    """A table whose first `left` columns are text and whose other columns are numbers."""
    shown = [[text(value) for value in row] for row in rows]
    if not title and not sys.stdout.isatty() and (lines := _plain_table([*header], shown, left)):
        print("\n".join(lines))
        return
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False)
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index < left else "right", overflow="fold", no_wrap=index >= left)
    for row in shown:
        table.add_row(*map(escape, row))
    stdout_console().print(table)


def _plain_table(header: list[str], rows: list[list[str]], left: int) -> list[str]:
    """The lines that Rich prints away from a terminal, in a tenth of its time; none when it would break lines."""
    columns = list(zip(header, *rows))
    widths = [max(map(len, column)) for column in columns]
    total = sum(widths) + 3 * (len(widths) - 1)
    if total + 2 > WIDTH_WHEN_PIPED or not all(_narrow(word) for column in columns for word in column):
        return []

    def line(words: Sequence[str]) -> str:
        padded = [
            word.ljust(width) if k < left else word.rjust(width) for k, (word, width) in enumerate(zip(words, widths))
        ]
        return f" {'   '.join(padded)} "

    blank = " " * (total + 2)
    return [blank, line(header), f" {'─' * total} ", *map(line, rows), blank]


def _narrow(word: str) -> bool:
    """Whether every character takes one column of a terminal."""
    return (word.isascii() and word.isprintable()) or all(
        unicodedata.east_asian_width(character) not in "WF" and unicodedata.category(character)[0] not in "MC"
        for character in word
    )


def text(value: Any) -> str:
    """A cell of a table: numbers short, nothing for what was not measured."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if value and abs(value) < 1e-3 else f"{value:.3f}"
    return str(value)


def print_profile(seconds: Mapping[str, float], of: str) -> None:
    """Where the time went: seconds and share of every phase, and their sum, which is the measured total."""
    total = sum(seconds.values())
    rows = [[phase, value, f"{value / total:.1%}" if total > 0 else "-"] for phase, value in seconds.items()]
    print_table(["phase", "seconds", "share"], [*rows, ["total", total, ""]], title=f"Time, {of}")


def print_json(document: Any) -> None:
    """One JSON document on stdout. What JSON cannot say (NaN, infinity) becomes null."""
    print(json.dumps(plain(document), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """What JSON can say: no numpy scalars, and null for what is no finite number."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item"):  # a numpy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextmanager
def progress(what: str) -> Iterator[Tell]:
    """Yields `tell(fraction, note)`. A bar on a terminal; elsewhere a plain line now and then. Both on stderr.

    >>> with progress("training") as tell:
    ...     tell(0.5, "loss 0.1")
    """
    if sys.stderr.isatty():
        with _bar(what) as tell:
            yield tell
    else:
        yield _lines(what)


@contextmanager
def working(what: str) -> Iterator[None]:
    """A spinner on stderr while something runs whose end is not known; nothing away from a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@contextmanager
def _bar(what: str) -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[note]}", markup=False),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=1.0, note="")
        yield lambda fraction, note: bar.update(task, completed=fraction, note=note)


def _lines(what: str) -> Tell:
    start = last = time.monotonic()

    def tell(fraction: float, note: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_EVERY_SECONDS:
            last = now
            left = (
                f", about {(now - start) * (1 - fraction) / fraction:.0f} s left" if fraction >= LEAST_TO_GO_BY else ""
            )
            line = f"{what}: {fraction:.0%}{left}; {note}" if note else f"{what}: {fraction:.0%}{left}"
            print(line, file=sys.stderr, flush=True)

    return tell
