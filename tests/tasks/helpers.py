"""Batches as lists of words and sets."""

import numpy as np


def words(task, batch):
    return [task.vocabulary[token] for token in batch.tokens]


def asked(batch):
    """{row: set of target keys} of the scored rows of one sequence, read off the dense matrix."""
    matrix = batch.targets()
    return {int(row): set(np.flatnonzero(matrix[row]).tolist()) for row in np.flatnonzero(batch.queries)}
