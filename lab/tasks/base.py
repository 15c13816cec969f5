"""What a task is: tokens in, target sets out, and a name for every sequence.

One example, read off by eye (nested-scope, a bracket kills what stands inside it when it closes):

    position   0    1     2    3      4
    token      key  open  key  close  key
    death      5    0     3    0      5      first row at which the key is no target; 5 = seq_len = never
    target     {0}  {0}   {0,2} {0}   {0,4}  of the query at each position

`death` is all there is to know about the targets, in O(seq_len); the dense matrix is only for small inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Int64

from lab.errors import InputError, nearest
from lab.tasks.streams import stream_keys

SPLITS = ("train", "validation", "test")

# Wider than this, a picture of every row no longer fits a terminal.
_PICTURE_WIDTH = 72
_PLACES_SHOWN = 12


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences with the target of every query, in any number of leading axes.

    tokens   token ids into the task's vocabulary
    death    the key at position j is a target of the query at row i iff j <= i < death[..., j]. A key that
             never dies has seq_len, the width of the array, padding included; positions without a key have 0
    queries  how many queries stand at each row: 0 = the row is not scored; always 0 where the target is empty

    Padding stands only at the end: token 0, death 0, queries 0. Targets are causal, so no scored row sees it.
    """

    tokens: Int64[np.ndarray, "*lead seq_len"]
    death: Int64[np.ndarray, "*lead seq_len"]
    queries: Int64[np.ndarray, "*lead seq_len"]

    def __post_init__(self) -> None:
        if not self.tokens.shape == self.death.shape == self.queries.shape:
            raise ValueError(f"shapes differ: {self.tokens.shape}, {self.death.shape}, {self.queries.shape}")

    def __getitem__(self, lead: Any) -> Batch:
        """Indexes the leading axes: `batch[0, 3]` is one sequence."""
        batch = type(self)(*(getattr(self, field.name)[lead] for field in fields(self)))
        if batch.tokens.shape[-1:] != self.tokens.shape[-1:]:
            raise IndexError("only the leading axes can be indexed: death refers to the whole sequence")
        return batch

    @property
    def seq_len(self) -> int:
        return self.tokens.shape[-1]

    def targets(self) -> Bool[np.ndarray, "*lead seq_len seq_len"]:
        """Row i, key j: is key j a target of the query at row i? Dense: for small inputs, tests, the reference path."""
        position = np.arange(self.seq_len)
        row, key = position[:, None], position[None, :]
        return (key <= row) & (row < self.death[..., None, :])

    def target_sizes(self) -> Int64[np.ndarray, "*lead seq_len"]:
        """The number of targets of every row, in O(seq_len): keys born up to the row less keys dead by then."""
        death = self.death.reshape(-1, self.seq_len)
        change = (death > 0).astype(np.int64)
        sequence, key = np.nonzero((death > 0) & (death < self.seq_len))
        np.subtract.at(change, (sequence, death[sequence, key]), 1)
        return np.cumsum(change, axis=-1).reshape(self.death.shape)


