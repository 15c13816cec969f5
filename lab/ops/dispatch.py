"""One door to the target-set loss and the metrics: the compiled path on the CPU, the reference elsewhere.

A head hands its logits over in one of three forms: by token (TokenLogits), by position (PositionLogits), or as the
matrix itself (DenseLogits). `target_loss` and `read_sequences` take any of them.
"""

import logging
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lab.ops import reading, reference
from lab.ops.kinds import FOX, FPA, SOFTMAX
from lab.ops.step_ops import position_step, token_step, wide_token_step

Kind = Literal["softmax", "fox", "fpa"]
_KINDS = {"softmax": SOFTMAX, "fox": FOX, "fpa": FPA}


@dataclass(frozen=True)
class TokenLogits:
    """The logits of a token-level head on a batch of sequences, in the factors the fast path wants.

    table: logit before forgetting, by (query token, key token, distance); the last distance stands for all farther.
    bias: added to it by distance alone, likewise: a table of width 1 and a bias are much faster than their sum.
    gate: log forget gates (FoX). field, level, penalty_scale: FPA. What a head does not have is None.
    """

    kind: Kind
    table: Float[Tensor, "seeds vocab vocab width"]
    bias: Float[Tensor, "seeds width"] | None = None
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
        if self.bias is not None:
            distance = (position[:, None] - position).clamp(0, self.bias.shape[-1] - 1)
            logits = logits + self.bias[:, None, distance]
        if self.kind == "fox":
            assert self.gate is not None
            logits = logits + reference.fox_bias(self.gate)
        elif self.kind == "fpa":
            assert self.field is not None
            assert self.level is not None
            forget = reference.fpa_bias(self.field, self.level, penalty_scale=self.penalty_scale, smoothing=smoothing)
            logits = logits + forget
        return torch.where(reference.causal_mask(length, length, tokens.device), logits, -torch.inf)


@dataclass(frozen=True)
class PositionLogits:
    """The logits of a head whose queries and keys differ from position to position.

    scale: s in s q.k. bias: added by distance; the last one stands for all farther.
    log_gate: FoX. field, level, penalty_scale: FPA. What a head does not have is None.
    """

    kind: Kind
    query: Float[Tensor, "seeds batch length head_dim"]
    key: Float[Tensor, "seeds batch length head_dim"]
    scale: float
    bias: Float[Tensor, "seeds width"] | None = None
    log_gate: Float[Tensor, "seeds batch length"] | None = None
    field: Float[Tensor, "seeds batch length"] | None = None
    level: Float[Tensor, "seeds batch length"] | None = None
    penalty_scale: float = 1.0

    def dense(
        self, tokens: Int[Tensor, "seeds batch length"], smoothing: float = 0.0
    ) -> Float[Tensor, "seeds batch length length"]:
        """The full matrices of logits, by the reference definition."""
        common: dict = {"scale": self.scale, "bias": None}
        if self.bias is not None:
            position = torch.arange(self.query.shape[-2], device=self.query.device)
            distance = (position[:, None] - position).clamp(0, self.bias.shape[-1] - 1)
            common["bias"] = self.bias[:, None, distance]
        if self.kind == "fox":
            return reference.fox_logits(self.query, self.key, self.log_gate, **common)
        if self.kind == "fpa":
            own = {"penalty_scale": self.penalty_scale, "smoothing": smoothing}
            return reference.fpa_logits(self.query, self.key, self.field, self.level, **own, **common)
        return reference.softmax_logits(self.query, self.key, **common)


@dataclass(frozen=True)
class DenseLogits:
    """The matrix itself, for heads of any other kind; it goes through the reference operations and autograd.

    log_weight: the rows of the last `rows` positions; entries after the row's own position are ignored. If `normalised`
    the weights are softmax(log_weight), whatever the rows add up to; if not, they are exp(log_weight) as it stands,
    and may add up to less than 1.
    """

    log_weight: Float[Tensor, "seeds batch rows length"]
    normalised: bool = True

    def dense(
        self, tokens: Int[Tensor, "seeds batch length"], smoothing: float = 0.0
    ) -> Float[Tensor, "seeds batch rows length"]:
        """The matrices, -inf outside the causal triangle."""
        rows, length = self.log_weight.shape[-2:]
        mask = reference.causal_mask(rows, length, self.log_weight.device)
        return torch.where(mask, self.log_weight, -torch.inf)


