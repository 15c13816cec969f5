"""First Passage Attention that also prefers what is newer: a penalty and a recency bias in one logit."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from lab.heads.fpa import FpaHead
from lab.heads.positional import Alibi
from lab.ops import reference
from lab.ops.dispatch import DenseLogits


class FpaRecencyHead(FpaHead):
    """The logits of `FpaHead`, plus what `config.recency` says of key j at query i.

    alibi: a learned slope times the distance i - j, as in the softmax head of that name.
    gate: the sum of the log forget gates of the tokens after j up to i, as in the FoX head; log f = log sigmoid(gate).
    """

    def __init__(self, config, vocab_size, seeds, **scales):
        super().__init__(config, vocab_size, seeds, **scales)
        if config.recency == "alibi":
            self.positional = Alibi(len(self.seeds))
        else:
            self.gate = nn.Parameter(config.gate_bias + self._normal(self.initial_scale, vocab_size))

    def log_gate(self, tokens):
        """Log forget gates (seeds, batch, length), in float64, as in the FoX head."""
        return self.by_token(F.logsigmoid(self.gate.float()).to(torch.float64), tokens)

    def token_logits(self, tokens):
        """With gates the matrix itself: the factored forms have either gates or a field."""
        if self.positional is not None:
            return super().token_logits(tokens)
        return _HeadLogits(self.logits(tokens), head=self)

    def logits(self, tokens, *, num_queries=None, smoothing=0.0):
        query, key = self.embed(tokens, num_queries)
        field, level = self.field_and_level(tokens)
        settings = {"penalty_scale": self.config.penalty_scale, "smoothing": smoothing, "scale": self.scale}
        bias = self._recency(tokens, query.shape[-2])
        return reference.fpa_logits(query, key, field, level, bias=bias, **settings)

    def _recency(self, tokens, num_queries):
        if self.positional is None:
            return reference.fox_bias(self.log_gate(tokens), num_queries)
        length = tokens.shape[-1]
        row = torch.arange(length - num_queries, length, device=tokens.device)[:, None]
        distance = (row - torch.arange(length, device=tokens.device)).clamp_min(0)
        return self.positional.bias(length)[:, None, distance]

    def token_parameters(self):
        own = super().token_parameters()
        return own if self.positional is not None else {**own, "gate": self.gate}


@dataclass(frozen=True, kw_only=True)
class _HeadLogits(DenseLogits):
    """The matrix of a head, worked out again where it is wanted smoothed."""

    head: FpaRecencyHead

    def dense(self, tokens, smoothing=0.0):
        return self.head.logits(tokens, smoothing=smoothing) if smoothing else super().dense(tokens)