class Task(ABC):
    """A frozen dataclass whose fields are the task's options; `__post_init__` validates them with InputError.

    To add a task: one file with a subclass, and one line in `lab/tasks/__init__.py`. The subclass gives
    `name`, `vocabulary`, `train_length`, `key_tokens`, `seq_len` and `_generate`.
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def vocabulary(self) -> tuple[str, ...]:
        """The name of every token id. Token 0 is a key in every task of the lab."""

    @property
    @abstractmethod
    def key_tokens(self) -> tuple[int, ...]:
        """Ids of the tokens that can be targets."""

    @property
    @abstractmethod
    def train_length(self) -> int:
        """The length trained on, in the task's own unit (tokens, or keys)."""

    @abstractmethod
    def seq_len(self, length: int) -> int:
        """How many tokens a sequence of that length has."""

    def _empty(self, shape: tuple[int, ...]) -> Batch:
        """The batch that `_generate` writes to; tasks whose batches hold more override it."""
        return Batch(*(np.zeros(shape, dtype=np.int64) for _ in range(3)))

    @abstractmethod
    def _generate(self, keys: np.ndarray, start: int, batch: Batch) -> None:
        """Writes sequence `start + r` of the stream named by keys[s] into row [s, r] of the batch, given as zeros."""

    def sample(self, split: str, seeds: Sequence[int], start: int, count: int, *, length: int | None = None) -> Batch:
        """Sequences start .. start + count - 1 of each seed's own stream, lead shape (len(seeds), count).

        A sequence depends on the task (its name and options), split, seed, index and length alone: not on the
        batch it is drawn in, the order of draws, or the seeds beside it. Where a task can be cut anywhere,
        the longer sequence of the same index begins with the shorter one.

        Errors: InputError for an unknown split, or a length, start or count out of range.
        """
        if split not in SPLITS:
            raise InputError(f"{self.name}: split: unknown split {split!r}{nearest(str(split), SPLITS)}")
        length = self.train_length if length is None else length
        whole_number(self.name, "length", length, 1)
        whole_number(self.name, "start", start, 0, 2**62)
        whole_number(self.name, "count", count, 0)
        for seed in seeds:
            whole_number(self.name, "seeds", seed, 0)
        shape = (len(seeds), count, self.seq_len(length))
        batch = self._empty(shape)
        self._generate(stream_keys(self.name, split, tuple(seeds)), start, batch)
        return batch

    def options(self) -> dict[str, Any]:
        """Every option, JSON-able, defaults included: `make_task(task.name, **task.options()) == task`."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return {name: _jsonable(getattr(self, name)) for name in names}

    def labels(self, tokens: np.ndarray) -> list[str]:
        """What `show` prints for each token; tasks indent by depth where they have one."""
        return [self.vocabulary[token] for token in tokens]

    def show(self, batch: Batch) -> str:
        """A readable picture of one sequence: tokens, and for every row the keys that are live there."""
        return picture(self, batch)


def picture(task: Task, batch: Batch) -> str:
    """One line per row: position, queries, token, number of targets, and a strip of the keys so far."""
    if batch.tokens.ndim != 1:
        raise ValueError(f"show takes one sequence, not a batch of shape {batch.tokens.shape}")
    is_key = np.isin(batch.tokens, task.key_tokens)
    padding = is_key & (batch.death == 0)
    total = int(np.argmax(padding)) if padding.any() else batch.seq_len
    shown = min(total, _PICTURE_WIDTH)
    labels, sizes = task.labels(batch.tokens[:total]), batch.target_sizes()
    width = max(len("token"), *(len(label) for label in labels[:shown]))
    lines = [
        f"{task.name}: {total} tokens, {int(batch.queries.sum())} queries; ● live key  ○ dead key  · no key",
        f"{'row':>6} {'queries':>7}  {'token':<{width}} {'live':>5}  keys so far",
    ]
    for row in range(shown):
        strip = "".join(_mark(batch, key, row) for key in range(row + 1))
        queries = str(batch.queries[row]) if batch.queries[row] else "-"
        lines.append(f"{row:>6} {queries:>7}  {labels[row]:<{width}} {sizes[row]:>5}  {strip}")
    if shown < total:
        lines.append(f"   ... {total - shown} more rows")
    lines.append(_last_query(batch))
    return "\n".join(lines)


def _mark(batch: Batch, key: int, row: int) -> str:
    if batch.death[key] == 0:
        return "·"
    return "●" if row < batch.death[key] else "○"


def _last_query(batch: Batch) -> str:
    scored = np.flatnonzero(batch.queries)
    if not scored.size:
        return "no row is scored: every target is empty"
    row = scored[-1]
    live = np.flatnonzero(row < batch.death[: row + 1])
    places = ", ".join(str(key) for key in live[-_PLACES_SHOWN:])
    hidden = f"... ({len(live) - _PLACES_SHOWN} older), " if len(live) > _PLACES_SHOWN else ""
    return f"last query, row {row}: live keys at {hidden}{places}"


def count_duplicates(task: Task, count: int, *, seed: int = 0, length: int | None = None) -> dict[str, int]:
    """How many of the first `count` sequences of each split were seen before, token for token.

    The keys of the answer are "train", "validation", "test", "validation in train", "test in train" and "test
    in validation": the first three count repeats within a split, the others sequences of the first split that
    occur anywhere in the second. Splits never share a random key, so whatever is counted is chance:
    unavoidable where there are few distinct sequences.
    """
    rows = {
        split: [row.tobytes() for row in task.sample(split, [seed], 0, count, length=length).tokens[0]]
        for split in SPLITS
    }
    seen = {split: set(rows[split]) for split in SPLITS}
    report = {split: len(rows[split]) - len(seen[split]) for split in SPLITS}
    for later, earlier in (("validation", "train"), ("test", "train"), ("test", "validation")):
        report[f"{later} in {earlier}"] = sum(row in seen[earlier] for row in rows[later])
    return report


def whole_number(task: str, field: str, value: Any, low: int, high: int | None = None) -> None:
    """Raises InputError unless value is an int (no bool, no float) with low <= value <= high."""
    expected = f"a whole number from {low} to {high}" if high is not None else f"a whole number, {low} or more"
    fits = isinstance(value, int | np.integer) and not isinstance(value, bool) and low <= value
    if not fits or (high is not None and value > high):
        raise InputError(f"{task}: {field}: expected {expected}, got {value!r}")


def probability(task: str, field: str, value: Any, low: float, high: float) -> float:
    """The value as a float (1 and 1.0 are one option); InputError unless it is a number from low to high."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
    if not fits:
        raise InputError(f"{task}: {field}: expected a number from {low} to {high}, got {value!r}")
    return float(value)


def one_of(task: str, field: str, value: Any, valid: Sequence[str]) -> None:
    """Raises InputError with the nearest valid name unless value is one of them."""
    if not isinstance(value, str) or value not in valid:
        raise InputError(f"{task}: {field}: unknown value {value!r}{nearest(str(value), valid)}")


def _jsonable(value: Any) -> Any:
    return [_jsonable(item) for item in value] if isinstance(value, tuple | list) else value
