"""One unit of a sweep on subset-free: heads trained on a whole family of targets, and read on all of it.

There is nothing to sample: every step sees every target, and success is decided on every target, in float64, from the
logits of the real head at its keys (*drop*, *keep* and the query are masked). What the task's notion asks for:

    separation   the gap, least logit on a target minus the largest outside, is above 0 for every target
    window       the least gap over all targets is at least 4 times the largest window, the spread on a target
    uniform      the total variation distance from uniform on the target is at most 0.05 for every target

Each notion is trained for by a loss of its own (summed over targets, full batch, Adam): cross-entropy for uniform,
softplus(-gap) for separation, softplus(6 - gap) + softplus(window - 6/5) for windows, with smooth versions of gap and
window that come ever closer to them.
"""

import dataclasses
import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from lab.errors import InputError
from lab.heads.base import Head, make_head
from lab.heads.config import HeadConfig
from lab.ops import kinds
from lab.profiling import Timers
from lab.sweeps.plan import Cell
from lab.sweeps.results import CellResult, Curves, Progress
from lab.tasks.subset_free import SubsetFree
from lab.training import family_kernels as kernels
from lab.training.family_kernels import Numbers
from lab.training.metrics import TV_FOR_SUCCESS, Reading
from lab.training.recipe import Recipe

# The window notion: gap over window; the gap and the window that training aims at, and how sharp both get.
RATIO = 4.0
MARGIN, WIDTH, SHARPEST = 6.0, 1.2, 16.0
# A gap counts when it is not of the size of float64's rounding of the logits.
ROUNDING = 1e-9
CURVE_POINTS = 10
_GATES = ("drop", "keep", "own", "last")

KINDS = {"softmax": kinds.SOFTMAX, "fox": kinds.FOX, "fox_relative": kinds.FOX, "fpa": kinds.FPA}
NOTIONS = {"uniform": kernels.UNIFORM, "window": kernels.WINDOW, "separation": kernels.SEPARATION}


def run_cell(cell: Cell, seeds: Sequence[int], progress: Progress | None = None, *, device: str = "cpu") -> CellResult:
    """As `lab.training.cells.run_cell`: trains one seed after the other, always on the CPU."""
    report = progress or (lambda fraction: None)
    task, timers = cell.task.make(), Timers()
    with timers("data"):
        head = start(task, cell.head, cell.recipe, seeds)
    points = sorted({round(cell.recipe.steps * k / CURVE_POINTS) for k in range(CURVE_POINTS + 1)})
    curves = []
    with timers("forward and backward"):
        for at in range(len(head.seeds)):
            curves.append(train_seed(head, at, task, cell.recipe, points))
            report((at + 1) / len(head.seeds))
    with timers("metrics"):
        logits = family_logits(head, task)
        rows = [
            row for seed, of_seed in zip(head.seeds, logits, strict=True) for row in _rows(cell, task, seed, of_seed)
        ]
    trained = Trainee(head, 0, task).numbers
    return CellResult(
        evaluations=rows,
        parameters_per_seed=sum(part.size for part in trained) - sum(part.size for part in _unused(head, trained)),
        curves=Curves(np.array(points), np.array(curves, dtype=np.float32)),
        profile=timers.seconds,
    )


def start(task: SubsetFree, config: HeadConfig, recipe: Recipe, seeds: Sequence[int]) -> Head:
    """The heads before training. InputError for heads and options that families are not trained with."""
    check(task, config)
    if recipe.permute_targets:
        raise InputError(f"recipe: permute_targets: all targets of {task.name} are trained on; none is held out")
    head = make_head(
        config,
        len(task.vocabulary),
        seeds,
        max_len=task.seq_len(task.keys),
        initial_scale=recipe.initial_scale,
        initial_drift=recipe.initial_drift,
        content_scale=recipe.content_scale,
    )
    if recipe.start == "construction":
        from lab.training.family_starts import start_from_construction

        start_from_construction(head, task)
    return head


def check(task: SubsetFree, config: HeadConfig) -> None:
    """Raises InputError unless these heads can be trained on that family."""
    where = f"{task.name}: head {config.label}"
    if config.kind not in KINDS:
        raise InputError(f"{where}: families are trained with softmax, fox and fpa heads only")
    if config.kind == "softmax" and config.position not in ("none", "relative"):
        raise InputError(f"{where}: position: expected none or relative, got {config.position}")
    if config.kind == "fpa" and (config.field != "walk" or config.level == "free"):
        raise InputError(f"{where}: expected a walk with tied or offset levels")
    if config.kind == "fpa" and task.query != "fixed":
        raise InputError(f"{where}: query: expected fixed; these heads need no free query")


