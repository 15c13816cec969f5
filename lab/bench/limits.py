"""Nanoseconds per causal logit and core, beside what the arithmetic and the memory of this machine allow.

The limits are measured in the same run: a product of two large matrices, and a copy of a large array. Counted are the
multiplications and additions of the matrix products alone, and the bytes of inputs, outputs and gradients once each:
no way of computing the same can do with less time than the larger of the two.
"""

from collections.abc import Callable
from typing import Any

import torch

from lab.bench import attention, step
from lab.bench.measure import Found, Settings, Side, Tell, seconds
from lab.bench.operations import OPERATIONS

MATRIX = 2048
COPIED = 1 << 26  # float32 numbers: 256 MiB
TURNS = 15


def run(settings: Settings, tell: Tell) -> Found:
    """Every kernel on one thread and on all; the limits before and after each, of which the better counts."""
    found = Found()
    rows = []
    for n, threads in enumerate(dict.fromkeys((1, settings.threads))):
        tell(n / 2, f"on {threads} {'thread' if threads == 1 else 'threads'}")
        torch.set_num_threads(threads)
        try:
            rows += _table(threads, settings.turns(TURNS))
        finally:
            torch.set_num_threads(settings.threads)
    found.tables["limits"] = rows
    return found


def _table(threads: int, turns: int) -> list[dict[str, Any]]:
    product, copy = matrix_product(MATRIX), array_copy(COPIED)
    cases = kernels()
    sides: list[Side] = [product, copy, *(call for _, call, *_ in cases)]
    for side in sides:
        side()
    best = [min(times) for times in zip(*([seconds(side) for side in sides] for _ in range(turns)), strict=True)]
    flops = 2.0 * MATRIX**3 / best[0] / threads
    traffic = 2.0 * 4 * COPIED / best[1] / threads
    rows = []
    for (name, _, logits, operations, moved), time in zip(cases, best[2:], strict=True):
        measured, arithmetic, bandwidth = (
            1e9 * x / logits for x in (time * threads, operations / flops, moved / traffic)
        )
        rows.append(
            {"kernel": name, "threads": threads, "ns_per_logit": measured, "arithmetic_ns": arithmetic,
             "bandwidth_ns": bandwidth, "times_the_limit": measured / max(arithmetic, bandwidth),
             "machine_gflops_per_core": flops / 1e9, "machine_gb_per_s_per_core": traffic / 1e9}
        )  # fmt: skip
    return rows


Kernel = tuple[str, Side, float, float, float]


def kernels() -> list[Kernel]:
    """(name, call, causal logits, floating-point operations of its products, bytes that must be moved)."""
    place = {"seeds": step.SEEDS, "batch": step.BATCH, "length": step.LENGTH, "dim": step.DIM}
    logits = step.SEEDS * step.BATCH * triangle(step.LENGTH)
    tokens = step.SEEDS * step.BATCH * step.LENGTH
    # Forward q.k; backward the gradients of q and k. Each of q, k, their gradients, and for FPA field and level too.
    found: list[Kernel] = [
        (f"step {kind}", OPERATIONS[f"step {kind}"](**place), logits, 6.0 * step.DIM * logits,
         4.0 * tokens * (4 * step.DIM + extra))
        for kind, extra in (("fpa", 4), ("softmax", 0))
    ]  # fmt: skip
    given = attention.inputs()
    heads = attention.BATCH * attention.HEADS
    logits = heads * triangle(attention.LENGTH)
    numbers = heads * attention.LENGTH * attention.DIM
    # Forward q.k and p.v; backward q.k again, dp, dv, dq and dk. Inputs twice, output twice, gradients once.
    for name, attend in (("fpa", attention.attend_fpa), ("sdpa", attention.attend_sdpa)):
        found.append(
            (f"attention {name}", _step(attend, given), logits, 14.0 * attention.DIM * logits, 4.0 * 11 * numbers)
        )
    return found


def _step(attend: attention.Attend, given: attention.Inputs) -> Callable[[], object]:
    return lambda: attention.step(attend, given)


def triangle(length: int) -> float:
    """Causal logits of one sequence: keys up to and including the query.

    >>> triangle(3)
    6.0
    """
    return length * (length + 1) / 2


def matrix_product(size: int) -> Side:
    left, right = torch.randn(2, size, size)
    out = torch.empty(size, size)
    return lambda: torch.mm(left, right, out=out)


def array_copy(numbers: int) -> Side:
    source, target = torch.ones(numbers), torch.empty(numbers)
    return lambda: target.copy_(source)
