"""Chunks cover the range once, on one thread or several, and errors reach the caller."""

import multiprocessing
import threading
import time

import numpy as np
import pytest
import torch

from lab.ops.threads import run_chunks


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 100])
def test_every_item_is_done_once(threads, n):
    done = np.zeros(n, dtype=int)

    def work(start, stop):
        done[start:stop] += 1

    run_chunks(work, n, threads)
    assert (done == 1).all()


def test_one_thread_runs_inline_and_two_run_at_once():
    seen, meeting = [], threading.Barrier(2, timeout=10)
    run_chunks(lambda start, stop: seen.append((threading.current_thread(), start, stop)), 10, threads=1)
    assert seen == [(threading.main_thread(), 0, 10)]
    run_chunks(lambda start, stop: meeting.wait(), 8, threads=2)  # a lone thread would wait for ever


def test_the_number_of_threads_is_torchs(monkeypatch):
    seen = set()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    run_chunks(lambda start, stop: seen.add((start, stop)), 10)
    assert seen == {(0, 10)}
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    run_chunks(lambda start, stop: seen.add((start, stop)), 10)
    assert len(seen) > 2


def test_an_error_in_any_chunk_is_raised_after_all_threads_are_done():
    failing, running, ended = threading.Event(), threading.Event(), []

    def fail(start, stop):
        if start == 0:
            running.wait(10)  # another thread is at work on another chunk
            failing.set()
            raise ValueError("chunk 0")
        running.set()
        failing.wait(10)
        time.sleep(0.05)  # so the error is there before this chunk is done
        ended.append(start)

    with pytest.raises(ValueError, match="chunk 0"):
        run_chunks(fail, 16, threads=2)
    assert ended


def _sum_in_child(queue):
    total = np.zeros(16)

    def work(start, stop):
        total[start:stop] = 1

    run_chunks(work, 16, threads=2)
    queue.put(total.sum())


def test_a_forked_process_gets_threads_of_its_own():
    run_chunks(lambda start, stop: None, 16, threads=2)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_sum_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=30) == 16
    child.join(timeout=30)
    assert child.exitcode == 0
