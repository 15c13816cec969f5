"""Attention of model size: the lab's fpa_attention beside what PyTorch offers, B=4 H=4 T=1024 D=32 in float32.

FlexAttention reads the minimum of the field between key and query from a table of minima over powers of two; on the
CPU it compiles by way of a C++ compiler, and only its forward pass.
"""

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from lab.bench.measure import Comparison, Found, Named, Settings, Tell
from lab.ops.attention import fpa_attention

BATCH, HEADS, LENGTH, DIM = 4, 4, 1024, 32
BOTH_WAYS = "forward and backward"


def run(settings: Settings, tell: Tell) -> Found:
    """fpa_attention against causal SDPA, SDPA with a bias that is trained, and compiled FlexAttention."""
    given = inputs()
    found, every = Found(), comparisons(given)
    for n, one in enumerate(every):
        tell(n / (len(every) + 1), one.name)
        found.results.append(one.run(settings))
    tell(len(every) / (len(every) + 1), "FlexAttention, which compiles for a minute")
    if compiler() is None:
        found.notes.append("attention: FlexAttention is left out: torch.compile needs a C++ compiler, and none is here")
        return found
    try:
        found.results.append(against_flex(given).run(settings))
    except Exception as error:  # torch.compile raises whatever its back end does
        reason = str(error).strip().partition("\n")[0][:200]
        found.notes.append(f"attention: FlexAttention is left out: torch.compile: {type(error).__name__}: {reason}")
    return found


def comparisons(given: "Inputs") -> list[Comparison]:
    """All but the one with FlexAttention. All sides share their inputs."""
    shape = f"B={BATCH} H={HEADS} T={LENGTH} D={DIM}"
    ours: Named = ("fpa_attention", partial(step, attend_fpa, given))
    forwards: Named = ("fpa_attention", partial(forward, attend_fpa, given))
    against: list[tuple[Named, Named, int, str | None, str | None, str]] = [
        (ours, ("SDPA causal", partial(step, attend_sdpa, given)), 24, "2.5", "1.2", f"{BOTH_WAYS}, {shape}"),
        (
            ours,
            ("SDPA with the penalty as bias, made and differentiated", partial(step, attend_biased, given)),
            6,
            "0.15",
            "0.06",
            BOTH_WAYS,
        ),
        (ours, ("SDPA alone, given that bias", biased_step(given)), 6, None, None, BOTH_WAYS),
        (forwards, ("SDPA causal", partial(forward, attend_sdpa, given)), 24, None, None, "forward"),
    ]
    return [Comparison("attention", *one) for one in against]


def against_flex(given: "Inputs") -> Comparison:
    """Forward only, which is all that FlexAttention does on a CPU."""
    ours: Named = ("fpa_attention", partial(forward, attend_fpa, given))
    attend = flex_attention(given.field, given.level)
    return Comparison(
        "attention",
        ours,
        ("FlexAttention with a table of minima", partial(forward, attend, given)),
        8,
        detail="forward",
    )


@dataclass(frozen=True)
class Inputs:
    """Leaves of one call: query, key, value (batch, heads, length, dim); field, level (batch, heads, length)."""

    query: Tensor
    key: Tensor
    value: Tensor
    field: Tensor
    level: Tensor

    @property
    def leaves(self) -> tuple[Tensor, ...]:
        return self.query, self.key, self.value, self.field, self.level


def inputs(batch: int = BATCH, heads: int = HEADS, length: int = LENGTH, dim: int = DIM, grad: bool = True) -> Inputs:
    """Normal queries, keys and values, a walk with steps of 0.3 as field, and levels near it."""
    draw = torch.Generator().manual_seed(1)
    place = (batch, heads, length)
    query, key, value = (torch.randn(*place, dim, generator=draw) for _ in range(3))
    field = 0.3 * torch.randn(place, generator=draw).cumsum(-1)
    level = field + 0.1 * torch.randn(place, generator=draw)
    return Inputs(*(x.requires_grad_(grad) for x in (query, key, value, field, level)))


Attend = Callable[[Inputs], Tensor]


def attend_fpa(given: Inputs) -> Tensor:
    return fpa_attention(*given.leaves)


