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
    angle = positions[:, None] * rope_frequencies(pairs, positions)
    cos, sin = angle.cos().to(vectors.dtype), angle.sin().to(vectors.dtype)
    even, odd = vectors[..., 0 : 2 * pairs : 2], vectors[..., 1 : 2 * pairs : 2]
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1)
    return torch.cat((turned.flatten(-2), vectors[..., 2 * pairs :]), -1)


def rotated_products(
    query: Float[Tensor, "seeds queries head_dim"], key: Float[Tensor, "seeds keys head_dim"], length: int
) -> Float[Tensor, "seeds queries keys length"]:
    """Inner products under RoPE of every query with every key at each distance 0 .. length - 1.

    A pair of dimensions gives (q0 k0 + q1 k1) cos(angle) + (q0 k1 - q1 k0) sin(angle): the rotated vectors, one for
    each distance, are never made.
    """
    query, key = widen(query)[:, :, None, :], widen(key)[:, None, :, :]
    pairs = query.shape[-1] // 2
    q0, q1 = query[..., 0 : 2 * pairs : 2], query[..., 1 : 2 * pairs : 2]
    k0, k1 = key[..., 0 : 2 * pairs : 2], key[..., 1 : 2 * pairs : 2]
    factors = torch.cat((q0 * k0 + q1 * k1, q0 * k1 - q1 * k0), -1)
    distance = torch.arange(length, dtype=torch.float64, device=query.device)
    angle = rope_frequencies(pairs, distance)[:, None] * distance
    waves = torch.cat((angle.cos(), angle.sin())).to(query.dtype)
    # One product for each seed, so that a seed's numbers do not depend on the others.
    turning = torch.bmm(factors.flatten(1, 2), waves.expand(len(factors), -1, -1)).unflatten(1, factors.shape[1:3])
    return turning + (query[..., 2 * pairs :] * key[..., 2 * pairs :]).sum(-1)[..., None]


def rope_frequencies(pairs: int, like: Tensor) -> Float[Tensor, " pairs"]:
    """The angle per position of each pair of dimensions, in the dtype of `like`."""
    return ROPE_BASE ** (-torch.arange(pairs, dtype=like.dtype, device=like.device) / max(1, pairs))
