"""The ensemble trainer: many seeds of one head at once, each with its own start and its own data stream.

Nothing mixes seeds: data, loss, gradients and Adam's moments are all per seed, and every sum runs in an order that
does not depend on the block. Seed s therefore gives the same numbers alone or inside any block of seeds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lab.heads.base import Head, make_head
from lab.heads.config import HeadConfig
from lab.ops.dispatch import target_loss
from lab.profiling import Timers
from lab.tasks.base import Batch, Task
from lab.training.metrics import as_tensors, read_task
from lab.training.recipe import Recipe

CURVE_POINTS = 40
CURVE_SEQUENCES = 16
# A seed is frozen by `early_stop` after this many curve points in a row.
PATIENCE = 5


@dataclass
class Trained:
    """A trained ensemble and its learning curves: validation loss above the optimum, without smoothing.

    curve: float32 (seeds, points), after `curve_steps` steps of training.
    """

    head: Head
    curve_steps: tuple[int, ...]
    curve: np.ndarray

    def parameter_count(self) -> dict[str, int]:
        """Numbers per seed of every parameter."""
        return self.head.parameter_count()

    def state_bytes(self) -> bytes:
        """All parameters of all seeds in safetensors format."""
        return self.head.state_bytes()


def learning_rate(recipe: Recipe, step: int) -> float:
    """Cosine decay from the recipe's rate to 0."""
    return recipe.learning_rate * 0.5 * (1.0 + math.cos(math.pi * step / recipe.steps))


def smoothing(recipe: Recipe, step: int) -> float:
    """tau falls linearly from the recipe's value to 0 over the first part of the run."""
    until = recipe.smoothing_until * recipe.steps
    return recipe.smoothing * max(0.0, 1.0 - step / until) if until > 0 else 0.0


def of_another(batch: Batch) -> Batch:
    """Every sequence with the targets, and the rows that are scored, of the next one of its seed's batch."""
    return Batch(batch.tokens, np.roll(batch.death, -1, axis=1), np.roll(batch.queries, -1, axis=1))


def train(
    task: Task,
    config: HeadConfig,
    recipe: Recipe,
    seeds: Sequence[int],
    *,
    device: str = "cpu",
    on_step: Callable[[int, np.ndarray | None], None] | None = None,
    timers: Timers | None = None,
) -> Trained:
    """Trains one head per seed.

    `on_step(step, losses)` is called after every step; losses is (seeds,) at curve points and None between them.
    `timers` is told where the time goes.
    """
    timed = timers or Timers()
    lengths = recipe.lengths or (task.train_length,)
    head = make_head(
        config,
        len(task.vocabulary),
        seeds,
        max_len=task.seq_len(max(lengths)),
        initial_scale=recipe.initial_scale,
        initial_drift=recipe.initial_drift,
        content_scale=recipe.content_scale,
    ).to(device)
    parameters = list(head.parameters())
    optimiser = torch.optim.Adam(parameters, lr=recipe.learning_rate)
    points = sorted({round(recipe.steps * k / CURVE_POINTS) for k in range(CURVE_POINTS + 1)})
    curve = []
    frozen = torch.zeros(len(head.seeds), dtype=torch.bool, device=device)
    any_frozen = False
    within = np.zeros(len(head.seeds), dtype=int)

    for step in range(recipe.steps + 1):
        losses = None
        if step in points:
            with timed("metrics"):
                readings = read_task(head, task, "validation", sequences=CURVE_SEQUENCES)
            losses = np.array([r.excess_loss for r in readings], dtype=np.float32)
            curve.append(losses)
            if recipe.early_stop > 0:
                within = np.where(losses <= recipe.early_stop, within + 1, 0)
                frozen |= torch.from_numpy(within >= PATIENCE).to(device)
                any_frozen = bool(frozen.any())
        if on_step is not None:
            on_step(step, losses)
        if step == recipe.steps or (any_frozen and frozen.all()):
            break
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(recipe, step)
        with timed("data"):
            length = lengths[step % len(lengths)]
            batch = task.sample("train", head.seeds, step * recipe.batch, recipe.batch, length=length)
            arrays = as_tensors(of_another(batch) if recipe.permute_targets else batch, device)
        with timed("forward and backward"):
            optimiser.zero_grad(set_to_none=True)
            loss = target_loss(head.token_logits(arrays[0]), *arrays, smoothing=smoothing(recipe, step))
            loss.sum().backward()
        with timed("optimiser"), torch.no_grad():
            held = [p.detach()[frozen].clone() for p in parameters] if any_frozen else []
            optimiser.step()
            for p, kept in zip(parameters, held, strict=False):
                p[frozen] = kept
    # Frozen seeds stay where they are: a block that stops early has the curve it would have had in a larger one.
    curve += [curve[-1]] * (len(points) - len(curve))
    return Trained(head, tuple(points), np.stack(curve, 1))
