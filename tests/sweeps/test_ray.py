"""Sweeps on a real Ray cluster of this machine: results are the local executor's, whatever dies meanwhile."""

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import sweeps_fakes
from safetensors.numpy import load
from sweeps_fakes import make_plan, quick_unit
from sweeps_waiting import published, stored, wait_until

from lab.cli import run as command
from lab.errors import InputError
from lab.sweeps import (
    ClusterError,
    InlineExecutor,
    LocalExecutor,
    Plan,
    RayExecutor,
    Store,
    Unit,
    export,
    run,
)
from lab.sweeps.executors import Update
from lab.sweeps.ray_executor import _Run, _Task, answer

HERE = Path(__file__).parent
SMALL = {"object_store_memory": 100 * 2**20, "include_dashboard": False}


def trained(store: Store, plan: Plan) -> list[dict[str, bytes]]:
    """The bits of every tensor; the header of safetensors says the same in any order."""
    tensors = [load(store.weights(cell.id, plan.seeds)) for cell in plan.cells]
    return [{name: tensor.tobytes() for name, tensor in head.items()} for head in tensors]


def expected(plan, folder: Path, run_unit=quick_unit) -> dict[str, bytes]:
    with Store(folder / "expected.sqlite") as store:
        run(plan, store, InlineExecutor(), run_unit=run_unit)
        return published(store, folder / "expected")


def counts(report):
    return report.computed, report.reused, report.failed, report.remaining


