"""Cheap readers that know less than the task asks for, as a measure of what a head's success is worth.

Each maps a batch to attention weights, dense float64 (..., seq_len, seq_len), for the same metrics as heads.
A row's weights sum to 1, or to 0 where no key stands at or before it (such a row has no target). Three of
them are fitted, on the train split at the batch's own length, so that what they reach is what their kind of
knowledge is good for, not what a guess of ours happened to get:

    chance     the same weight on every key so far
    position   a table over (row, position), tokens unseen: the mean target, the best there is in cross-entropy
    counts     how many tokens of each type stand between key and query, in whatever order: for each type of
               key, a logistic regression of being a target on those counts
    window     the same weight on the last k keys, k chosen by total variation distance
    nearest    the same weight on the newest key of each type of key

What defeats `counts` is a target that depends on the order of the tokens in between, as in nested-scope, where
an open before a close is not a close before an open. In leveled-dips the order of the dips plays no part, so
`counts` is no shortcut there: it is a solution, with gates for every type of key.

Weights are exactly 0 where a reader sees no reason to look, so cross-entropy can be infinite; total variation
distance and the exact-set rate are always finite.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float64, Int64

from lab.errors import InputError, nearest
from lab.tasks.base import Batch, Task

Weights = Float64[np.ndarray, "*lead seq_len seq_len"]

# Fitted readers see this many sequences of seed 0, fewer when seq_len^2 numbers for each would take too much
# memory.
_SEQUENCES = 512
_NUMBERS = 1 << 23
_PAIRS_PER_TYPE = 20_000
_LONGEST_WINDOW = 64


def shortcut_weights(name: str, task: Task, batch: Batch) -> Weights:
    """The weights of the shortcut of that name; InputError with the nearest valid name if there is none."""
    if name not in SHORTCUTS:
        raise InputError(f"shortcut: unknown name {name!r}{nearest(name, SHORTCUTS)}")
    return SHORTCUTS[name](task, batch)


def chance(task: Task, batch: Batch) -> Weights:
    return _normalised(_visible_keys(task, batch))


def position(task: Task, batch: Batch) -> Weights:
    """Rows that the training sample never scores are uniform over positions."""
    sample = _training_sample(task, batch.seq_len)
    mean = (_normalised(sample.targets()) * sample.queries[..., None]).sum(0)
    unseen = mean.sum(-1) == 0
    mean[unseen] = np.tri(batch.seq_len)[unseen]
    return np.broadcast_to(_normalised(mean), (*batch.tokens.shape, batch.seq_len)).copy()


def counts(task: Task, batch: Batch) -> Weights:
    """Logits are differences of cumulative scores, so seq_len^2 numbers are held, never seq_len^2 vectors of counts."""
    slopes, offsets = _fit_counts(task, _training_sample(task, batch.seq_len))
    kind = _key_types(task, batch)
    scores = _cumulative_counts(task, batch) @ slopes.T
    at_row = np.take_along_axis(scores, np.maximum(kind, 0)[..., None, :], axis=-1)
    at_key = np.take_along_axis(scores, np.maximum(kind, 0)[..., :, None], axis=-1)[..., 0]
    logits = at_row - at_key[..., None, :] + offsets[np.maximum(kind, 0)][..., None, :]
    return _normalised(np.where(_visible_keys(task, batch), _sigmoid(logits), 0.0))


def window(task: Task, batch: Batch) -> Weights:
    ages, visible = _ages(task, batch), _visible_keys(task, batch)
    return _normalised(visible & (ages <= _best_window(task, _training_sample(task, batch.seq_len))))


def nearest_of_type(task: Task, batch: Batch) -> Weights:
    kind = _key_types(task, batch)
    successor = np.full(batch.tokens.shape, batch.seq_len)  # where the next key of the same type stands
    for token in range(len(task.key_tokens)):
        following = np.full(batch.tokens.shape[:-1], batch.seq_len)
        for place in reversed(range(batch.seq_len)):
            here = kind[..., place] == token
            successor[..., place] = np.where(here, following, successor[..., place])
            following = np.where(here, place, following)
    rows = np.arange(batch.seq_len)[:, None]
    return _normalised(_visible_keys(task, batch) & (rows < successor[..., None, :]))


SHORTCUTS: dict[str, Callable[[Task, Batch], Weights]] = {
    "chance": chance,
    "position": position,
    "counts": counts,
    "window": window,
    "nearest": nearest_of_type,
}


def _training_sample(task: Task, seq_len: int) -> Batch:
    count = max(8, min(_SEQUENCES, _NUMBERS // seq_len**2))
    return task.sample("train", [0], 0, count, length=_length(task, seq_len))[0]


def _length(task: Task, seq_len: int) -> int:
    """The length, in the task's own unit, of sequences with that many tokens."""
    if task.seq_len(task.train_length) == seq_len:
        return task.train_length
    for length in range(1, seq_len + 1):
        if task.seq_len(length) == seq_len:
            return length
    raise InputError(f"{task.name}: shortcuts: no length gives sequences of {seq_len} tokens")


