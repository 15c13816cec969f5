"""The chance line: a reader that weights all keys seen so far equally, whatever they are."""

import json
from functools import lru_cache

import numpy as np

from lab.sweeps.kept import kept_on_disk
from lab.sweeps.plan import TaskConfig

# The test sequences of as many seeds, as many each, as the heads of a paper preset are read on.
SEEDS = 32
SEQUENCES = 64


def chance_level(task: TaskConfig, length: int, sequences: int = SEQUENCES) -> dict[str, float]:
    """Mean `tv`, `exact` and `excess_loss` over the queries of test sequences of 32 seeds, for any task that samples.

    With K keys seen and a target of S of them the weights are 1/K: tv = 1 - S/K, the loss above the optimum is
    log(K/S), and the keys above half the uniform weight 1/S are all keys or none, so only S = K is exact.
    """
    return dict(_levels(task.name, json.dumps(task.options, sort_keys=True), length, sequences))


@lru_cache(maxsize=256)
def _levels(name: str, options: str, length: int, sequences: int) -> dict[str, float]:
    data = TaskConfig(name=name, options=json.loads(options)).data_version
    return _sampled(name, options, data, length, SEEDS, sequences)


@kept_on_disk
def _sampled(
    name: str, options: str, data_version: str | None, length: int, seeds: int, sequences: int
) -> dict[str, float]:
    """`data_version` tells answers about other files apart."""
    task = TaskConfig(name=name, options=json.loads(options)).make()
    batch = task.sample("test", range(seeds), 0, sequences, length=length)
    if hasattr(task, "chance_levels"):  # tasks that are not about target sets say for themselves
        return task.chance_levels(batch)
    seen = np.cumsum(batch.death > 0, axis=-1)
    scored = batch.queries > 0
    keys, targets, queries = seen[scored], batch.target_sizes()[scored], batch.queries[scored]
    share = targets / keys
    values = {"tv": 1 - share, "exact": share == 1, "excess_loss": -np.log(share)}
    return {metric: float(np.average(value, weights=queries)) for metric, value in values.items()}
