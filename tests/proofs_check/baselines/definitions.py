"""The baselines by their definitions, token by token: shares nothing with the bounds, the constructions or the core.

A family's sequence is written out as tokens; a FoX head is run over them with its cumulated log forget gates; every
kind of certificate has its statement here as a few lines about sets of keys.
"""

from fractions import Fraction
from itertools import pairwise, product
from math import ceil

import numpy as np

from proofs_check.keysets import Family, Histories


def subsets(n, at_most=None):
    """Non-empty subsets of 0..n-1 as increasing tuples."""
    masks = sorted(range(1, 2**n), key=lambda mask: (mask.bit_count(), mask))
    sets = (tuple(k for k in range(n) if mask >> k & 1) for mask in masks)
    return tuple(s for s in sets if at_most is None or len(s) <= at_most)


def family(n, targets, slots=None):
    names = tuple(f"k{k + 1}" for k in range(n))
    return Family(names, tuple(map(tuple, targets)), tuple(range(n)) if slots is None else tuple(slots))


def all_subsets(n, at_most=None):
    return family(n, subsets(n, at_most))


def chain_at_end(n):
    return family(n, [range(k, n) for k in range(n)], (n - 1,))


def full_and_without_one(n):
    return family(n, [range(n), *([k for k in range(n) if k != out] for out in range(n))])


def random_family(rng, most_keys=5, most_targets=10):
    n = rng.randint(1, most_keys)
    sets = subsets(n)
    targets = sorted(rng.sample(sets, rng.randint(1, min(len(sets), most_targets))))
    everywhere = tuple(range(n))
    slots = rng.choice([everywhere, everywhere, (n - 1,), tuple(k for k in everywhere if rng.random() < 0.5)])
    return family(n, targets, slots)


def random_histories(rng):
    n = rng.randint(2, 4)
    histories = []
    for _ in range(rng.randint(1, 3)):
        left, there, events = rng.sample(range(n), n), [], []
        while left or rng.random() < 0.5:
            if left and rng.random() < 0.6:
                there.append(left.pop())
                events.append(there[-1])
            elif there:
                events.append(tuple(sorted(rng.sample(there, rng.randint(1, len(there))))))
        histories.append(tuple(events))
    if all(isinstance(event, int) for history in histories for event in history):
        histories[0] = (*histories[0], (histories[0][0],))
    return Histories(tuple("abcd"[:n]), tuple(histories))


# Tokens and logits.


def tokens(spec, row):
    """("key", k), and after a slot ("keep", k) or ("drop", k) for each key since the slot before."""
    result, since = [], []
    for key in range(len(spec.keys)):
        result.append(("key", key))
        since.append(key)
        if key in spec.slots:
            result += [("keep" if k in spec.targets[row] else "drop", k) for k in since]
            since = []
    return result


def before(spec, row, key):
    """Everything in front of a key but keys, which are the same in all rows."""
    sequence = tokens(spec, row)
    return tuple(token for token in sequence[: sequence.index(("key", key))] if token[0] != "key")


def between(spec, row, keys):
    """What stands between the first and the last of the keys, but keys."""
    sequence = tokens(spec, row)
    first, last = min(keys), max(keys)
    part = sequence[sequence.index(("key", first)) : sequence.index(("key", last))]
    return tuple(token for token in part if token[0] != "key")


def logits(spec, row, keys, biases, gates, query):
    """q . k + b + c_end - c_key, c the sum of log f up to each token, log f = -gate at a drop and 0 elsewhere."""
    decay, total = {}, Fraction(0)
    for kind, key in tokens(spec, row):
        total -= Fraction(gates[key]) if kind == "drop" and gates else 0
        if kind == "key":
            decay[key] = total
    content = [sum((Fraction(a) * Fraction(b) for a, b in zip(query, vector)), Fraction(0)) for vector in keys]
    return [content[k] + Fraction(biases[k]) + total - decay[k] for k in range(len(keys))]


def window_and_gap(targets, rows):
    """The greatest window and the least gap of the logits of each row."""
    windows, gaps = [], []
    for target, row in zip(targets, rows, strict=True):
        read = [row[k] for k in target]
        rest = [value for k, value in enumerate(row) if k not in target]
        windows.append(max(read) - min(read))
        gaps += [min(read) - max(rest)] if rest else []
    return max(windows), min(gaps, default=None)


def serves(notion, ratio, window, gap):
    if gap is not None and gap <= 0:
        return False
    return {"separation": True, "uniform": window == 0, "window": window <= ratio * (gap or 0)}[notion]


# What each kind of certificate states; `w` is its witness with keys and queries counted from 0.


def is_true(spec, kind, assumed, witness):
    """Whether a certificate of the right shape states the truth."""
    return STATEMENTS[kind](spec, assumed, Witness(spec, witness))


class Witness(dict):
    def __init__(self, spec, witness):
        super().__init__(witness)
        self.spec = spec

    def keys_of(self, names):
        return [self.spec.keys.index(name) for name in names]

    def sets(self, numbers):
        return [set(self.spec.targets[number - 1]) for number in numbers]


def same_tokens(spec, assumed, keys, numbers, count=False):
    """Softmax, or the same tokens (or number of drops) between neighbours of the keys."""
    if assumed["head"] == "softmax":
        return True
    for pair in pairwise(sorted(keys)):
        found = {between(spec, number - 1, pair) for number in numbers}
        if len({sum(kind == "drop" for kind, _ in one) for one in found} if count else found) > 1:
            return False
    return True


