"""Where units are computed: here, or in worker processes of this machine; on a cluster, see ray_executor.py.

An executor is anything with `run(run_unit, units, report)` that calls `report` with an Update whenever something
happens. The driver alone touches the store, so executors need no locks.
"""

import contextlib
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from lab.errors import InputError
from lab.sweeps.plan import Unit
from lab.sweeps.results import CellResult, Progress
from lab.sweeps.worker import resolve, throttled

RunUnit = Callable[[Any, Sequence[int], Progress], CellResult]

# Environment of a worker, set before it imports anything: one thread each, so that workers = cores uses each core
# once and a result does not depend on how many cores there are.
_THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
ONE_THREAD = dict.fromkeys(_THREAD_LIMITS, "1")
STOP_SECONDS = 2.0


@dataclass(frozen=True)
class Update:
    """Something happened to a unit: `result` comes with "done", `traceback` with "failed", `fraction` with "progress".

    `seconds` is how long the unit has been computed, `environment` on what, where that is not this machine.
    """

    kind: Literal["started", "progress", "done", "failed"]
    unit: Unit
    result: CellResult | None = None
    traceback: str = ""
    fraction: float = 0.0
    seconds: float = 0.0
    environment: str | None = None


class Executor(Protocol):
    workers: int

    def run(self, run_unit: RunUnit | str, units: Sequence[Unit], report: Callable[[Update], None]) -> None:
        """Computes the units in any order, calling `report` from the calling thread.

        Exactly one "done" or "failed" is reported for each unit; what the unit function raises is a "failed".
        An exception out of `report` or Ctrl-C stops everything that still runs, at once.
        """
        ...


class InlineExecutor:
    """Computes one unit after the other in this process, with this process's threads."""

    workers = 1

    def run(self, run_unit: RunUnit | str, units: Sequence[Unit], report: Callable[[Update], None]) -> None:
        for unit in units:
            report(Update("started", unit))
            report(self._compute(run_unit, unit, report))

    @staticmethod
    def _compute(run_unit: RunUnit | str, unit: Unit, report: Callable[[Update], None]) -> Update:
        start = time.monotonic()
        progress = throttled(lambda fraction: report(Update("progress", unit, fraction=fraction)))
        try:
            function = resolve(run_unit) if isinstance(run_unit, str) else run_unit
            result = function(unit.cell, unit.seeds, progress)
        except Exception:
            return Update("failed", unit, traceback=traceback.format_exc(), seconds=time.monotonic() - start)
        return Update("done", unit, result=result, seconds=time.monotonic() - start)


class LocalExecutor:
    """Worker processes of this machine, one thread each; as many as there are cores unless told otherwise.

    The unit function must be importable by name. A unit whose worker dies (killed, out of memory) is tried once more,
    then it has failed. Workers end with the driver, also when it is killed.
    """

    def __init__(self, workers: int | None = None):
        if workers is not None and workers < 1:
            raise InputError(f"workers: {workers}: expected at least 1")
        self.workers = workers or available_cores()

    def run(self, run_unit: RunUnit | str, units: Sequence[Unit], report: Callable[[Update], None]) -> None:
        name = importable_name(run_unit)
        waiting = deque((unit, 1) for unit in units)
        messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        crew: list[_Worker] = []
        try:
            while waiting or any(worker.unit for worker in crew):
                while waiting and (free := self._free(crew, messages)):
                    _assign(free, name, waiting, report)
                worker, kind, value, seconds = messages.get()
                _handle(worker, kind, value, seconds, waiting, report)
                if not worker.alive:
                    crew.remove(worker)
        finally:
            _stop(crew)

    def _free(self, crew: "list[_Worker]", messages: "queue.SimpleQueue[Any]") -> "_Worker | None":
        """An idle worker, a new one while there may be more, or None."""
        idle = next((worker for worker in crew if worker.unit is None), None)
        if idle is None and len(crew) < self.workers:
            idle = _Worker(messages)
            crew.append(idle)
        return idle


