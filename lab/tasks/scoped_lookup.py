"""scoped-lookup: symbols are bound to values in nested scopes; a use of a symbol asks for its value.

Brackets are those of nested-scope: the depth is a walk held between 0 and max_depth, and a binding dies when the
scope that it was made in closes. A bracket that cannot stand is replaced by a binding, and so is a use while nothing
is live. One sequence uses `active` of the symbols, drawn anew for each: the number of symbols says how much content
there is to tell apart, and leaves the law of the scopes as it is.

    position   0    1     2    3      4      5
    token      a=3  open  a=5  use a  close  use a
    answer                     5             3      the value of the binding in force

Two targets belong to a use, and reports name which is meant:

    live keys   all live bindings of the symbol: what content and scope say together (`Batch.targets`)
    in force    the newest of them, which is the innermost; its value is the answer (`LookupBatch.in_force`)

Shadowing needs more than eviction: the outer binding is live all along, and loses to the inner one until that dies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Int64

from lab.errors import InputError
from lab.tasks.base import Batch, Task, probability, whole_number
from lab.tasks.streams import threshold

# Which of the queries a number is about, by what a reader has to get right there.
ALL, SHADOWED, OUTLIVED = "all", "shadowed", "outlived"
GROUPS = (ALL, SHADOWED, OUTLIVED)


@dataclass(frozen=True, eq=False)
class LookupBatch(Batch):
    """A batch whose queries ask for one symbol each.

    values    the value bound at a position, `num_values` where nothing is bound
    in_force  the position of the binding in force at a row that is scored, -1 at others
    symbols   the symbol that a token binds or uses, -1 for brackets

    The key at position j is a target of the query at row i iff j <= i < death[..., j] and both are of one symbol.
    """

    values: Int64[np.ndarray, "*lead seq_len"]
    in_force: Int64[np.ndarray, "*lead seq_len"]
    symbols: Int64[np.ndarray, "*lead seq_len"]

    def targets(self) -> Bool[np.ndarray, "*lead seq_len seq_len"]:
        """Row i, key j: is key j a live binding of the symbol that row i uses? Dense, as in `Batch`."""
        used = np.where(self.queries > 0, self.symbols, -2)
        return super().targets() & (used[..., :, None] == self.symbols[..., None, :])

    def target_sizes(self) -> Int64[np.ndarray, "*lead seq_len"]:
        """The number of live bindings of the symbol that a row uses; 0 at rows that are not scored."""
        from lab.tasks.kernels.scoped_lookup import count_live

        counts = np.zeros(self.tokens.shape, dtype=np.int64)
        count_live(flat(self.death), flat(self.queries), flat(self.symbols), flat(counts))
        return counts

    def newest(self) -> Int64[np.ndarray, "*lead seq_len"]:
        """The newest binding of the symbol that a row uses, live or dead; -1 at rows that are not scored."""
        from lab.tasks.kernels.scoped_lookup import find_newest

        found = np.full(self.tokens.shape, -1, dtype=np.int64)
        find_newest(flat(self.death), flat(self.queries), flat(self.symbols), flat(found))
        return found

    def answers(self) -> Int64[np.ndarray, "*lead seq_len"]:
        """The value in force at a row that is scored, -1 at others."""
        value = np.take_along_axis(self.values, np.maximum(self.in_force, 0), axis=-1)
        return np.where(self.in_force >= 0, value, -1)

    def group(self, name: str) -> Int64[np.ndarray, "*lead seq_len"]:
        """`queries`, of these rows alone.

        all: every scored row. shadowed: two live bindings of the symbol or more. outlived: the newest binding of the
        symbol is dead, so whoever takes the newest is wrong.
        """
        if name == SHADOWED:
            return np.where(self.target_sizes() >= 2, self.queries, 0)
        return np.where(self.newest() != self.in_force, self.queries, 0) if name == OUTLIVED else self.queries


def flat(array: np.ndarray) -> np.ndarray:
    """The array with all leading axes made one; writing to it writes to the original."""
    return array.reshape(-1, array.shape[-1])


@dataclass(frozen=True, kw_only=True)
class ScopedLookup(Task):
    """Options: train_length in tokens, symbols, active, values, max_depth, bind_probability, use_probability.

    Tokens: one for binding each symbol, two brackets, one for using each symbol. The value that is bound is not part
    of the token: attention sees the symbol, and what is attended to hands over the value.
    """

    name: ClassVar[str] = "scoped-lookup"
    train_length: int = 48
    symbols: int = 8
    active: int = 3
    values: int = 8
    max_depth: int = 4
    bind_probability: float = 0.2
    use_probability: float = 0.4

    def __post_init__(self) -> None:
        whole_number(self.name, "train_length", self.train_length, 1)
        whole_number(self.name, "symbols", self.symbols, 1, 100_000)
        whole_number(self.name, "active", self.active, 1, self.symbols)
        whole_number(self.name, "values", self.values, 2, 1000)
        whole_number(self.name, "max_depth", self.max_depth, 1, 1000)
        for field in ("bind_probability", "use_probability"):
            object.__setattr__(self, field, probability(self.name, field, getattr(self, field), 0.01, 0.98))
        if self.bind_probability + self.use_probability > 1:
            raise InputError(f"{self.name}: use_probability: expected no more than 1 together with bind_probability")

    @property
    def vocabulary(self) -> tuple[str, ...]:
        return vocabulary(self.symbols)

    @property
    def key_tokens(self) -> tuple[int, ...]:
        return tuple(range(self.symbols))

    def seq_len(self, length: int) -> int:
        return length

    def labels(self, tokens: np.ndarray) -> list[str]:
        return indented(tokens, self.symbols)

    def chance_levels(self, batch: Batch) -> dict[str, float]:
        """What a reader reaches that weights all bindings so far equally and answers with any value.

        In the words of `lab.training.lookup`: tv is 1 less its weight on the binding in force, exact how often it is
        right, excess_loss its cross-entropy.
        """
        born = np.cumsum(batch.death > 0, axis=-1)[batch.queries > 0]
        return {"tv": float(np.mean(1 - 1 / born)), "exact": 1 / self.values, "excess_loss": float(np.log(self.values))}

    def _empty(self, shape: tuple[int, ...]) -> LookupBatch:
        return empty_lookups(shape, self.values)

    def _generate(self, keys: np.ndarray, start: int, batch: Batch) -> None:
        from lab.tasks.kernels.scoped_lookup import generate

        assert isinstance(batch, LookupBatch)
        bind_below = int(threshold(self.bind_probability))
        use_below = int(threshold(self.bind_probability + self.use_probability))
        bounds = np.array([bind_below, use_below, (use_below + 2**32) // 2], dtype=np.uint64)
        sizes = np.array([self.symbols, self.active, self.values, self.max_depth])
        arrays = (batch.tokens, batch.death, batch.queries, batch.values, batch.in_force)
        generate(keys, start, sizes, bounds, *arrays)
        batch.symbols[...] = symbols_of(batch.tokens, self.symbols)


def empty_lookups(shape: tuple[int, ...], no_value: int) -> LookupBatch:
    """A batch of that shape in which nothing is bound or asked."""
    tokens, death, queries = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    values, in_force, symbols = (np.full(shape, n, dtype=np.int64) for n in (no_value, -1, -1))
    return LookupBatch(tokens, death, queries, values, in_force, symbols)


def vocabulary(symbols: int) -> tuple[str, ...]:
    """Names of the tokens: symbol n is bound by token n, brackets follow, and used by token symbols + 2 + n."""
    bound, used = ([f"{word} s{n}" for n in range(symbols)] for word in ("bind", "use"))
    return (*bound, "open", "close", *used)


def symbols_of(tokens: np.ndarray, symbols: int) -> np.ndarray:
    """The symbol that each token binds or uses, -1 for brackets."""
    return np.where(tokens < symbols, tokens, np.where(tokens < symbols + 2, -1, tokens - symbols - 2))


def indented(tokens: np.ndarray, symbols: int) -> list[str]:
    """Token names indented by depth, as in nested-scope."""
    names, labels, depth = vocabulary(symbols), [], 0
    for token in tokens:
        depth -= token == symbols + 1
        labels.append("  " * depth + names[token])
        depth += token == symbols
    return labels


# Readers that know less than the task asks for. Each gives, for every row that is scored, how likely it is to answer
# right: a reader that guesses is judged by its chance, not by its luck.


def chance(batch: LookupBatch) -> np.ndarray:
    """A value at random."""
    return np.full(batch.tokens.shape, 1 / batch.values.max(initial=1))


def most_frequent(batch: LookupBatch) -> np.ndarray:
    """The value bound most often so far, whatever to; the latest of them to have reached that count."""
    from lab.tasks.kernels.scoped_lookup import answer_most_frequent

    right = np.zeros(batch.tokens.shape)
    answer_most_frequent(flat(batch.death), flat(batch.values), flat(batch.answers()), flat(right))
    return right


def most_recent(batch: LookupBatch) -> np.ndarray:
    """The newest binding of the symbol, live or dead: what recency and content know without scopes."""
    value = np.take_along_axis(batch.values, np.maximum(batch.newest(), 0), axis=-1)
    return (value == batch.answers()).astype(np.float64)


def random_live(batch: LookupBatch) -> np.ndarray:
    """One of the live bindings of the symbol: what scopes and content know without recency."""
    from lab.tasks.kernels.scoped_lookup import answer_random_live

    right = np.zeros(batch.tokens.shape)
    arrays = (batch.death, batch.queries, batch.symbols, batch.values, batch.answers(), right)
    answer_random_live(*(flat(array) for array in arrays))
    return right


LOOKUP_SHORTCUTS: dict[str, Callable[[LookupBatch], np.ndarray]] = {
    "chance": chance,
    "most frequent value": most_frequent,
    "random live binding": random_live,
    "most recent binding": most_recent,
}


def shortcut_accuracy(name: str, batch: LookupBatch, group: str = ALL) -> float:
    """The share of a group's queries that a reader of LOOKUP_SHORTCUTS answers right, on average over its guesses."""
    weight = batch.group(group)
    return float(np.average(LOOKUP_SHORTCUTS[name](batch), weights=weight)) if weight.any() else float("nan")
