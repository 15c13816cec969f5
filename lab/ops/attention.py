"""Attention with forgetting for model-sized shapes, forward and backward, without the matrix of weights.

`fpa_attention`, `fox_attention` and `softmax_attention` take what the functions of the same names in reference.py take
and return what they return, gradients included. float32 and float64 on the CPU go through compiled tiles
(attention_kernels.py): time O(T^2), memory O(T) beyond inputs and outputs, the same bits for any number of threads.
Everything else goes to the reference, which one line in the log says.
"""

import logging
import math
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from lab.errors import InputError
from lab.ops import attention_kernels as kernels
from lab.ops import kinds, reference
from lab.ops.threads import run_chunks
from lab.ops.tile_product import ROWS

# Few heads are cut into parts of rows, so that there is work for several threads; never by the number of threads,
# which must not change a bit of the result. Backward holds a gradient of the keys for every part.
_ITEMS, _ROWS_OF_A_PART = 8, 512


def fpa_attention(
    query: Float[Tensor, "*lead queries head_dim"],
    key: Float[Tensor, "*lead keys head_dim"],
    value: Float[Tensor, "*lead keys value_dim"],
    field: Float[Tensor, "*lead keys"],
    level: Float[Tensor, "*lead keys"],
    *,
    penalty_scale: float | Tensor = 1.0,
    smoothing: float = 0.0,
    bias: Float[Tensor, "*#lead #queries #keys"] | None = None,
    key_mask: Bool[Tensor, "*#lead keys"] | None = None,
    scale: float | None = None,
    logit_bound: float | None = None,
    tolerance: float = 1e-6,
) -> Float[Tensor, "*lead queries value_dim"]:
    """First Passage Attention: logits s q_i.k_j - lambda max(0, level_j - min of the field between j and i).

    Leading axes broadcast; queries may be fewer than keys and are then the last positions; a row that sees no key is 0.
    `penalty_scale` is lambda, a number or a tensor over the leading axes with two axes of size 1 after them.

    With `logit_bound` U, a promise that |s q.k| <= U for every query and key, keys are left out by the tile, at a row
    and at all later ones, once lambda times the penalty of each is at least 2U + ln(T / tolerance): a row then loses
    at most `tolerance` of its mass (safe-eviction in THEORY.md). Where that does not follow (lambda < 0, a later query
    whose own key is masked), and on the reference path, nothing is left out.

    Raises InputError for shapes that do not fit, more queries than keys, and bounds out of range.
    """
    heads = _heads(
        "fpa_attention", query, key, value, field=field, level=level, key_mask=key_mask, penalty_scale=penalty_scale
    )
    threshold = _threshold(key.shape[-2], logit_bound, tolerance)
    if not 0.0 <= smoothing < math.inf:
        raise InputError(f"fpa_attention: smoothing: expected a finite number from 0 up, got {smoothing}")
    unfit = _unfit(bias, penalty_scale, query, key, value, field, level, key_mask)
    if unfit:
        _say_once(f"fpa_attention: no compiled path for {unfit}; using the reference operations")
        return reference.fpa_attention(
            query, key, value, field, level,
            penalty_scale=penalty_scale, smoothing=smoothing, bias=bias, key_mask=key_mask, scale=scale,
        )  # fmt: skip
    return _attend(
        kinds.FPA, heads, query, key, value, field, level, penalty_scale, key_mask, scale, smoothing, threshold
    )


def fox_attention(
    query: Float[Tensor, "*lead queries head_dim"],
    key: Float[Tensor, "*lead keys head_dim"],
    value: Float[Tensor, "*lead keys value_dim"],
    log_gate: Float[Tensor, "*lead keys"],
    *,
    bias: Float[Tensor, "*#lead #queries #keys"] | None = None,
    key_mask: Bool[Tensor, "*#lead keys"] | None = None,
    scale: float | None = None,
    logit_bound: float | None = None,
    tolerance: float = 1e-6,
) -> Float[Tensor, "*lead queries value_dim"]:
    """Forgetting attention (arXiv 2503.02130): logits s q_i.k_j + the log gates after j, up to i.

    Everything else as in `fpa_attention`; with a positive log gate, `logit_bound` skips nothing.
    """
    heads = _heads("fox_attention", query, key, value, log_gate=log_gate, key_mask=key_mask)
    threshold = _threshold(key.shape[-2], logit_bound, tolerance)
    unfit = _unfit(bias, 1.0, query, key, value, log_gate, key_mask)
    if unfit:
        _say_once(f"fox_attention: no compiled path for {unfit}; using the reference operations")
        return reference.fox_attention(query, key, value, log_gate, bias=bias, key_mask=key_mask, scale=scale)
    return _attend(kinds.FOX, heads, query, key, value, log_gate, None, 1.0, key_mask, scale, 0.0, threshold)