class _Worker:
    """One child process; what it says arrives in `messages` as (worker, kind, value, seconds)."""

    def __init__(self, messages: "queue.SimpleQueue[Any]"):
        self.unit: Unit | None = None
        self.attempt = 0
        self.alive = True
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close()
        search = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
        # -P: no current folder in front of the driver's own search path. A process group of its own: Ctrl-C in the
        # terminal reaches the driver alone, which then ends its workers.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lab.sweeps.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": search},
            process_group=0,
        )
        threading.Thread(target=self._listen, args=(messages,), daemon=True).start()

    def _listen(self, messages: "queue.SimpleQueue[Any]") -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            try:
                while True:
                    messages.put((self, *pickle.load(stream)))
            except Exception as error:  # the end of the pipe, half a message, or no memory for a whole one
                messages.put((self, "died", error, 0.0))

    def give(self, run_unit_name: str, unit: Unit, attempt: int) -> None:
        assert self.process.stdin is not None
        self.unit, self.attempt = unit, attempt
        try:
            pickle.dump((run_unit_name, pickle.dumps(unit)), self.process.stdin)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it is dead already, and the listener says so

    def obituary(self, error: Exception) -> str:
        """How the process ended, with the end of what it wrote to stderr.

        `error` came of reading its last answer. When the process lives, it is ended here, for nobody listens any more.
        """
        closed = isinstance(error, EOFError)  # as by the end of the process, which may take its time over it
        unread = f"its answer could not be read: {type(error).__name__}: {error}".removesuffix(": ")
        try:
            code = self.process.wait(STOP_SECONDS)  # one that is about to end says how
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            why = "it closed its pipe and did not end" if closed else unread
            return f"the worker process was stopped: {why}\n{self._last_words()}".strip()
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
        memory = " (out of memory?)" if code == -signal.SIGKILL else ""
        cause = "" if closed else f"; {unread}"
        return f"the worker process ended: {how}{memory}{cause}\n{self._last_words()}".strip()

    def _last_words(self) -> str:
        self.stderr.seek(0)
        return self.stderr.read()[-4000:].decode(errors="replace")

    def close(self) -> None:
        """Releases what belongs to a process that has ended."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.stderr.close()


def available_cores() -> int:
    """Cores this process may use, which on a cluster is fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def importable_name(run_unit: RunUnit | str) -> str:
    if isinstance(run_unit, str):
        return run_unit
    name = f"{run_unit.__module__}:{run_unit.__qualname__}"
    if run_unit.__module__ == "__main__" or "." in run_unit.__qualname__:
        raise TypeError(f"{name}: workers import the unit function by name; define it at the top of a module")
    return name


def _assign(worker: _Worker, name: str, waiting: "deque[tuple[Unit, int]]", report: Callable[[Update], None]) -> None:
    unit, attempt = waiting.popleft()
    worker.give(name, unit, attempt)
    report(Update("started", unit))


def _handle(
    worker: _Worker,
    kind: str,
    value: Any,
    seconds: float,
    waiting: "deque[tuple[Unit, int]]",
    report: Callable[[Update], None],
) -> None:
    """Passes on what a worker said of its unit; a unit whose worker died waits for its second attempt."""
    unit = worker.unit
    if kind == "died":
        worker.alive = False
        obituary = worker.obituary(value)
        worker.close()
        worker.unit = None
        if unit is not None and worker.attempt == 1:
            waiting.append((unit, 2))
        elif unit is not None:
            report(Update("failed", unit, traceback=obituary, seconds=seconds))
    elif unit is not None and kind == "progress":
        report(Update("progress", unit, fraction=value, seconds=seconds))
    elif unit is not None:
        worker.unit = None
        if kind == "done":
            report(Update("done", unit, result=value, seconds=seconds))
        else:
            report(Update("failed", unit, traceback=value, seconds=seconds))


def _stop(crew: Sequence[_Worker]) -> None:
    """Ends the workers, which have nothing to lose: their finished units are with the driver."""
    for worker in crew:
        worker.process.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for worker in crew:
        try:
            worker.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()
        worker.close()
