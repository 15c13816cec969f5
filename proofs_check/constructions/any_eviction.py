"""any-eviction: every history in which no key comes back to life, with content dimension 0 (THEORY.md).

Positions 1..N. Key j dies at step death_j > j: it is read up to death_j - 1 and not from death_j on; if it never dies,
death_j = N + 1. Numbers per position:

    increment   -1                      the walk at position t is -t
    level       1/2 - death_j           free levels

The least field after j, up to a query at i > j, is -i. So the excess of key j is 1/2 - death_j + i: at most -1/2 while
i < death_j, that is penalty 0, and at least 1/2 once i >= death_j. Adding a constant to field and levels changes
nothing; the published form level -death_j, field -t - 1/2 is the same head. Positions that are no keys are masked, or
read as keys that are dead from the next step on.

The levels hold death times to half a step, so a format that rounds half-integers near N (bfloat16 from N = 128 on)
confuses neighbouring deaths: `run` measures where.
"""

from collections.abc import Sequence
from fractions import Fraction

from proofs_check.constructions.token_head import TokenHead


def any_eviction(death: Sequence[int]) -> TokenHead:
    """The head for one history, its tokens named "1".."N" by position: feed it that sequence.

    death[p] belongs to position p + 1: its key is dead at the positions p' >= death[p] counted from 0, as in
    `lab.tasks.Batch`; len(death) if it never dies; 0 where there is no key.
    """
    vocabulary = tuple(str(position) for position in range(1, len(death) + 1))
    return TokenHead(
        vocabulary=vocabulary,
        key_tokens=frozenset(token for token, dies in zip(vocabulary, death) if dies),
        field="walk",
        level="free",
        values=dict.fromkeys(vocabulary, -1),
        levels={token: Fraction(1, 2) - (dies + 1) for token, dies in zip(vocabulary, death)},
        gap=Fraction(1, 2),
    )