@pytest.fixture
def workers_find_fakes(monkeypatch, tmp_path):
    """What a node's environment would have; Ray hands it on from the process that starts the node."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("FAKE_FOLDER", str(tmp_path))


# --- without a cluster ---


def test_ray_that_is_not_installed_is_one_line(monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(importlib, "import_module", without_ray(importlib.import_module))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ClusterError, match=r"ray is not installed; it is the lab's extra \[ray\]: pip install "):
        RayExecutor()
    assert command(["sweep", "target_sets", "--executor", "ray"]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "--executor: ray is not installed" in err
    assert list(tmp_path.iterdir()) == []


def without_ray(import_module):
    def guarded(name, *arguments):
        if name == "ray":
            raise ModuleNotFoundError("No module named 'ray'")
        return import_module(name, *arguments)

    return guarded


def test_addresses_where_nobody_answers_are_one_line(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:  # bound, and not listening: nobody else can answer there
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert command(["sweep", "target_sets", "--executor", "ray", "--address", address]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"--address: {address}: nobody answers there" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--executor", "ray", "--address", "head-node"], "--address: head-node: expected HOST:PORT, auto or local"),
        (["--executor", "ray", "--address", "host:port"], "expected HOST:PORT"),
        (["--executor", "ray", "--address", "host:99999"], "expected HOST:PORT"),
        (["--executor", "ray", "--address", "ray://host:10001"], "run the sweep on a node of the cluster"),
        (["--executor", "ray", "--device", "cuda"], "--device: cuda: --executor ray computes on processors"),
        (["--address", "host:6379"], "--address: host:6379: is for --executor ray"),
        (["--executor", "rat"], "unknown executor rat; did you mean ray?"),
    ],
)
def test_options_that_do_not_fit(arguments, said, capfd):
    assert command(["sweep", "target_sets", *arguments]) == 2
    assert said in capfd.readouterr().err


def test_workers_are_at_least_one():
    with pytest.raises(InputError, match="workers: 0: expected at least 1"):
        RayExecutor(workers=0)


def test_a_worker_refuses_what_other_code_planned(monkeypatch):
    import pickle

    unit = make_plan().units()[0]
    assert unit.cell.code
    pickled = pickle.dumps(unit)
    kind, result, _, environment, _ = answer("sweeps_fakes:quick_unit", pickled, print)
    assert kind == "done"
    assert result.weights == quick_unit(unit.cell, unit.seeds).weights
    assert '"python"' in environment
    monkeypatch.setattr("lab.sweeps.plan._version", lambda tasks, head: "edited meanwhile")
    kind, reason, *_ = answer("sweeps_fakes:quick_unit", pickled, print)
    assert kind == "refused"
    assert "other code of the lab than the driver; install the same version on every node" in reason
    kind, reason, *_ = answer("sweeps_fakes:quick_unit", pickled[:-20], print)
    assert kind == "refused"
    assert "cannot read the unit" in reason


class Raylet(Exception):
    pass


class Other(Exception):
    pass


class Answered(_Run):
    """A run of which every task has been answered, by a message or an exception."""

    def __init__(self, answers, report):
        def get(reference):
            if isinstance(answers[reference], Exception):
                raise answers[reference]
            return answers[reference]

        names = ("NodeDiedError", "ObjectLostError", "RayTaskError", "RayError")
        errors = SimpleNamespace(LocalRayletDiedError=Raylet, **dict.fromkeys(names, Other))
        self.ray = SimpleNamespace(get=get, exceptions=errors)
        self.waiting, self.report = [], report
        self.running = {n: _Task(unit) for n, unit in enumerate(make_plan().units()[: len(answers)])}

    def _look_for_nodes(self):
        pass

    _submit = _read_letters = _look_for_nodes

    def _ready(self):
        return list(self.running)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (("refused", "has other code", 0.0, None, "node7"), "node7 has other code; finished units are kept"),
        (Raylet(), "the Ray node of this machine died; finished units are kept"),
    ],
)
def test_what_is_finished_is_kept_when_the_cluster_fails(bad, said):
    """One answer of those that have come says that the cluster is of no use: the others are reported first."""
    good = [("done", n, 1.0, None, "host") for n in range(3)]
    updates: list[Update] = []
    with pytest.raises(ClusterError, match=said):
        Answered([good[0], bad, good[1], ("failed", "why", 1.0, None, "host"), bad, good[2]], updates.append).loop()
    assert [(update.kind, update.result) for update in updates] == [
        ("done", 0),
        ("done", 1),
        ("failed", None),
        ("done", 2),
    ]


# --- one node ---


def test_one_node_gives_what_the_local_executor_gives(workers_find_fakes, tmp_path):
    """All that can happen to a unit, in one go: starting Ray takes seconds."""
    import ray

    plan = make_plan(seeds=8)
    ray.init(address="local", num_cpus=1, log_to_driver=False, logging_level="ERROR", **SMALL)
    try:
        executor = RayExecutor()
        with Store(tmp_path / "lab.sqlite") as store:
            report = run(plan, store, executor, run_unit=quick_unit)
            assert counts(report) == (24, 0, 0, 0)
            assert published(store, tmp_path / "out") == expected(plan, tmp_path)
            assert counts(run(plan, store, executor, run_unit=quick_unit)) == (0, 24, 0, 0)
        one_each = [Unit(cell, (0,)) for cell in plan.cells if cell.recipe.learning_rate == 0.05]
        ends, _ = outcomes(executor, sweeps_fakes.threads_unit, one_each)
        assert {end.kind for end in ends.values()} == {"done"}
        ends, _ = outcomes(executor, sweeps_fakes.failing_unit, one_each)
        check(ends, "RuntimeError: no luck with seeds (0,)")
        ends, kinds = outcomes(executor, sweeps_fakes.dying_unit, one_each)
        check(ends, "the worker process ended")
        assert kinds.count("started") == 2 + 2 * 2  # every death is given a second chance
        ends, kinds = outcomes(executor, sweeps_fakes.once_dying_unit, one_each)
        assert {end.kind for end in ends.values()} == {"done"}
        assert kinds.count("started") == 5
        assert ray.is_initialized()  # the session is the caller's
    finally:
        ray.shutdown()


def outcomes(executor, unit_function, units):
    """The last update of every unit, and all kinds in order."""
    updates = []
    executor.run(unit_function, units, updates.append)
    ends = [update for update in updates if update.kind in ("done", "failed")]
    assert sorted(update.unit.id for update in ends) == sorted(unit.id for unit in units)  # exactly one each
    return {update.unit.id: update for update in ends}, [update.kind for update in updates]


def check(ends, said: str) -> None:
    """Units of dimension 2 failed, saying so; the others are done."""
    for end in ends.values():
        assert end.kind == ("failed" if end.unit.cell.head.dim == 2 else "done")
        assert end.kind == "done" or said in end.traceback


# --- two nodes ---


@pytest.fixture
def cluster(workers_find_fakes, monkeypatch):
    """A head node that computes nothing, and two nodes of one processor each, `cluster.workers`."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("FAKE_SECONDS", "0.3")
    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **SMALL})
    try:
        started.workers = [started.add_node(num_cpus=1, **SMALL) for _ in range(2)]
        yield started
    finally:
        ray.shutdown()
        started.shutdown()


