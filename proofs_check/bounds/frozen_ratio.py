"""frozen-ratio: with a fixed query, tokens after two keys cannot change the ratio of their weights (THEORY.md).

The ratio of the weights of keys j < j' in a causal head with logits q . k_j + b_j - (gates after j) depends on the
query vector, on b and on the tokens up to j': all later gates are shared. So with one query vector for all queries
the logit of a key is, up to what all keys share, a number v of its *node*: softmax, the key; FoX with any gates, the
key and the tokens before it. A query that reads y and not x forces v(x) <= v(y) - gap; one that reads both |v(x) -
v(y)| <= window.

Claim. A specification is realised with a fixed query, whatever the dimension, if and only if these demands have a
solution, that is unless they contain a circle of negative sum.

Proof. Only if: they follow from the targets. If: softmax: take v for the biases. FoX: gates are differences of v along
the keys, functions of the tokens so far; where they must not be negative, a bias that falls along the keys pays for it.

In families two queries suffice for a circle (the certificate's witness).
* softmax: two sets neither of which holds the other are never both separated; two sets of which one holds the other are
  separated but never within a window. So exactly chains are separated, and single sets read within a window.
* FoX, window: let two different sets have the same first block that they read anything of. Before it their tokens are
  the same. In the first block where they differ both read some key x, here or before, and one of them, not the other,
  a key y here: a circle. If no two sets share their first block, v = the number of the block for keys that are read in
  their first block and after, one less for all others, has window 0 and gap 1. So: exactly the families in which no two
  sets have the same first block; with dips after each key, the same first key.
* FoX, separation: circles of two are the only ones: two sets with the same tokens before a block, whose parts of the
  block hold neither one the other. With dips after each key every family is separated, by gates that halve.

In histories the tokens between events are free, so FoX demands tie only queries of one history: it is realised within
a window if each query reads, of the keys there at the query before, the same or none. Softmax demands tie all queries,
and a circle may be longer; `solve` finds the solution or the circle.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from proofs_check.keysets import Event, Family, Histories, KeySetSpec, Target

MAX_DEMANDS = 40_000  # pairs of a read key and another one, summed over the queries, up to which `solve` is tried

MAX_TREE = 300  # keys of a family whose logits, as large as 2^keys, are written out

Head = Literal["softmax", "fox"]
Notion = Literal["separation", "window"]


@dataclass(frozen=True)
class Step:
    """Query (counted from 0 through the rows), and v(low) < v(high), or both are read."""

    query: int
    low: int
    high: int


@dataclass(frozen=True)
class Conflict:
    """Steps of which each starts at the node where the last one ends."""

    cycle: tuple[Step, ...]


@dataclass(frozen=True)
class Logits:
    """v of the nodes: softmax, one list over the keys; FoX, a list per row over its keys as pushed."""

    values: tuple[tuple[int, ...], ...]
    window: int
    gap: int | None


@dataclass(frozen=True)
class TooLarge:
    """Not decided."""

    why: str


def frozen_ratio(spec: KeySetSpec, head: Head, notion: Notion, ratio: Fraction) -> Conflict | Logits | TooLarge:
    """Whether a fixed query realises the specification, the window being at most `ratio` of the gap.

    Linear in the input for windows of families and of FoX; else up to MAX_DEMANDS demands, or a conflict of a pair.
    """
    if isinstance(spec, Family) and notion == "window":
        return _family_window(spec, head)
    if isinstance(spec, Histories) and notion == "window":
        found = _history_window(spec)
        return found if head == "fox" or isinstance(found, Conflict) else solve(spec, head, notion, ratio)
    if isinstance(spec, Family) and head == "softmax":
        return _chain(spec)
    if isinstance(spec, Family) and spec.dips == "after-each-key" and len(spec.keys) <= MAX_TREE:
        return _tree(spec)
    return solve(spec, head, notion, ratio)


def _pair(
    query: int, target: Sequence[int], other: int, larger: Sequence[int], block: Sequence[int] | None
) -> Conflict:
    """The circle of two queries, one of which reads a key that the other does not, though both read some key."""
    kept, also = set(target), set(larger)
    at = min(kept ^ also, key=lambda key: block[key]) if block else min(kept ^ also)
    if at in kept:
        query, other, kept, also = other, query, also, kept
    here = lambda key: block is None or block[key] <= block[at]  # noqa: E731
    shared = next((key for key in sorted(kept & also) if here(key)), None)
    own = shared if shared is not None else next(key for key in sorted(kept) if here(key))
    return Conflict((Step(query, low=at, high=own), Step(other, low=own, high=at)))


def _family_window(family: Family, head: Head) -> Conflict | Logits:
    n = len(family.keys)
    block = _blocks(family)
    first: dict[int, int] = {}
    for row, target in enumerate(family.targets):
        other = first.setdefault(0 if head == "softmax" else block[target[0]], row)
        if other != row:
            return _pair(other, family.targets[other], row, target, block if head == "fox" else None)
    if head == "softmax":
        only = set(family.targets[0])
        return Logits((tuple(int(key in only) for key in range(n)),), 0, 1 if len(only) < n else None)
    values, gaps = [], []
    reads = {number: set(family.targets[row]) for number, row in first.items()}
    for target in family.targets:
        kept, number = set(target), block[target[0]]
        own = [block[k] - (k not in reads.get(block[k], ())) if block[k] < number else number for k in range(n)]
        own = [v - (block[k] >= number and k not in kept) for k, v in enumerate(own)]
        values.append(tuple(own))
        gaps.extend([number - max(v for k, v in enumerate(own) if k not in kept)] if len(kept) < n else [])
    return Logits(tuple(values), 0, min(gaps, default=None))


def _blocks(family: Family) -> list[int]:
    blocks, slots = [], set(family.slots)
    number = 0
    for key in range(len(family.keys)):
        blocks.append(number)
        number += key in slots
    return blocks


def _chain(family: Family) -> Conflict | Logits:
    """Softmax, separation: v = how many sets hold the key, if the sets are a chain."""
    order = sorted(range(len(family.targets)), key=lambda row: len(family.targets[row]))
    sets = [frozenset(family.targets[row]) for row in order]
    for (small, row), (large, other) in zip(zip(sets, order), zip(sets[1:], order[1:])):
        if not small <= large:
            x, y = min(small - large), min(large - small)
            return Conflict((Step(row, low=y, high=x), Step(other, low=x, high=y)))
    n = len(family.keys)
    count = [0] * n
    for target in family.targets:
        for key in target:
            count[key] += 1
    levels = sorted({*count}, reverse=True)
    value = {number: -at for at, number in enumerate(levels)}
    window = max(max(value[count[k]] for k in kept) - min(value[count[k]] for k in kept) for kept in sets)
    return Logits((tuple(value[number] for number in count),), window, 1 if min(count) < len(sets) else None)


def _tree(family: Family) -> Logits:
    """FoX, separation, dips after each key: a key lies above those dropped before it, and below those read."""
    n = len(family.keys)
    values, window, gaps = [], 0, []
    for target in family.targets:
        kept, own, height = set(target), [], 0
        for key in range(n):
            own.append(height)
            height += -(2 ** (n - key)) if key in kept else 2 ** (n - key)
        values.append(tuple(own))
        read = [own[key] for key in target]
        window = max(window, max(read) - min(read))
        gaps += [min(read) - max(own[key] for key in range(n) if key not in kept)] if len(kept) < n else []
    return Logits(tuple(values), window, min(gaps, default=None))


def _history_window(spec: Histories) -> Conflict | Logits:
    """FoX: of the keys there at the query before, each query reads the same or none. v = how often it was none."""
    values, asked, gap = [], 0, None
    for history in spec.histories:
        there: list[int] = []
        value: dict[int, int] = {}
        before: tuple[int, ...] = ()
        known = epoch = fresh = 0  # keys there at the last query, its epoch, keys with a value
        for event in history:
            if isinstance(event, int):
                there.append(event)
                continue
            old = [key for key in event if key in value]
            if before and not old:
                epoch += 1
            elif before and tuple(old) != before:
                found = _pair(asked - 1, before, asked, tuple(old), None)
                return found
            reads = set(event)
            for key in there[fresh:]:
                value[key] = epoch - (key not in reads)
            fresh = known = len(there)
            gap = 1 if known > len(event) or gap else None
            before = event
            asked += 1
        values.append(tuple(value.get(key, 0) for key in there))
    return Logits(tuple(values), 0, gap)


# The demands written out.


def _rows(spec: KeySetSpec) -> Iterator[Sequence[Event]]:
    """The pushes and queries of every row."""
    if isinstance(spec, Family):
        return ((*range(len(spec.keys)), target) for target in spec.targets)
    return iter(spec.histories)


def _nodes(head: Head, block: list[int], row: int, target: Target, present: list[int]) -> dict[int, Hashable]:
    """The node of each present key."""
    if head == "softmax":
        return {key: key for key in present}
    if not block:
        return {key: (key, row) for key in present}
    return {key: (key, tuple(k for k in target if block[k] < block[key])) for key in present}


def _demands(spec: KeySetSpec, head: Head, notion: Notion) -> Iterator[tuple[Hashable, Hashable, bool, Step]]:
    """(node of low, node of high, whether low is not read, the step) of every demand."""
    block = _blocks(spec) if isinstance(spec, Family) else []
    asked = 0
    for row, events in enumerate(_rows(spec)):
        present: list[int] = []
        for event in events:
            if isinstance(event, int):
                present.append(event)
                continue
            alive, nodes = set(event), _nodes(head, block, row, event, present)
            for high in event:
                for low in present:
                    if low not in alive or (notion == "window" and low != high):
                        yield nodes[low], nodes[high], low not in alive, Step(asked, low, high)
            asked += 1


def solve(spec: KeySetSpec, head: Head, notion: Notion, ratio: Fraction) -> Conflict | Logits | TooLarge:
    """By the longest ways in the graph of the demands (Bellman and Ford), whole numbers only.

    A step of a gap is `unit` long, one within the window minus `slack`, slack / unit = ratio.
    """
    unit, slack = (ratio.denominator, ratio.numerator) if notion == "window" else (1, 0)
    edges: dict[tuple[Hashable, Hashable], tuple[int, Step]] = {}
    for count, (low, high, strict, step) in enumerate(_demands(spec, head, notion)):
        if count == MAX_DEMANDS:
            return TooLarge(f"more than {MAX_DEMANDS:,} pairs of a key that is read and another one")
        length = unit if strict else -slack
        if (low, high) not in edges or edges[low, high][0] < length:
            edges[low, high] = length, step
    for (low, high), (length, step) in edges.items():  # a circle of two where there is one
        back = edges.get((high, low))
        if back is not None and length + back[0] > 0:
            return Conflict((step, back[1]))
    value: dict[Hashable, int] = dict.fromkeys((node for edge in edges for node in edge), 0)
    came: dict[Hashable, tuple[Hashable, Step]] = {}
    risen = True
    while risen:
        risen = False
        for (low, high), (length, step) in edges.items():
            if value[low] + length > value[high]:
                value[high], came[high], risen = value[low] + length, (low, step), True
        if circle := _circle(came):
            return Conflict(circle)
    return _logits(spec, head, value)


def _circle(came: dict[Hashable, tuple[Hashable, Step]]) -> tuple[Step, ...]:
    """A circle of the steps by which nodes were last raised; its sum is above 0. Without one the raising ends."""
    looked_at: dict[Hashable, Hashable] = {}
    for start in came:
        node = start
        while node in came and node not in looked_at:
            looked_at[node] = start
            node = came[node][0]
        if node in came and looked_at[node] == start:
            end = node
            steps: list[Step] = []
            while not steps or node != end:
                node, step = came[node]
                steps.append(step)
            return tuple(reversed(steps))
    return ()


def _logits(spec: KeySetSpec, head: Head, value: dict[Hashable, int]) -> Logits:
    """The solution, and its window and gap."""
    block = _blocks(spec) if isinstance(spec, Family) else []
    lists: list[tuple[int, ...]] = []
    window, gaps = 0, []
    for row, events in enumerate(_rows(spec)):
        pushed = [event for event in events if isinstance(event, int)]
        targets = [event for event in events if not isinstance(event, int)]
        nodes = _nodes(head, block, row, targets[-1] if targets else (), pushed)
        own = {key: value.get(nodes[key], 0) for key in pushed}
        present: list[int] = []
        for event in events:
            if isinstance(event, int):
                present.append(event)
                continue
            read, rest = [own[key] for key in event], [own[key] for key in set(present).difference(event)]
            window = max(window, max(read) - min(read))
            gaps += [min(read) - max(rest)] if rest else []
        lists.append(tuple(own.values()))
    if head == "softmax":
        lists = [tuple(value.get(key, 0) for key in range(len(spec.keys)))]
    return Logits(tuple(lists), window, min(gaps, default=None))
