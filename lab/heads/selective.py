"""Selective Attention (Leviathan, Kalman and Matias, arXiv 2410.02703): tokens mask earlier ones for later ones."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lab.heads.softmax import SoftmaxHead, make_scheme, positioned_logits
from lab.ops.dispatch import DenseLogits


class SelectiveHead(SoftmaxHead):
    """s q_i.k_j + b_{i-j} - F_ij, F_ij = sum over the rows t before i of S_tj, S = relu of the selection logits.

    The paper takes the selection logits from one of the layer's heads; a lone head has no other, so here they are those
    of a second one, of the same dimension and positional scheme, whose output nobody reads: `select_query`,
    `select_key` and its own bias. As published, no token selects itself (S_ii = 0), a selection counts from the *next*
    row on, and the first token is never selected where it is a beginning-of-sequence token. Sequences of the lab begin
    with none, so that is off by default (`protect_first`). `mask_from` "same" lets a selection count from its own row
    on: what a token has to do whose own query should no longer see the keys that it kills.
    """

    # A number for every pair of positions is held.
    dense = True

    def __init__(self, config, vocab_size, seeds, *, max_len, content_scale=1.0, **scales):
        super().__init__(config, vocab_size, seeds, max_len=max_len, content_scale=content_scale, **scales)
        self.select_query = nn.Parameter(self._normal(content_scale, vocab_size, config.dim))
        self.select_key = nn.Parameter(self._normal(content_scale, vocab_size, config.dim))
        self.select_positional = make_scheme(self, max_len)

    def token_logits(self, tokens):
        return DenseLogits(self.logits(tokens))

    def logits(self, tokens, *, num_queries=None, smoothing=0.0):
        first = 0 if num_queries is None else tokens.shape[-1] - num_queries
        return super().logits(tokens, num_queries=num_queries) - self.masking(tokens)[..., first:, :]

    def masking(self, tokens) -> Float[Tensor, "seeds batch length length"]:
        """F: what is subtracted from the logit of every pair."""
        query, key = self.by_token(self.select_query, tokens), self.by_token(self.select_key, tokens)
        logits = positioned_logits(query, key, self.config.position, self.select_positional, self.scale)
        return accumulated(logits, same_row=self.config.mask_from == "same", protect_first=self.config.protect_first)


def accumulated(
    selection: Float[Tensor, "*lead length length"], *, same_row: bool = False, protect_first: bool = False
) -> Float[Tensor, "*lead length length"]:
    """F of Selective Attention, from selection logits that are -inf after the row's own position.

    A worked example: if row 1 selects key 0 with logit 2 and row 2 selects it with logit 3, then F is 0 at rows 0 and
    1, 2 at row 2 and 5 from row 3 on; with `same_row` it is 0, 2, 5, 5, ...
    """
    length = selection.shape[-1]
    itself = torch.eye(length, dtype=torch.bool, device=selection.device)
    spared = itself | (torch.arange(length, device=selection.device) == 0) if protect_first else itself
    selected = torch.where(spared, 0.0, selection.clamp_min(0.0))
    total = selected.cumsum(-2)
    return total if same_row else total - selected
