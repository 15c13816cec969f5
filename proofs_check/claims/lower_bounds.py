"""The claims about what softmax and FoX heads cannot do."""

import math
import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import numpy as np

from proofs_check.bounds import bits, face_chain, few_sets, forster, fox_pairs, frozen_ratio, lower, softmax_shatter
from proofs_check.bounds.cases import cases
from proofs_check.claims.brute_force import subsets, walk
from proofs_check.claims.families import (
    FOX,
    RATIO,
    SOFTMAX,
    accepted,
    all_subsets,
    best_lower,
    bounded_by,
    falling_chain,
    family,
    full_and_without_one,
    lowers,
    names_of,
    proves,
    random_family,
    realises,
)
from proofs_check.claims.registry import Instance, claim
from proofs_check.constructions import fox_table, simple_upper
from proofs_check.constructions.linear_head import LinearHead
from proofs_check.constructions.upper import Uppers
from proofs_check.exact.fixed import fixed_model
from proofs_check.keysets import Family

HEADS: tuple[frozen_ratio.Head, ...] = ("softmax", "fox")
NOTIONS: tuple[frozen_ratio.Notion, ...] = ("separation", "window")
TRACES: tuple[softmax_shatter.Traces, ...] = ("all", "half")


@claim(
    "frozen-ratio",
    "random FoX heads with contextual gates: tokens after two keys leave the ratio of their weights; all families of"
    " few targets over 3 keys with every choice of slots: each decision's certificate accepted, softmax decisions equal"
    " brute force over logits; {1} and {1, 2} over up to hundreds of keys",
    "exact",
)
def frozen_ratio_(size: int) -> Iterator[Instance]:
    rng = random.Random(13)
    for case in range(20 * size):
        yield ratios_frozen(rng, 6), f"random gates (seed 13, case {case})"
    sets = subsets(3)
    for count in range(1, min(size, 6) + 1):
        for chosen in combinations(sets, count):
            for slots in subsets(3, empty=True) if count < 3 else [(0, 1, 2), (0, 2), (2,)]:
                spec = family(3, chosen, slots)
                yield fixed_decided(spec), spec.to_data()
    for keys in (2, 3, 50, 100 * size):
        spec = family(keys, [(0,), (0, 1)])
        for head in HEADS:
            found = frozen_ratio.frozen_ratio(spec, head, "window", RATIO)
            yield isinstance(found, frozen_ratio.Conflict) and fixed_proved(spec, head, "window", found), f"{keys} keys"


def ratios_frozen(rng: random.Random, length: int) -> bool:
    """Two sequences that agree up to a key j' and go on differently: logits of the keys before, relative to j', agree.

    The gate of a token is a random function of all tokens up to it; the query vector and the keys are fixed.
    """
    gates: dict[tuple[int, ...], Fraction] = {}
    content = [Fraction(rng.randint(-50, 50), rng.randint(1, 9)) for _ in range(length)]

    def logits(tokens: tuple[int, ...]) -> list[Fraction]:
        for end in range(1, len(tokens) + 1):
            gates.setdefault(tokens[:end], Fraction(rng.randint(-50, 50), 7))
        sums = walk(gates[tokens[:end]] for end in range(1, len(tokens) + 1))
        return [content[at] + sums[-1] - sums[at] for at in range(length)]

    same = [rng.randint(0, 1) for _ in range(length)]
    first, second = (logits((*same, *(rng.randint(0, 1) for _ in range(length)))) for _ in range(2))
    return all(a - first[-1] == b - second[-1] for a, b in zip(first, second))


def fixed_decided(spec: Family) -> bool:
    for head, notion in product(HEADS, NOTIONS):
        found = frozen_ratio.frozen_ratio(spec, head, notion, RATIO)
        if not fixed_proved(spec, head, notion, found):
            return False
        if head == "softmax" and isinstance(found, frozen_ratio.Logits) != some_logits(spec, notion == "window"):
            return False
    return True


def fixed_proved(spec: Family, head: str, notion: str, found: Any) -> bool:
    witness: dict[str, Any]
    if isinstance(found, frozen_ratio.Conflict):
        steps = [
            {"query": step.query + 1, "low": spec.keys[step.low], "high": spec.keys[step.high]} for step in found.cycle
        ]
        kind, witness = "frozen-ratio", {"cycle": steps}
    else:
        logits = [list(values) for values in found.values]
        kind, witness = "frozen-logits", {"logits": logits, "window": found.window, "gap": found.gap}
    return accepted(spec, kind, "frozen-ratio", fixed_model(head, notion, str(RATIO)), witness)