@pytest.mark.cluster
def test_a_node_killed_in_the_middle_of_a_sweep(cluster, tmp_path):
    """Results are bit for bit those of the local executor; no unit is computed again once its result is stored."""
    plan, notices, starts_when_done = make_plan(seeds=8), [], {}

    def starts() -> list[list[str]]:
        """The node and the unit, whenever one was started."""
        lines = (tmp_path / "starts").read_text().splitlines()
        return [line.removesuffix(" held").split(maxsplit=1) for line in lines]

    def times(unit: str) -> int:
        return [started for _, started in starts()].count(unit)

    def watch(event) -> None:
        if event.kind == "done":
            unit = f"{event.unit.cell.label} {event.unit.seeds}"
            starts_when_done[unit] = times(unit)
        if event.kind == "done" and event.report.computed == 6:
            # What starts now does not end before the loss of its node is noticed: workers outlive a node for a moment.
            (tmp_path / "hold").touch()
            wait_until(lambda: (tmp_path / "starts").read_text().endswith(" held\n"))
            busy = starts()[-1][0]
            cluster.remove_node(next(n for n in cluster.workers if n.node_id == busy), allow_graceful=False)

    def note(notice: str) -> None:
        notices.append(notice)
        (tmp_path / "hold").unlink(missing_ok=True)

    with Store(tmp_path / "lab.sqlite") as store:
        executor = RayExecutor(cluster.address, notice=note)
        report = run(plan, store, executor, watch, run_unit=sweeps_fakes.noted_unit)
        assert counts(report) == (24, 0, 0, 0)
        assert notices
        assert all(notice.startswith("a node was lost; computing again: ") for notice in notices)
        assert published(store, tmp_path / "out") == expected(plan, tmp_path)
        weights = trained(store, plan)
    assert len(starts_when_done) == 24
    assert all(times(unit) == then for unit, then in starts_when_done.items())
    assert 24 < len(starts()) <= 24 + len(notices)
    with Store(tmp_path / "expected.sqlite") as store:
        assert weights == trained(store, plan)


@pytest.mark.cluster
def test_training_gives_the_same_bits_as_local_workers(cluster, tmp_path, monkeypatch):
    sys.path.insert(0, str(HERE.parent / "cli"))
    import cli_tiny_experiment

    plan = cli_tiny_experiment.plan(seeds=4)
    stores = []
    for name, executor in (("local", LocalExecutor(1)), ("ray", RayExecutor(cluster.address))):
        with Store(tmp_path / f"{name}.sqlite") as store:
            assert counts(run(plan, store, executor)) == (4, 0, 0, 0)
            tables = {path.name: path.read_bytes() for path in export(store, ["tiny"], tmp_path / name)[0].iterdir()}
            stores.append((tables, trained(store, plan)))
    assert stores[0] == stores[1]


@pytest.mark.cluster
def test_the_last_node_killed_and_another_one_joining(cluster, tmp_path):
    """Without a processor left the sweep waits, says so, and goes on with the next node."""
    plan, notices = make_plan(seeds=4), []

    def watch(event) -> None:
        if event.kind == "done" and event.report.computed == 3:
            for node in cluster.workers:
                cluster.remove_node(node, allow_graceful=False)

    def note(line: str) -> None:
        notices.append(line)
        if "waiting for a node" in line:
            cluster.add_node(num_cpus=1, **SMALL)

    with Store(tmp_path / "lab.sqlite") as store:
        report = run(plan, store, RayExecutor(cluster.address, notice=note), watch, run_unit=sweeps_fakes.noted_unit)
        assert counts(report) == (12, 0, 0, 0)
        assert published(store, tmp_path / "out") == expected(plan, tmp_path)
    assert "the cluster has no processors at the moment; waiting for a node" in notices


