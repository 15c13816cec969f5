"""Forgetting attention with a learned relative bias: gates and, as in softmax with one, a number per distance.

Gates alone can only push older keys down. What THEORY.md says about FoX heads allows any bias per key; this is the
head that has them.
"""

import torch

from lab.heads.fox import FoxHead
from lab.heads.positional import RelativeBias
from lab.ops import reference


class FoxRelativeHead(FoxHead):
    """s q_i.k_j + b_{i-j} + sum of log f over the tokens after j up to i."""

    def __init__(self, config, vocab_size, seeds, *, max_len, **scales):
        super().__init__(config, vocab_size, seeds, **scales)
        self.positional = RelativeBias(self._normal(self.initial_scale, max_len))

    def logits(self, tokens, *, num_queries=None, smoothing=0.0):
        length = tokens.shape[-1]
        query, key = self.embed(tokens, num_queries)
        row = torch.arange(length - query.shape[-2], length, device=tokens.device)[:, None]
        distance = (row - torch.arange(length, device=tokens.device)).clamp_min(0)
        bias = self.positional.bias(length)[:, None, distance]  # type: ignore[union-attr]
        return reference.fox_logits(query, key, self.log_gate(tokens), bias=bias, scale=self.scale)