def some_logits(spec: Family, window: bool) -> bool:
    """Brute force: whether some small whole logits read every target with one query, scores of equal keys alike."""
    keys = range(len(spec.keys))
    for logits in product(range(len(spec.keys)), repeat=len(spec.keys)):
        for target in spec.targets:
            read, rest = [logits[k] for k in target], [logits[k] for k in keys if k not in target]
            if (rest and min(read) <= max(rest)) or (window and rest and max(read) != min(read)):
                break
            if window and not rest and max(read) - min(read) > 0:
                break
        else:
            return True
    return False


@claim(
    "softmax-shatter",
    "all subsets of n keys: n - 1, met by a construction; all sets of at most k of 2k + 1 keys: 2k - 1, and 2k without"
    " biases; the search equals brute force on random families; random keys in one dimension less leave a set unread",
    "exact",
)
def softmax_shatter_(size: int) -> Iterator[Instance]:
    for keys in range(2, min(4 + size, 8) + 1):
        spec = all_subsets(keys)
        yield bounded_by(spec, SOFTMAX, "separation", keys - 1), f"all subsets of {keys} keys"
        head = simple_upper.columns(cases(spec))
        yield realises(spec, head, "uniform", keys - 1), f"all subsets of {keys} keys, the construction"
    rng = random.Random(14)
    for case in range(10 * size):
        spec = random_family(rng, rng.randint(2, 5))
        for traces in TRACES:
            found = softmax_shatter.shattered(cases(spec), traces)
            what = f"{traces} (seed 14, case {case}): {spec.to_data()}"
            yield found.exact and len(found.keys) == most_shattered(spec, traces), what
    for keys in range(3, 4 + size):
        spec = all_subsets(keys)
        for case in range(size):
            yield unread_set(rng, spec), f"random keys in dimension {keys - 2} (seed 14, case {case})"


def most_shattered(spec: Family, traces: str) -> int:
    """Brute force: the most keys of which every set but none and all is read alone, or it or the rest."""
    most = 1
    for keys in subsets(len(spec.keys)):
        found = {tuple(key in target for key in keys) for target in spec.targets}
        wanted = [bits for bits in product([False, True], repeat=len(keys)) if any(bits) and not all(bits)]
        if all(bits in found or (traces == "half" and tuple(not b for b in bits) in found) for bits in wanted):
            most = max(most, len(keys))
    return most


def unread_set(rng: random.Random, spec: Family) -> bool:
    """Random keys and biases, a Radon vector of theirs, and the target that it rules out: certificate accepted."""
    n = len(spec.keys)
    keys = [[rng.randint(-9, 9) for _ in range(n - 2)] for _ in range(n)]
    biases = [rng.randint(-9, 9) for _ in range(n)]
    vector = affine_dependency(keys)
    if sum(c * b for c, b in zip(vector, biases)) > 0:
        vector = [-c for c in vector]
    read = tuple(at for at, c in enumerate(vector) if c > 0)
    witness = {"keys": keys, "biases": biases, "vector": [lower.number(c) for c in vector]}
    witness["query"] = spec.targets.index(read) + 1
    return accepted(spec, "radon", "softmax-shatter", SOFTMAX.assumed("separation"), witness)


def affine_dependency(keys: Sequence[Sequence[int]]) -> list[Fraction]:
    """c != 0 with sum c_j = 0 and sum c_j k_j = 0, for more keys than dimensions plus one, by elimination."""
    rows = [[Fraction(1)] * len(keys), *([Fraction(x) for x in column] for column in zip(*keys))]
    pivots: list[int] = []
    for column in range(len(keys)):
        done = len(pivots)
        pivot = next((at for at in range(done, len(rows)) if rows[at][column]), None)
        if pivot is None:  # a free column: set it to 1, and what the pivots' columns have to be follows
            found = [Fraction(0)] * len(keys)
            found[column] = Fraction(1)
            for row, own in zip(rows, pivots):
                found[own] = -row[column]
            return found
        rows[done], rows[pivot] = rows[pivot], rows[done]
        rows[done] = [x / rows[done][column] for x in rows[done]]
        for at in range(len(rows)):
            if at != done:
                rows[at] = [x - rows[at][column] * y for x, y in zip(rows[at], rows[done])]
        pivots.append(column)
    raise AssertionError("as many dimensions as keys")


