"""The graph "level of a < level of b" of a specification, kept implicit: its order, its least levels, its cycles.

The graph can have as many edges as rows times keys squared, so they are never listed. All *deaths* (a key that must
die in a row, at its slot) are sorted by row and slot. Whatever a surviving key forces in a row are the deaths between
its push and its last query: an interval [low, high) of that list, one *span* per row and surviving key. So

    edge a -> b   whenever a span of a holds a death of b.

Depth-first search visits each death at most once: it asks for the next death not yet visited, and visited ones are
skipped by a union-find. In an acyclic graph the reverse of the order of finishing is topological; the least levels
follow by taking, in that order, one more than the largest level whose span covers one of the key's deaths (a segment
tree: raise over a span, look up at a death). If the graph has a cycle then some death is covered at the end by a
level that is not below the key's own. That edge leads back to an ancestor in the search, so a path closes it.

The three loops are plain Python over arrays; they are compiled when the input is large enough to be worth it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proofs_check.bounds.fates import Fates, Step

COMPILE_ABOVE = 20_000  # entries from which compiled loops win over compiling them

Array = NDArray[np.int32]


@dataclass(frozen=True)
class Graph:
    """Deaths ordered by row and slot; spans ordered by key, those of key k at first[k]:first[k + 1]."""

    dead: Array
    death_row: Array
    slot: Array
    low: Array
    high: Array
    first: Array
    deaths_of: Array  # deaths ordered by key, those of key k at first_death[k]:first_death[k + 1]
    first_death: Array
    keys: int

    @property
    def size(self) -> int:
        return len(self.dead) + len(self.low) + self.keys


def graph(fates: Fates, keys: int) -> Graph:
    """The implicit graph over that many keys."""
    stride = int(max(fates.need.max(initial=0), fates.push.max(initial=0))) + 2
    dying = np.flatnonzero(fates.death)
    moment = fates.row[dying].astype(np.int64) * stride + fates.death[dying]
    if np.any(moment[1:] < moment[:-1]):
        order = np.argsort(moment, kind="stable")
        dying, moment = dying[order], moment[order]
    needed = np.flatnonzero(fates.need)
    start = fates.row[needed].astype(np.int64) * stride
    low = np.searchsorted(moment, start + fates.push[needed]).astype(np.int32)
    high = np.searchsorted(moment, start + fates.need[needed]).astype(np.int32)
    some = low < high
    key = fates.key[needed][some]
    by_key = np.argsort(key, kind="stable")
    dead = fates.key[dying]
    return Graph(
        dead=dead,
        death_row=fates.row[dying],
        slot=fates.death[dying],
        low=low[some][by_key],
        high=high[some][by_key],
        first=_offsets(key, keys),
        deaths_of=np.argsort(dead, kind="stable").astype(np.int32),
        first_death=_offsets(dead, keys),
        keys=keys,
    )


def _offsets(key: Array, keys: int) -> Array:
    return np.concatenate([[0], np.cumsum(np.bincount(key, minlength=keys))]).astype(np.int32)


def least_levels(g: Graph) -> tuple[Array, Array]:
    """Levels from 1, each the least possible, and for each death the highest level that has to survive it (0: none).

    The levels are right exactly when every death's key lies above what survives it; otherwise there is a cycle.
    """
    order = _run(_finish_order, g)(g.first, g.low, g.high, g.dead)
    return _run(_levels, g)(order, g.first, g.low, g.high, g.deaths_of, g.first_death)


def cycle(g: Graph, levels: Array, survives: Array) -> list[Step]:
    """A cycle of steps, after `least_levels` found levels that do not fit: the shortest through a few such edges."""
    broken = np.flatnonzero(survives >= levels[g.dead])
    best: list[Step] = []
    for death in broken[: max(1, 1_000_000 // g.size)].tolist():
        dead, alive = int(g.dead[death]), _cover(g, levels, death)
        through = _run(_search, g)(g.first, g.low, g.high, g.dead, dead, alive)
        path: list[Step] = [Step(int(g.death_row[death]), alive, dead)]
        while alive != dead:
            by = through[alive]  # the death by which the search first came to this key
            path.append(Step(int(g.death_row[by[0]]), int(by[1]), alive))
            alive = int(by[1])
        if not best or len(path) < len(best):
            best = path[:1] + path[:0:-1]
        if len(best) <= 2:
            break
    return best


def _cover(g: Graph, levels: Array, death: int) -> int:
    """A key with a span over the death and a level not below its key's."""
    spans = np.flatnonzero((g.low <= death) & (death < g.high))
    keys = np.searchsorted(g.first, spans, side="right") - 1
    return int(keys[np.argmax(levels[keys])])


