"""The head that a decision describes, and the sequences of its specification in that head's tokens.

Free levels: one token per key, with its level; a direct field that is the highest level everywhere except at dips,
which have one token per value. Tied levels: one token "key" that takes the walk up by 1, and one token "fall k" per
size of a fall to the height of a dip.
"""

from collections.abc import Iterable
from itertools import accumulate, chain

from proofs_check.bounds.family_decision import Levels
from proofs_check.bounds.walk_is_a_stack import INCREMENT, Heights
from proofs_check.constructions.token_head import TokenHead
from proofs_check.keysets import Event, Family, KeySetSpec

QUERY = "query"


Case = tuple[int, int]
"""A query of a specification: its row, and its event counted from 1."""

Sequence = tuple[list[str], list[int]]
"""Token names up to a query, and the positions that it should read."""


def decided_head(spec: KeySetSpec, found: Levels | Heights, cases: Iterable[Case]) -> tuple[TokenHead, list[Sequence]]:
    """The head with the tokens that these cases need, and their sequences."""
    values: dict[str, int] = {QUERY: int(found.levels.max()) if isinstance(found, Levels) else 0}
    levels: dict[str, int] = {}
    sequences = [_sequence(spec, found, case, values, levels) for case in cases]
    keys = frozenset(levels)
    if isinstance(found, Levels):
        return TokenHead(tuple(values), keys, "direct", "free", values, dict.fromkeys(values, 0) | levels), sequences
    return TokenHead(tuple(values), keys, "walk", "tied", values, {}), sequences


def _sequence(
    spec: KeySetSpec, found: Levels | Heights, case: Case, values: dict[str, int], levels: dict[str, int]
) -> Sequence:
    """The sequence of a case; notes the numbers of its tokens in `values` and `levels`."""
    row, until = case
    history = events(spec, row)[:until]
    dips = dict(found.dips.of(row, until)) if isinstance(found, Levels) else _falls(spec, found, row, until)
    tokens: list[str] = []
    position: dict[int, int] = {}
    for count, event in enumerate(history, 1):
        if not isinstance(event, int):
            tokens.append(QUERY)
        else:
            position[event] = len(tokens)
            token = f"key {spec.keys[event]}" if isinstance(found, Levels) else "key"
            tokens.append(token)
            values[token] = values[QUERY] if isinstance(found, Levels) else INCREMENT
            levels[token] = int(found.levels[event]) if isinstance(found, Levels) else 0
        if count in dips:
            token = f"{'dip' if isinstance(found, Levels) else 'fall'} {dips[count]}"
            tokens.append(token)
            values[token] = dips[count] if isinstance(found, Levels) else -dips[count]
    target = history[-1]
    assert not isinstance(target, int)
    return tokens, [position[key] for key in target]


def events(spec: KeySetSpec, row: int) -> tuple[Event, ...]:
    """The events of a row: of a family's set, all pushes and the query."""
    if isinstance(spec, Family):
        return (*range(len(spec.keys)), spec.targets[row])
    return spec.histories[row]


def _falls(spec: KeySetSpec, found: Heights, row: int, until: int) -> dict[int, int]:
    """How far the walk falls at each dip of a row before an event."""
    falls, walk, seen = {}, 0, 0
    pushes = list(accumulate(isinstance(event, int) for event in events(spec, row)[:until]))
    for after, height in found.dips.of(row, until):
        walk += INCREMENT * (pushes[after - 1] - seen)
        falls[after], walk, seen = walk - height, height, pushes[after - 1]
    return falls


def queries(spec: KeySetSpec) -> Iterable[Case]:
    """Every query of the specification."""
    if isinstance(spec, Family):
        return ((row, len(spec.keys) + 1) for row in range(len(spec.targets)))
    return chain.from_iterable(
        ((row, count) for count, event in enumerate(history, 1) if not isinstance(event, int))
        for row, history in enumerate(spec.histories)
    )