Logits = TokenLogits | PositionLogits | DenseLogits


def target_loss(
    logits: Logits,
    tokens: Int[Tensor, "seeds batch length"],
    death: Int[Tensor, "seeds batch length"],
    queries: Int[Tensor, "seeds batch length"],
    *,
    smoothing: float = 0.0,
) -> Float[Tensor, " seeds"]:
    """Mean cross-entropy of each seed over its queries; batch arrays as in lab.tasks.Batch, as tensors.

    ValueError when shapes or tokens do not fit one another, when a query stands at a row that `logits` lacks, or when
    the penalty scale is negative.
    """
    _check(logits, tokens, death, queries)
    if isinstance(logits, DenseLogits):
        return reference_target_loss(logits, tokens, death, queries, smoothing=smoothing)
    obstacle = _obstacle(logits, death)
    if obstacle is not None:
        _say_once(f"target_loss: no compiled path on {obstacle}; using the reference operations")
        return reference_target_loss(logits, tokens, death, queries, smoothing=smoothing)
    if isinstance(logits, PositionLogits):
        return _position_loss(logits, death, queries, smoothing)
    return _token_loss(logits, tokens, death, queries, smoothing)


def _check(logits: Logits, tokens: Tensor, death: Tensor, queries: Tensor) -> None:
    """Compiled loops read and write wherever they are told to, so nothing reaches them that does not fit."""
    shape = tuple(tokens.shape)
    shapes = {"death": death.shape, "queries": queries.shape}
    if not isinstance(logits, DenseLogits):
        factors = {name: getattr(logits, name, None) for name in ("gate", "log_gate", "field", "level")}
        shapes |= {name: x.shape for name, x in factors.items() if x is not None}
        if not logits.penalty_scale >= 0:
            raise ValueError(f"penalty_scale: expected at least 0, got {logits.penalty_scale}")
    if isinstance(logits, PositionLogits):
        shapes |= {"query": logits.query.shape[:-1], "key": logits.key.shape[:-1]}
    for name, given in shapes.items():
        if tuple(given) != shape:
            raise ValueError(f"{name}: expected the shape of tokens, {shape}, got {tuple(given)}")
    if isinstance(logits, TokenLogits) and tokens.numel() and tokens.device.type == "cpu":
        vocab = logits.table.shape[1]
        if int(tokens.min()) < 0 or int(tokens.max()) >= vocab:
            raise ValueError(f"tokens: expected 0 to {vocab - 1}, the tokens of the table")


def _obstacle(logits: TokenLogits | PositionLogits, death: Tensor) -> str | None:
    """The device or dtype that the compiled path does not take, if any."""
    if death.device.type != "cpu":
        return death.device.type
    content = logits.query if isinstance(logits, PositionLogits) else logits.table
    return None if content.dtype in (torch.float32, torch.float64) else str(content.dtype)


def _position_loss(logits: PositionLogits, death: Tensor, queries: Tensor, smoothing: float) -> Float[Tensor, " seeds"]:
    """The compiled step, in the dtype of the queries; what is summed or compared over positions is float64 there."""
    dtype = logits.query.dtype
    loss, *_ = position_step(
        _KINDS[logits.kind],
        logits.query,
        logits.key.to(dtype),
        None if logits.bias is None else logits.bias.to(dtype),
        *(_float(x) for x in (logits.log_gate, logits.field, logits.level)),
        death,
        queries,
        float(logits.scale),
        float(logits.penalty_scale),
        float(smoothing),
    )
    return loss


def _token_loss(
    logits: TokenLogits, tokens: Tensor, death: Tensor, queries: Tensor, smoothing: float
) -> Float[Tensor, " seeds"]:
    table, bias = logits.table, logits.bias
    forgetting = [_float(x) for x in (logits.gate, logits.field, logits.level)]
    batch, settings = (tokens, death, queries), (float(logits.penalty_scale), float(smoothing))
    if table.shape[-1] == 1:
        bias = None if bias is None else bias.to(table.dtype)
        return token_step(_KINDS[logits.kind], table[..., 0], bias, *forgetting, *batch, *settings)[0]
    if bias is not None:
        width = torch.arange(max(table.shape[-1], bias.shape[-1]))
        table = table[..., width.clamp_max(table.shape[-1] - 1)]
        table = table + bias[:, width.clamp_max(bias.shape[-1] - 1)][:, None, None, :]
    return wide_token_step(
        _KINDS[logits.kind], table.double(), *(None if x is None else x.double() for x in forgetting), *batch, *settings
    )[0]