def softmax_attention(
    query: Float[Tensor, "*lead queries head_dim"],
    key: Float[Tensor, "*lead keys head_dim"],
    value: Float[Tensor, "*lead keys value_dim"],
    *,
    bias: Float[Tensor, "*#lead #queries #keys"] | None = None,
    key_mask: Bool[Tensor, "*#lead keys"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*lead queries value_dim"]:
    """Causal softmax attention, the same kernels without forgetting. Everything else as in `fpa_attention`."""
    heads = _heads("softmax_attention", query, key, value, key_mask=key_mask)
    unfit = _unfit(bias, 1.0, query, key, value, key_mask)
    if unfit:
        _say_once(f"softmax_attention: no compiled path for {unfit}; using the reference operations")
        return reference.softmax_attention(query, key, value, bias=bias, key_mask=key_mask, scale=scale)
    return _attend(kinds.SOFTMAX, heads, query, key, value, None, None, 1.0, key_mask, scale, 0.0, math.inf)


def _attend(
    kind: int,
    heads: torch.Size,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    signal: Tensor | None,
    level: Tensor | None,
    penalty_scale: float | Tensor,
    key_mask: Tensor | None,
    scale: float | None,
    smoothing: float,
    threshold: float,
) -> Tensor:
    """Flattens the leading axes, and goes through the compiled operator; signal is the field or the log gates."""

    def flat(x: Tensor, axes: int) -> Tensor:
        return x.expand(*heads, *x.shape[-axes:]).reshape(heads.numel(), *x.shape[-axes:])

    none = torch.empty(heads.numel(), 0, dtype=torch.float64)
    lambdas = torch.as_tensor(penalty_scale, dtype=torch.float64)
    out, _ = _forward(
        kind,
        flat(query, 2),
        flat(key, 2),
        flat(value, 2),
        none.bool() if key_mask is None else flat(~key_mask, 1),
        none if signal is None else flat(signal.double(), 1),
        none if level is None else flat(level.double(), 1),
        lambdas.reshape(lambdas.shape[:-2]).expand(heads).reshape(-1),
        1.0 / math.sqrt(max(1, query.shape[-1])) if scale is None else float(scale),
        float(smoothing),
        threshold,
    )
    return out.reshape(*heads, *out.shape[-2:])


# --- the operators --------------------------------------------------------------------------------------------------


def _padded(x: Tensor) -> Tensor:
    """What the kernels take for queries and for the gradient of the output."""
    rows, columns = -x.shape[1] % ROWS, -x.shape[2] % kernels.PAD
    return (F.pad(x, (0, columns, 0, rows)) if rows or columns else x).contiguous()


def _array(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()


def _problem(kind, query, key, value, hidden, signal, level, penalty_scale, scale, smoothing, threshold):
    heads, queries, _ = query.shape
    parts = max(1, min(_ITEMS // max(1, heads), queries // _ROWS_OF_A_PART))
    tensors = (_padded(query), key, value, hidden, signal, level, penalty_scale)
    arrays: list[Any] = [_array(x) for x in tensors]
    return kernels.Problem._make([kind, parts, *arrays, scale, smoothing, threshold])


# The kernels themselves clear what they sum into: torch would do it on its own threads, which keep spinning for
# milliseconds after any work and take the processor from ours.


@torch.library.custom_op("lab::attention", mutates_args=())
def _forward(
    kind: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hidden: Tensor,
    signal: Tensor,
    level: Tensor,
    penalty_scale: Tensor,
    scale: float,
    smoothing: float,
    threshold: float,
) -> tuple[Tensor, Tensor]:
    """(output, log sum of each row) of heads one after another; the arguments are those of `kernels.forward`."""
    problem = _problem(kind, query, key, value, hidden, signal, level, penalty_scale, scale, smoothing, threshold)
    heads, rows, _ = problem.query.shape
    queries, value_dim = query.shape[1], value.shape[2]
    out = query.new_empty(heads, rows, value_dim + -value_dim % kernels.PAD)
    lse = query.new_empty(heads, queries, dtype=torch.float64)
    outputs = _array(out), _array(lse)
    run_chunks(lambda first, last: kernels.forward(first, last, problem, *outputs), heads * problem.parts)
    return out[:, :queries, :value_dim].contiguous(), lse


@_forward.register_fake
def _(kind, query, key, value, hidden, signal, level, penalty_scale, scale, smoothing, threshold):
    heads, queries, _ = query.shape
    return query.new_empty(heads, queries, value.shape[2]), query.new_empty(heads, queries, dtype=torch.float64)


@torch.library.custom_op("lab::attention_backward", mutates_args=())
def _backward(
    grad: Tensor,
    out: Tensor,
    lse: Tensor,
    kind: int,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    hidden: Tensor,
    signal: Tensor,
    level: Tensor,
    penalty_scale: Tensor,
    scale: float,
    smoothing: float,
    threshold: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of query, key, value, signal, level and penalty_scale."""
    problem = _problem(kind, query, key, value, hidden, signal, level, penalty_scale, scale, smoothing, threshold)
    heads, queries, dim = query.shape
    d_query = query.new_empty(problem.query.shape)
    by_part = [x.new_empty(heads, problem.parts, *x.shape[1:]) for x in (key, value, signal, level, penalty_scale)]
    gradients = kernels.Gradients(*(_array(x) for x in (d_query, *by_part)))
    given = _array(out), _array(lse), _array(_padded(grad))
    run_chunks(lambda first, last: kernels.backward(first, last, problem, *given, gradients), heads * problem.parts)
    d_key, d_value, d_signal, d_level, d_scale = (x.sum(1) if problem.parts > 1 else x.squeeze(1) for x in by_part)
    return d_query[:, :queries, :dim].contiguous(), d_key, d_value, d_signal, d_level, d_scale


@_backward.register_fake
def _(grad, out, lse, kind, query, key, value, hidden, signal, level, penalty_scale, scale, smoothing, threshold):
    return tuple(torch.empty_like(x) for x in (query, key, value, signal, level, penalty_scale))


def _keep(ctx, inputs, output) -> None:
    kind, *tensors, scale, smoothing, threshold = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*output, *tensors)
    ctx.options = kind, scale, smoothing, threshold


def _differentiate(ctx, grad, _):
    out, lse, *tensors = ctx.saved_tensors
    kind, *options = ctx.options
    query, key, value, signal, level, penalty_scale = _backward(grad, out, lse, kind, *tensors, *options)
    return None, query, key, value, None, signal, level, penalty_scale, None, None, None


_forward.register_autograd(_differentiate, setup_context=_keep)


# --- what fits ------------------------------------------------------------------------------------------------------


def _heads(
    name: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    penalty_scale: float | Tensor = 1.0,
    **by_key: Tensor | None,
) -> torch.Size:
    """The leading axes of everything together; InputError where shapes do not fit."""
    for argument, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() < 2:
            raise InputError(f"{name}: {argument}: expected positions and dimensions as last axes, got {_shape(x)}")
    keys = key.shape[-2]
    if query.shape[-1] != key.shape[-1]:
        raise InputError(f"{name}: key: expected the query's last axis ({query.shape[-1]}), got {_shape(key)}")
    if query.shape[-2] > keys:
        raise InputError(f"{name}: query: expected at most as many positions as the key ({keys}), got {_shape(query)}")
    if value.shape[-2] != keys:
        raise InputError(f"{name}: value: expected {keys} positions, as the key has, got {_shape(value)}")
    leads = {"query": query.shape[:-2], "key": key.shape[:-2], "value": value.shape[:-2]}
    mask = by_key.get("key_mask")
    if mask is not None and mask.dtype != torch.bool:
        raise InputError(f"{name}: key_mask: expected booleans, True where a key may be read, got {mask.dtype}")
    if isinstance(penalty_scale, Tensor):
        leads["penalty_scale"] = penalty_scale.shape[:-2]
    for argument, of_key in by_key.items():
        if of_key is not None:
            if of_key.dim() < 1 or of_key.shape[-1] != keys:
                raise InputError(f"{name}: {argument}: expected {keys} positions as last axis, got {_shape(of_key)}")
            leads[argument] = of_key.shape[:-1]
    try:
        return torch.broadcast_shapes(*leads.values())
    except RuntimeError:
        shapes = ", ".join(f"{argument} {tuple(lead)}" for argument, lead in leads.items())
        raise InputError(f"{name}: leading axes: expected shapes that broadcast, got {shapes}") from None


def _shape(x: Tensor) -> str:
    return f"shape {tuple(x.shape)}"


def _threshold(keys: int, logit_bound: float | None, tolerance: float) -> float:
    """How much every key of a tile must have been forgotten by before the tile is left out."""
    if logit_bound is None:
        return math.inf
    if not logit_bound >= 0.0:
        raise InputError(f"attention: logit_bound: expected a number from 0 up, got {logit_bound}")
    if not 0.0 < tolerance < 1.0:
        raise InputError(f"attention: tolerance: expected a number between 0 and 1, got {tolerance}")
    return 2.0 * logit_bound + math.log(max(1, keys) / tolerance)


def _unfit(
    bias: Tensor | None,
    penalty_scale: float | Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *others: Tensor | None,
) -> str | None:
    """Why the compiled path does not apply, or None."""
    if bias is not None:
        return "a bias"
    scales = [penalty_scale] if isinstance(penalty_scale, Tensor) else []
    for x in (query, key, value, *others, *scales):
        if x is not None and x.device.type != "cpu":
            return f"tensors on {x.device.type}"
    if any(x.shape[-2:].numel() > 1 for x in scales):
        return "a penalty_scale by query or key"
    dtypes = {x.dtype for x in (query, key, value)}
    if len(dtypes) > 1:
        return "query, key and value of several dtypes"
    return None if dtypes <= {torch.float32, torch.float64} else str(query.dtype)


@cache
def _say_once(message: str) -> None:
    logging.getLogger("lab.ops").warning(message)
