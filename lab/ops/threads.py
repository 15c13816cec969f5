"""Compiled kernels over chunks of an index range, on as many threads as torch is told to use.

numba's own threads are a second pool beside torch's, and its portable layer must not be entered from two threads at
once. Kernels compiled with nogil=True run on plain Python threads instead. `torch.set_num_threads(1)`, as in every
worker process of a sweep, means no threads at all.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import count

import torch

# Smaller chunks even out sequences of different cost; each costs a few microseconds.
_CHUNKS_PER_THREAD = 8


def run_chunks(function: Callable[[int, int], None], n: int, threads: int | None = None) -> None:
    """Calls function(start, stop) on chunks that cover 0 .. n-1 once each; returns when all are done.

    `function` must write the result of item i to a place of its own, so that nothing depends on the chunks or on the
    order in which they run; sums over items are for the caller, afterwards, in a fixed order. It runs inline when
    `threads` (torch.get_num_threads() by default) is 1 or there is one chunk. Whatever it raises is raised here.
    """
    threads = torch.get_num_threads() if threads is None else threads
    if n <= 0:
        return
    chunks = min(n, threads * _CHUNKS_PER_THREAD)
    if threads <= 1 or chunks == 1:
        function(0, n)
        return
    next_chunk = count()

    def work() -> None:
        # next() on a count is atomic: every chunk is taken once, by whichever thread is free.
        while (chunk := next(next_chunk)) < chunks:
            function(n * chunk // chunks, n * (chunk + 1) // chunks)

    helpers = min(threads, chunks) - 1
    futures = [_pool(os.getpid(), helpers).submit(work) for _ in range(helpers)]
    try:
        work()
    finally:
        for future in futures:
            future.exception()  # wait: the caller's arrays must not be written after it has gone on
    for future in futures:
        future.result()


@lru_cache(maxsize=4)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One pool per process: a forked child inherits the object but not its threads."""
    return ThreadPoolExecutor(threads, thread_name_prefix="lab-ops")
