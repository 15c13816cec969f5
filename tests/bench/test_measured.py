"""What is measured without a second side: threads, memory, limits. Small sizes; no number is held against the clock."""

import numpy as np
import pytest
import torch

from lab.bench import growth, limits, memory, threads
from lab.bench.measure import Settings

MIB = 1 << 20


def silent(fraction: float, note: str) -> None:
    assert 0.0 <= fraction <= 1.0


def test_workers_are_probed_from_inside(monkeypatch):
    """One worker process, and this process: a worker has one thread that works, and its steps are timed there."""
    monkeypatch.setattr(threads, "STEPS", 20)
    monkeypatch.setattr(threads, "UNITS_PER_WORKER", 1)
    found = threads.run(Settings(quick=True, threads=1), silent)
    worker, here = found.tables["threads"]
    assert [worker["run"], here["run"]] == ["1 worker", "one process, all threads"]
    for row in (worker, here):
        assert row["step_ms"] > 0
        assert 0 < row["busy"] <= 1.1 * max(1, torch.get_num_threads())
        assert row["n"] == 1
    assert worker["step_against_alone"] == 1.0
    if threads._PROC.is_dir():
        assert worker["threads_working"] == 1
        assert worker["threads"] >= 1
        assert not found.notes


def test_a_failing_probe_is_not_measured(monkeypatch):
    monkeypatch.setattr(threads, "PROBE", "lab.bench.threads:no_such_function")
    with pytest.raises(RuntimeError, match="no_such_function"):
        threads._crew(1)


def test_memory_of_a_call_is_what_it_allocates(monkeypatch):
    """In this process: 24 MiB in between, 8 MiB returned, 16 MiB of inputs."""
    inputs = []

    def prepare(numbers: int):
        inputs.append(np.ones(4 * numbers))

        def call() -> torch.Tensor:
            between = np.ones(3 * numbers)
            out = torch.ones(numbers, dtype=torch.float64)
            return out * float(between[-1])

        return call

    used = memory._bytes(prepare, {"numbers": MIB})
    if memory._status("VmHWM"):
        assert used["extra"] == pytest.approx(32 * MIB, abs=4 * MIB)  # `between`, and `out` before its product
        assert used["total"] == pytest.approx((32 + 32 + 8) * MIB, abs=4 * MIB)


def test_memory_is_left_out_where_peaks_cannot_be_read(monkeypatch):
    monkeypatch.setattr(memory, "_status", lambda name: 0.0)
    found = memory.run(Settings(True, 1), silent)
    assert not found.results
    assert found.notes == ["memory: left out; the peak of a single call can be read on Linux only"]


def test_memory_is_measured_in_a_process_of_its_own():
    """The gradients of a step by position are as large as its inputs, and little else is alive."""
    sizes = {"seeds": 16, "batch": 16, "length": 64, "dim": 64}
    (first, second) = memory.measure([("step fpa", sizes), ("step fpa", sizes | {"dim": 128})], threads=1)
    tensors = 2 * 16 * 16 * 64 * 64 * 4
    for found, dim in ((first, 1), (second, 2)):
        assert found["total"] >= 1.9 * dim * tensors
        assert 0 <= found["extra"] < found["total"]


def test_the_limits_are_those_of_the_machine_and_the_shapes(monkeypatch):
    for name, value in (("MATRIX", 64), ("COPIED", 1 << 12)):
        monkeypatch.setattr(limits, name, value)
    kernel = ("a kernel", lambda: None, 10.0, 80.0, 40.0)
    monkeypatch.setattr(limits, "kernels", lambda: [kernel])
    before = torch.get_num_threads()
    (row, *_) = limits.run(Settings(quick=True, threads=before), silent).tables["limits"]
    assert torch.get_num_threads() == before
    assert row["arithmetic_ns"] == pytest.approx(8.0 / row["machine_gflops_per_core"])
    assert row["bandwidth_ns"] == pytest.approx(4.0 / row["machine_gb_per_s_per_core"])
    slower = max(row["arithmetic_ns"], row["bandwidth_ns"])
    assert row["times_the_limit"] == pytest.approx(row["ns_per_logit"] / slower)


def test_growth_measures_every_size_and_fits_one_exponent_per_series(monkeypatch):
    sizes = {"seeds": 1, "batch": 1, "dim": 1}
    series = (
        growth.Series("time", "step fpa", "T", "length", (2, 4, 8), sizes),
        # Megabytes: a few pages may be there already, and then nothing is taken.
        growth.Series("memory", "step fpa", "T", "length", (64, 128), {"seeds": 16, "batch": 16, "dim": 16}),
    )
    monkeypatch.setattr(growth, "SERIES", series)
    found = growth.run(Settings(quick=False, threads=1), silent)
    times = [row for row in found.tables["growth"] if row["quantity"] == "time"]
    assert [(row["size"], row["n"], row["unit"]) for row in times] == [(2, 5, "ms"), (4, 5, "ms"), (8, 5, "ms")]
    assert all(0 < row["low"] <= row["median"] <= row["high"] for row in times)
    assert {row["fixed"] for row in times} == {"seeds=1 batch=1 dim=1"}
    time, memory = found.tables["exponents"]
    assert (time["quantity"], time["points"]) == ("time", 3)
    assert (memory["quantity"], memory["points"]) == ("memory", 2)
