"""constant-dimension: one set of token-level numbers realises every subset of every number of keys (THEORY.md).

Encoding with dips after each key, K1 D1 K2 D2 ... Kn Dn Q, where Dj is the token *drop* if key j is not in the
target and *keep* if it is. Keys and their tokens do not depend on the target, and the query is one fixed vector.

    token       key   drop   keep   query
    increment    +1     -1      0       0         walk field, tied levels

The argument, for the target {1, 3} of three keys:

    token       K1 D1=keep K2 D2=drop K3 D3=keep Q
    walk         1    1     2    1     2    2    2
    level        1          2          2
    penalty      0          1          0

Before each key the walk stands at the number h of live keys, whose levels are 1..h (h = 0 at the start). A key takes
the walk to h + 1, its level: still nobody above the walk. *keep* and *query* leave the walk. *drop* takes it back
to h: below the newest key's level h + 1 by 1, not below the others. From then on the walk is never below h unless a
later drop takes it there, and a drop takes back only what its own key added. So live keys carry penalty exactly 0
and dropped ones at least 1, for every n and every subset: uniform, with lambda = ln(T / epsilon).
"""

from collections.abc import Collection

from proofs_check.constructions.token_head import TokenHead

VOCABULARY = ("key", "drop", "keep", "query")


def constant_dimension() -> TokenHead:
    """The head; its vocabulary is that of the task subset-drop."""
    return TokenHead(
        vocabulary=VOCABULARY,
        key_tokens=frozenset({"key"}),
        field="walk",
        level="tied",
        values={"key": 1, "drop": -1, "keep": 0, "query": 0},
        levels={},
    )


def encode(keys: int, target: Collection[int]) -> list[str]:
    """K1 D1 ... Kn Dn Q for a target among the keys 0..keys-1; key j stands at position 2j."""
    return [token for key in range(keys) for token in ("key", "keep" if key in target else "drop")] + ["query"]
