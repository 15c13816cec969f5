"""The registry of claims, and how one is run.

>>> @claim("two-is-even", "n + n for whole numbers n", "exact")
... def two_is_even(size):
...     for n in range(size):
...         yield (n + n) % 2 == 0, f"n = {n}"
>>> run("two-is-even", 3).instances, run("two-is-even", 3).holds
(3, True)
>>> del CLAIMS["two-is-even"]
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from lab.errors import InputError, nearest

Instance = tuple[bool, object]
"""Whether the claim holds for an instance, and the instance: `str` of it is what a counterexample is called."""


class Note(str):
    """An instance that holds and whose text is worth telling: something measured."""


Check = Callable[[int], Iterator[Instance]]
Arithmetic = Literal["exact", "float", "exact, weights in float"]

SIZES = {"small": 1, "default": 3, "large": 6}
MOST = 9


@dataclass(frozen=True)
class Claim:
    """`checked` says what is compared with what, over which instances; the check takes the size."""

    name: str
    checked: str
    arithmetic: Arithmetic
    check: Check


@dataclass(frozen=True)
class Outcome:
    """`counterexample` is the first instance that fails, or the error that ended the check; None if all hold."""

    claim: str
    checked: str
    arithmetic: Arithmetic
    instances: int
    holds: bool
    counterexample: str | None
    seconds: float
    notes: tuple[str, ...] = ()


CLAIMS: dict[str, Claim] = {}


def claim(name: str, checked: str, arithmetic: Arithmetic) -> Callable[[Check], Check]:
    """Registers the check of a claim, a heading of THEORY.md."""

    def register(check: Check) -> Check:
        CLAIMS[name] = Claim(name, checked, arithmetic, check)
        return check

    return register


def run(name: str, size: int, watch: Callable[[int], None] = lambda instances: None) -> Outcome:
    """Checks a claim over its instances of a size, up to the first that fails. A check that breaks off fails.

    `watch` is told after every instance how many were checked.

    Raises `InputError` for an unknown claim.
    """
    if name not in CLAIMS:
        raise InputError(f"claim: unknown name {name}{nearest(name, CLAIMS)}")
    found = CLAIMS[name]
    start = time.perf_counter()
    instances, counterexample, notes = 0, None, list[str]()
    try:
        for holds, instance in found.check(size):
            instances += 1
            watch(instances)
            if isinstance(instance, Note):
                notes.append(str(instance))
            if not holds:
                counterexample = str(instance)
                break
        if not instances:
            counterexample = "there are no instances"
    except Exception as error:  # nonsense in a construction shows as an error as often as as a wrong value
        counterexample = f"after {instances} instances: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    seconds = time.perf_counter() - start
    holds = counterexample is None
    return Outcome(name, found.checked, found.arithmetic, instances, holds, counterexample, seconds, tuple(notes))
