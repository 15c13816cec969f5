"""leveled-dips: keys have levels, dips have depths; dip b kills the keys of levels above b.

At every position comes a key with probability `key_probability`, of a level uniform in 1..levels, else a dip
of a depth uniform in 1..levels. So a key of level a is a target iff every later dip so far has depth b >= a:
keys of level 1 never die, and the deepest-numbered dip kills nothing. Positions are independent, so late ones
look like early ones. Made for a direct field with free levels: which keys die depends on their own level, not
on the order in which they came, so a walk with tied levels cannot follow (THEORY.md, walk-is-a-stack).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numba
import numpy as np

from lab.tasks.base import Batch, Task, probability, whole_number
from lab.tasks.random import below, happens, new_stream, start_stream, threshold


@dataclass(frozen=True, kw_only=True)
class LeveledDips(Task):
    """Options: train_length in tokens, levels, key_probability. Every position with a nonempty target is a
    query.

    Vocabulary: key1 .. keyA are tokens 0 .. A-1, dip1 .. dipA are tokens A .. 2A-1.
    """

    name: ClassVar[str] = "leveled-dips"
    train_length: int = 32
    levels: int = 4
    key_probability: float = 0.5

    def __post_init__(self) -> None:
        whole_number(self.name, "train_length", self.train_length, 1)
        whole_number(self.name, "levels", self.levels, 1, 1000)
        chance = probability(self.name, "key_probability", self.key_probability, 0.01, 1.0)
        object.__setattr__(self, "key_probability", chance)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        numbers = range(1, self.levels + 1)
        return tuple(f"key{a}" for a in numbers) + tuple(f"dip{b}" for b in numbers)

    @property
    def key_tokens(self) -> tuple[int, ...]:
        return tuple(range(self.levels))

    def seq_len(self, length: int) -> int:
        return length

    def _generate(self, keys: np.ndarray, start: int, batch: Batch) -> None:
        key_below = threshold(self.key_probability)
        _generate(keys, start, self.levels, key_below, batch.tokens, batch.death, batch.queries)


@numba.njit(cache=True, nogil=True)
def _generate(keys, start, levels, key_below, tokens, death, queries):
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
