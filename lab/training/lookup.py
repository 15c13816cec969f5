"""Heads that look values up: trained on the answer alone, nothing says where to attend.

A position hands over the embedding of the value that it binds (one more embedding stands for positions that bind
nothing); the head's output is their mean by its attention weights, and a linear readout gives the logits of the
answer. Embeddings, readout and head are trained together on the cross-entropy of the answer: Adam, cosine decay and
smoothing as the recipe says. As in `ensemble`, nothing mixes seeds, so a seed gives the same numbers alone or inside
any block.

What a row of results means, by what stands behind the task's name:

    (nothing)     the answer. loss, exact: its cross-entropy and whether it is right; mass: weight on the binding in
                  force, tv = 1 - mass; gap: its logit less the largest other
    /shadowed     the answer, at queries with two live bindings of the symbol or more
    /outlived     the answer, at queries whose newest binding of the symbol is dead
    /in force     as the answer, but exact says whether no other position has as much weight as the binding in force
    /live keys    the live bindings of the symbol as a target set, with the metrics of `lab.training.metrics`

A seed succeeds when at 0.99 of the queries or more the answer is right, and at as many the binding in force has the
most weight: right answers, found in the right place.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from safetensors.torch import load, save
from torch import Tensor, nn

from lab.heads.base import Head, make_head
from lab.heads.config import HeadConfig
from lab.profiling import Timers
from lab.tasks.base import Task
from lab.tasks.scoped_lookup import ALL, OUTLIVED, SHADOWED, LookupBatch, ScopedLookup
from lab.training.ensemble import CURVE_POINTS, CURVE_SEQUENCES, PATIENCE, learning_rate, smoothing
from lab.training.lookup_kernels import ROW_COLUMNS, lookup_step, read_rows
from lab.training.metrics import EXACT_FOR_SUCCESS, Reading
from lab.training.recipe import Recipe

LIVE, IN_FORCE = "live keys", "in force"
# Sequences read at once are limited to this many tokens per seed.
_TOKENS_AT_ONCE = 1 << 15


class Readout(nn.Module):
    """What values look like to the head, and what it makes of their mean: one of each per seed.

    value: (seeds, values + 1, value_dim), the last row for positions that bind nothing; readout: (seeds, value_dim,
    values); constant: (seeds, values).
    """

    def __init__(self, values: int, seeds: Sequence[int]):
        super().__init__()
        generators = [torch.Generator().manual_seed(0x7A1E + seed) for seed in seeds]

        def normal(*shape: int) -> Tensor:
            return torch.stack([torch.randn(shape, generator=g) / math.sqrt(values) for g in generators])

        self.value = nn.Parameter(normal(values + 1, values))
        self.readout = nn.Parameter(normal(values, values))
        self.constant = nn.Parameter(torch.zeros(len(generators), values))

    def table(self) -> Float[Tensor, "seeds bound values"]:
        """The logits of the answer when all weight is on one value; those of a mean are the mean of these."""
        return (self.value[..., None] * self.readout[:, None]).sum(-2) + self.constant[:, None]


@dataclass
class TrainedLookup:
    """A trained ensemble. curve: float32 (seeds, points), validation loss of the answer after `curve_steps` steps."""

    head: Head
    readout: Readout
    curve_steps: tuple[int, ...]
    curve: np.ndarray

    def parameter_count(self) -> dict[str, int]:
        """Numbers per seed of every parameter of the head and of the readout."""
        own = {f"readout.{name}": p.numel() // len(self.head.seeds) for name, p in self.readout.named_parameters()}
        return self.head.parameter_count() | own

    def state_bytes(self) -> bytes:
        """All parameters of all seeds in safetensors format, those of the readout under "readout."."""
        own = {f"readout.{name}": p.detach().cpu().contiguous() for name, p in self.readout.named_parameters()}
        about = {"seeds": ",".join(map(str, self.head.seeds)), "head": self.head.config.model_dump_json()}
        return save(load(self.head.state_bytes()) | own, metadata=about)


def attention_parts(head: Head, tokens: Tensor) -> tuple[list[Tensor | None], float]:
    """What the logits of a head are made of, and the penalty scale: content, bias, total log gate, field, level.

    content (seeds, vocab, vocab); bias (seeds, distances); the others (seeds, batch, length). What a head does not
    have is None. Raises TypeError for a head with anything else in its logits.
    """
    known = ("softmax", "fox", "fpa", "fpa_recency")
    made: Any = head
    if head.config.kind not in known or getattr(head.config, "position", "") == "rope":
        raise TypeError(f"{head.config.label}: lookups are compiled for softmax without RoPE, FoX and FPA heads")
    positional: Any = getattr(head, "positional", None)
    bias = None if positional is None else positional.bias(tokens.shape[-1])
    gated = getattr(head, "gate", None) is not None
    total = made.log_gate(tokens).cumsum(-1) if gated else None
    field, level = made.field_and_level(tokens) if hasattr(head, "field_and_level") else (None, None)
    return [head.content_table(), bias, total, field, level], float(getattr(head.config, "penalty_scale", 1.0))


class _LookupStep(torch.autograd.Function):
    """Loss and gradients come out of one compiled pass; backward only scales them."""

    @staticmethod
    def forward(ctx, batch, scale, smoothing, *parts):
        arrays = [_float64(part, batch.tokens.shape, n) for n, part in enumerate(parts)]
        gradients = [np.zeros_like(array) for array in arrays]
        losses = np.zeros(len(batch.tokens))
        answers = batch.answers()
        for s in range(len(losses)):
            number = max(1, int(batch.queries[s].sum()))
            content, bias, total, field, level, table = (array[s] for array in arrays)
            own = tuple(gradient[s] for gradient in gradients)
            inputs = (batch.tokens[s], batch.queries[s], batch.values[s], answers[s])
            losses[s] = lookup_step(*inputs, content, bias, total, field, level, scale, smoothing, table, own) / number
            for gradient in own:
                gradient /= number
        ctx.gradients = [
            None if p is None else torch.from_numpy(g).to(p.dtype) for p, g in zip(parts, gradients, strict=True)
        ]
        return torch.from_numpy(losses)

    @staticmethod
    def backward(ctx, *upstream):
        (out,) = upstream
        scaled = [None if g is None else g * out.to(g.dtype).view(-1, *[1] * (g.dim() - 1)) for g in ctx.gradients]
        return (None, None, None, *scaled)


def _float64(part: Tensor | None, shape: tuple[int, ...], place: int) -> np.ndarray:
    """What the compiled pass takes; an axis of length 0 stands for what a head does not have."""
    if part is not None:
        return part.detach().double().contiguous().numpy()
    return np.zeros((shape[0], 0) if place == 1 else (*shape[:2], 0))


def lookup_loss(head: Head, readout: Readout, batch: LookupBatch, *, smoothing: float = 0.0) -> Float[Tensor, " seeds"]:
    """Mean cross-entropy of each seed's answers over its queries; batch of lead shape (seeds, sequences)."""
    parts, scale = attention_parts(head, torch.from_numpy(batch.tokens))
    return _LookupStep.apply(batch, scale, float(smoothing), *parts, readout.table())


