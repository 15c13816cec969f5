"""A worker process: `python -m lab.sweeps.worker` computes units that arrive on its standard input.

Input and output are streams of pickles between a driver and its own child. The worker ends at once when its input
closes, which is what happens to a pipe when the driver dies, however it dies.
"""

import importlib
import os
import pickle
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

PROGRESS_SECONDS = 0.2


def resolve(name: str) -> Callable[..., Any]:
    """The object that "package.module:name" says."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def throttled(report: Callable[[float], None], seconds: float = PROGRESS_SECONDS) -> Callable[[float], None]:
    """`report`, called at most once in so many seconds."""
    last = time.monotonic()

    def progress(fraction: float) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            report(float(fraction))

    return progress


def main() -> None:
    """Answers every (name of a unit function, pickled unit) by messages (kind, value, seconds).

    First any number of ("progress", fraction), then one ("done", result) or ("failed", traceback).
    """
    answers = _private_stdout()
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, tasks), daemon=True).start()
    while True:
        name, pickled_unit = tasks.get()
        _answer(name, pickled_unit, answers)


def _private_stdout() -> BinaryIO:
    """Keeps the pipe for answers alone: what the unit function prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _read(stream: BinaryIO, tasks: "queue.SimpleQueue[Any]") -> None:
    try:
        while True:
            tasks.put(pickle.load(stream))
    except EOFError:
        os._exit(0)  # no clean-up: the driver is gone or wants no more


def _answer(run_unit_name: str, pickled_unit: bytes, answers: BinaryIO) -> None:
    start = time.monotonic()

    def send(kind: str, value: Any) -> None:
        pickle.dump((kind, value, time.monotonic() - start), answers)
        answers.flush()

    try:
        unit = pickle.loads(pickled_unit)
        run_unit = resolve(run_unit_name)
        send("done", run_unit(unit.cell, unit.seeds, throttled(lambda fraction: send("progress", fraction))))
    except BrokenPipeError:
        os._exit(0)
    except BaseException:  # SystemExit too: a unit must not end its worker
        send("failed", traceback.format_exc())


if __name__ == "__main__":
    main()
