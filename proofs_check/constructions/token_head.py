"""A First Passage Attention head given by exact numbers per token.

Tokens are names. A key token can be read; every other token (dips, the query itself) is masked by one content
dimension: the query vector is 1, the key vector is 0 for key tokens and -mask for the others. When every token is a
key token the content dimension is 0.

How large mask and penalty scale must be: live keys have logit exactly 0. If every dead key carries a penalty of at
least `gap`, then with mask = lambda * gap = ln(T / epsilon) each of the at most T other tokens has at most
epsilon / T of the weight of one live key, so the weights are within epsilon of uniform on the target in total
variation. Both are rounded up to whole numbers, which all formats hold exactly.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

Number = int | Fraction


@dataclass(frozen=True)
class TokenHead:
    """Numbers per token, all of `vocabulary`.

    values: the increment of each token for a walk, its field value for a direct field.
    levels: the level of each token (free), its offset from the walk (offset), or nothing (tied).
    gap: the least penalty of a dead key, as the construction proves it.
    """

    vocabulary: tuple[str, ...]
    key_tokens: frozenset[str]
    field: Literal["walk", "direct"]
    level: Literal["tied", "offset", "free"]
    values: Mapping[str, Number]
    levels: Mapping[str, Number]
    gap: Number = 1

    @property
    def dimension(self) -> int:
        """Content dimension: 1 if there are tokens to mask, else 0."""
        return int(len(self.key_tokens) < len(self.vocabulary))

    def mask(self, length: int, epsilon: float) -> int:
        """How far below the live keys the tokens that are no keys stand, in sequences of at most that length."""
        return math.ceil(math.log(length / epsilon))

    def penalty_scale(self, length: int, epsilon: float) -> int:
        """lambda for a total variation of at most epsilon in sequences of at most that length."""
        return math.ceil(Fraction(self.mask(length, epsilon)) / self.gap)

    def penalties(self, tokens: Sequence[str]) -> list[Number]:
        """max(0, level_j - min of the field after j), exactly, for a query at the last position."""
        field: list[Number] = []
        for token in tokens:
            before = field[-1] if field and self.field == "walk" else 0
            field.append(before + self.values[token])
        result: list[Number] = []
        lowest: Number | None = None  # of the field after the key; nothing lies after the last position
        for token, height in zip(reversed(tokens), reversed(field)):
            level = height if self.level == "tied" else self.levels[token]
            level += height if self.level == "offset" else 0
            result.append(0 if lowest is None else max(0, level - lowest))
            lowest = height if lowest is None else min(lowest, height)
        return result[::-1]

    def alive(self, tokens: Sequence[str]) -> list[int]:
        """Positions of the keys without penalty at the last position."""
        penalties = self.penalties(tokens)
        return [at for at, token in enumerate(tokens) if token in self.key_tokens and penalties[at] == 0]
