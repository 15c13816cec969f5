"""All lower bounds on the content dimension of softmax and FoX heads, as certificates of `proofs_check.exact`.

Each function gives bounds for one notion; a bound for separation serves for windows, and one for windows for uniform
weights. `goal` is a dimension that is known to suffice: a bound that meets it is not bettered.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from proofs_check.bounds import face_chain, few_sets, forster, fox_pairs, softmax_shatter
from proofs_check.bounds.cases import Cases
from proofs_check.exact.heads import GATES, model

ONE_GATE, PER_SLOT = GATES
Record = dict[str, Any]
Names = Callable[[Sequence[int]], list[str]]


@dataclass(frozen=True)
class Head:
    """Which heads a bound is for. FoX has gates; only softmax may be without biases."""

    name: str = "softmax"
    gates: str = PER_SLOT
    biases: bool = True

    def assumed(self, notion: str, ratio: Fraction = Fraction(0)) -> Record:
        """The assumptions of a certificate."""
        biases = "one per key" if self.biases else "none"
        return model(self.name, notion, gates=self.gates, biases=biases, ratio=number(ratio))


@dataclass(frozen=True)
class Lower:
    """A bound, the certificate that proves it, and in words why. `exact`: the search behind it missed nothing."""

    dimension: int
    kind: str
    claim: str
    assumed: Record
    witness: Record
    text: str
    exact: bool | None = None


def number(value: int | Fraction) -> int | str:
    """A number as certificates spell it."""
    value = Fraction(value)
    return value.numerator if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def _queries(found: Sequence[int]) -> list[int]:
    return [query + 1 for query in found]


class Shattering:
    """Shattered sets, searched for once: a search that met no goal, or a goal as high, is not repeated."""

    def __init__(self, cases: Cases):
        self.cases = cases
        self.found: dict[tuple[str, str, str], tuple[int, softmax_shatter.Shattered]] = {}

    def __call__(self, head: Head, traces: softmax_shatter.Traces, goal: int) -> softmax_shatter.Shattered:
        """The largest set found, of `goal` keys if there is one."""
        gates = head.gates if head.name == "fox" else ""
        known, found = self.found.get((head.name, gates, traces), (-1, None))
        if found is None or known <= len(found.keys) < goal:
            counted = gates == ONE_GATE
            found = softmax_shatter.shattered(self.cases, traces, head=head.name, counted=counted, goal=goal)
            self.found[head.name, gates, traces] = goal, found
        return found


def separation(cases: Cases, names: Names, head: Head, goal: int, shattering: Shattering) -> Iterator[Lower]:
    """Shattered keys, shattered by halves, and a small norm of the signs."""
    kinds: tuple[tuple[softmax_shatter.Traces, int], ...] = (("all", 1), ("half", 1 + head.biases))
    for traces, offset in kinds:
        found = shattering(head, traces, goal + offset)
        size = found.dimension(head.biases)
        witness = {"keys": names(found.keys), "queries": _queries(found.queries), "traces": traces, "dimension": size}
        text = f"{len(found.keys)} keys are shattered{' by halves' * (traces == 'half')}"
        assumed = head.assumed("separation")
        yield Lower(size, "shattered-set", "softmax-shatter", assumed, witness, text, found.exact)
    signs = forster.forster(cases, head=head.name)
    if signs is not None:
        size = signs.dimension(head.biases)
        witness = {"keys": names(signs.keys), "queries": _queries(signs.queries)}
        witness |= {"norm": number(signs.norm), "dimension": size}
        text = f"the signs have a norm of {float(signs.norm) ** 0.5:.3g} only"
        yield Lower(size, "forster", "forster", head.assumed("separation"), witness, text)


def window(cases: Cases, names: Names, head: Head, goal: int, ratio: Fraction) -> Iterator[Lower]:
    """Shattered pairs of keys, and keys that are each dropped alone. FoX with gates per slot or one gate."""
    head = replace(head, gates=PER_SLOT, biases=True)
    pairs = fox_pairs.fox_pairs(cases, head=head.name, goal=goal)
    size = pairs.dimension
    witness = {"pairs": [names(pair) for pair in pairs.pairs], "queries": _queries(pairs.queries), "dimension": size}
    assumed = head.assumed("window", ratio)
    yield Lower(
        size,
        "shattered-pairs",
        "fox-pairs",
        assumed,
        witness,
        f"{size} pair{'s' * (size > 1)} of keys {'are' if size > 1 else 'is'} shattered",
    )
    few = few_sets.few_sets(cases, head=head.name)
    if few is not None:
        yield trace(few, names, head, ratio)


def trace(few: few_sets.FewSets, names: Names, head: Head, ratio: Fraction) -> Lower:
    """The bound of few sets at one ratio of window and gap."""
    size = few.dimension(ratio)
    witness = {"keys": names(few.keys), "base": few.base + 1, "queries": _queries(few.queries), "dimension": size}
    text = f"{len(few.keys)} keys are each dropped alone"
    return Lower(size, "few-sets-trace", "few-sets", head.assumed("window", ratio), witness, text)


def uniform(cases: Cases, names: Names, head: Head) -> Iterator[Lower]:
    """A chain of faces. FoX with gates per slot or one gate."""
    head = replace(head, gates=PER_SLOT)
    chain = face_chain.face_chain(cases, head=head.name, biases=head.biases)
    if chain is not None:
        witness = {"keys": names(chain.keys), "queries": [_queries(step) for step in chain.queries]}
        witness |= {"dimension": chain.dimension}
        text = f"a chain of {len(chain.keys)} faces"
        yield Lower(chain.dimension, "face-chain", "face-chain", head.assumed("uniform"), witness, text)
