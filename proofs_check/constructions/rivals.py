"""rivals: Selective Attention evicts a chosen key too, with content dimension 3 (THEORY.md).

Selective Attention (Leviathan et al., arXiv 2410.02703): token t has a selection logit on every token j before it, a
content logit q_t . k_j; what is positive of it is taken from the attention logits of j at all queries after t.

    token            query                                key
    key j            0                                    (x_j^2, x_j, 1)        x_j = j
    drop l           2 M (-1, 2 x_l, 1/2 - x_l^2)         (0, 0, -1)
    keep             0                                    (0, 0, -1)
    query            (0, 0, M)                            (0, 0, -1)

The selection logit of *drop l* on key j is 2 M (1/2 - (x_j - x_l)^2): M for j = l, negative for every other key, so it
takes M from key l and from no other. *query* reads M at keys and -M elsewhere. So live keys have the logit M, dead ones
0 and all other tokens at most -M: uniform, one fixed query, every subset of every number of keys, dimension 3.

What First Passage Attention adds is therefore not eviction as such: it does it with scalars per token, the same for
any number of keys (here every slot has its own *drop*, with numbers of size l^2), O(T) state and the order of a stack.
Logits whose effective query depends on the key, as in PaTH, escape frozen-ratio as well.
"""

from collections.abc import Collection, Sequence

Vector = tuple[int, int, int]


def tokens(keys: int, target: Collection[int]) -> list[str]:
    """K1 D1 .. Kn Dn Q with a *drop* of its own for each slot."""
    pairs = [(f"key {key}", "keep" if key in target else f"drop {key}") for key in range(keys)]
    return [token for pair in pairs for token in pair] + ["query"]


def query_vector(token: str, margin: int) -> Vector:
    """The query of a token; `margin` is M."""
    kind, _, number = token.partition(" ")
    if kind == "drop":
        x = int(number)
        return (-2 * margin, 4 * margin * x, margin - 2 * margin * x * x)
    return (0, 0, margin) if kind == "query" else (0, 0, 0)


def key_vector(token: str) -> Vector:
    """The key of a token."""
    kind, _, number = token.partition(" ")
    return (int(number) ** 2, int(number), 1) if kind == "key" else (0, 0, -1)


def logits(sequence: Sequence[str], margin: int) -> list[int]:
    """The attention logits of the last token: its content logits minus all positive selection logits before it."""
    taken = [0] * len(sequence)
    for at, token in enumerate(sequence[:-1]):
        for before in range(at):
            taken[before] += max(0, dot(query_vector(token, margin), key_vector(sequence[before])))
    asked = query_vector(sequence[-1], margin)
    return [dot(asked, key_vector(token)) - gone for token, gone in zip(sequence, taken)]


def dot(left: Vector, right: Vector) -> int:
    """Their product."""
    return sum(a * b for a, b in zip(left, right))
