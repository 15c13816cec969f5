"""First Passage Attention: field walk | direct, level tied | offset | free."""

import torch
from torch import nn

from lab.heads.base import Head
from lab.ops import reference
from lab.ops.dispatch import TokenLogits


class FpaHead(Head):
    """s q_i.k_j - lambda max(0, level_j - min of the field after j up to i).

    field: walk, the cumulative sum of one increment per token; direct, one value per token.
    level: tied, the field at the key; offset, that plus one number per token; free, one value per token.
    """

    # Only those that the configuration asks for exist; each (seeds, vocab).
    increment: nn.Parameter
    field_value: nn.Parameter
    offset: nn.Parameter
    level_value: nn.Parameter

    def __init__(self, config, vocab_size, seeds, **scales):
        super().__init__(config, vocab_size, seeds, **scales)
        drift = self.initial_drift if config.field == "walk" else 0.0
        values = nn.Parameter(drift + self._normal(self.initial_scale, vocab_size))
        self.register_parameter("increment" if config.field == "walk" else "field_value", values)
        if config.level != "tied":
            levels = nn.Parameter(self._normal(self.initial_scale, vocab_size))
            self.register_parameter("offset" if config.level == "offset" else "level_value", levels)

    def field_and_level(self, tokens):
        """Field and level, each float64 (seeds, batch, length); a walk is summed in the configuration's dtype."""
        if self.config.field == "walk":
            dtype = getattr(torch, self.config.sum_dtype)
            field = self.by_token(self.increment.to(dtype), tokens).cumsum(-1).to(torch.float64)
        else:
            field = self.by_token(self.field_value.to(torch.float64), tokens)
        if self.config.level == "tied":
            return field, field
        own = self.by_token((self.offset if self.config.level == "offset" else self.level_value).double(), tokens)
        return field, (field + own if self.config.level == "offset" else own)

    def token_logits(self, tokens):
        field, level = self.field_and_level(tokens)
        length = tokens.shape[-1]
        forgetting = {"field": field, "level": level, "penalty_scale": self.config.penalty_scale}
        return TokenLogits("fpa", self.logit_table(length), self.distance_bias(length), **forgetting)

    def logits(self, tokens, *, num_queries=None, smoothing=0.0):
        query, key = self.embed(tokens, num_queries)
        field, level = self.field_and_level(tokens)
        return reference.fpa_logits(
            query,
            key,
            field,
            level,
            penalty_scale=self.config.penalty_scale,
            smoothing=smoothing,
            scale=self.scale,
        )

    def token_parameters(self):
        names = {"increment": "increment", "field_value": "field", "offset": "offset", "level_value": "level"}
        return {names[name]: p for name, p in self.named_parameters() if name in names}
