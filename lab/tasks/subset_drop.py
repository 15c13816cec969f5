"""subset-drop: K1 D1 K2 D2 ... Kn Dn Q; the query at Q reads the keys not dropped (constant-dimension).

Dj is the token *drop* with probability `drop`, else *keep*. All keys are one token, so position and the D
after it are all there is to tell them apart, and the query vector is the same for all 2^n subsets. A draw in
which every key is dropped is thrown away and drawn again from the same stream: subsets follow the independent
law given that some key is kept, and no empty target is ever scored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lab.tasks.base import Batch, Task, probability, whole_number
from lab.tasks.streams import threshold

VOCABULARY = ("key", "drop", "keep", "query")
KEY, DROP, KEEP, QUERY = 0, 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class SubsetDrop(Task):
    """Options: train_length in keys, drop = the chance that a key is dropped. n keys make 2n + 1 tokens."""

    name: ClassVar[str] = "subset-drop"
    train_length: int = 16
    drop: float = 0.5

    def __post_init__(self) -> None:
        whole_number(self.name, "train_length", self.train_length, 1)
        # Above 0.99, throwing away empty targets could take very long for one key.
        object.__setattr__(self, "drop", probability(self.name, "drop", self.drop, 0.0, 0.99))

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return VOCABULARY

    @property
    def key_tokens(self) -> tuple[int, ...]:
        return (KEY,)

    def seq_len(self, length: int) -> int:
        return 2 * length + 1

    def _generate(self, keys: np.ndarray, start: int, batch: Batch) -> None:
        from lab.tasks.kernels.subset_drop import generate

        generate(keys, start, threshold(self.drop), batch.tokens, batch.death, batch.queries)
