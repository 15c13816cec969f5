"""Softmax and FoX heads given by exact vectors: what upper bounds on the content dimension are made of.

A head has a content vector and a bias per key, a query vector per query and, FoX, a gate per drop. The logits are

    q . k_j + b_j - (gates of the drops after key j).

Drops and their places are those of `bounds.cases`; *keep* has no gate (a gate of its own would be one more bias), and a
head without gates is a softmax head, or a FoX head whose gates do not tell drop from keep.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from proofs_check.bounds.cases import Cases
from proofs_check.exact.values import MAX_DIGITS

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

    def logits(self, cases: Cases) -> tuple[np.ndarray, int]:
        """The logit of every key at every query, exactly: whole numbers and what to divide them by."""
        (queries, over_q), (keys, over_k), (biases, over_b) = map(_whole, (self.queries, self.keys, self.biases))
        after, over_g = _whole(self.gates or [0] * cases.keys)
        unit = math.lcm(over_q * over_k, over_b, over_g)
        found = np.zeros((cases.queries, cases.keys), object)
        if self.dimension:
            found += (queries @ keys.T).astype(object) * (unit // (over_q * over_k))
        found += biases.astype(object) * (unit // over_b)
        if any(self.gates):
            found -= gates_after(cases, after).astype(object) * (unit // over_g)
        return found if _bits(found) > 62 else found.astype(np.int64), unit

    def measure(self, cases: Cases) -> tuple[Fraction, Fraction | None]:
        """The greatest window and the least gap; no gap if all present keys are always read."""
        logits, unit = self.logits(cases)
        window, gap = 0, None
        for row, alive, dead in zip(logits, cases.alive, cases.dead):
            read, rest = row[alive], row[dead]
            least = min(read)
            window = max(window, int(max(read) - least))
            if len(rest):
                here = int(least - max(rest))
                gap = here if gap is None else min(gap, here)
        return Fraction(window, unit), None if gap is None else Fraction(gap, unit)


def reads(measured: tuple[Fraction, Fraction | None], notion: str, ratio: Fraction) -> bool:
    """Whether a window and a gap are those of a notion."""
    window, gap = measured
    if gap is not None and gap <= 0:
        return False
    return notion == "separation" or window <= (ratio * (gap or 0) if notion == "window" else 0)


def _whole(values: Any) -> tuple[np.ndarray, int]:
    """Whole numbers, int64 where no product of two vectors of them can overflow, and what to divide them by."""
    array = np.array(values, object)
    unit = math.lcm(*{x.denominator for x in array.flat})
    scaled = array * unit if unit > 1 else array
    scaled = np.array([int(x) for x in scaled.flat], object).reshape(array.shape)
    return scaled.astype(np.int64) if _bits(scaled) <= 20 else scaled, unit


def _bits(array: np.ndarray) -> int:
    return max((int(x).bit_length() for x in array.flat), default=0)


def gates_after(cases: Cases, gates: np.ndarray) -> np.ndarray:
    """Per query and key of a family the sum of the gates of the drops after the key."""
    assert cases.block is not None
    counted = (~cases.alive & (cases.block < cases.slots)) * gates
    suffix = np.zeros((cases.queries, cases.keys + 1), gates.dtype)
    suffix[:, :-1] = counted[:, ::-1].cumsum(1)[:, ::-1]
    return suffix[:, np.searchsorted(cases.block, cases.block)]


def fits(cases: Cases, dimension: int) -> bool:
    """Whether a head of that dimension is small enough to be written out."""
    return cases.queries * cases.keys * max(1, dimension) <= MAX_PRODUCTS


def writable(numbers: Iterable[Number]) -> bool:
    """Whether numerators and denominators are short enough for a certificate."""
    longest = max((max(x.numerator.bit_length(), x.denominator.bit_length()) for x in numbers), default=0)
    return longest < MAX_DIGITS * 3  # bits: less than a decimal digit has


def without_biases(head: LinearHead) -> LinearHead:
    """The same logits without biases, by one more content dimension where there are any."""
    if not any(head.biases):
        return head
    keys = [[*key, bias] for key, bias in zip(head.keys, head.biases)]
    queries = [[*query, 1] for query in head.queries]
    return LinearHead(f"{head.name}, its biases in the content", keys, [0] * len(keys), queries, head.gates)
