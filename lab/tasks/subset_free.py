"""Every subset of a few keys, each with a query vector of its own: what a single head can represent at all.

    K1 D1 K2 D2 ... Kn Dn Q    targets: the keys whose D is keep

A finite family: 2^n - 1 non-empty targets over the same n keys, one sequence each. Training goes over all of them
in every step and success is counted on all of them, so there is no unseen data: the question is which families a
head of some dimension can represent, and whether training finds them. In the words of THEORY.md: dips after each
key, and a free query (one query token per target) or a fixed one. Only keys are attended to; *drop*, *keep* and the
query itself are masked from the softmax (in sweeps, by `lab.training.families`; as an ordinary task, under `fpa-lab
train`, targets are drawn and every token is attended to).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lab.errors import InputError
from lab.tasks.base import Batch, Task, one_of, whole_number

MOST_KEYS = 10
TOKENS = ("shared", "per-slot")
QUERIES = ("free", "fixed")
NOTIONS = ("uniform", "window", "separation")


@dataclass(frozen=True, kw_only=True)
class SubsetFree(Task):
    """Options: the number of keys; how many drop tokens; which queries; and which notion of reading is asked for.

    tokens  shared: one drop and one keep token for all slots, so one gate for all drops; per-slot: own ones
    query   free: one query token per target, number 1 + sum of 2^(j - 1) over its keys j; fixed: one for all
    notion  what all targets at once have to satisfy: separation (gap > 0), window (gap at least 4 times the largest
            window) or uniform (total variation at most 0.05); see `lab.training.families`
    """

    name: ClassVar[str] = "subset-free"
    keys: int = 4
    tokens: str = "shared"
    query: str = "free"
    notion: str = "uniform"

    def __post_init__(self) -> None:
        whole_number(self.name, "keys", self.keys, 1, MOST_KEYS)
        one_of(self.name, "tokens", self.tokens, TOKENS)
        one_of(self.name, "query", self.query, QUERIES)
        one_of(self.name, "notion", self.notion, NOTIONS)

    @property
    def slots(self) -> int:
        """How many drop tokens there are."""
        return self.keys if self.tokens == "per-slot" else 1

    @property
    def targets(self) -> int:
        """The number of targets: all subsets but the empty one."""
        return 2**self.keys - 1

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """Keys, drops, keeps, queries."""
        numbers = range(1, self.keys + 1)
        dips = [f"{word}{j}" for word in ("drop", "keep") for j in numbers] if self.slots > 1 else ["drop", "keep"]
        asked = [f"query{s}" for s in range(1, self.targets + 1)] if self.query == "free" else ["query"]
        return (*(f"key{j}" for j in numbers), *dips, *asked)

    @property
    def key_tokens(self) -> tuple[int, ...]:
        return tuple(range(self.keys))

    @property
    def first_drop(self) -> int:
        """Id of the drop token, or of that of the first slot; the keep tokens follow the drop tokens."""
        return self.keys

    @property
    def first_query(self) -> int:
        """Id of the query token, or of that of the first target."""
        return self.keys + 2 * self.slots

    @property
    def train_length(self) -> int:
        """In keys."""
        return self.keys

    def seq_len(self, length: int) -> int:
        return 2 * length + 1

    def family(self) -> Batch:
        """Every target once, in the order of its number: lead shape (2^n - 1,)."""
        return self._sequences(np.arange(1, self.targets + 1))

    def alive(self) -> np.ndarray:
        """bool (targets, keys): which keys the targets of `family` hold."""
        return (np.arange(1, self.targets + 1)[:, None] >> np.arange(self.keys)) & 1 == 1

    def sample(self, split, seeds, start, count, *, length=None) -> Batch:
        """Targets drawn uniformly. Every length but the task's own is an InputError: each key is its own token."""
        if length not in (None, self.keys):
            raise InputError(f"{self.name}: length: expected {self.keys}, the number of its keys, got {length!r}")
        return super().sample(split, seeds, start, count, length=length)

    def _generate(self, keys: np.ndarray, start: int, batch: Batch) -> None:
        from lab.tasks.kernels.random import choices

        drawn = self._sequences(1 + choices(keys, start, batch.tokens.shape[1], self.targets))
        for given, own in ((batch.tokens, drawn.tokens), (batch.death, drawn.death), (batch.queries, drawn.queries)):
            given[:] = own

    def _sequences(self, numbers: np.ndarray) -> Batch:
        """The sequence of each numbered target, shape (*numbers.shape, 2n + 1)."""
        n, slot = self.keys, np.arange(self.keys)
        kept = (numbers[..., None] >> slot) & 1
        tokens, death, queries = (np.zeros((*numbers.shape, 2 * n + 1), dtype=np.int64) for _ in range(3))
        tokens[..., 0:-1:2] = slot
        tokens[..., 1::2] = self.first_drop + self.slots * kept + (slot if self.slots > 1 else 0)
        tokens[..., -1] = self.first_query + (numbers - 1 if self.query == "free" else 0)
        death[..., 0:-1:2] = np.where(kept, 2 * n + 1, 2 * slot + 1)
        queries[..., -1] = 1
        return Batch(tokens, death, queries)