@pytest.mark.cluster
def test_a_node_with_other_code_stops_the_sweep_and_keeps_what_is_stored(cluster, tmp_path, monkeypatch):
    plan = make_plan(seeds=4)
    first = replace(plan, cells=plan.cells[:4])
    with Store(tmp_path / "lab.sqlite") as store:
        assert counts(run(first, store, RayExecutor(cluster.address), run_unit=quick_unit)) == (4, 0, 0, 0)
        monkeypatch.setattr("lab.sweeps.plan._version", lambda tasks, head: "edited on the driver alone")
        edited = make_plan(seeds=4)
        with pytest.raises(ClusterError, match=f"{socket.gethostname()} has other code of the lab than the driver"):
            run(edited, store, RayExecutor(cluster.address), run_unit=quick_unit)
        monkeypatch.undo()
        assert counts(run(plan, store, RayExecutor(cluster.address), run_unit=quick_unit)) == (8, 4, 0, 0)


DRIVER = """
import sys
from sweeps_fakes import make_plan
from lab.sweeps import Interrupted, RayExecutor, Store, ray_executor, run
ray_executor.HEAD_SECONDS, ray_executor.RESOURCES_SECONDS = 2.0, 0.5
path, address, unit = sys.argv[1:]
with Store(path) as store:
    try:
        print(run(make_plan(), store, RayExecutor(address), run_unit=f"sweeps_fakes:{unit}"))
    except Interrupted as interrupted:
        print(interrupted.report)
        sys.exit(130)
"""


@pytest.mark.cluster
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_driver_leaves_nothing_running_and_resumes(cluster, tmp_path, sent):
    path = tmp_path / "lab.sqlite"
    arguments = [sys.executable, "-c", DRIVER, path, cluster.address, "noted_unit"]
    (tmp_path / "hold").write_text("4")  # what starts later does not end by itself
    driver = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: stored(path) >= 3)
    driver.send_signal(sent)
    out, _ = driver.communicate(timeout=60)
    (tmp_path / "hold").unlink()
    kept = stored(path)
    assert 3 <= kept < 24
    if sent == signal.SIGINT:
        assert driver.returncode == 130
        assert out == f"{kept} computed, 0 reused, 0 failed, {24 - kept} left\n"
    starts = (tmp_path / "starts").read_text()
    time.sleep(1.5)
    assert (tmp_path / "starts").read_text() == starts  # nothing of it is started any more
    resumed = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert resumed.stdout == f"{24 - kept} computed, {kept} reused, 0 failed\n"
    with Store(path) as store:
        assert published(store, tmp_path / "out") == expected(make_plan(), tmp_path)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("part", "said"), [("raylet", "the Ray node of this machine died"), ("gcs", "does not answer")]
)
def test_a_head_node_that_dies_ends_the_sweep_in_one_line(cluster, tmp_path, part, said):
    """Ray by itself would try for ever, or end the process without a word of what is stored."""
    path = tmp_path / "lab.sqlite"
    arguments = [sys.executable, "-c", DRIVER, path, cluster.address, "noted_unit"]
    (tmp_path / "hold").write_text("4")
    driver = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: stored(path) >= 2)
    if part == "raylet":
        cluster.head_node.kill_raylet()
    else:
        cluster.head_node.kill_gcs_server()
    _, err = driver.communicate(timeout=90)
    last = err.strip().splitlines()[-1]
    assert last.startswith("lab.sweeps.ray_executor.ClusterError: ")
    assert said in last
    assert last.endswith("finished units are kept: start the cluster again, and then this sweep")
    kept = stored(path)
    with Store(path) as store:
        report = run(make_plan(), store, InlineExecutor(), run_unit=quick_unit)
        assert counts(report) == (24 - kept, kept, 0, 0)
        assert published(store, tmp_path / "out") == expected(make_plan(), tmp_path)


@pytest.mark.cluster
def test_progress_within_a_unit_arrives(cluster, tmp_path, monkeypatch):
    units, ends, heard = make_plan().units()[:2], [], {}

    def report(update: Update) -> None:
        if update.kind == "progress":
            heard[update.unit.id] = (update.fraction, update.seconds >= 0)
            if len(heard) == 2:
                (tmp_path / "heard").touch()
        elif update.kind == "done":
            ends.append(update.unit.id)

    RayExecutor(cluster.address).run(sweeps_fakes.patient_unit, units, report)
    assert heard == {unit.id: (0.5, True) for unit in units}
    assert sorted(ends) == sorted(heard)
