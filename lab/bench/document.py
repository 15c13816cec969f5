"""From names to one document: every bench in turn, with what it ran on and the command that made it."""

import csv
import hashlib
import importlib
import io
import json
import os
import platform
import shlex
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.bench import BENCHES
from lab.bench.measure import Found, Result, Settings, Tell
from lab.errors import InputError
from lab.sweeps.environment import environment
from lab.sweeps.executors import available_cores

FORMAT = 1
SUMMARY = "bench.json"
INTERRUPTED = "interrupted"


def run_benches(
    names: Sequence[str], quick: bool, threads: int | None, tell: Tell
) -> tuple[list[Result], dict[str, Any]]:
    """The results of the named benches, and the document that `--json` prints and `--out` writes.

    Ctrl-C ends it with what the benches before have found, and INTERRUPTED among the failures.
    """
    settings = Settings(quick, threads or available_cores())
    found = Found()
    failures: dict[str, str] = {}
    with torch_threads(settings.threads):
        for n, name in enumerate(names):

            def part(fraction: float, note: str, done: int = n, name: str = name) -> None:
                tell((done + fraction) / len(names), f"{name}: {note}")

            part(0.0, "starting")
            try:
                one, failure = _run(name, settings, part)
            except KeyboardInterrupt:
                failures[name] = INTERRUPTED
                break
            failures |= {name: failure} if failure else {}
            found.results += one.results
            found.tables |= one.tables
            found.notes += one.notes
    options = [*(["--quick"] if quick else []), *(["--threads", str(threads)] if threads else [])]
    document = {
        "format": FORMAT,
        "command": shlex.join(["fpa-lab", "bench", *([] if set(names) == set(BENCHES) else names), *options]),
        "quick": quick,
        "threads": settings.threads,
        "machine": machine(),
        "environment": json.loads(environment()),
        "holds": not failures and all(result.holds for result in found.results),
        "failures": failures,
        "results": [result.document() for result in found.results],
        "tables": found.tables,
        "notes": found.notes,
    }
    return found.results, document


def _run(name: str, settings: Settings, tell: Tell) -> tuple[Found, str]:
    """What a bench found, or the traceback of what it raised: the minutes that the others took are not lost with it."""
    try:
        return importlib.import_module(BENCHES[name]).run(settings, tell), ""
    except Exception:
        return Found(notes=[f"{name}: failed; its traceback is in the JSON document"]), traceback.format_exc()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many threads for torch and for the lab's kernels, as many as before afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def machine() -> dict[str, Any]:
    """What the numbers depend on most: the processor, and how many of its cores this process may use."""
    return {"processor": _processor(), "cores": available_cores(), "memory_gib": _memory()}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None


def write_tables(document: dict[str, Any], folder: Path) -> None:
    """Every table as a CSV file, and bench.json with the rest: what experiments/published/bench holds.

    As with other published results, bench.json has rows and sha256 of every file, which reading verifies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    results = [
        {key: value for key, value in row.items() if key not in ("sides", "pairs")} for row in document["results"]
    ]
    written = {}
    tables = {name: rows for name, rows in {"comparisons": results, **document["tables"]}.items() if rows}
    for name, rows in tables.items():
        data = _csv(rows)
        file = f"{name.replace(' ', '_')}.csv"
        (folder / file).write_bytes(data)
        written[file] = {"rows": len(rows), "sha256": hashlib.sha256(data).hexdigest()}
    rest = {key: value for key, value in document.items() if key not in ("results", "tables")}
    (folder / SUMMARY).write_text(json.dumps({**rest, "tables": written}, indent=2) + "\n", encoding="utf-8")


def _csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """Columns in the order in which they first appear; floats with six significant digits."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})
    return text.getvalue().encode()


def read_tables(folder: Path) -> tuple[dict[str, Any], dict[str, list[dict[str, str]]]]:
    """bench.json and, by name of the file without ending, the rows of every table as text.

    Raises InputError when a file is missing, was changed after it was written, or is of another version of the lab.
    """
    summary = _summary(folder / SUMMARY)
    tables = {}
    for name, listed in summary["tables"].items():
        file = folder / name
        if not file.is_file():
            raise InputError(f"{file}: is missing; {SUMMARY} lists it")
        data = file.read_bytes()
        if hashlib.sha256(data).hexdigest() != listed["sha256"]:
            raise InputError(f"{file}: sha256 differs from {SUMMARY}: the file was changed after it was written")
        tables[file.stem] = list(csv.DictReader(io.StringIO(data.decode())))
    return summary, tables


def _summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; fpa-lab bench --tables {path.parent} makes it") from None
    except ValueError:
        raise InputError(f"{path}: expected JSON") from None
    if not isinstance(summary, dict) or summary.get("format") != FORMAT:
        raise InputError(f"{path}: format: expected {FORMAT}; written by another version of the lab")
    if "results" in summary:
        raise InputError(f"{path}: is what fpa-lab bench --out writes; expected a folder that --tables writes")
    return summary
