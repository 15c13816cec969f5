"""Metrics of heads against their targets, per seed: how a head reads fresh sequences or whole source files."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch

from lab.heads.base import Head
from lab.ops.dispatch import TokenLogits, read_sequences
from lab.ops.reading import READ_COLUMNS
from lab.tasks.base import Batch, Task

EXACT_FOR_SUCCESS = 0.99
TV_FOR_SUCCESS = 0.05

# Sequences read at once are limited to this many tokens per seed, so that memory stays bounded at any length.
_TOKENS_AT_ONCE = 1 << 16
# Of heads that hold a number for every pair of positions, to this many numbers in all.
_PAIRS_AT_ONCE = 1 << 23


@dataclass(frozen=True)
class Reading:
    """One seed's metrics over a set of queries.

    loss: cross-entropy from the uniform distribution on the target to the weights; excess_loss: that minus its
    optimum log |target|. tv: total variation distance. exact: share of queries at which the keys above half the
    uniform weight are exactly the target. mass: weight on the target. window: largest minus least logit on the
    target; gap: least logit on the target minus the largest outside (queries whose target is all they see have none).
    """

    queries: int
    loss: float
    excess_loss: float
    tv: float
    exact: float
    mass: float
    window_mean: float
    window_max: float
    gap_mean: float
    gap_min: float

    @property
    def success(self) -> bool:
        """The definition of a seed that found its target sets."""
        return self.exact >= EXACT_FOR_SUCCESS and self.tv <= TV_FOR_SUCCESS

    def row(self) -> dict[str, float]:
        return {**asdict(self), "success": int(self.success)}


def summarise_rows(sums: np.ndarray, extremes: np.ndarray) -> Reading:
    """Adds up one seed's sequences: sums (n, columns) and extremes (n, 2) as `reading.read` returns them."""
    total = dict(zip(READ_COLUMNS, sums.sum(0), strict=True))
    n = max(1.0, total["queries"])
    with_gap = total["gap_rows"]
    return Reading(
        queries=int(total["queries"]),
        **{name: float(total[name] / n) for name in ("loss", "excess_loss", "tv", "exact", "mass")},
        window_mean=float(total["window"] / n),
        window_max=float(extremes[:, 0].max()),
        gap_mean=float(total["gap"] / with_gap) if with_gap else math.nan,
        gap_min=float(extremes[:, 1].min()) if with_gap else math.nan,
    )


def as_tensors(batch: Batch, device: torch.device | str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(tokens, death, queries) as int64 tensors."""
    return tuple(torch.from_numpy(x).to(device) for x in (batch.tokens, batch.death, batch.queries))  # type: ignore


@torch.no_grad()
def read_task(head: Head, task: Task, split: str, *, sequences: int, length: int | None = None) -> list[Reading]:
    """How each seed of an ensemble reads `sequences` of its own sequences of a split; one Reading per seed."""
    seq_len = task.seq_len(task.train_length if length is None else length)
    at_once = max(1, _TOKENS_AT_ONCE // max(1, seq_len))
    if head.dense:
        at_once = max(1, min(at_once, _PAIRS_AT_ONCE // (len(head.seeds) * seq_len**2)))
    device = head.query.device
    sums, extremes = [], []
    for start in range(0, sequences, at_once):
        count = min(at_once, sequences - start)
        arrays = as_tensors(task.sample(split, head.seeds, start, count, length=length), device)
        part = read_sequences(head.token_logits(arrays[0]), *arrays)
        sums.append(part[0])
        extremes.append(part[1])
    all_sums, all_extremes = np.concatenate(sums, 1), np.concatenate(extremes, 1)
    return [summarise_rows(all_sums[s], all_extremes[s]) for s in range(len(head.seeds))]


@torch.no_grad()
def read_sequence(head: Head, sequence: Batch) -> tuple[np.ndarray, np.ndarray]:
    """Sums (seeds, columns) and extremes (seeds, 2) of every seed reading one given sequence, e.g. a source file."""
    tokens, death, queries = (
        x.expand(len(head.seeds), 1, -1).contiguous() for x in as_tensors(sequence, head.query.device)
    )
    sums, extremes = read_sequences(head.token_logits(tokens), tokens, death, queries)
    return sums[:, 0], extremes[:, 0]


def read_weights(weights: np.ndarray, batch: Batch) -> Reading:
    """The same metrics for given attention weights (..., length, length): shortcuts, oracles, other people's heads.

    The weights are handed to the head's own metric path as log weights, so nothing is computed twice.
    """
    length = batch.tokens.shape[-1]
    lead = int(np.prod(batch.tokens.shape[:-1], dtype=int))
    sums, extremes = [], []
    with np.errstate(divide="ignore"):
        log_weights = np.log(np.asarray(weights, dtype=np.float64).reshape(lead, length, length))
    # Every position becomes its own token: the table of one sequence is then its matrix of logits.
    position = torch.arange(length)[None, None]
    for flat, death, queries in zip(
        log_weights, batch.death.reshape(lead, length), batch.queries.reshape(lead, length), strict=True
    ):
        table = torch.from_numpy(flat)[None, :, :, None]
        arrays = (torch.from_numpy(x)[None, None] for x in (death, queries))
        part = read_sequences(TokenLogits("softmax", table), position, *arrays)
        sums.append(part[0][0])
        extremes.append(part[1][0])
    return summarise_rows(np.concatenate(sums), np.concatenate(extremes))


def merge(parts: Iterable[tuple[np.ndarray, np.ndarray]], seeds: Sequence[int]) -> list[Reading]:
    """One Reading per seed over several sequences read by `read_sequence`."""
    listed = list(parts)
    sums = np.stack([p[0] for p in listed], 1)
    extremes = np.stack([p[1] for p in listed], 1)
    return [summarise_rows(sums[s], extremes[s]) for s in range(len(seeds))]