def attend_sdpa(given: Inputs) -> Tensor:
    """Softmax attention without any forgetting: the least that anything causal could cost."""
    return F.scaled_dot_product_attention(given.query, given.key, given.value, is_causal=True)


def attend_biased(given: Inputs) -> Tensor:
    """First Passage Attention by way of SDPA: its bias is the penalty, made from the field and the levels."""
    return F.scaled_dot_product_attention(given.query, given.key, given.value, attn_mask=penalty_bias(given))


def penalty_bias(given: Inputs) -> Tensor:
    """(batch, heads, length, length): minus the penalty, and -inf after the query."""
    length = given.field.shape[-1]
    before = torch.ones(length, length, dtype=torch.bool).tril(-1)
    minimum = torch.where(before, given.field[..., :, None], math.inf).cummin(-2).values
    after = torch.ones(length, length, dtype=torch.bool).triu(1)
    return -torch.relu(given.level[..., None, :] - minimum).masked_fill(after, math.inf)


def biased_step(given: Inputs) -> Callable[[], tuple[Tensor, ...]]:
    """SDPA's own share of that: the bias is there already, and only its gradient is asked for."""
    bias = penalty_bias(given).detach().requires_grad_()
    leaves = (given.query, given.key, given.value, bias)

    def both_ways() -> tuple[Tensor, ...]:
        out = F.scaled_dot_product_attention(*leaves[:3], attn_mask=bias)
        return torch.autograd.grad(out.sum(), leaves)

    return both_ways


def step(attend: Attend, given: Inputs) -> tuple[Tensor, ...]:
    """Forward and backward; gradients of all that the output depends on."""
    return torch.autograd.grad(attend(given).sum(), given.leaves, allow_unused=True)


def forward(attend: Attend, given: Inputs) -> Tensor:
    """Forward only, for inference."""
    with torch.no_grad():
        return attend(given)


def compiler() -> str | None:
    """The C++ compiler that torch.compile would call, if there is one."""
    return shutil.which(os.environ.get("CXX", "")) or shutil.which("g++") or shutil.which("clang++")


def flex_attention(field: Tensor, level: Tensor) -> Attend:
    """First Passage Attention by compiled FlexAttention, for one field and level, (batch, heads, length) each."""
    from torch.nn.attention.flex_attention import create_block_mask
    from torch.nn.attention.flex_attention import flex_attention as flex

    length, first_passage = field.shape[-1], first_passage_score(field, level)
    causal = create_block_mask(lambda b, h, query, key: query >= key, None, None, length, length, device="cpu")
    compiled = torch.compile(flex, dynamic=False)

    def attend(given: Inputs) -> Tensor:
        query, key, value = (x.detach() for x in (given.query, given.key, given.value))  # leaves are refused
        return compiled(query, key, value, score_mod=first_passage, block_mask=causal)

    return attend


def first_passage_score(field: Tensor, level: Tensor) -> Callable[..., Tensor]:
    """FlexAttention's score_mod for one field and level: a logit less its penalty."""
    length, level, table = field.shape[-1], level.detach(), minima(field.detach())
    power = torch.tensor([max(n, 1).bit_length() - 1 for n in range(length + 1)])

    def first_passage(logit, batch, head, query, key):
        between = (query - key).clamp(min=0)
        p = power[between]
        left = table[batch, head, p, (key + 1).clamp(max=length - 1)]
        right = table[batch, head, p, (query - (1 << p) + 1).clamp(min=0)]
        excess = level[batch, head, key] - torch.minimum(left, right)
        return logit - torch.where(between > 0, excess.clamp(min=0), 0.0)

    return first_passage


def minima(field: Tensor) -> Tensor:
    """(..., powers, length): entry [p, t] is the least of field[t], ..., field[t + 2^p - 1], up to the end."""
    length = field.shape[-1]
    rows = [field]
    for p in range(1, length.bit_length()):
        half = 1 << (p - 1)
        ahead = F.pad(rows[-1][..., half:], (0, half), value=math.inf)
        rows.append(torch.minimum(rows[-1], ahead))
    return torch.stack(rows, -2).contiguous()
