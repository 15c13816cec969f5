"""Draws the sequences of subset-drop."""

import numba

from lab.tasks.kernels.random import happens, new_stream, start_stream
from lab.tasks.subset_drop import DROP, KEEP, KEY, QUERY


@numba.njit(cache=True, nogil=True)
def generate(keys, start, drop_below, tokens, death, queries):
    num_seeds, count, seq_len = tokens.shape
    stream = new_stream()
    for seed in range(num_seeds):
        for row in range(count):
            start_stream(stream, keys[seed], start + row)
            kept = 0
            while kept == 0:
                for i in range(0, seq_len - 1, 2):
                    dropped = happens(stream, drop_below)
                    tokens[seed, row, i] = KEY
                    tokens[seed, row, i + 1] = DROP if dropped else KEEP
                    death[seed, row, i] = i + 1 if dropped else seq_len
                    kept += not dropped
            tokens[seed, row, seq_len - 1] = QUERY
            queries[seed, row, seq_len - 1] = 1