def shattered(spec, assumed, w):
    keys = w.keys_of(w["keys"])
    counted = assumed.get("gates") == "one for all drops"
    wanted = [trace for trace in product((0, 1), repeat=len(keys)) if 0 < sum(trace) < len(keys)]
    found = {tuple(int(k in s) for k in keys) for s in w.sets(w["queries"])}
    opposite = lambda trace: tuple(1 - bit for bit in trace)  # noqa: E731
    half = w["traces"] == "half"
    there = all(t in found or (half and opposite(t) in found) for t in wanted)
    bound = len(keys) - 1 - (half and assumed["biases"] != "none")
    good = there and w["dimension"] == bound and (half or w["traces"] == "all")
    return good and same_tokens(spec, assumed, keys, w["queries"], counted)


def pairs(spec, assumed, w):
    found = [w.keys_of(pair) for pair in w["pairs"]]
    values = {tuple((x in s) - (y in s) if {x, y} & s else None for x, y in found) for s in w.sets(w["queries"])}
    columns = [{value[at] for value in values} for at in range(len(found))]
    frozen = all(same_tokens(spec, assumed, pair, w["queries"]) for pair in found)
    full = all(len(c) == 2 and None not in c for c in columns) and values == set(product(*columns))
    return frozen and full and w["dimension"] == len(found)


def few_sets(spec, assumed, w):
    keys = w.keys_of(w["keys"])
    base, *rest = w.sets([w["base"], *w["queries"]])
    alone = all(set(keys) - s == {key} for key, s in zip(keys, rest, strict=True))
    m, ratio = len(keys), Fraction(assumed["ratio"])
    bound = ceil(Fraction(m) / (1 + (m - 1) * ratio * ratio)) - 1
    frozen = same_tokens(spec, assumed, keys, [w["base"], *w["queries"]])
    return alone and base >= set(keys) and frozen and w["dimension"] == bound


def face_chain(spec, assumed, w):
    keys = w.keys_of(w["keys"])
    for at, numbers in enumerate(w["queries"], 1):
        without, *having = w.sets(numbers)
        if set(keys[: at + 1]) - without != {keys[at]} or any(set(keys[: at + 1]) - s for s in having):
            return False
        if len(having) != (assumed["biases"] != "none") or not same_tokens(spec, assumed, keys[: at + 1], numbers):
            return False
    return w["dimension"] == len(keys) - 1 == len(w["queries"])


def forster(spec, assumed, w):
    keys = w.keys_of(w["keys"])
    signs = np.array([[1 if k in s else -1 for k in keys] for s in w.sets(w["queries"])])
    square = len(keys) * len(signs) / Fraction(w["norm"])
    rank = next(r for r in range(len(keys) + 2) if r * r >= square)
    above = np.linalg.norm(signs, 2) ** 2 < float(Fraction(w["norm"])) + 1e-9
    return above and w["dimension"] == max(0, rank - 2 + (assumed["biases"] == "none"))


def radon(spec, assumed, w):
    c, b = [Fraction(x) for x in w["vector"]], [Fraction(x) for x in w["biases"]]
    points = [[1, *map(Fraction, key)] for key in w["keys"]]
    target = set(spec.targets[w["query"] - 1])
    dependent = all(sum(x * p[at] for x, p in zip(c, points)) == 0 for at in range(len(points[0])))
    sides = all((x > 0) == (k in target) for k, x in enumerate(c) if x)
    return any(c) and dependent and sides and sum(x * y for x, y in zip(c, b)) <= 0


def construction(spec, assumed, w):
    biases, gates = w["biases"], w["gates"]
    if assumed["biases"] == "none" and any(biases):
        return False
    if assumed.get("gates") == "one for all drops" and len(set(gates)) > 1:
        return False
    rows = [logits(spec, row, w["keys"], biases, gates, query) for row, query in enumerate(w["queries"])]
    window, gap = window_and_gap(spec.targets, rows)
    stated = (Fraction(w["window"]), None if w["gap"] is None else Fraction(w["gap"]))
    return (window, gap) == stated and serves(assumed["notion"], Fraction(assumed.get("ratio", 0)), window, gap)


def frozen_logits(spec, assumed, w):
    rows = [[Fraction(x) for x in row] for row in w["logits"]]
    rows = rows if assumed["head"] == "fox" else rows * len(spec.targets)
    value = {}
    for row, own in enumerate(rows):
        for key, x in enumerate(own):
            node = (key, before(spec, row, key) if assumed["head"] == "fox" else None)
            if value.setdefault(node, x) != x:
                return False
    window, gap = window_and_gap(spec.targets, rows)
    stated = (Fraction(w["window"]), None if w["gap"] is None else Fraction(w["gap"]))
    return (window, gap) == stated and serves(assumed["notion"], Fraction(assumed.get("ratio", 0)), window, gap)


def frozen_ratio(spec, assumed, w):
    total, nodes = Fraction(0), []
    for step in w["cycle"]:
        low, high = w.keys_of([step["low"], step["high"]])
        (target,) = w.sets([step["query"]])
        if high not in target or low == high or (low in target and assumed["notion"] == "separation"):
            return False
        total += -1 if low not in target else Fraction(assumed["ratio"])
        fox = assumed["head"] == "fox"
        nodes.append([(k, before(spec, step["query"] - 1, k) if fox else None) for k in (low, high)])
    return total < 0 and all(a[1] == b[0] for a, b in zip(nodes, nodes[1:] + nodes[:1]))


STATEMENTS = {
    "shattered-set": shattered,
    "shattered-pairs": pairs,
    "few-sets-trace": few_sets,
    "face-chain": face_chain,
    "forster": forster,
    "radon": radon,
    "construction": construction,
    "frozen-logits": frozen_logits,
    "frozen-ratio": frozen_ratio,
}
