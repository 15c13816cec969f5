"""The definition: first-passage penalty and the three attentions, in the words of THEORY.md section 1.

Positions run over the last axis; a causal head at query i sees the keys j <= i.

    softmax   a_ij = s q_i.k_j + b_{i-j}
    FoX       a_ij = s q_i.k_j + c_i - c_j                        c = cumsum(log f)
    FPA       a_ij = s q_i.k_j - lambda max(0, level_j - m_ij)    m_ij = min over j < t <= i of field_t

The minimum over nothing is +inf, so a key never penalises itself. Every function takes any leading axes, any
float dtype and any device; half precision is widened to float32 before anything is summed. Queries may be fewer
than keys: they are then the *last* positions (bottom-right alignment, as in decoding).

One gradient convention holds on every path of the lab: at a tie the minimum belongs to the **earliest** position
attaining it (the first passage), and max(0, x) has gradient 0 at 0. Everything here materialises the (queries,
keys) matrix; it is meant to be read and to be tested against. The fast paths are the other files here.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

# softplus is linear beyond this many units: exp(-40) is below the resolution of float64 next to 40.
_SOFTPLUS_LINEAR = 40.0


def widen(x: Tensor) -> Tensor:
    """Half precision becomes float32, everything else stays: sums over positions need the bits."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def causal_mask(num_queries: int, num_keys: int, device: torch.device | None = None) -> Bool[Tensor, "queries keys"]:
    """True where the key is not later than the query; the queries are the last `num_queries` positions."""
    rows = torch.arange(num_keys - num_queries, num_keys, device=device)
    return torch.arange(num_keys, device=device) <= rows[:, None]


def first_passage_index(
    field: Float[Tensor, "*lead keys"], num_queries: int | None = None
) -> Int[Tensor, "*lead queries keys"]:
    """The earliest t with j < t <= i at which the field takes its minimum there; -1 where nothing lies between.

    A worked example: field (0, 2, 1, 1, 5), query 4, key 0. The values after the key are 2, 1, 1, 5; their minimum
    1 is first attained at t = 2, so the entry [4, 0] is 2. Positions where the field is +inf never count.
    """
    field = field.detach()
    num_keys = field.shape[-1]
    num_queries = num_keys if num_queries is None else num_queries
    first = num_keys - num_queries  # position of the first query
    position = torch.arange(num_keys, device=field.device)

    # Row 0: scan t = first, first-1, ..., 1 and let key t-1 see everything scanned so far. Scanning backwards, a
    # later find of the same value is an earlier position, so ties go to the new one (<=).
    backwards = field[..., 1 : first + 1].flip(-1)
    lowest_before = F.pad(torch.cummin(backwards, -1).values[..., :-1], (1, 0), value=math.inf)[
        ..., : backwards.shape[-1]
    ]
    found = (backwards <= lowest_before) & (backwards < math.inf)
    # Positions fall along the scan, so the most recent find is the running minimum of the positions found.
    at = torch.where(found, position[1 : first + 1].flip(-1), num_keys)
    row0_index = torch.cummin(at, -1).values.flip(-1) if first else at
    row0_index = torch.where(row0_index == num_keys, -1, row0_index)
    row0_index = F.pad(row0_index, (0, num_keys - first), value=-1)

    # Later rows: going down, a key's minimum moves only when the new field value is strictly lower.
    later = (position[None, :] < position[first:, None]).expand(*field.shape[:-1], num_queries, num_keys)
    value = torch.where(later, field[..., first:, None], math.inf)
    row0 = torch.where(row0_index >= 0, field.gather(-1, row0_index.clamp_min(0)), math.inf)
    value = torch.cat([row0[..., None, :], value[..., 1:, :]], -2)
    lowest_above = torch.cummin(value, -2).values[..., :-1, :]
    moved = value[..., 1:, :] < lowest_above
    index = torch.where(moved, position[first + 1 :, None], -1)
    return torch.cummax(torch.cat([row0_index[..., None, :], index], -2), -2).values


