"""Two attention layers on a residual stream: what depth adds to softmax and FoX heads. The last layer is supervised."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from lab.heads.base import Head
from lab.heads.positional import rotate
from lab.heads.softmax import make_scheme, positioned_logits
from lab.ops import reference
from lab.ops.dispatch import PositionLogits


class TwoLayerHead(Head):
    """One head per layer of dimension d on a residual stream of width 4 d; no normalisation, no biases.

    Token x enters the stream as its embedding e(x), and layer 1 adds o_i, its attention-weighted values. Query, key and
    gate of layer 2 are linear in e(x_i) + o_i: what they make of e(x) is a number per token, so here

        query_i = query[x_i] + o_i W_query    key_j = key[x_j] + o_j W_key    gate_t = gate[x_t] + o_t . w_gate

    and likewise layer 1 has embeddings of its own for query, key and value. With `mlp`, o_i is joined by a hidden layer
    of 4 * width rectified units that sees both e(x_i) and o_i: the usual order of a transformer block.
    """

    # A number for every pair of positions is held.
    dense = True

    def __init__(self, config, vocab_size, seeds, *, max_len, content_scale=1.0, **scales):
        super().__init__(config, vocab_size, seeds, content_scale=content_scale, **scales)
        dim, width = config.dim, 4 * config.dim
        self.first_query = nn.Parameter(self._normal(content_scale, vocab_size, dim))
        self.first_key = nn.Parameter(self._normal(content_scale, vocab_size, dim))
        self.first_value = nn.Parameter(self._normal(content_scale, vocab_size, width))
        std = 1.0 / math.sqrt(max(1, width))
        self.to_query = nn.Parameter(self._normal(std, width, dim))
        self.to_key = nn.Parameter(self._normal(std, width, dim))
        if config.mlp:
            self.hidden_bias = nn.Parameter(self._normal(content_scale, vocab_size, 4 * width))
            self.to_hidden = nn.Parameter(self._normal(std, width, 4 * width))
            self.from_hidden = nn.Parameter(self._normal(std / 2, 4 * width, width))
        self.first_positional = self.positional = None
        if config.layer == "fox":
            self.first_gate = nn.Parameter(config.gate_bias + self._normal(self.initial_scale, vocab_size))
            self.gate = nn.Parameter(config.gate_bias + self._normal(self.initial_scale, vocab_size))
            self.to_gate = nn.Parameter(self._normal(self.initial_scale * std, width))
        else:
            self.first_positional = make_scheme(self, max_len)
            self.positional = make_scheme(self, max_len)

    def first_layer(self, tokens):
        """What layer 1 (and the hidden units) add to the stream, (seeds, batch, length, width)."""
        query, key = self.by_token(self.first_query, tokens), self.by_token(self.first_key, tokens)
        if self.config.layer == "fox":
            logits = reference.fox_logits(
                query, key, self._log(self.by_token(self.first_gate, tokens)), scale=self.scale
            )
        else:
            logits = positioned_logits(query, key, self.config.position, self.first_positional, self.scale)
        value = reference.widen(self.by_token(self.first_value, tokens))
        added = reference.masked_softmax(logits).to(value.dtype) @ value
        if self.config.mlp:
            hidden = self.by_token(self.hidden_bias, tokens) + through(added, self.to_hidden)
            added = added + through(torch.relu(hidden), self.from_hidden)
        return added

    @staticmethod
    def _log(gate):
        """Log forget gates, in float64: they are summed over thousands of positions."""
        return F.logsigmoid(gate.float()).to(torch.float64)

    def second_layer(self, tokens):
        """Query, key (seeds, batch, length, dim) and log gate (seeds, batch, length) or None of layer 2."""
        added = self.first_layer(tokens)
        query = self.by_token(self.query, tokens) + through(added, self.to_query)
        key = self.by_token(self.key, tokens) + through(added, self.to_key)
        if self.config.layer != "fox":
            return query, key, None
        gate = self.by_token(self.gate, tokens) + (added @ self.to_gate[:, None, :, None].to(added.dtype)).squeeze(-1)
        return query, key, self._log(gate)

    def token_logits(self, tokens):
        """Logits by position: the second layer's queries and keys depend on what came before."""
        query, key, log_gate = self.second_layer(tokens)
        bias = None
        if self.config.position == "rope":
            place = torch.arange(tokens.shape[-1], dtype=torch.float64, device=tokens.device)
            query, key = rotate(query, place), rotate(key, place)
        elif self.positional is not None:
            bias = self.positional.bias(tokens.shape[-1])
        return PositionLogits(self.config.layer, query, key, self.scale, bias=bias, log_gate=log_gate)

    def logits(self, tokens, *, num_queries=None, smoothing=0.0):
        query, key, log_gate = self.second_layer(tokens)
        query = query[..., tokens.shape[-1] - (num_queries or tokens.shape[-1]) :, :]
        if log_gate is not None:
            return reference.fox_logits(query, key, log_gate, scale=self.scale)
        return positioned_logits(query, key, self.config.position, self.positional, self.scale)


def through(vectors, matrix):
    """(seeds, batch, length, n) times each seed's own (n, m) matrix."""
    return vectors @ matrix[:, None].to(vectors.dtype)
