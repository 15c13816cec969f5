"""Memory of a call, measured in a process of its own by the peak of what is resident.

`python -m lab.bench.memory THREADS REQUESTS` prints one line of JSON: for every request [operation, sizes] the bytes
of the call beyond its inputs and outputs ("extra"), and all that it takes, its inputs included ("total").
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lab.bench.measure import Found, Result, Settings, Tell, estimate

LENGTH, DIM = 32_768, 64
BAR = "64"
MIB = float(1 << 20)

Request = tuple[str, Mapping[str, Any]]

# Whatever is freed goes back to the system at once, so that nothing an earlier call left over hides what a later one
# takes. For glibc; other allocators ignore it.
_GIVE_BACK = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}


def run(settings: Settings, tell: Tell) -> Found:
    """The forward pass of one long head, such as one could go back through; SDPA's beside it."""
    found = Found()
    if not measurable():
        found.notes.append("memory: left out; the peak of a single call can be read on Linux only")
        return found
    cases = [("attention fpa", "fpa_attention", BAR), ("attention sdpa", "SDPA causal", None)]
    sizes = {"length": LENGTH, "dim": DIM, "backward": False}
    for n, (operation, name, bar) in enumerate(cases):
        tell(n / len(cases), name)
        used = [measure([(operation, sizes)], settings.threads)[0]["extra"] for _ in range(settings.turns(3))]
        name = f"extra memory of {name} forward, T={LENGTH}, one head of {DIM}"
        found.results.append(Result("memory", name, estimate([bytes_ / MIB for bytes_ in used]), bar, unit="MiB"))
    return found


def measurable() -> bool:
    """Whether the system tells the peak since a moment, not only that of the whole process."""
    return Path("/proc/self/clear_refs").exists() and _status("VmHWM") > 0


def measure(requests: Sequence[Request], threads: int) -> list[dict[str, float]]:
    """Bytes of every request, one after the other in one new process: {"extra": ..., "total": ...}."""
    search = os.pathsep.join(folder or os.getcwd() for folder in sys.path)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lab.bench.memory", str(threads), json.dumps(list(requests))],
        env={**os.environ, **_GIVE_BACK, "PYTHONPATH": search}, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


def main(threads: int, requests: Sequence[Request]) -> None:
    """Every operation is called once at its first sizes before anything counts: that loads and compiles it."""
    import torch

    from lab.bench.operations import OPERATIONS

    torch.set_num_threads(threads)
    for operation, sizes in dict(reversed(requests)).items():
        OPERATIONS[operation](**{**sizes, "length": 256} if "length" in sizes else sizes)()
    print(json.dumps([_bytes(OPERATIONS[operation], sizes) for operation, sizes in requests]))


def _bytes(prepare: Any, sizes: Mapping[str, Any]) -> dict[str, float]:
    empty = resident()
    call = prepare(**sizes)
    before = resident()
    reset_peak()
    out = call()
    returned = sum(x.numel() * x.element_size() for x in (out if isinstance(out, tuple | list) else [out]))
    top = peak()
    return {"extra": max(0.0, top - before - returned), "total": max(0.0, top - empty)}


def reset_peak() -> None:
    """The peak is that of what follows from here on; where the system cannot, of the whole process."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    """The most bytes that were resident."""
    return _status("VmHWM") or _most()


def resident() -> float:
    """Bytes that are resident now, or that were at most where only that is known."""
    return _status("VmRSS") or _most()


def _most() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(used if sys.platform == "darwin" else used * 1024)


def _status(name: str) -> float:
    """A line of /proc/self/status in bytes; 0 where there is none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * float(line.split()[1]) for line in lines if line.startswith(f"{name}:")), 0.0)


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]))
