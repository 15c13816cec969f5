"""Draws the sequences of nested-scope."""

import numba
import numpy as np

from lab.tasks.kernels.random import new_stream, next_word, start_stream
from lab.tasks.nested_scope import CLOSE, KEY, OPEN


@numba.njit(cache=True, nogil=True)
def generate(keys, start, max_depth, key_below, open_below, tokens, death, queries):
    num_seeds, count, seq_len = tokens.shape
    stream = new_stream()
    live = np.empty(seq_len, dtype=np.int64)  # positions of the live keys: a stack, since scopes nest
    outside = np.empty(max_depth, dtype=np.int64)  # how many keys were live when each open scope opened
    for seed in range(num_seeds):
        for row in range(count):
            start_stream(stream, keys[seed], start + row)
            depth, num_live = 0, 0
            for i in range(seq_len):
                word = next_word(stream)
                if word >= open_below and depth > 0:
                    tokens[seed, row, i] = CLOSE
                    depth -= 1
                    for k in range(outside[depth], num_live):
                        death[seed, row, live[k]] = i
                    num_live = outside[depth]
                elif key_below <= word < open_below and depth < max_depth:
                    tokens[seed, row, i] = OPEN
                    outside[depth] = num_live
                    depth += 1
                else:
                    tokens[seed, row, i] = KEY
                    death[seed, row, i] = seq_len
                    live[num_live] = i
                    num_live += 1
                queries[seed, row, i] = num_live > 0
