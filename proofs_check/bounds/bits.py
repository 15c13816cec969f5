"""bits: FoX queries have to tell targets apart that start alike (THEORY.md).

FoX, or any causal head with contextual gates; free queries, a window smaller than the gap.

Claim. Queries of targets whose first block (up to the first slot after a key that they read) is the same are all
different. With dips after each key: of targets with the same first key. So a query of d coordinates of p bits each,
read by g such targets, has d p >= log2(g); for all subsets of n keys d p >= n - 1.

Proof. With equal queries two such targets were realised by one fixed query, which frozen-ratio rules out.          QED

A window is needed: for separation alone the gates can do all of it, at d = 0 (fox-table), and pay in their own bits.
"""

from collections import Counter

from proofs_check.keysets import Family


def alike(family: Family) -> int:
    """The most targets that need different queries."""
    slots = sorted(family.slots)
    first = Counter(sum(slot < target[0] for slot in slots) for target in family.targets)
    return max(first.values())


def least_bits(family: Family) -> int:
    """The least number of bits of a query, over all its coordinates."""
    return (alike(family) - 1).bit_length()
