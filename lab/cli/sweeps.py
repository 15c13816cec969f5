"""`fpa-lab sweep`: compute what is missing. `fpa-lab status`: what is there."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lab.cli.console import Tell, print_json, print_profile, print_table, progress
from lab.cli.errors import say
from lab.cli.options import DEFAULT_STORE, MOST_SEEDS, Device, Json, Profile, StoreFile, check_device, numbers, words
from lab.errors import InputError, nearest

if TYPE_CHECKING:
    from lab.sweeps import CellStatus, Event, Executor, Plan, Report, Store

EXECUTORS = ("local", "ray")


def sweep(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Experiments, such as target_sets.")],
    preset: Annotated[str, typer.Option(metavar="PRESET", help="quick, or paper: what is published.")] = "quick",
    seeds: Annotated[
        int | None, typer.Option(min=1, max=MOST_SEEDS, help="Seeds 0 to N-1.", show_default="the preset's")
    ] = None,
    head: Annotated[list[str] | None, typer.Option(metavar="HEAD,...", help="Only these heads.")] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="D,...", help="Only these content dimensions.")] = None,
    store: StoreFile = DEFAULT_STORE,
    executor: Annotated[
        str, typer.Option(metavar="NAME", help="local: processes of this machine. ray: tasks of a Ray cluster.")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="The Ray cluster.", show_default="RAY_ADDRESS, one of this machine, or a new one"
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Units at a time.", show_default="one a core")] = None,
    device: Device = "cpu",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be computed; compute nothing.")] = False,
    profile: Profile = False,
    as_json: Json = False,
) -> int:
    """Compute what the store lacks of an experiment.

    Stop it whenever you like: finished units are stored, and the same command computes the rest. Exit status 1
    when a unit failed; the others are stored all the same.

    \b
    Examples:
      fpa-lab sweep target_sets --dry-run
      fpa-lab sweep target_sets --preset paper --workers 2
      fpa-lab sweep target_sets --head fpa-walk-offset,fox-gate0 --dim 1,8 --seeds 8
      fpa-lab sweep target_sets --preset paper --executor ray --address 10.0.0.1:6379
    """
    _check_executor(executor, address, device)
    dims = numbers("--dim", dim, least=0)
    plans = [plan_of(name, preset, seeds, words(head, "--head"), dims) for name in words(names)]
    check_device(device)
    if dry_run:
        _print_plans(plans, store, as_json)
        return 0

    from lab.sweeps import Store

    cluster = _cluster(address, workers) if executor == "ray" else None
    with Store(store) as opened:
        reports = []
        for plan in plans:
            reports.append(compute(plan, opened, workers, device, cluster))
            if not as_json:
                print_report(plan, reports[-1], profile)
    if as_json:
        print_json([_document(plan, report, profile) for plan, report in zip(plans, reports, strict=True)])
    if any(report.failed for report in reports):
        say(f"failed units keep their traceback: fpa-lab status {' '.join(words(names))} --tracebacks --store {store}")
    return int(any(report.failed or report.remaining for report in reports))


def plan_of(
    name: str,
    preset: str,
    seeds: int | None = None,
    heads: Sequence[str] | None = None,
    dims: Sequence[int] | None = None,
) -> "Plan":
    """The plan of an experiment; InputError with the nearest valid name for an unknown experiment, preset or head."""
    from importlib import import_module

    from experiments import EXPERIMENTS

    if name not in EXPERIMENTS:
        raise InputError(f"unknown experiment {name}{nearest(name, EXPERIMENTS)}")
    return import_module(EXPERIMENTS[name]).plan(preset, seeds=seeds, heads=heads or None, dims=dims or None)


def compute(
    plan: "Plan", store: "Store", workers: int | None, device: str, cluster: "Executor | None" = None
) -> "Report":
    """Runs a plan with a progress bar, on a cluster or on this machine."""
    from lab.sweeps import run
    from lab.sweeps.runner import RUN_CELL

    executor, run_unit = (cluster, RUN_CELL) if cluster else _executor(workers, device)
    with progress(f"{plan.name} {plan.preset}") as tell:
        return run(plan, store, executor, _teller(tell), run_unit=run_unit)


def print_report(plan: "Plan", report: "Report", profile: bool = False) -> None:
    """What was computed, reused and failed, and if asked where the time of the workers went."""
    print(f"{plan.name} {plan.preset}: {report}")
    if profile:
        print_profile(report.profile(), "summed over the workers")


def _document(plan: "Plan", report: "Report", profile: bool) -> dict[str, Any]:
    counts = {name: getattr(report, name) for name in ("total", "computed", "reused", "failed", "remaining")}
    found: dict[str, Any] = {"experiment": plan.name, "preset": plan.preset, **counts}
    return {**found, "profile": report.profile()} if profile else found


def _check_executor(executor: str, address: str | None, device: str) -> None:
    if executor not in EXECUTORS:
        raise InputError(f"--executor: unknown executor {executor}{nearest(executor, EXECUTORS)}")
    if executor == "ray" and device != "cpu":
        raise InputError(f"--device: {device}: --executor ray computes on processors; use --executor local")
    if executor != "ray" and address is not None:
        raise InputError(f"--address: {address}: is for --executor ray")


def _cluster(address: str | None, workers: int | None) -> "Executor":
    from lab.sweeps import RayExecutor

    return RayExecutor(address, workers, say)


def _executor(workers: int | None, device: str) -> "tuple[Executor, str | Callable[..., Any]]":
    """Worker processes on the processor; on one graphics card, one unit after the other in this process."""
    from lab.sweeps import InlineExecutor, LocalExecutor
    from lab.sweeps.runner import RUN_CELL

    if device == "cpu":
        return LocalExecutor(workers), RUN_CELL
    from lab.training import run_cell

    return InlineExecutor(), partial(run_cell, device=device)


def _teller(tell: Tell) -> "Callable[[Event], None]":
    def on_event(event: "Event") -> None:
        tell(event.fraction, str(event.report))
        if event.kind == "failed" and event.unit is not None:
            last = event.traceback.strip().splitlines()[-1] if event.traceback.strip() else "no traceback"
            say(f"failed: {event.unit.cell.label}: {last}")

    return on_event


def _print_plans(plans: "Sequence[Plan]", path: Path, as_json: bool) -> None:
    from lab.sweeps import Store

    done: Any = {}
    if path.exists():
        with Store(path, write=False) as store:
            done = store.done()
    rows = []
    for plan in plans:
        total, left = len(plan.units()), len(plan.units(done))
        rows.append([plan.name, plan.preset, len(plan.cells), len(plan.seeds), total, total - left, left])
    header = ["experiment", "preset", "cells", "seeds", "units", "stored", "to compute"]
    if as_json:
        print_json([dict(zip(header, row, strict=True)) for row in rows])
    else:
        print_table(header, rows, left=2)


def status(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Experiments; all by default.")] = None,
    store: StoreFile = DEFAULT_STORE,
    tracebacks: Annotated[bool, typer.Option("--tracebacks", help="Print the traceback of failed cells.")] = False,
    as_json: Json = False,
) -> int:
    """Show what is done, missing and failed, cell by cell.

    It is measured against what was last asked of the store. Exit status 1 when something is missing or failed.

    \b
    Examples:
      fpa-lab status
      fpa-lab status target_sets --tracebacks
    """
    from lab.sweeps import Store
    from lab.sweeps import status as state

    experiments = words(names)
    with Store(store, write=False) as opened:
        plans = [_asked(opened, name) for name in experiments or _stored(opened)]
        rows = [row for plan in plans for row in state(opened, plan)]
    _report_status(rows, tracebacks, as_json)
    return int(any(row.missing or row.failed for row in rows))


def _stored(store: "Store") -> list[str]:
    found = [name for (name,) in store.rows("SELECT DISTINCT experiment FROM plans ORDER BY experiment")]
    if not found:
        raise InputError(f"{store.path}: holds no results yet; fpa-lab sweep makes them")
    return found


def _asked(store: "Store", name: str) -> "Plan":
    """What was last asked of the store for an experiment; of one that was never run, its quick preset."""
    return store.asked(name) if name in _stored(store) else plan_of(name, "quick")


def _report_status(rows: "Sequence[CellStatus]", tracebacks: bool, as_json: bool) -> None:
    if as_json:
        print_json([vars(row) for row in rows])
        return
    cells = [[row.experiment, row.preset, row.label, row.done, row.missing, row.failed] for row in rows]
    total = [sum(column) for column in zip(*(row[3:] for row in cells), strict=True)]
    header = ["experiment", "preset", "cell", "seeds done", "missing", "failed"]
    print_table(header, [*cells, ["all", "", f"{len(rows)} cells", *total]], left=3)
    for row in rows:
        if row.failed and tracebacks:
            print(f"\n{row.label} ({row.cell}):\n{row.traceback}")
