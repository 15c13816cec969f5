"""The Forgetting Transformer's attention (arXiv 2503.02130) with token-level gates."""

import torch
from torch import nn
from torch.nn import functional as F

from lab.heads.base import Head
from lab.ops import reference
from lab.ops.dispatch import TokenLogits


class FoxHead(Head):
    """s q_i.k_j + sum of log f over the tokens after j up to i; log f = log sigmoid(gate), gate per token."""

    def __init__(self, config, vocab_size, seeds, **scales):
        super().__init__(config, vocab_size, seeds, **scales)
        self.gate = nn.Parameter(config.gate_bias + self._normal(self.initial_scale, vocab_size))

    def log_gate(self, tokens):
        """Log forget gates (seeds, batch, length), in float64: they are summed over thousands of positions."""
        return self.by_token(F.logsigmoid(self.gate.float()).to(torch.float64), tokens)

    def token_logits(self, tokens):
        length = tokens.shape[-1]
        return TokenLogits("fox", self.logit_table(length), self.distance_bias(length), gate=self.log_gate(tokens))

    def logits(self, tokens, *, num_queries=None, smoothing=0.0):
        query, key = self.embed(tokens, num_queries)
        return reference.fox_logits(query, key, self.log_gate(tokens), scale=self.scale)

    def token_parameters(self):
        return {"gate": self.gate}
