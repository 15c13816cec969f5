"""Families that the claims about softmax and FoX heads are about, and what it means that a bound is proved.

A lower bound is checked in three ways: its certificate is accepted by `exact`, its value is the one that the claim
states, and no construction (whose certificate is accepted too) needs less.
"""

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

from proofs_check import exact
from proofs_check.baselines import Free
from proofs_check.bounds import lower
from proofs_check.bounds.cases import cases
from proofs_check.bounds.lower import ONE_GATE, PER_SLOT, Head, Lower
from proofs_check.certificates import Certificates
from proofs_check.claims.brute_force import subsets
from proofs_check.constructions.linear_head import LinearHead, reads
from proofs_check.constructions.upper import construction
from proofs_check.keysets import Family

RATIO = Fraction(1, 10)
SOFTMAX, BARE = Head(), Head(biases=False)
FOX, FOX_ONE_GATE = Head("fox", PER_SLOT), Head("fox", ONE_GATE)


def family(keys: int, targets: Sequence[Sequence[int]], slots: Sequence[int] | None = None) -> Family:
    """Over keys named 1..n, dips after each key unless said otherwise."""
    names = tuple(str(key + 1) for key in range(keys))
    return Family(names, tuple(map(tuple, targets)), tuple(range(keys)) if slots is None else tuple(slots))


def all_subsets(keys: int) -> Family:
    return family(keys, subsets(keys))


def full_and_without_one(keys: int) -> Family:
    return family(keys, [tuple(range(keys)), *combinations(range(keys), keys - 1)])


def falling_chain(keys: int) -> Family:
    """n sets: all keys, all but the first, ... the last one alone; dips at the end."""
    return family(keys, [tuple(range(first, keys)) for first in range(keys)], [keys - 1])


def random_family(rng: random.Random, keys: int) -> Family:
    sets = subsets(keys)
    chosen = sorted(rng.sample(sets, rng.randint(2, min(len(sets), 8))))
    slots = rng.choice([tuple(range(keys)), (keys - 1,), tuple(k for k in range(keys) if rng.random() < 0.6)])
    return family(keys, chosen, slots)


# Proofs.


def accepted(spec: Family, kind: str, name: str, assumed: dict[str, Any], witness: dict[str, Any]) -> bool:
    """Whether the exact checker accepts a certificate."""
    certificates = Certificates(spec)
    certificates.add(kind, name, assumed, witness)
    return all(verdict.accepted for verdict in exact.verify(certificates.document()))


def proves(spec: Family, bound: Lower) -> bool:
    """Whether the exact checker accepts a lower bound, and its number is not below what it names."""
    stated = bound.witness["dimension"] == bound.dimension
    return stated and accepted(spec, bound.kind, bound.claim, bound.assumed, bound.witness)


def realises(spec: Family, head: LinearHead | None, notion: str, dimension: int, ratio: Fraction = RATIO) -> bool:
    """Whether a construction has that dimension, its certificate is accepted, and it is for that notion."""
    if head is None or head.dimension != dimension:
        return False
    measured = head.measure(cases(spec))
    if not reads(measured, notion, ratio):
        return False
    return accepted(spec, "construction", "construction", *construction(head, measured, ratio))


def names_of(spec: Family) -> lower.Names:
    return lambda keys: [spec.keys[key] for key in keys]


def lowers(spec: Family, head: Head, notion: str) -> list[Lower]:
    """All lower bounds that hold for a notion."""
    return list(Free(spec, Certificates(spec), False).lowers(head, notion, len(spec.keys)))


def best_lower(spec: Family, head: Head, notion: str) -> tuple[int, bool]:
    """The best lower bound for a notion, and whether every bound met on the way is proved."""
    bounds = lowers(spec, head, notion)
    proved = [bound for bound in bounds if bound.dimension]
    return max((bound.dimension for bound in bounds), default=0), all(proves(spec, bound) for bound in proved)


def bounded_by(spec: Family, head: Head, notion: str, dimension: int) -> bool:
    """Whether the best lower bound is that number, and proved."""
    return best_lower(spec, head, notion) == (dimension, True)
