"""`fpa-lab train`: one head on one task for a few seeds, with its learning curve. Nothing is stored."""

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lab.cli.console import Tell, print_json, print_profile, print_table, progress
from lab.cli.options import MOST_SEEDS, Device, Json, Profile, check_device
from lab.cli.tasks import CUSTOM, LOOKUPS, SOURCE_SCOPES, Option, Spec, check_tokens, make
from lab.errors import InputError
from lab.profiling import Timers, shares

if TYPE_CHECKING:
    import numpy as np

    from lab.tasks import Task
    from lab.training import Recipe
    from lab.training.ensemble import Trained
    from lab.training.metrics import Reading

FACTORS = (1, 2, 4, 8)
SUBSET_FREE = "subset-free"
# Steps of Adam are about this large, and float32 ends where the loss takes their exponential.
HIGHEST_RATE = 10.0
SEQUENCES = 64
RECIPE = "the recipe's"
BARS = "▁▂▃▄▅▆▇█"
BARS_SHOWN = 16
# The sparkline is logarithmic between these losses above the optimum.
LOWEST, HIGHEST = 1e-4, 1.0


def train(
    task_name: Annotated[str, typer.Option("--task", metavar="TASK", help="What to train on; see fpa-lab task.")],
    head: Annotated[str, typer.Option(metavar="HEAD", help="Such as fpa-walk-tied, fox-gate0, softmax-alibi.")],
    dim: Annotated[int, typer.Option(min=0, help="Content dimension of queries and keys.")] = 1,
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Seeds 0 to N-1, trained together.")] = 4,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of Adam.", show_default=RECIPE)] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Sequences per seed and step.", show_default=RECIPE)] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(max=HIGHEST_RATE, help="At the first step; falls to 0 as a cosine.", show_default=RECIPE),
    ] = None,
    option: Option = None,
    spec: Spec = None,
    device: Device = "cpu",
    profile: Profile = False,
    as_json: Json = False,
) -> int:
    """Train one head for a few seeds and show how it learned.

    Nothing is stored. A seed succeeds when its exact-set rate is at least 0.99 and its mean total variation at
    most 0.05 on fresh test sequences of the training length.

    \b
    Examples:
      fpa-lab train --task nested-scope --head fpa-walk-tied --dim 1 --seeds 4
      fpa-lab train --task subset-drop --head fox-gate4 --dim 2 --seeds 8 --steps 400
    """
    from lab.heads import head_config

    config = head_config(head, dim)
    if task_name == SOURCE_SCOPES:
        raise InputError(
            f"--task: {SOURCE_SCOPES}: one corpus for all splits is for reading, not for training; train on "
            "nested-scope, or sweep target_sets, whose heads read it"
        )
    if task_name in LOOKUPS:
        raise InputError(f"--task: {task_name}: trained on answers, by fpa-lab sweep scoped_lookup, not on target sets")
    made = make(task_name, option, spec, None)
    recipe = _recipe(steps=steps, batch=batch, learning_rate=learning_rate)
    check_tokens("--seeds, --batch", seeds * recipe.batch, made.seq_len(made.train_length))
    longest = max(_factors(made)) * made.train_length
    check_tokens("--seeds, --option train_length", seeds, made.seq_len(longest))
    check_device(device)

    from lab.training.ensemble import train as train_ensemble

    timers, start = Timers(), time.perf_counter()
    with progress(f"{task_name} {head}") as tell:
        on_step = _reporter(recipe.steps, tell)
        trained = train_ensemble(made, config, recipe, range(seeds), device=device, on_step=on_step, timers=timers)
    with timers("metrics"):
        readings = _evaluations(made, trained)
    spent = shares(timers.seconds, time.perf_counter() - start)
    if as_json:
        print_json(_document(made, trained, readings) | ({"profile": spent} if profile else {}))
        return 0
    _print_training(trained, readings)
    if profile:
        print_profile(spent, "after imports")
    return 0


def _recipe(**fields: Any) -> "Recipe":
    """The lab's recipe with what was given on the command line; the rest keeps its defaults."""
    from pydantic import ValidationError

    from lab.training import Recipe

    try:
        return Recipe(**{name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise InputError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}") from None


def _reporter(steps: int, tell: Tell) -> Callable[[int, "np.ndarray | None"], None]:
    """Turns the trainer's calls (after every step; losses at curve points only) into progress."""
    note = ""

    def on_step(step: int, losses: "np.ndarray | None") -> None:
        nonlocal note
        if losses is not None:
            note = f"median loss above optimum {sorted(losses)[len(losses) // 2]:.3g}"
        tell(step / steps, note)

    return on_step


def _evaluations(made: "Task", trained: "Trained") -> "dict[int, list[Reading]]":
    """One Reading per seed on fresh test sequences, at multiples of the training length."""
    from lab.training.metrics import read_task

    factors = _factors(made)
    readings = {}
    with progress("fresh test sequences") as tell:
        for done, factor in enumerate(factors):
            tell(done / len(factors), f"{factor}x the training length")
            length = factor * made.train_length
            readings[factor] = read_task(trained.head, made, "test", sequences=SEQUENCES, length=length)
    return readings


def _factors(made: "Task") -> tuple[int, ...]:
    one_length = made.name in (CUSTOM, SUBSET_FREE)  # keys with names, or tokens, of their own
    return (1,) if one_length else FACTORS


def _print_training(trained: "Trained", readings: "dict[int, list[Reading]]") -> None:
    header = [
        "seed",
        "learning curve",
        "loss",
        "TV",
        "exact 1x",
        *(f"{factor}x" for factor in list(readings)[1:]),
        "success",
    ]
    rows = []
    for index, seed in enumerate(trained.head.seeds):
        at_one = readings[1][index]
        exact = [read[index].exact for read in readings.values()]
        rows.append([seed, spark(trained.curve[index]), at_one.excess_loss, at_one.tv, *exact, at_one.success])
    print_table(header, rows, left=2)
    successes = sum(reading.success for reading in readings[1])
    last = trained.curve_steps[-1]
    print(f"Curve: validation loss above the optimum, steps 0 to {last}, logarithmic from {HIGHEST:g} to {LOWEST:g}.")
    print(
        f"{successes} of {len(rows)} seeds succeed: exact >= 0.99 and TV <= 0.05 at 1x, on {SEQUENCES} fresh sequences."
    )


def spark(losses: Sequence[float]) -> str:
    """A row of at most 16 bars, logarithmic; a longer curve is thinned, and keeps its last point.

    >>> spark([1.0, 0.01, 0.0001])
    '█▅▁'
    """
    thin = losses[:: -math.ceil(len(losses) / BARS_SHOWN)][::-1]
    span = math.log(HIGHEST / LOWEST)
    heights = (math.log(min(max(float(loss), LOWEST), HIGHEST) / LOWEST) / span for loss in thin)
    return "".join(BARS[round(height * (len(BARS) - 1))] for height in heights)


def _document(made: "Task", trained: "Trained", readings: "dict[int, list[Reading]]") -> dict[str, Any]:
    seeds = []
    for index, seed in enumerate(trained.head.seeds):
        curve = [[step, float(loss)] for step, loss in zip(trained.curve_steps, trained.curve[index], strict=True)]
        read = {str(factor): per_seed[index].row() for factor, per_seed in readings.items()}
        seeds.append({"seed": seed, "curve": curve, "evaluations": read})
    return {
        "task": made.name,
        "options": made.options(),
        "head": trained.head.config.label,
        "dim": trained.head.config.dim,
        "parameters": trained.head.parameter_count(),
        "sequences": SEQUENCES,
        "seeds": seeds,
    }