def _normalised(weights: np.ndarray) -> np.ndarray:
    """Rows that sum to 1; rows of zeros stay."""
    total = weights.sum(-1, keepdims=True, dtype=np.float64)
    return weights / np.where(total > 0, total, 1.0)


def _key_types(task: Task, batch: Batch) -> Int64[np.ndarray, "*lead seq_len"]:
    """Which of the task's key tokens stands at a position, -1 for a token that is no key."""
    kind = np.full(len(task.vocabulary), -1)
    kind[list(task.key_tokens)] = np.arange(len(task.key_tokens))
    return kind[batch.tokens]


def _visible_keys(task: Task, batch: Batch) -> Bool[np.ndarray, "*lead seq_len seq_len"]:
    """Row i, position j: a key token at or before the row."""
    is_key = _key_types(task, batch) >= 0
    return is_key[..., None, :] & np.tri(batch.seq_len, dtype=bool)


def _ages(task: Task, batch: Batch) -> Int64[np.ndarray, "*lead seq_len seq_len"]:
    """Row i, key j: 1 for the newest key at the row, 2 for the one before it, and so on."""
    number: np.ndarray = np.cumsum(_key_types(task, batch) >= 0, axis=-1)
    return number[..., :, None] - number[..., None, :] + 1


def _best_window(task: Task, sample: Batch) -> int:
    """The k with the least mean total variation distance from the target.

    The uniform distributions on m and on s keys, h of them in common, are 1 - h / max(m, s) apart.
    """
    scored = sample.queries > 0
    ages = np.where(sample.targets(), _ages(task, sample), 0)[scored]
    keys = np.cumsum(_key_types(task, sample) >= 0, axis=-1)[scored]
    sizes = sample.target_sizes()[scored]
    hits = np.zeros(len(ages), dtype=np.int64)
    distances = []
    for k in range(1, min(_LONGEST_WINDOW, sample.seq_len) + 1):
        hits += (ages == k).any(-1)  # one key at most has that age
        distances.append(np.mean(1 - hits / np.maximum(np.minimum(k, keys), sizes)))
    return 1 + int(np.argmin(distances))


def _cumulative_counts(task: Task, batch: Batch) -> Float64[np.ndarray, "*lead seq_len vocabulary"]:
    return np.cumsum(batch.tokens[..., None] == np.arange(len(task.vocabulary)), axis=-2, dtype=np.float64)


def _fit_counts(task: Task, sample: Batch) -> tuple[np.ndarray, np.ndarray]:
    """(slopes (key types, vocabulary), offsets (key types,)) of one logistic regression per type of key."""
    kind, running, targets = _key_types(task, sample), _cumulative_counts(task, sample), sample.targets()
    pairs = _visible_keys(task, sample) & (sample.queries > 0)[..., None]
    slopes = np.zeros((len(task.key_tokens), len(task.vocabulary)))
    offsets = np.zeros(len(task.key_tokens))
    for token in range(len(task.key_tokens)):
        which, row, key = np.nonzero(pairs & (kind == token)[..., None, :])
        every = max(1, len(which) // _PAIRS_PER_TYPE)
        which, row, key = which[::every], row[::every], key[::every]
        between = running[which, row] - running[which, key]
        fit = logistic_regression(np.column_stack([between, np.ones(len(between))]), targets[which, row, key])
        slopes[token], offsets[token] = fit[:-1], fit[-1]
    return slopes, offsets


def logistic_regression(features: np.ndarray, answers: np.ndarray, *, ridge: float = 1.0) -> np.ndarray:
    """Coefficients (columns of features,) that maximise log-likelihood of the answers - ridge |coefficients|^2 / 2.

    Newton's method; a step that does not improve is halved, so it converges also where the classes can be
    separated.
    """
    coefficients = np.zeros(features.shape[1])

    def objective(candidate: np.ndarray) -> float:
        logits = features @ candidate
        return float(np.sum(answers * logits - np.logaddexp(0.0, logits)) - ridge * candidate @ candidate / 2)

    best = objective(coefficients)
    for _ in range(50):
        chances = _sigmoid(features @ coefficients)
        slope = features.T @ (answers - chances) - ridge * coefficients
        bend = (features.T * (chances * (1 - chances))) @ features + ridge * np.eye(len(coefficients))
        step = np.linalg.solve(bend, slope)
        while (value := objective(coefficients + step)) < best and np.abs(step).max() > 1e-9:
            step /= 2
        if value - best <= 1e-9 * abs(best):
            break
        coefficients, best = coefficients + step, value
    return coefficients


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -logits))