@claim(
    "few-sets",
    "[n] and all [n] without one key: the stated values, certificates accepted; every head found for such sets, at the"
    " window and gap that it has, obeys the bound; 909 for n = 1000 at 1/100",
    "exact",
)
def few_sets_(size: int) -> Iterator[Instance]:
    stated = {(50, 0): 49, (50, 10): 33, (1000, 100): 909, (10, 3): 4, (2, 2): 1}
    for (keys, part), value in stated.items():
        ratio = Fraction(1, part) if part else Fraction(0)
        yield few_sets.least_dimension(keys, ratio) == value, f"{keys} keys at {ratio}"
    for keys in (2, 5, 10 * size):
        spec = full_and_without_one(keys)
        found = few_sets.few_sets(cases(spec))
        for ratio in (Fraction(0), Fraction(1, 100), Fraction(1, 10), Fraction(1, 2)):
            bound = lower.trace(found, names_of(spec), SOFTMAX, ratio) if found else None
            value = math.ceil(Fraction(keys) / (1 + (keys - 1) * ratio**2)) - 1
            right = bound is not None and bound.dimension == value and proves(spec, bound)
            yield right, f"{keys} keys at {ratio}"
        yield realises(spec, simple_upper.columns(cases(spec)), "uniform", keys - 1), f"{keys} keys, window 0"
    rng = random.Random(15)
    for case in range(8 * size):
        keys = rng.randint(3, 6)
        dimension = rng.randint(1, keys - 1)
        best = least_ratio(rng, keys, dimension)
        what = f"{keys} keys, dimension {dimension} (seed 15, case {case}): a head with window / gap {best}"
        yield best is None or few_sets.least_dimension(keys, best) <= dimension, what


def least_ratio(rng: random.Random, keys: int, dimension: int) -> Fraction | None:
    """Window over gap of the best head with random keys for [n] and [n] without one key, if that is below 1.

    The best biases and queries, for a gap of 1, are a linear programme; its answer is rounded and measured exactly.
    """
    from scipy.optimize import linprog

    spec = full_and_without_one(keys)
    found = cases(spec)
    content = [[rng.randint(-9, 9) for _ in range(dimension)] for _ in range(keys)]
    size = 1 + keys + found.queries * (dimension + 1)  # window, biases, and per query its vector and lowest logit
    rows, least = [], []
    for query, key in product(range(found.queries), range(keys)):
        logit = np.zeros(size)
        start = 1 + keys + query * (dimension + 1)
        logit[1 + key] = 1
        logit[start : start + dimension] = content[key]
        logit[start + dimension] = -1  # relative to the lowest that is read
        if found.alive[query, key]:
            rows += [-logit, logit - np.eye(size)[0]]
            least += [0.0, 0.0]
        else:
            rows.append(logit)
            least.append(-1.0)
    answer = linprog(np.eye(size)[0], A_ub=np.array(rows), b_ub=least, bounds=(-1000, 1000))
    if answer.status:
        return None
    values = [Fraction(float(x)).limit_denominator(10**6) for x in answer.x]
    queries = [values[at : at + dimension] for at in range(1 + keys, size, dimension + 1)]
    window, gap = LinearHead("best for its keys", content, values[1 : 1 + keys], queries).measure(found)
    return window / gap if gap and window < gap else None


@claim(
    "face-chain",
    "all subsets, [n] and [n] without one key, strictly decreasing chains: n - 1, proved and met; random families: the"
    " search equals the longest chain in the closure under intersection, by brute force",
    "exact",
)
def face_chain_(size: int) -> Iterator[Instance]:
    for keys in (2, 3, 4, 5, 3 + size):
        for spec in (all_subsets(keys), full_and_without_one(keys), falling_chain(keys)):
            for head in (SOFTMAX, FOX):
                bound = max(lower.uniform(cases(spec), names_of(spec), head), key=lambda b: b.dimension, default=None)
                right = bound is not None and bound.dimension == keys - 1 and proves(spec, bound)
                yield right, f"{head.name}: {spec.to_data()}"
            yield realises(spec, simple_upper.groups(cases(spec), "uniform"), "uniform", keys - 1), spec.to_data()
    rng = random.Random(16)
    for case in range(15 * size):
        spec = random_family(rng, rng.randint(2, 5))
        found = face_chain.face_chain(cases(spec))
        length = 1 if found is None else len(found.keys)
        yield length == longest_faces(spec), f"seed 16, case {case}: {spec.to_data()}"


