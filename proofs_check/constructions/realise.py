"""Loads a construction into the head class that is trained, in float64, float32 or bfloat16, and measures it.

The only place of proofs_check that imports torch.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from lab.heads import head_config, make_head
from lab.heads.base import Head
from lab.ops.reference import masked_softmax
from proofs_check.constructions.token_head import TokenHead

FORMATS = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


def realise(construction: TokenHead, length: int, epsilon: float, dtype: torch.dtype) -> Head:
    """An ensemble of one `lab.heads` head with the construction's numbers, every parameter rounded to `dtype`.

    Mask and penalty scale are those for a total variation of at most epsilon in sequences of at most that length.
    """
    config = head_config(
        f"fpa-{construction.field}-{construction.level}",
        construction.dimension,
        penalty_scale=construction.penalty_scale(length, epsilon),
    )
    head = make_head(config, len(construction.vocabulary), (0,), max_len=length).to(dtype)
    mask = construction.mask(length, epsilon)
    parameters = {
        "query": [1.0] * len(construction.vocabulary),
        "key": [0.0 if token in construction.key_tokens else -float(mask) for token in construction.vocabulary],
        "increment" if construction.field == "walk" else "field_value": _column(construction, construction.values),
    }
    if construction.level != "tied":
        name = "offset" if construction.level == "offset" else "level_value"
        parameters[name] = _column(construction, construction.levels)
    with torch.no_grad():
        for name, parameter in head.named_parameters():
            values = torch.tensor(parameters[name], dtype=torch.float64)
            parameter.copy_(values.reshape(1, -1, 1) if name in ("query", "key") else values[None])
    return head


def _column(construction: TokenHead, numbers) -> list[float]:
    return [float(numbers[token]) for token in construction.vocabulary]


def max_tv(head: Head, tokens: Tensor, targets: Tensor) -> float:
    """Greatest total variation between the weights of the last queries and the uniform distribution on their targets.

    tokens: int64 (batch, length); targets: bool (batch, queries, length), rows without a target are not looked at.
    """
    with torch.no_grad():
        weights = masked_softmax(head.logits(tokens[None], num_queries=targets.shape[-2]))[0].double()
    size = targets.sum(-1)
    uniform = targets.double() / size.clamp_min(1)[..., None]
    distance = (weights - uniform).abs().sum(-1) / 2
    return float(torch.where(size > 0, distance, 0.0).amax())


def one_query(construction: TokenHead, tokens: Sequence[str], target: Sequence[int]) -> tuple[Tensor, Tensor]:
    """What `max_tv` takes, for the query at the last position of one sequence given by token names."""
    number = {token: at for at, token in enumerate(construction.vocabulary)}
    targets = torch.zeros(1, 1, len(tokens), dtype=torch.bool)
    targets[0, 0, list(target)] = True
    return torch.tensor([[number[token] for token in tokens]]), targets