class PermutedAnswers(LookupBatch):
    """A control that must not succeed: every query is answered by one half a batch away, of the same seed's."""

    def answers(self):
        answers = super().answers()
        for own in answers.reshape(len(answers), -1):
            scored = np.flatnonzero(own >= 0)
            own[scored] = np.roll(own[scored], len(scored) // 2)
        return answers


def train_lookup(
    task: ScopedLookup,
    config: HeadConfig,
    recipe: Recipe,
    seeds: Sequence[int],
    *,
    on_step: Callable[[int, np.ndarray | None], None] | None = None,
    timers: Timers | None = None,
) -> TrainedLookup:
    """Trains one head and one readout per seed on the answers; arguments as of `lab.training.ensemble.train`.

    Raises TypeError for a head whose logits the compiled pass does not know (see `attention_parts`).
    """
    timed = timers or Timers()
    lengths = recipe.lengths or (task.train_length,)
    scales = {name: getattr(recipe, name) for name in ("initial_scale", "initial_drift", "content_scale")}
    head = make_head(config, len(task.vocabulary), seeds, max_len=max(lengths), **scales)
    readout = Readout(task.values, head.seeds)
    parameters = [*head.parameters(), *readout.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=recipe.learning_rate)
    points = sorted({round(recipe.steps * k / CURVE_POINTS) for k in range(CURVE_POINTS + 1)})
    curve: list[np.ndarray] = []
    frozen, within = np.zeros(len(head.seeds), dtype=bool), np.zeros(len(head.seeds), dtype=int)

    for step in range(recipe.steps + 1):
        losses = None
        if step in points:
            with timed("metrics"):
                losses = _validation_losses(head, readout, task)
            curve.append(losses)
            if recipe.early_stop > 0:
                within = np.where(losses <= recipe.early_stop, within + 1, 0)
                frozen |= within >= PATIENCE
        if on_step is not None:
            on_step(step, losses)
        if step == recipe.steps or frozen.all():
            break
        for group in optimiser.param_groups:
            group["lr"] = learning_rate(recipe, step)
        with timed("data"):
            length = lengths[step % len(lengths)]
            batch = _sample(task, "train", head.seeds, step * recipe.batch, recipe.batch, length)
            if recipe.permute_targets:
                batch = PermutedAnswers(*(getattr(batch, field.name) for field in fields(batch)))
        with timed("forward and backward"):
            optimiser.zero_grad(set_to_none=True)
            lookup_loss(head, readout, batch, smoothing=smoothing(recipe, step)).sum().backward()
        with timed("optimiser"), torch.no_grad():
            held = [p.detach()[frozen].clone() for p in parameters]
            optimiser.step()
            for p, kept in zip(parameters, held, strict=True):
                p[frozen] = kept
    curve += [curve[-1]] * (len(points) - len(curve))
    return TrainedLookup(head, readout, tuple(points), np.stack(curve, 1))


def _sample(task: Task, split: str, seeds: Sequence[int], start: int, count: int, length: int | None) -> LookupBatch:
    batch = task.sample(split, seeds, start, count, length=length)
    assert isinstance(batch, LookupBatch)
    return batch


def _validation_losses(head: Head, readout: Readout, task: ScopedLookup) -> np.ndarray:
    batch = _sample(task, "validation", head.seeds, 0, CURVE_SEQUENCES, None)
    rows = lookup_rows(head, readout, batch)
    return np.array([answer_reading(rows[s], batch.queries[s]).loss for s in range(len(rows))], dtype=np.float32)


@torch.no_grad()
def lookup_rows(head: Head, readout: Readout | None, batch: LookupBatch) -> Float64[np.ndarray, "seeds batch length _"]:
    """The metrics of every row that is scored, in the columns ROW_COLUMNS, 0 elsewhere; lead shape (seeds, sequences).

    Without a readout, as for files, whose values nobody was trained on, the columns of the answer are nan.
    """
    parts, scale = attention_parts(head, torch.from_numpy(batch.tokens))
    arrays = [_float64(part, batch.tokens.shape, n) for n, part in enumerate(parts)]
    tables = np.zeros((len(batch.tokens), 0, 0)) if readout is None else _float64(readout.table(), (), 0)
    rows = np.zeros((*batch.tokens.shape, len(ROW_COLUMNS)))
    answers = batch.answers()
    for s in range(len(rows)):
        inputs = (batch.tokens, batch.queries, batch.values, answers, batch.death, batch.symbols, batch.in_force)
        given: list[Any] = [array[s] for array in (*inputs, *arrays)]
        given += [scale, tables[s], rows[s]]
        read_rows(*given)
    return rows


@dataclass(frozen=True)
class LookupReading(Reading):
    """A `Reading` with the success of a lookup; `most_weight`: how often the one in force has it."""

    most_weight: float

    @property
    def success(self) -> bool:
        return self.exact >= EXACT_FOR_SUCCESS and self.most_weight >= EXACT_FOR_SUCCESS

    def row(self) -> dict[str, float]:
        return {name: value for name, value in super().row().items() if name != "most_weight"}


_NUMBERS = [field.name for field in fields(LookupReading)]


def answer_reading(rows: np.ndarray, queries: np.ndarray, exact: str = "answer") -> LookupReading:
    """One seed's answers, over the rows of any sequences: rows (..., columns), queries (...) says which count."""
    if not queries.any():
        return LookupReading(**dict.fromkeys(_NUMBERS, math.nan) | {"queries": 0})  # type: ignore[arg-type]
    column = _columns(rows, queries)
    mass, most_weight = float(column("force_mass").mean()), float((column("force_gap") > 0).mean())
    return LookupReading(
        queries=int(queries.sum()),
        loss=float(column("loss").mean()),
        excess_loss=float(column("loss").mean()),  # the optimum is 0: the answer is determined
        tv=1 - mass,
        exact=most_weight if exact == IN_FORCE else float(column("right").mean()),
        most_weight=most_weight,
        mass=mass,
        window_mean=0.0,
        window_max=0.0,
        **_gap(column("force_gap")),
    )


def found_reading(rows: np.ndarray, queries: np.ndarray) -> Reading:
    """As `answer_reading`, where nothing is answered: the binding that a head picks among those of one name.

    exact: the share of queries at which the binding in force has the largest logit of all bindings of its name, live
    or dead; one of k equal ones counts 1/k. mass: weight on it, of all weight. loss: -log of that mass. gap: its logit
    less the largest of its name.
    """
    if not queries.any():
        return answer_reading(rows, queries)
    column = _columns(rows, queries)
    mass = float(column("force_mass").mean())
    with np.errstate(divide="ignore"):
        loss = float(-np.log(column("force_mass")).mean())
    gaps = column("found_gap")
    exact = float(column("found").mean())
    return Reading(int(queries.sum()), loss, loss, 1 - mass, exact, mass, 0.0, 0.0, **_gap(gaps[np.isfinite(gaps)]))


def live_reading(rows: np.ndarray, queries: np.ndarray) -> Reading:
    """One seed's attention against the live bindings of the symbol as a target set."""
    column = _columns(rows, queries)
    means = {name: float(column(f"live_{name}").mean()) for name in ("loss", "tv", "exact", "mass")}
    window, gap = column("live_window"), column("live_gap")
    return Reading(
        queries=int(queries.sum()),
        excess_loss=float(column("live_excess").mean()),
        window_mean=float(window.mean()),
        window_max=float(window.max()),
        **means,
        **_gap(gap),
    )


def _columns(rows: np.ndarray, queries: np.ndarray) -> Callable[[str], np.ndarray]:
    """A column by name, of the rows that count."""
    kept = rows[queries > 0]
    return lambda name: kept[:, ROW_COLUMNS.index(name)]


def _gap(gaps: np.ndarray) -> dict[str, float]:
    return {
        "gap_mean": float(gaps.mean()) if gaps.size else math.nan,
        "gap_min": float(gaps.min()) if gaps.size else math.nan,
    }


def read_lookup(
    trained: TrainedLookup, task: ScopedLookup, split: str, *, sequences: int, length: int
) -> dict[str, list[Reading]]:
    """How each seed answers `sequences` of its own sequences: one Reading per seed, by what the module sets out.

    The name "" is the answer at all queries.
    """
    at_once = max(1, _TOKENS_AT_ONCE // length)
    parts = []
    for start in range(0, sequences, at_once):
        batch = _sample(task, split, trained.head.seeds, start, min(at_once, sequences - start), length)
        rows = lookup_rows(trained.head, trained.readout, batch)
        parts.append((rows, *(batch.group(name) for name in (ALL, SHADOWED, OUTLIVED))))
    of_seeds = zip(*(np.concatenate(arrays, 1) for arrays in zip(*parts, strict=True)), strict=True)
    found: dict[str, list[Reading]] = {name: [] for name in ("", SHADOWED, OUTLIVED, IN_FORCE, LIVE)}
    for rows, everything, shadowed, outlived in of_seeds:
        found[""].append(answer_reading(rows, everything))
        found[SHADOWED].append(answer_reading(rows, shadowed))
        found[OUTLIVED].append(answer_reading(rows, outlived))
        found[IN_FORCE].append(answer_reading(rows, everything, IN_FORCE))
        found[LIVE].append(live_reading(rows, everything))
    return found
