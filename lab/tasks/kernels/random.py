"""Random numbers addressed by name: (task, split, seed, index) fixes a sequence, whatever else is drawn.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011). It is a keyed bijection of a 128-bit counter: there is no state to carry, so batches, workers and
blocks of seeds cannot change what is drawn, and two sequences under one key can never overlap. Of the 96 bits
of hash that name (task, split, seed), 64 are the Philox key and 32 sit in the counter beside the sequence
index (64 bits) and the block number within the sequence (32 bits).

Edits here change every data set of the lab; the known-answer tests guard against doing so unawares.
"""

import numba
import numpy as np

# Every constant is a uint64: in numba, uint64 mixed with a plain int becomes a float.
_LOW_32 = np.uint64(0xFFFFFFFF)
_BITS_32 = np.uint64(32)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)

# Eight blocks of four words at a time: the compiler turns the loop over blocks into vector instructions, four
# times as fast.
_BLOCKS = 8
_NUM_BLOCKS = np.uint64(_BLOCKS)
_NUM_WORDS = np.uint64(4 * _BLOCKS)

# What is called for every token is inlined by numba itself: called as a function, it would pay for counting
# references to the stream.

# The state, uint64: Philox key (2), counter (4), and how many of the 32 words at hand are used.
_KEY, _BLOCK, _INDEX_LOW, _INDEX_HIGH, _SALT, _USED = 0, 2, 3, 4, 5, 6


@numba.njit(cache=True, nogil=True)
def new_stream():
    """(state, words at hand): what the functions below draw from, once `start_stream` has said which sequence."""
    return np.zeros(7, dtype=np.uint64), np.zeros(4 * _BLOCKS, dtype=np.uint32)


@numba.njit(cache=True, nogil=True)
def philox_blocks(state, words):
    """Writes the Philox4x32-10 outputs for the counter and the seven after it, four words each, in that order."""
    # Read before the loop: the compiler cannot know that writing words leaves the state alone, and would not
    # vectorise.
    key_0, key_1 = state[_KEY], state[_KEY + 1]
    first, index_low, index_high, salt = state[_BLOCK], state[_INDEX_LOW], state[_INDEX_HIGH], state[_SALT]
    for block in range(_BLOCKS):
        k0, k1 = key_0, key_1
        c0, c1, c2, c3 = (first + np.uint64(block)) & _LOW_32, index_low, index_high, salt
        for _ in range(10):
            product_0, product_1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
            c0, c1, c2, c3 = (
                (product_1 >> _BITS_32) ^ c1 ^ k0,
                product_1 & _LOW_32,
                (product_0 >> _BITS_32) ^ c3 ^ k1,
                product_0 & _LOW_32,
            )
            k0, k1 = (k0 + _WEYL_0) & _LOW_32, (k1 + _WEYL_1) & _LOW_32
        words[4 * block], words[4 * block + 1], words[4 * block + 2], words[4 * block + 3] = c0, c1, c2, c3


@numba.njit(cache=True, nogil=True, inline="always")
def start_stream(stream, key, index):
    """Points the stream at sequence number `index` of the stream named by `key` (one row of `stream_keys`)."""
    state, _ = stream
    position = np.uint64(index)
    state[_KEY], state[_KEY + 1], state[_SALT] = key[0], key[1], key[2]
    state[_INDEX_LOW], state[_INDEX_HIGH] = position & _LOW_32, position >> _BITS_32
    state[_BLOCK] = _ZERO
    state[_USED] = _NUM_WORDS


@numba.njit(cache=True, nogil=True, inline="always")
def next_word(stream):
    """The next 32 random bits of the sequence, as a uint64."""
    state, words = stream
    used = state[_USED]
    if used == _NUM_WORDS:
        philox_blocks(state, words)
        state[_BLOCK] += _NUM_BLOCKS
        used = _ZERO
    state[_USED] = used + _ONE
    return np.uint64(words[used])


@numba.njit(cache=True, nogil=True, inline="always")
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


@numba.njit(cache=True, nogil=True, inline="always")
def happens(stream, successes):
    """True with probability successes / 2^32; `successes` comes from `threshold`."""
    return next_word(stream) < successes


@numba.njit(cache=True, nogil=True)
def choices(keys, start, count, bound):
    """int64 (len(keys), count): for each sequence one integer in 0..bound-1, the first draw of its stream."""
    drawn = np.empty((len(keys), count), dtype=np.int64)
    stream = new_stream()
    for seed in range(len(keys)):
        for row in range(count):
            start_stream(stream, keys[seed], start + row)
            drawn[seed, row] = below(stream, bound)
    return drawn
