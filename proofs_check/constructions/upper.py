"""All constructions of softmax and FoX heads for a specification, and their certificates.

A head that reads uniformly serves for windows, and one that reads within a window for separation; a softmax head is a
FoX head that makes no use of its gates.
"""

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import Any

from proofs_check.bounds.cases import Cases
from proofs_check.bounds.lower import ONE_GATE, PER_SLOT, Head, number
from proofs_check.constructions import chains, fox_table, simple_upper, sparse_sets
from proofs_check.constructions.linear_head import LinearHead, reads, without_biases

NOTIONS = ("separation", "window", "uniform")


class Uppers:
    """Lists of heads per notion, each built when first asked for; none is larger than `linear_head.MAX_PRODUCTS`."""

    def __init__(self, cases: Cases, ratio: Fraction):
        self.cases, self.ratio = cases, ratio
        self.found: list[tuple[Head, str, LinearHead]] = []  # by training
        self.measured: dict[int, tuple[LinearHead, tuple[Fraction, Fraction | None]]] = {}

    def least(self, head: Head, notion: str) -> LinearHead | None:
        """The head of the least dimension that realises all queries, the first of several."""
        heads = sorted(self.heads(head, notion), key=lambda found: found.dimension)
        return next((found for found in heads if reads(self.measure(found), notion, self.ratio)), None)

    def measure(self, head: LinearHead) -> tuple[Fraction, Fraction | None]:
        """Window and gap of a head, measured once."""
        if id(head) not in self.measured:
            self.measured[id(head)] = head, head.measure(self.cases)
        return self.measured[id(head)][1]

    def heads(self, head: Head, notion: str) -> list[LinearHead]:
        """The heads of a kind that are meant for a notion."""
        found: list[LinearHead] = [*getattr(self, notion), *self.trained(head, notion)]
        if head.name == "fox":
            found = [*found, *self.fox(head.gates, notion)]
        if not head.biases:
            own = [simple_upper.columns(self.cases), simple_upper.targets(self.cases, biases=False)]
            found = [*_some(*own), *map(without_biases, found)]
        return found

    def trained(self, head: Head, notion: str) -> list[LinearHead]:
        """What training found for no more than these heads can do, and for no less than the notion."""
        stronger = {"uniform": ("uniform",), "window": ("uniform", "window")}.get(notion, NOTIONS)
        kinds = [Head(), *([head, replace(head, gates=ONE_GATE)] if head.name == "fox" else [])]
        return [
            one for kind, of, one in self.found if kind.biases and of in stronger and _plain(kind) in map(_plain, kinds)
        ]

    @cached_property
    def uniform(self) -> list[LinearHead]:
        """Softmax, uniform."""
        found = _some(simple_upper.targets(self.cases), simple_upper.groups(self.cases, "uniform"))
        return [*found, *_some(sparse_sets.sparse(self.cases, _least(found, self.cases)))]

    @cached_property
    def window(self) -> list[LinearHead]:
        """Softmax, window."""
        return [*self.uniform, *_some(chains.chain_windows(self.cases, self.ratio))]

    @cached_property
    def separation(self) -> list[LinearHead]:
        """Softmax, separation."""
        found = [*self.window, *_some(simple_upper.groups(self.cases, "separation"))]
        return [*found, *_some(sparse_sets.runs(self.cases, _least(found, self.cases)))]

    def fox(self, gates: str, notion: str) -> list[LinearHead]:
        """FoX with gates at work."""
        if self.cases.block is None:
            return []
        found = [*self.fox_uniform]
        if notion == "window":
            found += _some(fox_table.window_one_gate(self.cases, self.ratio))
            found += _some(fox_table.window_per_slot(self.cases, self.ratio)) if gates == PER_SLOT else []
        if notion == "separation":
            found += self.fox_separation
            found += _some(fox_table.separation_per_slot(self.cases)) if gates == PER_SLOT else []
        return found

    @cached_property
    def fox_uniform(self) -> list[LinearHead]:
        """FoX, one gate, uniform."""
        return _some(simple_upper.groups(self.cases, "uniform", head="fox"))

    @cached_property
    def fox_separation(self) -> list[LinearHead]:
        """FoX, one gate, separation."""
        return _some(simple_upper.groups(self.cases, "separation", head="fox"))


def _plain(head: Head) -> Head:
    return head if head.name == "fox" else Head(biases=head.biases)


def _some(*heads: LinearHead | None) -> list[LinearHead]:
    return [head for head in heads if head is not None]


def _least(heads: Iterable[LinearHead], cases: Cases) -> int:
    return min((head.dimension for head in heads), default=cases.keys)


Measured = tuple[Fraction, Fraction | None]


def construction(head: LinearHead, measured: Measured, ratio: Fraction) -> tuple[dict[str, Any], dict[str, Any]]:
    """Assumptions and witness of the certificate of a head, for the strongest notion that it serves."""
    window, gap = measured
    notion = next(notion for notion in ("uniform", "window", "separation") if reads(measured, notion, ratio))
    gates = ONE_GATE if len(set(head.gates)) <= 1 else PER_SLOT
    kind = Head("fox" if any(head.gates) else "softmax", gates, any(head.biases))
    if kind.name == "fox":
        kind = Head("fox", gates)
    witness = {
        "dimension": head.dimension,
        "keys": [[number(x) for x in key] for key in head.keys],
        "biases": [number(x) for x in head.biases],
        "gates": [number(x) for x in head.gates] if any(head.gates) else [],
        "queries": [[number(x) for x in query] for query in head.queries],
        "window": number(window),
        "gap": None if gap is None else number(gap),
    }
    return kind.assumed(notion, ratio), witness
