"""The names of random streams and the odds of their words: what a task says of randomness without compiled code."""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numpy as np


@lru_cache(maxsize=256)
def stream_keys(task: str, split: str, seeds: tuple[int, ...]) -> np.ndarray:
    """uint64 (len(seeds), 3), each number below 2^32: the name of each seed's stream. Read-only."""
    keys = np.array([_stream_key(task, split, seed) for seed in seeds], dtype=np.uint64).reshape(-1, 3)
    keys.flags.writeable = False
    return keys


def _stream_key(task: str, split: str, seed: int) -> Sequence[int]:
    digest = blake2b(f"{task}\0{split}\0{seed}".encode(), digest_size=12).digest()
    return [int.from_bytes(digest[k : k + 4], "little") for k in (0, 4, 8)]


def threshold(probability: float) -> np.uint64:
    """How many 32-bit words count as a success: 0 never and 1 always succeeds, others to within 2^-33."""
    return np.uint64(round(probability * 2**32))
