"""`fpa-lab bench`: the lab's fast paths beside what one would run instead, held against their bars."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lab.cli.console import plain, print_json, print_table, progress
from lab.cli.errors import say
from lab.cli.options import Json, words
from lab.errors import InputError, nearest

if TYPE_CHECKING:
    from lab.bench.measure import Result


def bench(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Benches; all by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer turns and sizes: a look, not a measurement.")] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads, and worker processes.", show_default="one a core")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the JSON document here.")] = None,
    tables: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the tables as CSV here.")] = None,
    as_json: Json = False,
) -> int:
    """Measure the lab's speed and memory side by side with the alternatives.

    Both sides of a comparison take turns in one run; the ratio is the median over pairs of turns, with an interval
    that covers the median with confidence 0.95 (less for fewer than six pairs). Exit status 1 when a number is over
    its bar or a bench fails; 130 after Ctrl-C, which keeps what the benches before have measured. Close what else is
    running: about five minutes on two cores, less with --quick.

    \b
    The benches: step, attention, memory, limits, threads, growth, sweep.

    \b
    Examples:
      fpa-lab bench
      fpa-lab bench step attention --quick --out bench.json
    """
    from lab.bench import BENCHES

    chosen = words(names) or list(BENCHES)
    for name in chosen:
        if name not in BENCHES:
            raise InputError(f"unknown bench {name}{nearest(name, BENCHES)}")
    _check_writable("--out", out, folder=False)
    _check_writable("--tables", tables, folder=True)

    from lab.bench.document import INTERRUPTED, run_benches, write_tables

    with progress("bench") as tell:
        results, document = run_benches(chosen, quick, threads, tell)
    if out is not None:
        out.write_text(json.dumps(plain(document), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    interrupted = INTERRUPTED in document["failures"].values()
    if tables is not None and not interrupted:  # What is there already is whole.
        write_tables(document, tables)
    if as_json:
        print_json(document)
    else:
        print_results(results, document)
    missed = [result.name for result in results if not result.holds]
    if missed:
        say(f"over the bar: {'; '.join(missed)}")
    for name, trace in document["failures"].items():
        if trace != INTERRUPTED:
            say(f"{name} failed: {trace.strip().splitlines()[-1]}")
    if interrupted:
        say("interrupted; what the benches before that have measured is kept, but no --tables are written")
        return 130
    return int(not document["holds"])


def _check_writable(option: str, path: Path | None, *, folder: bool) -> None:
    """Before minutes are spent on measuring what could then not be written."""
    if path is None:
        return
    parent = path.absolute().parent
    if not parent.is_dir():
        raise InputError(f"{option}: {path}: no such folder {path.parent}")
    if path.exists() and path.is_dir() != folder:
        raise InputError(f"{option}: {path}: expected a {'folder' if folder else 'file'}")
    if not os.access(path if path.exists() else parent, os.W_OK):
        raise InputError(f"{option}: {path}: cannot be written")


def print_results(results: "Sequence[Result]", document: dict[str, Any]) -> None:
    """The comparisons with their bars, then the other tables, then what was left out."""
    from lab.bench.measure import show

    rows = []
    for result in results:
        value = result.value
        low, high = (show(number, result.unit) for number in (value.low, value.high))
        sides = " / ".join(f"{1e3 * side:.3g}" for side in result.sides.values())
        bars = [f"≤ {bar}" if bar else "" for bar in (result.bar, result.aim)]
        rows.append(
            [result.name, *bars, show(value.median, result.unit), f"{low} to {high}", value.n, sides, result.verdict]
        )
    if rows:
        print_table(["comparison", "bar", "aim", "measured", "interval", "n", "ms", "verdict"], rows)
    for name, lines in document["tables"].items():
        header = list(dict.fromkeys(key for line in lines for key in line))
        text_columns = sum(isinstance(lines[0].get(key), str) for key in header)
        print_table(
            header, [[line.get(key) for key in header] for line in lines], title=name, left=max(1, text_columns)
        )
    machine = document["machine"]
    print(f"{machine['processor']}, {machine['cores']} cores, {document['threads']} threads; {document['command']}")
    for note in document["notes"]:
        print(note)
