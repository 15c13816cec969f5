"""What every head has: a leading ensemble axis, token embeddings for query and key, logits, attention, state.

Heads here are single and token-level (no MLP, no layers below): what the theory speaks about. Every parameter has
shape (seeds, ...), one head per seed; an ensemble of one seed is the ordinary head. Each seed draws its own initial
values from its own generator, so seed s starts the same alone or in any block.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors.torch import load, save
from torch import Tensor, nn

from lab.errors import InputError
from lab.heads.config import (
    FoxConfig,
    FoxRelativeConfig,
    FpaConfig,
    FpaRecencyConfig,
    HeadConfig,
    SelectiveConfig,
    SoftmaxConfig,
    StickBreakingConfig,
    TwoLayerConfig,
)
from lab.heads.positional import Alibi, RelativeBias
from lab.ops import reference
from lab.ops.dispatch import TokenLogits


class Head(nn.Module, ABC):
    """An ensemble of heads over a vocabulary of `vocab_size` tokens.

    query, key: (seeds, vocab, head_dim) embeddings. Subclasses add what they forget with.
    """

    # Distances from which the logit before forgetting is constant: 1 for a head without positions.
    table_width = 1
    # What a positional scheme has learned per distance, for heads that have one.
    positional: Alibi | RelativeBias | None
    # Whether logits are handed over as numbers for every pair of positions: readers then take fewer sequences at once.
    dense = False

    def __init__(
        self,
        config: Any,
        vocab_size: int,
        seeds: Sequence[int],
        *,
        initial_scale: float = 0.05,
        initial_drift: float = 0.0,
        content_scale: float = 1.0,
    ):
        super().__init__()
        self.config = config
        self.seeds = tuple(int(s) for s in seeds)
        self.vocab_size = vocab_size
        self.positional = None
        self._generators = [torch.Generator().manual_seed(0x5EED + s) for s in self.seeds]
        self.scale = 1.0 / math.sqrt(max(1, config.dim))
        self.query = nn.Parameter(self._normal(content_scale, vocab_size, config.dim))
        self.key = nn.Parameter(self._normal(content_scale, vocab_size, config.dim))
        self.initial_scale = initial_scale
        self.initial_drift = initial_drift

    def _normal(self, std: float, *shape: int) -> Float[Tensor, "seeds ..."]:
        """N(0, std^2), each seed from its own generator."""
        return torch.stack([std * torch.randn(shape, generator=g) for g in self._generators])

    def content_table(self) -> Float[Tensor, "seeds vocab vocab"]:
        """s q.k for every (query token, key token), half precision widened."""
        query, key = reference.widen(self.query), reference.widen(self.key)
        return self.scale * (query[:, :, None, :] * key[:, None, :, :]).sum(-1)

    def logit_table(self, length: int) -> Float[Tensor, "seeds vocab vocab width"]:
        """The logit by (query token, key token, distance), for sequences of that length; without bias, forgetting."""
        return self.content_table()[..., None]

    def distance_bias(self, length: int) -> Float[Tensor, "seeds length"] | None:
        """What is added by distance alone, if anything."""
        return None if self.positional is None else self.positional.bias(length)

    @abstractmethod
    def token_logits(self, tokens: Int[Tensor, "seeds batch length"]) -> TokenLogits:
        """The logits of this head on a batch, factored for the fast path."""

    @abstractmethod
    def logits(
        self, tokens: Int[Tensor, "seeds batch length"], *, num_queries: int | None = None, smoothing: float = 0.0
    ) -> Float[Tensor, "seeds batch queries length"]:
        """The logits from the embeddings, by the reference operations; -inf where a key is after the query."""

    def attend(
        self,
        tokens: Int[Tensor, "seeds batch length"],
        value: Float[Tensor, "seeds batch length value_dim"],
        *,
        num_queries: int | None = None,
        smoothing: float = 0.0,
    ) -> Float[Tensor, "seeds batch queries value_dim"]:
        """Attention-weighted values; the queries are the last `num_queries` positions (all by default)."""
        weights = reference.masked_softmax(self.logits(tokens, num_queries=num_queries, smoothing=smoothing))
        return (weights @ value.to(weights.dtype)).to(value.dtype)

    def embed(
        self, tokens: Int[Tensor, "seeds batch length"], num_queries: int | None
    ) -> tuple[Float[Tensor, "seeds batch queries head_dim"], Float[Tensor, "seeds batch length head_dim"]]:
        first = 0 if num_queries is None else tokens.shape[-1] - num_queries
        return self.by_token(self.query, tokens[..., first:]), self.by_token(self.key, tokens)

    @staticmethod
    def by_token(
        values: Float[Tensor, "seeds vocab *rest"], tokens: Int[Tensor, "seeds batch length"]
    ) -> Float[Tensor, "seeds batch length *rest"]:
        """Looks every seed's tokens up in that seed's own values."""
        if values.dim() == 2:
            # Backward of gather adds up in place; that of indexing sorts first.
            return values.gather(1, tokens.flatten(1)).view(tokens.shape)
        seed = torch.arange(tokens.shape[0], device=tokens.device)[:, None, None]
        return values[seed, tokens]

    def token_parameters(self) -> dict[str, Float[Tensor, "seeds vocab"]]:
        """What the head learned per token besides its embeddings (increments, levels, ...), as stored in results."""
        return {}

    def parameter_count(self) -> dict[str, int]:
        """Numbers per seed of every parameter, from the real tensors."""
        return {name: p.numel() // len(self.seeds) for name, p in self.named_parameters()}

    def state_bytes(self) -> bytes:
        """All parameters of all seeds, in safetensors format; the seeds are in the metadata."""
        state = {name: p.detach().cpu().contiguous() for name, p in self.named_parameters()}
        return save(state, metadata={"seeds": ",".join(map(str, self.seeds)), "head": self.config.model_dump_json()})

    def load_state_bytes(self, data: bytes) -> None:
        """Restores what `state_bytes` gave. InputError when names or shapes differ from this head's."""
        try:
            state = load(data)
        except Exception as error:  # safetensors raises its own type, unexported
            raise InputError(f"head state: not a safetensors file ({error})") from None
        expected = {name: tuple(p.shape) for name, p in self.named_parameters()}
        given = {name: tuple(p.shape) for name, p in state.items()}
        if given != expected:
            wrong = sorted(set(expected.items()) ^ set(given.items()))[0]
            raise InputError(f"head state: {wrong[0]}: expected {expected.get(wrong[0])}, got {given.get(wrong[0])}")
        self.load_state_dict(state, strict=True)


