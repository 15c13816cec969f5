"""The generator against published vectors and a plain restatement of itself; bounded integers against chance."""

import itertools

import numpy as np
import pytest

from lab.tasks.kernels.random import (
    below,
    choices,
    happens,
    new_stream,
    next_word,
    philox_blocks,
    start_stream,
)
from lab.tasks.streams import stream_keys, threshold

KEY = stream_keys("a task", "test", (7,))[0]


def philox(counter, key):
    """Philox4x32-10 as the paper writes it, in Python's own integers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c[0], 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c[2], 2**32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return c


def stream_at(index, key=KEY):
    stream = new_stream()
    start_stream(stream, key, index)
    return stream


# The known answers published with Random123 for philox4x32_10.
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_known_answers(counter, key, expected):
    words = np.zeros(32, dtype=np.uint32)
    philox_blocks(np.array([*key, *counter, 0], dtype=np.uint64), words)
    assert list(words[:4]) == expected
    assert philox(counter, key) == expected


@pytest.mark.parametrize("index", [0, 1, 2**32 - 1, 2**32, 2**61 + 12345])
def test_words_are_the_blocks_of_the_counter_in_order(index):
    stream = stream_at(index)
    drawn = [int(next_word(stream)) for _ in range(70)]
    key_0, key_1, salt = map(int, KEY)
    blocks = [philox((b, index % 2**32, index // 2**32, salt), (key_0, key_1)) for b in range(18)]
    assert drawn == list(itertools.chain(*blocks))[:70]


def test_no_two_streams_share_a_key():
    names = itertools.product(["nested-scope", "leveled-dips", "subset-drop"], ["train", "validation", "test"])
    keys = [tuple(row) for task, split in names for row in stream_keys(task, split, tuple(range(500)))]
    assert len(set(keys)) == len(keys) == 4500


def test_the_parts_of_a_name_do_not_run_together():
    assert not np.array_equal(stream_keys("a", "train", (12,)), stream_keys("a", "train1", (2,)))


def test_keys_do_not_depend_on_the_other_seeds():
    block = stream_keys("t", "train", (3, 4, 5))
    assert np.array_equal(block[1], stream_keys("t", "train", (4,))[0])


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 10, 100])
def test_bounded_integers_are_uniform(bound):
    stream, n = stream_at(bound), 20_000
    seen = np.bincount([below(stream, bound) for _ in range(n)], minlength=bound)
    assert len(seen) == bound
    statistic = float(((seen - n / bound) ** 2 / (n / bound)).sum())
    # A chi-square variable has mean bound - 1 and variance twice that; six deviations are never reached by chance.
    assert statistic <= (bound - 1) + 6 * np.sqrt(2 * bound)


def test_bounded_integers_reject_the_words_that_would_bias_them():
    # Of 2^32 words, every value gets one and every third a second: half of all draws, if none were rejected.
    stream, n = stream_at(0), 6000
    share = np.mean([below(stream, 3 * 2**30) % 3 == 0 for _ in range(n)])
    assert abs(share - 1 / 3) < 0.04


@pytest.mark.parametrize("probability", [0.0, 0.01, 0.5, 0.99, 1.0])
def test_happens_as_often_as_asked(probability):
    stream, n = stream_at(0), 10_000
    share = np.mean([happens(stream, threshold(probability)) for _ in range(n)])
    assert abs(share - probability) <= 5 * np.sqrt(probability * (1 - probability) / n)


def test_choices_are_addressed_by_index():
    keys = stream_keys("t", "train", (0, 1))
    many = choices(keys, 0, 100, 5)
    assert np.array_equal(choices(keys, 40, 10, 5), many[:, 40:50])
    assert np.array_equal(choices(keys[1:], 0, 100, 5), many[1:])
    assert set(many.ravel()) == set(range(5))
