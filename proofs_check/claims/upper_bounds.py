"""The claims about what softmax, FoX and other heads can do."""

import random
from collections.abc import Callable, Collection, Iterator
from fractions import Fraction
from itertools import product

import numpy as np

from proofs_check.bounds.cases import cases
from proofs_check.claims.brute_force import subsets
from proofs_check.claims.families import (
    BARE,
    FOX,
    FOX_ONE_GATE,
    RATIO,
    SOFTMAX,
    all_subsets,
    best_lower,
    bounded_by,
    falling_chain,
    family,
    full_and_without_one,
    random_family,
    realises,
)
from proofs_check.claims.registry import Instance, Note, claim
from proofs_check.constructions import chains, fox_table, rivals, simple_upper, sparse_sets
from proofs_check.constructions.upper import Uppers


@claim(
    "fox-table",
    "all subsets of n keys, each row of the table: the construction's certificate accepted at the stated dimension, the"
    " lower bound proved and, where the row is tight, the same; the precision that the row without content needs",
    "exact",
)
def fox_table_(size: int) -> Iterator[Instance]:
    for keys in range(2, min(3 + size, 7) + 1):
        spec, what = all_subsets(keys), f"all subsets of {keys} keys"
        found = cases(spec)
        uppers = Uppers(found, RATIO)
        yield realises(spec, simple_upper.groups(found, "uniform"), "uniform", keys - 1), f"{what}: uniform"
        yield bounded_by(spec, FOX, "uniform", keys - 1), f"{what}: uniform, lower"
        for ratio in (RATIO, Fraction(1, 3), Fraction(1, 1000)):
            per_slot = fox_table.window_per_slot(found, ratio)
            yield realises(spec, per_slot, "window", keys // 2, ratio), f"{what}: window {ratio}, gates per slot"
            one_gate = fox_table.window_one_gate(found, ratio)
            yield realises(spec, one_gate, "window", -(-2 * keys // 3) - 1, ratio), f"{what}: window {ratio}, one gate"
        yield bounded_by(spec, FOX, "window", keys // 2), f"{what}: window, lower"
        pairs = uppers.least(FOX_ONE_GATE, "separation")
        yield realises(spec, pairs, "separation", -(-keys // 2) - 1), f"{what}: separation, one gate"
        yield bounded_by(spec, FOX_ONE_GATE, "separation", -(-keys // 2) - 1), f"{what}: separation, one gate, lower"
        tree = fox_table.separation_per_slot(found)
        yield realises(spec, tree, "separation", 0), f"{what}: separation, gates per slot"
        if tree is not None:
            _, gap = tree.measure(found)
            yield gap is not None and gap == Fraction(max(tree.gates), 2 ** (keys - 1)), f"{what}: the gap {gap}"
        at_end = family(keys, subsets(keys), [keys - 1])
        for notion in ("separation", "window", "uniform"):
            yield bounded_by(at_end, FOX, notion, keys - 1), f"{what}, dips at the end: {notion}"


FORMATS = ("float64", "float32", "bfloat16")


def rounded(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """Rounds an array of float64 to a format; bfloat16 by hand, to nearest even."""

    def to_bfloat16(values: np.ndarray) -> np.ndarray:
        bits_ = np.asarray(values, np.float32).view(np.uint32)
        even = (bits_ + 0x7FFF + ((bits_ >> 16) & 1)) & np.uint32(0xFFFF0000)
        return even.astype(np.uint32).view(np.float32).astype(np.float64)

    plain = {"float64": np.float64, "float32": np.float32}
    return to_bfloat16 if name == "bfloat16" else lambda values: np.asarray(values, plain[name]).astype(np.float64)


@claim(
    "chains",
    "strictly decreasing chains of n sets: uniform n - 1, proved and met; separation 0; a window, one dimension, at"
    " numbers of exactly (1 + 1/ratio)^(n-2); the n at which each float format breaks, found and confirmed",
    "exact, weights in float",
)
def chains_(size: int) -> Iterator[Instance]:
    for keys in (2, 3, 5, 4 * size):
        spec, what = falling_chain(keys), f"a chain of {keys} sets"
        yield bounded_by(spec, SOFTMAX, "uniform", keys - 1), f"{what}: uniform"
        yield realises(spec, simple_upper.groups(cases(spec), "uniform"), "uniform", keys - 1), f"{what}: uniform"
        yield realises(spec, simple_upper.groups(cases(spec), "separation"), "separation", 0), f"{what}: separation"
        for ratio in (RATIO, Fraction(1, 1000)):
            head = chains.chain_windows(cases(spec), ratio)
            yield realises(spec, head, "window", 1, ratio), f"{what}: window {ratio}"
            largest = max(abs(Fraction(q)) for query in head.queries for q in query) if head else Fraction(0)
            yield largest == chains.magnitude(keys - 2, ratio), f"{what}: window {ratio}, largest number {largest}"
        bound, proved = best_lower(spec, SOFTMAX, "window")
        yield proved and bound == 1, f"{what}: a window alone takes one dimension"
    breaks = {name: chains.breaking_length(rounded(name), RATIO, 400) for name in FORMATS}
    for name, at in breaks.items():
        last = at or 400
        holds = [chain_holds(n, RATIO, rounded(name)) for n in (2, last // 2, last - 1, last)]
        yield holds == [True, True, True, False], f"{name} breaks at {at}"
    listed = ", ".join(f"{name} {at}" for name, at in breaks.items())
    yield True, Note(f"the least n at which a float format misses a window of 1/10 of the gap: {listed}")


def chain_holds(n: int, ratio: Fraction, form: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Step by step: whether the head of a chain of n keys keeps its window in a format, up to a rounding error."""
    base = float(1 + 1 / ratio)
    with np.errstate(all="ignore"):
        keys = form(base ** -np.arange(n, dtype=np.float64))
        for step in range(n - 1):
            query = form(-(np.float64(base) ** np.array([step])))
            logits = form(query * keys)
            window = logits[step + 1 :].max() - logits[step + 1 :].min()
            gap = logits[step + 1 :].min() - logits[: step + 1].max()
            if not (gap > 0 and window <= float(ratio) * gap * (1 + 2**-6)):
                return False
    return True


@claim(
    "sparse-sets",
    "all sets of at most k keys: 2k - 1 with biases and 2k without, proved and met, uniform; runs of neighbours",
    "exact",
)
def sparse_sets_(size: int) -> Iterator[Instance]:
    for most, keys in [(1, 3), (1, 9), (2, 5), (2, 8), (3, 7), (3, 8), (4, 9)][: 2 + size]:
        spec = family(keys, [s for s in subsets(keys) if len(s) <= most])
        what = f"sets of at most {most} of {keys} keys"
        yield realises(spec, sparse_sets.sparse(cases(spec), keys + 1), "uniform", 2 * most - 1), f"{what}: with biases"
        yield bounded_by(spec, SOFTMAX, "separation", 2 * most - 1), f"{what}: with biases, lower"
        bare = Uppers(cases(spec), RATIO).least(BARE, "uniform")
        yield realises(spec, bare, "uniform", 2 * most), f"{what}: without biases"
        yield bounded_by(spec, BARE, "separation", 2 * most), f"{what}: without biases, lower"
    for keys in (4, 10, 10 * size):
        spec = full_and_without_one(keys)
        yield realises(spec, sparse_sets.runs(cases(spec), keys + 1), "separation", 1), f"{keys} keys, one run left out"
        spec = family(keys, [range(a, b) for a in range(keys) for b in range(a + 1, keys + 1)])
        yield realises(spec, sparse_sets.runs(cases(spec), keys + 1), "separation", 1), f"all runs of {keys} keys"


@claim(
    "simple-upper",
    "random families, every kind of head and notion: the construction's certificate accepted, at most n - 1 dimensions"
    " and targets - 1 (without biases, targets), and never fewer than the best lower bound, itself proved",
    "exact",
)
def simple_upper_(size: int) -> Iterator[Instance]:
    rng = random.Random(19)
    for case in range(8 * size):
        spec = random_family(rng, rng.randint(2, 5))
        uppers = Uppers(cases(spec), RATIO)
        for head, notion in product((SOFTMAX, BARE, FOX, FOX_ONE_GATE), ("separation", "window", "uniform")):
            found = uppers.least(head, notion)
            bound, proved = best_lower(spec, head, notion)
            what = f"{head}, {notion} (seed 19, case {case}): {spec.to_data()}"
            most = min(len(spec.keys) - 1, len(spec.targets) - head.biases)
            small = found is not None and bound <= found.dimension <= most
            yield small and proved and realises(spec, found, notion, found.dimension if found else -1), what


@claim(
    "rivals",
    "Selective Attention with content dimension 3 and a fixed query: every set of small numbers of keys, random large"
    " ones; live keys share one logit, all else is lower by the margin",
    "exact",
)
def rivals_(size: int) -> Iterator[Instance]:
    for keys in range(1, min(3 + size, 9) + 1):
        for target in subsets(keys, empty=True):
            yield selected(keys, target), f"{target} of {keys} keys"
    rng = random.Random(20)
    target = tuple(key for key in range(20 * size) if rng.random() < 0.5)
    yield selected(20 * size, target), f"{len(target)} random keys of {20 * size}"


def selected(keys: int, target: Collection[int]) -> bool:
    """By the mechanism written out: what each dip takes from each key, then the query's own logits."""
    margin, sequence = 8, rivals.tokens(keys, target)
    logits = rivals.logits(sequence, margin)
    live = {logits[2 * key] for key in target}
    rest = [logit for at, logit in enumerate(logits) if at % 2 or at // 2 not in target]
    one_head = len({rivals.query_vector(sequence[-1], margin), rivals.query_vector("query", margin)}) == 1
    right_size = all(len(rivals.key_vector(token)) == 3 for token in sequence)
    if len(live) > 1 or not one_head or not right_size:
        return False
    return max(rest) <= (live.pop() if live else margin) - margin
