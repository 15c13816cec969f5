"""family-decision: which specifications First Passage Attention realises with free levels (THEORY.md).

Content dimension 0, one level per key shared by all rows, dips free per row at the slots; a key is alive when its
penalty is 0. Let key b have to die in a row, at the earliest at slot s (`fates`), and let key a be pushed before s and
read by a query after s. Then the dip that kills b leaves a alive, so level_a < level_b.

Claim. If no key is revived and every key that must die has a slot, the specification is realised if and only if the
graph of these edges a -> b is acyclic.

Proof. Only if: shown above. If: take levels that increase along the edges, and put at every slot s where some key must
die in the row a dip of value

    u_s = the highest level of the keys pushed before s and needed after it   (0, below every level, if there is none).

It spares every key that is needed later. It kills every b that must die at s, since level_b is above each of those.
Whatever else it kills is needed by no later query. So at every query the target is alive; and any other key pushed
before it was due to die at an earlier slot.                                                                       QED

With the least levels the dead carry penalties of at least 1, because levels and dips are whole numbers.

Consequences. A slot after every key: edges lead only to later keys, so every family is realised. Dips only at the end:
two sets of which neither holds the other give a cycle of two, so exactly the chains are realised. One history alone:
an edge leads to a key that dies earlier, so every history without revived keys is realised (any-eviction).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proofs_check.bounds.fates import Dips, Impossible, NoSlot, Revived, Step, fates
from proofs_check.bounds.level_order import cycle, graph, least_levels
from proofs_check.keysets import Family, KeySetSpec


@dataclass(frozen=True)
class Levels:
    """The least levels, one per key from 1, and the dips of every row."""

    levels: NDArray[np.int32]
    dips: Dips


@dataclass(frozen=True)
class Cycle:
    """Steps that force level < level < ... back to the first: the specification is impossible."""

    steps: tuple[Step, ...]


def family_decision(spec: KeySetSpec) -> Levels | Cycle | Revived | NoSlot:
    """Levels and dips that realise the specification, or why there are none.

    Time and memory grow like the size n of the input (for a family: keys times targets), times log n for the levels.
    Raises `InputError` for a family of more than MAX_PAIRS keys times targets.
    """
    try:
        entries = fates(spec)
    except Impossible as impossible:
        return impossible.witness
    g = graph(entries, len(spec.keys))
    levels, survives = least_levels(g)
    if np.any(survives >= levels[g.dead]):
        return Cycle(tuple(cycle(g, levels, survives)))
    moment = np.stack([g.death_row, g.slot])
    new = np.ones(len(g.slot), bool)  # all deaths at one slot of a row share one dip
    new[1:] = np.any(moment[:, 1:] != moment[:, :-1], axis=0)
    dips = Dips.of_entries(entries.rows, g.death_row[new], g.slot[new], survives[new])
    return Levels(levels, dips.without_repeats() if isinstance(spec, Family) else dips)