def _float(x: Tensor | None) -> Tensor | None:
    """float64, or float32 as it is: the compiled step widens it."""
    return x if x is None or x.dtype == torch.float32 else x.double()


def reference_target_loss(
    logits: Logits,
    tokens: Int[Tensor, "seeds batch length"],
    death: Int[Tensor, "seeds batch length"],
    queries: Int[Tensor, "seeds batch length"],
    *,
    smoothing: float = 0.0,
) -> Float[Tensor, " seeds"]:
    """What `target_loss` must equal, in values and gradients. nan for a seed with a nan in any factor."""
    matrix, targets = logits.dense(tokens, smoothing), dense_targets(death, queries)
    first = _first_row(matrix, queries)
    targets, weight = targets[..., first:, :], queries[..., first:].to(matrix.dtype)
    if isinstance(logits, DenseLogits) and not logits.normalised:
        each = -torch.where(targets, matrix, 0.0).sum(-1) / targets.sum(-1).clamp_min(1)
    else:
        each = reference.target_cross_entropy(matrix, targets)
    loss = (each * weight).sum((1, 2)) / weight.sum((1, 2)).clamp_min(1)
    # Comparisons with nan are false, so one in a field would read as a key that is alive.
    undefined = torch.zeros_like(loss, dtype=torch.bool)
    for name in ("query", "key", "table", "bias", "gate", "log_gate", "field", "level"):
        factor = getattr(logits, name, None)
        if factor is not None:
            undefined = undefined | factor.detach().isnan().flatten(1).any(1)
    return torch.where(undefined, torch.nan, loss)


def _first_row(matrix: Float[Tensor, "seeds batch rows length"], queries: Int[Tensor, "seeds batch length"]) -> int:
    """Position of the first row that the matrix has; ValueError when a query stands before it."""
    first = matrix.shape[-1] - matrix.shape[-2]
    if queries[..., :first].any():
        raise ValueError(f"logits: expected every row with a query, got the last {matrix.shape[-2]} rows only")
    return first


def dense_targets(
    death: Int[Tensor, "*lead length"], queries: Int[Tensor, "*lead length"]
) -> Bool[Tensor, "*lead length length"]:
    """Key j is a target of row i iff j <= i < death_j and row i has a query."""
    length = death.shape[-1]
    row = torch.arange(length, device=death.device)[:, None]
    born = torch.arange(length, device=death.device) <= row
    return born & (death[..., None, :] > row) & (queries[..., :, None] > 0)


def read_sequences(
    logits: Logits,
    tokens: Int[Tensor, "seeds batch length"],
    death: Int[Tensor, "seeds batch length"],
    queries: Int[Tensor, "seeds batch length"],
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of the metrics over each sequence's queries, and the extremes of window and gap; see `reading.read`.

    ValueError as in `target_loss`.
    """
    _check(logits, tokens, death, queries)
    if not isinstance(logits, TokenLogits):
        matrix = logits.dense(tokens).detach()
        for name in ("log_gate", "field", "level"):
            factor = getattr(logits, name, None)
            if factor is not None:
                matrix = torch.where(factor.isnan().any(-1)[..., None, None], torch.nan, matrix)
        _first_row(matrix, queries)
        normalised = not isinstance(logits, DenseLogits) or logits.normalised
        return reading.read_dense(death.cpu().numpy(), queries.cpu().numpy(), _float64(matrix), normalised)
    bias = np.empty((tokens.shape[0], 0)) if logits.bias is None else _float64(logits.bias)
    return reading.read(
        _KINDS[logits.kind],
        tokens.cpu().numpy(),
        death.cpu().numpy(),
        queries.cpu().numpy(),
        _float64(logits.table),
        bias,
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
