"""The compiled target-set steps as torch operators with gradients: logits by position, by token, and by token with a
table that also depends on the distance.

The gradients come out of the same pass as the loss, so the operators return them too, and backward only scales them.
Absent factors are None, and have gradients of size 0.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lab.ops import target_step, wide_step

_Seven = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
_Six = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]
_Five = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@torch.library.custom_op("lab::position_step", mutates_args=(), device_types="cpu")
def position_step(
    kind: int,
    query: Tensor,
    key: Tensor,
    bias: Tensor | None,
    gate: Tensor | None,
    field: Tensor | None,
    level: Tensor | None,
    death: Tensor,
    queries: Tensor,
    scale: float,
    penalty_scale: float,
    smoothing: float,
) -> _Seven:
    """Loss (seeds,) float64 and the gradients of query, key, bias, gate, field and level; see target_step.

    query, key and bias are float32 or float64 alike.
    """
    outputs = target_step.target_step(
        kind,
        _numpy(query),
        _numpy(key),
        _bias_like(query, bias),
        _or_empty(gate),
        _or_empty(field),
        _or_empty(level),
        _numpy(death),
        _numpy(queries),
        scale,
        penalty_scale,
        smoothing,
    )
    return tuple(torch.from_numpy(x) for x in outputs)  # type: ignore[return-value]


def _numpy(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()


def _or_empty(x: Tensor | None) -> np.ndarray:
    return np.empty((0, 0, 0)) if x is None else _numpy(x)


def _bias_like(content: Tensor, bias: Tensor | None) -> np.ndarray:
    return _numpy(content.new_empty((content.shape[0], 0)) if bias is None else bias)


def _fakes(content: Sequence[Tensor], forgetting: Sequence[Tensor | None], *bias: Tensor | None) -> tuple[Tensor, ...]:
    """The shapes of what a step returns: loss, gradients of content, of the bias if it takes one, and of the rest."""
    like, seeds = content[0], content[0].shape[0]
    loss = like.new_empty(seeds, dtype=torch.float64)
    of_content = [x.new_empty(x.shape) for x in content]
    of_bias = [like.new_empty((seeds, 0) if x is None else x.shape) for x in bias]
    of_rest = [
        like.new_empty((0, 0, 0), dtype=torch.float64) if x is None else x.new_empty(x.shape) for x in forgetting
    ]
    return loss, *of_content, *of_bias, *of_rest


@position_step.register_fake
def _(kind, query, key, bias, gate, field, level, death, queries, scale, penalty_scale, smoothing):
    return _fakes([query, key], [gate, field, level], bias)


@torch.library.custom_op("lab::token_step", mutates_args=(), device_types="cpu")
def token_step(
    kind: int,
    table: Tensor,
    bias: Tensor | None,
    gate: Tensor | None,
    field: Tensor | None,
    level: Tensor | None,
    tokens: Tensor,
    death: Tensor,
    queries: Tensor,
    penalty_scale: float,
    smoothing: float,
) -> _Six:
    """The same for a table (seeds, V, V) by query and key token; table and bias are float32 or float64 alike."""
    outputs = target_step.token_step(
        kind,
        _numpy(tokens),
        _numpy(table),
        _bias_like(table, bias),
        _or_empty(gate),
        _or_empty(field),
        _or_empty(level),
        _numpy(death),
        _numpy(queries),
        penalty_scale,
        smoothing,
    )
    return tuple(torch.from_numpy(x) for x in outputs)  # type: ignore[return-value]


@token_step.register_fake
def _(kind, table, bias, gate, field, level, tokens, death, queries, penalty_scale, smoothing):
    return _fakes([table], [gate, field, level], bias)


@torch.library.custom_op("lab::wide_step", mutates_args=(), device_types="cpu")
def wide_token_step(
    kind: int,
    table: Tensor,
    gate: Tensor | None,
    field: Tensor | None,
    level: Tensor | None,
    tokens: Tensor,
    death: Tensor,
    queries: Tensor,
    penalty_scale: float,
    smoothing: float,
) -> _Five:
    """The same for a float64 table (seeds, V, V, width) by query token, key token and distance."""
    outputs = wide_step.target_step(
        kind,
        _numpy(tokens),
        _numpy(death),
        _numpy(queries),
        _numpy(table),
        _or_empty(gate),
        _or_empty(field),
        _or_empty(level),
        penalty_scale,
        smoothing,
    )
    return tuple(torch.from_numpy(x) for x in outputs)  # type: ignore[return-value]


@wide_token_step.register_fake
def _(kind, table, gate, field, level, tokens, death, queries, penalty_scale, smoothing):
    return _fakes([table], [gate, field, level])


def keep_gradients(ctx, inputs, output) -> None:
    """For backward: the gradients are what the operator returned after the loss."""
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def scaled_gradients(ctx, upstream: Tensor | None, needed: Sequence[bool]) -> list[Tensor | None]:
    """The kept gradients, each seed's times what came from above for its loss; None where none is needed.

    RuntimeError when a graph of the gradients is asked for: there is no second derivative.
    """
    if torch.is_grad_enabled():
        raise RuntimeError("target_loss: the compiled path has no second derivatives; use reference_target_loss")
    if upstream is None:
        return [None] * len(needed)
    # The gradient of a sum of losses, as it was kept; what torch traces (a subclass) has no numbers to ask.
    if type(upstream) is Tensor and bool((upstream == 1).all()):
        return [g if need else None for g, need in zip(ctx.saved_tensors, needed, strict=True)]
    return [
        g * upstream.to(g.dtype).view(-1, *[1] * (g.dim() - 1)) if need else None
        for g, need in zip(ctx.saved_tensors, needed, strict=True)
    ]


def _backward(ctx, upstream, *rest):
    return None, *scaled_gradients(ctx, upstream, ctx.needs_input_grad[1:7]), *[None] * 5


def _token_backward(ctx, upstream, *rest):
    return None, *scaled_gradients(ctx, upstream, ctx.needs_input_grad[1:6]), *[None] * 5


def _wide_backward(ctx, upstream, *rest):
    return None, *scaled_gradients(ctx, upstream, ctx.needs_input_grad[1:5]), *[None] * 5


position_step.register_autograd(_backward, setup_context=keep_gradients)
token_step.register_autograd(_token_backward, setup_context=keep_gradients)
wide_token_step.register_autograd(_wide_backward, setup_context=keep_gradients)