class Trainee:
    """One seed of an ensemble as the kernels see it: its numbers, in arrays of their own until `store`."""

    def __init__(self, head: Head, at: int, task: SubsetFree):
        self.head, self.at, self.task = head, at, task
        self.kind = KINDS[head.config.kind]
        n, slots, first = task.keys, task.slots, task.first_drop
        self._drop, self._keep = slice(first, first + slots), slice(first + slots, first + 2 * slots)
        self._asked = slice(task.first_query, task.first_query + (task.targets if task.query == "free" else 1))
        self._last = slice(task.first_query, task.first_query + 1)
        self._distances = 2 * n - 2 * np.arange(n)  # from key j at position 2 j to the query at 2 n
        zeros = torch.zeros(len(task.vocabulary))
        by_token = self._by_token()
        forget = zeros if by_token is None else by_token[at].detach()
        offset = getattr(head, "offset", None)
        bias = self._bias()
        parts = (
            head.query[at, self._asked].detach().T,
            head.key[at, :n].detach(),
            zeros[:n] if bias is None else bias[at, self._distances].detach(),
            forget[self._drop],
            forget[self._keep],
            forget[:n],
            forget[self._last],
            zeros[:n] if offset is None else offset[at, :n].detach(),
        )
        self.biased, self.offsets = bias is not None, offset is not None
        self.numbers = Numbers(*(np.array(part.numpy(), dtype=np.float32, order="C") for part in parts))
        self.used = self.numbers
        if self.kind == kinds.FOX:
            self.used = self.numbers._replace(**{name: getattr(self.numbers, name).copy() for name in _GATES})
        self.dropped = np.ascontiguousarray(~task.alive().T, dtype=np.float32)
        self.scale = np.float32(head.scale)
        self.penalty_scale = np.float32(getattr(head.config, "penalty_scale", 1.0))

    def _by_token(self) -> torch.Tensor | None:
        """Gates of FoX or increments of a walk, (seeds, vocab)."""
        return getattr(self.head, "gate", getattr(self.head, "increment", None))

    def _bias(self) -> torch.Tensor | None:
        """Learned biases, (seeds, distances)."""
        return getattr(getattr(self.head, "positional", None), "by_distance", None)

    def logits(self) -> np.ndarray:
        """float32 (keys, targets), without smoothing."""
        if self.kind == kinds.FOX:
            kernels.log_gates(self.numbers, self.used)
        logits, depth = np.empty_like(self.dropped), np.empty_like(self.dropped)
        running = np.empty(self.dropped.shape[1], np.float32)
        kernels.family_logits(
            self.kind, self.used, self.dropped, self.scale, self.penalty_scale, np.float32(0), logits, depth, running
        )
        return logits

    @torch.no_grad()
    def store(self) -> None:
        """Writes the numbers back into the head."""
        numbers, at, n = self.numbers, self.at, self.task.keys
        self.head.query[at, self._asked] = torch.from_numpy(numbers.query.T.copy())
        self.head.key[at, :n] = torch.from_numpy(numbers.key)
        by_token, bias, offset = self._by_token(), self._bias(), getattr(self.head, "offset", None)
        if by_token is not None:
            places = ((slice(0, n), numbers.own), (self._drop, numbers.drop), (self._keep, numbers.keep))
            for place, values in (*places, (self._last, numbers.last)):
                by_token[at, place] = torch.from_numpy(values)
        if bias is not None:
            bias[at, self._distances] = torch.from_numpy(numbers.bias)
        if offset is not None:
            offset[at, :n] = torch.from_numpy(numbers.offset)


def train_seed(head: Head, at: int, task: SubsetFree, recipe: Recipe, points: Sequence[int]) -> list[float]:
    """Trains one seed in place; its loss above the optimum after so many steps, mean over targets."""
    trainee = Trainee(head, at, task)
    gradient, mean, square = (Numbers(*map(np.zeros_like, trainee.numbers)) for _ in range(3))
    notion, curve = NOTIONS[task.notion], [loss(task.notion, trainee.logits(), task.alive().T)]
    for first, last in pairwise(points):
        kernels.train_steps(
            trainee.kind, notion, trainee.numbers, trainee.used, gradient, mean, square,
            trainee.biased, trainee.offsets, trainee.dropped, trainee.scale, trainee.penalty_scale,
            np.float32(MARGIN), np.float32(WIDTH), SHARPEST, first, last, recipe.steps, recipe.learning_rate,
            recipe.smoothing, recipe.smoothing_until,
        )  # fmt: skip
        curve.append(loss(task.notion, trainee.logits(), task.alive().T))
    trainee.store()
    return curve


