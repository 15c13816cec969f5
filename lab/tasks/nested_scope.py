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

import numpy as np

from lab.tasks.base import Batch, Task, probability, whole_number
from lab.tasks.streams import threshold

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
        from lab.tasks.kernels.nested_scope import generate

        key_below = threshold(self.key_probability)
        open_below = np.uint64((int(key_below) + 2**32) // 2)
        generate(keys, start, self.max_depth, key_below, open_below, batch.tokens, batch.death, batch.queries)


def indented(tokens: np.ndarray) -> list[str]:
    """Token names indented by depth, brackets standing at the depth outside them."""
    labels, depth = [], 0
    for token in tokens:
        depth -= token == CLOSE
        labels.append("  " * depth + VOCABULARY[token])
        depth += token == OPEN
    return labels
