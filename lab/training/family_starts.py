"""Starts from known solutions, to tell what a head cannot represent from what training does not find.

A construction of `proofs_check` (fox-table and simple-upper in its THEORY.md) is written into the numbers of a real
head, and the random start, made small, is added to it: every seed starts near the same solution, none at it.
"""

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import torch

from lab.errors import InputError
from lab.heads.base import Head
from lab.heads.fox_relative import FoxRelativeHead
from lab.tasks.subset_free import SubsetFree

if TYPE_CHECKING:
    from proofs_check.constructions.linear_head import LinearHead

# Of the random start that is added: content is drawn with deviation 1, biases and gates with that of the recipe.
NOISE = 0.1
# A gate that is to stay open: log sigmoid(10) = -0.00005.
OPEN = 10.0
# The gap that the logits are scaled to, and window over gap. Total variation 0.05 takes small windows, large gaps.
SCALES = {"separation": (6.0, Fraction(1, 5)), "window": (6.0, Fraction(1, 5)), "uniform": (10.0, Fraction(1, 50))}


def construction(task: SubsetFree) -> "tuple[LinearHead, float]":
    """The FoX head of the least known dimension for the task's notion, in exact numbers, and its gap."""
    from proofs_check.bounds.cases import cases
    from proofs_check.constructions import fox_table, simple_upper
    from proofs_check.keysets import Family

    targets = tuple(tuple(np.flatnonzero(row).tolist()) for row in task.alive())
    names = tuple(str(j + 1) for j in range(task.keys))
    family = cases(Family(names, targets, tuple(range(task.keys))))
    ratio = SCALES[task.notion][1]
    if task.notion == "separation":
        one_gate = task.tokens == "shared"
        head = (
            simple_upper.groups(family, "separation", head="fox") if one_gate else fox_table.separation_per_slot(family)
        )
    elif task.tokens == "shared":
        head = fox_table.window_one_gate(family, ratio)
    else:
        head = fox_table.window_per_slot(family, ratio)
    assert head is not None  # all subsets of at most ten keys, with dips after each
    gap = head.measure(family)[1]
    return head, 1.0 if gap is None else float(gap)


@torch.no_grad()
def start_from_construction(head: Head, task: SubsetFree) -> None:
    """Writes the construction, plus NOISE times the random start of content, into a fox-relative head.

    Raises InputError for other heads and where the construction needs another dimension.
    """
    where = f"{task.name}: start"
    if not isinstance(head, FoxRelativeHead) or task.query != "free":
        raise InputError(f"{where}: constructions are for fox-relative heads with free queries")
    exact, gap = construction(task)
    if head.config.dim != exact.dimension:
        raise InputError(f"{where}: dim: the construction has dimension {exact.dimension}, not {head.config.dim}")
    scale = SCALES[task.notion][0] / gap
    query, key, bias, gates = (
        np.array(x, dtype=np.float64) for x in (exact.queries, exact.keys, exact.biases, exact.gates)
    )
    query, key = query.reshape(task.targets, -1), key.reshape(task.keys, -1)
    if gates.min() < 0:  # keep tokens count then: what the drops give, all slots less the keeps give
        bias = bias - gates[0] * np.arange(task.keys, 0, -1)
    n, first, slots = task.keys, task.first_drop, task.slots
    # q and k of about the same size have the same logits, and both move at the same rate.
    balance = np.sqrt(np.abs(query).max(initial=1e-9) * scale / head.scale / np.abs(key).max(initial=1e-9))
    content_query, content_key = query * scale / head.scale / balance, key * balance
    head.query.mul_(NOISE)
    head.key.mul_(NOISE)
    head.query[:, task.first_query :] += torch.from_numpy(content_query).float()
    head.key[:, :n] += torch.from_numpy(content_key).float()
    head.positional.by_distance[:, 2 * n - 2 * np.arange(n)] += torch.from_numpy(scale * bias).float()  # type: ignore[union-attr,index,operator]
    head.gate.data += OPEN
    closed = slice(first, first + slots) if gates.min() >= 0 else slice(first + slots, first + 2 * slots)
    head.gate[:, closed] += torch.from_numpy(_under_sigmoid(scale * np.abs(gates[:slots])) - OPEN).float()


def _under_sigmoid(fall: np.ndarray) -> np.ndarray:
    """x with -log sigmoid(x) = fall, for fall > 0."""
    return -(fall + np.log1p(-np.exp(-fall)))