def _run(loop: Callable[..., Any], g: Graph) -> Callable[..., Any]:
    if g.size <= COMPILE_ABOVE:
        return loop
    from numba import njit

    return njit(cache=True)(loop)


# The loops. Arrays in, arrays out; they run as they stand or compiled.


def _finish_order(first, low, high, dead):
    """Keys in the order in which depth-first search finishes them."""
    keys = len(first) - 1
    following = np.arange(len(dead) + 1)  # union-find: the first unvisited death at or after each
    visited = np.zeros(keys, np.bool_)
    order = np.empty(keys, np.int32)
    stack = np.empty(keys, np.int32)
    span = first[:keys].copy()
    finished = 0
    for root in range(keys):
        if visited[root]:
            continue
        visited[root] = True
        stack[0], depth = root, 1
        while depth:
            key = stack[depth - 1]
            if span[key] == first[key + 1]:
                order[finished] = key
                finished += 1
                depth -= 1
                continue
            death = low[span[key]]
            while following[death] != death:
                following[death] = following[following[death]]
                death = following[death]
            if death >= high[span[key]]:
                span[key] += 1
                continue
            following[death] = death + 1
            if not visited[dead[death]]:
                visited[dead[death]] = True
                stack[depth] = dead[death]
                depth += 1
    return order


def _levels(order, first, low, high, deaths_of, first_death):
    """Levels along the reverse of `order`, and at each death the highest level whose span covers it."""
    deaths = len(deaths_of)
    raised = np.zeros(2 * deaths + 2, np.int32)  # a segment tree over the deaths: leaf d at deaths + d
    levels = np.zeros(len(order), np.int32)
    for at in range(len(order) - 1, -1, -1):
        key = order[at]
        highest = 0
        for entry in range(first_death[key], first_death[key + 1]):
            node = deaths + deaths_of[entry]
            while node:
                highest = max(highest, raised[node])
                node //= 2
        levels[key] = highest + 1
        for span in range(first[key], first[key + 1]):
            left, right = deaths + low[span], deaths + high[span]
            while left < right:
                if left % 2:
                    raised[left] = max(raised[left], levels[key])
                    left += 1
                if right % 2:
                    right -= 1
                    raised[right] = max(raised[right], levels[key])
                left //= 2
                right //= 2
    for node in range(2, 2 * deaths):
        raised[node] = max(raised[node], raised[node // 2])
    return levels, raised[deaths : 2 * deaths]


def _search(first, low, high, dead, source, goal):
    """Breadth-first search from source until goal: for each key seen the death and the key it was first seen by."""
    keys = len(first) - 1
    following = np.arange(len(dead) + 1)
    seen = np.full((keys, 2), -1, np.int64)
    queue = np.empty(keys, np.int32)
    queue[0], head, tail = source, 0, 1
    while head < tail and seen[goal, 0] < 0:
        key = queue[head]
        head += 1
        for span in range(first[key], first[key + 1]):
            death = low[span]
            while True:
                while following[death] != death:
                    following[death] = following[following[death]]
                    death = following[death]
                if death >= high[span]:
                    break
                following[death] = death + 1
                if dead[death] != source and seen[dead[death], 0] < 0:
                    seen[dead[death], 0], seen[dead[death], 1] = death, key
                    queue[tail] = dead[death]
                    tail += 1
    return seen
