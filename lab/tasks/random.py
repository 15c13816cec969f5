"""Random numbers addressed by name: (task, split, seed, index) fixes a sequence, whatever else is drawn.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011). It is a keyed bijection of a 128-bit counter: there is no state to carry, so batches, workers and
blocks of seeds cannot change what is drawn, and two sequences under one key can never overlap. Of the 96 bits
of hash that name (task, split, seed), 64 are the Philox key and 32 sit in the counter beside the sequence
index (64 bits) and the block number within the sequence (32 bits).

Numba's file cache does not notice that a function it calls in another file has changed: after editing this
file, delete `lab/tasks/__pycache__`. (Edits here change every data set of the lab; the known-answer tests
guard against doing so unawares.)
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

import numba
import numpy as np

# Every constant is a uint64: in numba, uint64 mixed with a plain int becomes a float.
_LOW_32 = np.uint64(0xFFFFFFFF)
_BITS_32 = np.uint64(32)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_WORDS_PER_BLOCK = np.uint64(4)
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)

# A stream is a small uint64 array: Philox key (2), counter (4: block, index low, index high, salt), words
# used of the block, the block (4).
STREAM_SIZE = 11
_KEY, _BLOCK, _INDEX_LOW, _INDEX_HIGH, _SALT, _USED, _WORDS = 0, 2, 3, 4, 5, 6, 7


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
    """The number of 32-bit words that count as a success; 0 never and 1 always succeeds, others to within
    2^-33."""
    return np.uint64(round(probability * 2**32))


@numba.njit(cache=True, nogil=True)
def philox_block(stream):
    """Fills the stream's words with the 128 bits that Philox4x32-10 gives for its key and counter."""
    k0, k1 = stream[_KEY], stream[_KEY + 1]
    c0, c1, c2, c3 = stream[_BLOCK], stream[_INDEX_LOW], stream[_INDEX_HIGH], stream[_SALT]
    for _ in range(10):
        product_0, product_1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> _BITS_32) ^ c1 ^ k0,
            product_1 & _LOW_32,
            (product_0 >> _BITS_32) ^ c3 ^ k1,
            product_0 & _LOW_32,
        )
        k0, k1 = (k0 + _WEYL_0) & _LOW_32, (k1 + _WEYL_1) & _LOW_32
    stream[_WORDS], stream[_WORDS + 1], stream[_WORDS + 2], stream[_WORDS + 3] = c0, c1, c2, c3


@numba.njit(cache=True, nogil=True)
def start_stream(stream, key, index):
    """Points the stream at sequence number `index` of the stream named by `key` (one row of
    `stream_keys`)."""
    position = np.uint64(index)
    stream[_KEY], stream[_KEY + 1], stream[_SALT] = key[0], key[1], key[2]
    stream[_INDEX_LOW], stream[_INDEX_HIGH] = position & _LOW_32, position >> _BITS_32
    stream[_BLOCK] = _ZERO
    stream[_USED] = _WORDS_PER_BLOCK


@numba.njit(cache=True, nogil=True)
def next_word(stream):
    """The next 32 random bits of the sequence, as a uint64."""
    if stream[_USED] == _WORDS_PER_BLOCK:
        philox_block(stream)
        stream[_BLOCK] += _ONE
        stream[_USED] = _ZERO
    word = stream[np.uint64(_WORDS) + stream[_USED]]
    stream[_USED] += _ONE
    return word


@numba.njit(cache=True, nogil=True)
def below(stream, bound):
    """An unbiased integer in 0..bound-1, for 1 <= bound <= 2^32.

    The high half of word * bound, with the words that would make some values likelier rejected (Lemire, "Fast
    random integer generation in an interval", ACM TOMACS 2019).
    """
    wide = np.uint64(bound)
    product = next_word(stream) * wide
    if (product & _LOW_32) < wide:
        reject = ((_LOW_32 + _ONE) - wide) % wide
        while (product & _LOW_32) < reject:
            product = next_word(stream) * wide
    return np.int64(product >> _BITS_32)


@numba.njit(cache=True, nogil=True)
def happens(stream, successes):
    """True with probability successes / 2^32; `successes` comes from `threshold`."""
    return next_word(stream) < successes
