"""Softmax and FoX heads given by exact vectors: what upper bounds on the content dimension are made of.

A head has a content vector and a bias per key, a query vector per query and, FoX, a gate per drop. The logits are

    q . k_j + b_j - (gates of the drops after key j).

Drops and their places are those of `bounds.cases`; *keep* has no gate (a gate of its own would be one more bias), and a
head without gates is a softmax head, or a FoX head whose gates do not tell drop from keep.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from proofs_check.bounds.cases import Cases

Number = int | Fraction
MAX_PRODUCTS = 20_000_000  # keys * queries * dimension up to which a head is written out


@dataclass(frozen=True)
class LinearHead:
    """keys[k], queries[q]: vectors of one length; biases[k]; gates[k]: of the drop of key k, none for softmax."""

    name: str
    keys: Sequence[Sequence[Number]]
    biases: Sequence[Number]
    queries: Sequence[Sequence[Number]]
    gates: Sequence[Number] = ()

    @property
    def dimension(self) -> int:
        """Content dimension."""
        return len(self.keys[0])

    def logits(self, cases: Cases) -> np.ndarray:
        """The logit of every key at every query, an exact array."""
        queries, keys = _exact(self.queries), _exact(self.keys)
        found = (
            queries.reshape(cases.queries, -1) @ keys.reshape(cases.keys, -1).T
            if self.dimension
            else np.zeros((cases.queries, cases.keys), object)
        )
        found = found.astype(object) + _exact(self.biases).astype(object)
        return found - gates_after(cases, self.gates) if self.gates else found

    def measure(self, cases: Cases) -> tuple[Number, Number | None]:
        """The greatest window and the least gap; no gap if all present keys are always read."""
        window: Number = 0
        gap: Number | None = None
        for row, alive, dead in zip(self.logits(cases), cases.alive, cases.dead):
            read, rest = row[alive], row[dead]
            window = max(window, max(read) - min(read))
            if len(rest):
                gap = min(read) - max(rest) if gap is None else min(gap, min(read) - max(rest))
        return window, gap

    def reads(self, cases: Cases, notion: str, ratio: Fraction) -> bool:
        """Whether the head realises all queries in the sense of the notion."""
        window, gap = self.measure(cases)
        allowed = {"separation": None, "uniform": 0, "window": ratio * (gap or 0)}[notion]
        return (gap is None or gap > 0) and (allowed is None or window <= allowed)


def _exact(values: Any) -> np.ndarray:
    """Whole numbers as int64 where no product can overflow, else as objects."""
    array = np.array(values, object)
    small = all(type(x) is int and -(2**20) < x < 2**20 for x in array.flat)
    return array.astype(np.int64) if small else array


def gates_after(cases: Cases, gates: Sequence[Number]) -> np.ndarray:
    """Per query and key of a family the sum of the gates of the drops after the key."""
    assert cases.block is not None
    counted = (~cases.alive & (cases.block < cases.slots)).astype(object) * np.array(gates, object)
    suffix = np.zeros((cases.queries, cases.keys + 1), object)
    suffix[:, :-1] = counted[:, ::-1].cumsum(1)[:, ::-1]
    return suffix[:, np.searchsorted(cases.block, cases.block)]


def fits(cases: Cases, dimension: int) -> bool:
    """Whether a head of that dimension is small enough to be written out."""
    return cases.queries * cases.keys * max(1, dimension) <= MAX_PRODUCTS


def without_biases(head: LinearHead) -> LinearHead:
    """The same logits without biases, by one more content dimension where there are any."""
    if not any(head.biases):
        return head
    keys = [[*key, bias] for key, bias in zip(head.keys, head.biases)]
    queries = [[*query, 1] for query in head.queries]
    return LinearHead(f"{head.name}, its biases in the content", keys, [0] * len(keys), queries, head.gates)
