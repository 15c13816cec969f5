"""simple-upper: content dimensions that suffice for any targets (THEORY.md). Free queries, a bias per key.

groups. Cut the keys into G groups such that biases and gates alone, without content, read of each group what each query
reads of it. Then d = G - 1: the keys of a group share one content vector, those of the groups are affinely
independent, so a query moves each group up and down as it likes and puts the keys that it reads at one height. One
group per key gives n - 1 for everything.
  * uniform, no gates: keys that the same queries read are one group. d = (number of different such keys) - 1.
  * separation, no gates: the sets of queries that read the keys of a group have to be a chain. So d is one less than
    the least number of chains that cover these sets, by Dilworth the size of the largest antichain; a chain of targets
    takes d = 0.
  * FoX, one gate for all drops: a group is possible if the demands on its biases have a solution, for gates 0, +g or
    -g, and 0 and a large g decide it: a circle of demands sums to a multiple of g minus the number of its strict
    steps. Two neighbours are always possible with dips after each key: d = ceil(n / 2) - 1 for all subsets.

targets. d = (number of targets) - 1, uniform: with H the matrix that is 0 where a query reads a key and -1 where not,
let key j have the content H_ij - H_mj, i < m, and the bias H_mj; the i-th query is the i-th unit vector, the last one
0. Without biases d = number of targets.
"""

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from proofs_check.bounds.cases import Cases, Ints
from proofs_check.constructions.linear_head import LinearHead, fits

MAX_DEMANDS = 50_000_000  # keys^2 * queries up to which biases of groups are looked for
FREE = 2**40  # no demand


def targets(cases: Cases, biases: bool = True) -> LinearHead | None:
    """One dimension per target but one."""
    rows = np.concatenate([cases.alive, cases.present], axis=1)
    _, first, kind = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    kind = kind.reshape(-1)
    size = len(first) - biases
    if not fits(cases, size):
        return None
    height = cases.alive[first].astype(int) - 1
    last = height[-1] if biases else np.zeros(cases.keys, int)
    content = (height[:size] - last).T
    queries = np.eye(len(first), dtype=int)[kind, :size]
    return LinearHead("one dimension per target", content.tolist(), last.tolist(), queries.tolist())


def columns(cases: Cases) -> LinearHead | None:
    """One dimension per different key but one, uniform, no biases: keys that the same queries read share a vector."""
    if cases.block is None:
        return None
    _, kind = np.unique(cases.alive, axis=1, return_inverse=True)
    return _grouped(cases, "one dimension per key", kind.reshape(-1), np.zeros(cases.keys, np.int64), 0)


def groups(cases: Cases, notion: str, *, head: str = "softmax") -> LinearHead | None:
    """The fewest groups found, for the notions separation and uniform."""
    if cases.keys**2 * cases.queries > MAX_DEMANDS:
        return columns(cases)
    if head == "softmax" and notion == "separation" and cases.block is not None:
        return _grouped(cases, "chains of keys", *_chain_cover(cases), 0)
    step = 2 * cases.keys
    gates = (step, -step) if head == "fox" and cases.block is not None else (0,)
    found = [(gate, *_first_fit(_demands(cases, notion, gate))) for gate in gates]
    gate, kind, value = min(found, key=lambda option: option[1].max())
    return _grouped(cases, "groups of keys", kind, value, gate)


def _chain_cover(cases: Cases) -> tuple[Ints, Ints]:
    """The fewest chains of keys, and as biases the place in each chain: of two keys the one that more queries read is
    higher. A matching of keys to their successors is as large as possible."""
    missing = (~cases.alive).astype(np.int64)
    contains = missing.T @ cases.alive == 0  # [x, y]: whoever reads y reads x
    size = cases.alive.sum(0)
    order = np.arange(cases.keys)
    follows = contains & ((size[:, None] > size) | ((size[:, None] == size) & (order[:, None] < order)))
    successor = maximum_bipartite_matching(csr_matrix(follows), perm_type="column")
    kind, value = np.full(cases.keys, -1), np.zeros(cases.keys, np.int64)
    for number, head in enumerate(np.setdiff1d(order, successor).tolist()):
        key = head
        while key >= 0:
            kind[key], value[key] = number, size[key]
            key = int(successor[key])
    return kind, value


def _demands(cases: Cases, notion: str, gate: int) -> Ints:
    """least[x, y]: the least bound on bias of x - bias of y."""
    n = cases.keys
    drops = cases.drops_after() if gate else np.zeros((1, n), np.int64)
    least = np.full((n, n), FREE)
    for x in range(n):
        shift = gate * (drops[:, [x]] - drops)
        strict = cases.dead[:, [x]] & cases.alive
        least[x] = np.where(strict, shift - 1, FREE).min(0)
        if notion == "uniform":
            least[x] = np.minimum(least[x], np.where(cases.alive[:, [x]] & cases.alive, shift, FREE).min(0))
    np.fill_diagonal(least, 0)
    return least


def _first_fit(least: Ints) -> tuple[Ints, Ints]:
    """Puts each key into the first group that still has a solution; group and bias of each key."""
    members: list[list[int]] = []
    ways: list[Ints] = []  # of each group the least bounds that follow from all its demands
    for key in range(len(least)):
        for at, (group, way) in enumerate(zip(members, ways)):
            before, after = least[group, key], least[key, group]
            into, out = (way + before).min(1), (after[:, None] + way).min(0)
            if (into + after).min() < 0:
                continue
            ways[at] = np.block(
                [[np.minimum(way, into[:, None] + out), into[:, None]], [out[None], np.zeros((1, 1), int)]]
            )
            group.append(key)
            break
        else:
            members.append([key])
            ways.append(np.zeros((1, 1), np.int64))
    kind, value = np.zeros(len(least), np.int64), np.zeros(len(least), np.int64)
    for number, (group, way) in enumerate(zip(members, ways)):
        kind[group], value[group] = number, np.minimum(way.min(1), 0)
    return kind, value


def _grouped(cases: Cases, name: str, kind: Ints, value: Ints, gate: int) -> LinearHead | None:
    """Content by group, and queries that put the read keys of every group at one height."""
    count = int(kind.max()) + 1
    if not fits(cases, count - 1):
        return None
    logits = value - gate * cases.drops_after() if gate else np.broadcast_to(value, cases.alive.shape)
    shift = np.stack([_shift(cases, logits, kind == group) for group in range(count)], axis=1)
    content = np.eye(count, dtype=int)[kind, : count - 1]
    queries = shift[:, :-1] - shift[:, -1:]
    gates = [int(gate)] * cases.keys if gate else ()
    return LinearHead(name, content.tolist(), value.tolist(), queries.tolist(), gates)


def _shift(cases: Cases, logits: Ints, group) -> Ints:
    """Per query what takes the lowest read key of the group to 0, or if it reads none the highest other one to -1."""
    lowest = np.where(cases.alive & group, logits, FREE).min(1)
    highest = np.where(cases.dead & group, logits, -FREE).max(1)
    return np.where(lowest < FREE, -lowest, np.where(highest > -FREE, -highest - 1, 0))
