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
        self.positional = None
        if config.position == "alibi":
            self.positional = Alibi(len(self.seeds))
        elif config.position == "relative":
            self.positional = RelativeBias(self._normal(self.initial_scale, max_len))

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
        length = tokens.shape[-1]
        first = 0 if num_queries is None else length - num_queries
        query, key = self.embed(tokens, num_queries)
        bias = None
        if self.config.position == "rope":
            position = torch.arange(length, dtype=torch.float64, device=tokens.device)
            query, key = rotate(query, position[first:]), rotate(key, position)
        elif self.positional is not None:
            row = torch.arange(first, length, device=tokens.device)[:, None]
            distance = (row - torch.arange(length, device=tokens.device)).clamp_min(0)
            bias = self.positional.bias(length)[:, None, distance]
        return reference.softmax_logits(query, key, bias=bias, scale=self.scale)
