"""Draws the sequences of leveled-dips."""

import numba
import numpy as np

from lab.tasks.kernels.random import below, happens, new_stream, start_stream


@numba.njit(cache=True, nogil=True)
def generate(keys, start, levels, key_below, tokens, death, queries):
    num_seeds, count, seq_len = tokens.shape
    stream = new_stream()
    # Live keys in one list per level, newest first: every key is linked once and killed at most once, so a
    # sequence takes O(seq_len * levels).
    newest = np.empty(levels, dtype=np.int64)
    older = np.empty(seq_len, dtype=np.int64)
    for seed in range(num_seeds):
        for row in range(count):
            start_stream(stream, keys[seed], start + row)
            newest[:] = -1
            num_live = 0
            for i in range(seq_len):
                is_key = happens(stream, key_below)
                level = below(stream, levels)
                if is_key:
                    tokens[seed, row, i] = level
                    death[seed, row, i] = seq_len
                    older[i] = newest[level]
                    newest[level] = i
                    num_live += 1
                else:
                    tokens[seed, row, i] = levels + level
                    for doomed in range(level + 1, levels):
                        while newest[doomed] >= 0:
                            death[seed, row, newest[doomed]] = i
                            newest[doomed] = older[newest[doomed]]
                            num_live -= 1
                queries[seed, row, i] = num_live > 0
