"""Cutting and joining stored weights along their leading axis, which counts seeds."""

import json
from collections.abc import Sequence

import numpy as np


def gather(parts: Sequence[tuple[int, tuple[int, ...], bytes]]) -> bytes:
    """Safetensors bytes for the seeds of `parts`, in their order; each part is (seed, seeds of its block, block).

    Every tensor has the leading axis len(parts). The metadata is the first block's, with `seeds` set to the seeds.
    A whole block comes back as the very bytes that were stored.
    """
    from safetensors.numpy import load, save

    seeds = tuple(seed for seed, _, _ in parts)
    if seeds and seeds == parts[0][1]:
        return parts[0][2]
    rows: dict[str, list[np.ndarray]] = {}
    for seed, block, data in parts:
        for name, tensor in load(data).items():
            rows.setdefault(name, []).append(tensor[block.index(seed)])
    metadata = {**metadata_of(parts[0][2]), "seeds": ",".join(map(str, seeds))} if parts else {}
    return save({name: np.stack(tensors) for name, tensors in rows.items()}, metadata=metadata)


def metadata_of(data: bytes) -> dict[str, str]:
    """The free-text metadata in the header of safetensors bytes: a length in 8 bytes, then JSON."""
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]).get("__metadata__", {})
