"""The same training as one would first write it: one seed, batched PyTorch operations, autograd, torch's Adam.

This is how suites of synthetic tasks are usually run, one process per seed. Task, starting values, recipe, learning
curve and evaluations are those of the lab's trainer, so that both arrive at the same numbers; only how they are
computed differs. Sequences come from the lab's generators, which take next to no time.

    python -m lab.bench.plain_loop CELL.json SEED FILES.npz

prints one line of JSON. CELL.json is a cell of a sweep; FILES.npz holds source files that were parsed beforehand.
"""

import json
import math
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from lab.tasks import make_task

CURVE_POINTS, CURVE_SEQUENCES = 40, 16
# Sequences that are evaluated at once: their matrices of logits hold at most this many numbers.
MOST_LOGITS = 1 << 23


class PlainHead(nn.Module):
    """Logits of softmax (plain or with a relative bias), FoX or FPA on tokens (batch, length)."""

    def __init__(self, head: dict[str, Any], vocabulary: int, max_len: int, recipe: dict[str, Any], seed: int):
        super().__init__()
        draw = torch.Generator().manual_seed(0x5EED + seed)

        def normal(std: float, *shape: int) -> nn.Parameter:
            return nn.Parameter(std * torch.randn(shape, generator=draw))

        self.head = head
        self.scale = 1.0 / math.sqrt(max(1, head["dim"]))
        self.query = normal(recipe["content_scale"], vocabulary, head["dim"])
        self.key = normal(recipe["content_scale"], vocabulary, head["dim"])
        std = recipe["initial_scale"]
        if head.get("position") == "relative":
            self.relative = normal(std, max_len)
        elif head["kind"] == "fox":
            self.gate = nn.Parameter(head["gate_bias"] + normal(std, vocabulary).detach())
        elif head["kind"] == "fpa":
            self.field = normal(std, vocabulary)
            if head["level"] != "tied":
                self.level = normal(std, vocabulary)

    def forward(self, tokens: torch.Tensor, smoothing: float = 0.0) -> torch.Tensor:
        logits = self.scale * self.query[tokens] @ self.key[tokens].transpose(-1, -2)
        if self.head["kind"] == "fox":
            total = F.logsigmoid(self.gate)[tokens].cumsum(-1)
            logits = logits + total[:, :, None] - total[:, None, :]
        elif self.head["kind"] == "fpa":
            logits = logits - self.head["penalty_scale"] * self.penalty(tokens, smoothing)
        elif self.head["position"] == "relative":
            position = torch.arange(tokens.shape[-1])
            distance = (position[:, None] - position).clamp(0, len(self.relative) - 1)
            logits = logits + self.relative[distance]
        after = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
        return logits.masked_fill(after, -math.inf)

    def penalty(self, tokens: torch.Tensor, smoothing: float) -> torch.Tensor:
        """max(0, level_j - min of the field after j up to i), smoothed."""
        field = self.field[tokens]
        if self.head["field"] == "walk":
            field = field.cumsum(-1)
        level = field if self.head["level"] == "tied" else self.level[tokens]
        if self.head["level"] == "offset":
            level = field + level
        before = torch.ones(tokens.shape[-1], tokens.shape[-1], dtype=torch.bool).tril(-1)
        minimum = torch.where(before, field[:, :, None], math.inf).cummin(-2).values
        excess = level[:, None, :] - minimum
        return smoothing * F.softplus(excess / smoothing) if smoothing else F.relu(excess)


Arrays = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def one_seed(batch: Any) -> Arrays:
    """tokens, target matrices and queries of the only seed of a batch."""
    tokens, death, queries = (torch.from_numpy(x[0]) for x in (batch.tokens, batch.death, batch.queries))
    return tokens, targets_of(death, queries), queries


def targets_of(death: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    position = torch.arange(death.shape[-1])
    alive = (death[:, None, :] > position[:, None]) & (position <= position[:, None])
    return alive & (queries[:, :, None] > 0)


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor, queries: torch.Tensor) -> torch.Tensor:
    """Mean over the queries of the cross-entropy from the uniform distribution on the target."""
    log_weight = torch.where(targets, torch.log_softmax(logits, -1), 0.0)
    each = -log_weight.sum(-1) / targets.sum(-1).clamp_min(1)
    return (each * queries).sum() / queries.sum()


