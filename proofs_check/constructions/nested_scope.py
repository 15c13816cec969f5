"""nested-scope: the same numbers read the keys of all scopes still open, at every depth and length (THEORY.md).

    token       key   open   close
    increment     0     +1      -1                walk field, tied levels

The walk is the depth, and a key's level is the depth at which it stands. A key at depth d is in a scope that is still
open if and only if the depth has not fallen below d since. If it has not, its penalty is exactly 0; if it has, the
closing bracket took the walk to d - 1 and the penalty is at least 1. Keys at depth 0 never die. Every position may be
a query; where it is a key itself, it reads itself too.

Learned increments are never exactly opposite; what that costs is the claim walk-drift.
"""

import math
from fractions import Fraction

from proofs_check.constructions.token_head import Number, TokenHead

VOCABULARY = ("key", "open", "close")


def nested_scope(opening: Number = 1, closing: Number = -1, offset: Number = 0) -> TokenHead:
    """The head, exact as it stands; its vocabulary is that of the tasks nested-scope and source-scopes.

    Other increments, and a level `offset` below the walk, are what walk-drift speaks about.
    """
    gap = Fraction(-closing) + offset
    return TokenHead(
        vocabulary=VOCABULARY,
        key_tokens=frozenset({"key"}),
        field="walk",
        level="offset" if offset else "tied",
        values={"key": 0, "open": opening, "close": closing},
        levels=dict.fromkeys(VOCABULARY, offset) if offset else {},
        gap=gap if gap > 0 else 1,
    )


def tolerated_pairs(opening: Number, closing: Number, offset: Number = 0) -> int | None:
    """How many closed scopes may lie behind a key before its penalty is wrong; None: any number; -1: not even none.

    walk-drift: a key with m closed scopes behind it finds the walk at m * drift above its own height, where drift =
    opening + closing. It must not be penalised, m * drift >= offset, and the closing bracket of its own scope must
    still kill it, m * drift + closing < offset. The largest m for which both hold; offset is 0 or negative.
    """
    drift = Fraction(opening) + Fraction(closing)
    reach = Fraction(offset) - Fraction(closing)  # how far the walk may rise before closing no longer kills
    if reach <= 0:
        return -1
    if drift == 0:
        return None
    return math.floor(Fraction(offset) / drift) if drift < 0 else math.ceil(reach / drift) - 1
