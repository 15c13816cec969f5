"""Positional schemes of the softmax head: what a scheme adds to a logit at distance i - j, or does to q and k."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lab.ops.reference import widen

ROPE_BASE = 10000.0


class Alibi(nn.Module):
    """A bias falling linearly with distance (arXiv 2108.12409). The slope is learned: a gift to a lone head."""

    first_slope = 1.0 / 16.0

    def __init__(self, seeds: int):
        super().__init__()
        self.log_slope = nn.Parameter(torch.full((seeds,), self.first_slope).log())

    def bias(self, length: int) -> Float[Tensor, "seeds length"]:
        log_slope = widen(self.log_slope)
        distance = torch.arange(length, dtype=log_slope.dtype, device=log_slope.device)
        return -log_slope.exp()[:, None] * distance


class RelativeBias(nn.Module):
    """One learned number per distance (arXiv 1803.02155, as a bias); the farthest stands for everything beyond."""

    def __init__(self, initial: Float[Tensor, "seeds max_distance"]):
        super().__init__()
        self.by_distance = nn.Parameter(initial)

    def bias(self, length: int) -> Float[Tensor, "seeds length"]:
        distance = torch.arange(length, device=self.by_distance.device).clamp_max(self.by_distance.shape[1] - 1)
        return self.by_distance[:, distance]


def rotate(
    vectors: Float[Tensor, "*lead length head_dim"], positions: Float[Tensor, " length"]
) -> Float[Tensor, "*lead length head_dim"]:
    """RoPE (arXiv 2104.09864): dimension pairs (2p, 2p+1) turn by position * base^(-2p/d); an odd last one stays.

    Half vectors are widened. Angles keep the dtype of `positions`: in float32 they lose digits as positions grow.
    """
    vectors = widen(vectors)
    pairs = vectors.shape[-1] // 2
    frequency = ROPE_BASE ** (-torch.arange(pairs, dtype=positions.dtype, device=positions.device) / max(1, pairs))
    angle = positions[:, None] * frequency
    cos, sin = angle.cos().to(vectors.dtype), angle.sin().to(vectors.dtype)
    even, odd = vectors[..., 0 : 2 * pairs : 2], vectors[..., 1 : 2 * pairs : 2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
    return torch.cat((turned.flatten(-2), vectors[..., 2 * pairs :]), -1)