def make_head(
    config: HeadConfig,
    vocab_size: int,
    seeds: Sequence[int],
    *,
    max_len: int,
    initial_scale: float = 0.05,
    initial_drift: float = 0.0,
    content_scale: float = 1.0,
) -> Head:
    """The head that a configuration describes, one per seed.

    `max_len` is the training length in tokens: the reach of a learned relative bias.
    """
    from lab.heads.fox import FoxHead
    from lab.heads.fox_relative import FoxRelativeHead
    from lab.heads.fpa import FpaHead
    from lab.heads.fpa_recency import FpaRecencyHead
    from lab.heads.selective import SelectiveHead
    from lab.heads.softmax import SoftmaxHead
    from lab.heads.stick_breaking import StickBreakingHead
    from lab.heads.two_layer import TwoLayerHead

    if not seeds:
        raise InputError("seeds: expected at least one seed")
    scales = {"initial_scale": initial_scale, "initial_drift": initial_drift, "content_scale": content_scale}
    match config:
        case SoftmaxConfig():
            return SoftmaxHead(config, vocab_size, seeds, max_len=max_len, **scales)
        case FoxRelativeConfig():
            return FoxRelativeHead(config, vocab_size, seeds, max_len=max_len, **scales)
        case FoxConfig():
            return FoxHead(config, vocab_size, seeds, **scales)
        case FpaRecencyConfig():
            return FpaRecencyHead(config, vocab_size, seeds, **scales)
        case FpaConfig():
            return FpaHead(config, vocab_size, seeds, **scales)
        case SelectiveConfig():
            return SelectiveHead(config, vocab_size, seeds, max_len=max_len, **scales)
        case StickBreakingConfig():
            return StickBreakingHead(config, vocab_size, seeds, **scales)
        case TwoLayerConfig():
            return TwoLayerHead(config, vocab_size, seeds, max_len=max_len, **scales)
    raise InputError(f"head: expected a head configuration, got {config!r}")