def train(cell: dict[str, Any], seed: int) -> tuple[PlainHead, list[float]]:
    """The head of one seed, and its learning curve: validation loss above the optimum."""
    task = make_task(cell["task"]["name"], **cell["task"]["options"])
    recipe = cell["recipe"]
    steps, batch = recipe["steps"], recipe["batch"]
    model = PlainHead(cell["head"], len(task.vocabulary), task.seq_len(task.train_length), recipe, seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=recipe["learning_rate"])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda t: 0.5 * (1 + math.cos(math.pi * t / steps)))
    validation = one_seed(task.sample("validation", [seed], 0, CURVE_SEQUENCES))
    points = {round(steps * k / CURVE_POINTS) for k in range(CURVE_POINTS + 1)}
    curve = []
    for step in range(steps + 1):
        if step in points:
            curve.append(measure(model, *validation)["excess_loss"])
        if step == steps:
            break
        tokens, targets, queries = one_seed(task.sample("train", [seed], step * batch, batch))
        until = recipe["smoothing_until"] * steps
        smoothing = recipe["smoothing"] * max(0.0, 1.0 - step / until) if until else 0.0
        loss = cross_entropy(model(tokens, smoothing), targets, queries)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return model, curve


@torch.no_grad()
def measure(model: PlainHead, tokens: torch.Tensor, targets: torch.Tensor, queries: torch.Tensor) -> dict[str, float]:
    """The metrics that the lab stores of every evaluation, as means over the queries."""
    logits = model(tokens)
    log_weight = torch.log_softmax(logits, -1)
    weight, size = log_weight.exp(), targets.sum(-1).clamp_min(1)
    uniform = 1.0 / size[..., None]
    low = torch.where(targets, logits, math.inf).amin(-1)
    high = torch.where(targets, logits, -math.inf).amax(-1)
    outside = torch.where(targets, -math.inf, logits).amax(-1)
    loss = -torch.where(targets, log_weight, 0.0).sum(-1) / size
    rows = {
        "loss": loss,
        "excess_loss": loss - size.log(),
        "tv": torch.where(targets, (uniform - weight).clamp_min(0), 0.0).sum(-1),
        "exact": ((weight > uniform / 2) == targets).all(-1).float(),
        "mass": torch.where(targets, weight, 0.0).sum(-1),
        "window": high - low,
        "gap": low - outside,
    }
    scored = queries > 0
    times = queries[scored]
    means = {name: float((row[scored] * times).sum() / times.sum()) for name, row in rows.items()}
    return {**means, "queries": float(times.sum())}


def evaluate(model: PlainHead, cell: dict[str, Any], seed: int, files: str) -> Iterator[dict[str, Any]]:
    """One row per length of every evaluation, and one per source file."""
    for evaluation in cell["evaluations"]:
        name = evaluation["task"]["name"]
        if name == "source-scopes":
            arrays = np.load(files)
            for n in range(len(arrays) // 3):
                tokens, death, queries = (torch.from_numpy(arrays[f"{part}{n}"])[None] for part in PARTS)
                if queries.any():
                    yield {"task": name, "file": n, **measure(model, tokens, targets_of(death, queries), queries)}
            continue
        task = make_task(name, **evaluation["task"]["options"])
        for length in evaluation["lengths"]:
            batch = one_seed(task.sample(evaluation["split"], [seed], 0, evaluation["sequences"], length=length))
            at_once = max(1, MOST_LOGITS // batch[0].shape[-1] ** 2)
            chunks = [measure(model, *part) for part in zip(*(x.split(at_once) for x in batch), strict=True)]
            total = sum(chunk["queries"] for chunk in chunks)
            means = {key: sum(chunk[key] * chunk["queries"] for chunk in chunks) / total for key in chunks[0]}
            yield {"task": name, "split": evaluation["split"], "length": length, **means, "queries": total}


PARTS = ("tokens", "death", "queries")


def main(cell_file: str, seed: int, files: str) -> None:
    start = time.perf_counter()
    with open(cell_file, encoding="utf-8") as opened:
        cell = json.load(opened)
    model, curve = train(cell, seed)
    rows = list(evaluate(model, cell, seed, files))
    print(json.dumps({"seconds": time.perf_counter() - start, "curve": curve, "evaluations": rows}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
