"""Unit functions that compute nothing, quickly: numbers are hashes of the cell's configuration and the seed."""

import hashlib
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from lab.heads import head_config
from lab.sweeps import Cell, CellResult, Curves, Evaluation, Plan, TaskConfig
from lab.sweeps.results import EVALUATIONS
from lab.training.recipe import Recipe

LENGTH = 4  # of no importance here, but tests of the chance line sample it
EVALUATION_ROWS = (("validation", 1), ("test", 1), ("test", 2), ("test", 8))


def make_cell(head: str = "softmax-none", dim: int = 1, rate: float = 0.05, **recipe) -> Cell:
    task = TaskConfig(name="subset-drop")  # not at the top: workers need no task, and importing them takes a while
    return Cell(
        experiment="fake",
        task=task,
        head=head_config(head, dim),
        recipe=Recipe(learning_rate=rate, **recipe),
        evaluations=(Evaluation(task=task, lengths=(LENGTH,)),),
    )


def make_plan(seeds: int = 8, block: int = 4, **options) -> Plan:
    """Twelve cells: two heads, two dimensions, three learning rates."""
    cells = [
        make_cell(head, dim, rate)
        for head in ("softmax-none", "fpa-walk-tied")
        for dim in (1, 2)
        for rate in (0.01, 0.05, 0.2)
    ]
    return Plan("fake", "quick", cells, range(seeds), block, **options)


def fraction(*parts: object) -> float:
    """A number in [0, 1) that depends on nothing but the parts."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big") / 2**56


def quick_unit(cell, seeds, progress=None) -> CellResult:
    """Every seed's numbers are the same in whatever block it is."""
    if progress is not None:
        progress(0.5)
    evaluations = [evaluation_row(cell, seed, split, factor) for seed in seeds for split, factor in EVALUATION_ROWS]
    steps = np.arange(0, 50, 10)
    curve = np.array([[fraction(cell.config, seed, int(step)) for step in steps] for seed in seeds], np.float32)
    return CellResult(
        evaluations=evaluations,
        parameters_per_seed=6,
        curves=Curves(steps, curve),
        parameters=[
            {"seed": seed, "name": "increment", "token": token, "value": fraction(cell.config, seed, token)}
            for seed in seeds
            for token in ("key", "NA", "a,b")
        ],
        files=[file_row(cell, seeds, name) for name in ("pkg/a.py", "pkg/b.py")],
        weights=save({"key": np.array([[cell.head.dim, seed, 0.5] for seed in seeds], np.float32)}, {"head": "{}"}),
    )


def evaluation_row(cell, seed: int, split: str, factor: int) -> dict:
    row = {name: fraction(cell.config, seed, split, factor, name) for name in EVALUATIONS}
    place = {"seed": seed, "task": cell.task.label, "split": split, "length": LENGTH * factor, "factor": factor}
    return {**row, **place, "queries": 64, "success": int(row["tv"] < 0.5)}


def file_row(cell, seeds, name: str) -> dict:
    exact = [fraction(cell.config, seed, name) for seed in seeds]
    return {
        "file": name,
        "seq_len": len(name),
        "scopes": 3,
        "queries": 10,
        "seeds": len(seeds),
        "exact_mean": sum(exact) / len(exact),
        "exact_min": min(exact),
        "tv_mean": 1 - sum(exact) / len(exact),
        "perfect": sum(value > 0.5 for value in exact),
    }


def slow_unit(cell, seeds, progress=None) -> CellResult:
    time.sleep(float(os.environ.get("FAKE_SECONDS", "0.02")))
    return quick_unit(cell, seeds, progress)


def held_unit(cell, seeds, progress=None) -> CellResult:
    """Does not end for dimension 2 while there is a file FAKE_FOLDER/hold."""
    while cell.head.dim == 2 and (Path(os.environ["FAKE_FOLDER"]) / "hold").exists():
        time.sleep(0.02)
    return quick_unit(cell, seeds, progress)


def endless_unit(cell, seeds, progress=None) -> CellResult:
    """Leaves its process number in the folder FAKE_FOLDER and never ends."""
    (Path(os.environ["FAKE_FOLDER"]) / str(os.getpid())).touch()
    while True:
        time.sleep(60)


def dying_unit(cell, seeds, progress=None) -> CellResult:
    """Kills its worker for dimension 2, as the system does when memory runs out."""
    if cell.head.dim == 2:
        print("last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return quick_unit(cell, seeds, progress)


def once_dying_unit(cell, seeds, progress=None) -> CellResult:
    """Kills the worker of the first unit that any process computes in the folder FAKE_FOLDER."""
    try:
        (Path(os.environ["FAKE_FOLDER"]) / "died").touch(exist_ok=False)
    except FileExistsError:
        return quick_unit(cell, seeds, progress)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


class Unreadable:
    """Can be sent by a worker, but the driver has no memory for it."""

    def __reduce__(self):
        return no_memory, ()


def no_memory():
    raise MemoryError


def unreadable_unit(cell, seeds, progress=None) -> CellResult:
    """Its result cannot be read for dimension 2."""
    result = quick_unit(cell, seeds, progress)
    return replace(result, weights=Unreadable()) if cell.head.dim == 2 else result


def lingering_unit(cell, seeds, progress=None) -> CellResult:
    """Nothing can be heard of its worker any more, which lives on for a minute."""
    os.closerange(3, 256)
    time.sleep(60)
    return quick_unit(cell, seeds, progress)


def failing_unit(cell, seeds, progress=None) -> CellResult:
    """Raises for dimension 2."""
    if cell.head.dim == 2:
        raise RuntimeError(f"no luck with seeds {tuple(seeds)}")
    return quick_unit(cell, seeds, progress)


def threads_unit(cell, seeds, progress=None) -> CellResult:
    """Succeeds only where every thread limit is 1 and prints go elsewhere than into the answers."""
    print("not an answer")
    from lab.sweeps.executors import ONE_THREAD

    assert all(os.environ[name] == "1" for name in ONE_THREAD)
    return quick_unit(cell, seeds, progress)


def noted_unit(cell, seeds, progress=None) -> CellResult:
    """Adds a line to the file FAKE_FOLDER/starts whenever a cluster computes it: where, and which unit.

    It does not end while there is a file FAKE_FOLDER/hold that was there when it started; a number in the file says
    how many units start before that counts.
    """
    import ray

    node, folder = ray.get_runtime_context().get_node_id(), Path(os.environ["FAKE_FOLDER"])
    held = False
    if (folder / "hold").exists():
        before = (folder / "starts").read_text().count("\n") if (folder / "starts").exists() else 0
        held = before >= int((folder / "hold").read_text() or 0)
    with (folder / "starts").open("a") as file:
        file.write(f"{node} {cell.label} {seeds}{' held' * held}\n")
    time.sleep(float(os.environ["FAKE_SECONDS"]))
    while held and (folder / "hold").exists():
        time.sleep(0.02)
    return quick_unit(cell, seeds, progress)


def patient_unit(cell, seeds, progress=None) -> CellResult:
    """Reports that half is done until there is a file FAKE_FOLDER/heard."""
    while not (Path(os.environ["FAKE_FOLDER"]) / "heard").exists():
        progress(0.5)
        time.sleep(0.1)
    return quick_unit(cell, seeds)
