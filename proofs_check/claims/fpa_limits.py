"""The claims about what First Passage Attention cannot do, and about what it may forget."""

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, product

from proofs_check.bounds import late_dips_limit, safe_eviction
from proofs_check.claims.brute_force import penalties, walk
from proofs_check.claims.registry import Instance, claim


@claim(
    "late-dips-limit",
    "sets that random heads with dips at the end are found to read, at most as many as stated; the stated dimension is"
    " the least that leaves room for all subsets, and above n/2 - 2 - sqrt(n ln(n+1)/2)",
    "exact",
)
def late_dips_limit_(size: int) -> Iterator[Instance]:
    rng = random.Random(11)
    for keys, dimension in product(range(2, 4 + min(size, 4)), (0, 1)):
        for case in range(2 * size):
            found = late_sets(rng, keys, dimension)
            what = f"{len(found)} sets of {keys} keys, dimension {dimension} (seed 11, case {case})"
            yield len(found) <= late_dips_limit.most_sets(keys, dimension), what
            if dimension == 0:
                ordered = sorted(found, key=len)
                yield all(small < large for small, large in pairwise(ordered)), f"{what}: a chain"
    for keys in range(1, 40 * size):
        least = late_dips_limit.least_dimension(keys, 2**keys)
        room = (keys + 1) * sum(math.comb(keys, i) for i in range(least + 3))
        less = (keys + 1) * sum(math.comb(keys, i) for i in range(least + 2))
        asymptotic = keys / 2 - 2 - math.sqrt(keys * math.log(keys + 1) / 2)
        yield less < 2**keys <= room or (least == 0 and 2**keys <= room), f"{keys} keys: {least}"
        yield least >= asymptotic, f"{keys} keys: {least}, and by Hoeffding {asymptotic:.2f}"


def late_sets(rng: random.Random, keys: int, dimension: int) -> set[frozenset[int]]:
    """Sets that a random head with one content number (or none), levels and late dips separates, at many queries."""
    content, biases, levels = ([rng.randint(-20, 20) for _ in range(keys)] for _ in range(3))
    if not dimension:
        content = biases = [0] * keys
    found = set()
    for query in [Fraction(rng.randint(-60, 60), 7) for _ in range(80)] if dimension else [Fraction(0)]:
        for dip in {*levels, min(levels) - 1, *(rng.randint(-40, 20) for _ in range(20))}:
            logits = [query * k + b - 3 * max(0, level - dip) for k, b, level in zip(content, biases, levels)]
            found |= {frozenset(key for key in range(keys) if logits[key] >= least) for least in logits}
    return found


@claim(
    "safe-eviction",
    "the worst case that the bound on logits allows, and random heads and walks: what is dropped has at most epsilon of"
    " the weight at that query and at every later one",
    "float",
)
def safe_eviction_(size: int) -> Iterator[Instance]:
    for bound, dropped, epsilon in product((0.0, 0.5, 3.0, 10.0), (1, 2, 50), (0.1, 1e-3, 1e-9)):
        margin = safe_eviction.margin(bound, dropped, epsilon)
        gone = dropped * math.exp(bound - margin)
        weight = gone / (gone + math.exp(-bound))
        what = f"logits within {bound}, {dropped} keys dropped, epsilon {epsilon}"
        yield weight <= epsilon, f"{what}: weight {weight}"
        with_less = dropped * math.exp(bound - 0.9 * margin)
        yield with_less / (with_less + math.exp(-bound)) > epsilon / 2, f"{what}: a tenth less is not too much"
    rng = random.Random(12)
    for case in range(10 * size):
        yield dropped_safely(rng, 20 + 10 * size), f"random walk (seed 12, case {case})"


def dropped_safely(rng: random.Random, length: int) -> bool:
    """Runs a walk, drops keys for good by the margin, and compares with the full weights at every query."""
    bound, epsilon, scale = rng.choice([0.5, 2.0]), 1e-2, 4.0
    steps = [Fraction(-1), Fraction(-1, 2), Fraction(0), Fraction(1)]
    heights = walk(rng.choice(steps) for _ in range(length))
    margin = safe_eviction.margin(bound, length, epsilon)
    dropped: set[int] = set()
    for query in range(length):
        paid = [scale * float(p) for p in penalties(heights, heights, query)]
        weights = [math.exp(rng.choice([-bound, bound, rng.uniform(-bound, bound)]) - p) for p in paid]
        dropped |= {key for key, p in enumerate(paid) if p >= margin}
        if sum(weights[key] for key in dropped) > epsilon * sum(weights):
            return False
    return True