def first_passage_minimum(
    field: Float[Tensor, "*lead keys"], num_queries: int | None = None
) -> Float[Tensor, "*lead queries keys"]:
    """m_ij = min over j < t <= i of field_t; +inf where nothing lies between. Gradient to the earliest minimum."""
    index = first_passage_index(field, num_queries)
    source = field[..., None, :].expand(*field.shape[:-1], index.shape[-2], field.shape[-1])
    return torch.where(index >= 0, source.gather(-1, index.clamp_min(0)), math.inf)


def penalty(
    field: Float[Tensor, "*lead keys"],
    level: Float[Tensor, "*lead keys"],
    *,
    num_queries: int | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, "*lead queries keys"]:
    """max(0, level_j - m_ij), not yet scaled by lambda; 0 where nothing lies between key and query.

    With `smoothing` tau > 0 it is tau * softplus((level_j - m_ij) / tau), which training uses so that a walk that
    never dips still receives a gradient. Infinite levels and fields are allowed and give penalties 0 or +inf.
    """
    field, level = widen(field), widen(level)
    minimum = first_passage_minimum(field, num_queries)
    excess = level[..., None, :] - minimum
    if smoothing == 0.0:
        return torch.where(level[..., None, :] > minimum, excess, 0.0)
    defined = excess.isfinite()
    smooth = smoothing * F.softplus(torch.where(defined, excess, 0.0) / smoothing, threshold=_SOFTPLUS_LINEAR)
    return torch.where(defined, smooth, torch.where(level[..., None, :] > minimum, math.inf, 0.0))


