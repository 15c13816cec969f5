"""`lab::position_step`: the compiled target-set step of position-level logits as a torch operator with gradients.

The gradients come out of the same pass as the loss, so the operator returns them too, and backward only scales them.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lab.ops import target_step

_Outputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


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
) -> _Outputs:
    """Loss (seeds,) float64 and the gradients of query, key, bias, gate, field and level; see target_step.

    query, key and bias are float32 or float64 alike; gate, field and level float64. Absent ones have gradients of
    size 0.
    """
    outputs = target_step.target_step(
        kind,
        _numpy(query),
        _numpy(key),
        np.empty((query.shape[0], 0), _numpy(query).dtype) if bias is None else _numpy(bias),
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


@position_step.register_fake
def _(kind, query, key, bias, gate, field, level, death, queries, scale, penalty_scale, smoothing):
    absent = query.new_empty((0, 0, 0), dtype=torch.float64)
    return (
        query.new_empty(query.shape[0], dtype=torch.float64),
        query.new_empty(query.shape),
        key.new_empty(key.shape),
        query.new_empty((query.shape[0], 0) if bias is None else bias.shape),
        *(absent.clone() if x is None else x.new_empty(x.shape) for x in (gate, field, level)),
    )


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
    return [
        g * upstream.to(g.dtype).view(-1, *[1] * (g.dim() - 1)) if need else None
        for g, need in zip(ctx.saved_tensors, needed, strict=True)
    ]


def _backward(ctx, upstream, *rest):
    gradients = scaled_gradients(ctx, upstream, ctx.needs_input_grad[1:7])
    return None, *gradients, None, None, None, None, None


position_step.register_autograd(_backward, setup_context=keep_gradients)
