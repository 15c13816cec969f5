"""From names to one document: every bench in turn, with what it ran on and the command that made it."""

import csv
import importlib
import json
import os
import platform
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.bench import BENCHES
from lab.bench.measure import Found, Result, Settings, Tell
from lab.sweeps.environment import environment
from lab.sweeps.executors import available_cores

FORMAT = 1


def run_benches(
    names: Sequence[str], quick: bool, threads: int | None, tell: Tell
) -> tuple[list[Result], dict[str, Any]]:
    """The results of the named benches, and the document that `--json` prints and `--out` writes."""
    settings = Settings(quick, threads or available_cores())
    found = Found()
    with torch_threads(settings.threads):
        for n, name in enumerate(names):

            def part(fraction: float, note: str, done: int = n, name: str = name) -> None:
                tell((done + fraction) / len(names), f"{name}: {note}")

            part(0.0, "starting")
            one: Found = importlib.import_module(BENCHES[name]).run(settings, part)
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
        "holds": all(result.holds for result in found.results),
        "results": [result.document() for result in found.results],
        "tables": found.tables,
        "notes": found.notes,
    }
    return found.results, document


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
    """Every table as a CSV file, and bench.json with the rest: what experiments/published/bench holds."""
    folder.mkdir(parents=True, exist_ok=True)
    results = [
        {key: value for key, value in row.items() if key not in ("sides", "pairs")} for row in document["results"]
    ]
    for name, rows in {"comparisons": results, **document["tables"]}.items():
        header = list(dict.fromkeys(key for row in rows for key in row))
        with open(folder / f"{name.replace(' ', '_')}.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, header, lineterminator="\n")
            writer.writeheader()
            writer.writerows({key: _digits(value) for key, value in row.items()} for row in rows)
    rest = {key: value for key, value in document.items() if key not in ("results", "tables")}
    (folder / "bench.json").write_text(json.dumps(rest, indent=2) + "\n", encoding="utf-8")


def _digits(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
