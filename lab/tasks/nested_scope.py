"""nested-scope: keys stand in nested brackets; a query reads the keys of the scopes still open.

Depth is a walk that starts at 0 and is held between 0 and max_depth. At every position comes a key with
probability `key_probability`, else an open or a close, each as likely; a bracket that cannot stand (a close
at depth 0, an open at max_depth) is replaced by a key. Steps up and down are then equally likely between any
two neighbouring depths, so the stationary law of the depth is uniform on 0..max_depth, reached within a few
times max_depth^2 positions of the start at 0: a test at many times the training length asks for more length,
not for more depth.

One set of increments, open +1, close -1, key 0, solves it at every depth and length (THEORY.md,
nested-scope). Keys at depth 0 never die, so the number of targets grows with the length, by 0.14
per position with the default options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from lab.tasks.base import Batch, Task, probability, whole_number
from lab.tasks.random import new_stream, next_word, start_stream, threshold

VOCABULARY = ("key", "open", "close")
KEY, OPEN, CLOSE = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class NestedScope(Task):
    """Options: train_length in tokens, max_depth, key_probability.

    Every position with a nonempty target is a query.
    """

    name: ClassVar[str] = "nested-scope"
    train_length: int = 32
    max_depth: int = 4
    key_probability: float = 0.4

    def __post_init__(self) -> None:
        whole_number(self.name, "train_length", self.train_length, 1)
        whole_number(self.name, "max_depth", self.max_depth, 1, 1000)
        chance = probability(self.name, "key_probability", self.key_probability, 0.01, 1.0)
        object.__setattr__(self, "key_probability", chance)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return VOCABULARY

    @property
    def key_tokens(self) -> tuple[int, ...]:
        return (KEY,)

    def seq_len(self, length: int) -> int:
        return length

    def labels(self, tokens: np.ndarray) -> list[str]:
        return indented(tokens)

    def _generate(self, keys: np.ndarray, start: int, batch: Batch) -> None:
        key_below = threshold(self.key_probability)
        open_below = np.uint64((int(key_below) + 2**32) // 2)
        _generate(keys, start, self.max_depth, key_below, open_below, batch.tokens, batch.death, batch.queries)


def indented(tokens: np.ndarray) -> list[str]:
    """Token names indented by depth, brackets standing at the depth outside them."""
    labels, depth = [], 0
    for token in tokens:
        depth -= token == CLOSE
        labels.append("  " * depth + VOCABULARY[token])
        depth += token == OPEN
    return labels


@numba.njit(cache=True, nogil=True)
def _generate(keys, start, max_depth, key_below, open_below, tokens, death, queries):
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
