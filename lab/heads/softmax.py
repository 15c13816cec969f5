"""Softmax attention with no positions, ALiBi, a learned relative bias, or RoPE."""

import torch

from lab.heads.base import Head
from lab.heads.positional import Alibi, RelativeBias, rotate, rotated_products
from lab.ops import reference
from lab.ops.dispatch import TokenLogits


class SoftmaxHead(Head):
    """s q_i.k_j + b_{i-j}; under RoPE q and k are rotated instead."""

    def __init__(self, config, vocab_size, seeds, *, max_len, **scales):
        super().__init__(config, vocab_size, seeds, **scales)
        self.positional = make_scheme(self, max_len)

    def logit_table(self, length):
        if self.config.position == "rope":
            return self.scale * rotated_products(self.query, self.key, length)
        return super().logit_table(length)

    def token_logits(self, tokens):
        length = tokens.shape[-1]
        return TokenLogits("softmax", self.logit_table(length), self.distance_bias(length))

    def logits(self, tokens, *, num_queries=None, smoothing=0.0):
        query, key = self.embed(tokens, num_queries)
        return positioned_logits(query, key, self.config.position, self.positional, self.scale)


def make_scheme(head, max_len):
    """The learned bias of the scheme that a head's configuration names; None for a scheme that learns none."""
    if head.config.position == "alibi":
        return Alibi(len(head.seeds))
    if head.config.position == "relative":
        return RelativeBias(head._normal(head.initial_scale, max_len))
    return None


def positioned_logits(query, key, position, positional, scale):
    """Softmax logits under a positional scheme; query (..., Q, d) are the last Q positions of key (..., K, d).

    `positional` is the learned bias of the schemes "alibi" and "relative", with one leading axis of seeds, as query
    and key have.
    """
    num_queries, length = query.shape[-2], key.shape[-2]
    first, bias = length - num_queries, None
    if position == "rope":
        place = torch.arange(length, dtype=torch.float64, device=key.device)
        query, key = rotate(query, place[first:]), rotate(key, place)
    elif positional is not None:
        place = torch.arange(length, device=key.device)
        bias = positional.bias(length)[:, None, (place[first:, None] - place).clamp_min(0)]
    return reference.softmax_logits(query, key, bias=bias, scale=scale)
