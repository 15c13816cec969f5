"""tied-tokens: a head with one increment per token type, and the sequences that it reads (THEORY.md).

Whole increments and offsets, so that a dead key carries a penalty of at least 1.
"""

from collections.abc import Iterable

from proofs_check.bounds.tied_tokens import Found
from proofs_check.constructions.decided import Case, Sequence
from proofs_check.constructions.token_head import TokenHead
from proofs_check.keysets import Histories


def tied_head(spec: Histories, found: Found) -> TokenHead:
    """The head of a specification that names tokens; its vocabulary is the token types."""
    assert spec.tokens is not None
    types = spec.tokens.types
    pushed = {token for row in spec.tokens.rows for token, event in row if isinstance(event, int)}
    offsets = {types[number]: offset for number, offset in found.offsets.items()}
    return TokenHead(
        vocabulary=types,
        key_tokens=frozenset(types[number] for number in pushed if number is not None),
        field="walk",
        level=found.levels,
        values=dict(zip(types, found.increments)),
        levels={} if found.levels == "tied" else dict.fromkeys(types, 0) | offsets,
    )


def tied_sequences(spec: Histories, cases: Iterable[Case]) -> list[Sequence]:
    """Token names up to each case's query, and the positions that it should read.

    A case counts pushes and queries, not tokens that stand alone. A query with a token stands at that token, one
    without at the token before it.
    """
    assert spec.tokens is not None
    types, sequences = spec.tokens.types, []
    for row, until in cases:
        tokens: list[str] = []
        position: dict[int, int] = {}
        for number, event in spec.tokens.rows[row]:
            if number is not None:
                tokens.append(types[number])
            if isinstance(event, int):
                position[event] = len(tokens) - 1
            until -= event is not None
            if not until:
                break
        assert event is not None
        assert not isinstance(event, int)
        sequences.append((tokens, [position[key] for key in event]))
    return sequences
