"""Where units are computed: on the nodes of a Ray cluster, one task each. Ray is imported when an executor is made.

Tasks get their unit as bytes and answer (kind, value, seconds, environment, host). The driver asks for a task again
itself, instead of letting Ray do so: only then does it know which units were lost with a node, and that no unit is
computed again once its result is here.
"""

import importlib
import os
import pickle
import socket
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from lab.errors import InputError
from lab.sweeps.executors import ONE_THREAD, RunUnit, Update, available_cores, importable_name
from lab.sweeps.plan import Unit
from lab.sweeps.worker import resolve, throttled

CRASHES = 2  # a unit whose worker process dies so often has failed, as with local workers
LOSSES = 10  # a node that dies is no fault of its units, unless they kill every node
POLL_SECONDS = 0.5
RESOURCES_SECONDS = 5.0
PROGRESS_SECONDS = 2.0
CONNECT_SECONDS = 5.0
HEAD_SECONDS = 20.0  # Ray ends the process of a driver whose head node does not answer for 60
AGAIN = "finished units are kept: start the cluster again, and then this sweep"
LOCAL_OBJECT_STORE = 256 * 2**20  # results are small; Ray would take a third of the memory
# What Ray reads when it is imported: give up soon on an address where nobody answers, print nothing of its own on
# stdout, and report to nobody.
_RAY_SETTINGS = {
    "RAY_NUM_REDIS_GET_RETRIES": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


class ClusterError(InputError):
    """The cluster cannot be used; one line says why and what to do. What was stored before stays."""


class RayExecutor:
    """Tasks of a Ray cluster, one processor and one thread each.

    `address` is HOST:PORT of the cluster, "auto" for one that runs on this machine, "local" for a new one here; by
    default RAY_ADDRESS, or else "auto", or else "local". A Ray session that the caller has started is used as it is.
    At most `workers` units are computed at a time, by default as many as the cluster has processors, also those that
    join later. `notice` is called with a line when something happens that a user may want to know.

    Every node needs this version of the lab in its Python; the unit function must be importable by name there. Raises
    ClusterError when Ray is not installed or nobody answers at the address.
    """

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        notice: Callable[[str], None] | None = None,
    ):
        if workers is not None and workers < 1:
            raise InputError(f"workers: {workers}: expected at least 1")
        self.address = address or os.environ.get("RAY_ADDRESS") or None
        self.most = workers
        self.workers = workers or 1  # of the last run, once there was one
        self.notice = notice or (lambda line: None)
        self.ray = _import_ray()
        if not self.ray.is_initialized():
            _check_address(self.address)

    def run(self, run_unit: RunUnit | str, units: Sequence[Unit], report: Callable[[Update], None]) -> None:
        name = importable_name(run_unit)
        if not units:
            return
        with self._connected():
            run = _Run(self, name, units, report)
            try:
                run.loop()
            finally:
                run.stop()
                self.workers = max(self.workers, run.slots)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """A session of its own, unless the caller has one."""
        if self.ray.is_initialized():
            yield
            return
        try:
            self._connect()
            yield
        finally:
            self.ray.shutdown()

    def _connect(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address != "local":
            try:
                self.ray.init(address=self.address or "auto", **quiet)
                return
            except (ConnectionError, RuntimeError, ValueError, self.ray.exceptions.RayError) as error:
                if self.address is not None or not isinstance(error, ConnectionError):
                    reason = f"{_first_line(error)} (if it wants a token: RAY_AUTH_MODE=token)"
                    raise ClusterError(f"--address: {self.address or 'auto'}: {reason}") from None
        cores = self.most or available_cores()
        small = {"object_store_memory": LOCAL_OBJECT_STORE, "include_dashboard": False}
        self.ray.init(address="local", num_cpus=cores, **small, **quiet)


@dataclass
class _Task:
    """A unit on its way through the cluster."""

    unit: Unit
    crashes: int = 0
    losses: int = 0


class _Run:
    """One call of `RayExecutor.run`: what waits, what runs, and what the tasks say."""

    def __init__(self, executor: RayExecutor, name: str, units: Sequence[Unit], report: Callable[[Update], None]):
        self.ray = executor.ray
        self.most = executor.most
        self.notice = executor.notice
        self.name = name
        self.report = report
        self.waiting = deque(_Task(unit) for unit in units)
        self.running: dict[Any, _Task] = {}
        self.compute = _remote_task(self.ray)
        self.slots, self.looked, self.silent = 0, -RESOURCES_SECONDS, 0.0
        self.head = self.ray.get_runtime_context().gcs_address
        self.mailbox = _mailbox(self.ray)
        self.letters: Any = None

    def loop(self) -> None:
        while self.waiting or self.running:
            self._look_for_nodes()
            self._submit()
            self._finish_all(self._ready())
            self._read_letters()

    def stop(self) -> None:
        """Ends what still runs, which has nothing to lose: finished units are with the driver."""
        for reference in [*self.running]:
            with suppress(Exception):
                self.ray.cancel(reference, force=True)
        with suppress(Exception):
            self.ray.kill(self.mailbox)

    def _look_for_nodes(self) -> None:
        """How many units the cluster can compute at a time; nodes come and go."""
        if time.monotonic() - self.looked < RESOURCES_SECONDS:
            return
        self.looked = time.monotonic()
        if not self._head_answers():
            return
        before, self.slots = self.slots, int(self.ray.cluster_resources().get("CPU", 0))
        if not self.slots and (before or not self.running):
            self.notice("the cluster has no processors at the moment; waiting for a node")

    def _head_answers(self) -> bool:
        """Whether the head node is there; ClusterError when it has been away for long, before Ray ends this process."""
        try:
            _knock(self.head)
        except OSError:
            self.silent = self.silent or time.monotonic()
            if time.monotonic() - self.silent > HEAD_SECONDS:
                raise ClusterError(f"the head node of the cluster, {self.head}, does not answer; {AGAIN}") from None
            return False
        self.silent = 0.0
        return True

    def _submit(self) -> None:
        """Keeps a few tasks more in the cluster than it can run, so that none of its processors waits for us."""
        most = self.most or self.slots + max(2, self.slots // 4)
        while self.waiting and len(self.running) < most:
            task = self.waiting.popleft()
            reference = self.compute.remote(self.name, pickle.dumps(task.unit), self.mailbox)
            self.running[reference] = task
            self.report(Update("started", task.unit))

    def _ready(self) -> list[Any]:
        references = list(self.running)
        ready, others = self.ray.wait(references, num_returns=1, timeout=POLL_SECONDS)
        if ready and others:
            ready += self.ray.wait(others, num_returns=len(others), timeout=0)[0]
        return ready

    def _finish_all(self, references: Sequence[Any]) -> None:
        """Raises the first ClusterError when all the others are reported: what is finished is kept."""
        first = None
        for reference in references:
            try:
                self._finish(self.running.pop(reference), reference)
            except ClusterError as error:
                first = first or error
        if first is not None:
            raise first

    def _finish(self, task: _Task, reference: Any) -> None:
        errors = self.ray.exceptions
        try:
            kind, value, seconds, environment, host = self.ray.get(reference)
        except errors.LocalRayletDiedError:
            raise ClusterError(f"the Ray node of this machine died; {AGAIN}") from None
        except (errors.NodeDiedError, errors.ObjectLostError) as error:
            task.losses += 1
            self.notice(f"a node was lost; computing again: {task.unit.cell.label}")
            self._again(task, task.losses < LOSSES, error)
        except errors.RayTaskError as error:  # beside the unit function, such as an answer that cannot be sent
            self.report(Update("failed", task.unit, traceback=str(error)))
        except errors.RayError as error:
            task.crashes += 1
            self._again(task, task.crashes < CRASHES, error)
        else:
            if kind == "refused":
                raise ClusterError(f"{host} {value}; finished units are kept")
            told = {"result": value} if kind == "done" else {"traceback": f"on {host}:\n{value}"}
            self.report(Update(kind, task.unit, seconds=seconds, environment=environment, **told))

    def _again(self, task: _Task, may: bool, error: Exception) -> None:
        if may:
            self.waiting.appendleft(task)
        else:
            self.report(Update("failed", task.unit, traceback=f"the worker process ended: {error}"))

    def _read_letters(self) -> None:
        """Passes on the progress that tasks have told the mailbox; without a mailbox there is none."""
        if self.letters is None:
            self.letters = self.mailbox.take.remote()
            return
        if not self.ray.wait([self.letters], timeout=0)[0]:
            return
        with suppress(self.ray.exceptions.RayError):
            units = {task.unit.id: task.unit for task in self.running.values()}
            for unit, fraction, seconds in self.ray.get(self.letters):
                if unit in units:
                    self.report(Update("progress", units[unit], fraction=fraction, seconds=seconds))
        self.letters = self.mailbox.take.remote()


def _import_ray() -> Any:
    for name, value in _RAY_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ImportError:
        command = "pip install -c constraints.txt -e '.[ray]'"
        raise ClusterError(f"--executor: ray is not installed; it is the lab's extra [ray]: {command}") from None


def _check_address(address: str | None) -> None:
    """Whether somebody answers at HOST:PORT, which Ray itself takes most of a minute to deny."""
    if address in (None, "auto", "local"):
        return
    assert address is not None
    if address.startswith("ray://"):
        raise ClusterError(f"--address: {address}: Ray Client is not supported; run the sweep on a node of the cluster")
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 2**16):
        raise ClusterError(f"--address: {address}: expected HOST:PORT, auto or local")
    try:
        _knock(address)
    except OSError as error:
        reason = error.strerror or str(error) or "no answer"
        raise ClusterError(
            f"--address: {address}: nobody answers there ({reason}); is the head node running?"
        ) from None


def _knock(address: str) -> None:
    """Raises OSError when nobody listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _remote_task(ray: Any) -> Any:
    """The task. It travels to the nodes as it is, so that a node without the lab can say so."""

    def compute(name: str, pickled_unit: bytes, mailbox: Any) -> tuple[str, Any, float, str | None, str]:
        import socket

        try:
            from lab.sweeps.ray_executor import answer
        except ImportError as error:
            reason = f"cannot import this version of the lab ({error}); install it on every node"
            return "refused", reason, 0.0, None, socket.gethostname()
        return answer(name, pickled_unit, mailbox.put.remote)

    # Threads are limited before the worker imports anything; a lost task is asked for again by the driver alone.
    return ray.remote(num_cpus=1, max_retries=0, runtime_env={"env_vars": ONE_THREAD})(compute)


def _mailbox(ray: Any) -> Any:
    """An actor beside the driver, where tasks leave word of their progress."""

    class Mailbox:
        def __init__(self) -> None:
            self.letters: list[tuple[str, float, float]] = []

        def put(self, unit: str, fraction: float, seconds: float) -> None:
            self.letters.append((unit, fraction, seconds))

        def take(self) -> list[tuple[str, float, float]]:
            letters, self.letters = self.letters, []
            return letters

    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(num_cpus=0, scheduling_strategy=here)(Mailbox).remote()


def answer(
    name: str, pickled_unit: bytes, tell: Callable[[str, float, float], Any]
) -> tuple[str, Any, float, str | None, str]:
    """Computes a unit on a worker: ("done", result, ...), ("failed", traceback, ...) or ("refused", reason, ...).

    It refuses when the worker's code is not the driver's: the result would be stored under the name of code that did
    not compute it.
    """
    from lab.sweeps.environment import environment

    start, host = time.monotonic(), socket.gethostname()
    try:
        unit = pickle.loads(pickled_unit)
        same = unit.cell.model_copy().code == unit.cell.code  # a copy works its version out anew, in this process
        unreadable = ""
    except Exception as error:
        same, unreadable = False, f" (it cannot read the unit: {_first_line(error)})"
    if not same:
        reason = f"has other code of the lab than the driver{unreadable}; install the same version on every node"
        return "refused", reason, 0.0, None, host

    def progress(fraction: float) -> None:
        tell(unit.id, fraction, time.monotonic() - start)

    try:
        result = resolve(name)(unit.cell, unit.seeds, throttled(progress, PROGRESS_SECONDS))
    except BaseException:  # SystemExit too: a unit must not end its worker
        return "failed", traceback.format_exc(), time.monotonic() - start, None, host
    return "done", result, time.monotonic() - start, environment(), host
