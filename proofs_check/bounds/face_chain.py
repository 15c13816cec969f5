"""face-chain: for exactly uniform weights a chain of faces needs a dimension per step (THEORY.md).

Uniform, free queries, any biases. Let x_1, ..., x_r be keys, and for each i >= 2 let one query read x_1, ..., x_(i-1)
and not x_i, and another one read x_1, ..., x_i. Then d >= r - 1. Without biases the other query is not needed.

Proof. Take the logits of the second query from those of the first. On x_1, ..., x_(i-1) both are constant, on x_i
only the second is as high: an affine function of the content, constant on the keys before and lower on x_i. So k of
x_i lies outside the affine hull of those before, and the r key vectors are affinely independent. Without biases the
logits of the first query are such a function themselves.                                                           QED

The longest such sequence is as long as the longest chain of non-empty sets in the closure of the targets under
intersection: from a chain take a key of each step; from a sequence the targets' intersections from the end. All
subsets, or [n] and all [n] without one key: d >= n - 1. A strictly decreasing chain of n sets: n - 1.

FoX, gates per slot: the two queries of a step must have the same tokens between x_1, ..., x_i. They differ at the
token of x_i itself, so it comes in or after the last block so far. All subsets, dips after each key: x_i = i, n - 1.

For softmax the search goes down from the targets by intersections, the longest way from each set kept; for FoX it
extends sequences block by block. Both are cut by a budget, and every sequence found counts.
"""

from dataclasses import dataclass

import numpy as np

from proofs_check.bounds.cases import Cases, Ints

BUDGET = 20_000  # intersections, or steps
CELLS = 3_000_000  # entries looked at


@dataclass(frozen=True)
class Chain:
    """The keys, and for each but the first a query without it and one with it (only the former without biases)."""

    keys: tuple[int, ...]
    queries: tuple[tuple[int, ...], ...]

    @property
    def dimension(self) -> int:
        """The bound on the content dimension."""
        return len(self.keys) - 1


def face_chain(cases: Cases, *, head: str = "softmax", biases: bool = True) -> Chain | None:
    """The longest chain found; None if there is none of two keys."""
    chains = [_down(cases, queries, keys, biases) for queries, keys in cases.frozen(head)]
    if head == "fox" and cases.block is not None:
        chains.append(_across(cases))
    best = max((chain for chain in chains if chain is not None), key=lambda chain: len(chain.keys), default=None)
    return best if best is not None and best.dimension else None


def _down(cases: Cases, queries: Ints, keys: Ints, biases: bool) -> Chain | None:
    """Chains whose queries all have the same tokens between the keys: intersections from the top."""
    alive = [_bits(row) for row in cases.alive[np.ix_(queries, keys)]]
    dead = [_bits(row) for row in cases.dead[np.ix_(queries, keys)]]
    tops: dict[int, int] = {}
    for at, mask in enumerate(alive):
        if mask and (mask not in tops or (dead[at] and not dead[tops[mask]])):
            tops[mask] = at
    longest: dict[int, tuple[int, int, int]] = {}  # of a set: length, query and key of its first step down
    best: tuple[int, int, int] = (0, 0, 0)
    work = 0
    for mask in sorted(tops, key=int.bit_count, reverse=True):
        if mask.bit_count() + (not biases) <= best[0] or work > CELLS:
            continue
        work += _measure(mask, alive, dead, longest, CELLS - work)
        extra = 0 if biases or not dead[tops[mask]] else 1
        best = max(best, (longest[mask][0] + extra, mask, tops[mask]))
    return _chain(best, alive, dead, longest, queries, keys, biases) if best[0] else None


def _bits(row) -> int:
    return int.from_bytes(np.packbits(row, bitorder="little").tobytes(), "little")


def _measure(top: int, alive: list[int], dead: list[int], longest: dict, work: int) -> int:
    """Fills `longest` for a set and those below it, the steps that lose least first; greedily when work runs out."""
    spent, stack = 0, [(top, _steps(top, alive, dead))]
    longest.setdefault(top, (1, -1, -1))
    while stack:
        mask, steps = stack[-1]
        if not steps or longest[mask][0] == mask.bit_count():
            stack.pop()
            if stack:
                _improve(longest, stack[-1][0], stack[-1][1][-1], mask)
                stack[-1][1].pop()
            continue
        below = steps[-1][0]
        if below in longest:
            _improve(longest, mask, steps.pop(), below)
            continue
        spent += len(alive)
        following = _steps(below, alive, dead)
        if spent > work or len(longest) > BUDGET:
            following = following[-1:]
            del steps[:-1]
        longest[below] = (1, -1, -1)
        stack.append((below, following))
    return spent


def _improve(longest: dict, mask: int, step: tuple[int, int, int], below: int) -> None:
    if longest[below][0] + 1 > longest[mask][0]:
        longest[mask] = (longest[below][0] + 1, step[1], step[2])


def _steps(mask: int, alive: list[int], dead: list[int]) -> list[tuple[int, int, int]]:
    """(set below, query, key lost) of every smaller intersection, the largest last."""
    found: dict[int, tuple[int, int]] = {}
    for at, (kept, gone) in enumerate(zip(alive, dead)):
        below = mask & kept
        if below != mask and below and below not in found and (lost := mask & gone):
            found[below] = at, (lost & -lost).bit_length() - 1
    return sorted(((below, *step) for below, step in found.items()), key=lambda step: step[0].bit_count())


def _chain(best, alive, dead, longest, queries: Ints, keys: Ints, biases: bool) -> Chain:
    """The keys of the way down, from its end; the query at the top reads them all."""
    length, mask, top = best
    lost: list[tuple[int, int]] = []
    if length > longest[mask][0]:
        lost.append((top, (dead[top] & -dead[top]).bit_length() - 1))
    while longest[mask][0] > 1:
        _, at, key = longest[mask]
        lost.append((at, key))
        mask &= alive[at]
    first = (mask & -mask).bit_length() - 1
    lost.reverse()
    steps = [(int(queries[at]), int(queries[top])) if biases else (int(queries[at]),) for at, _ in lost]
    return Chain(tuple(int(keys[key]) for key in (first, *(key for _, key in lost))), tuple(steps))


def _across(cases: Cases) -> Chain | None:
    """FoX: sequences that go from block to block, at most one key of each."""
    best: Chain | None = None
    left = BUDGET

    def extend(chosen: tuple[int, ...], rows: Ints, steps: tuple[tuple[int, int], ...]) -> None:
        nonlocal best, left
        if len(chosen) > (0 if best is None else len(best.keys)):
            best = Chain(chosen, steps)
        for key in range(chosen[-1] + 1, cases.keys):
            if best is not None and len(chosen) + cases.keys - key <= len(best.keys):
                return
            left -= 1
            if left < 0:
                return
            assert cases.block is not None
            reads = cases.alive[rows, key]
            if cases.block[key] == cases.block[chosen[-1]] or reads.all() or not reads.any():
                continue
            tokens = cases.tokens(chosen[0], key, rows)
            both = np.intersect1d(tokens[reads], tokens[~reads])
            if len(both):
                same = tokens == both[0]
                step = (int(rows[same & ~reads][0]), int(rows[same & reads][0]))
                extend((*chosen, key), rows[reads], (*steps, step))

    for key in range(cases.keys):
        extend((key,), np.flatnonzero(cases.alive[:, key]), ())
    return best
