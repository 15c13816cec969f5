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

import numpy as np

from lab.tasks.base import Batch, Task, probability, whole_number
from lab.tasks.streams import threshold


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
        from lab.tasks.kernels.leveled_dips import generate

        key_below = threshold(self.key_probability)
        generate(keys, start, self.levels, key_below, batch.tokens, batch.death, batch.queries)