def longest_faces(spec: Family) -> int:
    """Brute force: the longest chain of non-empty intersections of targets."""
    closed = {frozenset(target) for target in spec.targets}
    while more := {a & b for a in closed for b in closed} - closed - {frozenset()}:
        closed |= more
    best: dict[frozenset[int], int] = {}
    for one in sorted(closed, key=len):
        best[one] = 1 + max((best[other] for other in best if other < one), default=0)
    return max(best.values())


@claim(
    "forster",
    "Hadamard matrices of signs: sqrt(n) - 2, certificates accepted and the norm above the greatest singular value;"
    " random families: never above what a construction needs",
    "exact",
)
def forster_(size: int) -> Iterator[Instance]:
    for power in range(2, 3 + min(size, 3), 1):
        n = 4**power if power < 4 else 64
        spec = hadamard(n)
        found = forster.forster(cases(spec))
        value = math.isqrt(n) - 2
        yield found is not None and found.dimension() == value, f"{n} keys: at least {value}"
        bounds = [b for b in lowers(spec, SOFTMAX, "separation") if b.kind == "forster"]
        yield all(proves(spec, bound) for bound in bounds) and bool(bounds), f"{n} keys: the certificate"
    rng = random.Random(17)
    for case in range(10 * size):
        spec = random_family(rng, 5)
        found, most = forster.forster(cases(spec)), Uppers(cases(spec), RATIO).least(SOFTMAX, "separation")
        yield found is None or most is None or found.dimension() <= most.dimension, f"seed 17, case {case}"


def hadamard(n: int) -> Family:
    """Key k is in set s if the number of common bits of k and s is even; a power of two of both."""
    targets = [tuple(k for k in range(n) if (k & s).bit_count() % 2 == 0) for s in range(n)]
    return family(n, targets)


@claim(
    "fox-pairs",
    "all subsets of n keys, dips after each key, gates per slot: floor(n/2) for windows, the certificate accepted; no"
    " construction for random families needs less",
    "exact",
)
def fox_pairs_(size: int) -> Iterator[Instance]:
    for keys in range(2, min(4 + size, 9) + 1):
        spec = all_subsets(keys)
        found = fox_pairs.fox_pairs(cases(spec), goal=keys // 2)
        bounds = lowers(spec, FOX, "window")
        right = found.dimension == keys // 2 and all(proves(spec, bound) for bound in bounds if bound.dimension)
        yield right, f"all subsets of {keys} keys: {found.dimension}"
    rng = random.Random(18)
    for case in range(10 * size):
        spec = random_family(rng, rng.randint(2, 5))
        bound, proved = best_lower(spec, FOX, "window")
        most = Uppers(cases(spec), RATIO).least(FOX, "window")
        yield proved and most is not None and bound <= most.dimension, f"seed 18, case {case}: {spec.to_data()}"


@claim(
    "bits",
    "all pairs of sets with the same first block over small n, every choice of slots: no query serves both within a"
    " window, certificates accepted; distinct queries of the constructions; n - 1 bits for all subsets",
    "exact",
)
def bits_(size: int) -> Iterator[Instance]:
    for keys in range(2, min(2 + size, 5) + 1):
        for one, other in combinations(subsets(keys), 2):
            for slots in [tuple(range(keys)), (keys - 1,), tuple(range(1, keys, 2))]:
                spec = family(keys, [one, other], slots)
                found = frozen_ratio.frozen_ratio(spec, "fox", "window", RATIO)
                needs = bits.alike(spec) == 2
                right = needs == isinstance(found, frozen_ratio.Conflict)
                yield right and fixed_proved(spec, "fox", "window", found), spec.to_data()
        spec = all_subsets(keys)
        yield bits.least_bits(spec) == keys - 1, f"all subsets of {keys} keys: {bits.least_bits(spec)} bits"
        head = fox_table.window_per_slot(cases(spec), RATIO)
        asked = [tuple(q) for q, target in zip(head.queries, spec.targets) if 0 in target] if head else []
        yield len(set(asked)) == 2 ** (keys - 1), f"all subsets of {keys} keys: {len(set(asked))} different queries"
