"""Stick-breaking attention (Tan, Yang, Courville, Panda and Shen, arXiv 2410.17980): newer keys take first."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from lab.heads.base import Head
from lab.ops import reference
from lab.ops.dispatch import DenseLogits


class StickBreakingHead(Head):
    """Weights beta_ij * product over the keys k after j of (1 - beta_ik), beta = sigmoid(s q_i.k_j); no positions.

    Going back from the query, every key takes its share of what is left of a stick of length 1; what is left at the end
    is given to nobody, so weights may add up to less than 1. The paper starts at the key before the query and has an
    option to start at the query itself: `attend_current`, on by default here, since a key of the lab's tasks is often a
    target of its own row, and a weight of exactly 0 there would make the loss infinite.
    """

    # A number for every pair of positions is held.
    dense = True

    def token_logits(self, tokens):
        return DenseLogits(self.logits(tokens), normalised=False)

    def logits(self, tokens, *, num_queries=None, smoothing=0.0):
        """Log weights: their exponentials are the weights as they stand."""
        query, key = (reference.widen(x) for x in self.embed(tokens, num_queries))
        return log_weights(self.scale * (query @ key.transpose(-1, -2)), attend_current=self.config.attend_current)

    def attend(self, tokens, value, *, num_queries=None, smoothing=0.0):
        weights = self.logits(tokens, num_queries=num_queries).exp()
        return (weights @ value.to(weights.dtype)).to(value.dtype)


def log_weights(
    logits: Float[Tensor, "*lead queries keys"], *, attend_current: bool
) -> Float[Tensor, "*lead queries keys"]:
    """Log of the stick-breaking weights; the queries are the last positions; -inf where a query sees no key.

    A worked example: with every logit 0, a row that sees three keys gives the newest 1/2, then 1/4, then 1/8.
    """
    num_queries, num_keys = logits.shape[-2:]
    row = torch.arange(num_keys - num_queries, num_keys, device=logits.device)[:, None]
    key = torch.arange(num_keys, device=logits.device)
    visible = key <= row if attend_current else key < row
    declined = torch.where(visible, F.logsigmoid(-logits), 0.0)
    later = declined.sum(-1, keepdim=True) - declined.cumsum(-1)  # over the keys after this one
    return torch.where(visible, F.logsigmoid(logits) + later, -torch.inf)
