"""Draws the sequences of scoped-lookup, and answers them as readers that know less would."""

import numba
import numpy as np

from lab.tasks.kernels.random import below, new_stream, next_word, start_stream


@numba.njit(cache=True, nogil=True)
def generate(keys, start, sizes, bounds, tokens, death, queries, values, in_force):
    num_symbols, num_active, num_values, max_depth = sizes
    num_seeds, count, seq_len = tokens.shape
    stream = new_stream()
    names = np.empty(num_symbols, dtype=np.int64)
    live = np.empty(seq_len, dtype=np.int64)  # positions of the live bindings: a stack, since scopes nest
    shadows = np.empty(seq_len, dtype=np.int64)  # by position: the binding of the same symbol that it shadows, or -1
    outside = np.empty(max_depth, dtype=np.int64)
    force = np.empty(num_symbols, dtype=np.int64)  # by symbol: the binding in force, or -1
    for seed in range(num_seeds):
        for row in range(count):
            start_stream(stream, keys[seed], start + row)
            names[:] = np.arange(num_symbols)
            for n in range(num_active):  # the first steps of a shuffle
                other = n + below(stream, num_symbols - n)
                names[n], names[other] = names[other], names[n]
            force[:] = -1
            depth, num_live = 0, 0
            for i in range(seq_len):
                word = next_word(stream)
                if word >= bounds[2] and depth > 0:
                    tokens[seed, row, i] = num_symbols + 1
                    depth -= 1
                    for k in range(num_live - 1, outside[depth] - 1, -1):
                        death[seed, row, live[k]] = i
                        force[tokens[seed, row, live[k]]] = shadows[live[k]]
                    num_live = outside[depth]
                elif bounds[1] <= word < bounds[2] and depth < max_depth:
                    tokens[seed, row, i] = num_symbols
                    outside[depth] = num_live
                    depth += 1
                elif bounds[0] <= word < bounds[1] and num_live > 0:
                    symbol = names[below(stream, num_active)]
                    while force[symbol] < 0:
                        symbol = names[below(stream, num_active)]
                    tokens[seed, row, i] = num_symbols + 2 + symbol
                    queries[seed, row, i] = 1
                    in_force[seed, row, i] = force[symbol]
                else:
                    symbol = names[below(stream, num_active)]
                    tokens[seed, row, i] = symbol
                    values[seed, row, i] = below(stream, num_values)
                    death[seed, row, i] = seq_len
                    live[num_live] = i
                    num_live += 1
                    shadows[i] = force[symbol]
                    force[symbol] = i


@numba.njit(cache=True, nogil=True)
def count_live(death, queries, symbols, counts):
    for n in range(len(death)):
        for i in np.flatnonzero(queries[n]):
            for j in range(i):
                counts[n, i] += i < death[n, j] and symbols[n, j] == symbols[n, i]


@numba.njit(cache=True, nogil=True)
def find_newest(death, queries, symbols, found):
    for n in range(len(death)):
        for i in np.flatnonzero(queries[n]):
            j = i - 1
            while death[n, j] == 0 or symbols[n, j] != symbols[n, i]:
                j -= 1
            found[n, i] = j


@numba.njit(cache=True, nogil=True)
def answer_most_frequent(death, values, answers, right):
    counts = np.zeros(values.max() + 1, dtype=np.int64)
    for n in range(len(values)):
        counts[:] = 0
        best = 0
        for i in range(values.shape[1]):
            if death[n, i] > 0:
                counts[values[n, i]] += 1
                if counts[values[n, i]] >= counts[best]:
                    best = values[n, i]
            right[n, i] = best == answers[n, i]


@numba.njit(cache=True, nogil=True)
def answer_random_live(death, queries, symbols, values, answers, right):
    for n in range(len(death)):
        for i in np.flatnonzero(queries[n]):
            live, hits = 0, 0
            for j in range(i):
                if i < death[n, j] and symbols[n, j] == symbols[n, i]:
                    live += 1
                    hits += values[n, j] == answers[n, i]
            right[n, i] = hits / live