def loss(notion: str, logits: np.ndarray, alive: np.ndarray) -> float:
    """What training for a notion lowers, mean over targets, in float64; logits and alive (keys, targets)."""
    values = logits.astype(np.float64)

    def total(exponents: np.ndarray, where: np.ndarray) -> np.ndarray:
        return np.logaddexp.reduce(np.where(where, exponents, -np.inf), axis=0)

    if notion == "uniform":
        sizes = alive.sum(0)
        on_target = np.where(alive, values, 0.0).sum(0) / sizes
        return float(np.mean(np.logaddexp.reduce(values, axis=0) - on_target - np.log(sizes)))
    low = total(-values, alive)
    margin = MARGIN if notion == "window" else 0.0
    found = np.logaddexp(0.0, margin + total(values, ~alive) + low)
    if notion == "window":
        found = found + np.logaddexp(0.0, total(values, alive) + low - WIDTH)
    return float(np.mean(found))


@torch.no_grad()
def family_logits(head: Head, task: SubsetFree) -> np.ndarray:
    """The logits of the real head at its keys: float64 (seeds, targets, keys), by the reference operations."""
    tokens = torch.from_numpy(task.family().tokens)[None].expand(len(head.seeds), -1, -1)
    wide = head.double()
    return wide.logits(tokens, num_queries=1)[:, :, 0, 0:-1:2].numpy()


def read_family(logits: np.ndarray, alive: np.ndarray) -> tuple[Reading, dict[str, bool]]:
    """One seed's metrics over all targets, and whether it satisfies each notion; logits float64 (targets, keys)."""
    sizes, full = alive.sum(1), alive.all(1)
    least = np.where(alive, logits, np.inf).min(1)
    window = np.where(alive, logits, -np.inf).max(1) - least
    gap = (least - np.where(alive, -np.inf, logits).max(1))[~full]
    log_weights = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
    weights = np.exp(log_weights)
    cross = -np.where(alive, log_weights, 0.0).sum(1) / sizes
    tv = np.abs(weights - alive / sizes[:, None]).sum(1) / 2
    gap_min, window_max = float(gap.min(initial=math.inf)), float(window.max())
    reading = Reading(
        queries=len(alive),
        loss=float(cross.mean()),
        excess_loss=float((cross - np.log(sizes)).mean()),
        tv=float(tv.mean()),
        exact=float(((weights > 0.5 / sizes[:, None]) == alive).all(1).mean()),
        mass=float(np.where(alive, weights, 0.0).sum(1).mean()),
        window_mean=float(window.mean()),
        window_max=window_max,
        gap_mean=float(gap.mean()) if len(gap) else math.nan,
        gap_min=gap_min if len(gap) else math.nan,
    )
    separated = gap_min > ROUNDING * float(np.abs(logits).max())
    holds = {
        "separation": separated,
        "window": separated and gap_min >= RATIO * window_max,
        "uniform": bool(tv.max() <= TV_FOR_SUCCESS),
    }
    return reading, holds


def _rows(cell: Cell, task: SubsetFree, seed: int, logits: np.ndarray) -> list[dict]:
    """A row per evaluation: the same readings, and success as the evaluation's notion defines it."""
    reading, holds = read_family(logits, task.alive())
    rows = []
    for evaluation in cell.evaluations:
        read = evaluation.task.make()
        if dataclasses.replace(read, notion=task.notion) != task:
            raise InputError(
                f"{cell.task.label}: evaluation {evaluation.task.label}: expected the same family of targets"
            )
        place = {"task": evaluation.task.label, "split": evaluation.split, "length": task.keys, "factor": 1.0}
        rows.append({"seed": seed, **place, **reading.row(), "success": int(holds[read.notion])})
    return rows


def _unused(head: Head, numbers: Numbers) -> list[np.ndarray]:
    """Parts that a head of this kind does not have, or that change none of its weights."""
    kind = head.config.kind
    unused = [] if KINDS[kind] != kinds.SOFTMAX else [getattr(numbers, name) for name in _GATES]
    unused += [] if KINDS[kind] != kinds.FOX else [numbers.last]  # the gate at the query moves all keys alike
    unused += [] if getattr(head, "positional", None) is not None else [numbers.bias]
    return unused if getattr(head, "offset", None) is not None else [*unused, numbers.offset]