def softmax_logits(
    query: Float[Tensor, "*lead queries head_dim"],
    key: Float[Tensor, "*lead keys head_dim"],
    *,
    bias: Float[Tensor, "*#lead #queries #keys"] | None = None,
    key_mask: Bool[Tensor, "*#lead keys"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*lead queries keys"]:
    """s q_i.k_j + bias, with -inf after the query and at masked keys. s is 1/sqrt(head_dim) unless given."""
    query, key = widen(query), widen(key)
    scale = 1.0 / math.sqrt(max(1, query.shape[-1])) if scale is None else scale
    logits = scale * (query @ key.transpose(-1, -2))
    if bias is not None:
        # An infinite bias is a mask: kept out of the sum so that its gradient stays finite.
        closed = bias == -math.inf
        logits = torch.where(closed, -math.inf, logits + torch.where(closed, 0.0, widen(bias)))
    visible = causal_mask(logits.shape[-2], logits.shape[-1], logits.device)
    if key_mask is not None:
        visible = visible & key_mask[..., None, :]
    return torch.where(visible, logits, -math.inf)


def fox_bias(
    log_gate: Float[Tensor, "*lead keys"], num_queries: int | None = None
) -> Float[Tensor, "*lead queries keys"]:
    """c_i - c_j with c = cumsum(log f): the log gates after the key, up to the query (arXiv 2503.02130).

    A gate of exactly 0 (log f = -inf) closes everything before it; it is counted apart, since -inf - (-inf) is nan.
    """
    log_gate = widen(log_gate)
    num_queries = log_gate.shape[-1] if num_queries is None else num_queries
    closed = log_gate == -math.inf
    total = torch.where(closed, 0.0, log_gate).cumsum(-1)
    walls = closed.cumsum(-1)
    first = log_gate.shape[-1] - num_queries
    passed_wall = walls[..., first:, None] > walls[..., None, :]
    return torch.where(passed_wall, -math.inf, total[..., first:, None] - total[..., None, :])


def fox_logits(query, key, log_gate, *, bias=None, key_mask=None, scale=None):
    """Forgetting Transformer logits; shapes as in `softmax_logits`, log_gate (..., keys)."""
    forget = fox_bias(log_gate, query.shape[-2])
    forget = forget if bias is None else forget + bias
    return softmax_logits(query, key, bias=forget, key_mask=key_mask, scale=scale)


def fpa_bias(
    field: Float[Tensor, "*lead keys"],
    level: Float[Tensor, "*lead keys"],
    *,
    penalty_scale: float | Tensor = 1.0,
    num_queries: int | None = None,
    smoothing: float = 0.0,
) -> Float[Tensor, "*lead queries keys"]:
    """-lambda max(0, level_j - m_ij). An infinite penalty is a mask, -inf whatever lambda is.

    `penalty_scale` is lambda: a number, or a tensor that broadcasts against (..., queries, keys).
    """
    drop = penalty(field, level, num_queries=num_queries, smoothing=smoothing)
    infinite = drop == math.inf
    return torch.where(infinite, -math.inf, -penalty_scale * torch.where(infinite, 0.0, drop))


def fpa_logits(query, key, field, level, *, penalty_scale=1.0, smoothing=0.0, bias=None, key_mask=None, scale=None):
    """First Passage Attention logits; shapes as in `softmax_logits`, the rest as in `fpa_bias`."""
    forget = fpa_bias(field, level, penalty_scale=penalty_scale, num_queries=query.shape[-2], smoothing=smoothing)
    forget = forget if bias is None else forget + bias
    return softmax_logits(query, key, bias=forget, key_mask=key_mask, scale=scale)


def masked_softmax(logits: Float[Tensor, "*lead keys"]) -> Float[Tensor, "*lead keys"]:
    """Softmax over the last axis where -inf means masked. A fully masked row has weights 0 and gradient 0."""
    logits = widen(logits)
    top = logits.detach().amax(-1, keepdim=True)
    mass = torch.exp(logits - torch.where(top.isfinite(), top, 0.0))
    total = mass.sum(-1, keepdim=True)
    return mass / torch.where(total > 0, total, 1.0)


def _attend(logits: Tensor, value: Tensor) -> Tensor:
    return (masked_softmax(logits) @ value.to(logits.dtype)).to(value.dtype)


def softmax_attention(
    query: Float[Tensor, "*lead queries head_dim"],
    key: Float[Tensor, "*lead keys head_dim"],
    value: Float[Tensor, "*lead keys value_dim"],
    **options,
) -> Float[Tensor, "*lead queries value_dim"]:
    """Causal softmax attention; options as in `softmax_logits`. Rows that see no key return 0."""
    return _attend(softmax_logits(query, key, **options), value)


def fox_attention(
    query: Float[Tensor, "*lead queries head_dim"],
    key: Float[Tensor, "*lead keys head_dim"],
    value: Float[Tensor, "*lead keys value_dim"],
    log_gate: Float[Tensor, "*lead keys"],
    **options,
) -> Float[Tensor, "*lead queries value_dim"]:
    """Forgetting attention; options as in `fox_logits`. Rows that see no key return 0."""
    return _attend(fox_logits(query, key, log_gate, **options), value)


def fpa_attention(
    query: Float[Tensor, "*lead queries head_dim"],
    key: Float[Tensor, "*lead keys head_dim"],
    value: Float[Tensor, "*lead keys value_dim"],
    field: Float[Tensor, "*lead keys"],
    level: Float[Tensor, "*lead keys"],
    **options,
) -> Float[Tensor, "*lead queries value_dim"]:
    """First Passage Attention; options as in `fpa_logits`. Rows that see no key return 0."""
    return _attend(fpa_logits(query, key, field, level, **options), value)


def target_cross_entropy(
    logits: Float[Tensor, "*lead queries keys"], targets: Bool[Tensor, "*lead queries keys"]
) -> Float[Tensor, "*lead queries"]:
    """Cross-entropy from the uniform distribution on the target to the attention weights, for each query row.

    Its least value is log |target|. Rows with an empty target give 0 and no gradient; rows in which a key of the target
    is masked, or every key, give +inf and no gradient.
    """
    logits = widen(logits)
    size = targets.sum(-1)
    top = logits.detach().amax(-1, keepdim=True)
    masked = (targets & (logits.detach() == -math.inf)).any(-1) | (top == -math.inf).squeeze(-1)
    scored = (size > 0) & ~masked
    shifted = logits - torch.where(top.isfinite(), top, 0.0)
    log_total = torch.where(scored[..., None], shifted, 0.0).exp().sum(-1).log()
    on_target = torch.where(targets & scored[..., None], shifted, 0.0).sum(-1) / size.clamp_min(1)
    return torch.where(scored, log_total - on_target, torch.where(size > 0, math.inf, 0.0))
