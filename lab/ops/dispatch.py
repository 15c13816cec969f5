"""One door to the target-set loss and the metrics: the compiled path on the CPU, the reference elsewhere."""

import logging
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lab.ops import fused, reference

Kind = Literal["softmax", "fox", "fpa"]
_KINDS = {"softmax": fused.SOFTMAX, "fox": fused.FOX, "fpa": fused.FPA}


@dataclass(frozen=True)
class TokenLogits:
    """The logits of a token-level head on a batch of sequences, in the factors the fast path wants.

    table: logit before forgetting, by (query token, key token, distance); the last distance stands for all farther.
    gate: log forget gates (FoX). field, level, penalty_scale: FPA. What a head does not have is None.
    """

    kind: Kind
    table: Float[Tensor, "seeds vocab vocab width"]
    gate: Float[Tensor, "seeds batch length"] | None = None
    field: Float[Tensor, "seeds batch length"] | None = None
    level: Float[Tensor, "seeds batch length"] | None = None
    penalty_scale: float = 1.0

    def dense(
        self, tokens: Int[Tensor, "seeds batch length"], smoothing: float = 0.0
    ) -> Float[Tensor, "seeds batch length length"]:
        """The full matrices of logits, by the reference definition."""
        length = tokens.shape[-1]
        position = torch.arange(length, device=tokens.device)
        distance = (position[:, None] - position).clamp(0, self.table.shape[-1] - 1)
        seed = torch.arange(tokens.shape[0], device=tokens.device)[:, None, None, None]
        logits = self.table[seed, tokens[..., :, None], tokens[..., None, :], distance]
        if self.kind == "fox":
            assert self.gate is not None
            logits = logits + reference.fox_bias(self.gate)
        elif self.kind == "fpa":
            assert self.field is not None
            assert self.level is not None
            logits = logits - self.penalty_scale * reference.penalty(self.field, self.level, smoothing=smoothing)
        return torch.where(reference.causal_mask(length, length, tokens.device), logits, -torch.inf)


class _FusedStep(torch.autograd.Function):
    """Loss and gradients come out of one compiled pass; backward only scales them."""

    @staticmethod
    def forward(ctx, kind, table, gate, field, level, scale, smoothing, tokens, death, queries):
        loss, *gradients = fused.target_step(
            _KINDS[kind],
            tokens.numpy(),
            death.numpy(),
            queries.numpy(),
            _float64(table),
            _float64(gate),
            _float64(field),
            _float64(level),
            scale,
            smoothing,
        )
        kept = [
            None if x is None else torch.from_numpy(g).to(x.dtype)
            for x, g in zip((table, gate, field, level), gradients, strict=True)
        ]
        ctx.gradients = kept
        return torch.from_numpy(loss)

    @staticmethod
    def backward(ctx, *upstream):
        (out,) = upstream
        scaled = [None if g is None else g * out.to(g.dtype).view(-1, *[1] * (g.dim() - 1)) for g in ctx.gradients]
        return (None, *scaled, None, None, None, None, None)


def target_loss(
    logits: TokenLogits,
    tokens: Int[Tensor, "seeds batch length"],
    death: Int[Tensor, "seeds batch length"],
    queries: Int[Tensor, "seeds batch length"],
    *,
    smoothing: float = 0.0,
) -> Float[Tensor, " seeds"]:
    """Mean cross-entropy of each seed over its queries; batch arrays as in lab.tasks.Batch, as tensors."""
    if tokens.device.type != "cpu":
        _say_once(f"target_loss: no compiled path on {tokens.device.type}; using the reference operations")
        return reference_target_loss(logits, tokens, death, queries, smoothing=smoothing)
    return _FusedStep.apply(
        logits.kind,
        logits.table,
        logits.gate,
        logits.field,
        logits.level,
        float(logits.penalty_scale),
        float(smoothing),
        tokens,
        death,
        queries,
    )


def reference_target_loss(logits, tokens, death, queries, *, smoothing=0.0) -> Float[Tensor, " seeds"]:
    """What `target_loss` must equal, in values and gradients."""
    each = reference.target_cross_entropy(logits.dense(tokens, smoothing), dense_targets(death, queries))
    weight = queries.to(each.dtype)
    return (each * weight).sum((1, 2)) / weight.sum((1, 2)).clamp_min(1)


def dense_targets(
    death: Int[Tensor, "*lead length"], queries: Int[Tensor, "*lead length"]
) -> Bool[Tensor, "*lead length length"]:
    """Key j is a target of row i iff j <= i < death_j and row i has a query."""
    length = death.shape[-1]
    row = torch.arange(length, device=death.device)[:, None]
    born = torch.arange(length, device=death.device) <= row
    return born & (death[..., None, :] > row) & (queries[..., :, None] > 0)


def read_sequences(
    logits: TokenLogits,
    tokens: Int[Tensor, "seeds batch length"],
    death: Int[Tensor, "seeds batch length"],
    queries: Int[Tensor, "seeds batch length"],
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the metrics over each sequence's queries, and the extremes of window and gap; see `fused.read`."""
    return fused.read(
        _KINDS[logits.kind],
        tokens.cpu().numpy(),
        death.cpu().numpy(),
        queries.cpu().numpy(),
        _float64(logits.table),
        _float64(logits.gate),
        _float64(logits.field),
        _float64(logits.level),
        float(logits.penalty_scale),
    )


def _float64(x: Tensor | None) -> np.ndarray:
    """What the compiled path takes; an empty array stands for what a head does not have."""
    return np.empty((0, 0, 0)) if x is None else x.detach().double().cpu().contiguous().numpy()


@cache
def _say_once(message: str) -> None:
    logging.getLogger("lab.ops").warning(message)
