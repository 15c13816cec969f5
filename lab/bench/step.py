"""One training step of the target loss, forward and backward: the fused step beside ordinary operations.

All sides get the same data: nested-scope sequences, 16 seeds x 32 sequences x length 64, head dimension 4.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from lab.bench.measure import Comparison, Found, Named, Settings, Tell
from lab.heads import head_config
from lab.heads.base import make_head
from lab.ops import reference
from lab.ops.dispatch import PositionLogits, dense_targets, reference_target_loss, target_loss
from lab.tasks import make_task
from lab.training.metrics import as_tensors

SEEDS, BATCH, LENGTH, DIM = 16, 32, 64, 4
# Training smooths the penalty in the first half of a run; both halves are measured.
SMOOTHED = 0.5
LAB_SOFTMAX, LAB_FPA = "softmax-none", "fpa-walk-offset"

Arrays = tuple[Tensor, Tensor, Tensor]


def run(settings: Settings, tell: Tell) -> Found:
    """Fused against ordinary operations, and FPA against softmax, by position and as the trainer runs them."""
    found, every = Found(), comparisons()
    for n, one in enumerate(every):
        tell(n / len(every), one.name)
        found.results.append(one.run(settings))
    return found


def comparisons() -> list[Comparison]:
    """All sides share their inputs."""
    fpa, softmax = inputs("fpa"), inputs("softmax")
    shape = f"{SEEDS} seeds x {BATCH} x {LENGTH}, dim {DIM}"
    fused: Named = ("fused FPA step", partial(fused_step, fpa))
    smooth: Named = ("fused FPA step", partial(fused_step, fpa, SMOOTHED))
    by_token: Named = (f"trainer's {LAB_FPA} step", trainer_step(LAB_FPA))
    against: list[tuple[Named, Named, int, str | None, str | None, str]] = [
        (fused, ("reference-ops FPA step", partial(ordinary_step, fpa)), 20, "1/20", "1/40", shape),
        (smooth, ("reference-ops FPA step", partial(ordinary_step, fpa, SMOOTHED)), 20, "1/20", "1/40", "smoothed"),
        (fused, ("fused softmax step", partial(fused_step, softmax)), 80, "1.3", "1.1", "by position"),
        (fused, ("the definition", partial(definition_step, fpa)), 8, None, None, "by position"),
        (by_token, (f"trainer's {LAB_SOFTMAX} step", trainer_step(LAB_SOFTMAX)), 80, None, None, "by token"),
        (by_token, ("its reference operations", reference_head_step(LAB_FPA)), 12, None, None, "by token"),
    ]
    return [Comparison("step", *one) for one in against]


def data(seeds: int = SEEDS, batch: int = BATCH, length: int = LENGTH) -> Arrays:
    """Tokens, deaths and queries of nested-scope training sequences, each (seeds, batch, length)."""
    return as_tensors(make_task("nested-scope", train_length=length).sample("train", range(seeds), 0, batch))


class Inputs:
    """Float32 leaves of one step by position: queries and keys, for FPA a walk as field and levels near it."""

    def __init__(self, kind: str, seeds: int, batch: int, length: int, dim: int):
        draw = torch.Generator().manual_seed(1)
        place = (seeds, batch, length)
        self.kind = kind
        self.arrays = data(*place)
        self.query, self.key = (torch.randn(*place, dim, generator=draw, requires_grad=True) for _ in range(2))
        field = torch.randn(place, generator=draw).cumsum(-1)
        level = field + 0.1 * torch.randn(place, generator=draw)
        self.field, self.level = field.requires_grad_(), level.requires_grad_()
        self.scale = 1.0 / math.sqrt(dim)

    @property
    def leaves(self) -> list[Tensor]:
        return [self.query, self.key, *((self.field, self.level) if self.kind == "fpa" else ())]

    def logits(self) -> PositionLogits:
        if self.kind == "fpa":
            return PositionLogits("fpa", self.query, self.key, self.scale, field=self.field, level=self.level)
        return PositionLogits("softmax", self.query, self.key, self.scale)


def inputs(kind: str, seeds: int = SEEDS, batch: int = BATCH, length: int = LENGTH, dim: int = DIM) -> Inputs:
    """Leaves of one step; `kind` is softmax or fpa."""
    return Inputs(kind, seeds, batch, length, dim)


def fused_step(given: Inputs, smoothing: float = 0.0) -> list[Tensor]:
    """Gradients of the lab's loss."""
    loss = target_loss(given.logits(), *given.arrays, smoothing=smoothing)
    return list(torch.autograd.grad(loss.sum(), given.leaves))


def definition_step(given: Inputs, smoothing: float = 0.0) -> list[Tensor]:
    """The same by lab.ops.reference, which is written to be read and pays for its rule at ties."""
    loss = reference_target_loss(given.logits(), *given.arrays, smoothing=smoothing)
    return list(torch.autograd.grad(loss.sum(), given.leaves))


def ordinary_step(given: Inputs, smoothing: float = 0.0) -> list[Tensor]:
    """The same as one would write it: cummin on the materialised matrix, log_softmax, autograd. For kind fpa."""
    length = given.query.shape[-2]
    before = torch.ones(length, length, dtype=torch.bool).tril(-1)
    minimum = torch.where(before, given.field[..., :, None], math.inf).cummin(-2).values
    excess = given.level[..., None, :] - minimum
    penalty = smoothing * torch.nn.functional.softplus(excess / smoothing) if smoothing else torch.relu(excess)
    logits = given.scale * (given.query @ given.key.transpose(-1, -2)) - penalty
    seen = reference.causal_mask(length, length)
    log_weight = torch.log_softmax(torch.where(seen, logits, -math.inf), -1)
    _, death, queries = given.arrays
    targets = dense_targets(death, queries)
    each = -torch.where(targets, log_weight, 0.0).sum(-1) / targets.sum(-1).clamp_min(1)
    loss = (each * queries).sum((1, 2)) / queries.sum((1, 2))
    return list(torch.autograd.grad(loss.sum(), given.leaves))


def trainer_step(label: str, seeds: int = SEEDS, batch: int = BATCH, length: int = LENGTH, dim: int = DIM) -> Callable:
    """A step of a head as the trainer takes it, up to the gradients of its parameters; without the optimiser."""
    arrays = data(seeds, batch, length)
    head = make_head(head_config(label, dim), 3, range(seeds), max_len=length)
    parameters = list(head.parameters())

    def step() -> list[Tensor]:
        loss = target_loss(head.token_logits(arrays[0]), *arrays)
        return list(torch.autograd.grad(loss.sum(), parameters))

    return step


def reference_head_step(
    label: str, seeds: int = SEEDS, batch: int = BATCH, length: int = LENGTH, dim: int = DIM
) -> Callable:
    """The same from the head's own reference operations, by autograd."""
    tokens, death, queries = data(seeds, batch, length)
    head = make_head(head_config(label, dim), 3, range(seeds), max_len=length)
    parameters = list(head.parameters())
    targets = dense_targets(death, queries)

    def step() -> list[Tensor]:
        each = reference.target_cross_entropy(head.logits(tokens), targets)
        loss = (each * queries).sum((1, 2)) / queries.sum((1, 2))
        return list(torch.autograd.grad(loss.sum(), parameters))

    return step
