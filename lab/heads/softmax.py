"""Softmax attention with no positions, ALiBi, a learned relative bias, or RoPE."""

import torch

from lab.heads.base import Head
from lab.heads.positional import Alibi, RelativeBias, rotate
from lab.ops import reference
from lab.ops.dispatch import TokenLogits


class SoftmaxHead(Head):
    """s q_i.k_j + b_{i-j}; under RoPE q and k are rotated instead."""

    positional: Alibi | RelativeBias | None

    def __init__(self, config, vocab_size, seeds, *, max_len, **scales):
        super().__init__(config, vocab_size, seeds, **scales)
        self.positional = make_scheme(self, max_len)

    def logit_table(self, length):
        if self.config.position == "rope":
            position = torch.arange(length, dtype=torch.float64, device=self.query.device)
            # Rotating only the query by the distance gives the same inner product as rotating both.
            turned = rotate(self.query[:, :, None, :].expand(-1, -1, length, -1), position)
            return self.scale * torch.einsum("sawd,sbd->sabw", turned, reference.widen(self.key))
        content = self.content_table()[..., None]
        return content if self.positional is None else content + self.positional.bias(length)[:, None, None, :]

    def token_logits(self, tokens):
        return TokenLogits("softmax", self.logit_table(tokens.shape[-1]))

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
