"""What is measured over sizes: name -> prepare(**sizes), which makes the inputs and returns the call to be measured."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from lab.bench import attention, step
from lab.heads import head_config
from lab.heads.base import make_head
from lab.ops.dispatch import target_loss
from lab.tasks import make_task
from lab.training.metrics import as_tensors

Call = Callable[[], Any]


def _attention(attend: attention.Attend, *, length: int, dim: int, backward: bool = True) -> Call:
    """One sequence and one head. Without `backward`, the forward pass that one could still go back through."""
    given = attention.inputs(1, 1, length, dim)
    return partial(attention.step, attend, given) if backward else partial(attend, given)


def _by_position(function: Callable, kind: str, *, seeds: int, batch: int, length: int, dim: int) -> Call:
    return partial(function, step.inputs(kind, seeds, batch, length, dim))


def _training_step(label: str, *, seeds: int, keys: int, batch: int = 16, dim: int = 4) -> Call:
    """Data, forward and backward of one step of the trainer on subset-drop with so many keys, without the optimiser."""
    task = make_task("subset-drop", train_length=keys)
    head = make_head(head_config(label, dim), len(task.vocabulary), range(seeds), max_len=task.seq_len(keys))
    parameters = list(head.parameters())

    def call() -> tuple[torch.Tensor, ...]:
        arrays = as_tensors(task.sample("train", range(seeds), 0, batch))
        return torch.autograd.grad(target_loss(head.token_logits(arrays[0]), *arrays).sum(), parameters)

    return call


OPERATIONS: Mapping[str, Callable[..., Call]] = {
    "attention fpa": partial(_attention, attention.attend_fpa),
    "attention sdpa": partial(_attention, attention.attend_sdpa),
    "attention ordinary": partial(_attention, attention.attend_biased),
    "step fpa": partial(_by_position, step.fused_step, "fpa"),
    "step softmax": partial(_by_position, step.fused_step, "softmax"),
    "step ordinary": partial(_by_position, step.ordinary_step, "fpa"),
    "training fpa": partial(_training_step, step.LAB_FPA),
    "training softmax": partial(_training_step, step.LAB_SOFTMAX),
}
